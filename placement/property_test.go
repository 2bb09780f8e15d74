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

// TestInputOrderDoesNotMatter builds one cluster from permuted input, with maps
// filled in another order, and plays the same calls.
func TestInputOrderDoesNotMatter(t *testing.T) {
	play := func(seed uint64) ([]byte, []lockstep.Verdict) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var nodes []Node
		for i := range 12 {
			labels := map[string]string{}
			keys := []string{"zone", "kind", "row"}
			rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
			for _, k := range keys {
				labels[k] = fmt.Sprint(i % len(k) % 2)
			}
			nodes = append(nodes, Node{ID: lockstep.NodeID(fmt.Sprint("n", i)), Labels: labels, Slots: 2 + i%3})
		}
		rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		s := stateOf(t, nodesOf(12), Config{Nodes: nodes})
		var out []lockstep.Verdict
		var p lockstep.Plan
		same := rand.New(rand.NewPCG(9, 9))
		for i := range 60 {
			g := gangOf(lockstep.JobID(fmt.Sprint("j", i)), 1+same.IntN(4), 1+same.IntN(4))
			g.Labels = map[string]string{"a": fmt.Sprint(i % 2), "b": "x"}
			if same.IntN(2) == 0 {
				g.Constraints.Selector = []lockstep.Requirement{{Key: "zone", Operator: lockstep.In, Values: []string{"1"}}}
			}
			if same.IntN(3) == 0 {
				g.Constraints.Affinity = []lockstep.Affinity{{Match: map[string]string{"b": "x", "a": "1"}, Level: "rack"}}
			}
			v, err := s.Fit(&lockstep.Request{Gang: g}, &p)
			require.NoError(t, err)
			if out = append(out, v); v.Feasible {
				require.NoError(t, s.Apply(&p))
			}
			if jobs := s.Jobs(); len(jobs) > 5 {
				require.NoError(t, s.Release(jobs[same.IntN(len(jobs))]))
			}
			e, err := s.Explain(&lockstep.Request{Gang: gangOf("x", 30, 2)})
			require.NoError(t, err)
			out = append(out, e.Verdict)
		}
		return bytesOf(t, s), out
	}
	want, verdicts := play(1)
	for seed := range uint64(8) {
		got, v := play(seed + 2)
		require.Equal(t, string(want), string(got))
		require.Equal(t, verdicts, v)
	}
}

// TestMoreRoomNeverHurts holds that a single role which fits goes on fitting
// when room is added: a job leaves, a node opens, heals or loses its penalty.
func TestMoreRoomNeverHurts(t *testing.T) {
	sequences := 5_000
	if testing.Short() {
		sequences = 1_000
	}
	shapes := someShapes(t)
	kept := 0
	for seed := range sequences {
		w := newWorld(t, uint64(seed), shapes)
		for range 6 {
			w.step()
		}
		r := w.request()
		if len(r.Gang.Roles) > 1 || len(r.Gang.Constraints.Affinity)+len(r.Gang.Roles[0].Constraints.Affinity) > 0 {
			continue // an affinity may lose what it looks for
		}
		before, err := w.s.Fit(r, &w.plan)
		require.NoError(t, err)
		if id := w.anyJob(); id != "" {
			require.NoError(t, w.s.Release(id))
		}
		if id := w.anyNode(); id != "" {
			require.NoError(t, w.s.Open(id))
			require.NoError(t, w.s.SetHealth(id, true))
		}
		after, err := w.s.Fit(r, &w.plan)
		require.NoError(t, err)
		require.True(t, after.Feasible || !before.Feasible)
		require.GreaterOrEqual(t, after.Fit, before.Fit*boolInt(before.Feasible))
		kept += boolInt(before.Feasible)
	}
	require.Greater(t, kept, sequences/10)
}

