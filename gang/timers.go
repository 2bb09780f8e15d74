package gang

import "slices"

// timer is a time at which a Step has something to do. Job is nil for windows.
type timer struct {
	at  int64
	job *job
}

// timers is a heap of times, earliest first, then by job. A timer whose cause has
// passed is dropped when it comes to the front, or when they are more than half.
type timers struct {
	heap []timer
	most int // as many may be in the heap before it is cleared
}

func (t *timers) less(i, k int) bool {
	x, y := &t.heap[i], &t.heap[k]
	if x.at != y.at || x.job == nil || y.job == nil {
		return x.at < y.at || x.at == y.at && x.job == nil && y.job != nil
	}
	return x.job.id < y.job.id
}

// set asks for a Step at time at.
func (t *timers) set(a *Admission, at int64, j *job) {
	if at == forever || at == minTime {
		return
	}
	if len(t.heap) >= t.most {
		t.clear(a)
	}
	t.heap = append(t.heap, timer{at: at, job: j})
	for i := len(t.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !t.less(i, up) {
			break
		}
		t.heap[i], t.heap[up] = t.heap[up], t.heap[i]
		i = up
	}
}

// clear drops all timers whose causes have passed.
func (t *timers) clear(a *Admission) {
	t.heap = slices.DeleteFunc(t.heap, func(x timer) bool { return !x.live(a) })
	for i := len(t.heap)/2 - 1; i >= 0; i-- {
		t.sift(i)
	}
	t.most = 2*len(t.heap) + 64
}

// drop removes the front.
func (t *timers) drop() {
	last := len(t.heap) - 1
	t.heap[0] = t.heap[last]
	t.heap[last] = timer{}
	t.heap = t.heap[:last]
	t.sift(0)
}

// sift moves the timer at i down to where it belongs.
func (t *timers) sift(i int) {
	for {
		down := 2*i + 1
		if down >= len(t.heap) {
			return
		}
		if down+1 < len(t.heap) && t.less(down+1, down) {
			down++
		}
		if !t.less(down, i) {
			return
		}
		t.heap[i], t.heap[down] = t.heap[down], t.heap[i]
		i = down
	}
}

// live reports whether the cause of x has not passed.
func (x *timer) live(a *Admission) bool {
	if x.job == nil {
		return slices.ContainsFunc(a.windows, func(w Window) bool { return w.to == x.at })
	}
	switch j := x.job; j.phase {
	case Held:
		return j.deadline == x.at
	case Queued:
		return j.notUntil == x.at || slices.ContainsFunc(j.refused, func(r refusal) bool { return r.Until == x.at })
	}
	return false
}

// next returns the earliest time whose cause has not passed.
func (t *timers) next(a *Admission) (int64, bool) {
	for len(t.heap) > 0 {
		if t.heap[0].live(a) {
			return t.heap[0].at, true
		}
		t.drop()
	}
	return 0, false
}
