package elastic

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// step is a job's next size, as it stands in the heap.
type step struct {
	gain int128.Int // what it saves, in nanoseconds or GPU-nanoseconds; may be negative under Service
	more uint64     // how many GPUs it takes
	job  int
	rank int // in the order of jobs, so that ties go by Rank and ID
}

// before says whether s is given GPUs ahead of o: the greater gain for each, without loss.
func (s *step) before(o *step) bool {
	if c := s.compare(o); c != 0 {
		return c > 0
	}
	return s.rank < o.rank
}

func (s *step) compare(o *step) int {
	if x, y := s.gain.Sign(), o.gain.Sign(); x != y {
		return cmp.Compare(x, y)
	} else if x < 0 {
		return int128.CmpProducts(o.gain.Neg(), s.more, s.gain.Neg(), o.more)
	}
	return int128.CmpProducts(s.gain, o.more, o.gain, s.more)
}

// push puts the next size of job i into the heap, if there is one that makes it faster.
func (a *Allocator) push(jobs []Job, i, rank int) {
	if s, ok := a.next(&jobs[i], i); ok {
		s.rank = rank
		a.heap = append(a.heap, s)
		a.up(len(a.heap) - 1)
	}
}

// next returns what the size after the present one brings.
func (a *Allocator) next(j *Job, i int) (step, bool) {
	k := a.at[i] + 1
	if k >= len(j.Sizes) || j.Work == 0 || j.Sizes[k].Time >= j.Sizes[k-1].Time {
		return step{}, false
	}
	now, then := j.Sizes[k-1], j.Sizes[k]
	s := step{more: uint64(then.GPUs - now.GPUs), job: i}
	if a.cfg.Rule == Service {
		saved := int128.Product(int64(now.GPUs), int64(now.Time)).Sub(int128.Product(int64(then.GPUs), int64(then.Time)))
		s.gain = times(saved, j.Work)
	} else {
		s.gain = int128.Product(int64(now.Time-then.Time), j.Work)
	}
	return s, true
}

// times returns v×w, for v of at most 2^79 and w of at most 2^40.
func times(v int128.Int, w int64) int128.Int {
	if v.Sign() < 0 {
		return times(v.Neg(), w).Neg()
	}
	hi, lo := v.Words()
	high := int128.Mul(hi, uint64(w))
	_, top := high.Words() // below 2^56
	return int128.FromWords(top, 0).Add(int128.Mul(lo, uint64(w)))
}

// grow gives the free GPUs out, step by step. A step that does not fit is dropped: the
// free GPUs only become fewer.
func (a *Allocator) grow(free int, jobs []Job) {
	for free > 0 && len(a.heap) > 0 {
		s := a.heap[0]
		if int(s.more) <= free {
			free -= int(s.more)
			a.at[s.job]++
			if next, ok := a.next(&jobs[s.job], s.job); ok {
				next.rank = s.rank
				a.heap[0] = next
				a.down()
				continue
			}
		}
		last := len(a.heap) - 1
		a.heap[0] = a.heap[last]
		a.heap = a.heap[:last]
		a.down()
	}
}

func (a *Allocator) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !a.heap[i].before(&a.heap[parent]) {
			return
		}
		a.heap[i], a.heap[parent] = a.heap[parent], a.heap[i]
		i = parent
	}
}

func (a *Allocator) down() {
	for i := 0; ; {
		child := 2*i + 1
		if child >= len(a.heap) {
			return
		}
		if child+1 < len(a.heap) && a.heap[child+1].before(&a.heap[child]) {
			child++
		}
		if !a.heap[child].before(&a.heap[i]) {
			return
		}
		a.heap[i], a.heap[child] = a.heap[child], a.heap[i]
		i = child
	}
}

// pin finds growth that is not worth its cost, and reports whether there was any.
func (a *Allocator) pin(jobs []Job) bool {
	found := false
	for i := range jobs {
		if a.fixed[i] == Given && a.at[i] >= 0 && a.dear(&jobs[i], jobs[i].Sizes[a.at[i]]) {
			a.fixed[i] = TooDear
			found = true
		}
	}
	return found
}

// dear says that a running job would not gain by more GPUs within the horizon what the
// resize costs it: (1 - then/now) × horizon <= cost, without loss.
func (a *Allocator) dear(j *Job, to Size) bool {
	if a.cfg.Horizon == 0 || j.Held == 0 || to.GPUs <= j.Held {
		return false
	}
	k, ok := slices.BinarySearchFunc(j.Sizes, j.Held, func(s Size, n int) int { return cmp.Compare(s.GPUs, n) })
	if !ok {
		return false // how fast it is now is not known, and it is where it should not be
	}
	now, cost := j.Sizes[k].Time, j.Capabilities.Save+j.Capabilities.Restore
	saved := int128.Product(int64(now-to.Time), int64(a.cfg.Horizon))
	return saved.Cmp(int128.Product(int64(now), int64(cost))) <= 0
}

// takeBack leaves those that were pinned last what they hold.
func (a *Allocator) takeBack(jobs []Job) {
	for i := range jobs {
		if a.fixed[i] == TooDear && a.at[i] >= 0 {
			a.at[i] = held
		}
	}
}
