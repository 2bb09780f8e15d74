package gang_test

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
)

var errFlaky = errors.New("the placer is out of order")

// flaky is a placer whose calls fail now and then, changing nothing.
type flaky struct {
	cluster
	rng  *rand.Rand
	fail float64
}

func (f *flaky) Fit(r *lockstep.Request, out *lockstep.Plan) (lockstep.Verdict, error) {
	if f.rng.Float64() < f.fail {
		return lockstep.Verdict{}, errFlaky
	}
	return f.cluster.Fit(r, out)
}

func (f *flaky) Apply(p *lockstep.Plan) error {
	if f.rng.Float64() < f.fail {
		return errFlaky
	}
	return f.cluster.Apply(p)
}

func (f *flaky) Release(job lockstep.JobID) error {
	if f.rng.Float64() < f.fail {
		return errFlaky
	}
	return f.cluster.Release(job)
}

func (f *flaky) Victims(r *lockstep.Request, c *lockstep.Candidates, out *lockstep.Preempted) (lockstep.Verdict, error) {
	if f.rng.Float64() < f.fail {
		return lockstep.Verdict{}, errFlaky
	}
	return f.cluster.(gang.Preempter).Victims(r, c, out)
}

// Whatever fails in the middle of a decision, the account stays right, and once
// it no longer fails everybody gets a turn.
func TestFailingPlacersBreakNoInvariant(t *testing.T) {
	seeds := 100
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		var f *flaky
		w := anyStorm(uint64(seed), 0, func(racks, nodes, devices int) cluster {
			f = &flaky{cluster: reference(racks, nodes, devices), rng: rand.New(rand.NewPCG(uint64(seed), 9)), fail: 0.02}
			return f
		})
		w.flaky = true
		require.NoError(t, w.run(500), "seed %d", seed)
		f.fail, w.flaky = 0, false
		require.NoError(t, w.calm(), "seed %d, calm", seed)
	}
}
