package main

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/policy"
	"github.com/lockstep-gpu/lockstep/serving/autoscale"
	"github.com/lockstep-gpu/lockstep/sim/serve"
)

// mixed plays a day with loans and without.
func mixed(b *harness.Bench) error {
	day := serve.Day{Seed: b.Seed, Peak: 20}
	if b.Quick {
		day.Span, day.Period = 4*time.Hour, 4*time.Hour
	}
	requests, err := day.Requests()
	if err != nil {
		return err
	}
	var runs [2]*serve.Result
	for i, lends := range []bool{false, true} {
		if runs[i], err = mixedRun(requests, lends); err != nil {
			return err
		}
	}
	p, base := runs[1].Parts[0], runs[0].Parts[0]
	met, forced, of := 0, 0, 0
	for _, r := range runs[1].Recalls {
		if r.Deadline > requests[len(requests)-1].At {
			continue // the day was over before
		}
		of++
		if r.Met() {
			met++
		}
		if r.Forced {
			forced++
		}
	}
	b.Result("recalls", float64(of), "recalls")
	b.Result("recalls by force", float64(forced), "recalls")
	b.Result("lent", p.Lent.Hours(), "GPU-h")
	b.Result("inference with loans", p.GPUTime.Hours(), "GPU-h")
	b.Result("inference without", base.GPUTime.Hours(), "GPU-h")
	b.Result("preempted", float64(p.Preempted), "jobs")
	b.Result("shrunk", float64(p.Shrunk), "jobs")
	b.Target(harness.Target{Name: "recalls not met", Value: float64(of - met), Unit: "recalls", Limit: 0})
	b.Target(harness.Target{Name: "recalls made", Value: float64(of), Unit: "recalls", Limit: 1, AtLeast: true})
	b.Target(harness.Target{Name: "training gained", Value: p.Trained.Hours(), Unit: "GPU-h", Limit: 1, AtLeast: true})
	b.Target(harness.Target{
		Name: "requests that miss their objectives", Value: float64(p.Requests - p.Attained), Unit: "requests", Limit: float64(base.Requests - base.Attained),
	})
	return nil
}

func mixedRun(requests []serve.Request, lends bool) (*serve.Result, error) {
	engine, tokens, err := model(objectives[1])
	if err != nil {
		return nil, err
	}
	const own = 16
	scaler, err := autoscale.New(autoscale.Config{
		Rule:   autoscale.Predictive{Load: loadTime, Quantile: 950},
		Demand: autoscale.Demand{Capacity: tokens},
		Loan: autoscale.LoanConfig{
			PerReplica: lockstep.WholeGPU.Mul(gpus), Grace: time.Minute, Cleanup: 10 * time.Second, Load: loadTime,
		},
		Steady: policy.Steady{Bounded: policy.Bounded{Min: 2, Max: own}},
	})
	if err != nil {
		return nil, err
	}
	const long = 10_000 * time.Hour
	return serve.Run(serve.Config{
		Engine: engine, GPUs: gpus, Servers: own, Initial: 4, Load: loadTime, Interval: 5 * time.Second,
		Loans: serve.Loans{Enabled: lends, Jobs: []serve.Job{
			{ID: "elastic", Min: 1, Max: 8, Work: long, Save: 45 * time.Second, Restart: 30 * time.Second},
			{ID: "rigid", Min: 2, Work: long, Save: time.Minute, Restart: time.Minute},
			{ID: "spare", Min: 1, Max: 4, Work: long, Save: 20 * time.Second, Restart: 20 * time.Second},
		}},
	}, requests, scaler)
}
