package quota

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

func chain(n int) (out []Queue) {
	for i := range n {
		q := Queue{Name: lockstep.QueueID(fmt.Sprint("q", i)), Weight: 1}
		if i > 0 {
			q.Parent = out[i-1].Name
		}
		out = append(out, q)
	}
	return out
}

func TestBadQueues(t *testing.T) {
	one := func(q Queue) []Queue { return []Queue{q} }
	for name, c := range map[string]struct { // order does not matter: each is on its own
		queues []Queue
		kind   error
		field  string
	}{
		"no name":              {one(Queue{}), lockstep.ErrInvalid, "Queues[0].Name"},
		"a name of a megabyte": {one(Queue{Name: lockstep.QueueID(strings.Repeat("x", 1<<20))}), lockstep.ErrInvalid, "Queues[0].Name"},
		"malformed name":       {one(Queue{Name: "a b"}), lockstep.ErrInvalid, "Queues[0].Name"},
		"named twice":          {[]Queue{{Name: "a"}, {Name: "a"}}, lockstep.ErrDuplicate, "Queues[1].Name"},
		"named as a tenant":    {one(Queue{Name: "tenant"}), lockstep.ErrDuplicate, "Queues[0].Name"},
		"negative weight":      {one(Queue{Name: "a", Weight: -1}), lockstep.ErrInvalid, "Queues[0].Weight"},
		"weight too large":     {one(Queue{Name: "a", Weight: math.MaxInt64}), lockstep.ErrInvalid, "Queues[0].Weight"},
		"negative nominal":     {one(Queue{Name: "a", Nominal: lockstep.Resources{"gpu": -1}}), lockstep.ErrInvalid, "Queues[0].Nominal.gpu"},
		"unknown resource":     {one(Queue{Name: "a", Max: lockstep.Resources{"tpu": 1}}), lockstep.ErrUnknown, "Queues[0].Max.tpu"},
		"absurd limit":         {one(Queue{Name: "a", BorrowLimit: lockstep.Resources{"gpu": math.MaxInt64}}), lockstep.ErrInvalid, "Queues[0].BorrowLimit.gpu"},
		"guarantee above own":  {one(Queue{Name: "a", Nominal: gpus(1), Guarantee: gpus(2)}), lockstep.ErrInvalid, "Queues[0].Guarantee.gpu"},
		"guarantee above max":  {one(Queue{Name: "a", Max: gpus(1), Guarantee: gpus(2)}), lockstep.ErrInvalid, "Queues[0].Guarantee.gpu"},
		"nominal above max":    {one(Queue{Name: "a", Max: gpus(1), Nominal: gpus(2)}), lockstep.ErrInvalid, "Queues[0].Nominal.gpu"},
		"no such parent":       {one(Queue{Name: "a", Parent: "b"}), lockstep.ErrUnknown, "Queues[0].Parent"},
		"malformed parent":     {one(Queue{Name: "a", Parent: "b c"}), lockstep.ErrInvalid, "Queues[0].Parent"},
		"its own parent":       {one(Queue{Name: "a", Parent: "a"}), lockstep.ErrInvalid, "Queues[0].Parent"},
		"a ring":               {[]Queue{{Name: "a", Parent: "b"}, {Name: "b", Parent: "c"}, {Name: "c", Parent: "a"}}, lockstep.ErrInvalid, "Queues[2].Parent"},
		"below a ring":         {[]Queue{{Name: "a", Parent: "b"}, {Name: "b", Parent: "c"}, {Name: "c", Parent: "b"}}, lockstep.ErrInvalid, "Queues[0].Parent"},
		"too deep":             {chain(MaxDepth + 1), lockstep.ErrInvalid, "Queues[32].Parent"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Config{Capacity: gpus(1), Tenants: []Tenant{{"tenant", 1}}, Queues: c.queues}.Validate()
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.field)
			require.Less(t, len(err.Error()), 1000)
		})
	}
	require.NoError(t, Config{Queues: chain(MaxDepth)}.Validate())
	require.NoError(t, Config{Queues: []Queue{{Name: "a"}, {Name: "A"}, {Name: "b", Parent: "tenant"}}, Tenants: []Tenant{{"tenant", 0}}}.Validate())

	err := Config{Capacity: lockstep.Resources{"gpu": -1, "": 1}, Queues: []Queue{
		{Name: "a b", Weight: -1, Nominal: lockstep.Resources{"gpu": -1}}, {Name: "c", Parent: "d"}, {Name: "c"},
	}}.Validate()
	for _, field := range []string{"names[0]", "Queues[0].Name", "Queues[0].Weight", "Queues[1].Parent", "Queues[2].Name"} {
		require.ErrorContains(t, err, field)
	}
}

