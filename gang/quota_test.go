package gang_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness/quota"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// summed is a quota.Quota that checks the sum of its charges.
type summed struct {
	*quota.Quota
	most    int64
	used    int64
	charges map[lockstep.JobID]int64
	wrong   bool
}

func (s *summed) Charge(g *lockstep.Gang, counts []int) error {
	n := int64(g.GPUs(counts))
	s.charges[g.ID] = n
	s.used += n
	s.wrong = s.wrong || s.used > s.most
	return s.Quota.Charge(g, counts)
}

func (s *summed) Refund(id lockstep.JobID) error {
	s.used -= s.charges[id]
	delete(s.charges, id)
	return s.Quota.Refund(id)
}

// With package quota's tree of queues, which lend and take back: the sum never
// exceeds the capacity, reclaim leaves a queue what it deserves, jobs that never end
// come to rest, and when they do end everybody has had a turn.
func TestQueuesThatLendTakeBackWhatIsTheirs(t *testing.T) {
	reclaimed, preempted := 0, 0
	for seed := range many(200) {
		r := rand.New(rand.NewPCG(uint64(seed), 151))
		racks, nodes, devices := 1+r.IntN(2), 1+r.IntN(3), 1+r.IntN(3)
		total := int64(lockstep.WholeGPU) * int64(racks*nodes*devices)
		gpus := func(n int64) lockstep.Resources { return lockstep.Resources{lockstep.ResourceGPU: n} }
		half := total / 2000 * 1000
		q, err := quota.New(quota.Config{Capacity: gpus(total), Queues: []quota.Queue{
			{Name: "prod", Weight: 1, Nominal: gpus(half)},
			{Name: "dev", Weight: 1, NotReclaimable: r.IntN(3) == 0},
			{Name: "x", Parent: "dev", Weight: 2},
			{Name: "y", Parent: "dev", Weight: 1},
		}})
		require.NoError(t, err)
		s := &summed{Quota: q, most: total, charges: map[lockstep.JobID]int64{}}
		w := newWorld(t, placertest.NewReference(racks, nodes, devices, 0), gang.Config{
			Preempt: gang.PreemptOn, Quota: s, StartAtOnce: r.IntN(2) == 0, Hold: 2 * time.Second, Backoff: time.Second,
		})
		w.linger = r.IntN(3)
		ends := seed%2 == 0
		for n := range 18 {
			g := mixed(r, n, 4)
			g.Queue = []lockstep.QueueID{"prod", "x", "y"}[r.IntN(3)]
			g.Capabilities.Preemptible = r.IntN(4) > 0
			if !ends {
				g.Walltime = 0
			}
			w.submit(r.IntN(30), g)
		}
		w.run(1000)
		require.False(t, s.wrong, "seed %d", seed)
		late := 0
		for _, x := range w.log {
			switch x.Reason {
			case gang.ReasonReclaimed:
				reclaimed++
			case gang.ReasonPreempted:
				preempted++
			default:
				continue
			}
			if seconds(x.Time) > 500 {
				late++
			}
		}
		require.Zero(t, late, "seed %d", seed)
		for _, id := range w.a.AppendJobs(nil, gang.Queued) {
			st, _ := w.a.State(id)
			require.True(t, !ends || st.Verdict.Reason == lockstep.ReasonCapacity || st.Verdict.Reason == lockstep.ReasonQuota, "seed %d: %s: %v", seed, id, st.Verdict)
		}
	}
	t.Logf("%d reclaimed, %d preempted", reclaimed, preempted)
	require.NotZero(t, reclaimed)
	require.NotZero(t, preempted)
}
