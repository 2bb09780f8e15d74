package scheduler_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/topology"
)

// machines is a tree of the named nodes below one rack, each with so many devices.
func machines(t testing.TB, gpus map[lockstep.NodeID]int) *topology.Tree {
	t.Helper()
	var nodes []topology.Node
	for id, n := range gpus { // sorted below
		shape, err := topology.UniformShape(n, topology.NVLink(18))
		require.NoError(t, err)
		nodes = append(nodes, topology.Node{ID: id, Path: []string{"r"}, Shape: shape})
	}
	slices.SortFunc(nodes, func(a, b topology.Node) int { return cmp.Compare(a.ID, b.ID) })
	tree, err := topology.New([]topology.Level{{Name: "rack"}, {Name: lockstep.LevelNode}}, nodes)
	require.NoError(t, err)
	return tree
}

// planOf places the one member of g.
func planOf(g *lockstep.Gang, node lockstep.NodeID, devices ...int) *lockstep.Plan {
	var set lockstep.DeviceSet
	for _, d := range devices {
		set |= 1 << d
	}
	return &lockstep.Plan{Job: g.ID, Gang: g, Members: []lockstep.Member{{Node: node, Devices: set}}}
}

func TestAdoptedJobsHoldWhatTheyRanOn(t *testing.T) {
	for _, rule := range scheduler.Rules() {
		t.Run("rule="+string(rule), func(t *testing.T) {
			tree := machines(t, map[lockstep.NodeID]int{"a": 8, "b": 8})
			s := newScheduler(t, scheduler.Config{Rule: rule, Tree: tree})
			old := gangOf("old", "x", 8, time.Hour)
			require.NoError(t, s.Adopt(at(100), planOf(old, "a", 0, 1, 2, 3, 4, 5, 6, 7), at(40)))
			st, ok := s.Status("old")
			require.True(t, ok)
			require.Equal(t, lockstep.NodeID("a"), st.Gang.Plan.Members[0].Node)
			require.Equal(t, 8, s.Usage().Free)

			submit(t, s, at(100), gangOf("n1", "x", 8, time.Hour), gangOf("n2", "x", 8, time.Hour))
			began := confirm(t, s, step(t, s, at(100)))
			require.Equal(t, []string{"start n1"}, kinds(began))
			require.Equal(t, lockstep.NodeID("b"), began[0].Plan.Members[0].Node)

			require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(200), Job: "old"}))
			began = confirm(t, s, step(t, s, at(200)))
			require.Equal(t, []string{"start n2"}, kinds(began))
			require.Equal(t, lockstep.NodeID("a"), began[0].Plan.Members[0].Node)
		})
	}
}

