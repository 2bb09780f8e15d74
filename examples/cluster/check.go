package main

import (
	"errors"
	"fmt"
	"math/big"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sim"
)

// verify adds the books up again, apart from the library's sums, and returns what
// does not agree: every job of the trace completed, each held exactly its GPUs for
// exactly the time it says, and service is that and the work asked for plus what
// checkpoints and resumes took, to the last nanosecond.
func verify(w *workload, r *sim.Result) error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if r.Finished != len(w.Trace.Jobs) || r.Rejected != 0 {
		bad("%d of %d jobs completed, %d were rejected", r.Finished, len(w.Trace.Jobs), r.Rejected)
	}
	held, work, tenants := new(big.Int), new(big.Int), new(big.Int)
	for i := range r.Records {
		rec := &r.Records[i]
		service := product(rec.GPUs, int64(rec.Held))
		if rec.Service.Big().Cmp(service) != 0 {
			bad("job %s: service %s, but %s GPUs for %v", rec.Job, rec.Service, rec.GPUs, rec.Held)
		}
		held.Add(held, service)
	}
	for i := range w.Trace.Jobs {
		j := &w.Trace.Jobs[i]
		work.Add(work, product(lockstep.WholeGPU.Mul(int64(j.GPUs)), int64(j.Duration)))
	}
	for i := range r.Tenants {
		tenants.Add(tenants, r.Tenants[i].Service.Big())
	}
	work.Add(work, r.Overhead().Big())
	for _, sum := range []struct {
		name string
		is   *big.Int
	}{
		{"the sum of GPUs × time held", held},
		{"the sum over tenants", tenants},
		{"work and overhead", work},
		{"what the simulator counted apart", r.Held.Big()},
	} {
		if sum.is.Cmp(r.Service.Big()) != 0 {
			bad("service is %s, but %s is %s", r.Service, sum.name, sum.is)
		}
	}
	const most = 5
	if more := len(errs) - most; more > 0 {
		errs = append(errs[:most], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

func product(gpus lockstep.MilliGPU, ns int64) *big.Int {
	return new(big.Int).Mul(big.NewInt(int64(gpus)), big.NewInt(ns))
}

// verifyAll verifies every run and says so in one line each.
func verifyAll(w *workload, outcomes []outcome) (lines []string, err error) {
	var errs []error
	one := func(title string, r *sim.Result) {
		if err := verify(w, r); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", title, err))
			return
		}
		lines = append(lines, fmt.Sprintf("%s: %d of %d jobs completed; service = GPUs × time held = work + overhead = %s milli-GPU-nanoseconds", title, r.Finished, r.Jobs, lockstep.GPUTime(r.Service)))
	}
	for i := range outcomes {
		one(outcomes[i].Title, outcomes[i].Result)
		if outcomes[i].Released != nil {
			one(outcomes[i].Title+", always released", outcomes[i].Released)
		}
	}
	return lines, errors.Join(errs...)
}
