package drf

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func build(t testing.TB, cfg Config) *Queue {
	q, err := New(cfg)
	require.NoError(t, err)
	return q
}

// task gives a gang of one member that takes so many devices and cores.
func task(tenant lockstep.TenantID, n int, gpus int, cores int64) *lockstep.Gang {
	return &lockstep.Gang{
		ID: lockstep.JobID(fmt.Sprint(tenant, ".", n)), Tenant: tenant,
		Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: gpus, CPU: lockstep.MilliCPU(1000 * cores)}}},
	}
}

// run lets jobs start, in the order of the queue, while they fit into what there
// is, and returns the tenants in that order and how many jobs of each run.
func run(t testing.TB, q *Queue, capacity lockstep.Resources, gangs map[lockstep.JobID]*lockstep.Gang) (order []string, counts map[string]int) {
	left, err := q.schema.Vector(capacity)
	require.NoError(t, err)
	left = left.Sub(q.held)
	counts = map[string]int{}
	q.Begin(time.Time{})
	for id, ok := q.Next(); ok; id, ok = q.Next() {
		need := q.jobs[id].demand.raw
		if _, fits := need.Fits(left); !fits {
			q.Outcome(id, lockstep.Blocked)
			continue
		}
		q.Outcome(id, lockstep.Granted)
		require.NoError(t, q.Start(id, nil))
		left = left.Sub(need)
		tenant := string(gangs[id].Tenant)
		order = append(order, tenant)
		counts[tenant]++
	}
	return order, counts
}

// fill submits n like tasks of each tenant and lets them run.
func fill(t testing.TB, cfg Config, n int, tasks ...*lockstep.Gang) (order []string, counts map[string]int, q *Queue) {
	q = build(t, cfg)
	gangs := map[lockstep.JobID]*lockstep.Gang{}
	for _, like := range tasks {
		for i := range n {
			g := like.Clone()
			g.ID = lockstep.JobID(fmt.Sprint(g.Tenant, ".", i))
			gangs[g.ID] = g
			require.NoError(t, q.Submit(g, nil, nil))
		}
	}
	order, counts = run(t, q, cfg.Capacity, gangs)
	return order, counts, q
}

func equals(ids ...lockstep.TenantID) (out []Tenant) {
	for _, id := range ids {
		out = append(out, Tenant{ID: id, Weight: 1})
	}
	return out
}

func cluster(gpus, cores int64) lockstep.Resources {
	return lockstep.Resources{lockstep.ResourceGPU: 1000 * gpus, lockstep.ResourceCPU: 1000 * cores}
}

// The example of Ghodsi et al., section 4, with devices for the 9 processors and cores for the 18 GB. The first tie goes
// to A by its ID; the paper's goes to B.
func TestQueueOfThePaper(t *testing.T) {
	order, counts, q := fill(t, Config{Capacity: cluster(9, 18), Tenants: equals("A", "B")}, 10, task("A", 0, 1, 4), task("B", 0, 3, 1))
	require.Equal(t, map[string]int{"A": 3, "B": 2}, counts)
	require.Equal(t, "ABABA", strings.Join(order, ""))
	for _, id := range []lockstep.TenantID{"A", "B"} {
		s, _ := q.Statement(id)
		require.Equal(t, "2/3", s.Share.String())
	}
}

// The corrected example, see TestFluidOfTheCorrectedExample: with jobs that do not fit
// left out the last cores go to B, else they stay idle.
func TestQueueOfTheCorrectedExample(t *testing.T) {
	tasks := []*lockstep.Gang{task("A", 0, 4, 32), task("B", 0, 1, 16), task("C", 0, 0, 64)}
	for on, want := range map[OnBlocked]map[string]int{ // order does not matter: each is on its own
		BlockAll:    {"A": 9, "B": 21, "C": 5},
		BlockTenant: {"A": 9, "B": 24, "C": 5},
		BlockJob:    {"A": 9, "B": 24, "C": 5},
	} {
		order, counts, q := fill(t, Config{Capacity: cluster(100, 1000), Tenants: equals("A", "B", "C"), OnBlocked: on}, 70, tasks...)
		require.Equal(t, want, counts)
		require.Equal(t, "ABCBBABBCA", strings.Join(order[:10], ""))
		b, _ := q.Statement("B")
		require.Equal(t, lockstep.ResourceCPU, b.Dominant)
		if on == BlockAll {
			require.EqualValues(t, 944_000, q.held[0]) // cores
			continue
		}
		require.Equal(t, lockstep.Resources{"cpu": 992_000, "gpu": 60_000}, q.schema.Resources(q.held))
		a, _ := q.Statement("A")
		c, _ := q.Statement("C")
		require.Equal(t, []string{"9/25", "48/125", "8/25"}, []string{a.Share.String(), b.Share.String(), c.Share.String()}) // 0.36, 0.384, 0.32
	}
}

