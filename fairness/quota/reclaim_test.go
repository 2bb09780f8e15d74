package quota

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// pool is a cluster without places: a gang fits if enough is free.
type pool struct {
	t       *testing.T
	q       *Quota
	gangs   map[lockstep.JobID]*lockstep.Gang
	running map[lockstep.JobID]bool
	silent  bool // nobody tells the quota what waits
}

func newPool(t *testing.T, cfg Config) *pool {
	return &pool{t: t, q: build(t, cfg), gangs: map[lockstep.JobID]*lockstep.Gang{}, running: map[lockstep.JobID]bool{}}
}

// submit adds gangs, which wait.
func (p *pool) submit(gangs ...*lockstep.Gang) {
	for _, g := range gangs {
		p.gangs[g.ID] = g
		if !p.silent {
			require.NoError(p.t, p.q.Demand(g, nil))
		}
	}
}

func (p *pool) ids() []lockstep.JobID {
	out := make([]lockstep.JobID, 0, len(p.gangs))
	for id := range p.gangs { // in any order: sorted below
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

func (p *pool) need(g *lockstep.Gang) lockstep.Vector {
	v, _ := p.q.total(g, nil)
	return v
}

func (p *pool) fits(g *lockstep.Gang, gone lockstep.Vector) bool {
	_, ok := p.need(g).Fits(p.q.root.nominal.Sub(p.q.root.used).Add(gone))
	return ok
}

// start starts g if it may run and fits as things are.
func (p *pool) start(g *lockstep.Gang) bool {
	if p.running[g.ID] || !p.q.Check(g, nil).Feasible || !p.fits(g, lockstep.Vector{}) {
		return false
	}
	require.NoError(p.t, p.q.Charge(g, nil))
	p.running[g.ID] = true
	return true
}

// victims picks from the candidates for g, lowest tiers first, and in the order of out
// or, with r, in any, a set within the limits that makes room, none of which could stay.
func (p *pool) victims(g *lockstep.Gang, out *lockstep.Candidates, r *rand.Rand) (picked []lockstep.JobID, ok bool) {
	order := slices.Clone(out.Jobs)
	if r != nil {
		r.Shuffle(len(order), func(i, k int) { order[i], order[k] = order[k], order[i] })
		slices.SortStableFunc(order, func(a, b lockstep.Candidate) int { return cmp.Compare(a.Tier, b.Tier) })
	}
	left := make([]lockstep.Resources, len(out.Limits))
	for i, l := range out.Limits {
		left[i] = lockstep.Resources{}
		for name, v := range l { // order does not matter: a copy
			left[i][name] = v
		}
	}
	var gone lockstep.Vector
	take := func(c *lockstep.Candidate, sign int64) {
		amount := p.q.jobs[c.Job].charged()
		gone = gone.Add(amount.Mul(sign))
		for _, l := range c.Limits {
			for name, v := range p.q.schema.Resources(amount) { // order does not matter: each is on its own
				if _, limited := left[l][name]; limited {
					left[l][name] -= sign * v
				}
			}
		}
	}
	within := func(c *lockstep.Candidate) bool {
		for _, l := range c.Limits {
			for _, v := range left[l] { // order does not matter: any
				if v < 0 {
					return false
				}
			}
		}
		return true
	}
	var set []*lockstep.Candidate
	for i := range order {
		if p.fits(g, gone) {
			break
		}
		take(&order[i], 1)
		if !within(&order[i]) {
			take(&order[i], -1)
			continue
		}
		set = append(set, &order[i])
	}
	if !p.fits(g, gone) {
		return nil, false
	}
	for _, c := range slices.Backward(set) {
		take(c, -1)
		if !p.fits(g, gone) {
			take(c, 1)
			picked = append(picked, c.Job)
		}
	}
	return picked, true
}

// preempt starts g with room, and quota, made by others.
func (p *pool) preempt(g *lockstep.Gang, r *rand.Rand) (picked []lockstep.JobID, ok bool) {
	if p.running[g.ID] {
		return nil, false
	}
	var out lockstep.Candidates
	p.q.Reclaim(g, nil, &out)
	picked, ok = p.victims(g, &out, r)
	if !ok {
		return nil, false
	}
	if !p.q.Check(g, nil).Feasible || r == nil || r.IntN(2) == 0 { // else the limits are enough
		if picked, ok = p.complete(g, &out, picked); !ok {
			return nil, false
		}
	}
	for _, id := range picked {
		require.NotEqual(p.t, g.ID, id)
		require.NoError(p.t, p.q.Refund(id))
		delete(p.running, id)
	}
	require.NoError(p.t, p.q.Charge(g, nil))
	p.running[g.ID] = true
	return picked, true
}

// complete adds jobs of g's own queue to those that go until g has quota.
func (p *pool) complete(g *lockstep.Gang, out *lockstep.Candidates, picked []lockstep.JobID) ([]lockstep.JobID, bool) {
	var gone []lockstep.Eviction
	for _, id := range picked {
		gone = append(gone, lockstep.Eviction{Job: id})
	}
	for i := 0; !p.q.CheckAfter(g, nil, gone).Feasible; i++ {
		if i == len(out.Jobs) {
			return nil, false
		}
		if c := out.Jobs[i]; len(c.Limits) == 0 && !slices.Contains(picked, c.Job) {
			picked = append(picked, c.Job)
			gone = append(gone, lockstep.Eviction{Job: c.Job})
		}
	}
	return picked, true
}

// settle lets waiting jobs start, and preempt, in any order until nothing more
// happens, and returns how often jobs were evicted. The state must never be one that
// was there before.
func (p *pool) settle(r *rand.Rand) (evicted int) {
	seen := map[string]bool{}
	for {
		state := fmt.Sprint(p.active())
		require.False(p.t, seen[state], "back at %s", state)
		seen[state] = true
		ids := p.ids()
		r.Shuffle(len(ids), func(i, k int) { ids[i], ids[k] = ids[k], ids[i] })
		moved := false
		for _, id := range ids {
			if p.start(p.gangs[id]) {
				moved = true
			} else if picked, ok := p.preempt(p.gangs[id], r); ok {
				evicted += len(picked)
				moved = true
			}
			if moved {
				break
			}
		}
		if !moved {
			return evicted
		}
	}
}

func (p *pool) active() (out []lockstep.JobID) {
	for _, id := range p.ids() {
		if p.running[id] {
			out = append(out, id)
		}
	}
	return out
}

// used returns the GPUs that a queue uses.
func (p *pool) used(queue lockstep.QueueID) int64 {
	s, ok := p.q.Statement(queue)
	require.True(p.t, ok)
	return s.Used[lockstep.ResourceGPU] / 1000
}

// in returns a gang of so many whole GPUs, one member each, in a queue.
func in(queue lockstep.QueueID, id lockstep.JobID, gpus int) *lockstep.Gang {
	return &lockstep.Gang{
		ID: id, Queue: queue, Roles: []lockstep.Role{{Min: gpus, Demand: lockstep.Demand{GPUs: 1}}},
		Capabilities: lockstep.Capabilities{Preemptible: true},
	}
}

// several returns n gangs of so many GPUs each.
func several(queue lockstep.QueueID, n, gpus int) (out []*lockstep.Gang) {
	for i := range n {
		out = append(out, in(queue, lockstep.JobID(fmt.Sprint(queue, "-", i)), gpus))
	}
	return out
}

func (p *pool) begin(gangs ...*lockstep.Gang) {
	p.submit(gangs...)
	for _, g := range gangs {
		require.True(p.t, p.start(g), "%s", g.ID)
	}
}

// A job of 4 in a queue that deserves 5 takes two tasks of 2 from one that has 10
// and deserves 5 of 11; neither can take anything back.
func TestVolcano3729NoReclaimForEver(t *testing.T) {
	for _, explicit := range []bool{true, false} {
		a, b := Queue{Name: "a", Weight: 1, Max: gpus(10)}, Queue{Name: "b", Weight: 1, Max: gpus(10)}
		if explicit {
			a.Nominal, b.Nominal = gpus(5), gpus(5)
		}
		p := newPool(t, Config{Capacity: gpus(11), Queues: []Queue{a, b}})
		p.begin(several("a", 5, 2)...)
		p.submit(several("b", 5, 2)...)
		evicted := p.settle(rand.New(rand.NewPCG(1, 1)))
		require.Equal(t, 2, evicted)
		require.EqualValues(t, 6, p.used("a"))
		require.EqualValues(t, 4, p.used("b"))
	}
}

// H9: queue 1 deserves 3 and runs one task of 4; queue 2 deserves 5, runs 1 and waits
// for 4. The task of 4 would leave queue 1 under what it deserves.
func TestVolcano4947EvictedOnceAtMost(t *testing.T) {
	p := newPool(t, Config{Capacity: gpus(8), Queues: []Queue{
		{Name: "q1", Weight: 1, Nominal: gpus(3)}, {Name: "q2", Weight: 1, Nominal: gpus(5)},
	}})
	p.begin(in("q1", "one", 4), in("q2", "two", 1))
	p.submit(in("q2", "four", 4))
	require.Zero(t, p.settle(rand.New(rand.NewPCG(1, 1))))
	require.Equal(t, []lockstep.JobID{"one", "two"}, p.active())
}

// A queue that has 250 of 300, 100 of it borrowed, asks for 50 more, which the best
// effort has. By weight it deserves 250: it must not take them, lest best effort, which
// then has less, take them back.
func TestKueue3779NoPreemptionLoop(t *testing.T) {
	for _, weight := range []int64{1, 0} {
		p := newPool(t, Config{Capacity: gpus(300), Queues: []Queue{
			{Name: "guaranteed-a", Weight: 1, Nominal: gpus(150)},
			{Name: "guaranteed-b", Weight: 1, Nominal: gpus(150)},
			{Name: "best-effort", Weight: weight, Nominal: gpus(0)},
		}})
		p.begin(in("guaranteed-a", "a1", 250), in("best-effort", "be1", 50))
		p.submit(in("guaranteed-a", "a2", 50))
		evicted := p.settle(rand.New(rand.NewPCG(1, 1)))
		if weight == 1 {
			require.Zero(t, evicted)
			continue
		}
		// Where best effort weighs nothing it gives way, once, and stays out.
		require.Equal(t, 1, evicted)
		require.Equal(t, []lockstep.JobID{"a1", "a2"}, p.active())
	}
}

// Of 8 GPUs project 1 has 8, in jobs of 2. Project 2 deserves 4: jobs of 6 and 5
// wait, one of 4 gets in at the cost of two jobs, one of 3 also does when it is alone, and nobody comes back.
func TestKueue7101PreemptsAndDoesNotLoop(t *testing.T) {
	for _, nominal := range []lockstep.Resources{nil, gpus(0), gpus(4)} {
		for _, c := range []struct {
			jobs    []int
			evicted int
			used    int64
		}{{[]int{6, 5}, 0, 0}, {[]int{6, 5, 4}, 2, 4}, {[]int{4}, 2, 4}, {[]int{3}, 2, 3}, {[]int{6, 5, 3}, 2, 3}, {[]int{2, 2, 2}, 2, 4}} {
			p := newPool(t, Config{Capacity: gpus(8), Queues: []Queue{
				{Name: "proj-1", Weight: 1, Nominal: nominal}, {Name: "proj-2", Weight: 1, Nominal: nominal},
			}})
			p.begin(several("proj-1", 4, 2)...)
			for i, n := range c.jobs {
				p.submit(in("proj-2", lockstep.JobID(fmt.Sprint("x", i)), n))
			}
			require.Equal(t, c.evicted, p.settle(rand.New(rand.NewPCG(1, 1))), "%v with nominal %v", c.jobs, nominal)
			require.Equal(t, c.used, p.used("proj-2"), "%v with nominal %v", c.jobs, nominal)
		}
	}
}

// Reclaim restores the fair share, not only the quota, among siblings whose parent has
// none, and critical work takes all.
func TestKAI1934FairShareAmongSiblings(t *testing.T) {
	queues := []Queue{
		{Name: "priority", Weight: 1, Nominal: gpus(1_000_000)},
		{Name: "shared", Weight: 1, Nominal: gpus(0)},
		{Name: "alice", Parent: "shared", Weight: 1},
		{Name: "bob", Parent: "shared", Weight: 1},
	}
	p := newPool(t, Config{Capacity: gpus(16), Queues: queues})
	p.begin(several("alice", 16, 1)...)
	p.submit(several("bob", 16, 1)...)
	require.Equal(t, 8, p.settle(rand.New(rand.NewPCG(1, 1))))
	require.EqualValues(t, 8, p.used("alice"))
	require.EqualValues(t, 8, p.used("bob"))

	p.submit(several("priority", 3, 5)...)
	p.settle(rand.New(rand.NewPCG(1, 1)))
	require.EqualValues(t, 15, p.used("priority"))
	require.EqualValues(t, 1, p.used("shared"))
}

// With a thousand queues whose fair share is a fraction of the least unit, and weights
// as far apart as can be, what is guaranteed comes back.
func TestKueue6577RoundingKeepsNoGuarantee(t *testing.T) {
	cfg := Config{Capacity: lockstep.Resources{"slots": 100}, Queues: []Queue{
		{Name: "owner", Weight: 0, Nominal: lockstep.Resources{"slots": 100}}, {Name: "heavy", Weight: MaxWeight, Nominal: lockstep.Resources{"slots": 0}},
	}}
	for i := range 1000 {
		cfg.Queues = append(cfg.Queues, Queue{Name: lockstep.QueueID(fmt.Sprint("light-", i)), Weight: 1, Nominal: lockstep.Resources{"slots": 0}})
	}
	p := newPool(t, cfg)
	p.begin(several("heavy", 50, 1)...)
	for i := range 50 {
		p.begin(several(lockstep.QueueID(fmt.Sprint("light-", i)), 1, 1)...)
	}
	p.submit(several("owner", 100, 1)...)
	require.Equal(t, 100, p.settle(rand.New(rand.NewPCG(1, 1))))
	s, _ := p.q.Statement("owner")
	require.EqualValues(t, 100, s.Used["slots"])
}

// Two queues that are alike lend alike: whoever is asked, in whatever order they were
// added, the same jobs are named.
func TestKueue6763OrderIsNeverTheMaps(t *testing.T) {
	var want *lockstep.Candidates
	names := []lockstep.QueueID{"a", "b", "c", "d", "e"}
	r := rand.New(rand.NewPCG(1, 1))
	for range 50 {
		p := newPool(t, Config{Capacity: gpus(10)})
		r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
		for _, name := range names {
			require.NoError(t, p.q.SetQueue(Queue{Name: name, Weight: 1}))
		}
		for i, name := range []lockstep.QueueID{"b", "c", "d", "e"} {
			p.begin(several(name, 3-i/2, 1)...)
		}
		p.submit(in("a", "job", 1))
		var got lockstep.Candidates
		p.q.Reclaim(p.gangs["job"], nil, &got)
		if want == nil {
			want = &got
			require.Len(t, got.Jobs, 6)
			require.Equal(t, []lockstep.Resources{gpus(1), gpus(1)}, got.Limits)
		}
		require.Equal(t, want, &got)
	}
}

// H11: what the preemptor's room was made of waits, and cannot get it back by its age.
func TestKueue2821VictimDoesNotComeBack(t *testing.T) {
	p := newPool(t, Config{Capacity: gpus(8), Queues: []Queue{
		{Name: "pool", Weight: 0, Nominal: gpus(8)}, {Name: "low", Weight: 1, Nominal: gpus(0)}, {Name: "high", Weight: 1, Tier: 1, Nominal: gpus(0)},
	}})
	old := in("low", "old", 8)
	p.begin(old)
	young := in("high", "young", 8)
	young.Priority = 10
	p.submit(young)
	picked, ok := p.preempt(young, nil)
	require.True(t, ok)
	require.Equal(t, []lockstep.JobID{"old"}, picked)
	require.False(t, p.q.Check(old, nil).Feasible)
	var out lockstep.Candidates
	p.q.Reclaim(old, nil, &out)
	require.Empty(t, out.Jobs)
}

// What one resource lacks does not protect another: a queue that is over in devices
// gives them back though processors are plenty, or though it has fewer than it
// deserves of a resource that nobody is short of.
func TestVolcano1373OneResourceIsEnough(t *testing.T) {
	both := func(queue lockstep.QueueID, id lockstep.JobID, gpus int, cpu lockstep.MilliCPU) *lockstep.Gang {
		g := in(queue, id, gpus)
		g.Roles[0].Demand.CPU = cpu
		return g
	}
	p := newPool(t, Config{Capacity: lockstep.Resources{"gpu": 8000, "cpu": 1_000_000}, Queues: []Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}})
	for i := range 8 {
		p.begin(both("a", lockstep.JobID(fmt.Sprint("a", i)), 1, 8000))
	}
	for i := range 8 {
		p.submit(both("b", lockstep.JobID(fmt.Sprint("b", i)), 1, 8000))
	}
	require.Equal(t, 4, p.settle(rand.New(rand.NewPCG(1, 1))))
	require.EqualValues(t, 4, p.used("b"))
}

func TestSamePriorityIsNeverPreempted(t *testing.T) {
	p := newPool(t, Config{Capacity: gpus(4), Queues: []Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 1, NotReclaimable: true}}})
	jobs := several("a", 2, 1)
	jobs[1].Priority = 3
	p.begin(jobs...)
	p.begin(several("b", 2, 1)...)
	ask := func(queue lockstep.QueueID, priority lockstep.Priority, policy lockstep.Preemption) []lockstep.JobID {
		g := in(queue, "new", 1)
		g.Priority, g.Preemption = priority, policy
		var out lockstep.Candidates
		p.q.Reclaim(g, nil, &out)
		ids := []lockstep.JobID{}
		for _, c := range out.Jobs {
			require.Empty(t, c.Limits)
			ids = append(ids, c.Job)
		}
		return ids
	}
	require.Empty(t, ask("a", 0, lockstep.PreemptLower))
	require.Equal(t, []lockstep.JobID{"a-0"}, ask("a", 3, lockstep.PreemptLower))
	require.Equal(t, []lockstep.JobID{"a-0", "a-1"}, ask("a", 4, lockstep.PreemptLower))
	require.Empty(t, ask("a", 4, lockstep.PreemptNever))
	require.Empty(t, ask("nowhere", 4, lockstep.PreemptLower))
	require.NoError(t, p.q.Refund("a-1"))
	p.running["a-1"] = false
	p.begin(in("b", "more", 1))
	require.Equal(t, []lockstep.JobID{"a-0"}, ask("a", 4, lockstep.PreemptLower), "b is not reclaimable, though it borrowed")
}