// TestDecisionAllocatesNothing holds the hot path to no allocation once warm.
func TestDecisionAllocatesNothing(t *testing.T) {
	tree := benchTree(t, 1024)
	var cfg Config
	for x := range tree.Slots() {
		id, _ := tree.NodeAt(int32(x))
		cfg.Nodes = append(cfg.Nodes, Node{ID: id, Class: "h100", GPUMemory: 80})
	}
	s, err := New(tree, cfg)
	require.NoError(t, err)
	roles := []lockstep.Role{
		{Min: 16, Demand: lockstep.Demand{GPUs: 8}},
		{Min: 3, Max: 9, Demand: lockstep.Demand{GPUs: 2, CPU: 100}},
		{Min: 64, Demand: lockstep.Demand{GPUs: 4}, Inner: lockstep.Inner{Size: 8, Level: "rack"}},
		{Min: 1, Demand: lockstep.Demand{CPU: 100}},
		{Min: 4, Demand: lockstep.Demand{GPUs: 1, Classes: []lockstep.DeviceClass{"a100", "h100"}, GPUMemory: 80}},
	}
	var plan lockstep.Plan
	for i := range roles {
		for _, strategy := range []lockstep.Strategy{lockstep.Pack, lockstep.Spread} {
			g := &lockstep.Gang{ID: "g", Roles: roles[i : i+1], Required: "block", Strategy: strategy}
			g.Constraints.Selector = []lockstep.Requirement{{Key: "k", Operator: lockstep.NotIn, Values: []string{"v"}}}
			r := &lockstep.Request{Gang: g}
			decide := func() {
				v, err := s.Fit(r, &plan)
				if err != nil || !v.Feasible || s.Apply(&plan) != nil || s.Release("g") != nil {
					t.Fatal(v, err)
				}
			}
			decide()
			require.Zero(t, testing.AllocsPerRun(100, decide), "role %d %q", i, strategy)
		}
	}
	two := &lockstep.Request{Gang: &lockstep.Gang{ID: "g", Roles: []lockstep.Role{{Name: "a", Min: 16, Demand: lockstep.Demand{GPUs: 8}}, {Name: "b", Min: 1, Demand: lockstep.Demand{CPU: 1}}}}}
	refused := &lockstep.Request{Gang: gangOf("g", 5000, 8)}
	overlaid := &lockstep.Request{Gang: gangOf("g", 2, 8), Exclude: []lockstep.NodeID{"n1", "n2"}}
	for _, r := range []*lockstep.Request{two, refused, overlaid} {
		fit := func() {
			if _, err := s.Fit(r, &plan); err != nil {
				t.Fatal(err)
			}
		}
		fit()
		require.Zero(t, testing.AllocsPerRun(100, fit))
	}
}

// TestMemoryStaysFlat runs many jobs through a state.
func TestMemoryStaysFlat(t *testing.T) {
	c := newChurn(t, 256)
	records, gone := len(c.s.jobs), len(c.s.gone)
	words := func() (n int) {
		for _, v := range c.s.views.list {
			for i := range v.sets {
				n += v.sets[i].words()
			}
			n += v.nodes.words()
		}
		return n
	}
	before := words()
	for range 20_000 {
		c.decide(t)
	}
	require.LessOrEqual(t, len(c.s.jobs), 2*records+16)
	require.Equal(t, gone, len(c.s.gone))
	require.LessOrEqual(t, words(), 2*before)
	require.LessOrEqual(t, len(c.s.views.list), c.s.cfg.Views)
}

// TestViewsAreBounded asks for more kinds of demand than are kept.
func TestViewsAreBounded(t *testing.T) {
	s := stateOf(t, nodesOf(6), Config{Views: 4})
	var p lockstep.Plan
	for i := range 100 {
		g := gangOf("g", 1, 1)
		g.Roles[0].Demand.CPU = lockstep.MilliCPU(i % 9)
		g.Constraints.Affinity = []lockstep.Affinity{{Match: map[string]string{"a": fmt.Sprint(i % 5)}, Anti: true}}
		v, err := s.Fit(&lockstep.Request{Gang: g}, &p)
		require.NoError(t, err)
		require.True(t, v.Feasible)
	}
	require.Len(t, s.views.list, 4)
	require.LessOrEqual(t, len(s.terms), 4)
	require.LessOrEqual(t, len(s.classes), 4)
	require.LessOrEqual(t, len(s.views.byHash), 4)
}

// TestGangOfGroupsGoesRackByRack is H15: a gang of 100 groups of 10 nodes, each
// in a rack, the gang in the spine.
func TestGangOfGroupsGoesRackByRack(t *testing.T) {
	tree, err := topology.Uniform(topology.UniformConfig{
		Levels: []topology.Level{{Name: "spine"}, {Name: "rack"}}, Fanout: []int{1, 100, 10}, Shape: topology.NVSwitch8(),
	})
	require.NoError(t, err)
	s, err := New(tree, Config{})
	require.NoError(t, err)
	g := gangOf("g", 1000, 8)
	g.Required = "spine"
	g.Roles[0].Inner = lockstep.Inner{Size: 10, Level: "rack"}
	p := s.mustPlace(t, g)
	require.Len(t, p.Members, 1000)
	for i := range p.Members {
		x, _ := tree.Slot(p.Members[i].Node)
		require.Equal(t, int32(i), x)
	}
	require.Equal(t, lockstep.Level("spine"), p.Level)
}

