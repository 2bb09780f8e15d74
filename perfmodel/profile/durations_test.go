package profile

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

func durations(t *testing.T, cfg DurationsConfig) *Durations {
	t.Helper()
	d, err := NewDurations(cfg)
	require.NoError(t, err)
	return d
}

func expect(t *testing.T, d *Durations, j Job, model time.Duration) Expected {
	t.Helper()
	e, err := d.Expect(j, model)
	require.NoError(t, err)
	return e
}

func TestJobsAreExpectedToTakeWhatLikeJobsTook(t *testing.T) {
	d := durations(t, DurationsConfig{})
	require.Zero(t, expect(t, d, Job{Tenant: "ann"}, 0))
	require.Equal(t, Expected{Duration: time.Hour}, expect(t, d, Job{Tenant: "ann"}, time.Hour), "only the model knows")
	ended := func(j Job, took time.Duration) { t.Helper(); require.NoError(t, d.Observe(j, 0, took)) }
	ended(Job{"ann", "bert-001", 8000}, 10*time.Hour)
	ended(Job{"ann", "BERT-2", 8000}, 12*time.Hour)
	ended(Job{"ann", "bert-3", 1000}, 2*time.Hour)
	ended(Job{"bob", "resnet", 1000}, 4*time.Hour)

	require.Equal(t, Expected{Duration: 11 * time.Hour, Low: 10 * time.Hour, High: 12 * time.Hour, Samples: 2, Like: LikeJob}, expect(t, d, Job{"ann", "bert-77", 8000}, 0))
	name := expect(t, d, Job{"ann", "bert-77", 4000}, 0)
	require.Equal(t, LikeName, name.Like)
	require.Equal(t, 8*time.Hour, name.Duration)
	tenant := expect(t, d, Job{"ann", "gpt", 4000}, 0)
	require.Equal(t, LikeTenant, tenant.Like)
	require.Equal(t, 8*time.Hour, tenant.Duration)
	stranger := expect(t, d, Job{"eve", "bert-77", 8000}, 0)
	require.Equal(t, LikeAny, stranger.Like, "an unknown tenant's job takes what jobs take, not no time")
	require.Equal(t, 7*time.Hour, stranger.Duration)
	require.Equal(t, stranger, expect(t, d, Job{}, 0))

	mixed := expect(t, d, Job{"ann", "bert-77", 8000}, time.Hour)
	require.Equal(t, 2*time.Hour, mixed.Duration, ".1 × 11 h + .9 × 1 h")

	picky := durations(t, DurationsConfig{Samples: 2})
	require.NoError(t, picky.Observe(Job{"ann", "bert", 1000}, 0, time.Hour))
	require.Equal(t, LikeNone, expect(t, picky, Job{"ann", "bert", 1000}, 0).Like)
	require.NoError(t, picky.Observe(Job{"ann", "gpt", 1000}, 0, time.Hour))
	require.Equal(t, LikeTenant, expect(t, picky, Job{"ann", "bert", 1000}, 0).Like)
}

func TestMeanIsARollingOne(t *testing.T) {
	d := durations(t, DurationsConfig{Window: 2})
	for _, took := range []time.Duration{time.Hour, 3 * time.Hour, 5 * time.Hour} {
		require.NoError(t, d.Observe(Job{}, 0, took))
	}
	require.Equal(t, 4*time.Hour, expect(t, d, Job{}, 0).Duration)
	dist, like, ok := d.Distribution(Job{Tenant: "x"})
	require.True(t, ok)
	require.Equal(t, LikeAny, like)
	require.Equal(t, 5*time.Hour, dist.Quantile(1000))
	_, _, ok = durations(t, DurationsConfig{}).Distribution(Job{})
	require.False(t, ok)
}

func TestGroupsAreForgottenButForTheCluster(t *testing.T) {
	d := durations(t, DurationsConfig{Groups: 10})
	for i := range 1000 {
		j := Job{lockstep.TenantID("t" + string(rune('a'+i%26))), strings.Repeat("x", 1+i%7), 1000}
		require.NoError(t, d.Observe(j, 0, time.Hour))
		require.LessOrEqual(t, d.Len(), 10)
		require.Equal(t, LikeJob, expect(t, d, j, 0).Like)
	}
	require.Equal(t, LikeAny, expect(t, d, Job{Tenant: "nobody"}, 0).Like)
}