// TestPriorityAndShareTogether is a gang that needs the room of a lesser job of its
// own queue and what is left of its share: it gets both, and no more.
func TestPriorityAndShareTogether(t *testing.T) {
	p := newPool(t, Config{Capacity: gpus(16), Queues: []Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}})
	p.begin(in("a", "small", 4))
	p.begin(several("b", 6, 2)...)
	g := in("a", "large", 8)
	g.Priority = 1
	p.submit(g)
	// 4 + 8 is more than its 8, so from b it may take what a has not got: 4.
	var out lockstep.Candidates
	p.q.Reclaim(g, nil, &out)
	require.Contains(t, out.Limits, lockstep.Resources{"gpu": 4000})
	require.True(t, p.q.CheckAfter(g, nil, []lockstep.Eviction{{Job: "small"}}).Feasible)
	require.NoError(t, p.q.Refund("small"))
	delete(p.running, "small")
	picked, ok := p.preempt(g, nil)
	require.True(t, ok)
	require.Len(t, picked, 2)
	require.EqualValues(t, 8, p.used("a"))
	require.EqualValues(t, 8, p.used("b"))
}

// What is free counts: of its 8 the queue has 4, of which 2 might stay, and 2 more are
// free, so that it may take 2, though the other has 8 too many.
func TestShareCountsWhatIsFree(t *testing.T) {
	p := newPool(t, Config{Capacity: gpus(24), Queues: []Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}, {Name: "c", Weight: 1}}})
	p.begin(several("a", 2, 2)...)
	p.begin(several("b", 8, 2)...)
	p.begin(in("c", "c1", 2))
	p.submit(in("c", "c2", 6))
	g := in("a", "large", 8)
	g.Priority = 1
	var out lockstep.Candidates
	p.q.Reclaim(g, nil, &out)
	require.Equal(t, []lockstep.Resources{gpus(2), gpus(8)}, out.Limits)
	p.submit(g)
	picked, ok := p.preempt(g, nil)
	require.True(t, ok)
	require.ElementsMatch(t, []lockstep.JobID{"a-0", "a-1", "b-7"}, picked)
	require.EqualValues(t, 8, p.used("a"))
}