// TestTwoGangsOfTheWholeCluster is H2: one holds all, the other nothing.
func TestTwoGangsOfTheWholeCluster(t *testing.T) {
	nodes := nodesOf(100)
	var cfg Config
	for i := range nodes {
		nodes[i].Shape = nil
		cfg.Nodes = append(cfg.Nodes, Node{ID: nodes[i].ID, Slots: 1})
	}
	s := stateOf(t, nodes, cfg)
	var a, b lockstep.Plan
	for _, p := range []*lockstep.Plan{&a, &b} { // both ask before either is granted
		v, err := s.Fit(&lockstep.Request{Gang: gangOf(lockstep.JobID([]string{"a", "b"}[boolInt(p == &b)]), 100, 0)}, p)
		require.NoError(t, err)
		require.True(t, v.Feasible)
	}
	require.NoError(t, s.Apply(&a))
	require.ErrorIs(t, s.Apply(&b), lockstep.ErrStale)
	v, err := s.Fit(&lockstep.Request{Gang: gangOf("b", 100, 0)}, &b)
	require.NoError(t, err)
	require.False(t, v.Feasible)
	require.Empty(t, b.Members)
	require.Equal(t, []lockstep.JobID{"a"}, s.Jobs())
}

func TestReconcileNamesTheDrift(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	a := s.mustPlace(t, gangOf("a", 2, 4))
	b := s.mustPlace(t, gangOf("b", 2, 8))
	require.NoError(t, s.Cordon("n1"))
	before := bytesOf(t, s)
	require.Empty(t, s.Reconcile([]Observed{{"a", a.Members}, {"b", b.Members}}))

	moved := slices.Clone(a.Members)
	moved[1].Node, moved[1].Devices = "n1", 0xf
	drift := s.Reconcile([]Observed{
		{"a", moved},
		{"c", []lockstep.Member{{Node: b.Members[0].Node, Devices: 1}, {Node: "n1", Devices: 0xf0}, {Node: "x", Devices: 1}}},
	})
	require.Equal(t, []Drift{
		{Kind: DriftMoved, Job: "a", Rank: 1, Want: a.Members[1], Have: moved[1]},
		{Kind: DriftMissing, Job: "b", Rank: 0, Want: b.Members[0]},
		{Kind: DriftMissing, Job: "b", Rank: 1, Want: b.Members[1]},
		{Kind: DriftConflict, Job: "c", Rank: 0, Have: lockstep.Member{Node: b.Members[0].Node, Devices: 1}},
		{Kind: DriftExtra, Job: "c", Rank: 1, Have: lockstep.Member{Node: "n1", Devices: 0xf0}},
		{Kind: DriftConflict, Job: "c", Rank: 2, Have: lockstep.Member{Node: "x", Devices: 1}},
	}, drift)
	require.Equal(t, before, bytesOf(t, s))
}

func TestDrainNamesTheJobs(t *testing.T) {
	s := stateOf(t, nodesOf(2), Config{})
	for _, id := range []lockstep.JobID{"z", "a", "m"} {
		s.mustPlace(t, gangOf(id, 1, 2))
	}
	jobs, err := s.Drain("n0")
	require.NoError(t, err)
	require.Equal(t, []lockstep.JobID{"a", "m", "z"}, jobs)
	p := s.mustPlace(t, gangOf("b", 1, 2))
	require.Equal(t, lockstep.NodeID("n1"), p.Members[0].Node)
	require.Equal(t, Usage{Nodes: 2, Open: 1, Devices: 16, Free: 6, Jobs: 4, Members: 4}, s.Usage())
}

func TestRoomCountsStrandedDevices(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	for i := range 4 {
		require.NoError(t, s.Adopt(&lockstep.Plan{
			Job: lockstep.JobID(fmt.Sprint("j", i)), Gang: gangOf(lockstep.JobID(fmt.Sprint("j", i)), 1, 5),
			Members: []lockstep.Member{{Node: lockstep.NodeID(fmt.Sprint("n", i)), Devices: 0b11111}},
		}))
	}
	room, err := s.Room(&lockstep.Request{Gang: gangOf("g", 1, 2)}, 0)
	require.NoError(t, err)
	require.Equal(t, Room{Free: 12_000, Stranded: 4_000, Levels: []LevelRoom{{"cluster", "cluster", 4}, {"rack", "r0", 2}, {"node", "n0", 1}}}, room)
}

