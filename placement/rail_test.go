package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/stretchr/testify/require"
)

// railed returns units of nodes of a shape, with rails where they are given.
func railed(t *testing.T, units, nodes int, shape *topology.Shape, rails []int) *State {
	shape, err := shape.WithRails(rails)
	require.NoError(t, err)
	tree, err := topology.Uniform(topology.UniformConfig{
		Levels: []topology.Level{{Name: "unit", Rails: rails != nil}}, Fanout: []int{units, nodes}, Shape: shape,
	})
	require.NoError(t, err)
	s, err := New(tree, Config{})
	require.NoError(t, err)
	return s
}

// TestMembersShareRails has one node with its first half taken: the members on the
// others take the second half too, since it is as good.
func TestMembersShareRails(t *testing.T) {
	rails := []int{0, 1, 2, 3, 4, 5, 6, 7}
	for _, known := range []bool{false, true} {
		if !known {
			rails = nil
		} else {
			rails = []int{0, 1, 2, 3, 4, 5, 6, 7}
		}
		s := railed(t, 1, 3, topology.NVSwitch8(), rails)
		s.sitOn(t, "a", 1, 0x0f)
		g := gangOf("g", 3, 2)
		g.Strategy = lockstep.Spread
		p := s.mustPlace(t, g)
		if !known {
			require.Equal(t, "0-1 4-5 0-1", setsIn(p.Members))
			continue
		}
		require.Equal(t, "4-5 4-5 4-5", setsIn(p.Members))
		require.Zero(t, s.RailCost(p))
		p.Members[0].Devices = 0x03
		require.Equal(t, 2, s.RailCost(p))
		p.Members[2].Devices = 0x03
		require.Equal(t, 4, s.RailCost(p))
	}

	s := railed(t, 1, 2, topology.PCIe8(), rails) // pairs on a bridge stay together, whatever the rails
	s.sitOn(t, "a", 0, 0b0110)
	g := gangOf("g", 2, 2)
	g.Strategy = lockstep.Spread
	p := s.mustPlace(t, g)
	require.Equal(t, "4-5 4-5", setsIn(p.Members))
}

func setsIn(list []lockstep.Member) (s string) {
	for i := range list {
		if i > 0 {
			s += " "
		}
		s += list[i].Devices.String()
	}
	return s
}

// TestRailsCostNothingElse compares plans with and without rails: the same nodes,
// devices as close, and never a higher cost.
func TestRailsCostNothingElse(t *testing.T) {
	cases := 2_000
	if testing.Short() {
		cases = 150
	}
	better, zero, placed := 0, 0, 0
	for seed := range uint64(cases) {
		rng := rand.New(rand.NewPCG(seed, 21))
		rails := make([]int, 8)
		for i := range rails {
			rails[i] = i % (1 << rng.IntN(4))
		}
		if rng.IntN(8) == 0 {
			rails[rng.IntN(8)] = -1
		}
		shape := []*topology.Shape{topology.NVSwitch8(), topology.NVSwitch8(), topology.PCIe8()}[rng.IntN(3)]
		units, nodes := 1+rng.IntN(2), 2+rng.IntN(4)
		with, without := railed(t, units, nodes, shape, rails), railed(t, units, nodes, shape, nil)
		for x := range with.slots {
			if set := lockstep.DeviceSet(rng.IntN(256)); rng.IntN(2) == 0 && set != 0 {
				with.sitOn(t, lockstep.JobID(fmt.Sprint("j", x)), int32(x), set)
				without.sitOn(t, lockstep.JobID(fmt.Sprint("j", x)), int32(x), set)
			}
		}
		g := gangOf("g", 1+rng.IntN(6), 1+rng.IntN(4))
		if rng.IntN(3) > 0 {
			g.Strategy = lockstep.Spread
		}
		if rng.IntN(4) == 0 {
			g.Roles[0].Name = "a"
			g.Roles = append(g.Roles, lockstep.Role{Name: "b", Min: 1 + rng.IntN(2), Demand: lockstep.Demand{GPUs: 1 + rng.IntN(2)}})
		}
		var a, b lockstep.Plan
		v, err := with.Fit(&lockstep.Request{Gang: g}, &a)
		require.NoError(t, err)
		_, err = without.Fit(&lockstep.Request{Gang: g}, &b)
		require.NoError(t, err)
		require.Len(t, a.Members, len(b.Members))
		if !v.Feasible {
			continue
		}
		placed++
		var links [256]int16
		for i := range a.Members {
			require.Equal(t, b.Members[i].Node, a.Members[i].Node)
			countLinks(&links, shape, a.Members[i].Devices, 1)
			countLinks(&links, shape, b.Members[i].Devices, -1)
		}
		require.Equal(t, [256]int16{}, links, "seed %d", seed)
		was, is := with.RailCost(&b), with.RailCost(&a)
		require.LessOrEqual(t, is, was, "seed %d: %v, without %v", seed, setsIn(a.Members), setsIn(b.Members))
		if is < was {
			better++
		}
		if is == 0 {
			zero++
		}
		require.NoError(t, with.Apply(&a))
		require.NoError(t, with.verify())
	}
	t.Logf("%d placed, %d of them better for rails, %d without cost", placed, better, zero)
	require.Greater(t, better, cases/50)
}

func TestRailsAllocateNothing(t *testing.T) {
	s := railed(t, 4, 16, topology.NVSwitch8(), []int{0, 1, 2, 3, 4, 5, 6, 7})
	s.sitOn(t, "a", 1, 0x0f)
	g := gangOf("g", 40, 2)
	g.Strategy = lockstep.Spread
	r := &lockstep.Request{Gang: g}
	var p lockstep.Plan
	fit := func() {
		if v, err := s.Fit(r, &p); err != nil || !v.Feasible {
			t.Fatal(v, err)
		}
	}
	fit()
	require.Zero(t, testing.AllocsPerRun(50, fit))
}
