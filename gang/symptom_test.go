package gang_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// The symptoms that users of other schedulers report, by the numbers under which
// the tests of this module know them: the smallest input of each, and random ones of
// its kind.

// many returns seeds, fewer under -short.
func many(seeds int) int {
	if testing.Short() {
		return max(seeds/6, 1)
	}
	return seeds
}

// mixed is a random gang of one role or two, of members of 1 or 2 devices.
func mixed(r *rand.Rand, n, largest int) *lockstep.Gang {
	g := plain(lockstep.JobID(fmt.Sprintf("j%02d", n)), 1+r.IntN(largest), 1+r.IntN(20))
	g.Roles[0].Demand.GPUs = 1 + r.IntN(2)
	g.Priority = lockstep.Priority(r.IntN(3))
	if r.IntN(3) == 0 {
		g.Roles[0].Name = "a"
		g.Roles = append(g.Roles, lockstep.Role{Name: "b", Min: 1 + r.IntN(2), Demand: lockstep.Demand{GPUs: 1}})
	}
	g.Capabilities = lockstep.Capabilities{Preemptible: r.IntN(2) == 0, Resizable: r.IntN(2) == 0}
	if r.IntN(3) == 0 {
		g.Roles[0].Max = g.Roles[0].Min + r.IntN(3)
	}
	return g
}

// H1, H5 and their kind: whatever comes, no gang holds or runs a part of itself, and
// who waits says how many of its members fit.
func TestSymptomH1H5FamilyNoPartStarts(t *testing.T) {
	for seed := range many(150) {
		r := rand.New(rand.NewPCG(uint64(seed), 101))
		p := placertest.NewReference(1+r.IntN(2), 1+r.IntN(4), 1+r.IntN(4), 0)
		w := newWorld(t, p, gang.Config{Preempt: []gang.Preempt{gang.PreemptOff, gang.PreemptOn}[seed%2], Hold: 5 * time.Second})
		w.linger = r.IntN(3)
		gangs := map[lockstep.JobID]*lockstep.Gang{}
		for n := range 20 {
			g := mixed(r, n, 6)
			gangs[g.ID] = g
			w.submit(r.IntN(60), g)
		}
		for second := range 80 {
			w.run(second)
			for _, id := range p.Jobs() {
				g := gangs[id]
				for i, n := range p.Plan(id).AppendCounts(nil, len(g.Roles)) {
					require.GreaterOrEqual(t, n, g.Roles[i].Min, "seed %d: %s holds a part", seed, id)
				}
			}
			for _, id := range w.a.AppendJobs(nil, gang.Queued) {
				e, _ := w.a.Explain(id)
				require.Equal(t, gangs[id].MaxMembers(), e.Verdict.Want, "seed %d: %s", seed, id)
			}
		}
	}
}

// H2, H3 and their kind: of gangs that each need more than half, one after the
// other has all it needs, in whatever order they and their roles come.
func TestSymptomH2H3FamilyOneAfterTheOther(t *testing.T) {
	for seed := range many(150) {
		r := rand.New(rand.NewPCG(uint64(seed), 102))
		size := 4 + r.IntN(12)
		p := placertest.NewReference(1, size, 1, 0)
		w := newWorld(t, p, gang.Config{Hold: 5 * time.Second, Backfill: []gang.Backfill{gang.EASY, gang.Strict, gang.Conservative}[r.IntN(3)]})
		var list ids
		for n := range 2 + r.IntN(4) {
			g := plain(lockstep.JobID(fmt.Sprintf("g%d", n)), 1, r.IntN(2)*10)
			need := size/2 + 1 + r.IntN(size-size/2)
			a := 1 + r.IntN(need-1)
			g.Roles[0].Min, g.Roles[0].Name = a, "a"
			g.Roles = append(g.Roles, lockstep.Role{Name: "b", Min: need - a, Demand: lockstep.Demand{GPUs: 1}})
			w.true[g.ID] = 1 + r.IntN(10)
			w.submit(r.IntN(3), g)
			list = append(list, g.ID)
		}
		for second := range 100 {
			w.run(second)
			require.LessOrEqual(t, len(p.Jobs()), 1, "seed %d", seed)
		}
		for _, id := range list {
			require.Len(t, w.starts[id], 1, "seed %d: %s", seed, id)
		}
	}
}

