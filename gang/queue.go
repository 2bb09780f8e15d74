package gang

import "slices"

// queue keeps waiting and due jobs in the default order. Entries that are no longer in it are dropped before a pass.
type queue struct {
	list []*job
	live int
	next int
}

// enqueue puts j into the queue, where it may be already.
func (a *Admission) enqueue(j *job) {
	if j.inQueue {
		return
	}
	q := &a.queue
	i, found := slices.BinarySearchFunc(q.list, j, byOrder)
	if found {
		q.list[i] = j // a stale entry, of j or of an earlier job of the same name
	} else {
		q.list = slices.Insert(q.list, i, j)
	}
	j.inQueue = true
	q.live++
}

// unqueue takes j out of the queue, where it need not be.
func (a *Admission) unqueue(j *job) {
	if j.inQueue {
		j.inQueue = false
		a.queue.live--
	}
}

// compact drops the entries that are not live.
func (q *queue) compact() {
	if q.live < len(q.list) {
		q.list = slices.DeleteFunc(q.list, func(j *job) bool { return !j.inQueue })
	}
}

// take returns the next job of the pass, or nil at its end.
func (q *queue) take() *job {
	for q.next < len(q.list) {
		j := q.list[q.next]
		q.next++
		if j.inQueue {
			return j
		}
	}
	return nil
}
