package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/stretchr/testify/require"
)

// mixed returns racks of nodes of which classOf says the class.
func mixed(t testing.TB, sizes []int, classOf func(x int) lockstep.DeviceClass) *State {
	var cfg Config
	nodes := racks(sizes...)
	for x := range nodes {
		cfg.Nodes = append(cfg.Nodes, Node{ID: nodes[x].ID, Class: classOf(x)})
	}
	tree, err := topology.New([]topology.Level{{Name: "rack"}}, nodes)
	require.NoError(t, err)
	s, err := New(tree, cfg)
	require.NoError(t, err)
	return s
}

func TestFasterClassesComeFirst(t *testing.T) {
	s := mixed(t, []int{4, 4}, func(x int) lockstep.DeviceClass { return []lockstep.DeviceClass{"a100", "a100", "a100", "h100"}[x%4] })
	r := &lockstep.Request{Gang: gangOf("g", 1, 8), Speeds: []lockstep.ClassSpeed{{Class: "a100", PerMille: 400}, {Class: "h100", PerMille: 1000}}}
	at := func() string {
		var p lockstep.Plan
		v, err := s.Fit(r, &p)
		require.NoError(t, err)
		require.True(t, v.Feasible)
		return nodesIn(p.Members)
	}
	require.Equal(t, "n3", at())
	r.Speeds[0].PerMille = 2000
	require.Equal(t, "n0", at())
	r.Speeds[0].PerMille = 1000 // alike: the scarcer class stays free
	require.Equal(t, "n0", at())
	r.Speeds[0].PerMille = 400
	r.Gang = gangOf("g", 2, 8) // two fast ones are in two racks, and the level comes first
	r.Gang.Required = "rack"
	require.Equal(t, "n0 n1", at())
	r.Gang.Required = ""
	require.Equal(t, "n0 n1", at())
	r.Gang.Preferred = "cluster"
	require.Equal(t, "n3 n7", at())
	r.Gang = gangOf("g", 4, 8) // a rack holds it only with both
	require.Equal(t, "n0 n1 n2 n3", at())
	r.Gang.Roles[0].Demand.Classes = []lockstep.DeviceClass{"a100"}
	require.Equal(t, "n0 n1 n2 n4", at())

	r.Prefer = &lockstep.Plan{Job: "g", Gang: gangOf("g", 1, 8), Members: []lockstep.Member{{Node: "n1", Devices: 0xff}}}
	r.Gang = gangOf("g", 1, 8)
	require.Equal(t, "n1", at(), "whoever runs stays")
}

// TestPaceIsTheBestOfTheLevel holds that no other place of the level chosen has a
// faster slowest member, and that the level is the one chosen without speeds.
func TestPaceIsTheBestOfTheLevel(t *testing.T) {
	cases := 3_000
	if testing.Short() {
		cases = 200
	}
	classes := []lockstep.DeviceClass{"a", "b", "c", "d"}
	fitted, uniform := 0, 0
	for seed := range uint64(cases) {
		rng := rand.New(rand.NewPCG(seed, 5))
		sizes := make([]int, 1+rng.IntN(4))
		for i := range sizes {
			sizes[i] = 1 + rng.IntN(5)
		}
		s := mixed(t, sizes, func(int) lockstep.DeviceClass { return classes[rng.IntN(len(classes))] })
		for x := range s.slots {
			if rng.IntN(3) == 0 {
				s.sitOn(t, lockstep.JobID(fmt.Sprint("j", x)), int32(x), lockstep.DeviceSet(1+rng.IntN(255)))
			}
		}
		r := &lockstep.Request{Gang: gangOf("g", 1+rng.IntN(4), 1+rng.IntN(8))}
		r.Gang.Required = []lockstep.Level{"", "rack"}[rng.IntN(2)]
		var plain, p lockstep.Plan
		before, err := s.Fit(r, &plain)
		require.NoError(t, err)
		speed := map[lockstep.DeviceClass]int32{}
		for _, c := range classes[:1+rng.IntN(4)] {
			speed[c] = int32(1 + rng.IntN(3))
			r.Speeds = append(r.Speeds, lockstep.ClassSpeed{Class: c, PerMille: speed[c]})
		}
		v, err := s.Fit(r, &p)
		require.NoError(t, err)
		require.Equal(t, before.Feasible, v.Feasible)
		if !v.Feasible {
			require.Equal(t, before, v)
			continue
		}
		fitted++
		require.Equal(t, before.Level, v.Level)
		level, _ := s.tree.LevelIndex(v.Level)
		pace, used := int32(1<<30), map[lockstep.DeviceClass]bool{}
		for _, m := range p.Members {
			x, _ := s.tree.Slot(m.Node)
			used[s.specs[x].node.Class] = true
			pace = min(pace, speed[s.specs[x].node.Class])
		}
		fits := func(may func(c lockstep.DeviceClass) bool) bool {
			for d := range s.tree.Domains(level) {
				first, end := s.tree.Range(level, int32(d))
				n := 0
				for x := first; x < end; x++ {
					if may(s.specs[x].node.Class) {
						n += s.slots[x].free.Len() / r.Gang.Roles[0].Demand.GPUs
					}
				}
				if n >= r.Gang.Roles[0].Min {
					return true
				}
			}
			return false
		}
		require.False(t, fits(func(c lockstep.DeviceClass) bool { return speed[c] > pace }), "seed %d", seed)
		if len(used) > 1 && pace > 0 {
			require.False(t, slices.ContainsFunc(classes, func(one lockstep.DeviceClass) bool {
				return used[one] && fits(func(c lockstep.DeviceClass) bool { return c == one })
			}), "seed %d: mixed without need", seed)
		} else {
			uniform++
		}
	}
	t.Logf("%d fitted, %d of one class", fitted, uniform)
	require.Greater(t, fitted, cases/4)
}

func TestSpeedsAreChecked(t *testing.T) {
	s := stateOf(t, racks(1), Config{})
	var p lockstep.Plan
	for _, o := range []struct {
		speeds []lockstep.ClassSpeed
		kind   error
	}{
		{[]lockstep.ClassSpeed{{Class: "a"}}, lockstep.ErrInvalid},
		{[]lockstep.ClassSpeed{{Class: "a", PerMille: -1}}, lockstep.ErrInvalid},
		{[]lockstep.ClassSpeed{{PerMille: 1}}, lockstep.ErrInvalid},
		{[]lockstep.ClassSpeed{{Class: "a b\x00", PerMille: 1}}, lockstep.ErrInvalid},
		{[]lockstep.ClassSpeed{{Class: "a", PerMille: 1}, {Class: "a", PerMille: 2}}, lockstep.ErrDuplicate},
	} {
		_, err := s.Fit(&lockstep.Request{Gang: gangOf("g", 1, 1), Speeds: o.speeds}, &p)
		require.ErrorIs(t, err, o.kind)
	}
}

func TestSpeedsAllocateNothing(t *testing.T) {
	s := mixed(t, []int{8, 8, 8}, func(x int) lockstep.DeviceClass { return []lockstep.DeviceClass{"a", "b"}[x%2] })
	r := &lockstep.Request{Gang: gangOf("g", 6, 8), Speeds: []lockstep.ClassSpeed{{Class: "b", PerMille: 400}, {Class: "a", PerMille: 1000}}}
	var p lockstep.Plan
	fit := func() {
		if v, err := s.Fit(r, &p); err != nil || !v.Feasible {
			t.Fatal(v, err)
		}
	}
	fit()
	require.Zero(t, testing.AllocsPerRun(100, fit))
}
