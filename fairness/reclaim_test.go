package fairness

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// TestReclaimNeverSwapsBack runs queues at random for hundreds of steps. Whenever
// somebody reclaims, nobody that lost a job to it may take one of its jobs in the
// same instant, and however often all of them try, they come to rest.
func TestReclaimNeverSwapsBack(t *testing.T) { // invariant 7
	swaps, guests := 0, 0
	both(t, 27, func(t *testing.T, seed int, cfg Config, src *source) {
		r := rand.New(rand.NewPCG(uint64(seed), 9))
		cfg.Horizon = time.Minute
		l := start(t, cfg)
		tenants := 2 + r.IntN(4)
		for i := range tenants {
			require.NoError(t, l.Join(epoch, lockstep.TenantID(fmt.Sprint("t", i)), int64(r.IntN(4))))
		}
		now, held := epoch, lockstep.MilliGPU(0)
		for step := range 600 / tenants {
			now = now.Add(time.Duration(r.IntN(600)) * time.Second)
			id := lockstep.JobID(fmt.Sprint("j", step))
			require.NoError(t, l.Submit(now, id, lockstep.TenantID(fmt.Sprint("t", r.IntN(tenants))), lockstep.MilliGPU(1+r.IntN(4))*1000))
			if r.IntN(3) == 0 {
				if fit := suits(l, EventStop); len(fit) > 0 {
					done := pick(r, fit)
					held -= l.jobs[done].grant
					require.NoError(t, l.Finish(now, done))
					require.NoError(t, l.Forget(done))
				}
			}
			for _, id := range suits(l, EventStop) {
				if r.IntN(4) == 0 {
					require.NoError(t, l.Due(id)) // its term is over
				}
			}
			rounds := 0
			for again := true; again; rounds++ {
				require.Less(t, rounds, 100, "seed %d: they never come to rest", seed)
				again = false
				for _, id := range suits(l, EventStart) {
					j := l.jobs[id]
					short := j.demand - (cfg.Capacity - held)
					if short <= 0 {
						grant := j.demand
						if r.IntN(4) == 0 {
							grant -= 500 // less than it asks for
						}
						require.NoError(t, l.Start(now, id, grant))
						held += grant
						continue
					}
					victims, err := l.AppendReclaim(nil, now, id, short)
					require.NoError(t, err)
					sum := lockstep.MilliGPU(0)
					for _, v := range victims {
						require.NotEqual(t, j.tenant, l.jobs[v].tenant)
						sum += l.jobs[v].grant
					}
					if sum < short {
						continue
					}
					for _, v := range victims {
						require.NoError(t, l.Stop(now, v))
					}
					require.NoError(t, l.Start(now, id, j.demand))
					held += j.demand - sum
					swaps++
					again = true
					for _, v := range victims {
						back, err := l.AppendReclaim(nil, now, v, l.jobs[v].demand)
						require.NoError(t, err)
						require.NotContains(t, back, id, "seed %d step %d: %s would take back from %s", seed, step, v, id)
						if l.jobs[v].tenant.weight == 0 && j.tenant.weight != 0 {
							guests++
						}
					}
				}
			}
		}
	})
	require.Positive(t, swaps)
	require.Positive(t, guests)
	t.Log(swaps, "swaps,", guests, "of them from tenants without weight")
}

func TestReclaimByHand(t *testing.T) {
	l := start(t, Config{Capacity: 8000, Horizon: time.Minute})
	for _, id := range []lockstep.TenantID{"greedy", "fair", "new"} {
		require.NoError(t, l.Join(epoch, id, 1))
	}
	for i := range 6 {
		id := lockstep.JobID(fmt.Sprint("g", i))
		require.NoError(t, l.Submit(epoch.Add(time.Duration(i)), id, "greedy", 1000))
		require.NoError(t, l.Start(epoch.Add(time.Duration(i)), id, 1000))
	}
	require.NoError(t, l.Submit(epoch.Add(time.Second), "f", "fair", 2000))
	require.NoError(t, l.Start(epoch.Add(time.Second), "f", 2000))
	now := epoch.Add(10 * time.Second)
	require.NoError(t, l.Submit(now, "n", "new", 3000))

	got, err := l.AppendReclaim(nil, now, "n", 2000)
	require.NoError(t, err)
	require.Equal(t, []lockstep.JobID{"g5", "g4"}, got, "of the tenant that got most its last jobs, and no more than needed")
	_, err = l.AppendReclaim(nil, now, "f", 1)
	require.ErrorIs(t, err, lockstep.ErrConflict)
	_, err = l.AppendReclaim(nil, now, "x", 1)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	_, err = l.AppendReclaim(nil, epoch, "n", 1)
	require.ErrorIs(t, err, lockstep.ErrPast)
	got, err = l.AppendReclaim(nil, now, "n", 100_000)
	require.NoError(t, err)
	require.NotContains(t, got, lockstep.JobID("f"), "it would want it back")
	require.Less(t, len(got), 6, "the greedy one keeps what it may have")
}

// TestReclaimDoesNotDependOnPasses: what was proposed before has no part in it, and
// with a half-life neither has how far an earlier pass looked.
func TestReclaimDoesNotDependOnPasses(t *testing.T) {
	found := 0
	both(t, 300, func(t *testing.T, seed int, cfg Config, src *source) {
		l := start(t, cfg)
		log := record(t, l, src, 120)
		fresh := start(t, cfg)
		play(t, fresh, log)
		drain(l, src.now.Add(time.Second), always(lockstep.Granted))
		now := src.now.Add(time.Hour)
		for _, id := range suits(l, EventStart) {
			want, err := fresh.AppendReclaim(nil, now, id, 64000)
			require.NoError(t, err)
			got, err := l.AppendReclaim(nil, now, id, 64000)
			require.NoError(t, err)
			require.Equal(t, want, got, "seed %d", seed)
			found += len(got)
		}
	})
	require.Positive(t, found)
}
