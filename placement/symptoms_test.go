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

// The tests below are named after symptoms that users of other schedulers reported.
// Each plays the smallest input that shows it, then random ones of its kind.

// racks returns the nodes of racks of so many nodes each, of 8 devices.
func racks(sizes ...int) (out []topology.Node) {
	for r, n := range sizes {
		for range n {
			out = append(out, topology.Node{ID: lockstep.NodeID(fmt.Sprint("n", len(out))), Path: []string{fmt.Sprint("r", r)}, Shape: topology.NVSwitch8()})
		}
	}
	return out
}

// sit adopts a gang of one whole node a member.
func (s *State) sit(t *testing.T, id lockstep.JobID, nodes ...lockstep.NodeID) {
	p := &lockstep.Plan{Job: id, Gang: gangOf(id, len(nodes), 8)}
	for _, n := range nodes {
		p.Members = append(p.Members, lockstep.Member{Node: n, Devices: 0xff})
	}
	require.NoError(t, s.Adopt(p))
}

// candidatesOf makes every job a candidate that costs nothing.
func candidatesOf(s *State) *lockstep.Candidates {
	c := &lockstep.Candidates{}
	for _, id := range s.Jobs() {
		c.Jobs = append(c.Jobs, lockstep.Candidate{Job: id})
	}
	return c
}

// mustEvict asks for victims and checks that the gang gets its plan without them.
func (s *State) mustEvict(t *testing.T, r *lockstep.Request, c *lockstep.Candidates) *lockstep.Preempted {
	var out lockstep.Preempted
	v, err := s.Victims(r, c, &out)
	require.NoError(t, err)
	require.True(t, v.Feasible, "%v", v)
	mark := s.Mark()
	for i := range out.Evictions {
		require.NoError(t, s.Evict(&out.Evictions[i]))
	}
	again := *r
	again.Prefer = &out.Plan
	var p lockstep.Plan
	_, err = s.Fit(&again, &p)
	require.NoError(t, err)
	require.Equal(t, out.Plan.Members, p.Members)
	require.NoError(t, s.Apply(&p))
	require.NoError(t, s.Rollback(mark))
	return &out
}

// TestSymptomH6 wants two nodes of one rack, of which each has one taken: one job is
// enough. Both went, and the gang was put across the racks.
func TestSymptomH6(t *testing.T) {
	s := stateOf(t, racks(2, 2), Config{})
	s.sit(t, "low-1", "n1")
	s.sit(t, "low-2", "n2")
	g := gangOf("high", 2, 8)
	g.Required = "rack"
	out := s.mustEvict(t, &lockstep.Request{Gang: g}, candidatesOf(s))
	require.Len(t, out.Evictions, 1)
	require.Equal(t, lockstep.Level("rack"), out.Plan.Level)

	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(6, seed))
		sizes := make([]int, 1+rng.IntN(5))
		for i := range sizes {
			sizes[i] = 1 + rng.IntN(6)
		}
		nodes := racks(sizes...)
		s := stateOf(t, nodes, Config{})
		busy := make([]int, len(sizes))
		x := 0
		for r, n := range sizes {
			for range n {
				if rng.IntN(3) > 0 {
					busy[r]++
					s.sit(t, lockstep.JobID(fmt.Sprint("j", x)), nodes[x].ID)
				}
				x++
			}
		}
		g := gangOf("high", 1+rng.IntN(slices.Max(sizes)), 8)
		g.Required = "rack"
		least := 1 << 30
		for r, n := range sizes {
			if n >= g.Roles[0].Min {
				least = min(least, max(0, g.Roles[0].Min-(n-busy[r])))
			}
		}
		out := s.mustEvict(t, &lockstep.Request{Gang: g}, candidatesOf(s))
		require.Len(t, out.Evictions, least, "seed %d", seed)
	}
}

// TestSymptomH7 requires a rack of which every device is held by jobs that may be
// stopped: it counts as a place. It was passed over before victims were looked at.
func TestSymptomH7(t *testing.T) {
	s := stateOf(t, racks(2), Config{})
	s.sit(t, "low-1", "n0")
	s.sit(t, "low-2", "n1")
	g := gangOf("high", 2, 8)
	g.Required = "rack"
	require.Len(t, s.mustEvict(t, &lockstep.Request{Gang: g}, candidatesOf(s)).Evictions, 2)

	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(7, seed))
		size := 2 + rng.IntN(6)
		nodes := racks(size, size, size)
		s := stateOf(t, nodes, Config{})
		for x := 0; x < len(nodes); {
			n := min(1+rng.IntN(4), len(nodes)-x)
			var ids []lockstep.NodeID
			for _, o := range nodes[x : x+n] {
				ids = append(ids, o.ID)
			}
			s.sit(t, lockstep.JobID(fmt.Sprint("j", x)), ids...)
			x += n
		}
		require.Zero(t, s.Usage().Free)
		g := gangOf("high", 1+rng.IntN(size), 8)
		g.Required = "rack"
		out := s.mustEvict(t, &lockstep.Request{Gang: g}, candidatesOf(s))
		require.True(t, out.Exact)
		require.NotEmpty(t, out.Evictions)
	}
}

