package cuda

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda/cudatest"
)

// anyFault draws a fault from those that a library or a target may have.
func anyFault(r *rand.Rand) cudatest.Fault {
	list := codes()
	f := cudatest.Fault{Call: int32(r.IntN(7)), At: int32(r.IntN(20)), Times: int32(1 + r.IntN(3)), Code: list[r.IntN(len(list))]}
	kinds := []cudatest.Kind{cudatest.Code, cudatest.CodeAfter, cudatest.Sleep, cudatest.Corrupt, cudatest.Lie, cudatest.Change, cudatest.SlowLock}
	f.Kind = kinds[r.IntN(len(kinds))]
	switch f.Kind {
	case cudatest.Sleep:
		f.Arg = int32(r.IntN(4))
	case cudatest.Corrupt:
		f.Arg = int32(r.IntN(9)) - 1
	case cudatest.Change:
		f.Arg = int32(r.IntN(3))
	}
	if r.IntN(20) == 0 {
		f.Kind = cudatest.Kill
	}
	return f
}

// Up to eight faults at random, callers that give up at random, and one to three
// targets: once the faults are over and all is undone, every target runs, or is told
// to be wedged, or is gone.
func TestRandomFaultsLeaveNobodyBehind(t *testing.T) {
	f := cudatest.New(t)
	d := apiDriver(t, f)
	runs, ended := 300, map[checkpoint.State]int{}
	if testing.Short() {
		runs = 25
	}
	for seed := range uint64(runs) {
		r := rand.New(rand.NewPCG(seed, 9))
		targets := make([]*cudatest.Target, 1+r.IntN(3))
		for i := range targets {
			targets[i] = f.Start(t)
		}
		plan := make([]cudatest.Fault, r.IntN(9))
		for i := range plan {
			plan[i] = anyFault(r)
		}
		f.Plan(plan...)
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+r.IntN(20))*time.Millisecond)
		if r.IntN(3) > 0 {
			ctx = context.Background()
		}
		err := cycle(ctx, d, 5*time.Millisecond, nil, targets...)
		cancel()
		f.Plan()
		for _, p := range targets {
			quiet(t, d)
			if err != nil { // a second try, without faults
				_ = d.Undo(context.Background(), p.Target)
			}
			if err != nil || p.State() != cudatest.Locked { // else a stranger has it, after the last look
				unharmed(t, d, p)
			}
			ended[stateNow(t, d, p)]++
			p.Kill()
		}
		require.Empty(t, d.Owed(), "seed %d", seed)
	}
	t.Logf("%d runs ended in %v", runs, ended)
}
