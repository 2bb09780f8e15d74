package placement

import (
	"maps"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// class is one set of wishes that a node alone can answer: the selectors and
// tolerations of a gang and of a role, with the device classes and memory. Its
// answers are kept as a bitmap over slots.
type class struct {
	gang, role lockstep.Constraints // without affinities
	devices    []lockstep.DeviceClass
	gpuMemory  lockstep.Bytes
	profile    lockstep.Profile
	ok         []uint64 // by slot
	refs       int      // views that use it
}

// admits reports whether a node meets the wishes of c, by which kind of wish.
func (s *State) admits(c *class, n *Node) (bool, wish) {
	if len(c.devices) > 0 && !slices.Contains(c.devices, n.Class) || c.gpuMemory > n.GPUMemory || c.profile != "" && !s.offers(n, c.profile) {
		return false, wishDevice
	}
	for _, set := range [...]*lockstep.Constraints{&c.gang, &c.role} {
		for i := range set.Selector {
			if !set.Selector[i].Matches(n.Labels) {
				return false, wishSelector
			}
		}
	}
	for _, t := range n.Taints {
		if !tolerates(c.gang.Tolerations, t) && !tolerates(c.role.Tolerations, t) {
			return false, wishTaint
		}
	}
	return true, 0
}

// wish is a part of a class or a demand, for explanations.
type wish uint8

const (
	wishDevice wish = iota + 1
	wishSelector
	wishTaint
	wishAffinity
)

func tolerates(list []lockstep.Toleration, t lockstep.Taint) bool {
	for _, o := range list {
		if o.Tolerates(t) {
			return true
		}
	}
	return false
}

func (c *class) has(x int32) bool { return c.ok[x>>6]>>(uint(x)&63)&1 != 0 }

func (c *class) set(x int32, ok bool) {
	if ok {
		c.ok[x>>6] |= 1 << (uint(x) & 63)
	} else {
		c.ok[x>>6] &^= 1 << (uint(x) & 63)
	}
}

func (c *class) equal(gang, role *lockstep.Constraints, d *lockstep.Demand) bool {
	return c.gpuMemory == d.GPUMemory && c.profile == d.Profile && slices.Equal(c.devices, d.Classes) &&
		equalWishes(&c.gang, gang) && equalWishes(&c.role, role)
}

func equalWishes(a, b *lockstep.Constraints) bool {
	if len(a.Selector) != len(b.Selector) || !slices.Equal(a.Tolerations, b.Tolerations) {
		return false
	}
	for i := range a.Selector {
		x, y := &a.Selector[i], &b.Selector[i]
		if x.Key != y.Key || x.Operator != y.Operator || !slices.Equal(x.Values, y.Values) {
			return false
		}
	}
	return true
}

// classFor returns the class of a role, compiled when it is new.
func (s *State) classFor(g *lockstep.Gang, r *lockstep.Role) *class {
	for _, c := range s.classes {
		if c.equal(&g.Constraints, &r.Constraints, &r.Demand) {
			return c
		}
	}
	c := &class{
		gang: g.Constraints.Clone(), role: r.Constraints.Clone(),
		devices: slices.Clone(r.Demand.Classes), gpuMemory: r.Demand.GPUMemory, profile: r.Demand.Profile,
		ok: make([]uint64, (len(s.slots)+63)/64),
	}
	c.gang.Affinity, c.role.Affinity = nil, nil
	for x := range s.slots {
		s.refreshClass(c, int32(x))
	}
	s.classes = append(s.classes, c)
	return c
}

func (s *State) refreshClass(c *class, x int32) {
	ok := s.slots[x].flags&vacant == 0
	if ok {
		ok, _ = s.admits(c, &s.specs[x].node)
	}
	c.set(x, ok)
}

// term counts the members of the jobs whose labels match, by domain of a level.
type term struct {
	match  map[string]string
	level  int
	counts []int32 // by domain
	total  int32
	flips  uint64 // how often total came to be zero, or ceased to be
	refs   int    // views that use it
}

// limit is an affinity of a view.
type limit struct {
	term *term
	anti bool
	self bool // the gang matches its own affinity, and so may be first
}

// ok reports whether domain d of the term's level will do.
func (l *limit) ok(d int32) bool {
	if l.anti {
		return l.term.counts[d] == 0
	}
	return l.term.counts[d] > 0 || l.self && l.term.total == 0
}

func matches(match, labels map[string]string) bool {
	if len(labels) < len(match) {
		return false
	}
	for k, v := range match { // all must hold, in any order
		if w, ok := labels[k]; !ok || w != v {
			return false
		}
	}
	return true
}

// termFor returns the term of an affinity, counted when it is new.
func (s *State) termFor(match map[string]string, level int) *term {
	for _, t := range s.terms {
		if t.level == level && maps.Equal(t.match, match) {
			return t
		}
	}
	t := &term{match: maps.Clone(match), level: level, counts: make([]int32, s.tree.Domains(level))}
	s.terms = append(s.terms, t)
	for i := range s.jobs {
		j := &s.jobs[i]
		if rec, ok := s.byID[j.id]; ok && int(rec) == i && matches(match, j.gang.Labels) {
			s.count(t, j, 1)
		}
	}
	return t
}

// countTerms adds or removes the members of a job.
func (s *State) countTerms(j *job, by int32) {
	for _, t := range s.terms {
		if matches(t.match, j.gang.Labels) {
			s.count(t, j, by)
		}
	}
}

func (s *State) count(t *term, j *job, by int32) {
	for i := range j.seats {
		if x := j.seats[i].slot; x >= 0 {
			s.countSeat(t, x, by)
		}
	}
}

// countSeat moves one count, and tells the views where that changes an answer.
func (s *State) countSeat(t *term, x, by int32) {
	d := s.tree.DomainOf(t.level, x)
	old := t.counts[d]
	t.counts[d] += by
	if (t.total == 0) != (t.total+by == 0) {
		t.flips++
		s.epoch++
	}
	t.total += by
	if (old == 0) == (t.counts[d] == 0) {
		return
	}
	s.epoch++
	first, end := s.tree.Range(t.level, d)
	for y := first; y < end; y++ {
		s.push(y)
	}
}
