package quota

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// ask returns the verdict on a gang of so many GPUs in a queue.
func ask(q *Quota, queue lockstep.QueueID, gpus int) lockstep.Verdict {
	return q.Check(in(queue, "new", gpus), nil)
}

// most returns how many GPUs a queue may add.
func most(t *testing.T, q *Quota, queue lockstep.QueueID) int64 {
	s, ok := q.Statement(queue)
	require.True(t, ok)
	n := s.Available[lockstep.ResourceGPU]
	require.True(t, n == 0 || ask(q, queue, int(n/1000)).Feasible)
	require.False(t, ask(q, queue, int(n/1000)+1).Feasible)
	return n / 1000
}

func charge(t *testing.T, q *Quota, queue lockstep.QueueID, n int) {
	if n > 0 {
		require.NoError(t, q.Charge(in(queue, lockstep.JobID(fmt.Sprint(queue, "-", q.seq)), n), nil))
	}
}

// Two cluster queues of a cohort have 9 and 12; the second may lend no more than 9 and
// the first borrow no more than 10.
func TestLimitsAsKueueHasThem(t *testing.T) {
	for _, c := range []struct{ a, b, moreA, moreB int64 }{
		{0, 0, 18, 21}, // a: 9 of its own, 9 of b's; b: all
		{9, 0, 9, 12},
		{18, 0, 0, 12}, // b has a right to its 12, 9 of which are out
		{0, 12, 9, 9},
		{0, 15, 9, 6}, // a has a right to its 9
		{3, 15, 6, 3},
		{9, 5, 7, 7}, // b keeps 3, and uses them
		{9, 2, 9, 10},
	} {
		q := build(t, Config{Capacity: gpus(21), Queues: []Queue{
			{Name: "cohort", Weight: 1, Nominal: gpus(21)},
			{Name: "a", Parent: "cohort", Weight: 1, Nominal: gpus(9), BorrowLimit: gpus(10)},
			{Name: "b", Parent: "cohort", Weight: 1, Nominal: gpus(12), LendLimit: gpus(9)},
		}})
		charge(t, q, "a", int(c.a))
		charge(t, q, "b", int(c.b))
		require.Equal(t, c.moreA, most(t, q, "a"), "%+v", c)
		require.Equal(t, c.moreB, most(t, q, "b"), "%+v", c)
	}
	q := build(t, Config{Capacity: gpus(30), Queues: []Queue{{Name: "a", Nominal: gpus(9), BorrowLimit: gpus(10)}}})
	require.EqualValues(t, 19, most(t, q, "a"))
}

// Cohorts in cohorts: what a kept subtree does not lend counts as used all the way up.
func TestKeptRoomIsUsableInsideOnly(t *testing.T) {
	q := build(t, Config{Capacity: gpus(32), Queues: []Queue{
		{Name: "org", Weight: 1, Nominal: gpus(16), LendLimit: gpus(4)},
		{Name: "team", Parent: "org", Weight: 1, Nominal: gpus(8), Guarantee: gpus(2)},
		{Name: "lab", Parent: "org", Weight: 1, Nominal: gpus(8)},
		{Name: "guest", Weight: 0, Nominal: gpus(0)},
	}})
	require.EqualValues(t, 20, most(t, q, "guest")) // 16 that nobody has, 4 that org lends
	require.EqualValues(t, 30, most(t, q, "lab"))   // all but what team keeps
	charge(t, q, "guest", 20)
	require.EqualValues(t, 10, most(t, q, "lab")) // what org keeps, less what team keeps
	charge(t, q, "lab", 10)
	require.EqualValues(t, 8, most(t, q, "team")) // 2 kept, 6 more by right
	require.Zero(t, most(t, q, "guest"))
	s, _ := q.Statement("org")
	require.Equal(t, gpus(12), s.Kept)
	require.Empty(t, s.Borrowed)
	s, _ = q.Statement("guest")
	require.Equal(t, gpus(20), s.Borrowed)
}

