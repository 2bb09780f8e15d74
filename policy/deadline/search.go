package deadline

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// small is up to how many jobs the search has all its steps.
const small = 64

// solve plans all jobs of a list, or says with exact that it cannot be done. The rules of thumb come first: each takes
// the jobs in some order and gives every one its latest (or earliest) slots with room.
func (t *Table) solve(list []*job) (plan [][]int, exact bool) {
	wants := make([]want, len(list))
	for i, j := range list {
		wants[i] = t.want(j)
	}
	first, capacity := t.first(), t.cfg.GPUs
	held := make([]int, first) // what cannot be planned any more is not looked at
	if impossible(wants, first, capacity) {
		return nil, true
	}
	slack := func(w want) int { return w.have - w.need }
	for _, order := range []func(a, b want) int{
		func(a, b want) int {
			return cmp.Or(cmp.Compare(slack(a), slack(b)), cmp.Compare(a.have, b.have), cmp.Compare(b.gpus, a.gpus))
		},
		func(a, b want) int {
			return cmp.Or(cmp.Compare(a.have, b.have), cmp.Compare(b.gpus, a.gpus), cmp.Compare(slack(a), slack(b)))
		},
		func(a, b want) int {
			return cmp.Or(cmp.Compare(b.gpus, a.gpus), cmp.Compare(slack(a), slack(b)), cmp.Compare(a.have, b.have))
		},
	} {
		turn := make([]int, len(wants))
		for i := range turn {
			turn[i] = i
		}
		slices.SortStableFunc(turn, func(a, b int) int { return order(wants[a], wants[b]) })
		for _, pick := range []func([]int, int, want, int) ([]int, bool){latest, earliest} {
			if plan := fill(wants, turn, held, first, capacity, pick); plan != nil {
				return plan, false
			}
		}
	}
	// A step looks at every job: with many jobs fewer steps keep its time within bounds.
	budget := int(int64(t.cfg.Search) * small / max(int64(len(wants)), small))
	s := searcher{wants: wants, capacity: capacity, left: make([]int, len(wants)), budget: budget, dead: make(map[string]bool)}
	for i, w := range wants {
		s.left[i] = w.need
		s.end = max(s.end, w.have)
	}
	if s.slot(first) {
		return s.plan(), false
	}
	return nil, s.budget > 0
}

// fill gives each job in turn its slots, or returns nil.
func fill(wants []want, turn, held []int, first, capacity int, pick func([]int, int, want, int) ([]int, bool)) [][]int {
	used := slices.Clone(held)
	plan := make([][]int, len(wants))
	for _, i := range turn {
		slots, ok := pick(used, capacity, wants[i], first)
		if !ok {
			return nil
		}
		plan[i] = slots
		for _, s := range slots {
			for len(used) <= s {
				used = append(used, 0)
			}
			used[s] += wants[i].gpus
		}
	}
	return plan
}

// latest finds the latest slots that a job needs, from first on, in which used leaves room.
func latest(used []int, capacity int, w want, first int) ([]int, bool) {
	if w.need > w.have-first {
		return nil, w.need <= 0
	}
	slots := make([]int, 0, w.need)
	for s := w.have - 1; s >= first && len(slots) < w.need; s-- {
		if s >= len(used) || used[s]+w.gpus <= capacity {
			slots = append(slots, s)
		}
	}
	if len(slots) < w.need {
		return nil, false
	}
	slices.Reverse(slots)
	return slots, true
}

// earliest finds the earliest.
func earliest(used []int, capacity int, w want, first int) ([]int, bool) {
	slots := some(used, capacity, w, first)
	return slots, len(slots) >= w.need
}