// TestSymptomH8 wants one core of a node that a gang of eleven has, which can go on
// with one: one member goes. Ten were evicted.
func TestSymptomH8(t *testing.T) {
	play := func(members, least, wanted int) []int {
		nodes := []topology.Node{{ID: "n", Path: []string{"r"}}}
		s := stateOf(t, nodes, Config{Nodes: []Node{{ID: "n", CPU: lockstep.MilliCPU(1000 * members)}}})
		low := &lockstep.Gang{ID: "low", Roles: []lockstep.Role{{Min: least, Max: members, Demand: lockstep.Demand{CPU: 1000}}}}
		s.mustPlace(t, low)
		high := &lockstep.Gang{ID: "high", Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{CPU: lockstep.MilliCPU(1000 * wanted)}}}}
		c := &lockstep.Candidates{Jobs: []lockstep.Candidate{{Job: "low", Min: []int{least}}}}
		out := s.mustEvict(t, &lockstep.Request{Gang: high}, c)
		require.Len(t, out.Evictions, 1)
		return out.Evictions[0].Ranks
	}
	require.Equal(t, []int{10}, play(11, 1, 1))

	rng := rand.New(rand.NewPCG(8, 8))
	for range 200 {
		members := 2 + rng.IntN(30)
		least, wanted := 1+rng.IntN(members), 1+rng.IntN(members)
		ranks := play(members, least, wanted)
		if wanted > members-least {
			require.Empty(t, ranks, "it goes whole")
			continue
		}
		require.Len(t, ranks, wanted)
		require.Equal(t, members-1, ranks[wanted-1])
		require.Equal(t, members-wanted, ranks[0])
	}
}

// TestSymptomH12 has a node with room for one member and a job of two roles: slots
// count across roles. It was admitted, and the second member never started.
func TestSymptomH12(t *testing.T) {
	play := func(slots int, counts ...int) lockstep.Verdict {
		s := stateOf(t, []topology.Node{{ID: "n", Path: []string{"r"}}}, Config{Nodes: []Node{{ID: "n", CPU: 1 << 20, Slots: slots}}})
		g := &lockstep.Gang{ID: "g"}
		for i, n := range counts {
			g.Roles = append(g.Roles, lockstep.Role{Name: lockstep.RoleName(fmt.Sprint("r", i)), Min: n, Demand: lockstep.Demand{CPU: lockstep.MilliCPU(1 + i)}})
		}
		var p lockstep.Plan
		v, err := s.Fit(&lockstep.Request{Gang: g}, &p)
		require.NoError(t, err)
		return v
	}
	v := play(1, 1, 1)
	require.False(t, v.Feasible)
	require.Equal(t, lockstep.ResourceSlots, v.Resource)

	rng := rand.New(rand.NewPCG(12, 12))
	for range 300 {
		slots, sum := 1+rng.IntN(8), 0
		counts := make([]int, 1+rng.IntN(4))
		for i := range counts {
			counts[i] = 1 + rng.IntN(3)
			sum += counts[i]
		}
		v := play(slots, counts...)
		require.Equal(t, sum <= slots, v.Feasible)
		if !v.Feasible {
			require.Equal(t, lockstep.ResourceSlots, v.Resource)
			require.Equal(t, int64(slots), v.Available)
		}
	}
}

// TestSymptomH13 puts members that take 2,000 MiB each on a device of 46,068 MiB: 23
// fit. There were 24, by the rounding of a fraction.
func TestSymptomH13(t *testing.T) {
	shape, err := topology.UniformShape(1, topology.PIX)
	require.NoError(t, err)
	play := func(size, each lockstep.Bytes, asked int) (placed int) {
		s := stateOf(t, []topology.Node{{ID: "n", Path: []string{"r"}, Shape: shape}}, Config{Nodes: []Node{{ID: "n", GPUMemory: size}}})
		var p lockstep.Plan
		for i := range asked {
			g := gangOf(lockstep.JobID(fmt.Sprint("g", i)), 1, 1)
			g.Roles[0].Demand.Share, g.Roles[0].Demand.GPUMemory = 1, each
			v, err := s.Fit(&lockstep.Request{Gang: g}, &p)
			require.NoError(t, err)
			if v.Feasible {
				require.NoError(t, s.Apply(&p))
				placed++
			}
		}
		return placed
	}
	require.Equal(t, 23, play(46_068*lockstep.MiB, 2000*lockstep.MiB, 24))

	rng := rand.New(rand.NewPCG(13, 13))
	for range 100 {
		each := lockstep.Bytes(1 + rng.Int64N(1<<34))
		n := 1 + rng.IntN(60)
		size := each*lockstep.Bytes(n) + lockstep.Bytes(rng.Int64N(int64(each)))
		require.Equal(t, n, play(size, each, n+2))
	}
}