// H4 and its kind: where members never confirm, all of the hold ends at the
// deadline, to the second, and whoever waits for that room has it at once.
func TestSymptomH4FamilyHoldsEnd(t *testing.T) {
	for seed := range many(150) {
		r := rand.New(rand.NewPCG(uint64(seed), 103))
		size, hold := 3+r.IntN(8), 5+r.IntN(20)
		p := placertest.NewReference(1, size, 1, 0)
		a := admission(t, p, gang.Config{Hold: time.Duration(hold) * time.Second, Backoff: time.Hour})
		submit(t, a, 0, plain("a", size, 0))
		x := step(t, a, 0)
		submit(t, a, 1, plain("b", 1+r.IntN(size), 0))
		for rank := range size {
			if rank != 0 && r.IntN(2) == 0 {
				require.NoError(t, a.Confirm(at(1), "a", x[0].Attempt, rank))
			}
		}
		require.Empty(t, step(t, a, hold-1))
		require.Equal(t, []string{"release a lapsed", "reserve b"}, summary(step(t, a, hold)), "seed %d", seed)
	}
}

// H9: queue 1 deserves 3 and runs one task of 4; queue 2 deserves 5, runs 1 and
// waits for 4. The task would leave queue 1 nothing, so it stays.
func TestSymptomH9ATaskIsNotTakenFromWhatItsQueueDeserves(t *testing.T) {
	quota := newShares(8, map[lockstep.TenantID]int{"1": 3, "2": 5})
	a := taking(t, placertest.NewReference(1, 1, 8, 0), gang.Config{Quota: quota})
	task := func(id lockstep.JobID, tenant lockstep.TenantID, gpus int) *lockstep.Gang {
		g := holder(id, 1, 0)
		g.Tenant, g.Roles[0].Demand.GPUs = tenant, gpus
		return g
	}
	submit(t, a, 0, task("four", "1", 4), task("one", "2", 1))
	step(t, a, 0)
	submit(t, a, 1, task("wants", "2", 4))
	for second := range 100 {
		require.Empty(t, step(t, a, 1+second))
		require.NoError(t, a.Submit(at(1+second), task(lockstep.JobID(fmt.Sprint("x", second)), "2", 9)), "something happens")
	}
	quota.deserved["1"] = 0 // and now it deserves nothing
	require.NoError(t, a.Reconsider(at(200)))
	got := step(t, a, 200)
	require.Equal(t, []string{"evict four reclaimed"}, summary(got))
	require.NoError(t, a.Evicted(at(201), "four", 0))
	require.Equal(t, []string{"start wants"}, summary(step(t, a, 201)))
	for second := range 100 {
		require.Empty(t, step(t, a, 202+second), "four does not come back, nor is anybody taken from again")
	}
}

// H10: 11 devices, two queues that deserve 5, each with a job of up to five members
// of two, at least two.
func TestSymptomH10ReclaimStopsAtWhatAQueueDeserves(t *testing.T) {
	quota := newShares(11, map[lockstep.TenantID]int{"1": 5, "2": 5})
	a := taking(t, placertest.NewReference(1, 1, 11, 0), gang.Config{Quota: quota})
	job := func(tenant lockstep.TenantID) *lockstep.Gang {
		g := holder(lockstep.JobID("q"+tenant), 5, 2)
		g.Tenant, g.Roles[0].Demand.GPUs = tenant, 2
		return g
	}
	submit(t, a, 0, job("1"))
	step(t, a, 0)
	require.Equal(t, 10, quota.used["1"])
	submit(t, a, 1, job("2"))
	got := step(t, a, 1)
	require.Equal(t, []string{"resize q1 reclaimed"}, summary(got))
	require.Equal(t, 4, quota.used["2"])
	require.GreaterOrEqual(t, quota.used["1"], 5)
	require.NoError(t, a.Evicted(at(2), "q1", 0))
	step(t, a, 2)
	for second := range 100 {
		require.NoError(t, a.Reconsider(at(3+second)))
		require.Empty(t, step(t, a, 3+second))
	}
}