// impossible reports whether the slots from first on to some slot are asked for more than they have. By slot d a job must
// have done what the slots between d and its deadline cannot take: nothing before its slack is used up, one slot in each
// slot from there to its deadline. So the sum over all jobs is followed from one bend to the next. And of the jobs that
// need more than half of the devices one runs at a time.
func impossible(wants []want, first, capacity int) bool {
	type bend struct {
		at         int
		work, wide int64 // by how much each further slot asks for more
	}
	bends := make([]bend, 0, 2*len(wants))
	for _, w := range wants {
		if w.need == 0 {
			continue
		}
		if w.need > w.have-first {
			return true
		}
		up := bend{at: w.have - w.need, work: int64(w.gpus)}
		if 2*w.gpus > capacity {
			up.wide = 1
		}
		bends = append(bends, up, bend{w.have, -up.work, -up.wide})
	}
	slices.SortFunc(bends, func(a, b bend) int { return cmp.Compare(a.at, b.at) }) // those of one slot add up, so their order cannot matter
	at, work, wide := first, int64(0), int64(0)
	var now bend
	for _, b := range bends {
		passed := int64(b.at - at)
		work, wide, at = work+passed*now.work, wide+passed*now.wide, b.at
		if span := int64(at - first); work > span*int64(capacity) || wide > span {
			return true
		}
		now.work, now.wide = now.work+b.work, now.wide+b.wide
	}
	return false
}

// searcher goes through the slots in time and tries all sets of jobs that a slot can hold, but only those to which no
// other job could be added: running earlier never hurts. States from which there is no plan are remembered.
type searcher struct {
	wants    []want
	capacity int
	left     []int // slots that each job needs yet
	end      int
	budget   int // steps left; the search gave up at 0
	dead     map[string]bool
	runs     [][]int // by slot, the jobs in it
}

// slot plans slot s and all after it.
func (s *searcher) slot(at int) bool {
	free, must := s.capacity, 0
	done := true
	for i, w := range s.wants {
		if s.left[i] == 0 {
			continue
		}
		done = false
		switch {
		case s.left[i] > w.have-at:
			return false
		case s.left[i] == w.have-at:
			free -= w.gpus
			must++
		}
	}
	if done {
		return true
	}
	if free < 0 {
		return false
	}
	key := s.key(at)
	if s.dead[key] {
		return false
	}
	var may []int
	var run []int
	for i, w := range s.wants {
		switch {
		case s.left[i] == 0:
		case s.left[i] == w.have-at:
			run = append(run, i)
		case w.gpus <= free:
			may = append(may, i)
		}
	}
	// The most urgent and widest first, so that a plan is found soon.
	slices.SortStableFunc(may, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.wants[a].have-s.left[a], s.wants[b].have-s.left[b]), cmp.Compare(s.wants[b].gpus, s.wants[a].gpus))
	})
	if s.choose(at, run, may, nil, free) {
		return true
	}
	if s.budget > 0 {
		s.dead[key] = true
	}
	return false
}

// choose adds jobs of may to run, in every way that leaves no room for one of those left out.
func (s *searcher) choose(at int, run, may, out []int, free int) bool {
	if s.budget--; s.budget <= 0 {
		s.budget = 0
		return false
	}
	if len(may) == 0 {
		for _, i := range out {
			if s.wants[i].gpus <= free {
				return false
			}
		}
		s.runs = append(s.runs, append([]int{at}, run...))
		for _, i := range run {
			s.left[i]--
		}
		if s.slot(at + 1) {
			return true
		}
		for _, i := range run {
			s.left[i]++
		}
		s.runs = s.runs[:len(s.runs)-1]
		return false
	}
	i, rest := may[0], may[1:]
	if s.wants[i].gpus <= free && s.choose(at, append(run[:len(run):len(run)], i), rest, out, free-s.wants[i].gpus) {
		return true
	}
	if s.budget == 0 {
		return false
	}
	return s.choose(at, run, rest, append(out[:len(out):len(out)], i), free)
}

// key names a state.
func (s *searcher) key(at int) string {
	b := binary.AppendUvarint(nil, uint64(at))
	for _, n := range s.left {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return string(b)
}

// plan turns the slots' jobs into the jobs' slots.
func (s *searcher) plan() [][]int {
	plan := make([][]int, len(s.wants))
	for _, run := range s.runs {
		for _, i := range run[1:] {
			plan[i] = append(plan[i], run[0])
		}
	}
	return plan
}
