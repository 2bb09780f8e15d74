package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/policy"
	"github.com/lockstep-gpu/lockstep/policy/deadline"
	"github.com/lockstep-gpu/lockstep/policy/hetero"
)

// The size of a decision.
const (
	devices = 10_000
	pending = 5_000
)

// decision is one entry of the list: prepare makes what is measured ready and returns it. Each call of that is one decision.
type decision struct {
	name    string
	prepare func(p *program) (func() error, error)
	search  bool // it looks for better answers as long as it is let, and has no limit
}

// list is every decision that is measured. A package that decides something gets an entry here.
var list = []decision{
	{name: "hetero-rounds", prepare: rounds},
	{name: "hetero-rounds-changed", prepare: changed},
	{name: "hetero-fast-path-5000-groups", prepare: fastPath(pending)},
	{name: "hetero-fast-path-512-groups", prepare: fastPath(512)},
	{name: "hetero-check-5000-groups", prepare: check},
	{name: "steady-5000-sizes", prepare: steady},
	{name: "elastic-allocate", prepare: elasticAllocate},
	{name: "elastic-search", prepare: elasticSearch, search: true},
	{name: "deadline-table-admit", prepare: tableAdmit},
	{name: "deadline-table-step", prepare: tableStep},
	{name: "deadline-elastic-admit", prepare: elasticAdmit},
	{name: "deadline-elastic-admit-scarce", prepare: elasticScarce},
	{name: "deadline-elastic-replan-scarce", prepare: elasticReplan},
}

const limitMs = 20

// decisions measures the list.
func (p *program) decisions() error {
	p.Input("decide", fmt.Sprintf("%d devices in four classes, %d jobs of 1 to 8 devices", devices, pending))
	table := &harness.Table{Head: []string{"decision", "ms ref, median", "ms ref, worst"}}
	for _, d := range list {
		decide, err := d.prepare(p)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if err := decide(); err != nil { // warm
			return fmt.Errorf("%s: %w", d.name, err)
		}
		var spans []float64
		for range p.Rounds() {
			took, err := p.span(decide)
			if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			spans = append(spans, ms(took))
		}
		worst := 0.0
		for _, s := range spans {
			worst = max(worst, s)
		}
		table.Add(d.name, harness.Number(harness.Median(spans)), harness.Number(worst))
		if d.search {
			p.Result("decide/"+d.name, harness.Median(spans), "ms")
			continue
		}
		p.Target(harness.Target{Name: "decide/" + d.name, Value: harness.Median(spans), Unit: "ms", Limit: limitMs})
	}
	p.Table(table)
	return nil
}

// jobs are the targets of a round, with shares that add up to about what there is.
func jobs(seed uint64) ([]hetero.Class, []hetero.Target) {
	classes := []hetero.Class{{ID: "a", Devices: devices / 4}, {ID: "b", Devices: devices / 4}, {ID: "c", Devices: devices / 4}, {ID: "d", Devices: devices / 4}}
	rng := rand.New(rand.NewPCG(seed, 5))
	targets := make([]hetero.Target, pending)
	for i := range targets {
		targets[i] = hetero.Target{Job: lockstep.JobID(fmt.Sprintf("j%05d", i)), GPUs: 1 << rng.IntN(4), Shares: make([]hetero.Parts, 4), Able: []bool{true, true, true, true}}
		for c := range targets[i].Shares {
			targets[i].Shares[c] = hetero.Parts(rng.IntN(240_000))
		}
	}
	return classes, targets
}

// rounds is the next round of all jobs.
func rounds(p *program) (func() error, error) {
	classes, targets := jobs(p.Seed)
	r, err := hetero.NewRounds(hetero.RoundsConfig{Classes: classes})
	if err != nil {
		return nil, err
	}
	if err := r.Set(targets); err != nil {
		return nil, err
	}
	return func() error {
		if len(r.Next()) == 0 {
			return fmt.Errorf("nobody runs")
		}
		return nil
	}, nil
}