func TestElasticJobsMayShrinkWithinTheLimit(t *testing.T) {
	p := newPool(t, Config{Capacity: gpus(8), Queues: []Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}}})
	two := func(id lockstep.JobID, elastic bool) *lockstep.Gang {
		return &lockstep.Gang{
			ID: id, Queue: "a", Roles: []lockstep.Role{
				{Name: "head", Min: 1, Demand: lockstep.Demand{CPU: 1}}, {Name: "worker", Min: 1, Max: 3, Demand: lockstep.Demand{GPUs: 2}},
			},
			Capabilities: lockstep.Capabilities{Preemptible: true, Resizable: elastic},
		}
	}
	require.NoError(t, p.q.Charge(two("rigid", false), []int{1, 3}))
	var out lockstep.Candidates
	p.q.Reclaim(in("b", "new", 4), nil, &out)
	require.Empty(t, out.Jobs, "6 is more than the 2 that a borrowed")
	require.NoError(t, p.q.Refund("rigid"))
	require.NoError(t, p.q.Charge(two("elastic", true), []int{1, 3}))
	p.q.Reclaim(in("b", "new", 4), nil, &out)
	require.Equal(t, []lockstep.Candidate{{Job: "elastic", Min: []int{1, 1}, Limits: []int32{0}}}, out.Jobs)
	require.Equal(t, []lockstep.Resources{gpus(2)}, out.Limits)
	require.NoError(t, p.q.Refund("elastic"))
	require.NoError(t, p.q.Charge(two("elastic", true), []int{1, 1}))
	require.NoError(t, p.q.Charge(two("other", true), []int{1, 2}))
	p.q.Reclaim(in("b", "new", 4), nil, &out)
	require.Equal(t, []lockstep.Candidate{{Job: "other", Min: []int{1, 1}, Limits: []int32{0}}, {Job: "elastic", Limits: []int32{0}}}, out.Jobs)
}