// aged is an Orderer by age alone.
type aged struct {
	a    *gang.Admission
	list ids
}

func (o *aged) Begin(time.Time) {
	o.list = o.a.AppendJobs(nil, gang.Queued)
	slices.SortStableFunc(o.list, func(x, y lockstep.JobID) int {
		s, _ := o.a.State(x)
		u, _ := o.a.State(y)
		return s.Submitted.Compare(u.Submitted)
	})
}

func (o *aged) Next() (lockstep.JobID, bool) {
	if len(o.list) == 0 {
		return "", false
	}
	id := o.list[0]
	o.list = o.list[1:]
	return id, true
}

func (o *aged) Outcome(lockstep.JobID, lockstep.Outcome) {}

// H11: age alone orders the queue, and the older job is the victim. Whoever it made
// room for keeps that, also while the old one is back in front.
func TestSymptomH11ThePreemptorKeepsItsPlace(t *testing.T) {
	o := &aged{}
	p := placertest.NewReference(1, 2, 1, 0)
	a := admission(t, p, gang.Config{Orderer: o, Preempt: gang.PreemptOn, Hold: 30 * time.Second})
	o.a = a
	confirm := func(second int, id lockstep.JobID) {
		for rank := range 2 {
			require.NoError(t, a.Confirm(at(second), id, 0, rank))
		}
	}
	submit(t, a, 0, low("old", 2, 0, 0))
	step(t, a, 0)
	confirm(0, "old")
	step(t, a, 0)
	submit(t, a, 10, high("new", 2, 5))
	require.Equal(t, []string{"evict old preempted"}, summary(step(t, a, 10)))
	require.NoError(t, a.Evicted(at(12), "old", 0))
	require.Equal(t, []string{"reserve new"}, summary(step(t, a, 12)))
	for second := 13; second < 40; second++ {
		require.NoError(t, a.Reconsider(at(second)))
		require.Empty(t, step(t, a, second), "old is first in the order, and its room is new's")
	}
	confirm(40, "new")
	require.Equal(t, []string{"start new"}, summary(step(t, a, 40)))
	require.NoError(t, a.Finish(at(50), "new", 0))
	require.Equal(t, []string{"reserve old"}, summary(step(t, a, 50)))
}

// everybody is a Reclaimer without sense: all may take from all.
type everybody struct{ *shares }

func (e everybody) Reclaim(_ *lockstep.Gang, _ []int, out *lockstep.Candidates) {
	for _, id := range slices.Sorted(maps.Keys(e.charges)) {
		out.Jobs = append(out.Jobs, lockstep.Candidate{Job: id, Tier: int32(len(id))})
	}
}

// H9, H10, H11 and their kind: with jobs that never end in random queues, evictions
// come to an end, whatever the quota says, and also where holds lapse.
func TestSymptomH9H10H11FamilyNoLoops(t *testing.T) {
	evictions := 0
	for seed := range many(240) {
		r := rand.New(rand.NewPCG(uint64(seed), 104))
		racks, nodes, devices := 1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(3)
		total := racks * nodes * devices
		lends := newShares(total, map[lockstep.TenantID]int{"x": r.IntN(total + 1), "y": r.IntN(total + 1)})
		cfg := gang.Config{Preempt: gang.PreemptOn, StartAtOnce: seed%2 == 0, Hold: 2 * time.Second, Backoff: time.Second}
		switch seed % 4 {
		case 1:
			cfg.Quota = lends
		case 2, 3:
			cfg.Quota = everybody{lends}
		}
		w := newWorld(t, placertest.NewReference(racks, nodes, devices, 0), cfg)
		w.linger = r.IntN(3)
		w.true = nil
		jobs := 4 + r.IntN(12)
		for n := range jobs {
			g := mixed(r, n, 4)
			g.Capabilities.Preemptible = r.IntN(4) > 0
			g.Tenant, g.Walltime = lockstep.TenantID([]string{"x", "y"}[r.IntN(2)]), 0
			g.Canary = r.IntN(3)
			w.submit(r.IntN(20), g)
		}
		w.run(1000)
		late, n := 0, 0
		for _, x := range w.log {
			if x.Reason == gang.ReasonPreempted || x.Reason == gang.ReasonReclaimed {
				n++
				if seconds(x.Time) > 500 {
					late++
				}
			}
		}
		evictions += n
		require.Zero(t, late, "seed %d: %d evictions, %d of them late", seed, n, late)
		require.LessOrEqual(t, n, jobs*jobs, "seed %d", seed)
		require.Empty(t, lends.wrong, "seed %d", seed)
	}
	t.Logf("%d evictions", evictions)
	require.NotZero(t, evictions)
}

