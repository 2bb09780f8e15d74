package movestest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/reconfig/moves"
	"github.com/lockstep-gpu/lockstep/reconfig/moves/movestest"
)

func TestFakeIsAnExecutor(t *testing.T) {
	movestest.TestExecutor(t, func(_ *testing.T, b movestest.Bench) movestest.Subject { return movestest.NewFake(b) })
}

func TestTagsDiffer(t *testing.T) {
	seen := map[uint64]bool{0: true}
	for _, step := range []uint8{0, 1, 255} {
		for _, part := range []moves.Part{moves.Parameters, moves.Optimizer} {
			for block := moves.Head; block < 5; block++ {
				for i := range int64(5) {
					tag := movestest.Tag(step, part, block, i)
					require.False(t, seen[tag])
					seen[tag] = true
				}
			}
		}
	}
}

func ExampleTestExecutor() {
	// In a test of the implementation:
	_ = func(t *testing.T) {
		movestest.TestExecutor(t, func(_ *testing.T, b movestest.Bench) movestest.Subject { return movestest.NewFake(b) })
	}
	// Output:
}
