package deadline

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// mustBy is how many slots a job must have had by slot d, counted one by one.
func mustBy(w want, d int) (slots int) {
	return max(w.need-max(w.have-d, 0), 0)
}

// TestImpossibleIsTheSumSlotBySlot holds the sweep against the sum at each slot.
func TestImpossibleIsTheSumSlotBySlot(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	said := 0
	for range 3000 {
		first, capacity := r.IntN(2), 1+r.IntN(8)
		wants := make([]want, r.IntN(6))
		for i := range wants {
			wants[i] = want{1 + r.IntN(capacity), r.IntN(5), r.IntN(9)}
		}
		plain := false
		for d := first; d <= 9; d++ {
			work, wide := 0, 0
			for _, w := range wants {
				plain = plain || w.need > max(w.have-first, 0)
				work += mustBy(w, d) * w.gpus
				if 2*w.gpus > capacity {
					wide += mustBy(w, d)
				}
			}
			plain = plain || work > (d-first)*capacity || wide > d-first
		}
		if plain {
			said++
		}
		require.Equal(t, plain, impossible(wants, first, capacity), "%v first %d capacity %d", wants, first, capacity)
	}
	require.NotZero(t, said)
}

// TestElasticAdmitsBesideAJobThatHasJustEnded: one whose plan ended at its very deadline and that waits for Finish takes
// nothing from those who come.
func TestElasticAdmitsBesideAJobThatHasJustEnded(t *testing.T) {
	start := time.Unix(1_800_000_000, 0)
	e, err := NewElastic(4)
	require.NoError(t, err)
	one := []Point{{1, 1}, {2, 2}, {4, 4}}
	d, err := e.Admit(start, ElasticJob{ID: "ends", Left: 400, Points: one, Deadline: start.Add(100 * time.Second)})
	require.NoError(t, err)
	require.True(t, d.Feasible)
	d, err = e.Admit(start, ElasticJob{ID: "waits", Left: 400, Points: one, Deadline: start.Add(400 * time.Second)})
	require.NoError(t, err)
	require.True(t, d.Feasible)
	now := start.Add(100 * time.Second)
	// Shares of "waits" may grow to make room only if all are planned anew.
	d, err = e.Admit(now, ElasticJob{ID: "comes", Left: 400, Points: one, Deadline: now.Add(150 * time.Second)})
	require.NoError(t, err)
	require.True(t, d.Feasible, "%+v", d)
}

// TestTheLastSlotNeedNotBeWhole: a job that ends in the middle of a slot, before its deadline in it, is in time.
func TestTheLastSlotNeedNotBeWhole(t *testing.T) {
	admit := func(table *Table, id lockstep.JobID, remaining, deadline time.Duration) Decision {
		d, err := table.Admit(t0, Job{ID: id, GPUs: 2, Remaining: remaining, Deadline: t0.Add(deadline)})
		require.NoError(t, err)
		return d
	}
	table := newTable(t, Config{GPUs: 2, Lease: 20 * time.Minute, Origin: t0})
	d := admit(table, "a", 30*time.Minute, 30*time.Minute)
	require.True(t, d.Feasible)
	require.Equal(t, []int{2, 1}, []int{d.Need, d.Have})
	d = admit(table, "b", 10*time.Minute, 50*time.Minute-1)
	require.Equal(t, NoCapacity, d.Reason)
	require.Equal(t, t0.Add(50*time.Minute), d.Earliest)
	require.True(t, admit(table, "b", 10*time.Minute, 50*time.Minute).Feasible)
	d = admit(table, "c", 30*time.Minute, 30*time.Minute-1)
	require.Equal(t, TooLate, d.Reason)

	// It runs ahead and then needs more of its last slot than before, so that it has to be an earlier one.
	table = newTable(t, Config{GPUs: 2, Lease: 20 * time.Minute, Origin: t0})
	require.True(t, admit(table, "d", 25*time.Minute, 45*time.Minute).Feasible)
	slots, _ := table.Planned("d")
	require.Equal(t, []time.Time{t0.Add(20 * time.Minute), t0.Add(40 * time.Minute)}, slots)
	slot, err := table.Step(t0.Add(10 * time.Minute)) // late, so that it runs for ten minutes
	require.NoError(t, err)
	require.Equal(t, []lockstep.JobID{"d"}, slot.Run)
	slot, err = table.Step(t0.Add(20 * time.Minute))
	require.NoError(t, err)
	require.Empty(t, slot.AtRisk)
	require.Equal(t, []lockstep.JobID{"d"}, slot.Run)
	slots, _ = table.Planned("d")
	require.Empty(t, slots, "it ends in this slot, after 15 minutes")
}
