package placement

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sharing"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/stretchr/testify/require"
)

func shareOf(id lockstep.JobID, members, gpus int, share lockstep.MilliGPU, memory lockstep.Bytes) *lockstep.Gang {
	g := gangOf(id, members, gpus)
	g.Roles[0].Demand.Share, g.Roles[0].Demand.GPUMemory = share, memory
	return g
}

func sliceOf(id lockstep.JobID, members int, profile lockstep.Profile) *lockstep.Gang {
	g := gangOf(id, members, 1)
	g.Roles[0].Demand.Profile = profile
	return g
}

// TestMemoryIsWhole is H13: a device of 46,068 MiB takes 23 tasks of 2,000 MiB.
func TestMemoryIsWhole(t *testing.T) {
	shape, err := topology.UniformShape(1, topology.NVLink(1))
	require.NoError(t, err)
	s := stateOf(t, []topology.Node{{ID: "n0", Path: []string{"r"}, Shape: shape}}, Config{Nodes: []Node{{ID: "n0", GPUMemory: 46_068 * lockstep.MiB}}})
	for i := range 23 {
		s.mustPlace(t, shareOf(lockstep.JobID(fmt.Sprint("j", i)), 1, 1, 10, 2000*lockstep.MiB))
	}
	e, err := s.Explain(&lockstep.Request{Gang: shareOf("x", 1, 1, 10, 2000*lockstep.MiB)})
	require.NoError(t, err)
	require.Equal(t, lockstep.ReasonBusy, e.Verdict.Reason)
	require.Equal(t, lockstep.ResourceGPUMemory, e.Verdict.Resource)
	require.EqualValues(t, 2000*lockstep.MiB, e.Verdict.Requested)
	require.EqualValues(t, 68*lockstep.MiB, e.Verdict.Available)
	require.Equal(t, []lockstep.ReasonCount{{Reason: lockstep.ReasonBusy, Detail: "gpu-memory", Nodes: 1}}, e.Counts)
	status, ok := s.Node("n0")
	require.True(t, ok)
	require.Equal(t, []Part{{Device: 0, Share: 770, Memory: 68 * lockstep.MiB}}, status.Parts)
	require.NoError(t, s.verify())
}