func TestBoundHoldsAsOftenAsItSays(t *testing.T) {
	rounds := 4000
	if testing.Short() {
		rounds = 1000
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for _, miss := range []int64{50, 200} {
		d := durations(t, DurationsConfig{})
		over, asked := 0, 0
		for range rounds {
			expected := time.Duration(float64(time.Hour) * math.Exp(rng.NormFloat64()))
			took := time.Duration(float64(expected)*math.Exp(rng.NormFloat64()*2)) + 1
			if most, ok := d.Bound(expected, miss); ok {
				asked++
				if took > most {
					over++
				}
			} else {
				require.Less(t, int64(len(d.misses)), 1000/miss-1)
			}
			require.NoError(t, d.Observe(Job{}, expected, min(took, lockstep.MaxWalltime)))
		}
		share := 1000 * float64(over) / float64(asked)
		t.Logf("asked for %d ‰, missed %.0f ‰ of %d", miss, share, asked)
		require.InDelta(t, miss, share, 20)
	}
	d := durations(t, DurationsConfig{})
	for range 19 {
		_, ok := d.Bound(time.Hour, 50)
		require.False(t, ok, "too few to promise anything")
		require.NoError(t, d.Observe(Job{}, time.Hour, 2*time.Hour))
	}
	most, ok := d.Bound(time.Hour, 50)
	require.True(t, ok)
	require.Equal(t, 2*time.Hour, most)
	for _, bad := range [][2]int64{{0, 50}, {-1, 50}, {1, 0}, {1, -1}, {1, 1001}} {
		_, ok := d.Bound(time.Duration(bad[0]), bad[1])
		require.False(t, ok)
	}
	most, ok = d.Bound(math.MaxInt64, 50)
	require.True(t, ok)
	require.Equal(t, time.Duration(math.MaxInt64), most)
	empty := durations(t, DurationsConfig{})
	_, ok = empty.Bound(1, 1000)
	require.False(t, ok)
}

type ratios []float64

func (r *ratios) Count(lockstep.Metric, lockstep.MetricLabels, int64)   {}
func (r *ratios) Gauge(lockstep.Metric, lockstep.MetricLabels, float64) {}
func (r *ratios) Observe(_ lockstep.Metric, _ lockstep.MetricLabels, v float64) {
	*r = append(*r, v)
}

func TestErrorsOfPredictionsAreRecorded(t *testing.T) {
	var seen ratios
	d := durations(t, DurationsConfig{Recorder: &seen})
	require.NoError(t, d.Observe(Job{}, 0, time.Hour))
	require.NoError(t, d.Observe(Job{}, 2*time.Hour, time.Hour))
	require.Equal(t, ratios{2}, seen)
}

func TestSimilarNames(t *testing.T) {
	for name, want := range map[string]string{ // the order does not matter
		"Train_ResNet50-run-003": "train_resnet#-run-#", "": "", "007": "#", "a1b22": "a#b#", "\xff": "?", "Größe9": "größe#",
	} {
		require.Equal(t, want, similar(name))
		require.Equal(t, want, similar(want))
	}
	long := similar(strings.Repeat("Ⱥ", 126)) // its small letter is a byte longer
	require.LessOrEqual(t, len(long), lockstep.MaxIDLength)
	require.Equal(t, long, similar(long))
}

func TestWideArithmeticIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for range 5000 {
		draw := func() int64 { return 1 + rng.Int64N(int64(lockstep.MaxWalltime)>>uint(rng.IntN(58))) }
		a, b, c := draw(), draw(), draw()
		xs := make([]int64, 1+rng.IntN(100))
		sum := new(big.Int)
		for i := range xs {
			xs[i] = draw()
			sum.Add(sum, big.NewInt(xs[i]))
		}
		n := int64(len(xs))
		sum.Add(sum, big.NewInt(n/2))
		require.Equal(t, sum.Quo(sum, big.NewInt(n)).Int64(), int64(mean(xs)))

		part := rng.Int64N(1001)
		want := new(big.Int).Mul(big.NewInt(a), big.NewInt(part))
		want.Add(want, new(big.Int).Mul(big.NewInt(b), big.NewInt(1000-part)))
		want.Add(want, big.NewInt(500))
		require.Equal(t, want.Quo(want, big.NewInt(1000)).Int64(), int64(mix(time.Duration(a), time.Duration(b), part)))

		want.Mul(big.NewInt(a), big.NewInt(b))
		want.Add(want, big.NewInt(c-1)).Quo(want, big.NewInt(c))
		if !want.IsInt64() {
			want.SetInt64(math.MaxInt64)
		}
		require.Equal(t, want.Int64(), int128.MulDivUp(a, b, c))
	}
}