func TestOrderOfCandidates(t *testing.T) {
	p := newPool(t, Config{Capacity: gpus(20), Queues: []Queue{
		{Name: "me", Weight: 4}, {Name: "high", Weight: 1, Tier: 2, Nominal: gpus(0)}, {Name: "low", Weight: 1, Tier: -1, Nominal: gpus(0)}, {Name: "zero", Tier: 5, Nominal: gpus(0)},
	}})
	for _, queue := range []lockstep.QueueID{"me", "high", "zero", "low"} {
		for i := range 4 {
			g := in(queue, lockstep.JobID(fmt.Sprint(queue, i)), 1)
			g.Priority = lockstep.Priority(i % 2)
			p.begin(g)
		}
	}
	g := in("me", "new", 5)
	g.Priority = 1
	var out lockstep.Candidates
	p.q.Reclaim(g, nil, &out)
	var got []string
	for _, c := range out.Jobs {
		got = append(got, fmt.Sprint(c.Job, " ", c.Tier))
	}
	require.Equal(t, []string{
		"zero2 0", "zero0 0", "zero3 1", "zero1 1", "low2 2", "low0 2", "low3 3", "low1 3", "high2 4", "high0 4", "high3 5", "high1 5", "me2 6", "me0 6",
	}, got)
}

