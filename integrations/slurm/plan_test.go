package slurm

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/slurm"
)

var update = flag.Bool("update", false, "rewrite the reports in testdata")

// sound checks what holds of every report.
func sound(t testing.TB, v *View, r *Report, cfg Config) {
	t.Helper()
	cfg = cfg.withDefaults()
	turn := 0
	last := uint32(0)
	none := false
	for i := range r.Rows {
		w := &r.Rows[i]
		require.LessOrEqual(t, w.Planned, w.Tasks)
		require.Equal(t, w.Planned > 0, !w.Start.IsZero())
		if w.Planned > 0 {
			require.False(t, w.Start.Before(r.Now))
			require.False(t, w.Last.Before(w.Start))
			require.NotEmpty(t, w.On)
			require.Equal(t, w.Reason == "", w.Start.Equal(r.Now), "job %s: %s", w.Job, w.Reason)
			require.NotZero(t, w.Turn)
		} else {
			require.NotEmpty(t, w.Reason, "job %s", w.Job)
		}
		if w.Turn == 0 {
			none = true
		} else {
			require.False(t, none, "those without a turn come last")
			turn++
			require.Equal(t, turn, w.Turn)
		}
		if w.Priority != 0 {
			require.NotZero(t, w.Current, "a held job is given no priority")
			require.LessOrEqual(t, cfg.Low, w.Priority)
			require.LessOrEqual(t, w.Priority, cfg.High)
			if last != 0 {
				require.Less(t, w.Priority, last, "priorities fall with the turn")
			}
			last = w.Priority
		}
	}
	for _, ch := range r.Changes() {
		require.NotEqual(t, ch.From, ch.To)
	}
}

// TestReportsOfRecordings plans the queues that real Slurms printed.
func TestReportsOfRecordings(t *testing.T) {
	for _, tt := range []struct{ jobs, nodes, name string }{
		{"squeue-22.05.json", "sinfo-22.05.json", "report-22.05"},
		{"squeue-24.11-v0.0.42.json", "scontrol-24.11.json", "report-24.11"},
	} {
		v := recorded(t, tt.jobs, tt.nodes)
		var out strings.Builder
		for _, rule := range []Rule{LTGF, SRTF, Slurm} {
			r, err := Plan(v, Config{Rule: rule})
			require.NoError(t, err)
			sound(t, v, r, Config{})
			out.WriteString(text(t, r) + "\n")
		}
		path := filepath.Join("testdata", tt.name+".txt")
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(out.String()), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), out.String())
	}
}

func recorded(t testing.TB, jobs, nodes string) *View {
	v := read(t, recording(t, nodes), recording(t, jobs), []byte("SwitchName=leaf1 Nodes=n[01-02]\nSwitchName=leaf2 Nodes=n[03-04]\nSwitchName=core Switches=leaf[1-2]\n"))
	v.Now = time.Time{}
	for i := range v.Jobs { // as the recording was made soon after the last submission
		v.Now = later(v.Now, v.Jobs[i].Submitted)
	}
	v.Now = v.Now.Add(3 * time.Second)
	return v
}

// TestNoDeviceIsPromisedTwice goes through all planned starts by hand: at no time has a device two holders, no node more
// processors or memory in use than it has, no closed node a new job, and no array more tasks than it may.
func TestNoDeviceIsPromisedTwice(t *testing.T) {
	for seed := range uint64(6) {
		nodeDoc, jobDoc, conf := documents(12, 120, seed)
		v := read(t, nodeDoc, jobDoc, conf)
		v.Nodes[3].Open = false
		r := rand.New(rand.NewPCG(seed, 9))
		for i := range v.Jobs {
			if j := &v.Jobs[i]; j.State == Pending && r.IntN(4) == 0 {
				j.Array, j.Tasks, j.TaskLimit = j.ID, 1+r.IntN(5), 1+r.IntN(2)
			}
		}
		for _, rule := range []Rule{LTGF, SRTF} {
			p, err := prepare(v, Config{Rule: rule, Horizon: 30 * 24 * time.Hour})
			require.NoError(t, err)
			starts := 0
			held := holdings{t: t, p: p, view: v}
			for i := range v.Jobs {
				if j := &v.Jobs[i]; j.State == Running {
					e := p.entries[name(j, 0)]
					held.add(p.now, p.round(later(e.start.Add(j.Limit), p.now.Add(time.Second))), e.plan, 0)
				}
			}
			p.watch = func(at time.Time, e *entry, plan *lockstep.Plan) {
				starts++
				for i := range plan.Members {
					require.NotEqual(t, v.Nodes[3].ID, plan.Members[i].Node)
				}
				held.add(at, p.round(at.Add(e.gang.Walltime)), plan, e.job.Array)
			}
			require.NoError(t, p.run())
			require.Greater(t, starts, 120)
		}
	}
}