func TestReservedRoomIsTheReason(t *testing.T) {
	s := stateOf(t, nodesOf(2), Config{})
	r := &lockstep.Request{Gang: gangOf("g", 2, 8), Busy: []lockstep.Busy{{Node: "n0", Devices: 1}}}
	var p lockstep.Plan
	v, err := s.Fit(r, &p)
	require.NoError(t, err)
	require.Equal(t, lockstep.ReasonReserved, v.Reason)
	r = &lockstep.Request{Gang: gangOf("g", 2, 8), Exclude: []lockstep.NodeID{"n1"}}
	e, err := s.Explain(r)
	require.NoError(t, err)
	require.Equal(t, lockstep.ReasonReserved, e.Verdict.Reason)
	require.Equal(t, []lockstep.ReasonCount{{Reason: lockstep.ReasonReserved, Detail: "excluded", Nodes: 1}}, e.Counts)
}

func TestPenalisedNodesComeLast(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	require.NoError(t, s.SetPenalty("n0", 8))
	require.NoError(t, s.SetPenalty("n1", 2))
	require.NoError(t, s.SetPenalty("n2", 3)) // as n1
	for _, want := range []lockstep.NodeID{"n3", "n1", "n2", "n0"} {
		p := s.mustPlace(t, gangOf(lockstep.JobID(want), 1, 8))
		require.Equal(t, want, p.Members[0].Node)
	}
}

// TestLikeRolesAreExact holds that splitting a role in two of the same demand
// changes nothing about whether it fits.
func TestLikeRolesAreExact(t *testing.T) {
	sequences := 5_000
	if testing.Short() {
		sequences = 1_000
	}
	shapes := someShapes(t)
	fitted := 0
	for seed := range sequences {
		w := newWorld(t, uint64(seed), shapes)
		for range 6 {
			w.step()
		}
		one := w.gang()
		one.Roles = one.Roles[:1]
		r := &one.Roles[0]
		r.Name, r.Inner, r.Max = "a", lockstep.Inner{}, 0
		two := *one
		two.Roles = []lockstep.Role{*r, *r}
		two.Roles[1].Name = "b"
		r.Min *= 2
		a, err := w.s.Fit(&lockstep.Request{Gang: one}, &w.plan)
		require.NoError(t, err)
		b, err := w.s.Fit(&lockstep.Request{Gang: &two}, &w.plan)
		require.NoError(t, err)
		require.Equal(t, a.Feasible, b.Feasible)
		fitted += boolInt(a.Feasible)
	}
	require.Greater(t, fitted, sequences/10)
}

// TestViewsFallBehind lets a view miss more changes than the ring holds.
func TestViewsFallBehind(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	var p lockstep.Plan
	ask := func(gpus int) lockstep.NodeID {
		v, err := s.Fit(&lockstep.Request{Gang: gangOf("g", 1, gpus)}, &p)
		require.NoError(t, err)
		require.True(t, v.Feasible)
		return p.Members[0].Node
	}
	require.Equal(t, lockstep.NodeID("n0"), ask(8))
	require.NoError(t, s.Cordon("n0"))
	for range len(s.changed) {
		require.NoError(t, s.Cordon("n3"))
		require.NoError(t, s.Cordon("n2"))
		require.NoError(t, s.Open("n3"))
		require.NoError(t, s.Open("n2"))
	}
	require.Greater(t, s.end, uint64(len(s.changed)))
	require.Equal(t, lockstep.NodeID("n1"), ask(8))
	require.NoError(t, s.verify())
}

// TestSeveralRolesTryEveryNode needs the third of three nodes in use: the others
// take one role only.
func TestSeveralRolesTryEveryNode(t *testing.T) {
	s := stateOf(t, nodesOf(3), Config{Nodes: []Node{{ID: "n0", CPU: 1000}, {ID: "n1", CPU: 1000}, {ID: "n2", CPU: 2000}}})
	for i := range 3 {
		g := gangOf(lockstep.JobID(fmt.Sprint("j", i)), 1, 5)
		require.NoError(t, s.Adopt(&lockstep.Plan{Job: g.ID, Gang: g, Members: []lockstep.Member{{Node: lockstep.NodeID(fmt.Sprint("n", i)), Devices: 0b11111}}}))
	}
	g := gangOf("g", 1, 2)
	g.Required = lockstep.LevelNode
	g.Roles[0].Name, g.Roles[0].Demand.CPU = "a", 1000
	g.Roles = append(g.Roles, lockstep.Role{Name: "b", Min: 1, Demand: lockstep.Demand{GPUs: 1, CPU: 1000}})
	p := s.mustPlace(t, g)
	require.Equal(t, []lockstep.Member{{Role: 0, Node: "n2", Devices: 0b1100000}, {Role: 1, Node: "n2", Devices: 0b10000000}}, p.Members)
}
