package gang

import "slices"

// queue keeps the waiting jobs: those of one shape in a line, in the default
// order. A pass merges the lines, and leaves out those whose jobs all fail.
type queue struct {
	shapes  []*shape // those that have jobs in line, in no order that counts
	waiting int      // jobs in all lines

	heads  []*shape // of the pass: a heap of lines by who is next
	due    []*job   // of the pass: due holders in the default order
	passed int      // due holders that had their turn
	left   bool     // lines were left out
	epoch  uint64   // room when the heap was made
}

// enqueue puts the waiting job j in line, where it may be already.
func (a *Admission) enqueue(j *job) {
	if j.inQueue {
		return
	}
	s := j.shape
	j.inQueue, j.span, j.seen = true, later(a.lead(j), j.wall()), a.pass
	if len(s.line) == 0 {
		s.place = len(a.queue.shapes)
		a.queue.shapes = append(a.queue.shapes, s)
	}
	s.line = insertSorted(s.line, j, byOrder)
	s.spans = insertSorted(s.spans, j, bySpan)
	a.queue.waiting++
	a.countRefusing(j)
}

// unqueue takes j out of its line, where it need not be.
func (a *Admission) unqueue(j *job) {
	if !j.inQueue {
		return
	}
	s, q := j.shape, &a.queue
	j.inQueue = false
	a.countRefusing(j)
	i, _ := slices.BinarySearchFunc(s.line, j, byOrder)
	s.line = deleteAt(s.line, i)
	if i < s.next {
		s.next--
	}
	s.spans = removeSorted(s.spans, j, bySpan)
	q.waiting--
	if len(s.line) == 0 {
		last := q.shapes[len(q.shapes)-1]
		q.shapes[s.place], last.place = last, s.place
		q.shapes = q.shapes[:len(q.shapes)-1]
	}
}

// countRefusing notes whether j waits and refused nodes, so that the failures of
// its like do not stand for it.
func (a *Admission) countRefusing(j *job) {
	refusing := j.inQueue && len(j.refused) > 0
	switch {
	case refusing && !j.refusing:
		j.shape.refusing++
	case !refusing && j.refusing:
		j.shape.refusing--
	}
	j.refusing = refusing
}

// deleteAt takes list[i] out, moving the shorter side.
func deleteAt(list []*job, i int) []*job {
	if i < len(list)/2 {
		copy(list[1:i+1], list[:i])
		list[0] = nil
		return list[1:]
	}
	return slices.Delete(list, i, i+1)
}

// begin starts a pass in the default order.
func (q *queue) begin(a *Admission) {
	q.due = append(q.due[:0], a.due...)
	slices.SortFunc(q.due, byOrder)
	q.passed = 0
	for _, s := range q.shapes {
		s.next = 0
	}
	q.merge(a)
}

// resume merges the lines anew behind j, since room was freed: those left out
// may have room again.
func (q *queue) resume(a *Admission, j *job) {
	for _, s := range q.shapes {
		i, found := slices.BinarySearchFunc(s.line, j, byOrder)
		if s.next = i; found {
			s.next++
		}
	}
	q.merge(a)
}

func (q *queue) merge(a *Admission) {
	q.epoch, q.left = a.epoch, false
	q.heads = q.heads[:0]
	for _, s := range q.shapes {
		if s.next < len(s.line) {
			q.heads = append(q.heads, s)
		}
	}
	for i := len(q.heads)/2 - 1; i >= 0; i-- {
		q.sift(i)
	}
}

// sift moves the line at i down to where it belongs in the heap.
func (q *queue) sift(i int) {
	h := q.heads
	for {
		down := 2*i + 1
		if down >= len(h) {
			return
		}
		if down+1 < len(h) && h[down+1].before(h[down]) {
			down++
		}
		if !h[down].before(h[i]) {
			return
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
}

func (s *shape) before(o *shape) bool { return byOrder(s.line[s.next], o.line[o.next]) < 0 }

// drop takes the first line out of the heap.
func (q *queue) drop() {
	last := len(q.heads) - 1
	q.heads[0] = q.heads[last]
	q.heads = q.heads[:last]
	q.sift(0)
}

// take returns the next job in the default order, or nil at the end. Waiting jobs
// of which it is known that they have no room are left out, once that changes
// nothing for others.
func (q *queue) take(a *Admission) *job {
	for len(q.heads) > 0 {
		s := q.heads[0]
		if q.passed < len(q.due) && byOrder(q.due[q.passed], s.line[s.next]) < 0 {
			break
		}
		if a.reservedAll() {
			if a.spent(s) {
				q.left = true
				q.drop()
				continue
			}
			if n := a.firstAble(s); n > s.next {
				if s.next = n; n == len(s.line) {
					q.drop()
				} else {
					q.sift(0)
				}
				continue
			}
		}
		j := s.line[s.next]
		if s.next++; s.next == len(s.line) {
			q.drop()
		} else {
			q.sift(0)
		}
		return j
	}
	if q.passed < len(q.due) {
		q.passed++
		return q.due[q.passed-1]
	}
	return nil
}