// TestErrorsChangeNothing tries everything that is wrong on a Quota with something of
// everything.
func TestErrorsChangeNothing(t *testing.T) {
	q := sample(t)
	before := snapshottest.Save(t, q.Snapshot)
	two := in("a", "two", 1)
	for name, c := range map[string]struct { // order does not matter: none changes anything
		err  error
		kind error
	}{
		"capacity negative":       {q.SetCapacity(gpus(-1)), lockstep.ErrInvalid},
		"capacity of what is not": {q.SetCapacity(lockstep.Resources{"rdma": 1}), lockstep.ErrUnknown},
		"capacity absurd":         {q.SetCapacity(lockstep.Resources{"gpu": MaxAmount + 1}), lockstep.ErrInvalid},
		"tenant negative":         {q.SetTenant(Tenant{"t", -1}), lockstep.ErrInvalid},
		"tenant malformed":        {q.SetTenant(Tenant{"-", 1}), lockstep.ErrInvalid},
		"queue malformed":         {q.SetQueue(Queue{}), lockstep.ErrInvalid},
		"queue out of range":      {q.SetQueue(Queue{Name: "a", Weight: 1, Nominal: gpus(-1)}), lockstep.ErrInvalid},
		"queue without parent":    {q.SetQueue(Queue{Name: "new", Parent: "none"}), lockstep.ErrUnknown},
		"queue below itself":      {q.SetQueue(Queue{Name: "org", Parent: "org"}), lockstep.ErrInvalid},
		"queue below jobs":        {q.SetQueue(Queue{Name: "new", Parent: "a"}), lockstep.ErrConflict},
		"remove with queues":      {q.RemoveQueue("org"), lockstep.ErrConflict},
		"remove with jobs":        {q.RemoveQueue("a"), lockstep.ErrConflict},
		"remove unnamed":          {q.Remove(""), lockstep.ErrConflict},
		"remove nobody":           {q.Remove("nobody"), lockstep.ErrUnknown},
		"charge twice":            {q.Charge(two, nil), lockstep.ErrDuplicate},
		"charge nowhere":          {q.Charge(in("org", "new", 1), nil), lockstep.ErrUnknown},
		"charge elsewhere":        {q.Charge(in("a", "waits", 1), nil), lockstep.ErrConflict},
		"charge no counts":        {q.Charge(in("a", "new", 1), []int{}), lockstep.ErrInvalid},
		"charge less than none":   {q.Charge(in("a", "new", 1), []int{-1}), lockstep.ErrInvalid},
		"charge too many":         {q.Charge(in("a", "new", 1), []int{math.MaxInt32}), lockstep.ErrInvalid},
		"charge without roles":    {q.Charge(&lockstep.Gang{ID: "new", Queue: "a"}, nil), lockstep.ErrInvalid},
		"charge without a name":   {q.Charge(in("a", "", 1), nil), lockstep.ErrInvalid},
		"charge absurdly":         {q.Charge(absurd(), nil), lockstep.ErrInvalid},
		"demand absurdly":         {q.Demand(absurd(), nil), lockstep.ErrInvalid},
		"demand no counts":        {q.Demand(two, []int{1, 2}), lockstep.ErrInvalid},
		"demand nowhere":          {q.Demand(in("none", "new", 1), nil), lockstep.ErrUnknown},
		"demand elsewhere":        {q.Demand(in("b", "two", 1), nil), lockstep.ErrConflict},
		"refund nobody":           {q.Refund("nobody"), lockstep.ErrUnknown},
		"refund who waits":        {q.Refund("waits"), lockstep.ErrUnknown},
		"withdraw nobody":         {q.Withdraw("nobody"), lockstep.ErrUnknown},
		"withdraw who is silent":  {q.Withdraw("later"), lockstep.ErrUnknown},
	} {
		require.ErrorIs(t, c.err, c.kind, name)
		var e *lockstep.Error
		require.True(t, errors.As(c.err, &e), name)
		require.True(t, strings.HasPrefix(e.Op, "quota: "), name)
	}
	_, ok := q.Statement("nobody")
	require.False(t, ok)
	_, ok = q.Usage("nobody")
	require.False(t, ok)
	require.False(t, q.Check(absurd(), nil).Feasible)
	var out lockstep.Candidates
	q.Reclaim(absurd(), nil, &out)
	q.Reclaim(in("org", "x", 1), nil, &out)
	q.Reclaim(in("a", "x", 1), []int{1, 2}, &out)
	require.Empty(t, out.Jobs)
	require.Equal(t, before, snapshottest.Save(t, q.Snapshot))
}

// absurd is a gang that asks for more than can be.
func absurd() *lockstep.Gang {
	g := in("b", "absurd", 1<<20)
	g.Roles[0].Demand.Memory = 1 << 50
	return g
}

