package reconfigtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/reconfigtest"
)

func TestFakeIsAnExecutor(t *testing.T) {
	reconfigtest.TestExecutor(t, func(_ *testing.T, b reconfigtest.Bench) reconfigtest.Subject { return reconfigtest.NewFake(b) })
}

func TestTagsDiffer(t *testing.T) {
	seen := map[uint64]bool{0: true}
	for _, step := range []uint8{0, 1, 255} {
		for _, part := range []reconfig.Part{reconfig.Parameters, reconfig.Optimizer} {
			for block := reconfig.HeadBlock; block < 5; block++ {
				for i := range int64(5) {
					tag := reconfigtest.Tag(step, part, block, i)
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
		reconfigtest.TestExecutor(t, func(_ *testing.T, b reconfigtest.Bench) reconfigtest.Subject { return reconfigtest.NewFake(b) })
	}
	// Output:
}