// TestScatteredRoomIsReclaimedToo is a cluster with enough free, but not in one place: who
// borrowed gives way to who is within its own, and nobody else does.
func TestScatteredRoomIsReclaimedToo(t *testing.T) {
	p := newPool(t, Config{Capacity: gpus(32), Queues: []Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}, {Name: "c", Weight: 2}}})
	p.begin(several("a", 5, 2)...)
	p.begin(several("b", 4, 2)...)
	var out lockstep.Candidates
	p.q.Reclaim(in("c", "new", 8), nil, &out)
	require.Len(t, out.Jobs, 5)
	require.Equal(t, []lockstep.Resources{gpus(2)}, out.Limits)
	require.Equal(t, lockstep.JobID("a-4"), out.Jobs[0].Job, "the newest first")
}

// randomPool is a tree with jobs that run, within quota or not any more, and some
// that wait; with silent, of which the quota may not be told.
func randomPool(t *testing.T, seed uint64, resources int, silent bool) (*pool, *rand.Rand) {
	r := rand.New(rand.NewPCG(seed, 11))
	capacity := lockstep.Resources{"gpu": 8 + r.Int64N(24)}
	if resources > 1 {
		capacity["slots"] = 8 + r.Int64N(24)
	}
	p := newPool(t, Config{Capacity: capacity})
	p.silent = silent && resources == 1 && r.IntN(4) == 0
	amounts := func(most int64) lockstep.Resources {
		out := lockstep.Resources{}
		for _, name := range []lockstep.ResourceName{"gpu", "slots"} {
			if _, ok := capacity[name]; ok && r.IntN(3) == 0 {
				out[name] = r.Int64N(most)
			}
		}
		return out
	}
	n := 2 + r.IntN(7)
	grow := func() {
		for i := range n {
			spec := Queue{Name: lockstep.QueueID(fmt.Sprint("q", i)), Weight: r.Int64N(4), Tier: int32(r.IntN(5) / 3), NotReclaimable: r.IntN(10) == 0}
			if i > 0 && r.IntN(2) == 0 {
				spec.Parent = lockstep.QueueID(fmt.Sprint("q", r.IntN(i)))
			}
			spec.Nominal = amounts(16)
			if r.IntN(3) == 0 {
				spec.Guarantee, spec.BorrowLimit, spec.LendLimit, spec.Max = amounts(5), amounts(12), amounts(12), amounts(24)
			}
			_ = p.q.SetQueue(spec) // what cannot be is left out
		}
	}
	grow()
	w := world{q: p.q, r: r}
	leaves := w.leaves()
	if len(leaves) == 0 {
		require.NoError(t, p.q.SetQueue(Queue{Name: "q", Weight: 1}))
		leaves = w.leaves()
	}
	for i := range 4 + r.IntN(16) {
		g := gangOf(r, lockstep.JobID(fmt.Sprint("j", i)), leaves[r.IntN(len(leaves))])
		if resources == 1 && g.Roles[0].Demand.GPUs == 0 {
			continue
		}
		p.submit(g)
		if r.IntN(3) > 0 {
			p.start(g)
		}
	}
	if r.IntN(3) == 0 {
		grow() // the rules change while jobs run
	}
	return p, r
}

