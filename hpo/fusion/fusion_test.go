package fusion

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// artifact is the profile of ResNet-18 on CIFAR-10 at scale 8, batch 256, on a card of 24 GiB, from the artifact of
// Hydro (OSDI 2023); steps in microseconds.
func artifact(t *testing.T) Profile {
	t.Helper()
	var points []Point
	for _, p := range [][3]int64{
		{1, 28500, 1581}, {10, 47900, 2513}, {20, 77800, 3515}, {25, 93500, 4065}, {100, 195200, 11603}, {150, 286300, 16795}, {220, 413500, 23921},
	} {
		points = append(points, Point{int(p[0]), time.Duration(p[1]) * time.Microsecond, lockstep.Bytes(p[2]) * lockstep.MiB})
	}
	p, err := NewProfile(points)
	require.NoError(t, err)
	return p
}

func TestKneeHasHalfTheMemoryOfTheMost(t *testing.T) {
	p := artifact(t)
	for _, tt := range []struct {
		memory     lockstep.Bytes
		most, knee int
	}{
		{24576, 220, 100}, {16000, 100, 100}, {4064, 20, 20}, {2000, 1, 1}, {1581, 1, 1}, {1580, 0, 0}, {-1, 0, 0},
	} {
		most, ok := p.Most(tt.memory * lockstep.MiB)
		require.Equal(t, tt.most > 0, ok)
		require.Equal(t, tt.most, most)
		knee, ok := p.Knee(tt.memory*lockstep.MiB, 0.05)
		require.Equal(t, tt.knee > 0, ok)
		require.Equal(t, tt.knee, knee)
	}
	exact, _ := p.Knee(24*lockstep.GiB, 0)
	require.Equal(t, 220, exact)
	for _, slack := range []float64{-1, math.NaN(), math.Inf(-1)} {
		knee, _ := p.Knee(24*lockstep.GiB, slack)
		require.Equal(t, exact, knee)
	}
	all, _ := p.Knee(24*lockstep.GiB, math.Inf(1))
	require.Equal(t, 1, all)
}

func TestWhatWasNotMeasuredCostsAsTheNextPoint(t *testing.T) {
	p := artifact(t)
	got, ok := p.At(30)
	require.True(t, ok)
	require.Equal(t, Point{30, 195200 * time.Microsecond, 11603 * lockstep.MiB}, got)
	for _, n := range []int{0, -1, 221} {
		_, ok := p.At(n)
		require.False(t, ok)
	}
	_, ok = Profile{}.At(1)
	require.False(t, ok)
	_, ok = Profile{}.Knee(1, 0)
	require.False(t, ok)
}

func TestAffineBoundIsExact(t *testing.T) {
	n, ok := Affine(1581, 1685, 24576)
	require.True(t, ok)
	require.Equal(t, 222, n) // Hydro's code says 221
	for _, tt := range []struct {
		one, two, memory lockstep.Bytes
		want             int
	}{{10, 10, 10, math.MaxInt}, {10, 9, 10, math.MaxInt}, {10, 11, 9, 0}, {-1, 5, 10, 0}, {0, 1, math.MaxInt64, math.MaxInt}} {
		n, ok := Affine(tt.one, tt.two, tt.memory)
		require.Equal(t, tt.want, n)
		require.Equal(t, tt.want > 0, ok)
	}
}

func TestNoiseInAProfileIsRepaired(t *testing.T) {
	p, err := NewProfile([]Point{{4, 9, 30}, {1, 10, 20}, {2, 12, 40}})
	require.NoError(t, err)
	require.Equal(t, 1, p.Repaired())
	require.Equal(t, []Point{{1, 10, 20}, {2, 12, 40}, {4, 12, 40}}, p.Points())
}

func TestBadProfilesAreRefused(t *testing.T) {
	for _, points := range [][]Point{
		nil,
		{{2, 1, 1}},
		{{1, 0, 1}},
		{{1, -5, 1}},
		{{1, 1, -1}},
		{{0, 1, 1}, {1, 1, 1}},
	} {
		_, err := NewProfile(points)
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%v", points)
	}
	_, err := NewProfile([]Point{{1, 1, 1}, {1, 2, 2}})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
}

// trialsOf returns sizes[i] trials of each key, keys in order.
func trialsOf(keys []Key, sizes []int) []Trial {
	var out []Trial
	for i, n := range sizes {
		for j := range n {
			out = append(out, Trial{ID: TrialID(fmt.Sprint(keys[i], "/", j)), Key: keys[i]})
		}
	}
	return out
}