// H6, H7, H8 and their kind: no victim without need, in the domain that is chosen.
// Had any of them kept what it had, the newcomer would not have got in; and no other
// set costs less, by tier, where there are few.
func TestSymptomH6H7H8FamilyNoVictimWithoutNeed(t *testing.T) {
	checked := 0
	for seed := range many(600) {
		r := rand.New(rand.NewPCG(uint64(seed), 105))
		p := placertest.NewReference(1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(3), 0)
		a := taking(t, p, gang.Config{})
		for n := range 8 {
			g := mixed(r, n, 3)
			g.Capabilities.Preemptible = r.IntN(4) > 0
			submit(t, a, n, g)
			step(t, a, n)
		}
		require.NoError(t, cancelAll(a, 9))
		step(t, a, 9)
		w := high("w", 1+r.IntN(5), 2)
		w.Required = []lockstep.Level{"", placertest.Rack}[r.IntN(2)]
		before := p.Clone()
		submit(t, a, 10, w)
		var cuts []lockstep.Action
		for _, x := range step(t, a, 10) {
			if x.Eviction != nil && x.Eviction.For == "w" {
				cuts = append(cuts, x)
			}
		}
		for i := range cuts { // all but cuts[i]
			m := before.Mark()
			var busy []lockstep.Busy
			for k, x := range cuts {
				if k == i {
					continue
				}
				plan := before.Plan(x.Job)
				for rank, m := range plan.Members {
					if len(x.Eviction.Ranks) > 0 && !slices.Contains(x.Eviction.Ranks, rank) {
						busy = append(busy, lockstep.Busy{Node: m.Node, Devices: m.Devices})
					}
				}
				require.NoError(t, before.Release(x.Job))
			}
			var plan lockstep.Plan
			v, err := before.Fit(&lockstep.Request{Gang: w, Busy: busy}, &plan)
			require.NoError(t, err)
			require.False(t, v.Feasible, "seed %d: %s need not lose anything", seed, cuts[i].Job)
			require.NoError(t, before.Rollback(m))
			checked++
		}
	}
	require.Greater(t, checked, many(50))
}

// One thing counted twice, and its kind: many that may take room come in one pass;
// whatever each gets is its own, and nobody goes for two of them.
func TestSymptomFamilyNothingIsCountedTwice(t *testing.T) {
	for seed := range many(200) {
		r := rand.New(rand.NewPCG(uint64(seed), 106))
		p := placertest.NewReference(1+r.IntN(2), 2+r.IntN(3), 1+r.IntN(3), 0)
		total := len(p.Nodes()) * 3
		quota := newLedger(total / 2)
		cfg := gang.Config{Preempt: gang.PreemptOn}
		if seed%2 == 0 {
			cfg.Quota = quota
		}
		w := newWorld(t, p, cfg)
		w.linger = r.IntN(4)
		for n := range 10 {
			g := low(lockstep.JobID(fmt.Sprintf("l%02d", n)), 1+r.IntN(3), 0, 0)
			w.submit(0, g)
		}
		for n := range 8 {
			g := mixed(r, n, 4)
			g.Priority += 1
			w.submit(10, g)
		}
		w.run(40)
		gone := map[lockstep.JobID]lockstep.JobID{}
		for _, x := range w.log {
			if x.Eviction == nil || seconds(x.Time) != 10 {
				continue
			}
			require.NotContains(t, gone, x.Job, "seed %d", seed)
			gone[x.Job] = x.Eviction.For
		}
		taken := map[lockstep.NodeID]lockstep.DeviceSet{}
		for _, id := range p.Jobs() {
			for _, m := range p.Plan(id).Members {
				require.Zero(t, taken[m.Node]&m.Devices, "seed %d", seed)
				taken[m.Node] |= m.Devices
			}
		}
		require.Empty(t, quota.wrong)
	}
}