// holdings are who holds what until when.
type holdings struct {
	t    *testing.T
	p    *planner
	view *View
	all  []holding
}

type holding struct {
	until time.Time
	plan  *lockstep.Plan
	array uint32
}

func (h *holdings) add(at, until time.Time, plan *lockstep.Plan, array uint32) {
	h.all = slices.DeleteFunc(h.all, func(o holding) bool { return !o.until.After(at) })
	h.all = append(h.all, holding{until, plan.Clone(), array})
	room := h.p.c.room()
	tasks := map[uint32]int{}
	for _, o := range h.all {
		if tasks[o.array]++; o.array != 0 {
			require.LessOrEqual(h.t, tasks[o.array], h.p.arrays[o.array].limit)
		}
		for i := range o.plan.Members {
			m := &o.plan.Members[i]
			l, d := &room[h.p.c.at[m.Node]], &o.plan.Gang.Roles[m.Role].Demand
			require.Equal(h.t, d.GPUs, m.Devices.Len())
			require.Zero(h.t, m.Devices&^l.devices, "%s at %s", o.plan.Job, at)
			l.devices &^= m.Devices
			l.cpu, l.memory = l.cpu-d.CPU, l.memory-d.Memory
			require.GreaterOrEqual(h.t, l.cpu, lockstep.MilliCPU(0))
			require.GreaterOrEqual(h.t, l.memory, lockstep.Bytes(0))
		}
	}
}

// TestOrderOfInputDoesNotMatter shuffles nodes and jobs.
func TestOrderOfInputDoesNotMatter(t *testing.T) {
	nodeDoc, jobDoc, conf := documents(30, 150, 3)
	v := read(t, nodeDoc, jobDoc, conf)
	rec := recorded(t, "squeue-24.11-v0.0.42.json", "scontrol-24.11.json")
	for _, v := range []*View{v, rec} {
		first, err := Plan(v, Config{})
		require.NoError(t, err)
		sound(t, v, first, Config{})
		r := rand.New(rand.NewPCG(7, 7))
		for range 5 {
			r.Shuffle(len(v.Jobs), func(i, k int) { v.Jobs[i], v.Jobs[k] = v.Jobs[k], v.Jobs[i] })
			r.Shuffle(len(v.Nodes), func(i, k int) { v.Nodes[i], v.Nodes[k] = v.Nodes[k], v.Nodes[i] })
			again, err := Plan(v, Config{})
			require.NoError(t, err)
			require.Equal(t, text(t, first), text(t, again))
		}
	}
}

// world is a small cluster to plan by hand: n nodes of 8 devices, at epoch.
func world(n int) *View {
	v := &View{Now: epoch}
	for i := range n {
		v.Nodes = append(v.Nodes, Node{ID: lockstep.NodeID("n" + string(rune('1'+i))), Open: true, State: "idle", CPUs: 64, Memory: lockstep.TiB, GPUs: 8, GPUKind: "a100", Partitions: []string{"main"}})
	}
	return v
}

// add adds a job that waits for so many devices on one node, since a minute per number.
func (v *View) add(id uint32, gpus int64, limit time.Duration, more ...func(*Job)) {
	j := Job{ID: id, State: Pending, User: "ann", Account: "a", Partition: "main", Priority: 1000 - id, Eligible: epoch.Add(-time.Hour + time.Duration(id)*time.Minute), Limit: limit, Task: -1, Tasks: 1, MinNodes: 1, MaxNodes: 1, CPUs: 1, NodeGPUs: gpus, GPUs: gpus}
	for _, m := range more {
		m(&j)
	}
	v.Jobs = append(v.Jobs, j)
}