// TestReclaimKeepsWhatIsDeserved is H10: in what the gang is short of, no queue on
// the victims' side, nor any above it, comes under its nominal quota, nor, where the gang asks for more
// than its own, under what it deserves against a queue that asks for everything.
func TestReclaimKeepsWhatIsDeserved(t *testing.T) {
	swaps := 0
	for seed := range rounds(6000) {
		p, r := randomPool(t, uint64(seed), 1+seed%2, true)
		for _, id := range p.ids() {
			swaps += p.swapOnce(p.gangs[id], r)
		}
	}
	require.Greater(t, swaps, rounds(1000))
}

// swapOnce preempts for g if it can, checks what came of it, and says how many jobs
// were evicted.
func (p *pool) swapOnce(g *lockstep.Gang, r *rand.Rand) int {
	leaf := p.q.leaf(g)
	if leaf == nil || p.running[g.ID] || p.start(g) {
		return 0
	}
	before := p.views(g)
	way := newWay(p.q, leaf)
	picked, ok := p.preempt(g, r)
	if !ok || len(picked) == 0 {
		return 0
	}
	for _, victim := range picked {
		n := p.q.leaf(p.gangs[victim])
		if n == leaf {
			require.Less(p.t, p.gangs[victim].Priority, g.Priority)
			continue
		}
		// The highest queue on g's side, and all queues on the victim's.
		side, mine := sides(&way, n)
		for m := leaf; m != mine.parent; m = m.parent {
			for name, b := range before[m.spec.Name] { // order does not matter: each is on its own
				if x, _ := p.q.schema.Index(name); p.need(g)[x] > 0 {
					require.LessOrEqual(p.t, m.load[x], max(b.nominal, b.share), "%s in %s", g.ID, m.spec.Name)
				}
			}
		}
		for _, v := range side {
			for name, b := range before[v.spec.Name] { // order does not matter: each is on its own
				x, _ := p.q.schema.Index(name)
				if !b.short {
					continue
				}
				floor := b.nominal
				if mine.load[x] > mine.nominal[x] {
					floor = max(floor, b.share)
				}
				require.GreaterOrEqual(p.t, v.load[x], min(floor, b.load), "%s in %s for %s", victim, v.spec.Name, g.ID)
			}
		}
		// The victim cannot take the room back.
		var out lockstep.Candidates
		p.q.Reclaim(p.gangs[victim], nil, &out)
		for _, c := range out.Jobs {
			require.NotEqual(p.t, g.ID, c.Job, "%s was taken for %s, which it may take back", victim, g.ID)
		}
	}
	return len(picked)
}