// TestCorrectedExampleHasOneReading looks for other needs that would give the same
// figures: of all that A and C can take in steps of 8 cores, with B's 1 device and 16 cores, only
// A <4, 32> and C <0, 64> give a fluid share of 5/14, 9, 21 and 5 tasks when the first that does not
// fit ends it, and 9, 24 and 5 when it does not.
func TestCorrectedExampleHasOneReading(t *testing.T) {
	var found []string
	for gpus := int64(0); gpus <= 8; gpus++ {
		for a := int64(8); a <= 96; a += 8 {
			for c := int64(8); c <= 96; c += 8 {
				users := corrected()
				users[0].Demand = lockstep.Vector{gpus, a}
				users[2].Demand = lockstep.Vector{0, c}
				if Fluid(lockstep.Vector{100, 1000}, users)[0].Share.RatString() != "5/14" {
					continue
				}
				match := true
				for on, b := range map[OnBlocked]int{BlockAll: 21, BlockTenant: 24} { // order does not matter: both must do
					_, counts, _ := fill(t, Config{Capacity: cluster(100, 1000), Tenants: equals("A", "B", "C"), OnBlocked: on}, 70,
						task("A", 0, int(gpus), a), task("B", 0, 1, 16), task("C", 0, 0, c))
					match = match && fmt.Sprint(counts) == fmt.Sprintf("map[A:9 B:%d C:5]", b)
				}
				if match {
					found = append(found, fmt.Sprintf("A<%d,%d> C<0,%d>", gpus, a, c))
				}
			}
		}
	}
	require.Equal(t, []string{"A<4,32> C<0,64>"}, found)
}

func tree(pairs ...lockstep.TenantID) (out []Tenant) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, Tenant{ID: pairs[i], Parent: pairs[i+1], Weight: 1})
	}
	return out
}

// Complementary needs below one tenant (Bhattacharya et al., SoCC 2013; Volcano #933): without
// scaling, dev and prod would be served by turns while science gets ahead or starves.
func TestTreeScalesToTheLeast(t *testing.T) {
	cfg := Config{Capacity: cluster(10, 10), Tenants: tree("sci", "", "eng", "", "dev", "eng", "prod", "eng"), OnBlocked: BlockTenant}
	_, counts, _ := fill(t, cfg, 10, task("sci", 0, 1, 1), task("dev", 0, 1, 0), task("prod", 0, 0, 1))
	require.Equal(t, map[string]int{"sci": 5, "dev": 5, "prod": 5}, counts)
}

// When devices are used up, those who need them no longer hold back who shares a parent with them.
func TestTreeLeavesOutWhoIsBlocked(t *testing.T) {
	cfg := Config{Capacity: cluster(30, 30), Tenants: tree("p1", "", "p2", "", "p3", "", "p31", "p3", "p32", "p3", "p4", ""), OnBlocked: BlockTenant}
	_, counts, _ := fill(t, cfg, 30, task("p1", 0, 1, 0), task("p2", 0, 1, 0), task("p31", 0, 1, 0), task("p32", 0, 0, 1), task("p4", 0, 0, 1))
	require.Equal(t, map[string]int{"p1": 10, "p2": 10, "p31": 10, "p32": 15, "p4": 15}, counts)
}

