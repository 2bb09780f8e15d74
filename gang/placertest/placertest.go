package placertest

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
)

// TestPlacer holds the placers that newPlacer makes to the contract of
// gang.Placer and, if they have it, of gang.WhatIf and gang.Preempter. Each must be empty, like the
// others, and have room for at least four gangs of one device, on two nodes or
// more.
func TestPlacer(t *testing.T, newPlacer func() gang.Placer) {
	for _, tc := range []struct {
		name string
		test func(*suite)
	}{
		{"a fit holds nothing and repeats", (*suite).fitHoldsNothing},
		{"a plan takes its room once", (*suite).planTakesRoom},
		{"an older plan is stale", (*suite).olderPlanIsStale},
		{"released room is free again", (*suite).releasedRoomIsFree},
		{"busy room and excluded nodes are left alone", (*suite).leavesAlone},
		{"preferred places are kept while they are free", (*suite).keepsPlaces},
		{"counts lie between min and max", (*suite).countsInRange},
		{"what is full says why", (*suite).fullSaysWhy},
		{"what can never fit is invalid", (*suite).neverIsInvalid},
		{"rollback restores everything", (*suite).rollbackRestores},
		{"marks nest", (*suite).marksNest},
		{"victims make room and nobody goes without need", (*suite).victimsAreNeeded},
		{"who may not go stays", (*suite).victimsAreCandidates},
		{"lower tiers go first, then whoever costs less", (*suite).victimsByTier},
		{"limits hold", (*suite).victimsWithinLimits},
		{"who shrinks keeps its least", (*suite).victimsShrink},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(&suite{t: t, p: newPlacer()}) })
	}
}

type suite struct {
	t *testing.T
	p gang.Placer
}

func single(n int) *lockstep.Gang {
	return &lockstep.Gang{
		ID:    lockstep.JobID("g" + strconv.Itoa(n)),
		Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 1}}},
	}
}

// fit fits what must fit.
func (s *suite) fit(r *lockstep.Request) *lockstep.Plan {
	s.t.Helper()
	var plan lockstep.Plan
	v, err := s.p.Fit(r, &plan)
	if err != nil || !v.Feasible {
		s.t.Fatalf("fit %s: %v, %v", r.Gang.ID, v, err)
	}
	if plan.Job != r.Gang.ID || plan.Gang == nil {
		s.t.Fatalf("fit %s: the plan is for %q, gang %v", r.Gang.ID, plan.Job, plan.Gang)
	}
	return &plan
}

// fits reports whether r fits.
func (s *suite) fits(r *lockstep.Request) (lockstep.Verdict, *lockstep.Plan) {
	s.t.Helper()
	var plan lockstep.Plan
	v, err := s.p.Fit(r, &plan)
	if err != nil {
		s.t.Fatalf("fit %s: %v", r.Gang.ID, err)
	}
	return v, &plan
}

func (s *suite) place(g *lockstep.Gang) *lockstep.Plan {
	s.t.Helper()
	plan := s.fit(&lockstep.Request{Gang: g})
	s.must(s.p.Apply(plan))
	return plan
}

func (s *suite) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *suite) want(err, kind error, what string) {
	s.t.Helper()
	if !errors.Is(err, kind) {
		s.t.Fatalf("%s: %v, want %v", what, err, kind)
	}
}