func TestWhatCannotBeAdoptedChangesNothing(t *testing.T) {
	tree := machines(t, map[lockstep.NodeID]int{"a": 8, "b": 4})
	s := newScheduler(t, scheduler.Config{Tree: tree, Weights: map[lockstep.TenantID]int64{"x": 1}})
	require.NoError(t, s.Adopt(at(10), planOf(gangOf("held", "x", 4, 0), "a", 0, 1, 2, 3), at(0)))
	require.NoError(t, s.Occupy(at(10), planOf(gangOf("theirs", "", 1, 0), "b", 3)))
	before := saved(t, s)

	two := gangOf("two", "x", 1, 0)
	two.Roles[0].Min, two.Roles[0].Max = 2, 2
	for name, c := range map[string]struct { // each by itself, so in any order
		plan  *lockstep.Plan
		since int
		kind  error
		field string
	}{
		"no plan":         {nil, 0, lockstep.ErrInvalid, "plan"},
		"no gang":         {&lockstep.Plan{Job: "p"}, 0, lockstep.ErrInvalid, "plan"},
		"another's room":  {planOf(gangOf("p", "x", 1, 0), "a", 3), 0, lockstep.ErrConflict, "Plan.Members[0]"},
		"others' room":    {planOf(gangOf("p", "x", 1, 0), "b", 3), 0, lockstep.ErrConflict, "Plan.Members[0]"},
		"no such node":    {planOf(gangOf("p", "x", 1, 0), "c", 3), 0, lockstep.ErrUnknown, ""},
		"no such device":  {planOf(gangOf("p", "x", 1, 0), "b", 5), 0, lockstep.ErrInvalid, ""},
		"name in use":     {planOf(gangOf("held", "x", 1, 0), "a", 5), 0, lockstep.ErrDuplicate, "Gang.ID"},
		"name of others'": {planOf(gangOf("theirs", "x", 1, 0), "a", 5), 0, lockstep.ErrDuplicate, "Gang.ID"},
		"no weight":       {planOf(gangOf("p", "y", 1, 0), "a", 5), 0, lockstep.ErrUnknown, "Gang.Tenant"},
		"too few members": {planOf(two, "a", 5), 0, lockstep.ErrInvalid, "plan.Members"},
		"from the future": {planOf(gangOf("p", "x", 1, 0), "a", 5), 21, lockstep.ErrInvalid, "started"},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.Adopt(at(20), c.plan, at(c.since))
			require.ErrorIs(t, err, c.kind)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			if c.field != "" {
				require.Equal(t, c.field, e.Field)
			}
			require.Equal(t, before, saved(t, s))
		})
	}
	require.ErrorIs(t, s.Adopt(at(9), planOf(gangOf("p", "x", 1, 0), "a", 5), at(0)), lockstep.ErrPast)
	require.ErrorIs(t, s.Occupy(at(20), planOf(gangOf("held", "", 1, 0), "a", 5)), lockstep.ErrDuplicate)
	require.ErrorIs(t, s.Occupy(at(20), planOf(gangOf("q", "", 1, 0), "a", 3)), lockstep.ErrConflict)
	require.ErrorIs(t, s.Vacate(at(20), "held"), lockstep.ErrUnknown)
	require.ErrorIs(t, s.Rebase(at(20), nil, nil), lockstep.ErrInvalid)
	require.ErrorIs(t, s.Rebase(at(20), tree, []placement.Node{{ID: "c"}}), lockstep.ErrUnknown)
	require.ErrorIs(t, s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: at(20), Gang: gangOf("theirs", "x", 1, 0)}), lockstep.ErrDuplicate)
	require.Equal(t, before, saved(t, s))
}

func TestNobodyIsPlacedOnWhatOthersOccupy(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: machines(t, map[lockstep.NodeID]int{"a": 8})})
	require.NoError(t, s.Occupy(at(0), planOf(gangOf("theirs", "", 2, 0), "a", 2, 5)))
	submit(t, s, at(0), gangOf("six", "x", 6, time.Hour), gangOf("two", "x", 2, time.Hour))
	began := confirm(t, s, step(t, s, at(0)))
	require.Len(t, began, 1)
	require.Zero(t, began[0].Plan.Members[0].Devices&(1<<2|1<<5))
	_, known := s.Status("theirs")
	require.False(t, known, "it is no job of this scheduler")

	for at1 := 1; at1 < 20; at1++ { // terms end, and no holder makes room there
		for _, a := range step(t, s, at(at1*3600)) {
			require.NotEqual(t, lockstep.JobID("theirs"), a.Job)
		}
	}
	require.NoError(t, s.Vacate(at(80000), "theirs"))
	rest := step(t, s, at(80000))
	require.NotEmpty(t, rest)
	require.Equal(t, lockstep.ActionReserve, rest[0].Kind)
}

