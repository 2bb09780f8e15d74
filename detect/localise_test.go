package detect

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestOutliersStandOutFromTheirPeers(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 200 {
		replicas, stages := 2+rng.IntN(5), 3+rng.IntN(4)
		observed, expected := make([]time.Duration, replicas*stages), make([]time.Duration, replicas*stages)
		bad := rng.IntN(len(observed))
		bias := make([]float64, stages) // what the model has wrong
		for s := range bias {
			bias[s] = 0.5 + rng.Float64()
		}
		for i := range observed {
			expected[i] = time.Duration(1e6 * (1 + rng.Float64()))
			x := float64(expected[i]) * bias[i%stages] * (1 + 0.004*(rng.Float64()-0.5))
			if i == bad {
				x *= 1.2
			}
			observed[i] = time.Duration(x)
		}
		got, err := AppendOutliers(nil, observed, expected, replicas)
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, bad, got[0].Replica*stages+got[0].Stage)
		require.InDelta(t, 1.2, got[0].Factor, 0.01)
		observed[bad] = 0
		got, err = AppendOutliers(nil, observed, expected, replicas)
		require.NoError(t, err)
		require.Empty(t, got, "an unknown place is not guessed at")
	}
}

func TestOneReplicaHasNoPeers(t *testing.T) {
	got, err := AppendOutliers(nil, []time.Duration{1, 9}, []time.Duration{1, 1}, 1)
	require.NoError(t, err)
	require.Empty(t, got)
	for _, tc := range []struct {
		observed, expected []time.Duration
		replicas           int
	}{
		{nil, nil, 1},
		{make([]time.Duration, 3), make([]time.Duration, 3), 2},
		{make([]time.Duration, 2), make([]time.Duration, 3), 2},
		{[]time.Duration{1, -1}, []time.Duration{1, 1}, 2},
		{[]time.Duration{1, 1}, []time.Duration{1, 0}, 2},
		{[]time.Duration{1}, []time.Duration{1}, 0},
	} {
		_, err := AppendOutliers(nil, tc.observed, tc.expected, tc.replicas)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
}

func TestBlameIsTheLesserOfReplicaAndStage(t *testing.T) {
	got, err := AppendBlame(nil, []float64{1, 1.4, 1.02}, []float64{1.01, 1.3}, 8)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, [2]int{1, 1}, [2]int{got[0].Replica, got[0].Stage})
	require.InDelta(t, 1.3, got[0].Factor, 1e-9)
	require.InDelta(t, 0.3, got[0].Score, 1e-9)
	got, err = AppendBlame(nil, []float64{1, 1}, []float64{1}, 8)
	require.NoError(t, err)
	require.Empty(t, got)
	got, err = AppendBlame(nil, []float64{1.2, 1.2}, []float64{1.2}, 1)
	require.NoError(t, err)
	require.Equal(t, 0, got[0].Replica, "ties go to the lower replica")
	_, err = AppendBlame(nil, []float64{0}, []float64{1}, 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestTheRankThatWaitsLeastIsWaitedFor(t *testing.T) {
	ms := func(x ...int) (out []time.Duration) {
		for _, d := range x {
			out = append(out, time.Duration(d)*time.Millisecond)
		}
		return out
	}
	for _, tc := range []struct {
		name  string
		waits []time.Duration
		rank  int
		ok    bool
	}{
		{"one stands out", ms(100, 104, 5, 98), 2, true},
		{"all alike", ms(100, 104, 95, 98), 2, false},
		{"not half", ms(100, 100, 60, 100), 2, false},
		{"waits that differ too much", ms(20, 300, 5, 10, 100), 2, false},
		{"two", ms(10, 90), 0, true},
		{"two alike", ms(80, 90), 0, false},
		{"one", ms(3), 0, false},
		{"none", nil, 0, false},
		{"nobody waits", ms(0, 0, 0), 0, false},
		{"broken", ms(5, -1), 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rank, ok := LeastWait(tc.waits)
			require.Equal(t, tc.ok, ok)
			if ok {
				require.Equal(t, tc.rank, rank)
			}
		})
	}
}

func TestRoundsCoverEachLinkOfARingOnce(t *testing.T) {
	require.Equal(t, []int{0, 0, 1, 3, 2, 3, 2}, []int{Rounds(0), Rounds(1), Rounds(2), Rounds(3), Rounds(4), Rounds(5), Rounds(6)})
	for ranks := range 20 {
		seen := map[[2]int]int{}
		for round := range Rounds(ranks) {
			busy := map[int]bool{}
			for _, p := range AppendPairs(nil, ranks, round) {
				require.False(t, busy[p[0]] || busy[p[1]], "%d ranks, round %d", ranks, round)
				busy[p[0]], busy[p[1]] = true, true
				require.Equal(t, (p[0]+1)%ranks, p[1])
				seen[p]++
			}
		}
		links := ranks
		if ranks < 3 {
			links = max(ranks-1, 0)
		}
		require.Len(t, seen, links)
		require.Empty(t, AppendPairs(nil, ranks, Rounds(ranks)))
		require.Empty(t, AppendPairs(nil, ranks, -1))
	}
}

func TestProbesGoFromCheapToDear(t *testing.T) {
	require.Equal(t, []Probe{
		{Kind: ProbeChunks, Replica: Everywhere, Stage: Everywhere},
		{Kind: ProbeCompute, Replica: Everywhere, Stage: Everywhere},
		{Kind: ProbeLink, Replica: Everywhere, Stage: Everywhere, Round: 0},
		{Kind: ProbeLink, Replica: Everywhere, Stage: Everywhere, Round: 1},
	}, AppendProbes(nil, nil, 2+2, 4, KnownTimes))
	two := []Suspect{{Replica: 1, Stage: 2}, {Replica: 0, Stage: 2}}
	require.Equal(t, []Probe{
		{Kind: ProbeCompute, Replica: 1, Stage: 2},
		{Kind: ProbeCompute, Replica: 0, Stage: 2},
		{Kind: ProbeLink, Replica: Everywhere, Stage: 2, Round: 0},
		{Kind: ProbeLink, Replica: Everywhere, Stage: 2, Round: 1},
		{Kind: ProbeLink, Replica: Everywhere, Stage: 2, Round: 2},
		{Kind: ProbeLink, Replica: 1, Stage: Everywhere, Round: 0},
		{Kind: ProbeLink, Replica: 0, Stage: Everywhere, Round: 0},
		{Kind: ProbeLink, Replica: 1, Stage: Everywhere, Round: 1},
		{Kind: ProbeLink, Replica: 0, Stage: Everywhere, Round: 1},
	}, AppendProbes(nil, two, 3, 4, KnownChunks))
	require.Equal(t, []Probe{
		{Kind: ProbeLink, Replica: Everywhere, Stage: Everywhere, Round: 0},
	}, AppendProbes(nil, nil, 1, 2, KnownChunks))
}