// A right within a parent is none to what others keep: while that is idle, a placer
// would find room there, so that it takes CheckAfter, with who gives way, to be let in.
func TestIdleGuaranteesAreNotTakenByRight(t *testing.T) {
	q := build(t, Config{Capacity: gpus(20), Queues: []Queue{
		{Name: "p", Weight: 1},
		{Name: "q", Parent: "p", Weight: 1},
		{Name: "s", Parent: "p", Weight: 1},
		{Name: "u", Weight: 1, Guarantee: gpus(10)},
	}})
	require.NoError(t, q.Charge(in("s", "s1", 5), nil))
	require.NoError(t, q.Charge(in("s", "s2", 5), nil))
	g := in("q", "new", 5)
	require.False(t, q.Check(g, nil).Feasible)
	var out lockstep.Candidates
	q.Reclaim(g, nil, &out)
	require.Len(t, out.Jobs, 2)
	require.Equal(t, []lockstep.Resources{gpus(5)}, out.Limits)
	require.True(t, q.CheckAfter(g, nil, []lockstep.Eviction{{Job: "s2"}}).Feasible)
	require.NoError(t, q.Charge(in("u", "u1", 10), nil))
	require.True(t, q.Check(g, nil).Feasible, "the placer finds no room now, and Reclaim says whose to take")
}

// guarantee <= deserved <= capability: what is guaranteed is nobody else's even while
// idle, what is deserved is lent and taken back, capability is the end.
func TestLimitsAsVolcanoHasThem(t *testing.T) {
	p := newPool(t, Config{Capacity: gpus(20), Queues: []Queue{
		{Name: "a", Weight: 1, Guarantee: gpus(4), Nominal: gpus(10), Max: gpus(12)},
		{Name: "b", Weight: 1, Nominal: gpus(10), Max: gpus(18)},
	}})
	require.EqualValues(t, 12, most(t, p.q, "a"))
	require.EqualValues(t, 16, most(t, p.q, "b")) // 18, but for the guarantee
	p.begin(several("b", 8, 2)...)
	require.EqualValues(t, 10, most(t, p.q, "a"))
	p.submit(several("a", 6, 2)...)
	require.Equal(t, 3, p.settle(rand.New(rand.NewPCG(1, 1))))
	require.EqualValues(t, 10, p.used("a"))
	require.EqualValues(t, 10, p.used("b"))
}

// quota, over-quota weight, limit: what is over goes by weight, all of a higher priority first.
func TestSharesAsKAIHasThem(t *testing.T) {
	tree := func(limit lockstep.Resources, tier int32) *Quota {
		return build(t, Config{Capacity: gpus(40), Queues: []Queue{
			{Name: "a", Weight: 3, Nominal: gpus(4), Max: limit},
			{Name: "b", Weight: 1, Nominal: gpus(8), Tier: tier},
			{Name: "c", Weight: 0, Nominal: gpus(4)},
		}})
	}
	deserved := func(q *Quota, demands ...int) (out []int64) {
		for i, name := range []lockstep.QueueID{"a", "b", "c"} {
			require.NoError(t, q.Demand(in(name, lockstep.JobID(fmt.Sprint(name, demands[i])), demands[i]), nil))
		}
		for _, name := range []lockstep.QueueID{"a", "b", "c"} {
			s, _ := q.Statement(name)
			out = append(out, s.Deserved[lockstep.ResourceGPU])
		}
		return out
	}
	require.Equal(t, []int64{22000, 14000, 4000}, deserved(tree(nil, 0), 100, 100, 100)) // 16 of quota, 24 as 3 to 1
	require.Equal(t, []int64{10000, 26000, 4000}, deserved(tree(gpus(10), 0), 100, 100, 100))
	require.Equal(t, []int64{4000, 32000, 4000}, deserved(tree(nil, 1), 100, 100, 100))
	require.Equal(t, []int64{10000, 20000, 10000}, deserved(tree(nil, 1), 10, 20, 100))
	require.Equal(t, []int64{0, 1000, 39000}, deserved(tree(nil, 0), 0, 1, 100))
}