// sides returns the queues from n up to below where it meets w, and the highest of w
// below that.
func sides(w *way, n *node) (side []*node, mine *node) {
	for m := n; m != nil; m = m.parent {
		for i, x := range w.nodes[:w.length] {
			if x.parent == m {
				return side, w.nodes[i]
			}
		}
		side = append(side, m)
	}
	return nil, nil
}

// standing is how one queue stands in one resource before a reclaim.
type standing struct {
	nominal, load, share int64
	short                bool
}

// views gives the standing of all queues against that of g wanting everything, by
// the plain model.
func (p *pool) views(g *lockstep.Gang) map[lockstep.QueueID]map[lockstep.ResourceName]standing {
	m := &model{capacity: p.q.schema.Resources(p.q.root.nominal), queues: map[lockstep.QueueID]Queue{}, jobs: map[lockstep.JobID]*modelJob{}}
	for _, name := range p.q.AppendQueues(nil) {
		m.queues[name] = p.q.nodes[name].spec
	}
	for id, j := range p.q.jobs { // order does not matter: copied to a map
		x := &modelJob{queue: j.queue.spec.Name, used: p.q.schema.Resources(j.charged())}
		if j.want != nil {
			x.want = p.q.schema.Resources(*j.want)
		}
		m.jobs[id] = x
	}
	all := lockstep.Resources{}
	for r := range p.q.schema.Len() {
		all[p.q.schema.Name(r)] = 1 << 30
	}
	m.jobs["everything"] = &modelJob{queue: g.Queue, want: all}
	out := map[lockstep.QueueID]map[lockstep.ResourceName]standing{}
	w := newWay(p.q, p.q.leaf(g))
	need := p.need(g)
	for r := range p.q.schema.Len() {
		name := p.q.schema.Name(r)
		root := m.root(name)
		free := p.q.measure(&w, r, false).free[0]
		for _, queue := range p.q.AppendQueues(nil) {
			v := root.find(queue)
			if out[queue] == nil {
				out[queue] = map[lockstep.ResourceName]standing{}
			}
			out[queue][name] = standing{nominal: v.nominal, load: v.load, share: v.share, short: need[r] > 0 && need[r] > free}
		}
	}
	return out
}

// TestReclaimComesToAnEnd lets jobs that wait start and take room in any order while
// none ends and none comes: no state comes twice, so they come to rest.
func TestReclaimComesToAnEnd(t *testing.T) {
	evicted := 0
	for seed := range rounds(4000) {
		p, r := randomPool(t, uint64(seed)+1<<32, 1, false)
		evicted += p.settle(r)
	}
	require.Greater(t, evicted, rounds(1000))
}

func TestReclaimOfSeveralResourcesComesToAnEnd(t *testing.T) {
	for seed := range rounds(4000) {
		p, r := randomPool(t, uint64(seed)+1<<33, 2, false)
		p.settle(r)
	}
}