// sizesOf returns the sizes of the bundles of each key.
func sizesOf(bundles []Bundle) map[Key][]int {
	out := map[Key][]int{}
	for _, b := range bundles {
		out[b.Key] = append(out[b.Key], len(b.Members))
	}
	return out
}

func TestGroupingIsThatOfHydro(t *testing.T) {
	keys := []Key{"128", "256", "512"}
	for _, tt := range []struct {
		sizes          []int
		limit, devices int
		want           map[Key][]int
	}{
		{[]int{16, 17, 17}, 10, 4, map[Key][]int{"128": {8, 8}, "256": {9, 8}, "512": {9, 8}}},
		{[]int{21}, 10, 1, map[Key][]int{"128": {7, 7, 7}}},
		{[]int{11}, 10, 1, map[Key][]int{"128": {6, 5}}},
		{[]int{5}, 10, 8, map[Key][]int{"128": {1, 1, 1, 1, 1}}},
		{[]int{9}, 4, 2, map[Key][]int{"128": {3, 3, 3}}},
	} {
		for _, rule := range []Rule{RuleEven, RuleHydro} {
			bundles, err := Plan(trialsOf(keys, tt.sizes), func(Key) int { return tt.limit }, tt.devices, rule)
			require.NoError(t, err)
			require.Equal(t, tt.want, sizesOf(bundles), "%+v %s", tt, rule)
		}
	}
	hydro, err := Plan(trialsOf(keys, []int{1, 30}), nil, 4, RuleHydro)
	require.NoError(t, err)
	require.Equal(t, map[Key][]int{"128": {1}, "256": {15, 15}}, sizesOf(hydro), "a single trial has two devices")
	even, err := Plan(trialsOf(keys, []int{1, 30}), nil, 4, RuleEven)
	require.NoError(t, err)
	require.Equal(t, map[Key][]int{"128": {1}, "256": {10, 10, 10}}, sizesOf(even))
}

func TestPlansArePartitions(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		keys, sizes := []Key{"a", "b", "c", "d"}, make([]int, 4)
		total := 0
		for i := range sizes {
			sizes[i] = rng.IntN(25) * rng.IntN(2)
			total += sizes[i]
		}
		trials := trialsOf(keys, sizes)
		rng.Shuffle(len(trials), func(i, j int) { trials[i], trials[j] = trials[j], trials[i] })
		limits := map[Key]int{}
		for _, k := range keys {
			limits[k] = 1 + rng.IntN(12)
		}
		devices := 1 + rng.IntN(8)
		bundles, err := Plan(trials, func(k Key) int { return limits[k] }, devices, RuleEven)
		require.NoError(t, err)
		seen := map[TrialID]bool{}
		live := 0
		for i, n := range sizes {
			got := sizesOf(bundles)[keys[i]]
			if n == 0 {
				require.Empty(t, got)
				continue
			}
			live++
			require.LessOrEqual(t, slices.Max(got)-slices.Min(got), 1)
			require.LessOrEqual(t, slices.Max(got), limits[keys[i]])
		}
		for _, b := range bundles {
			for _, id := range b.Members {
				require.False(t, seen[id])
				seen[id] = true
				require.Equal(t, string(b.Key), string(id[:1]))
			}
		}
		require.Len(t, seen, total)
		if live > devices {
			for i, n := range sizes {
				require.Len(t, sizesOf(bundles)[keys[i]], ceil(n, limits[keys[i]]), "as few as the limit allows")
			}
		}
	}
}

func TestBadPlansAreRefused(t *testing.T) {
	one := []Trial{{ID: "a"}}
	_, err := Plan(one, nil, 0, RuleEven)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Plan(one, nil, 1, "odd")
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Plan(one, func(Key) int { return 0 }, 1, RuleEven)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Plan([]Trial{{}}, nil, 1, RuleEven)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Plan([]Trial{{ID: "a"}, {ID: "a", Key: "b"}}, nil, 1, RuleEven)
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	none, err := Plan(nil, nil, 1, RuleEven)
	require.NoError(t, err)
	require.Empty(t, none)
}

// fewestMoves returns, over all sets of bundles to keep, the fewest kept and then the fewest trials moved.
func fewestMoves(sizes []int, limit int) (kept, moves int) {
	kept, moves = math.MaxInt, math.MaxInt
	total := 0
	for _, n := range sizes {
		total += n
	}
	for set := range 1 << len(sizes) {
		capacity, stay, count := 0, 0, 0
		for i, n := range sizes {
			if set>>i&1 == 1 {
				capacity += max(limit, n)
				stay += n
				count++
			}
		}
		if capacity < total {
			continue
		}
		if count < kept || (count == kept && total-stay < moves) {
			kept, moves = count, total-stay
		}
	}
	return kept, moves
}