// TestOvercommitIsBounded lets shares ask for half as much memory again as there is.
func TestOvercommitIsBounded(t *testing.T) {
	s := stateOf(t, nodesOf(1), Config{Nodes: []Node{{ID: "n0", GPUMemory: 80 * lockstep.GiB, Overcommit: 500}}})
	p := s.mustPlace(t, shareOf("a", 3, 1, 10, 40*lockstep.GiB))
	require.Equal(t, p.Members[0].Devices, p.Members[2].Devices, "three times 40 Gi on 80 Gi")
	q := s.mustPlace(t, shareOf("b", 1, 1, 10, 40*lockstep.GiB))
	require.NotEqual(t, p.Members[0].Devices, q.Members[0].Devices)
	var plan lockstep.Plan
	v, err := s.Fit(&lockstep.Request{Gang: shareOf("c", 1, 1, 10, 81*lockstep.GiB)}, &plan)
	require.NoError(t, err)
	require.False(t, v.Feasible, "none may have more than there is")
	_, err = New(s.Tree(), Config{Nodes: []Node{{ID: "n0", Overcommit: 9001}}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// TestSharesMeetOnDevices fills devices with pairs, and keeps whole ones off.
func TestSharesMeetOnDevices(t *testing.T) {
	s := stateOf(t, nodesOf(1), Config{})
	place := func(id lockstep.JobID, share lockstep.MilliGPU) lockstep.DeviceSet {
		return s.mustPlace(t, shareOf(id, 1, 1, share, 0)).Members[0].Devices
	}
	a, b := place("a", 700), place("b", 600)
	require.NotEqual(t, a, b)
	require.Equal(t, b, place("c", 400), "it completes a device")
	require.Equal(t, a, place("d", 300))
	e := place("e", 500)
	require.Zero(t, e&(a|b))
	require.Equal(t, Usage{Nodes: 1, Open: 1, Devices: 8, Free: 5, Shared: 3, Jobs: 5, Members: 5}, s.Usage())
	var p lockstep.Plan
	v, err := s.Fit(&lockstep.Request{Gang: gangOf("w", 1, 6)}, &p)
	require.NoError(t, err)
	require.Equal(t, lockstep.ReasonBusy, v.Reason)
	whole := s.mustPlace(t, gangOf("w", 1, 5)).Members[0].Devices
	require.Zero(t, whole&(a|b|e))
	room, err := s.Room(&lockstep.Request{Gang: shareOf("x", 1, 1, 300, 0)}, 0)
	require.NoError(t, err)
	require.Equal(t, lockstep.MilliGPU(500), room.Free)
	require.Equal(t, lockstep.MilliGPU(200), room.Stranded)
	for _, id := range s.Jobs() {
		require.NoError(t, s.Release(id))
	}
	require.Equal(t, Usage{Nodes: 1, Open: 1, Idle: 1, Devices: 8, Free: 8}, s.Usage())
	require.NoError(t, s.verify())
}

// TestSharesOfSeveralDevicesAreExact places as many members with shares of k devices each as
// dealing them out shows to fit.
func TestSharesOfSeveralDevicesAreExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	rounds := 2_000
	if testing.Short() {
		rounds = 300
	}
	for range rounds {
		s := stateOf(t, nodesOf(1), Config{})
		var free [8]int
		for i := range free {
			if free[i] = 1000; rng.IntN(3) > 0 {
				m := lockstep.MilliGPU(100 * (1 + rng.IntN(9)))
				g := shareOf(lockstep.JobID(fmt.Sprint("j", i)), 1, 1, m, 0)
				require.NoError(t, s.Adopt(&lockstep.Plan{Job: g.ID, Gang: g, Members: []lockstep.Member{{Node: "n0", Devices: 1 << i}}}))
				free[i] -= int(m)
			}
		}
		k, m := 1+rng.IntN(4), 100*(1+rng.IntN(9))
		var room []int
		for _, f := range free {
			room = append(room, f/m)
		}
		n := dealt(room, k)
		var p lockstep.Plan
		for members := max(1, n); members <= n+1; members++ {
			v, err := s.Fit(&lockstep.Request{Gang: shareOf("g", members, k, lockstep.MilliGPU(m), 0)}, &p)
			require.NoError(t, err)
			require.Equal(t, members <= n, v.Feasible)
			if v.Feasible {
				require.NoError(t, s.Apply(&p))
				require.NoError(t, s.verify())
				require.NoError(t, s.Release("g"))
			}
		}
	}
}

// TestInstancesKeepToThemselves puts MIG instances, shares and whole devices on one node.
func TestInstancesKeepToThemselves(t *testing.T) {
	s := stateOf(t, nodesOf(2), Config{Nodes: []Node{{ID: "n0", MIG: "h100-80gb"}}})
	a := s.mustPlace(t, sliceOf("a", 2, "3g.40gb"))
	require.Equal(t, a.Members[0].Devices, a.Members[1].Devices, "one device holds both")
	require.NotEqual(t, a.Members[0].Start, a.Members[1].Start)
	b := s.mustPlace(t, shareOf("b", 1, 1, 500, 0))
	c := s.mustPlace(t, gangOf("c", 1, 7))
	for _, p := range []*lockstep.Plan{b, c} {
		require.False(t, p.Members[0].Node == "n0" && p.Members[0].Devices&a.Members[0].Devices != 0)
	}
	var p lockstep.Plan
	v, err := s.Fit(&lockstep.Request{Gang: sliceOf("d", 1, "9g.90gb")}, &p)
	require.NoError(t, err)
	require.Equal(t, lockstep.ReasonCapacity, v.Reason, "no device has that profile")
	v, err = s.Fit(&lockstep.Request{Gang: sliceOf("d", 100, "1g.10gb")}, &p)
	require.NoError(t, err)
	require.Equal(t, lockstep.ReasonCapacity, v.Reason)
	require.EqualValues(t, 100_000, v.Requested)
	status, _ := s.Node("n0")
	require.Equal(t, sharing.Occupancy(0xff), status.Parts[0].Held)
	require.NoError(t, s.verify())
}

// TestPartitionedDevicesAreForInstances sets devices aside.
func TestPartitionedDevicesAreForInstances(t *testing.T) {
	custom := sharing.GeometryConfig{Slices: 2, Compute: 2, Profiles: []sharing.Profile{{Name: "half", Compute: 1, Slices: 1, Starts: 3, Memory: 1}}}
	s := stateOf(t, nodesOf(1), Config{
		Layouts: map[string]sharing.GeometryConfig{"mine": custom}, Nodes: []Node{{ID: "n0", MIG: "mine", Partitioned: 0b11}},
	})
	var p lockstep.Plan
	fits := func(g *lockstep.Gang) bool {
		v, err := s.Fit(&lockstep.Request{Gang: g}, &p)
		require.NoError(t, err)
		return v.Feasible
	}
	require.False(t, fits(gangOf("g", 1, 7)))
	require.True(t, fits(gangOf("g", 1, 6)))
	require.False(t, fits(shareOf("g", 13, 1, 500, 0)))
	require.True(t, fits(shareOf("g", 12, 1, 500, 0)))
	require.False(t, fits(sliceOf("g", 5, "half")))
	require.True(t, fits(sliceOf("g", 4, "half")))
	require.NoError(t, s.Apply(&p))
	p.Members[0].Start = 1 // taken
	p.Gang = sliceOf("h", 4, "half")
	p.Job = "h"
	require.ErrorIs(t, s.Adopt(&p), lockstep.ErrConflict)
	saved := bytesOf(t, s)
	require.Equal(t, saved, bytesOf(t, s.View()))
	require.NoError(t, s.verify())
	_, err := New(s.Tree(), Config{Nodes: []Node{{ID: "n0", MIG: "other"}}})
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	_, err = New(s.Tree(), Config{Nodes: []Node{{ID: "n0", Partitioned: 1}}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = New(s.Tree(), Config{Layouts: map[string]sharing.GeometryConfig{"x": {}}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, mix := range [][]Shape{{{GPUs: -1}}, {{Share: 5}}, {{GPUs: 1, Count: 1 << 21}}, {{GPUs: 1, Count: -1}}, make([]Shape, 256)} {
		_, err = New(s.Tree(), Config{Mix: mix})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err = New(s.Tree(), Config{Rule: "best"})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// TestReconcileKnowsShares observes members that share, and some that share too much.
func TestReconcileKnowsShares(t *testing.T) {
	s := stateOf(t, nodesOf(1), Config{Nodes: []Node{{ID: "n0", GPUMemory: 80, MIG: "a30"}}})
	a := s.mustPlace(t, shareOf("a", 2, 1, 400, 30))
	b := s.mustPlace(t, sliceOf("b", 2, "1g.6gb"))
	require.Equal(t, a.Members[0].Devices, a.Members[1].Devices)
	require.Empty(t, s.Reconcile([]Observed{{"a", a.Members}, {"b", b.Members}}))
	moved := slices.Clone(a.Members)
	moved[1].Devices = 1 << 7
	slid := slices.Clone(b.Members)
	slid[1].Start = 3
	require.Equal(t, []Drift{
		{Kind: DriftMoved, Job: "a", Rank: 1, Want: a.Members[1], Have: moved[1]},
		{Kind: DriftMoved, Job: "b", Rank: 1, Want: b.Members[1], Have: slid[1]},
	}, s.Reconcile([]Observed{{"a", moved}, {"b", slid}}))
	slid[1].Start = slid[0].Start
	drift := s.Reconcile([]Observed{{"a", a.Members}, {"b", slid}, {"c", []lockstep.Member{{Node: "n0", Devices: a.Members[0].Devices}}}})
	require.Equal(t, []DriftKind{DriftConflict, DriftConflict, DriftConflict, DriftConflict, DriftConflict}, kindsOf(drift))
}

func kindsOf(list []Drift) (out []DriftKind) {
	for _, d := range list {
		out = append(out, d.Kind)
	}
	return out
}

// TestShareDecisionAllocatesNothing holds decisions about shares and instances to no
// allocation once warm.
func TestShareDecisionAllocatesNothing(t *testing.T) {
	tree := benchTree(t, 512)
	var cfg Config
	for x := range tree.Slots() {
		id, _ := tree.NodeAt(int32(x))
		cfg.Nodes = append(cfg.Nodes, Node{ID: id, Class: "h100", GPUMemory: 80, CPU: 100_000, MIG: "h100-80gb"})
	}
	for _, rule := range []Rule{RulePrices, RuleGradient} {
		cfg.Mix, cfg.Rule = someMix(), rule
		s, err := New(tree, cfg)
		require.NoError(t, err)
		s.mustPlace(t, shareOf("base", 64, 1, 300, 10))
		s.mustPlace(t, sliceOf("slices", 64, "1g.10gb"))
		two := shareOf("g", 3, 1, 500, 20)
		two.Roles[0].Name = "a"
		two.Roles = append(two.Roles, lockstep.Role{Name: "b", Min: 2, Demand: lockstep.Demand{GPUs: 1, Profile: "2g.20gb"}})
		var p lockstep.Plan
		for i, g := range []*lockstep.Gang{shareOf("g", 1, 1, 250, 10), shareOf("g", 40, 1, 250, 0), shareOf("g", 3, 4, 600, 5), sliceOf("g", 9, "3g.40gb"), two, shareOf("g", 9000, 1, 250, 10)} {
			r := &lockstep.Request{Gang: g, Busy: []lockstep.Busy{{Node: "node-1", Devices: 3, Share: 200}}}
			if i%2 == 0 {
				r.Busy = nil
			}
			decide := func() {
				v, err := s.Fit(r, &p)
				if err != nil || v.Feasible && (s.Apply(&p) != nil || s.Release("g") != nil) {
					t.Fatal(v, err)
				}
			}
			decide()
			require.Zero(t, testing.AllocsPerRun(50, decide), "gang %d, rule %q", i, rule)
		}
		require.NoError(t, s.verify())
	}
}

// TestSharedNodesAreSmall bounds the memory of what members have of devices.
func TestSharedNodesAreSmall(t *testing.T) {
	s, err := New(benchTree(t, 256), Config{})
	require.NoError(t, err)
	require.Empty(t, s.blocks, "nothing before the first share")
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 2_000 {
		s.mustPlace(t, shareOf(lockstep.JobID(fmt.Sprint("j", i)), 1, 1, lockstep.MilliGPU(50+rng.IntN(900)), 0))
		if jobs := s.Jobs(); len(jobs) > 100 {
			for _, id := range jobs[:50] {
				require.NoError(t, s.Release(id))
			}
		}
	}
	require.LessOrEqual(t, len(s.blocks), 257)
	require.NoError(t, s.verify())
}