// on makes a job run on these nodes since an hour ago.
func on(nodes ...lockstep.NodeID) func(*Job) {
	return func(j *Job) {
		j.State, j.Started, j.MinNodes, j.MaxNodes = Running, epoch.Add(-time.Hour), len(nodes), len(nodes)
		for _, n := range nodes {
			j.On = append(j.On, Part{Node: n, GPUs: j.NodeGPUs, CPUs: 1})
		}
	}
}

func across(n int) func(*Job) {
	return func(j *Job) { j.MinNodes, j.MaxNodes, j.GPUs = n, n, j.NodeGPUs*int64(n) }
}

func plan(t *testing.T, v *View, cfg Config) map[uint32]Row {
	t.Helper()
	r, err := Plan(v, cfg)
	require.NoError(t, err)
	sound(t, v, r, cfg)
	out := map[uint32]Row{}
	for _, w := range r.Rows {
		out[w.ID] = w
	}
	return out
}

func TestJobsStartWhenThoseBeforeThemEnd(t *testing.T) {
	v := world(1)
	v.add(1, 8, 2*time.Hour, on("n1")) // an hour is left
	v.add(2, 8, time.Hour)
	v.add(3, 4, 30*time.Minute)
	v.add(4, 4, 10*time.Minute)
	rows := plan(t, v, Config{Rule: FIFO})
	require.Equal(t, epoch.Add(time.Hour), rows[2].Start)
	require.Equal(t, epoch.Add(2*time.Hour), rows[3].Start)
	require.Equal(t, epoch.Add(2*time.Hour), rows[4].Start)
	require.Equal(t, lockstep.ReasonBusy, rows[2].Reason)
	rows = plan(t, v, Config{Rule: SRTF})
	require.Equal(t, epoch.Add(time.Hour), rows[4].Start)
	require.Equal(t, epoch.Add(time.Hour), rows[3].Start)
	require.Equal(t, epoch.Add(90*time.Minute), rows[2].Start)
	require.Less(t, rows[4].Turn, rows[3].Turn)
}

// TestWhoIsPassedComesFirst holds that a wide job whose turn it is has the higher priority than those that may start
// before it, since they are no harm to it.
func TestWhoIsPassedComesFirst(t *testing.T) {
	v := world(2)
	v.add(1, 8, 2*time.Hour, on("n1"))
	v.add(2, 8, time.Hour, across(2))
	v.add(3, 8, 30*time.Minute)
	v.add(4, 8, 3*time.Hour) // would delay it
	rows := plan(t, v, Config{Rule: FIFO})
	require.Equal(t, epoch.Add(time.Hour), rows[2].Start)
	require.Equal(t, epoch, rows[3].Start)
	require.Equal(t, epoch.Add(2*time.Hour), rows[4].Start)
	require.Equal(t, 1, rows[2].Turn)
	require.Equal(t, 2, rows[3].Turn)
	require.Greater(t, rows[2].Priority, rows[3].Priority)
	rows = plan(t, v, Config{Rule: FIFO, Backfill: -1})
	require.Equal(t, epoch.Add(2*time.Hour), rows[3].Start, "strictly, nobody passes")
}

func TestTenantsTakeTurnsByWhatTheyAreOwed(t *testing.T) {
	account := func(a string) func(*Job) { return func(j *Job) { j.Account = a } }
	v := world(1)
	v.add(1, 8, 2*time.Hour, on("n1"), account("greedy"))
	v.add(2, 8, time.Hour, account("greedy"))
	v.add(3, 8, time.Hour, account("patient"))
	v.add(4, 8, time.Hour, account("patient"))
	rows := plan(t, v, Config{})
	require.Less(t, rows[3].Turn, rows[2].Turn, "the one that holds all waits")
	rows = plan(t, v, Config{Weights: map[lockstep.TenantID]int64{"greedy": 1000}})
	require.Less(t, rows[2].Turn, rows[3].Turn, "unless it may")
	rows = plan(t, v, Config{Tenant: ByUser})
	require.Less(t, rows[2].Turn, rows[3].Turn, "there is one user, and of like jobs the first goes first")
}

