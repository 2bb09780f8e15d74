package profile

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestPackingPaysWhenTwoComeToMoreThanOne(t *testing.T) {
	s := store(t, Config{})
	require.NoError(t, s.ObservePair("a", "b", 700, 550))
	require.NoError(t, s.ObservePair("a", "c", 550, 400))
	keep := s.Packing("a", "b")
	require.Equal(t, int64(250), keep.Gain)
	require.True(t, keep.Pays)
	require.Equal(t, Measured, keep.Source)
	undo := s.Packing("c", "a")
	require.Equal(t, int64(-50), undo.Gain)
	require.False(t, undo.Pays)
	require.Equal(t, [2]float64{.4, .55}, [2]float64{undo.Rates[0].Value, undo.Rates[1].Value})
	unknown := s.Packing("a", "nobody")
	require.Equal(t, Packing{Rates: [2]Estimate{}, Scores: [2]int{2, 2}}, unknown)
}

func TestSharingScores(t *testing.T) {
	s := store(t, Config{})
	require.NoError(t, s.ObservePair("light", "light", 980, 980))
	require.NoError(t, s.ObservePair("light", "heavy", 960, 900)) // .93
	require.NoError(t, s.ObservePair("heavy", "heavy", 600, 600))
	require.NoError(t, s.ObservePair("middle", "light", 880, 980)) // .93
	require.NoError(t, s.ObservePair("middle", "middle", 850, 850))
	require.Equal(t, 1, s.score("middle"))
	require.Equal(t, 2, s.score("heavy"))
	require.Equal(t, 1, s.score("light"), "(.98 + .93 + .93)/3 is below .95")
	require.NoError(t, s.ObservePair("light", "idle", 1000, 1000))
	require.Equal(t, 0, s.score("light"))
	require.Equal(t, 0, s.score("idle"))
	require.Equal(t, 2, s.score("unknown"))
	require.True(t, s.Packing("heavy", "idle").Gentle, "2 and 0")
	require.False(t, s.Packing("heavy", "middle").Gentle, "2 and 1")
}

func TestInterferenceFollowsUsage(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	s := store(t, Config{})
	usage := make(map[Kind]Usage)
	truth := func(a, b Usage) float64 {
		return 1 + .1*a.Cache + .2*a.Memory + .3*b.Cache + .4*b.Memory
	}
	var kinds []Kind
	for i := range 12 {
		k := Kind("k" + string(rune('a'+i)))
		kinds = append(kinds, k)
		usage[k] = Usage{rng.Float64(), rng.Float64()}
		require.NoError(t, s.Describe(k, usage[k]))
	}
	require.Zero(t, s.Beside("ka", "kb"), "nothing to infer from")
	for i := range 10 {
		for j := range i {
			a, b := kinds[i], kinds[j]
			require.NoError(t, s.ObservePair(a, b, int64(1000/truth(usage[a], usage[b])+.5), int64(1000/truth(usage[b], usage[a])+.5)))
		}
	}
	e := s.Beside(kinds[10], kinds[11])
	require.Equal(t, Inferred, e.Source)
	require.InDelta(t, 1/truth(usage[kinds[10]], usage[kinds[11]]), e.Value, .005)
	require.True(t, e.Low <= e.Value && e.Value <= e.High)
}

func TestInterferenceFollowsPartners(t *testing.T) {
	s := store(t, Config{})
	suffers := map[Kind]float64{"a": .1, "b": .3, "c": .2, "d": 0, "e": .4}
	disturbs := map[Kind]float64{"a": .2, "b": 0, "c": .3, "d": .1, "e": .2}
	rate := func(x, y Kind) int64 { return int64(1000*(1-suffers[x]-disturbs[y]) + .5) }
	kinds := []Kind{"a", "b", "c", "d", "e"}
	for i, x := range kinds {
		for _, y := range kinds[:i+1] {
			if x != "e" || y != "a" {
				require.NoError(t, s.ObservePair(x, y, rate(x, y), rate(y, x)))
			}
		}
	}
	for _, p := range [][2]Kind{{"e", "a"}, {"a", "e"}} {
		e := s.Beside(p[0], p[1])
		require.Equal(t, Inferred, e.Source)
		require.InDelta(t, float64(rate(p[0], p[1]))/1000, e.Value, .05)
	}
	require.Zero(t, s.Beside("a", "never seen"))
}

// gavel reads the throughputs that the authors of Gavel measured: alone and beside each
// other, by class of device and kind of job.
func gavel(t *testing.T) map[string]map[string]map[string]json.RawMessage {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "traces", "gavel-osdi20", "simulation_throughputs.json")
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		t.Skipf("no throughputs of Gavel at %s: inference is held against made-up jobs only", path)
	}
	require.NoError(t, err)
	var out map[string]map[string]map[string]json.RawMessage
	require.NoError(t, json.Unmarshal(data, &out))
	return out
}