func TestRebase(t *testing.T) {
	tree := machines(t, map[lockstep.NodeID]int{"a": 8, "b": 8, "c": 8})
	s := newScheduler(t, scheduler.Config{Tree: tree, Rule: scheduler.FIFO})
	submit(t, s, at(0), gangOf("j1", "x", 8, time.Hour), gangOf("j2", "x", 8, time.Hour), gangOf("j3", "x", 4, time.Hour), gangOf("wide", "x", 8, time.Hour))
	began := confirm(t, s, step(t, s, at(0)))
	require.Equal(t, []string{"start j1", "start j2", "start j3"}, kinds(began))
	where := map[lockstep.JobID]lockstep.NodeID{}
	for _, a := range began {
		where[a.Job] = a.Plan.Members[0].Node
	}

	t.Log("a node joins: who waits has room at once")
	four := map[lockstep.NodeID]int{"a": 8, "b": 8, "c": 8, "d": 8}
	require.NoError(t, s.Rebase(at(10), machines(t, four), nil))
	began = confirm(t, s, step(t, s, at(10)))
	require.Equal(t, []string{"start wide"}, kinds(began))
	require.Equal(t, lockstep.NodeID("d"), began[0].Plan.Members[0].Node)

	t.Log("a node leaves: its job is stopped, and is queued anew once that is reported")
	delete(four, where["j1"])
	require.NoError(t, s.Rebase(at(20), machines(t, four), nil))
	require.Equal(t, []string{"evict j1"}, kinds(step(t, s, at(20))))
	_, known := s.Node(where["j1"])
	require.False(t, known)
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventEvicted, Time: at(21), Job: "j1"}))
	require.Empty(t, step(t, s, at(21)))

	t.Log("a node shrinks below what is held: so is that job")
	four[where["j2"]] = 4
	require.NoError(t, s.Rebase(at(30), machines(t, four), nil))
	require.Equal(t, []string{"evict j2"}, kinds(step(t, s, at(30))))
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventEvicted, Time: at(31), Job: "j2"}))

	t.Log("the node comes back, whole")
	four[where["j1"]] = 8
	require.NoError(t, s.Rebase(at(4000), machines(t, four), nil))
	began = confirm(t, s, step(t, s, at(4000)))
	require.Len(t, began, 1)
	require.Equal(t, where["j1"], began[0].Plan.Members[0].Node)
}

var hosts = flag.Uint64("hosts", 30, "how many random hosts TestHostsThatComeAndGo runs")

// TestHostsThatComeAndGo runs random hosts whose nodes, jobs and neighbours come and
// go, and holds the scheduler to what was saved, and to its log, at every step.
func TestHostsThatComeAndGo(t *testing.T) {
	rules := scheduler.Rules()
	for seed := range *hosts {
		cfg := scheduler.Config{Rule: rules[seed%uint64(len(rules))], Term: 2 * time.Minute}
		if seed%10 == 5 {
			cfg.Floor = 500_000
		}
		if cfg.Rule == scheduler.FIFO || cfg.Rule == scheduler.Static {
			cfg.Term = 0
		}
		t.Run("seed="+strconv.Itoa(int(seed)), func(t *testing.T) { wander(t, cfg, seed) })
	}
}

