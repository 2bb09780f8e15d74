package reconfig

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func BenchmarkReplan(b *testing.B) {
	for _, c := range []struct{ tp, pp, dp int }{{8, 2, 1}, {8, 8, 4}, {8, 16, 32}, {8, 16, 128}} {
		n := c.tp * c.pp * c.dp
		job := jobOf(c.tp, c.dp, c.pp, 80, 32*c.dp)
		devs := fleet(n, 8)
		prev := healthy(b, job, devs)
		for _, dead := range []int{1, max(2, n/100), max(3, n/20)} {
			b.Run(fmt.Sprintf("gpus=%d/dead=%d", n, dead), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 2))
				quality := 0.0
				b.ReportAllocs()
				for b.Loop() {
					p, err := Replan(job, with(devs, 0, r.Perm(n)[:dead]...), prev, Options{})
					if err != nil {
						b.Fatal(err)
					}
					quality += float64(prev.Estimate.Iteration) / float64(p.Estimate.Iteration)
				}
				b.ReportMetric(quality/float64(b.N), "of-healthy")
			})
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	for _, dp := range []int{4, 32} {
		job := jobOf(8, dp, 8, 80, 32*dp)
		devs := fleet(64*dp, 8)
		p := healthy(b, job, devs)
		b.Run(fmt.Sprintf("gpus=%d", len(devs)), func(b *testing.B) {
			for b.Loop() {
				if err := Verify(job, devs, p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