// Room counted as free while its holder still ends, and its kind: however long
// victims take to leave, nobody starts where one still is. The world holds each start
// to that.
func TestSymptomFamilyNobodyStartsWhereAnotherStillEnds(t *testing.T) {
	taken := 0
	for seed := range many(200) {
		r := rand.New(rand.NewPCG(uint64(seed), 107))
		w := newWorld(t, placertest.NewReference(1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(4), 0), gang.Config{Preempt: gang.PreemptOn, StartAtOnce: r.IntN(2) == 0})
		w.linger = 1 + r.IntN(10)
		for n := range 30 {
			g := mixed(r, n, 4)
			g.Capabilities.Preemptible = r.IntN(5) > 0
			if r.IntN(3) == 0 {
				g.Roles[0].Spares = r.IntN(2)
			}
			w.submit(r.IntN(60), g)
		}
		w.run(400)
		for _, x := range w.log {
			if x.Eviction != nil {
				taken++
			}
		}
	}
	require.NotZero(t, taken)
}

// H16 and its kind: whatever comes, and comes for ever, the first in the order that
// has quota starts, with and without preemption.
func TestSymptomH16FamilyTheHeadStarts(t *testing.T) {
	for seed := range many(100) {
		r := rand.New(rand.NewPCG(uint64(seed), 108))
		nodes, devices := 2+r.IntN(3), 1+r.IntN(3)
		w := newWorld(t, placertest.NewReference(2, nodes, devices, 0), gang.Config{
			StartAtOnce: true, Preempt: []gang.Preempt{gang.PreemptOff, gang.PreemptOn}[seed%2],
		})
		for n := range 400 {
			g := plain(lockstep.JobID(fmt.Sprintf("s%03d", n)), 1+r.IntN(2), r.IntN(2)*9)
			g.Capabilities.Preemptible = r.IntN(2) == 0
			w.true[g.ID] = 3 + r.IntN(8)
			w.submit(n/4, g)
		}
		big := high("big", nodes*devices, lockstep.Priority(r.IntN(2)))
		if r.IntN(2) == 0 {
			big.Required = placertest.Rack
		}
		w.true["big"] = 10
		w.submit(2, big)
		w.run(99)
		require.Len(t, w.starts["big"], 1, "seed %d", seed)
	}
}

// H17 and its kind: whoever comes first in the order has the reservation, at every
// time, and one that ends frees what it kept.
func TestSymptomH17FamilyReservationsGoToTheHighest(t *testing.T) {
	for seed := range many(150) {
		r := rand.New(rand.NewPCG(uint64(seed), 109))
		w := newWorld(t, placertest.NewReference(1, 4, 2, 0), gang.Config{StartAtOnce: true})
		gangs := map[lockstep.JobID]*lockstep.Gang{}
		for n := range 25 {
			g := plain(lockstep.JobID(fmt.Sprintf("j%02d", n)), 1+r.IntN(8), 1+r.IntN(15))
			g.Priority = lockstep.Priority(r.IntN(4))
			gangs[g.ID] = g
			second := r.IntN(40)
			w.submit(second, g)
		}
		for second := range 60 {
			w.run(second)
			queued := w.a.AppendJobs(nil, gang.Queued)
			slices.SortFunc(queued, func(x, y lockstep.JobID) int {
				s, _ := w.a.State(x)
				u, _ := w.a.State(y)
				return cmp.Or(cmp.Compare(gangs[y].Priority, gangs[x].Priority), s.Submitted.Compare(u.Submitted), cmp.Compare(x, y))
			})
			for i, id := range queued {
				f, ok := w.a.Forecast(id)
				require.Equal(t, i == 0, ok, "seed %d at %d: %s", seed, second, id)
				require.Equal(t, ok, len(f.Members) == gangs[id].MinMembers())
			}
		}
	}
}
