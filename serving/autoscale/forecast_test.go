package autoscale

import (
	"math"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// load is a made-up one: the load in thousandths of slot i.
type load func(r *rand.Rand, i int) float64

func poisson(r *rand.Rand, mean float64) float64 {
	if mean > 500 {
		return max(mean+math.Sqrt(mean)*r.NormFloat64(), 0)
	}
	n, p := 0, math.Exp(-mean)
	for q := r.Float64(); q > p; q *= r.Float64() {
		n++
	}
	return float64(n)
}

// loads are the synthetic ones on which bounds are held against what then came.
func loads() map[string]load {
	var walk, burst float64
	return map[string]load{
		"noise":   func(r *rand.Rand, _ int) float64 { return 8000 + 1000*r.NormFloat64() },
		"poisson": func(r *rand.Rand, _ int) float64 { return 200 * poisson(r, 20) },
		"heavy":   func(r *rand.Rand, _ int) float64 { return 2000 / math.Sqrt(1-r.Float64()) },
		"season":  func(r *rand.Rand, i int) float64 { return 200 * poisson(r, 30+25*math.Sin(float64(i)*2*math.Pi/144)) },
		"walk":    func(r *rand.Rand, _ int) float64 { walk = max(walk+300*r.NormFloat64(), 0); return 3000 + walk },
		"bursts": func(r *rand.Rand, _ int) float64 {
			if burst *= .8; r.Float64() < .02 {
				burst += 10_000 * r.Float64()
			}
			return 1000 + burst + 200*r.NormFloat64()
		},
		"doubling": func(r *rand.Rand, i int) float64 { return 1000 * poisson(r, float64(1+i/500)) },
	}
}

func TestBoundsHoldAsOftenAsAsked(t *testing.T) {
	slots := 8000
	if testing.Short() {
		slots = 3000
	}
	for _, name := range []string{"noise", "poisson", "heavy", "season", "walk", "bursts", "doubling"} {
		for _, season := range []int{0, 144} {
			r := rand.New(rand.NewPCG(7, 1))
			at := loads()[name]
			f, err := NewForecaster(ForecastConfig{Season: season, Horizons: []Horizon{{1, 500}, {6, 900}, {12, 950}, {24, 990}}})
			require.NoError(t, err)
			point, n := 0.0, 0.0
			for i := range slots {
				require.NoError(t, f.Observe(int64(max(at(r, i), 0))))
				if i > slots/4 {
					p, _ := f.Bound(2)
					point += float64(p)
					n++
				}
			}
			text := ""
			for h, want := range []float64{.5, .9, .95, .99} {
				held, of := f.Kept(h)
				share := float64(held) / float64(of)
				text += " " + strconv.FormatFloat(share, 'f', 4, 64)
				require.InDelta(t, want, share, []float64{.02, .015, .012, .008}[h], "%s season %d horizon %d", name, season, h)
			}
			t.Logf("%-9s season %3d: held%s of .5 .9 .95 .99; mean bound %.0f", name, season, text, point/n)
		}
	}
}
