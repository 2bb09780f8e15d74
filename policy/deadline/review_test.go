package deadline

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
