package scheduler

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// naive is what one job deserved and got, by the definition: added up for every
// interval between two events.
type naive struct {
	tenant   int
	amount   int64
	deserved int64
	used     int64
	run      int64 // it has run
	stall    int64 // it has still to restore
	running  bool
	stopped  bool
}

// pass lets time go by for all.
func pass(jobs map[lockstep.JobID]*naive, quota []int64, d int64) {
	live := make([]int64, len(quota))
	for _, j := range jobs { // a count, so the order does not matter
		live[j.tenant]++
	}
	for _, j := range jobs { // each by itself, so the order does not matter
		j.deserved += min(j.amount, quota[j.tenant]/live[j.tenant]) * d
		if j.running {
			work := max(d-j.stall, 0)
			j.stall -= d - work
			j.run += work
			j.used += j.amount * work
		}
	}
}

// TestRationsAreWhatTheDefinitionSays runs random jobs of tenants that join,
// change weight and see the cluster change, and compares every job's account with
// sums over all intervals, at times at which nothing happens as well.
func TestRationsAreWhatTheDefinitionSays(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newRations(lockstep.WholeGPU.Mul(64))
		weights, quota := []int64{1, 2, 5}, make([]int64, 3)
		divide := func() {
			for i, w := range weights {
				quota[i] = int64(r.capacity) * w / (weights[0] + weights[1] + weights[2])
			}
		}
		now := int64(1_000_000)
		for i, w := range weights {
			r.join(now, tenantID(i), w)
		}
		divide()
		jobs := map[lockstep.JobID]*naive{}
		var ids []lockstep.JobID
		for n := range 400 {
			d := rng.Int64N(5000)
			pass(jobs, quota, d)
			now += d
			pick := func() (lockstep.JobID, *naive) {
				id := ids[rng.IntN(len(ids))]
				return id, jobs[id]
			}
			switch op := rng.IntN(8); {
			case op < 2 || len(ids) == 0:
				id, tenant, gpus := lockstep.JobID(fmt.Sprint("j", n)), rng.IntN(3), 1+rng.IntN(12)
				g := &lockstep.Gang{ID: id, Tenant: tenantID(tenant), Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: gpus}}}}
				g.Capabilities.Restore = 3 * time.Second
				r.submit(now, r.tenants[g.Tenant], g, g.GPUs(nil))
				jobs[id] = &naive{tenant: tenant, amount: int64(gpus) * 1000}
				ids = append(ids, id)
			case op < 4:
				id, j := pick()
				if !j.running {
					r.jobs[id].start(now)
					j.running, j.stall = true, 0
					if j.stopped {
						j.stall = 3000
					}
				}
			case op == 4:
				id, j := pick()
				if j.running {
					r.jobs[id].stop(now)
					j.running, j.stopped = false, true
				}
			case op == 5:
				id, j := pick()
				j.amount = int64(1+rng.IntN(12)) * 1000
				r.jobs[id].resize(now, lockstep.MilliGPU(j.amount))
			case op == 6 && rng.IntN(2) == 0:
				i := rng.IntN(3)
				weights[i] = rng.Int64N(6) + 1
				r.join(now, tenantID(i), weights[i])
				divide()
			case op == 6:
				r.capacity = lockstep.WholeGPU.Mul(rng.Int64N(100))
				r.divide(now)
				divide()
			default:
				id, _ := pick()
				r.finish(now, r.jobs[id])
				delete(jobs, id)
				for k := range ids {
					if ids[k] == id {
						ids = append(ids[:k], ids[k+1:]...)
						break
					}
				}
			}
			for _, id := range ids {
				checkRation(t, r.jobs[id], jobs[id], quota, jobs, now)
			}
		}
	}
}

func tenantID(i int) lockstep.TenantID { return lockstep.TenantID(rune('a' + i)) }

// checkRation compares an account, what is expected of it, and when that falls
// below a floor, with the same from sums.
func checkRation(t *testing.T, j *ration, want *naive, quota []int64, jobs map[lockstep.JobID]*naive, now int64) {
	require.Equal(t, uint64(want.deserved), j.deserved(now))
	live := int64(0)
	for _, o := range jobs { // a count, so the order does not matter
		if o.tenant == want.tenant {
			live++
		}
	}
	const q = 7000
	rate := min(want.amount, quota[want.tenant]/live)
	stay := int64(q)
	if !want.running && want.stopped {
		stay += 3000
	}
	service, deserved := want.used+want.amount*q, want.deserved+rate*stay
	if deserved > 0 {
		e := new(big.Int).Div(new(big.Int).Mul(big.NewInt(service), big.NewInt(millionth)), big.NewInt(deserved))
		require.Equal(t, e.Int64(), j.expected(now, q))
	}
	if want.running {
		return
	}
	const floor = 450_000
	at, ok := j.urgentAt(now, q, floor)
	if !ok {
		require.Zero(t, rate)
		return
	}
	require.Less(t, j.expected(at, q), int64(floor))
	if at > now {
		require.GreaterOrEqual(t, j.expected(at-1, q), int64(floor))
	}
}

func TestARationStaysAtTheEndOf64Bits(t *testing.T) {
	r := newRations(lockstep.MilliGPU(1 << 62))
	p := r.join(0, "a", 1<<32)
	g := &lockstep.Gang{ID: "j", Tenant: "a", Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 1}}}}
	j := r.submit(0, p, g, lockstep.MilliGPU(1<<62))
	j.start(0)
	for _, now := range []int64{1, 1 << 40, 1 << 60} {
		require.NotPanics(t, func() { j.expected(now, 1<<60) })
		_, _ = j.urgentAt(now, 1<<60, maxFloor)
	}
	none := r.join(0, "none", 0)
	idle := r.submit(0, none, &lockstep.Gang{ID: "k", Tenant: "none"}, lockstep.WholeGPU)
	_, ok := idle.urgentAt(1<<40, 1, maxFloor)
	require.False(t, ok, "who deserves nothing is never urgent")
}