func TestRefuseKeepsTheFewestAndMovesTheFewest(t *testing.T) {
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		limit := 1 + rng.IntN(6)
		var live []Live
		var sizes []int
		in := map[TrialID]BundleID{}
		for i := range rng.IntN(7) {
			b := Live{ID: BundleID(fmt.Sprint("b", i)), Key: "k", Safe: rng.IntN(5) > 0}
			for j := range rng.IntN(limit + 2) { // one may be over a limit that was lowered
				id := TrialID(fmt.Sprint(b.ID, "/", j))
				b.Members = append(b.Members, id)
				in[id] = b.ID
			}
			if b.Safe {
				sizes = append(sizes, len(b.Members))
			}
			live = append(live, b)
		}
		var waiting []Trial
		for i := range rng.IntN(4) {
			waiting = append(waiting, Trial{ID: TrialID(fmt.Sprint("w", i)), Key: "k"})
		}
		got, err := Refuse(live, waiting, func(Key) int { return limit })
		require.NoError(t, err)
		kept, moves := fewestMoves(sizes, limit)
		require.Len(t, got.Emptied, len(sizes)-kept, "sizes %v limit %d", sizes, limit)
		moved := 0
		for _, m := range got.Moves {
			require.Equal(t, in[m.Trial], m.From)
			if m.From != "" {
				moved++
			}
			in[m.Trial] = m.To
		}
		require.Equal(t, moves, moved)
		after := map[BundleID]int{}
		for _, b := range in {
			after[b]++
		}
		free, placed := 0, 0
		for _, b := range live {
			switch {
			case !b.Safe:
				require.Equal(t, len(b.Members), after[b.ID], "not at a safe point")
			case slices.Contains(got.Emptied, b.ID):
				require.Zero(t, after[b.ID])
			default:
				require.LessOrEqual(t, after[b.ID], max(limit, len(b.Members)))
				free += max(0, limit-after[b.ID])
			}
		}
		for _, w := range waiting {
			if in[w.ID] != "" {
				placed++
			}
		}
		require.True(t, free == 0 || placed == len(waiting), "no place stays free while a trial waits")
	}
}

func TestRefuseRefusesBadInput(t *testing.T) {
	for _, tt := range []struct {
		live    []Live
		waiting []Trial
		limit   int
		kind    error
	}{
		{[]Live{{}}, nil, 1, lockstep.ErrInvalid},
		{[]Live{{ID: "a"}, {ID: "a"}}, nil, 1, lockstep.ErrDuplicate},
		{[]Live{{ID: "a", Members: []TrialID{"t", "t"}}}, nil, 1, lockstep.ErrDuplicate},
		{[]Live{{ID: "a", Members: []TrialID{""}}}, nil, 1, lockstep.ErrInvalid},
		{[]Live{{ID: "a", Members: []TrialID{"t"}}}, []Trial{{ID: "t"}}, 1, lockstep.ErrDuplicate},
		{[]Live{{ID: "a", Members: []TrialID{"t"}, Safe: true}}, nil, 0, lockstep.ErrInvalid},
	} {
		_, err := Refuse(tt.live, tt.waiting, func(Key) int { return tt.limit })
		require.ErrorIs(t, err, tt.kind)
	}
	got, err := Refuse([]Live{{ID: "a", Safe: true}}, nil, nil)
	require.NoError(t, err)
	require.Equal(t, Refused{Emptied: []BundleID{"a"}}, got)
}

func TestTransfersAreStratified(t *testing.T) {
	results := []Result{
		{"a", "128", 5}, {"b", "128", 9}, {"c", "256", 8}, {"d", "512", 1}, {"e", "512", math.NaN()}, {"f", "256", math.Inf(1)}, {"g", "128", 8},
	}
	for k, want := range [][]TrialID{{}, {"b"}, {"b", "c"}, {"b", "c", "d"}, {"b", "c", "d", "g"}, {"b", "c", "d", "g", "a"}, {"b", "c", "d", "g", "a"}} {
		got, err := SelectTransfers(results, k)
		require.NoError(t, err)
		require.ElementsMatch(t, want, got)
		require.Equal(t, len(want), len(got))
		for i := range want {
			require.Equal(t, want[i], got[i])
		}
	}
	_, err := SelectTransfers(results, -1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = SelectTransfers([]Result{{ID: "a"}, {ID: "a"}}, 1)
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
}
