package cuda

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda/cudatest"
)

// BenchmarkCall makes one call of the fake library by each way, without what the
// Driver adds: the cost of getting there and back.
func BenchmarkCall(b *testing.B) {
	for _, name := range []string{"api", "helper", "cli"} {
		b.Run(name, func(b *testing.B) {
			f := cudatest.New(b)
			d := backends[name](b, f)
			p := f.Start(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, e := d.backend.read(p.PID); e != nil {
					b.Fatal(e)
				}
			}
		})
	}
}

// BenchmarkState reads a state with all that guards it: two looks at /proc, a thread
// of its own, a place among those that may block.
func BenchmarkState(b *testing.B) {
	f := cudatest.New(b)
	d := apiDriver(b, f)
	p := f.Start(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.State(context.Background(), p.Target); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCycle locks, suspends, resumes and unlocks one target: four calls, each
// with a reading before and after it.
func BenchmarkCycle(b *testing.B) {
	f := cudatest.New(b)
	d := apiDriver(b, f)
	p := f.Start(b)
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, forget(context.Background(), d, p))
	}
	require.Equal(b, checkpoint.Running, stateNow(b, d, p))
}