// Quotas that are more than there is, as after nodes were lost, are cut alike, guarantees
// last.
func TestOversubscribedQuotasAreCutAlike(t *testing.T) {
	q := build(t, Config{Capacity: gpus(100), Queues: []Queue{
		{Name: "a", Nominal: gpus(60)}, {Name: "b", Nominal: gpus(40)}, {Name: "c", Nominal: gpus(20), Guarantee: gpus(20)}, {Name: "d", Weight: 1},
	}})
	nominal := func() (out []int64) {
		for _, name := range []lockstep.QueueID{"a", "b", "c", "d"} {
			s, _ := q.Statement(name)
			out = append(out, s.Nominal[lockstep.ResourceGPU])
		}
		return out
	}
	require.Equal(t, []int64{48_000, 32_000, 20_000, 0}, nominal())
	require.NoError(t, q.SetCapacity(gpus(50)))
	require.Equal(t, []int64{18_000, 12_000, 20_000, 0}, nominal())
	require.NoError(t, q.SetCapacity(gpus(10)))
	require.Equal(t, []int64{0, 0, 10_000, 0}, nominal())
	require.NoError(t, q.SetCapacity(nil))
	require.Equal(t, []int64{0, 0, 0, 0}, nominal())
	require.NoError(t, q.SetCapacity(gpus(130)))
	require.Equal(t, []int64{60_000, 40_000, 20_000, 10_000}, nominal())
}

func TestWeightZeroKeepsItsGuaranteeAndBorrowsLast(t *testing.T) {
	p := newPool(t, Config{Capacity: gpus(10), Queues: []Queue{
		{Name: "a", Weight: 1}, {Name: "zero", Weight: 0, Guarantee: gpus(3)},
	}})
	s, _ := p.q.Statement("zero")
	require.Equal(t, gpus(3), s.Nominal)
	p.begin(several("zero", 10, 1)...)
	p.submit(several("a", 10, 1)...)
	require.Equal(t, 7, p.settle(rand.New(rand.NewPCG(1, 1))))
	require.EqualValues(t, 3, p.used("zero"))
}

func TestGangsGoToTheirQueue(t *testing.T) {
	cfg := Config{
		Capacity: gpus(10), Tenants: []Tenant{{"", 1}, {"t", 1}},
		Queues: []Queue{{Name: "q", Weight: 1}, {Name: "inner", Weight: 1}, {Name: "leaf", Parent: "inner", Weight: 1}},
	}
	for _, c := range []struct {
		queue    lockstep.QueueID
		tenant   lockstep.TenantID
		byTenant bool
		want     lockstep.QueueID // "none" for none
	}{
		{"q", "t", false, "q"},
		{"", "t", false, "t"},
		{"", "", false, ""},
		{"q", "t", true, "t"},
		{"q", "", true, ""},
		{"leaf", "t", false, "leaf"},
		{"inner", "t", false, "none"},
		{"stranger", "t", false, "none"},
		{"Q", "t", false, "none"},
		{"", "stranger", false, "none"},
		{"", "leaf", false, "leaf"},
	} {
		cfg.ByTenant = c.byTenant
		q := build(t, cfg)
		g := in(c.queue, "j", 1)
		g.Tenant = c.tenant
		if c.want == "none" {
			require.Equal(t, lockstep.Verdict{Reason: lockstep.ReasonQuota, Want: 1}, q.Check(g, nil), "%+v", c)
			require.ErrorIs(t, q.Charge(g, nil), lockstep.ErrUnknown)
			require.ErrorIs(t, q.Demand(g, nil), lockstep.ErrUnknown)
			continue
		}
		require.True(t, q.Check(g, nil).Feasible)
		require.NoError(t, q.Charge(g, nil))
		s, _ := q.Statement(c.want)
		require.Equal(t, 1, s.Jobs, "%+v", c)
	}
}