func TestMovingAQueueKeepsTheDepth(t *testing.T) {
	q := build(t, Config{Queues: append(chain(MaxDepth-1), Queue{Name: "a"}, Queue{Name: "b", Parent: "a"})})
	require.ErrorIs(t, q.SetQueue(Queue{Name: "a", Parent: lockstep.QueueID(fmt.Sprint("q", MaxDepth-2))}), lockstep.ErrInvalid)
	require.NoError(t, q.SetQueue(Queue{Name: "a", Parent: lockstep.QueueID(fmt.Sprint("q", MaxDepth-3))}))
	require.True(t, q.Check(in("b", "j", 1), nil).Feasible)
	require.NoError(t, q.Charge(in("b", "j", 1), nil))
}

// TestCapacityToNothingAndBack runs jobs through it.
func TestCapacityToNothingAndBack(t *testing.T) {
	p := newPool(t, Config{Capacity: gpus(8), Queues: []Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 1, Guarantee: gpus(1)}}})
	p.begin(several("a", 3, 2)...)
	before := statements(p.q)
	for _, n := range []int64{0, 3, 0} {
		require.NoError(t, p.q.SetCapacity(gpus(n)))
		s, _ := p.q.Statement("a")
		require.Equal(t, gpus(6), s.Used)
		require.Equal(t, gpus(6), s.Demand)
		require.LessOrEqual(t, s.Deserved["gpu"], 1000*n)
		require.Empty(t, s.Available)
		require.False(t, ask(p.q, "a", 1).Feasible)
		require.Equal(t, n > 0, ask(p.q, "b", 1).Feasible, "b has a right to its part, though a has it all")
		var out lockstep.Candidates
		p.q.Reclaim(in("b", "new", 1), nil, &out)
		require.Equal(t, n > 0, len(out.Jobs) > 0)
	}
	require.NoError(t, p.q.SetCapacity(gpus(8)))
	require.Equal(t, before, statements(p.q))
}

func TestWeightsAtTheEnds(t *testing.T) {
	for _, c := range []struct {
		weights  []int64
		deserved []int64
	}{
		{[]int64{0, 0}, []int64{50, 50}},
		{[]int64{0, 1}, []int64{0, 100}},
		{[]int64{1, 1_000_000_000}, []int64{0, 100}},
		{[]int64{MaxWeight, MaxWeight}, []int64{50, 50}},
		{[]int64{MaxWeight, 0, MaxWeight}, []int64{50, 0, 50}},
		{[]int64{1, 1, 1}, []int64{34, 33, 33}},
		{[]int64{}, nil},
	} {
		cfg := Config{Capacity: lockstep.Resources{"slots": 100}}
		for i, w := range c.weights {
			cfg.Queues = append(cfg.Queues, Queue{Name: lockstep.QueueID(fmt.Sprint("q", i)), Weight: w})
		}
		q := build(t, cfg)
		for i := range c.weights {
			require.NoError(t, q.Demand(in(cfg.Queues[i].Name, lockstep.JobID(fmt.Sprint("j", i)), 100), nil))
		}
		for i := range c.weights {
			s, _ := q.Statement(cfg.Queues[i].Name)
			require.Equal(t, c.deserved[i], s.Deserved["slots"], "%v", c.weights)
		}
	}
}

func TestManyTenantsAndManyJobs(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 2000
	}
	cfg := Config{Capacity: gpus(int64(n) + 1), Tenants: []Tenant{{"many", 1}}}
	for i := range n {
		cfg.Tenants = append(cfg.Tenants, Tenant{lockstep.TenantID(fmt.Sprint("t", i)), 1})
	}
	q := build(t, cfg)
	for i := range n {
		require.NoError(t, q.Charge(gang(lockstep.JobID(fmt.Sprint("j", i)), lockstep.TenantID(fmt.Sprint("t", i)), 1, 1), nil))
	}
	u, _ := q.Usage("t7")
	require.Equal(t, gpus(1), u.Nominal)
	require.True(t, q.Check(gang("new", "many", 1, 1), nil).Feasible)
	for i := range n {
		require.NoError(t, q.Charge(gang(lockstep.JobID(fmt.Sprint("m", i)), "many", 1, 1), nil))
	}
	require.False(t, q.Check(gang("new", "t7", 1, 1), nil).Feasible)
	for i := range n {
		require.NoError(t, q.Refund(lockstep.JobID(fmt.Sprint("m", i))))
		require.NoError(t, q.Refund(lockstep.JobID(fmt.Sprint("j", (i*7)%n))))
	}
	require.Empty(t, q.jobs)
	require.Equal(t, lockstep.Vector{}, q.root.load)
}
