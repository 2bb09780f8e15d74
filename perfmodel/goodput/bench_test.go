package goodput

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func BenchmarkBest(b *testing.B) {
	for _, size := range []int64{1 << 10, 1 << 15, 1 << 20} {
		b.Run(fmt.Sprintf("samples=%d", size), func(b *testing.B) {
			cfg := known(2)
			cfg.Limits = Limits{MaxSamples: size, MaxBatch: 64, Accumulate: true}
			m, err := New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				m.Best(4, 16)
			}
		})
	}
}

func BenchmarkFitParams(b *testing.B) {
	truth := Params{Compute: Linear{.05, .01}, Local: Linear{.05, .002}, Remote: Linear{.2, .01}, Gamma: 2}
	samples := measure(truth, shapes(), .1, rand.New(rand.NewPCG(1, 1)))
	for _, n := range []int{7, 70, 700} {
		b.Run(fmt.Sprintf("samples=%d", n), func(b *testing.B) {
			var some []Sample
			for i := range n {
				some = append(some, samples[i%len(samples)])
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := FitParams(some); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNewTable(b *testing.B) {
	rng := rand.New(rand.NewPCG(2, 2))
	for _, counts := range []int{4, 16, 64} {
		b.Run(fmt.Sprintf("counts=%d", counts), func(b *testing.B) {
			var points []Point
			for n := range counts {
				points = append(points, Point{GPUs: n + 1, Rate: float64(n+1) * (.5 + rng.Float64())})
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := NewTable(points); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