func TestNeedIsWhatDemandsSay(t *testing.T) {
	capacity := lockstep.Resources{"gpu": 1, "gpu/h100": 1, "gpu/a100": 1, "cpu": 1, "memory": 1, "rdma": 1, "slots": 1}
	q := build(t, Config{Capacity: capacity, Tenants: []Tenant{{"", 1}}})
	for _, d := range []lockstep.Demand{
		{},
		{GPUs: 8, Classes: []lockstep.DeviceClass{"h100"}, CPU: 7, Memory: 5, RDMA: 3},
		{GPUs: 2, Share: 300, GPUMemory: 7},
		{GPUs: 1, Profile: "3g.40gb", Classes: []lockstep.DeviceClass{"a100"}},
		{GPUs: 1, Classes: []lockstep.DeviceClass{"a100", "h100"}},
		{GPUs: 1, Classes: []lockstep.DeviceClass{"t4"}},
	} {
		want := d.Resources()
		delete(want, "gpu/t4") // not limited
		var v lockstep.Vector
		q.need(&v, &d, 1)
		require.Equal(t, want, q.schema.Resources(v))
	}
	g := &lockstep.Gang{ID: "j", Roles: []lockstep.Role{{Name: "a", Min: 2, Spares: 1, Demand: lockstep.Demand{CPU: 10}}, {Name: "b", Min: 1, Spares: 5}}}
	v, members := q.total(g, []int{3, 0})
	require.Equal(t, lockstep.Resources{"cpu": 40, "slots": 4}, q.schema.Resources(v), "spares take room where there are members")
	require.Equal(t, 3, members)
	require.NoError(t, q.Charge(g, []int{3, 0}))
	u, _ := q.Usage("")
	require.Equal(t, q.schema.Resources(v), u.Used)
	require.NoError(t, q.Refund("j"))
	u, _ = q.Usage("")
	require.Empty(t, u.Used)
}

func TestClassesAreResources(t *testing.T) {
	q := build(t, Config{Capacity: lockstep.Resources{"gpu": 16_000, "gpu/h100": 8000, "gpu/a100": 8000}, Queues: []Queue{
		{Name: "a", Weight: 1, Nominal: lockstep.Resources{"gpu/h100": 8000}},
		{Name: "b", Weight: 1, Nominal: lockstep.Resources{"gpu/h100": 0}, Max: lockstep.Resources{"gpu/h100": 2000}},
	}})
	g := in("b", "j", 3)
	g.Roles[0].Demand.Classes = []lockstep.DeviceClass{"h100"}
	require.Equal(t, lockstep.Verdict{
		Reason: lockstep.ReasonQuota, Fit: 2, Want: 3, Resource: "gpu/h100", Requested: 3000, Available: 2000, Level: LevelQueue, Domain: "b",
	}, q.Check(g, nil))
	g.Roles[0].Demand.Classes = []lockstep.DeviceClass{"a100"}
	require.True(t, q.Check(g, nil).Feasible)
}

func TestVerdictNamesTheFirstLimit(t *testing.T) {
	q := build(t, Config{Capacity: gpus(32), Queues: []Queue{
		{Name: "org", Weight: 1, Nominal: gpus(16), BorrowLimit: gpus(4)},
		{Name: "capped", Parent: "org", Weight: 1, Max: gpus(6)},
		{Name: "free", Parent: "org", Weight: 1},
		{Name: "other", Weight: 1},
	}})
	for _, c := range []struct {
		queue     lockstep.QueueID
		gpus      int
		domain    string
		available int64
		why       lockstep.Reason
	}{
		{"capped", 7, "capped", 6, ReasonMax},
		{"free", 21, "org", 20, ReasonBorrowLimit},
		{"other", 33, "", 32, ReasonPool},
	} {
		v := ask(q, c.queue, c.gpus)
		require.Equal(t, lockstep.Verdict{
			Reason: lockstep.ReasonQuota, Fit: int(c.available), Want: c.gpus, Resource: "gpu", Requested: int64(1000 * c.gpus), Available: 1000 * c.available,
			Level: v.Level, Domain: c.domain,
		}, v)
		require.Equal(t, c.domain != "", v.Level == LevelQueue)
		e := q.Explain(in(c.queue, "new", c.gpus), nil)
		require.Equal(t, v, e.Verdict)
		found := slices.IndexFunc(e.Notes, func(n lockstep.Note) bool { return n.Reason == c.why })
		require.GreaterOrEqual(t, found, 0, "%v", e)
	}
	charge(t, q, "other", 20)
	charge(t, q, "free", 12)
	e := q.Explain(in("free", "new", 5), nil)
	require.Equal(t, `new: does not fit: quota, 0 of 5 members, gpu asked 5 free 0
  would fit: add 5 gpu
  quota: quota (queue free: gpu used 12, nominal 10, share 12, at most any)
  quota: quota (queue org: gpu used 12, nominal 16, share 12, at most 20)
  quota: pool (gpu=32 of gpu=32 used)`, e.String())
	g := in("free", "new", 2)
	g.Roles[0].Max = 6
	require.NoError(t, q.Demand(g, []int{6}))
	require.Equal(t, `new: does not fit: quota, 4 of 5 members in queue free, gpu asked 5 free 4
  would fit: add 1 gpu to queue free
  would fit: ask for 4 members
  quota: deserved (queue free: gpu used 12, nominal 10, share 16, at most any)
  quota: quota (queue org: gpu used 12, nominal 16, share 16, at most 20)`, q.Explain(g, []int{5}).String())
	require.Contains(t, q.Explain(in("nowhere", "new", 1), nil).String(), "no-queue (queue = \"nowhere\": names no queue")
	require.Empty(t, q.Explain(in("free", "new", 1), []int{1, 2}).Notes)
	require.True(t, q.Explain(in("free", "new", 1), nil).Verdict.Feasible)
}