func kindOf(job string) Kind {
	return Kind(strings.Map(func(r rune) rune {
		if strings.ContainsRune(" (),'", r) {
			return '-'
		}
		return r
	}, strings.Trim(job, "(')")))
}

func alone(t *testing.T, entries map[string]json.RawMessage) (rate float64) {
	t.Helper()
	require.NoError(t, json.Unmarshal(entries["null"], &rate))
	return rate
}

func TestPairsOfGavelAreInferredFromTheOthers(t *testing.T) {
	jobs := gavel(t)["v100"]
	type pair struct {
		a, b Kind
		x, y int64
	}
	var pairs []pair
	for a, entries := range jobs { // in any order: sorted below
		for b, raw := range entries {
			var both []float64
			if b == "null" || json.Unmarshal(raw, &both) != nil || b < a || !strings.HasSuffix(a, " 1)") || jobs[b] == nil {
				continue
			}
			x, y := both[0]/alone(t, entries), both[1]/alone(t, jobs[b])
			if x > 0 && y > 0 { // 0: they do not fit together
				pairs = append(pairs, pair{kindOf(a), kindOf(b), int64(min(1000*x, 1500)), int64(min(1000*y, 1500))})
			}
		}
	}
	slices.SortFunc(pairs, func(p, q pair) int { return strings.Compare(string(p.a+" "+p.b), string(q.a+" "+q.b)) })
	rng := rand.New(rand.NewPCG(5, 5))
	rng.Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	s := store(t, Config{})
	half := len(pairs) / 2
	mean := 0.
	for _, p := range pairs[:half] {
		require.NoError(t, s.ObservePair(p.a, p.b, p.x, p.y))
		mean += float64(p.x+p.y) / 2000 / float64(half)
	}
	var misses, dull []float64
	inside := 0
	for _, p := range pairs[half:] {
		for _, q := range []pair{p, {p.b, p.a, p.y, p.x}} {
			truth := float64(q.x) / 1000
			e := s.Beside(q.a, q.b)
			if e.Source != Inferred {
				continue
			}
			misses = append(misses, math.Abs(e.Value-truth))
			dull = append(dull, math.Abs(mean-truth))
			if e.Low <= truth && truth <= e.High {
				inside++
			}
		}
	}
	require.NotEmpty(t, misses)
	share := float64(inside) / float64(len(misses))
	mine, mean := middle(misses), middle(dull)
	t.Logf("%d pairs measured, %d rates inferred: median miss %.3f, by the mean of all %.3f, %.2f inside the interval", half, len(misses), mine, mean, share)
	require.Less(t, mine, .6*mean)
	require.Greater(t, share, .8)
}

func TestClassesOfGavelAreInferredFromLikeJobs(t *testing.T) {
	all := gavel(t)
	classes := []lockstep.DeviceClass{"k80", "p100", "v100"}
	var names []string
	for job := range all["k80"] { // in any order: sorted below
		names = append(names, job)
	}
	slices.Sort(names)
	for _, hidden := range classes {
		var misses, dull []float64
		for _, out := range names {
			s := store(t, Config{})
			scale, n := 0., 0.
			for _, job := range names {
				for _, c := range classes {
					rate := alone(t, all[string(c)][job])
					if rate > 0 && (job != out || c != hidden) {
						require.NoError(t, s.ObserveRate(kindOf(job), c, rate))
					}
				}
				other := classes[0]
				if hidden == other {
					other = classes[1]
				}
				if x, y := alone(t, all[string(hidden)][job]), alone(t, all[string(other)][job]); job != out && x > 0 && y > 0 {
					scale, n = scale+math.Log(x/y), n+1
				}
			}
			truth := alone(t, all[string(hidden)][out])
			e := s.Rate(kindOf(out), hidden)
			if truth == 0 || e.Source != Inferred {
				continue
			}
			other := classes[0]
			if hidden == other {
				other = classes[1]
			}
			misses = append(misses, math.Abs(math.Log(e.Value/truth)))
			dull = append(dull, math.Abs(math.Log(alone(t, all[string(other)][out])/truth)+scale/n))
		}
		mine, mean := medianOf(misses), medianOf(dull)
		t.Logf("%s of %d jobs: median miss %.3f, by the mean ratio of all jobs %.3f", hidden, len(misses), mine, mean)
		require.Less(t, mine, mean)
	}
}

func medianOf(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}