func TestTreeGoesByWeight(t *testing.T) {
	cfg := Config{Capacity: cluster(24, 0), OnBlocked: BlockTenant, Tenants: []Tenant{
		{ID: "o", Weight: 2}, {ID: "p", Weight: 1}, {ID: "o1", Parent: "o", Weight: 3}, {ID: "o2", Parent: "o", Weight: 1}, {ID: "z", Weight: 0},
	}}
	_, counts, _ := fill(t, cfg, 30, task("o1", 0, 1, 0), task("o2", 0, 1, 0), task("p", 0, 1, 0), task("z", 0, 1, 0))
	require.Equal(t, map[string]int{"o1": 12, "o2": 4, "p": 8}, counts)
}

func TestWeightZeroComesLast(t *testing.T) {
	cfg := Config{Capacity: cluster(10, 0), Tenants: []Tenant{{ID: "a", Weight: 0}, {ID: "b", Weight: 5}, {ID: "c", Weight: 0}}}
	order, _, _ := fill(t, cfg, 6, task("a", 0, 1, 0), task("b", 0, 1, 0), task("c", 0, 1, 0))
	require.Equal(t, "bbbbbbacac", strings.Join(order, ""))
}

func TestJobsOfATenant(t *testing.T) {
	q := build(t, Config{Capacity: cluster(10, 10), Tenants: equals("a")})
	for i, p := range []lockstep.Priority{0, 2, 0, 2} {
		g := task("a", i, 1, 1)
		g.Priority = p
		require.NoError(t, q.Submit(g, nil, nil))
	}
	require.Equal(t, "a.1 a.3 a.0 a.2", pass(q, lockstep.Blocked))
	require.NoError(t, q.Start("a.1", nil))
	require.Equal(t, "a.3 a.0 a.2", pass(q, lockstep.Blocked))
	require.NoError(t, q.Stop("a.1"))
	require.Equal(t, "a.1 a.3 a.0 a.2", pass(q, lockstep.Granted), "in its old place")
	require.Equal(t, "a.1 a.3 a.0 a.2", pass(q, lockstep.Dropped), "what was granted but did not start is proposed again")
}

// pass runs a pass in which everything has one outcome.
func pass(q *Queue, outcome lockstep.Outcome) string {
	var ids []string
	q.Begin(time.Time{})
	for id, ok := q.Next(); ok; id, ok = q.Next() {
		ids = append(ids, string(id))
		q.Outcome(id, outcome)
	}
	return strings.Join(ids, " ")
}

func TestDueJobsCompete(t *testing.T) {
	q := build(t, Config{Capacity: cluster(10, 0), Tenants: equals("a", "b")})
	for i := range 3 {
		require.NoError(t, q.Submit(task("a", i, 2, 0), nil, nil))
		require.NoError(t, q.Submit(task("b", i, 2, 0), nil, nil))
	}
	require.NoError(t, q.Start("a.0", nil))
	require.NoError(t, q.Start("a.1", nil))
	require.NoError(t, q.Start("b.0", nil))
	require.ErrorIs(t, q.Due("b.1"), lockstep.ErrConflict)
	require.ErrorIs(t, q.Due("x"), lockstep.ErrUnknown)
	require.NoError(t, q.Due("a.1"))
	require.NoError(t, q.Due("a.1"))
	share := func(id lockstep.TenantID) string { s, _ := q.Statement(id); return s.Share.String() }
	require.Equal(t, "2/5", share("a"))
	// Without a.1, a has what b has, and comes first by its ID.
	require.Equal(t, "a.1 b.1 a.2 b.2", pass(q, lockstep.Granted))
	require.Equal(t, "2/5", share("a"))
	require.Equal(t, "b.1 b.2 a.2", pass(q, lockstep.Blocked), "it was kept, and is not due any more")
	require.NoError(t, q.Due("a.1"))
	require.Equal(t, "a.1 a.2 b.1 b.2", pass(q, lockstep.Blocked))
	require.Equal(t, "2/5", share("a"), "it runs on until it is stopped")
	require.NoError(t, q.Stop("a.1"))
	require.Equal(t, "1/5", share("a"))
	require.NoError(t, q.Start("a.1", nil))
	require.NoError(t, q.Due("a.1"))
	q.Begin(time.Time{})
	require.NoError(t, q.Finish("a.1"))
	require.Equal(t, "1/5", share("a"))
	require.Equal(t, "a.2 b.1 b.2", pass(q, lockstep.Blocked))
}