func wander(t *testing.T, cfg scheduler.Config, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	gpus := map[lockstep.NodeID]int{"n0": 8, "n1": 8, "n2": 4}
	first := machines(t, gpus)
	cfg.Tree = first
	var log []scheduler.Entry
	cfg.Log = func(e scheduler.Entry) {
		data, err := json.Marshal(e)
		require.NoError(t, err)
		var back scheduler.Entry
		require.NoError(t, json.Unmarshal(data, &back), string(data))
		log = append(log, back)
	}
	s := newScheduler(t, cfg)
	cfg.Log = nil
	var did [][]string
	names, running, theirs := 0, map[lockstep.JobID]lockstep.Attempt{}, []lockstep.JobID{}
	for turn := range 120 {
		now := at(turn * 20)
		names++
		id := lockstep.JobID("j" + strconv.Itoa(names))
		g := gangOf(id, lockstep.TenantID("t"+strconv.Itoa(rng.IntN(3))), 1+rng.IntN(5), time.Duration(rng.IntN(600))*time.Second)
		node := lockstep.NodeID("n" + strconv.Itoa(rng.IntN(4)))
		from := rng.IntN(8)
		var list []int
		for d := range g.Roles[0].Demand.GPUs {
			list = append(list, (from+d)%8)
		}
		var err error
		switch rng.IntN(7) {
		case 0, 1, 2:
			submit(t, s, now, g)
		case 3:
			if err = s.Adopt(now, planOf(g, node, list...), now); err == nil {
				st, _ := s.Status(id)
				running[id] = st.Gang.Attempt
			}
		case 4:
			if len(theirs) > 1 {
				err = s.Vacate(now, theirs[0])
				theirs = theirs[1:]
			} else if err = s.Occupy(now, planOf(g, node, list...)); err == nil {
				theirs = append(theirs, id)
			}
		case 5:
			if gpus[node] = []int{0, 4, 8}[rng.IntN(3)]; gpus[node] == 0 {
				delete(gpus, node)
			}
			if len(gpus) == 0 {
				gpus["n9"] = 8
			}
			err = s.Rebase(now, machines(t, gpus), nil)
			require.NoError(t, err)
		case 6:
			var all []lockstep.JobID
			for j := range running { // sorted
				all = append(all, j)
			}
			if slices.Sort(all); len(all) > 0 {
				j := all[rng.IntN(len(all))]
				_ = s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: now, Job: j, Attempt: running[j]}) // it may be leaving by now
				delete(running, j)
			}
		}
		if err != nil {
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
		}
		for range 3 {
			actions := step(t, s, now)
			did = append(did, kinds(actions))
			for i := range actions {
				a := &actions[i]
				switch a.Kind {
				case lockstep.ActionReserve:
					for rank := range a.Plan.Members {
						require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventConfirm, Time: now, Job: a.Job, Attempt: a.Attempt, Rank: rank}))
					}
				case lockstep.ActionStart:
					running[a.Job] = a.Attempt
				case lockstep.ActionEvict, lockstep.ActionMove:
					delete(running, a.Job)
					require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventEvicted, Time: now, Job: a.Job, Attempt: a.Attempt}))
				}
			}
		}
		if turn%10 == 0 {
			cfg.Tree = s.Tree()
			data := saved(t, s)
			back, err := scheduler.Restore(cfg, strings.NewReader(data))
			require.NoError(t, err, "turn %d", turn)
			require.Equal(t, data, saved(t, back))
		}
	}
	cfg.Tree = first
	again := newScheduler(t, cfg)
	for _, e := range log {
		actions, err := again.Replay(e)
		require.NoError(t, err)
		if !e.Step.IsZero() {
			require.Equal(t, did[0], kinds(actions))
			did = did[1:]
		}
	}
	require.Equal(t, saved(t, s), saved(t, again))
}

// TestReplacedMembersKeepTheLease has a gang go on, as large as it was, while members
// whose node is lost are started elsewhere.
func TestReplacedMembersKeepTheLease(t *testing.T) {
	s := newScheduler(t, scheduler.Config{Tree: machines(t, map[lockstep.NodeID]int{"a": 8, "b": 8, "c": 8}), StartAtOnce: true})
	g := gangOf("g", "x", 8, time.Hour)
	g.Roles[0].Min, g.Roles[0].Max, g.Capabilities.Replaceable = 2, 2, true
	submit(t, s, at(0), g)
	began := step(t, s, at(0))
	require.Equal(t, []string{"start g"}, kinds(began))
	lost := began[0].Plan.Members[1].Node
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventDown, Time: at(10), Node: lost}))
	did := step(t, s, at(10))
	require.Equal(t, []string{"resize g"}, kinds(did))
	require.Len(t, did[0].Plan.Members, 2)
	for _, m := range did[0].Plan.Members {
		require.NotEqual(t, lost, m.Node)
	}
	st, _ := s.Status("g")
	require.Equal(t, 16*lockstep.WholeGPU, st.Lease.Amount)
	require.NoError(t, s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: at(20), Job: "g"}))
	require.Empty(t, step(t, s, at(20)))
}