func TestCheckAfterSeesWhatIsGivenBack(t *testing.T) {
	q := build(t, Config{Capacity: gpus(64), DisableBorrowing: true, Queues: []Queue{{Name: "a", Nominal: gpus(8)}, {Name: "b", Nominal: gpus(8)}}})
	low := in("a", "low", 4)
	low.Roles[0].Max, low.Capabilities.Resizable = 8, true
	require.NoError(t, q.Charge(low, []int{6}))
	require.NoError(t, q.Charge(in("a", "other", 2), nil))
	g := in("a", "high", 3)
	g.Priority = 1
	require.Equal(t, int64(0), q.Check(g, nil).Available)
	var out lockstep.Candidates
	q.Reclaim(g, nil, &out)
	require.Equal(t, []lockstep.Candidate{{Job: "other"}, {Job: "low", Min: []int{4}}}, out.Jobs)
	for _, c := range []struct {
		gone []lockstep.Eviction
		want bool
	}{
		{nil, false},
		{[]lockstep.Eviction{{Job: "other"}}, false},
		{[]lockstep.Eviction{{Job: "other"}, {Job: "other"}}, false},
		{[]lockstep.Eviction{{Job: "other"}, {Job: "stranger"}, {Job: "low", Ranks: []int{5}}}, true},
		{[]lockstep.Eviction{{Job: "low", Ranks: []int{3, 4, 5}}}, true},
		{[]lockstep.Eviction{{Job: "low", Ranks: []int{4, 5, 99}}}, false},
		{[]lockstep.Eviction{{Job: "low"}}, true},
	} {
		require.Equal(t, c.want, q.CheckAfter(g, nil, c.gone).Feasible, "%+v", c.gone)
		require.Zero(t, most(t, q, "a"), "nothing has changed")
	}
	require.Equal(t, lockstep.ReasonUnsupported, q.CheckAfter(g, []int{1, 2}, nil).Reason)

	// Nobody is evicted so that somebody may borrow.
	q = build(t, Config{Capacity: gpus(8), Queues: []Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}})
	require.NoError(t, q.Charge(in("a", "low", 4), nil))
	require.NoError(t, q.Charge(in("b", "b1", 2), nil))
	require.NoError(t, q.Demand(in("b", "b2", 4), nil))
	g = in("a", "high", 6)
	g.Priority = 1
	v := q.CheckAfter(g, nil, []lockstep.Eviction{{Job: "low"}})
	require.Equal(t, lockstep.Verdict{Reason: lockstep.ReasonQuota, Want: 6, Resource: "gpu", Requested: 6000, Available: 4000, Level: LevelQueue, Domain: "a"}, v)
}

func TestCheckAfterLetsWhatWasHeldBeHeld(t *testing.T) {
	q := build(t, Config{Capacity: gpus(8), Queues: []Queue{{Name: "a", Weight: 1, Nominal: gpus(0)}, {Name: "b", Weight: 1, Nominal: gpus(0)}}})
	require.NoError(t, q.Charge(in("a", "low", 6), nil))
	require.NoError(t, q.Demand(in("b", "b1", 8), nil))
	same := in("a", "same", 6)
	require.True(t, q.CheckAfter(same, nil, []lockstep.Eviction{{Job: "low"}}).Feasible, "a is over its 4, but no more than before")
	require.False(t, q.CheckAfter(in("a", "more", 7), nil, []lockstep.Eviction{{Job: "low"}}).Feasible)
	require.NoError(t, q.Refund("low"))
	require.NoError(t, q.Charge(in("a", "little", 1), nil))
	require.True(t, q.CheckAfter(in("a", "new", 4), nil, []lockstep.Eviction{{Job: "little"}}).Feasible, "4 is its share, though it has not asked for it yet")
}

