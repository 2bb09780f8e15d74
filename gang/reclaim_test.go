package gang_test

import (
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

// of is g as a gang of tenant.
func of(tenant lockstep.TenantID, g *lockstep.Gang) *lockstep.Gang {
	g.Tenant = tenant
	return g
}

func TestQuotaIsTakenBackAlsoWhereThereIsRoom(t *testing.T) {
	quota := newShares(8, map[lockstep.TenantID]int{"x": 4, "y": 4})
	p := placertest.NewReference(1, 3, 4, 0)
	a := taking(t, p, gang.Config{Quota: quota})
	submit(t, a, 0, of("y", low("a", 4, 0, 0)), of("y", low("b", 2, 0, 1)))
	step(t, a, 0)
	submit(t, a, 5, of("y", low("c", 2, 0, 0)))
	require.Equal(t, []string{"start c"}, summary(step(t, a, 5)))
	submit(t, a, 10, of("x", high("w", 2, 0)))
	got := step(t, a, 10)
	require.Equal(t, []string{"start w", "evict a reclaimed"}, summary(got), "the first that the quota names goes; w has room beside it and waits for nobody")
	require.Equal(t, 2, quota.used["x"])
	require.Equal(t, 4, quota.used["y"])
	require.Empty(t, quota.wrong)
}

// Who was chosen for its room is let go of where whoever is taken from for quota
// leaves room enough, also where the limits allow only one of them.
func TestQuotaAndRoomOfTheSameVictim(t *testing.T) {
	for deserved := range 3 {
		quota := newShares(6, map[lockstep.TenantID]int{"x": 4, "y": deserved})
		a := taking(t, placertest.NewReference(1, 2, 4, 0), gang.Config{Quota: quota, Cost: costs{"c": {}}})
		member := func(id lockstep.JobID, gpus int) *lockstep.Gang {
			g := of("y", low(id, 1, 0, 0))
			g.Roles[0].Demand.GPUs = gpus
			return g
		}
		submit(t, a, 0, member("a", 4))
		step(t, a, 0)
		submit(t, a, 1, member("c", 2))
		step(t, a, 1)
		w := of("x", member("w", 4))
		submit(t, a, 2, w)
		require.Equal(t, []string{"evict a reclaimed"}, summary(step(t, a, 2)), "c would make room, but not quota enough")
		require.Equal(t, map[lockstep.TenantID]int{"x": 4, "y": 2}, quota.used)
	}
}

func TestLimitsHoldAlsoWhereOnlyQuotaIsWanted(t *testing.T) {
	quota := newShares(6, map[lockstep.TenantID]int{"x": 4, "y": 3})
	a := taking(t, placertest.NewReference(1, 4, 4, 0), gang.Config{Quota: quota})
	submit(t, a, 0, of("y", low("a", 4, 0, 0)), of("y", low("b", 2, 0, 0)))
	step(t, a, 0)
	submit(t, a, 1, of("x", high("w", 2, 0)))
	require.Equal(t, []string{"evict b reclaimed"}, summary(step(t, a, 1)), "a is more than may be taken")
	submit(t, a, 2, of("x", high("v", 2, 0)))
	require.Empty(t, step(t, a, 2), "y has 4, of which one may be taken")
}

func TestWithoutAReclaimerAQuotaSharesWithinATenantOnly(t *testing.T) {
	quota := newLedger(2)
	a := taking(t, placertest.NewReference(1, 4, 1, 0), gang.Config{Quota: quota})
	submit(t, a, 0, of("x", low("a", 2, 0, 0)), of("y", low("b", 2, 0, 0)))
	step(t, a, 0)
	submit(t, a, 1, of("z", high("w", 2, 9)))
	require.Empty(t, step(t, a, 1), "others' devices are others' quota")
	require.NoError(t, a.Cancel(at(2), "w"))
	submit(t, a, 2, of("x", high("v", 1, 1)))
	require.Equal(t, []string{"evict a preempted"}, summary(step(t, a, 2)), "its own tenant's is enough, in room and quota")
	require.Empty(t, quota.wrong)
}

// Whatever is taken for want of quota or room is needed: had any victim kept what
// it had, the gang would have lacked one or the other. And no tenant gets less by
// reclaim than it deserves.
func TestNobodyLosesQuotaWithoutNeed(t *testing.T) {
	checked := 0
	for seed := range many(1500) {
		r := rand.New(rand.NewPCG(uint64(seed), 111))
		p := placertest.NewReference(1+r.IntN(2), 1+r.IntN(2), 2+r.IntN(3), 0)
		total := 2 + r.IntN(8)
		deserved := map[lockstep.TenantID]int{"x": r.IntN(total), "y": 0}
		deserved["y"] = (total - deserved["x"]) / 2
		quota := newShares(total, deserved)
		a := taking(t, p, gang.Config{Quota: quota})
		gangs := map[lockstep.JobID]*lockstep.Gang{}
		for n := range 8 {
			g := of([]lockstep.TenantID{"x", "y", "z"}[r.IntN(3)], mixed(r, n, 3))
			g.Capabilities.Preemptible = r.IntN(5) > 0
			gangs[g.ID] = g
			submit(t, a, n, g)
			step(t, a, n)
		}
		require.NoError(t, cancelAll(a, 9))
		step(t, a, 9)
		w := of([]lockstep.TenantID{"x", "y"}[r.IntN(2)], high("w", 1+r.IntN(4), 2))
		submit(t, a, 10, w)
		before, charges := p.Clone(), maps.Clone(quota.charges)
		for _, id := range a.AppendJobs(nil, gang.Leaving, gang.Resizing, gang.Awaiting, gang.Moving) {
			delete(charges, id)
		}
		if len(charges) != len(quota.charges) {
			continue
		}
		var cuts []lockstep.Action
		for _, x := range step(t, a, 10) {
			if x.Eviction != nil && x.Eviction.For == "w" {
				cuts = append(cuts, x)
			}
			if x.Reason == gang.ReasonReclaimed {
				require.GreaterOrEqual(t, quota.used[gangs[x.Job].Tenant], min(deserved[gangs[x.Job].Tenant], total), "seed %d", seed)
			}
		}
		require.Empty(t, quota.wrong, "seed %d", seed)
		for i := range cuts {
			again := newShares(total, deserved)
			m := before.Mark()
			var busy []lockstep.Busy
			for _, id := range slices.Sorted(maps.Keys(charges)) {
				k := slices.IndexFunc(cuts, func(x lockstep.Action) bool { return x.Job == id })
				if k < 0 || k == i {
					require.NoError(t, again.Charge(gangs[id], charges[id].counts))
					continue
				}
				plan, x := before.Plan(id), cuts[k].Eviction
				require.NoError(t, before.Release(id))
				if len(x.Ranks) == 0 {
					continue
				}
				counts := slices.Clone(charges[id].counts)
				for rank, m := range plan.Members {
					if slices.Contains(x.Ranks, rank) {
						counts[m.Role]--
					} else {
						busy = append(busy, lockstep.Busy{Node: m.Node, Devices: m.Devices})
					}
				}
				require.NoError(t, again.Charge(gangs[id], counts))
			}
			var plan lockstep.Plan
			v, err := before.Fit(&lockstep.Request{Gang: w, Busy: busy}, &plan)
			require.NoError(t, err)
			require.False(t, v.Feasible && again.Check(w, []int{w.Roles[0].Min}).Feasible, "seed %d: %s need not lose anything", seed, cuts[i].Job)
			require.NoError(t, before.Rollback(m))
			checked++
		}
	}
	t.Logf("%d victims", checked)
	require.Greater(t, checked, many(100))
}

// A gang that waits for quota, not for room, keeps nothing from those behind it, with
// preemption as without.
func TestWantOfQuotaBlocksNobodyWhereRoomIsTaken(t *testing.T) {
	quota := newShares(4, map[lockstep.TenantID]int{"x": 2, "y": 2})
	a := taking(t, placertest.NewReference(1, 4, 1, 0), gang.Config{Quota: quota})
	submit(t, a, 0, of("x", high("a", 2, 5)), of("y", high("b", 1, 5)))
	step(t, a, 0)
	submit(t, a, 1, of("x", high("w", 1, 9)))
	require.Equal(t, []string{"start w"}, summary(step(t, a, 1)), "borrowed")
	submit(t, a, 2, of("x", high("v", 1, 9)))
	submit(t, a, 3, of("y", plain("c", 1, 10)))
	require.Empty(t, step(t, a, 3), "w gives nothing back: it bears nothing")
	require.NoError(t, a.Finish(at(4), "w", 0))
	require.Equal(t, []string{"start v"}, summary(step(t, a, 4)))
	_, ok := a.Forecast("v")
	require.False(t, ok)
}

// Storms of tenants that borrow and take back: the sum of all charges never exceeds
// what there is, at no moment, and everything comes to rest.
func TestTheSumOfChargesNeverExceeds(t *testing.T) {
	reclaimed := 0
	for seed := range many(150) {
		r := rand.New(rand.NewPCG(uint64(seed), 112))
		nodes, devices := 1+r.IntN(4), 1+r.IntN(4)
		total := max(nodes*devices-r.IntN(2), 1)
		x := r.IntN(total + 1)
		quota := newShares(total, map[lockstep.TenantID]int{"x": x, "y": total - x})
		w := newWorld(t, placertest.NewReference(1, nodes, devices, 0), gang.Config{
			Preempt: gang.PreemptOn, Quota: quota, StartAtOnce: r.IntN(2) == 0, Hold: 2 * time.Second, MaxVictims: r.IntN(4),
		})
		w.linger = r.IntN(4)
		for n := range 40 {
			g := of([]lockstep.TenantID{"x", "y"}[r.IntN(2)], mixed(r, n, 4))
			g.Capabilities.Preemptible = r.IntN(4) > 0
			if r.IntN(4) == 0 {
				g.Canary = 1
			}
			w.submit(r.IntN(80), g)
		}
		w.run(1000)
		require.Empty(t, quota.wrong, "seed %d", seed)
		require.Empty(t, quota.charges, fmt.Sprint("seed ", seed))
		for _, x := range w.log {
			if x.Reason == gang.ReasonReclaimed {
				reclaimed++
			}
		}
	}
	t.Logf("%d reclaimed", reclaimed)
	require.NotZero(t, reclaimed)
}
