package placertest

import (
	"reflect"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
)

// full returns the placer's ability and how many gangs of one device, named g0 and
// so on, fill it; or skips.
func (s *suite) full() (gang.Preempter, int) {
	s.t.Helper()
	p, ok := s.p.(gang.Preempter)
	if !ok {
		s.t.Skip("it finds no victims")
	}
	n, _ := s.fill()
	return p, n
}

// candidates are the first n gangs of fill, each a device-hour dearer than the last.
func candidates(n int) *lockstep.Candidates {
	c := &lockstep.Candidates{}
	for i := range n {
		cost := lockstep.EvictionCost{Lost: time.Duration(i+1) * time.Hour, Devices: lockstep.WholeGPU}
		c.Jobs = append(c.Jobs, lockstep.Candidate{Job: single(i).ID, Cost: cost})
	}
	return c
}

// several is a gang of so many members of one device.
func several(members int) *lockstep.Gang {
	g := single(1 << 20)
	g.Roles[0].Min = members
	return g
}

// hunt asks for victims and checks that what it is told makes room, and that the
// state is as before.
func (s *suite) hunt(p gang.Preempter, g *lockstep.Gang, c *lockstep.Candidates) (evictions []lockstep.Eviction, ok bool) {
	s.t.Helper()
	r := &lockstep.Request{Gang: g}
	before, _ := s.fits(r)
	var out lockstep.Preempted
	v, err := p.Victims(r, c, &out)
	s.must(err)
	if after, _ := s.fits(r); !reflect.DeepEqual(after, before) {
		s.t.Fatalf("it changed something: %v, then %v", before, after)
	}
	if !v.Feasible {
		if v.Reason == "" || len(out.Evictions) > 0 {
			s.t.Fatalf("infeasible: %v with %v", v, out.Evictions)
		}
		return nil, false
	}
	if len(out.Plan.Members) < g.Roles[0].Min {
		s.t.Fatalf("room for %d of %d", len(out.Plan.Members), g.Roles[0].Min)
	}
	s.makesRoom(g, &out)
	return out.Evictions, true
}

// makesRoom checks, in a what-if, that out's plan fits once its whole evictions are
// done.
func (s *suite) makesRoom(g *lockstep.Gang, out *lockstep.Preempted) {
	s.t.Helper()
	w := s.whatIf()
	m := w.Mark()
	for _, e := range out.Evictions {
		if len(e.Ranks) > 0 {
			s.must(w.Rollback(m))
			return
		}
		s.must(s.p.Release(e.Job))
	}
	plan := s.fit(&lockstep.Request{Gang: g, Prefer: &out.Plan})
	s.same("the room", &lockstep.Plan{Members: plan.Members}, &lockstep.Plan{Members: out.Plan.Members})
	s.must(s.p.Apply(plan))
	s.must(w.Rollback(m))
}

func (s *suite) victimsAreNeeded() {
	p, n := s.full()
	if got, ok := s.hunt(p, several(1), candidates(n)); !ok || len(got) != 1 || got[0].Job != "g0" {
		s.t.Fatalf("for one: %v, want g0, the cheapest", got)
	}
	got, ok := s.hunt(p, several(3), candidates(n))
	if !ok || len(got) != 3 {
		s.t.Fatalf("for three: %v", got)
	}
	s.must(s.p.Release("g1"))
	c := candidates(n)
	c.Jobs = append(c.Jobs[:1], c.Jobs[2:]...)
	if got, ok = s.hunt(p, several(1), c); !ok || len(got) != 0 {
		s.t.Fatalf("there is room, and yet %v", got)
	}
	if got, ok = s.hunt(p, several(2), c); !ok || len(got) != 1 {
		s.t.Fatalf("one is enough: %v", got)
	}
	if got, ok = s.hunt(p, several(n+1), c); ok {
		s.t.Fatalf("more than there is: %v", got)
	}
}

func (s *suite) victimsAreCandidates() {
	p, n := s.full()
	if got, ok := s.hunt(p, several(1), &lockstep.Candidates{}); ok {
		s.t.Fatalf("nobody may go: %v", got)
	}
	if got, ok := s.hunt(p, several(2), candidates(1)); ok {
		s.t.Fatalf("one is not enough: %v", got)
	}
	c := candidates(n)
	c.Max = 2
	if got, ok := s.hunt(p, several(2), c); !ok || len(got) != 2 {
		s.t.Fatalf("two may go: %v", got)
	}
	if got, ok := s.hunt(p, several(3), c); ok {
		s.t.Fatalf("three must not go: %v", got)
	}
}

func (s *suite) victimsByTier() {
	p, n := s.full()
	c := candidates(n)
	c.Jobs[0].Tier = 1
	if got, ok := s.hunt(p, several(1), c); !ok || len(got) != 1 || got[0].Job != "g1" {
		s.t.Fatalf("%v, want g1, the cheapest of the lower tier", got)
	}
	for i := range c.Jobs {
		c.Jobs[i].Tier = int32(i)
	}
	got, ok := s.hunt(p, several(2), c)
	if !ok || len(got) != 2 || got[0].Job != "g0" || got[1].Job != "g1" {
		s.t.Fatalf("%v, want g0 and g1", got)
	}
}

func (s *suite) victimsWithinLimits() {
	p, n := s.full()
	c := candidates(n)
	c.Limits = []lockstep.Resources{{lockstep.ResourceGPU: int64(lockstep.WholeGPU)}, {}}
	c.Jobs[0].Limits, c.Jobs[1].Limits, c.Jobs[2].Limits = []int32{0}, []int32{0, 1}, []int32{1}
	got, ok := s.hunt(p, several(2), c)
	if !ok || len(got) != 2 || got[0].Job != "g0" || got[1].Job != "g2" {
		s.t.Fatalf("%v, want g0 and g2: of g0 and g1 only one may go", got)
	}
	c.Jobs = c.Jobs[:2]
	if got, ok = s.hunt(p, several(2), c); ok {
		s.t.Fatalf("of g0 and g1 only one may go: %v", got)
	}
}

func (s *suite) victimsShrink() {
	p, n := s.full()
	for i := range 3 {
		s.must(s.p.Release(single(i).ID))
	}
	big := single(n)
	big.Roles[0].Min, big.Roles[0].Max = 1, 3
	if got := len(s.place(big).Members); got != 3 {
		s.t.Fatalf("%d members of 3", got)
	}
	dear := lockstep.EvictionCost{Lost: time.Hour, Devices: 3 * lockstep.WholeGPU}
	c := &lockstep.Candidates{Jobs: []lockstep.Candidate{{Job: big.ID, Cost: dear, Min: []int{1}}}}
	got, ok := s.hunt(p, several(1), c)
	if !ok || len(got) != 1 || len(got[0].Ranks) != 1 {
		s.t.Fatalf("%v, want one member to go", got)
	}
	if got, ok = s.hunt(p, several(2), c); !ok || len(got) != 1 || len(got[0].Ranks) != 2 {
		s.t.Fatalf("%v, want two members to go", got)
	}
	if got, ok = s.hunt(p, several(3), c); !ok || len(got) != 1 || len(got[0].Ranks) != 0 {
		s.t.Fatalf("%v, want all of it to go", got)
	}
}