// TestEventsInAPass: what starts, ends and comes while a pass goes on is taken into account.
func TestEventsInAPass(t *testing.T) {
	q := build(t, Config{Capacity: cluster(10, 0), Tenants: equals("a", "b")})
	for i := range 4 {
		require.NoError(t, q.Submit(task("a", i, 1, 0), nil, nil))
		require.NoError(t, q.Submit(task("b", i, 1, 0), nil, nil))
	}
	next := func() lockstep.JobID { id, _ := q.Next(); return id }
	require.Empty(t, next(), "there is no pass")
	q.Begin(time.Time{})
	require.Equal(t, lockstep.JobID("a.0"), next())
	require.NoError(t, q.Start("a.0", cluster(5, 0))) // before its outcome, and more than it asked for
	q.Outcome("a.0", lockstep.Granted)
	require.Equal(t, lockstep.JobID("b.0"), next())
	q.Outcome("a.0", lockstep.Granted) // of another: it does not count
	q.Outcome("b.0", lockstep.Granted)
	require.NoError(t, q.Finish("b.0"))
	require.Equal(t, lockstep.JobID("b.1"), next())
	require.Equal(t, lockstep.JobID("b.2"), next(), "without an outcome it counts as blocked")
	require.NoError(t, q.Finish("b.2")) // while it is proposed
	q.Outcome("b.2", lockstep.Granted)
	require.NoError(t, q.Submit(task("b", 4, 1, 0), nil, nil))
	require.NoError(t, q.Finish("a.0"))
	require.Equal(t, lockstep.JobID("a.1"), next())
	q.Outcome("a.1", lockstep.Granted)
	require.Equal(t, lockstep.JobID("b.3"), next())
	q.Outcome("b.3", lockstep.Blocked)
	require.Equal(t, lockstep.JobID("b.4"), next())
	require.NoError(t, q.SetTenant(Tenant{ID: "b", Weight: 3}))
	require.Empty(t, next(), "a change of tenants ends the pass")
	require.Equal(t, "a.1 a.2 a.3 b.1 b.3 b.4", pass(q, lockstep.Blocked))
}

func TestPricesOfClasses(t *testing.T) {
	capacity := lockstep.Resources{"gpu": 20_000, "gpu/fast": 10_000, "gpu/slow": 10_000}
	prices := Prices{Classes: map[lockstep.DeviceClass]int64{"fast": 3000}, Min: 500, Max: 4000}
	q := build(t, Config{Capacity: capacity, Tenants: equals("a", "b"), Prices: prices})
	require.EqualValues(t, 10_000*3000+10_000*1000, q.capacity[q.gpu])
	of := func(tenant lockstep.TenantID, n int, class lockstep.DeviceClass) *lockstep.Gang {
		g := task(tenant, n, 4, 0)
		g.Roles[0].Demand.Classes = []lockstep.DeviceClass{class}
		return g
	}
	share := func(id lockstep.TenantID) string { s, _ := q.Statement(id); return s.Share.String() }
	require.NoError(t, q.Submit(of("a", 0, "fast"), nil, nil))
	require.NoError(t, q.Submit(of("b", 0, "slow"), nil, nil))
	require.NoError(t, q.Start("a.0", nil))
	require.NoError(t, q.Start("b.0", nil))
	// By price 12 of 40 and 4 of 40, but by the class alone 4 of 10 each.
	require.Equal(t, []string{"2/5", "2/5"}, []string{share("a"), share("b")})

	q = build(t, Config{Capacity: lockstep.Resources{"gpu": 20_000}, Tenants: equals("a", "b", "c", "d"), Prices: prices})
	for tenant, ups := range map[lockstep.TenantID]map[lockstep.DeviceClass]int64{ // order does not matter: each is on its own
		"a": nil, "b": {"fast": 2000}, "c": {"fast": 1_000_000_000}, "d": {"fast": -5, "other": 7},
	} {
		require.NoError(t, q.Submit(of(tenant, 0, "fast"), nil, ups))
		require.NoError(t, q.Start(lockstep.JobID(tenant)+".0", nil))
	}
	// Of 20,000 devices, whose class is not known: 12, 8, 16 and 2.
	require.Equal(t, []string{"3/5", "2/5", "4/5", "1/10"}, []string{share("a"), share("b"), share("c"), share("d")})
	require.NoError(t, q.Stop("a.0"))
	require.NoError(t, q.Start("a.0", lockstep.Resources{"gpu": 4000, "gpu/fast": 1000, "gpu/slow": 2000, "memory": 7}))
	require.Equal(t, "3/10", share("a"), "what it got, not what it asked for: 3 + 2 + 1")
	require.NoError(t, q.Stop("a.0"))
	require.NoError(t, q.Start("a.0", lockstep.Resources{"gpu": 1000, "gpu/fast": 3000}))
	require.Equal(t, "3/20", share("a"), "no more devices than it has")

	require.EqualValues(t, 1000, Prices{}.Rate("x", nil))
	require.EqualValues(t, 1, Prices{}.Rate("x", map[lockstep.DeviceClass]int64{"x": math.MinInt64}))
	require.EqualValues(t, MaxPrice, Prices{}.Rate("x", map[lockstep.DeviceClass]int64{"x": math.MaxInt64}))
}

