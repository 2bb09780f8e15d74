package gang_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// Ten devices; A holds 6 until 10; then B(8g,5) C(4g,8) D(2g,20) E(4g,12). B is
// to start at 10 and leaves two devices over, which D may have for longer.
func TestEASYStartsTheOracle(t *testing.T) {
	for _, tc := range []struct {
		name string
		d    int
		want map[lockstep.JobID]int
	}{
		{"two devices beside the reservation", 2, map[lockstep.JobID]int{"A": 0, "B": 10, "C": 0, "D": 8, "E": 15}},
		{"three would delay it", 3, map[lockstep.JobID]int{"A": 0, "B": 10, "C": 0, "D": 15, "E": 15}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, placertest.NewReference(1, 10, 1, 0), gang.Config{StartAtOnce: true})
			w.submit(0, plain("A", 6, 10))
			w.run(0)
			w.submit(0, plain("B", 8, 5), plain("C", 4, 8), plain("D", tc.d, 20), plain("E", 4, 12))
			w.run(0)
			start, ok := forecast(w.a, "B")
			require.True(t, ok)
			require.Equal(t, 10, seconds(start))
			w.run(100)
			for id, want := range tc.want {
				require.Equal(t, []int{want}, w.starts[id], id)
			}
		})
	}
}

// Jobs that come at one instant are decided alike in whatever order they are
// submitted.
func TestTheOrderOfSubmissionAtOneInstantDoesNotMatter(t *testing.T) {
	var first []lockstep.Action
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(1, 1))
		var gangs []*lockstep.Gang
		for n := range 30 {
			g := randomPlain(r, n, 8)
			g.Priority = lockstep.Priority(r.IntN(2))
			gangs = append(gangs, g)
		}
		rand.New(rand.NewPCG(seed, 2)).Shuffle(len(gangs), func(i, k int) { gangs[i], gangs[k] = gangs[k], gangs[i] })
		w := newWorld(t, placertest.NewReference(2, 2, 2, 0), gang.Config{StartAtOnce: true})
		w.submit(0, gangs...)
		w.run(1000)
		for i := range w.log {
			w.log[i].Plan = &lockstep.Plan{Members: w.log[i].Plan.Members}
		}
		if first == nil {
			first = w.log
		}
		require.Equal(t, first, w.log)
	}
	require.Greater(t, len(first), 20)
}