func TestDemandOutlivesCharges(t *testing.T) {
	q := build(t, Config{Capacity: gpus(8), Queues: []Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}})
	demand := func() int64 {
		s, _ := q.Statement("a")
		return s.Demand[lockstep.ResourceGPU] / 1000
	}
	g := in("a", "j", 2)
	g.Roles[0].Max = 6
	require.NoError(t, q.Demand(g, []int{6}))
	require.EqualValues(t, 6, demand())
	require.NoError(t, q.Charge(g, []int{2}))
	require.EqualValues(t, 6, demand(), "it would grow")
	require.NoError(t, q.Demand(g, []int{1}))
	require.EqualValues(t, 2, demand(), "it demands what it has at least")
	require.NoError(t, q.Demand(g, []int{4}))
	require.NoError(t, q.Refund("j"))
	require.EqualValues(t, 4, demand(), "it waits")
	s, _ := q.Statement("a")
	require.Equal(t, 1, s.Waiting)
	require.ErrorIs(t, q.RemoveQueue("a"), lockstep.ErrConflict)
	moved := in("b", "j", 1)
	require.ErrorIs(t, q.Demand(moved, nil), lockstep.ErrConflict)
	require.ErrorIs(t, q.Charge(moved, nil), lockstep.ErrConflict)
	require.NoError(t, q.Charge(g, nil))
	require.NoError(t, q.Withdraw("j"))
	require.EqualValues(t, 2, demand())
	require.ErrorIs(t, q.Withdraw("j"), lockstep.ErrUnknown)
	require.NoError(t, q.Refund("j"))
	require.Zero(t, demand())
	require.NoError(t, q.RemoveQueue("a"))
}

// Invariant 5: weights are relative, and so are amounts.
func TestScalingWeightsChangesNothing(t *testing.T) {
	for seed := range rounds(300) {
		p, _ := randomPool(t, uint64(seed), 2, false)
		before := statements(p.q)
		for _, n := range p.q.order[1:] {
			n.spec.Weight *= 1 << 20
		}
		p.q.divide()
		after := statements(p.q)
		for i := range after {
			after[i].Weight >>= 20
		}
		require.Equal(t, before, after)
	}
}

func statements(q *Quota) (out []Statement) {
	for _, name := range q.AppendQueues(nil) {
		s, _ := q.Statement(name)
		out = append(out, s)
	}
	return out
}

// Invariant 6: more weight is never less, and who comes takes from nobody's gain.
func TestSharesAreMonotone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 6))
	for range rounds(3000) {
		capacity := 1 + r.Int64N(60)
		cfg := Config{Capacity: lockstep.Resources{"slots": capacity}}
		n := 2 + r.IntN(5)
		demands := make([]int, n)
		for i := range n {
			cfg.Queues = append(cfg.Queues, Queue{Name: lockstep.QueueID(fmt.Sprint("q", i)), Weight: r.Int64N(5), Tier: int32(r.IntN(2))})
			demands[i] = r.IntN(40)
		}
		deserved := func(cfg Config, demands []int) (out []int64) {
			q := build(t, cfg)
			for i, d := range demands {
				require.NoError(t, q.Demand(in(cfg.Queues[i].Name, lockstep.JobID(fmt.Sprint("j", i)), d), nil))
			}
			for i := range demands {
				s, _ := q.Statement(cfg.Queues[i].Name)
				out = append(out, s.Deserved["slots"])
			}
			return out
		}
		before := deserved(cfg, demands)
		var sum, all int64
		for i, d := range before {
			sum += d
			all += int64(demands[i])
		}
		require.Equal(t, min(capacity, all), sum, "all is deserved by somebody")

		// One unit may move by the rounding, which is twice: of the nominal quota and of what is over.
		i := r.IntN(n)
		heavier := cfg
		heavier.Queues = slices.Clone(cfg.Queues)
		heavier.Queues[i].Weight += 1 + r.Int64N(5)
		require.GreaterOrEqual(t, deserved(heavier, demands)[i], before[i]-2)
		greedier := slices.Clone(demands)
		greedier[i] += 1 + r.IntN(10)
		after := deserved(cfg, greedier)
		require.GreaterOrEqual(t, after[i], before[i], "who asks for more gets no less")
		if before[i] < int64(demands[i]) {
			require.Equal(t, before, after, "who has not what it asks for gains nothing by asking for more")
		}
		for k := range after {
			require.True(t, k == i || after[k] <= before[k]+2, "the demand of one raises no other's share")
		}
	}
}

