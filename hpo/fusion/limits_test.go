package fusion

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestLimitsAndDevicesWithoutEndArePlanned(t *testing.T) {
	limit, ok := Affine(10, 10, 20)
	require.True(t, ok)
	require.Equal(t, math.MaxInt, limit)
	for _, rule := range []Rule{RuleEven, RuleHydro} {
		got, err := Plan(trialsOf([]Key{"a", "b"}, []int{5, 3}), func(Key) int { return limit }, 1, rule)
		require.NoError(t, err)
		require.Equal(t, map[Key][]int{"a": {5}, "b": {3}}, sizesOf(got), "more keys than devices")
		got, err = Plan(trialsOf([]Key{"a", "b"}, []int{5, 3}), func(Key) int { return limit - 1 }, 2, rule)
		require.NoError(t, err)
		require.Equal(t, map[Key][]int{"a": {5}, "b": {3}}, sizesOf(got))
		got, err = Plan(trialsOf([]Key{"a", "b"}, []int{5, 3}), nil, math.MaxInt, rule)
		require.NoError(t, err)
		require.Equal(t, map[Key][]int{"a": {1, 1, 1, 1, 1}, "b": {1, 1, 1}}, sizesOf(got))
	}
	live := []Live{{ID: "x", Members: []TrialID{"1"}, Safe: true}, {ID: "y", Members: []TrialID{"2"}, Safe: true}, {ID: "z", Members: []TrialID{"3"}, Safe: true}}
	moved, err := Refuse(live, []Trial{{ID: "4"}}, func(Key) int { return limit })
	require.NoError(t, err)
	require.Equal(t, Refused{Moves: []Move{{"3", "z", "x"}, {"2", "y", "x"}, {"4", "", "x"}}, Emptied: []BundleID{"y", "z"}}, moved)
}

// dealt is deal by its definition.
func dealt(sizes []int, devices int) []int {
	out := make([]int, len(sizes))
	trials := 0
	for i, n := range sizes {
		out[i] = 1
		trials += n
	}
	for range min(devices, trials) - len(sizes) {
		most := 0
		for i := range sizes {
			if sizes[i]*out[most] > sizes[most]*out[i] {
				most = i
			}
		}
		out[most]++
	}
	return out
}

func TestDevicesGoWhereMostTrialsAre(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 3))
		groups := make([]group, 1+rng.IntN(6))
		sizes := make([]int, len(groups))
		last := 30
		for i := range groups {
			last = 1 + rng.IntN(last)
			sizes[i] = last
			groups[i] = group{key: Key(fmt.Sprint(i)), members: make([]TrialID, last)}
		}
		devices := len(groups) + rng.IntN(60)
		deal(groups, devices, RuleEven)
		for i, want := range dealt(sizes, devices) {
			require.Equal(t, want, groups[i].devices, "%v %d", sizes, devices)
		}
	}
}

func TestErrorsNameTheCall(t *testing.T) {
	_, err := Refuse([]Live{{ID: "a", Safe: true}}, nil, func(Key) int { return 0 })
	var typed *lockstep.Error
	require.ErrorAs(t, err, &typed)
	require.Equal(t, "fusion: refuse", typed.Op)
	_, err = SelectTransfers([]Result{{Score: 1}}, 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// trialSteps is the trial-steps a second of p, exactly enough for small figures.
func trialSteps(p Point) float64 { return float64(p.Fused) / float64(p.Step) }

func TestKneeIsTheFirstThatIsGoodEnough(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 4))
		points := []Point{{Fused: 1, Step: 100, Memory: 10}}
		for range rng.IntN(6) {
			q := points[len(points)-1]
			points = append(points, Point{q.Fused + 1 + rng.IntN(3), q.Step + 97*6*7, q.Memory + lockstep.Bytes(rng.IntN(20))})
		}
		p, err := NewProfile(points)
		require.NoError(t, err)
		memory, slack := lockstep.Bytes(rng.IntN(80)), float64(rng.IntN(9))/10+.001
		best, most, want := 0.0, 0, 0
		for _, q := range points {
			if q.Memory <= memory {
				best, most = max(best, trialSteps(q)), q.Fused
			}
		}
		for _, q := range points {
			if q.Memory <= memory && want == 0 && trialSteps(q) >= best*(1-slack) {
				want = q.Fused
			}
		}
		got, _ := p.Knee(memory, slack)
		require.Equal(t, want, got)
		got, _ = p.Most(memory)
		require.Equal(t, most, got)
	}
}

func TestBundlesAreAsFewAsTheirSizeTakes(t *testing.T) {
	got, err := Plan(trialsOf([]Key{"a"}, []int{6}), func(Key) int { return 3 }, 4, RuleEven)
	require.NoError(t, err)
	require.Equal(t, map[Key][]int{"a": {2, 2, 2}}, sizesOf(got))
	_ = append(got[0].Members, "x")
	require.Equal(t, TrialID("a/2"), got[1].Members[0], "bundles share no room to grow")
}

func TestEachKindOfNoiseCountsAsRepaired(t *testing.T) {
	p, err := NewProfile([]Point{{1, 10, 20}, {2, 9, 30}, {3, 11, 29}, {4, 11, 30}, {5, 1, 1}})
	require.NoError(t, err)
	require.Equal(t, 3, p.Repaired())
	require.Equal(t, []Point{{1, 10, 20}, {2, 10, 30}, {3, 11, 30}, {4, 11, 30}, {5, 11, 30}}, p.Points())
}

func TestKeysAreRefusedInTheirOrder(t *testing.T) {
	live := []Live{
		{ID: "z1", Key: "z", Members: []TrialID{"1"}, Safe: true},
		{ID: "a1", Key: "a", Members: []TrialID{"2"}, Safe: true},
		{ID: "z2", Key: "z", Members: []TrialID{"3"}, Safe: true},
		{ID: "a2", Key: "a", Members: []TrialID{"4"}, Safe: true},
		{ID: "a3", Key: "a", Members: []TrialID{"5"}},
	}
	got, err := Refuse(live, []Trial{{"6", "z"}, {"7", "q"}, {"8", "a"}}, func(Key) int { return 3 })
	require.NoError(t, err)
	require.Equal(t, Refused{
		Moves:   []Move{{"4", "a2", "a1"}, {"8", "", "a1"}, {"3", "z2", "z1"}, {"6", "", "z1"}},
		Emptied: []BundleID{"a2", "z2"},
	}, got)
}

func TestTransfersOfEqualScoreGoByID(t *testing.T) {
	want := []TrialID{"a", "c", "b", "d"}
	for seed := range uint64(20) {
		results := []Result{{"a", "x", 1}, {"b", "x", 1}, {"c", "y", 1}, {"d", "y", 1}}
		rand.New(rand.NewPCG(seed, 9)).Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
		got, err := SelectTransfers(results, 4)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}
