package astraea

import (
	"cmp"
	"slices"
)

// turn is one tenant's part in a pass.
type turn struct {
	jobs     []*job  // that it may start, in order
	starved  int     // how many of them are ahead because they starved
	plan     int64   // what it may hold
	filled   float64 // plan over quota
	ratio    float64 // service over weighted, as planned
	used     int64
	weighted int64
	out      bool // it has no job left to plan for
}

// allocate plans what each tenant may hold, then places jobs.
func (w *world) allocate(now int64) {
	turns := make([]turn, len(w.tenants))
	for i, t := range w.tenants {
		x := &turns[i]
		x.jobs = append(append(x.jobs, t.starved...), w.sorted(t)...)
		x.starved = len(t.starved)
		x.plan = t.quota
		if !w.cfg.Static {
			x.plan = t.used
			x.filled = float64(x.plan) / float64(t.quota)
			x.ratio = t.ratio
			x.used = t.last.used
			x.weighted = t.last.weighted + t.quota*w.term
		}
	}
	if !w.cfg.Static {
		w.plan(turns)
	}
	for i, t := range w.tenants {
		w.place(t, &turns[i], now)
	}
}

// plan gives out the free devices by count: to the tenant that its plan fills
// least where one is below a fifth of its quota, otherwise to the one with the
// least service over weighted.
func (w *world) plan(turns []turn) {
	next := make([]int, len(turns)) // of each tenant's jobs
	for free := w.free; free > 0 && w.waiting > 0; {
		u := least(turns, func(x *turn) float64 { return x.filled })
		if u < 0 {
			return
		}
		if turns[u].filled >= 0.2 {
			u = least(turns, func(x *turn) float64 { return x.ratio })
		}
		x, quota := &turns[u], w.tenants[u].quota
		for next[u] < len(x.jobs) {
			j := x.jobs[next[u]]
			next[u]++
			if free < j.gpus {
				continue
			}
			x.plan += j.gpus
			free -= j.gpus
			x.used += j.gpus * w.term
			x.ratio = float64(x.used) / float64(x.weighted)
			x.filled = float64(x.plan) / float64(quota)
			break
		}
		x.out = next[u] == len(x.jobs)
	}
}

// least returns the first of the turns that are not out with the least value,
// and -1 when all are out.
func least(turns []turn, value func(*turn) float64) int {
	best := -1
	for i := range turns {
		if !turns[i].out && (best < 0 || value(&turns[i]) < value(&turns[best])) {
			best = i
		}
	}
	return best
}

// place starts a tenant's jobs within its plan, as far as they find room.
func (w *world) place(t *tenant, x *turn, now int64) {
	for _, j := range x.jobs {
		if !w.cfg.Static && j.executed == 0 && j.kills == 0 {
			for t.used+j.gpus > x.plan && len(t.delayed) > 0 {
				victim := t.delayed[0]
				t.delayed = t.delayed[1:]
				w.kill(victim)
			}
		}
		if t.used+j.gpus <= x.plan && w.fit(j) {
			x.starved = max(0, x.starved-1)
			t.used += j.gpus
			w.launch(j, now)
		} else if x.starved > 0 || w.cfg.Block {
			return
		}
	}
}

// launch starts a lease of a job that has its devices.
func (w *world) launch(j *job, now int64) {
	w.waiting--
	i := slices.Index(j.tenant.pending, j)
	j.tenant.pending = slices.Delete(j.tenant.pending, i, i+1)
	j.tenant.active = append(j.tenant.active, j)
	w.running = append(w.running, j)
	j.running = true
	j.checked = now
	j.lease, j.waited = 0, 0
	if j.expiries > 0 && j.saved != now {
		j.paying = true
	}
}

// fit finds j its devices: whole nodes and one with the rest, each the first
// with room; where one of these has none, the rest from the first nodes with any.
func (w *world) fit(j *job) bool {
	if j.gpus > w.free {
		return false
	}
	per := int64(w.cfg.GPUsPerNode)
	left := j.gpus
	for left > 0 {
		want := min(left, per)
		i := slices.IndexFunc(w.room, func(n int64) bool { return n >= want })
		if i < 0 {
			break
		}
		w.grant(j, i, want)
		left -= want
	}
	for i := 0; left > 0; i++ {
		if n := min(left, w.room[i]); n > 0 {
			w.grant(j, i, n)
			left -= n
		}
	}
	w.free -= j.gpus
	return true
}

func (w *world) grant(j *job, node int, n int64) {
	w.room[node] -= n
	j.nodes = append(j.nodes, grant{node, n})
}

// sorted returns the tenant's waiting jobs that do not starve, in their order.
// It also sorts those that may be killed.
func (w *world) sorted(t *tenant) []*job {
	jobs := slices.Clone(t.pending)
	if len(t.starved) > 0 {
		jobs = slices.DeleteFunc(jobs, func(j *job) bool { return slices.Contains(t.starved, j) })
	}
	if w.cfg.Order == Finish {
		for _, j := range jobs {
			j.finishing = j.finishTime()
		}
	}
	less := w.cfg.Order.compare
	slices.SortStableFunc(jobs, less)
	switch w.cfg.Order {
	case FIFO, Smallest, Shortest, Attained:
		t.delayed = t.delayed[:0] // only the orders by fairness know of them
	default:
		slices.SortStableFunc(t.delayed, func(a, b *job) int { return less(b, a) })
	}
	return jobs
}

// compare puts two jobs of a tenant into the order.
func (o Order) compare(a, b *job) int {
	first := 0
	switch o {
	case Smallest:
		first = cmp.Compare(a.gpus, b.gpus)
	case Shortest:
		first = cmp.Compare(a.duration-a.executed, b.duration-b.executed)
	case Attained:
		first = cmp.Compare(a.executed, b.executed)
	case Fairness:
		first = cmp.Compare(a.fairness, b.fairness)
	case Class:
		first = cmp.Compare(a.class, b.class)
	case Reward:
		first = cmp.Or(cmp.Compare(a.class, b.class), cmp.Compare(a.gpus, b.gpus))
	case Finish:
		return cmp.Compare(b.finishing, a.finishing)
	}
	return cmp.Or(first, cmp.Compare(a.submit, b.submit))
}

// finishTime returns the ratio that Finish goes by.
func (j *job) finishTime() float64 {
	if j.deserved == 0 {
		return 1
	}
	remaining := float64(j.duration - j.executed)
	isolated := float64(float64(j.executed)*(j.utilized/j.deserved)) + float64(j.life-j.executed)
	return float64(j.life) / (isolated + remaining)
}
