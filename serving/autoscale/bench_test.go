package autoscale

import (
	"fmt"
	"testing"
	"time"
)

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{8, 128, 1024} {
		for _, name := range ruleNames {
			b.Run(fmt.Sprintf("rule=%s/replicas=%d", name, n), func(b *testing.B) {
				s := newScaler(b, everyRule()[name])
				f := fleet(n, 2)
				now := t0
				b.ReportAllocs()
				for b.Loop() {
					now = now.Add(2 * time.Second)
					if err := s.Observe(now, Sample{Requests: int64(20 * n), Ongoing: int64(n)}); err != nil {
						b.Fatal(err)
					}
					if _, err := s.Decide(now, f); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkForecaster(b *testing.B) {
	for _, season := range []int{0, 2880} {
		b.Run(fmt.Sprintf("season=%d/horizons=4/slots=32/errors=1024", season), func(b *testing.B) {
			f, err := NewForecaster(ForecastConfig{Season: season, Horizons: []Horizon{{4, 800}, {8, 800}, {8, 990}, {32, 990}}})
			if err != nil {
				b.Fatal(err)
			}
			i := int64(0)
			b.ReportAllocs()
			for b.Loop() {
				i++
				if err := f.Observe(5000 + i*7919%3000); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