func TestWhatStandsInTheWayHasAName(t *testing.T) {
	v := world(2)
	v.Nodes[1].Open, v.Nodes[1].State = false, "idle+drain"
	v.Nodes[0].Features = []string{"ib"}
	v.add(1, 8, time.Hour, func(j *Job) { j.Held, j.Priority = true, 0 })
	v.add(2, 8, time.Hour, func(j *Job) { j.Dependency = "afterok:1(unfulfilled)" })
	v.add(3, 8, time.Hour, func(j *Job) { j.Dependency = "afterok:99(unfulfilled)" })
	v.add(4, 8, time.Hour, func(j *Job) { j.Eligible = epoch.Add(5 * time.Hour) })
	v.add(5, 1, time.Hour, func(j *Job) { j.Features = "ib&fast" })
	v.add(6, 8, time.Hour, across(2))
	v.add(7, 9, time.Hour)
	v.add(8, 1, time.Hour, func(j *Job) { j.GPUKind = "h100" })
	v.add(9, 1, time.Hour, func(j *Job) { j.Features = "ib&(" })
	v.add(10, 1, time.Hour, func(j *Job) { j.Partition = "other" })
	v.add(11, 70, time.Hour)
	rows := plan(t, v, Config{})
	for id, want := range map[uint32]lockstep.Reason{ // each is checked by itself, so order cannot matter
		1: ReasonHeld, 2: ReasonDependency, 3: ReasonDependency, 4: ReasonBegin, 6: lockstep.ReasonUnhealthy, 7: lockstep.ReasonCapacity, 9: ReasonUnreadable, 11: ReasonUnreadable,
	} {
		require.Equal(t, want, rows[id].Reason, id)
	}
	for _, id := range []uint32{5, 8, 10} {
		require.Contains(t, []lockstep.Reason{lockstep.ReasonConstraint, lockstep.ReasonCapacity}, rows[id].Reason, id)
		require.Zero(t, rows[id].Start)
	}
	require.False(t, rows[4].Start.Before(epoch.Add(5*time.Hour)))
	require.Zero(t, rows[4].Priority, "its time has not come")
	require.Zero(t, rows[2].Priority)
}

func TestWhoWaitsForAnotherComesBehindIt(t *testing.T) {
	v := world(1)
	v.add(1, 8, 2*time.Hour, on("n1"))
	v.add(2, 8, time.Hour)
	v.add(3, 1, time.Hour, func(j *Job) { j.Dependency = "afterany:2(unfulfilled)" })
	v.add(4, 1, time.Hour, func(j *Job) { j.Dependency = "afterok:2(unfulfilled)?afterok:1(unfulfilled)" })
	rows := plan(t, v, Config{})
	require.Equal(t, epoch.Add(2*time.Hour), rows[3].Start)
	require.False(t, rows[4].Start.Before(epoch.Add(time.Hour)))
	v.Jobs[1].State = Ended
	rows = plan(t, v, Config{})
	require.Equal(t, epoch.Add(time.Hour), rows[3].Start, "it has ended since")
}

func TestArraysRunSoManyTasksAtOnce(t *testing.T) {
	v := world(1)
	v.add(1, 1, 2*time.Hour, on("n1"), func(j *Job) { j.Array, j.Task, j.TaskLimit = 2, 0, 3 })
	v.add(2, 1, time.Hour, func(j *Job) { j.Array, j.Tasks, j.TaskLimit = 2, 6, 3 })
	rows := plan(t, v, Config{})
	require.Equal(t, epoch, rows[2].Start)
	require.Equal(t, 6, rows[2].Planned)
	require.Equal(t, epoch.Add(2*time.Hour), rows[2].Last, "two at once, then three, then one")
	rows = plan(t, v, Config{ArrayTasks: 2})
	require.Equal(t, 2, rows[2].Planned)
	require.Equal(t, 6, rows[2].Tasks)
}

func TestHeterogeneousJobsStartWhole(t *testing.T) {
	v := world(2)
	v.add(1, 8, 2*time.Hour, on("n1"))
	het := func(offset int) func(*Job) {
		return func(j *Job) { j.Het, j.HetOffset = 2, offset }
	}
	v.add(2, 8, time.Hour, het(0))
	v.add(3, 8, time.Hour, het(1))
	rows := plan(t, v, Config{})
	require.Len(t, rows, 1)
	require.Equal(t, epoch.Add(time.Hour), rows[2].Start)
	require.ElementsMatch(t, []lockstep.NodeID{"n1", "n2"}, rows[2].On)
	require.Equal(t, "2", rows[2].Job)
	require.EqualValues(t, 16, rows[2].Devices)
}

