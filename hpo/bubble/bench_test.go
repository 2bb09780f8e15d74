package bubble

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Asking for a quantum and observing a window allocate nothing while filling goes on.
func TestFillingAllocatesNothing(t *testing.T) {
	p := armed(t, newWorld(small(), 1, 0.03, 0.04), 2000)
	now := time.Duration(0)
	require.Zero(t, testing.AllocsPerRun(100, func() { pass(t, p, &now) }))
}

// pass fills one window as predicted.
func pass(t testing.TB, p *Packer, now *time.Duration) {
	if _, err := p.Begin(*now, 0); err != nil {
		t.Fatal(err)
	}
	for at := *now + 5*ms; ; {
		q, why, err := p.MayStartQuantum(at, 0)
		if err != nil {
			t.Fatal(err)
		}
		if why != "" {
			break
		}
		at += q.Expected
	}
	if _, err := p.Observe(Observation{Start: *now, End: *now + 400*ms}); err != nil {
		t.Fatal(err)
	}
	*now += time.Second
}

func BenchmarkWindow(b *testing.B) {
	p := armed(b, newWorld(small(), 1, 0.03, 0.04), 2000)
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		pass(b, p, &now)
	}
}

func BenchmarkCalibrate(b *testing.B) {
	for _, residency := range []Residency{FreeSwitching, ResidentSet} {
		for _, q := range []int{1, 4, 16} {
			b.Run(fmt.Sprintf("windows=15/choices=7/quanta=%d/%v", q, residency), func(b *testing.B) {
				w := newWorld(job(b, q, residency, 3, 9, 16, 24), 1, 0.03, 0.04)
				windows, steps := w.samples(4000)
				p, err := New(w.cfg)
				require.NoError(b, err)
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, p.Calibrate(windows, steps))
				}
			})
		}
	}
}