// TestOrderIsIndependentOfEvents: the order of submits of different tenants and of tenants does not matter.
func TestOrderIsIndependentOfEvents(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range rounds(200) {
		tenants := []Tenant{{"a", "", 1}, {"b", "", 2}, {"c", "b", 1}, {"d", "b", 3}, {"e", "", 0}}
		var gangs []*lockstep.Gang
		for i := range 12 {
			g := task([]lockstep.TenantID{"a", "c", "d", "e"}[r.IntN(4)], i, r.IntN(3), r.Int64N(5))
			g.Priority = lockstep.Priority(i) // so that the order of one tenant's is given
			gangs = append(gangs, g)
		}
		var want string
		for k := range 4 {
			r.Shuffle(len(tenants), func(i, k int) { tenants[i], tenants[k] = tenants[k], tenants[i] })
			r.Shuffle(len(gangs), func(i, k int) { gangs[i], gangs[k] = gangs[k], gangs[i] })
			q := build(t, Config{Capacity: cluster(10, 30), Tenants: tenants})
			for _, g := range gangs {
				require.NoError(t, q.Submit(g, nil, nil))
			}
			got := pass(q, lockstep.Granted)
			if k == 0 {
				want = got
			}
			require.Equal(t, want, got)
		}
	}
}

// TestOneTaskAtATimeIsNearFluid: with small tasks and all proposals granted while they fit, nobody is further
// from the fluid share than a task, until the first that does not fit.
func TestOneTaskAtATimeIsNearFluid(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 2))
	for range rounds(200) {
		n := 2 + r.IntN(3)
		ids := []lockstep.TenantID{"a", "b", "c", "d"}[:n]
		var tasks []*lockstep.Gang
		var worst Ratio // the largest dominant share of a task
		capacity := cluster(60, 60)
		for _, id := range ids {
			g := task(id, 0, 1+r.IntN(3), 1+r.Int64N(3))
			tasks = append(tasks, g)
			if s := RatioOf(max(int64(g.Roles[0].Demand.GPUs), int64(g.Roles[0].Demand.CPU)/1000), 60); s.Cmp(worst) > 0 {
				worst = s
			}
		}
		_, _, q := fill(t, Config{Capacity: capacity, Tenants: equals(ids...), OnBlocked: BlockAll}, 60, tasks...)
		for _, id := range ids {
			for _, other := range ids {
				s, _ := q.Statement(id)
				o, _ := q.Statement(other)
				require.LessOrEqual(t, s.Share.Float64()-o.Share.Float64(), worst.Float64()+1e-9)
			}
		}
	}
}