// changed is the same after one job went and one came.
func changed(p *program) (func() error, error) {
	classes, targets := jobs(p.Seed)
	r, err := hetero.NewRounds(hetero.RoundsConfig{Classes: classes})
	if err != nil {
		return nil, err
	}
	n := 0
	return func() error {
		n++
		targets[n*7919%len(targets)].Job = lockstep.JobID(fmt.Sprintf("k%05d", n))
		if err := r.Set(targets); err != nil {
			return err
		}
		r.Next()
		return nil
	}, nil
}

// fastPath is the equal split of all jobs in so many groups.
func fastPath(groups int) func(p *program) (func() error, error) {
	return func(p *program) (func() error, error) {
		input := crowd(p.Seed, groups)
		return func() error {
			_, err := hetero.EqualSplit(input)
			return err
		}, nil
	}
}

// crowd is all jobs in so many groups.
func crowd(seed uint64, groups int) hetero.Problem {
	input := problem(madeUp(rand.New(rand.NewPCG(seed, 0))), groups, seed)
	for c := range input.Classes {
		input.Classes[c].Devices = devices / 4
	}
	for g := range input.Groups {
		input.Groups[g].Count = pending / groups
	}
	return input
}

// check is what a seam does with an answer.
func check(p *program) (func() error, error) {
	input := crowd(p.Seed, pending)
	a, err := hetero.EqualSplit(input)
	if err != nil {
		return nil, err
	}
	return func() error { return hetero.Check(input, a.Shares) }, nil
}

// steady is a step of the decorators of as many sizes as there are jobs.
func steady(p *program) (func() error, error) {
	sizes := make([]policy.Steady, pending)
	for i := range sizes {
		sizes[i] = policy.Steady{
			Delayed: policy.Delayed{Up: time.Minute, Down: 10 * time.Minute}, RateLimited: policy.RateLimited{Interval: time.Minute, UpFactor: 2},
			Cooldown: policy.Cooldown{Up: time.Minute}, Bounded: policy.Bounded{Max: 64, PowersOfTwo: true},
		}
	}
	have := make([]int, pending)
	now, rng := time.Unix(0, 0), rand.New(rand.NewPCG(p.Seed, 6))
	return func() error {
		now = now.Add(10 * time.Second)
		for i := range sizes {
			v, err := sizes[i].Step(now, have[i], policy.Demand(rng.IntN(70_000)))
			if err != nil {
				return err
			}
			have[i] = v.Target
		}
		return nil
	}, nil
}

// midnight is when the decisions about deadlines are made.
var midnight = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// table has as many admitted jobs as are pending.
func table(p *program) (*deadline.Table, error) {
	t, err := deadline.New(deadline.Config{GPUs: devices})
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(p.Seed, 6))
	for i := 0; t.Len() < pending; i++ {
		run := time.Duration(1+rng.IntN(40)) * 20 * time.Minute
		if _, err := t.Admit(midnight, deadline.Job{
			ID: lockstep.JobID(fmt.Sprintf("j%05d", i)), GPUs: 1 << rng.IntN(4), Remaining: run,
			Deadline: midnight.Add(2*run + time.Duration(rng.IntN(40))*20*time.Minute),
		}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// tableAdmit is a job that comes and goes beside all others.
func tableAdmit(p *program) (func() error, error) {
	t, err := table(p)
	if err != nil {
		return nil, err
	}
	return func() error {
		d, err := t.Admit(midnight, deadline.Job{ID: "new", GPUs: 64, Remaining: time.Hour, Deadline: midnight.Add(12 * time.Hour)})
		if err != nil {
			return err
		}
		if !d.Feasible {
			return fmt.Errorf("not admitted: %s", d.Reason)
		}
		return t.Finish(midnight, "new")
	}, nil
}

// tableStep is the next slot.
func tableStep(p *program) (func() error, error) {
	t, err := table(p)
	if err != nil {
		return nil, err
	}
	return func() error {
		_, err := t.Step(midnight)
		return err
	}, nil
}