func TestNodesThatAJobMustHaveOrMayNot(t *testing.T) {
	v := world(4)
	v.add(1, 8, time.Hour, across(2), func(j *Job) { j.Require = []string{"n3"} })
	v.add(2, 8, time.Hour, func(j *Job) { j.Require = []string{"n2"} })
	v.add(3, 8, time.Hour, func(j *Job) { j.Exclude = []string{"n1", "n2", "n3"} })
	rows := plan(t, v, Config{Rule: FIFO})
	require.Contains(t, rows[1].On, lockstep.NodeID("n3"))
	require.Len(t, rows[1].On, 2)
	require.Equal(t, []lockstep.NodeID{"n4"}, slices.Concat(rows[3].On, nil))
	v.Nodes[0].Resv = "camp"
	v.add(4, 8, time.Hour, func(j *Job) { j.Resv = "camp" })
	rows = plan(t, v, Config{Rule: FIFO})
	require.Equal(t, []lockstep.NodeID{"n1"}, rows[4].On)
	require.Contains(t, rows[1].On, lockstep.NodeID("n3"))
	require.NotContains(t, rows[1].On, lockstep.NodeID("n1"))
}

// TestWhatSlurmHoldsBackIsLeftToIt: limits that are not in the view.
func TestWhatSlurmHoldsBackIsLeftToIt(t *testing.T) {
	v := world(1)
	v.add(1, 8, time.Hour, func(j *Job) { j.Reason = "QOSMaxGRESPerUser" })
	v.add(2, 8, time.Hour, func(j *Job) { j.Reason = "Licenses" })
	v.add(3, 8, time.Hour, func(j *Job) { j.Reason = "Priority" })
	v.add(4, 1, time.Hour, func(j *Job) { j.Dependency = "afterok:1(unfulfilled)" })
	rows := plan(t, v, Config{Rule: FIFO})
	require.Equal(t, ReasonLimit, rows[1].Reason)
	require.Equal(t, "QOSMaxGRESPerUser", rows[1].Detail)
	require.Zero(t, rows[1].Priority)
	require.Equal(t, ReasonLimit, rows[2].Reason)
	require.Equal(t, epoch, rows[3].Start, "they keep no room from others")
	require.Equal(t, ReasonDependency, rows[4].Reason)
}

func TestNodesOfAReservationWithoutAName(t *testing.T) {
	nodes, _, err := ReadNodes(strings.NewReader(`{"nodes":[{"name":"n1","state":["IDLE","RESERVED"],"cpus":64,"gres":"gpu:8"}]}`))
	require.NoError(t, err)
	require.Equal(t, AnyResv, nodes[0].Resv)
	v := &View{Now: epoch, Nodes: nodes}
	v.add(1, 8, time.Hour, func(j *Job) { j.Partition = "" })
	v.add(2, 8, time.Hour, func(j *Job) { j.Resv = "camp" })
	rows := plan(t, v, Config{})
	require.Zero(t, rows[1].Start)
	require.Equal(t, epoch, rows[2].Start)
}

func TestJobsThatLeaveTheNumberOfNodesToSlurm(t *testing.T) {
	v := world(3)
	v.add(1, 0, time.Hour, func(j *Job) { j.CPUs = 130 })
	rows := plan(t, v, Config{})
	require.Len(t, rows[1].On, 3)
	rows = plan(t, v, Config{IgnoreCPUs: true})
	require.Len(t, rows[1].On, 1)
}

func TestFewerNodesThanSlurmWouldTakeAreTold(t *testing.T) {
	v := world(1)
	v.add(1, 2, time.Hour, across(2))
	rows := plan(t, v, Config{})
	require.Len(t, rows[1].On, 1)
	require.Equal(t, "on fewer nodes than Slurm would take", rows[1].Detail)
	v = world(2)
	v.add(1, 2, time.Hour, across(2))
	rows = plan(t, v, Config{})
	require.Len(t, rows[1].On, 2)
	require.Empty(t, rows[1].Detail)
}

func TestPartsOfAnArrayAreNamedApart(t *testing.T) {
	v := world(1)
	v.add(1, 8, time.Hour, func(j *Job) { j.Array, j.Tasks, j.waits = 1, 3, "0-1,3" })
	r, err := Plan(v, Config{})
	require.NoError(t, err)
	require.Equal(t, "1", r.Changes()[0].Job)
	v.add(9, 8, time.Hour, func(j *Job) { j.Array, j.Task = 1, 2 })
	r, err = Plan(v, Config{})
	require.NoError(t, err)
	require.Equal(t, "1_[0-1,3]", r.Changes()[0].Job)
	require.Equal(t, "1_2", r.Changes()[1].Job)
}

