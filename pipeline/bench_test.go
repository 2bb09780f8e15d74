package pipeline

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// sizes are the schedules that the benchmarks run.
var sizes = []Config{
	{Stages: 4, Micros: 8},
	{Stages: 16, Micros: 64},
	{Stages: 16, Micros: 640},
	{Schedule: GPipe, Stages: 16, Micros: 64},
	{Schedule: Interleaved, Stages: 16, Micros: 64, Chunks: 2},
	{Schedule: Interleaved, Stages: 16, Micros: 64, Chunks: 8},
	{Schedule: ZBH1, Stages: 16, Micros: 64},
	{Schedule: ZBH2, Stages: 16, Micros: 64},
}

func sizeName(c Config) string {
	return fmt.Sprintf("%s/p=%d/m=%d/v=%d", c.Schedule, c.Stages, c.Micros, max(c.Chunks, 1))
}

// drawn returns random costs of every micro-batch and transfer of l, at most top nanoseconds each.
func drawn(l *Line, rng *rand.Rand, top int64) Costs {
	draw := func(n int) []time.Duration {
		s := make([]time.Duration, n)
		for i := range s {
			s[i] = time.Duration(rng.Int64N(top + 1))
		}
		return s
	}
	n := len(l.next)
	c := Costs{Forward: draw(n * l.cfg.Micros), Backward: draw(n * l.cfg.Micros), Send: draw(n), Return: draw(n), Across: time.Duration(rng.Int64N(top + 1))}
	if l.splits {
		c.Weight = draw(n * l.cfg.Micros)
	}
	return c
}

func BenchmarkRun(b *testing.B) {
	for _, cfg := range sizes {
		b.Run(sizeName(cfg), func(b *testing.B) {
			l, err := New(cfg)
			require.NoError(b, err)
			c, r := drawn(l, rand.New(rand.NewPCG(1, 2)), 1e6), Result{}
			require.NoError(b, l.Run(&c, &r))
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Run(&c, &r); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(l.nodes)), "ns/chunk")
		})
	}
}

// BenchmarkSlowed is what a test needs that is matched to the model: one run, and the makespan with each stage slowed by each
// of eight factors. The metric says how many passes of four factors that took.
func BenchmarkSlowed(b *testing.B) {
	grid := []Factor{1050, 1100, 1150, 1200, 1300, 1500, 2000, 3000}
	for _, cfg := range sizes {
		b.Run(sizeName(cfg)+"/factors=8", func(b *testing.B) {
			l, err := New(cfg)
			require.NoError(b, err)
			c, r, out := drawn(l, rand.New(rand.NewPCG(1, 2)), 1e6), Result{}, []time.Duration(nil)
			passes := 0
			b.ReportAllocs()
			for b.Loop() {
				if err := l.Run(&c, &r); err != nil {
					b.Fatal(err)
				}
				for stage := range l.Stages() {
					if out, err = r.AppendSlowed(out[:0], stage, grid...); err != nil {
						b.Fatal(err)
					}
				}
				passes = r.slow.passes
			}
			b.ReportMetric(float64(passes)/float64(l.Stages()), "passes/stage")
		})
	}
}

func BenchmarkNew(b *testing.B) {
	for _, cfg := range sizes {
		b.Run(sizeName(cfg), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := New(cfg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWindows(b *testing.B) {
	for _, cfg := range sizes {
		b.Run(sizeName(cfg), func(b *testing.B) {
			l, err := New(cfg)
			require.NoError(b, err)
			c, r, out := drawn(l, rand.New(rand.NewPCG(1, 2)), 1e6), Result{}, []Window(nil)
			require.NoError(b, l.Run(&c, &r))
			b.ReportAllocs()
			for b.Loop() {
				out = out[:0]
				for stage := range l.Stages() {
					out = r.AppendWindows(out, stage)
				}
			}
		})
	}
}