// Invariant 11, where jobs are divisible: no queue that asks for its part by
// weight gets less, whatever the others ask for.
func TestSharingIncentive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 11))
	for range rounds(3000) {
		capacity, weights := 1+r.Int64N(100), int64(0)
		cfg := Config{Capacity: lockstep.Resources{"slots": capacity}}
		for i := range 2 + r.IntN(6) {
			cfg.Queues = append(cfg.Queues, Queue{Name: lockstep.QueueID(fmt.Sprint("q", i)), Weight: 1 + r.Int64N(9)})
			weights += cfg.Queues[i].Weight
		}
		q := build(t, cfg)
		for i := range cfg.Queues {
			require.NoError(t, q.Demand(in(cfg.Queues[i].Name, lockstep.JobID(fmt.Sprint("j", i)), r.IntN(100)), nil))
		}
		for i := range cfg.Queues {
			s, _ := q.Statement(cfg.Queues[i].Name)
			require.GreaterOrEqual(t, s.Deserved["slots"], min(s.Demand["slots"], capacity*cfg.Queues[i].Weight/weights))
		}
	}
}

// Invariants 4 and 16: the order of events that do not depend on each other does not matter.
func TestOrderOfIndependentEventsDoesNotMatter(t *testing.T) {
	for seed := range rounds(300) {
		r := rand.New(rand.NewPCG(uint64(seed), 4))
		queues := []Queue{
			{Name: "o", Weight: 2},
			{Name: "p", Weight: 1, Guarantee: gpus(2)},
			{Name: "a", Parent: "o", Weight: 1},
			{Name: "b", Parent: "o", Weight: 3},
			{Name: "c", Weight: 1, LendLimit: gpus(1)},
		}
		leaves := []lockstep.QueueID{"a", "b", "c", "p"}
		jobs := make([]*lockstep.Gang, 10)
		for i := range jobs {
			jobs[i] = in(leaves[r.IntN(4)], lockstep.JobID(fmt.Sprint("j", i)), 1+r.IntN(4))
		}
		var want []Statement
		for range 4 {
			r.Shuffle(len(queues), func(i, k int) { queues[i], queues[k] = queues[k], queues[i] })
			r.Shuffle(len(jobs), func(i, k int) { jobs[i], jobs[k] = jobs[k], jobs[i] })
			q := build(t, Config{Capacity: gpus(16), Queues: queues})
			for _, g := range jobs {
				if len(g.ID)%2 == 0 || g.Roles[0].Min%2 == 0 {
					require.NoError(t, q.Charge(g, nil))
				} else {
					require.NoError(t, q.Demand(g, nil))
				}
			}
			got := statements(q)
			if want == nil {
				want = got
			}
			require.Equal(t, want, got)
		}
	}
}

// Invariant 12: one job in pieces deserves what it deserves whole.
func TestSplittingAJobGainsNothing(t *testing.T) {
	whole := build(t, Config{Capacity: gpus(10), Tenants: []Tenant{{"a", 1}, {"b", 1}}})
	require.NoError(t, whole.Demand(gang("b", "b", 9, 1), nil))
	pieces := build(t, Config{Capacity: gpus(10), Tenants: []Tenant{{"a", 1}, {"b", 1}}})
	require.NoError(t, pieces.Demand(gang("b", "b", 9, 1), nil))
	require.NoError(t, whole.Demand(gang("a", "a", 8, 1), nil))
	for i := range 8 {
		require.NoError(t, pieces.Demand(gang(lockstep.JobID(fmt.Sprint("a", i)), "a", 1, 1), nil))
	}
	a, _ := whole.Statement("a")
	b, _ := pieces.Statement("a")
	require.Equal(t, a.Deserved, b.Deserved)
	require.Equal(t, gpus(5), b.Deserved)
}