func TestDevicesThatDoNotDivideEvenly(t *testing.T) {
	v := world(2)
	v.add(1, 0, time.Hour, func(j *Job) { j.GPUs, j.MinNodes, j.MaxNodes = 15, 2, 2 })
	v.add(2, 0, time.Hour, func(j *Job) { j.GPUs = 16 }) // on as many nodes as it takes
	rows := plan(t, v, Config{Rule: FIFO})
	require.Len(t, rows[1].On, 2)
	require.Equal(t, epoch, rows[1].Start)
	require.Len(t, rows[2].On, 2)
	require.Equal(t, epoch.Add(time.Hour), rows[2].Start)
}

func TestExclusiveJobsHaveTheirNodesAlone(t *testing.T) {
	v := world(1)
	v.add(1, 1, 2*time.Hour, on("n1"))
	v.add(2, 1, time.Hour, func(j *Job) { j.Exclusive = true })
	v.add(3, 1, 30*time.Minute)
	rows := plan(t, v, Config{Rule: FIFO})
	require.Equal(t, epoch.Add(time.Hour), rows[2].Start)
	require.Equal(t, epoch, rows[3].Start)
}

// TestWhatOthersUseIsLeftAlone: a node tells of more devices in use than the jobs that are shown hold.
func TestWhatOthersUseIsLeftAlone(t *testing.T) {
	v := world(1)
	v.Nodes[0].Used, v.Nodes[0].InUse = 5, 0b11111
	v.add(1, 1, 2*time.Hour, on("n1"))
	v.add(2, 5, time.Hour)
	v.add(3, 3, time.Hour)
	rows := plan(t, v, Config{})
	require.Zero(t, rows[2].Start)
	require.Equal(t, lockstep.ReasonBusy, rows[2].Reason)
	require.Equal(t, epoch, rows[3].Start)
}

// TestAViewThatContradictsItselfIsMended: two jobs on the same devices, one on a node that is not there.
func TestAViewThatContradictsItselfIsMended(t *testing.T) {
	v := world(1)
	v.add(1, 6, 2*time.Hour, on("n1"))
	v.add(2, 6, 2*time.Hour, on("n1"))
	v.add(3, 1, 2*time.Hour, on("gone"))
	v.add(4, 1, 2*time.Hour, on("n1", "gone"))
	v.add(5, 8, time.Hour)
	r, err := Plan(v, Config{})
	require.NoError(t, err)
	require.Len(t, r.Faults, 3)
	require.Equal(t, "job 2.gres_detail", r.Faults[0].Field)
	require.Equal(t, "job 3.nodes", r.Faults[1].Field)
	require.Equal(t, "job 4.gres_detail", r.Faults[2].Field)
	require.Equal(t, epoch.Add(time.Hour), r.Rows[0].Start)
}

func TestJobsPastTheirLimitGoAnyMoment(t *testing.T) {
	v := world(1)
	v.add(1, 8, 10*time.Minute, on("n1"))
	v.add(2, 8, time.Hour)
	rows := plan(t, v, Config{})
	require.Equal(t, epoch.Add(time.Minute), rows[2].Start)
	v.Jobs[0].Limit = 0 // nobody knows when
	rows = plan(t, v, Config{})
	require.Zero(t, rows[2].Start)
	require.Equal(t, lockstep.ReasonBusy, rows[2].Reason)
}

func TestOnlyJobsOfThoseNamedGetPriorities(t *testing.T) {
	v := world(1)
	v.add(1, 8, time.Hour)
	v.add(2, 8, time.Hour, func(j *Job) { j.User = "bob" })
	v.add(3, 8, time.Hour)
	rows := plan(t, v, Config{Users: []string{"bob"}})
	require.Zero(t, rows[1].Priority)
	require.NotZero(t, rows[2].Priority)
	require.Zero(t, rows[3].Priority)
	rows = plan(t, v, Config{Users: []string{}})
	require.Zero(t, rows[2].Priority)
}