func (s *suite) same(what string, got, want *lockstep.Plan) {
	s.t.Helper()
	if !slices.Equal(got.Members, want.Members) || got.Version != want.Version {
		s.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func (s *suite) fitHoldsNothing() {
	first := s.fit(&lockstep.Request{Gang: single(1)})
	s.same("again", s.fit(&lockstep.Request{Gang: single(1)}), first)
	s.want(s.p.Release("g1"), lockstep.ErrUnknown, "release of a fit")
	r := &lockstep.Request{Gang: single(1), Exclude: []lockstep.NodeID{"b", "a"}}
	s.fits(r)
	if !reflect.DeepEqual(r, &lockstep.Request{Gang: single(1), Exclude: []lockstep.NodeID{"b", "a"}}) {
		s.t.Fatal("the request was changed")
	}
}

func (s *suite) planTakesRoom() {
	a := s.place(single(1))
	b := s.place(single(2))
	if a.Members[0].Node == b.Members[0].Node && a.Members[0].Devices&b.Members[0].Devices != 0 {
		s.t.Fatalf("both are on %v", a.Members[0])
	}
	again := s.fit(&lockstep.Request{Gang: single(3)})
	again.Job = "g1"
	if err := s.p.Apply(again); err == nil {
		s.t.Fatal("a job got room twice")
	}
}

func (s *suite) olderPlanIsStale() {
	plan := s.fit(&lockstep.Request{Gang: single(1)})
	before := plan.Clone()
	s.place(single(2))
	s.want(s.p.Apply(plan), lockstep.ErrStale, "a plan from before")
	s.want(s.p.Release("g1"), lockstep.ErrUnknown, "after a refused apply")
	s.same("the plan", plan, before)
	s.must(s.p.Release("g2"))
	s.want(s.p.Apply(plan), lockstep.ErrStale, "the state is alike, but not the same")
}

func (s *suite) releasedRoomIsFree() {
	first := s.place(single(1))
	s.must(s.p.Release("g1"))
	s.want(s.p.Release("g1"), lockstep.ErrUnknown, "a second release")
	second := s.fit(&lockstep.Request{Gang: single(1)})
	if !slices.Equal(first.Members, second.Members) {
		s.t.Fatalf("%v, then %v", first, second)
	}
}

func (s *suite) leavesAlone() {
	m := s.fit(&lockstep.Request{Gang: single(1)}).Members[0]
	busy := []lockstep.Busy{{Node: m.Node, Devices: m.Devices}, {Node: m.Node, Devices: m.Devices}, {Node: "no such node", Devices: 1}}
	other := s.fit(&lockstep.Request{Gang: single(1), Busy: busy}).Members[0]
	if other.Node == m.Node && other.Devices&m.Devices != 0 {
		s.t.Fatalf("busy room was used: %v", other)
	}
	other = s.fit(&lockstep.Request{Gang: single(1), Exclude: []lockstep.NodeID{"no such node", m.Node, m.Node}}).Members[0]
	if other.Node == m.Node {
		s.t.Fatalf("an excluded node was used: %v", other)
	}
	if now := s.fit(&lockstep.Request{Gang: single(1)}).Members[0]; now != m {
		s.t.Fatalf("it was remembered: %v, want %v", now, m)
	}
}

func (s *suite) keepsPlaces() {
	s.place(single(1))
	second := s.place(single(2))
	s.must(s.p.Release("g1"))
	s.must(s.p.Release("g2"))
	back := s.fit(&lockstep.Request{Gang: single(2), Prefer: second})
	if !slices.Equal(back.Members, second.Members) {
		s.t.Fatalf("preferred %v, got %v", second, back)
	}
	taken := lockstep.Busy{Node: second.Members[0].Node, Devices: second.Members[0].Devices}
	s.fit(&lockstep.Request{Gang: single(2), Prefer: second, Busy: []lockstep.Busy{taken}})
}

func (s *suite) countsInRange() {
	g := single(1)
	g.Roles[0].Max = 3
	plan := s.fit(&lockstep.Request{Gang: g})
	if n := len(plan.Members); n < 1 || n > 3 {
		s.t.Fatalf("%d members of 1 to 3", n)
	}
	if n := len(s.fit(&lockstep.Request{Gang: g, Min: []int{2}, Max: []int{2}}).Members); n != 2 {
		s.t.Fatalf("%d members of 2", n)
	}
}

// fill places gangs of one device until no more fit.
func (s *suite) fill() (n int, last lockstep.Verdict) {
	s.t.Helper()
	for n = 0; n < 1<<20; n++ {
		v, plan := s.fits(&lockstep.Request{Gang: single(n)})
		if !v.Feasible {
			return n, v
		}
		s.must(s.p.Apply(plan))
	}
	s.t.Fatal("a million gangs fit")
	return 0, last
}

func (s *suite) fullSaysWhy() {
	n, v := s.fill()
	if n < 4 || v.Reason == "" || v.Reason == lockstep.ReasonCapacity {
		s.t.Fatalf("after %d: %v", n, v)
	}
	huge := single(n)
	huge.Roles[0].Min = n + 1
	if v, _ := s.fits(&lockstep.Request{Gang: huge}); v.Feasible {
		s.t.Fatalf("one more than the cluster has: %v", v)
	}
	s.must(s.p.Release("g0"))
	s.fit(&lockstep.Request{Gang: single(n)})
	pair := single(n)
	pair.Roles[0].Min = 2
	if v, _ := s.fits(&lockstep.Request{Gang: pair}); v.Feasible {
		s.t.Fatalf("two where one is free: %v", v)
	}
}

func (s *suite) neverIsInvalid() {
	g := single(1)
	g.Required = "no such level"
	var plan lockstep.Plan
	_, err := s.p.Fit(&lockstep.Request{Gang: g}, &plan)
	if !errors.Is(err, lockstep.ErrUnknown) {
		s.want(err, lockstep.ErrInvalid, "a level that does not exist")
	}
}

// whatIf returns the placer's ability, or skips.
func (s *suite) whatIf() gang.WhatIf {
	s.t.Helper()
	w, ok := s.p.(gang.WhatIf)
	if !ok {
		s.t.Skip("it has no what-if")
	}
	return w
}

func (s *suite) rollbackRestores() {
	w := s.whatIf()
	s.place(single(1))
	before := s.fit(&lockstep.Request{Gang: single(2)})
	m := w.Mark()
	inside := s.place(single(3))
	s.must(s.p.Release("g1"))
	tried := s.fit(&lockstep.Request{Gang: single(4)})
	s.must(w.Rollback(m))
	s.same("after rollback", s.fit(&lockstep.Request{Gang: single(2)}), before)
	s.want(s.p.Apply(tried), lockstep.ErrStale, "a plan from inside")
	s.want(w.Rollback(m), lockstep.ErrStale, "a second rollback")
	s.want(s.p.Release("g3"), lockstep.ErrUnknown, "what was placed inside")
	s.must(s.p.Apply(before)) // made before the mark: the version is back too
	s.must(s.p.Release("g1"))
	_ = inside
}

func (s *suite) marksNest() {
	w := s.whatIf()
	empty := s.fit(&lockstep.Request{Gang: single(9)})
	outer := w.Mark()
	s.place(single(1))
	one := s.fit(&lockstep.Request{Gang: single(9)})
	inner := w.Mark()
	s.place(single(2))
	s.must(w.Rollback(inner))
	s.same("after the inner", s.fit(&lockstep.Request{Gang: single(9)}), one)
	inner = w.Mark()
	s.place(single(3))
	s.must(w.Rollback(outer))
	s.same("after the outer", s.fit(&lockstep.Request{Gang: single(9)}), empty)
	s.want(w.Rollback(inner), lockstep.ErrStale, "a mark inside one that was rolled back")
}