// TestSymptomH14 has two racks of two devices, one bad in each, and a gang of two:
// it gets the two good ones, and a refusal where there are too few. The same
// hopeless plan was made again and again.
func TestSymptomH14(t *testing.T) {
	shape, err := topology.UniformShape(1, topology.PIX)
	require.NoError(t, err)
	play := func(bad []bool, members int) (lockstep.Verdict, *lockstep.Plan) {
		nodes := racks(slices.Repeat([]int{2}, (len(bad)+1)/2)...)[:len(bad)]
		for i := range nodes {
			nodes[i].Shape = shape
		}
		s := stateOf(t, nodes, Config{})
		for i, ill := range bad {
			require.NoError(t, s.SetHealth(nodes[i].ID, !ill))
		}
		var p lockstep.Plan
		v, err := s.Fit(&lockstep.Request{Gang: gangOf("g", members, 1)}, &p)
		require.NoError(t, err)
		for i := range p.Members {
			x, _ := s.tree.Slot(p.Members[i].Node)
			require.False(t, bad[x])
		}
		return v, &p
	}
	v, p := play([]bool{true, false, false, true}, 2)
	require.True(t, v.Feasible)
	require.Equal(t, []lockstep.NodeID{"n1", "n2"}, []lockstep.NodeID{p.Members[0].Node, p.Members[1].Node})
	v, _ = play([]bool{true, false, true, true}, 2)
	require.Equal(t, lockstep.ReasonUnhealthy, v.Reason)

	// One device of a node is bad: the request leaves it alone.
	s := stateOf(t, racks(1, 1), Config{})
	r := &lockstep.Request{Gang: gangOf("g", 2, 7), Busy: []lockstep.Busy{{Node: "n0", Devices: 1}, {Node: "n1", Devices: 0x80}}}
	var q lockstep.Plan
	v, err = s.Fit(r, &q)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	require.Equal(t, []lockstep.Member{{Node: "n0", Devices: 0xfe}, {Node: "n1", Devices: 0x7f}}, q.Members)

	rng := rand.New(rand.NewPCG(14, 14))
	for range 300 {
		bad := make([]bool, 1+rng.IntN(10))
		good := 0
		for i := range bad {
			bad[i] = rng.IntN(2) == 0
			good += boolInt(!bad[i])
		}
		members := 1 + rng.IntN(len(bad))
		v, _ := play(bad, members)
		require.Equal(t, members <= good, v.Feasible)
	}
}

// TestSymptomH15 places a gang of groups, each in a rack and all in a spine, in one
// pass: nothing is tried and taken back. Every member was tried in every rack first.
func TestSymptomH15(t *testing.T) {
	play := func(spines, perSpine, nodes, groups, size int) bool {
		tree, err := topology.Uniform(topology.UniformConfig{
			Levels: []topology.Level{{Name: "spine"}, {Name: "rack"}}, Fanout: []int{spines, perSpine, nodes}, Shape: topology.NVSwitch8(),
		})
		require.NoError(t, err)
		s, err := New(tree, Config{})
		require.NoError(t, err)
		g := gangOf("g", groups*size, 8)
		g.Required, g.Roles[0].Inner = "spine", lockstep.Inner{Size: size, Level: "rack"}
		var p lockstep.Plan
		before := s.end
		v, err := s.Fit(&lockstep.Request{Gang: g}, &p)
		require.NoError(t, err)
		require.Equal(t, before, s.end)
		for i := range p.Members {
			x, _ := tree.Slot(p.Members[i].Node)
			first, _ := tree.Slot(p.Members[i/size*size].Node)
			zero, _ := tree.Slot(p.Members[0].Node)
			require.Equal(t, tree.DomainOf(2, first), tree.DomainOf(2, x))
			require.Equal(t, tree.DomainOf(1, zero), tree.DomainOf(1, x))
		}
		return v.Feasible
	}
	require.True(t, play(1, 100, 10, 100, 10))

	rng := rand.New(rand.NewPCG(15, 15))
	for range 100 {
		spines, perSpine, nodes := 1+rng.IntN(3), 1+rng.IntN(8), 1+rng.IntN(8)
		groups, size := 1+rng.IntN(12), 1+rng.IntN(8)
		require.Equal(t, groups <= perSpine*(nodes/size), play(spines, perSpine, nodes, groups, size))
	}
}

// sitOn adopts a gang of one member with some devices of a slot.
func (s *State) sitOn(t *testing.T, id lockstep.JobID, x int32, devices lockstep.DeviceSet) {
	g := gangOf(id, 1, devices.Len())
	require.NoError(t, s.Adopt(&lockstep.Plan{Job: id, Gang: g, Members: []lockstep.Member{{Node: s.ids[x], Devices: devices}}}))
}