// TestPrioritiesSettle: once applied, nothing changes; and a job that comes changes only itself.
func TestPrioritiesSettle(t *testing.T) {
	nodeDoc, jobDoc, _ := documents(10, 60, 5)
	v := read(t, nodeDoc, jobDoc, nil)
	r, err := Plan(v, Config{})
	require.NoError(t, err)
	require.NotEmpty(t, r.Changes())
	apply := func(r *Report) {
		for _, ch := range r.Changes() {
			for i := range v.Jobs {
				if v.Jobs[i].ID == ch.ID {
					v.Jobs[i].Priority = ch.To
				}
			}
		}
	}
	apply(r)
	r, err = Plan(v, Config{})
	require.NoError(t, err)
	require.Empty(t, r.Changes())
	for i := range v.Jobs {
		if v.Jobs[i].State == Pending {
			j := v.Jobs[i]
			j.ID, j.Priority = 100000, 17
			v.Jobs = append(v.Jobs, j)
			break
		}
	}
	r, err = Plan(v, Config{})
	require.NoError(t, err)
	require.NotEmpty(t, r.Changes())
	require.Less(t, len(r.Changes()), 15, "those that keep their order keep their numbers")
	apply(r)
	r, err = Plan(v, Config{})
	require.NoError(t, err)
	require.Empty(t, r.Changes())
}

func TestExplanationsOfThoseAsked(t *testing.T) {
	v := world(1)
	v.add(1, 8, 2*time.Hour, on("n1"))
	v.add(2, 8, time.Hour)
	v.add(3, 8, time.Hour)
	rows := plan(t, v, Config{Explain: []uint32{3}})
	require.Nil(t, rows[2].Explanation)
	require.NotNil(t, rows[3].Explanation)
	require.Equal(t, lockstep.JobID("3"), rows[3].Explanation.Job)
	var b bytes.Buffer
	r, err := Plan(v, Config{Explain: []uint32{3}})
	require.NoError(t, err)
	require.NoError(t, r.WriteJSON(&b))
	require.Contains(t, b.String(), `"explanation"`)
	require.Contains(t, text(t, r), "job 3: ")
}

func TestATopologyThatNamesOtherNodes(t *testing.T) {
	v := world(2)
	conf, err := slurm.Parse(strings.NewReader("SwitchName=a Nodes=n1,n9\n"))
	require.NoError(t, err)
	v.Topology = conf
	v.add(1, 8, time.Hour, across(2))
	r, err := Plan(v, Config{})
	require.NoError(t, err)
	require.Len(t, r.Faults, 1)
	require.Equal(t, "node n2", r.Faults[0].Field)
	require.Equal(t, epoch, r.Rows[0].Start)
}

func TestTenantsWithAnyName(t *testing.T) {
	for in, want := range map[string]lockstep.TenantID{"": "", "a": "a", "a b": "a_b", "-x": "_x", "a\x00": "a_", strings.Repeat("x", 300): lockstep.TenantID(strings.Repeat("x", 253))} { // order cannot matter
		require.Equal(t, want, clean(in))
	}
	v := world(1)
	v.add(1, 8, 2*time.Hour, on("n1"), func(j *Job) { j.Account = "a b" })
	v.add(2, 8, time.Hour, func(j *Job) { j.Account = "(c)" })
	require.Equal(t, epoch.Add(time.Hour), plan(t, v, Config{})[2].Start)
}

func TestConfigIsChecked(t *testing.T) {
	require.NoError(t, Config{}.Validate())
	bad := Config{
		Rule: "x", Tenant: "y", Weights: map[lockstep.TenantID]int64{"a": -1, "a b": 1}, Horizon: -1, History: 1 << 62, Resolution: 1, ArrayTasks: -1, Backfill: -2, Low: 5, High: 4,
	}
	err := bad.Validate()
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, field := range []string{"Rule", "Tenant", "Weights[a]", "Horizon", "History", "Resolution", "ArrayTasks", "Backfill", "High"} {
		require.ErrorContains(t, err, field)
	}
	_, err = Plan(&View{Now: epoch}, bad)
	require.Error(t, err)
	_, err = Plan(nil, Config{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Plan(&View{}, Config{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	v := world(2)
	v.Nodes[1].ID = "n1"
	_, err = Plan(v, Config{})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	r, err := Plan(&View{Now: epoch}, Config{})
	require.NoError(t, err, "an empty cluster")
	require.Empty(t, r.Rows)
}
