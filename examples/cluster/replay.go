package main

import (
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
	"github.com/lockstep-gpu/lockstep/topology"
)

// outcome is what became of the workload under one policy.
type outcome struct {
	policy
	*sim.Result
	Released *sim.Result // LTGF's again, where every lease that ends is paid for; nil for the others
	Wall     time.Duration
	GPUs     int // of the cluster
	marks    marks
}

// cluster is nodes of like GPUs, all NVLink inside.
func (o *options) cluster() (*topology.Tree, error) {
	shape, err := topology.UniformShape(o.perNode, topology.NVLink(18))
	if err != nil {
		return nil, err
	}
	return topology.Uniform(topology.UniformConfig{Fanout: []int{o.nodes}, Shape: shape})
}

// run is one simulation to do.
type run struct {
	policy
	unconditional bool
}

// runs are the simulations that the options ask for, LTGF's first of them without
// extension in place, for comparison.
func (o *options) runs() (all []run) {
	for _, p := range o.policies {
		all = append(all, run{policy: p})
		if p.Rule == scheduler.LTGF {
			all = append(all, run{policy: p, unconditional: true})
		}
	}
	return all
}

// replay replays the workload under every policy, several at a time. The order of
// what it returns is that of the options, whichever ends first.
func (o *options) replay(w *workload, progress func(jobs int)) ([]outcome, error) {
	tree, err := o.cluster()
	if err != nil {
		return nil, err
	}
	runs := o.runs()
	outcomes, errs := make([]outcome, len(runs)), make([]error, len(runs))
	var wait sync.WaitGroup
	slots := make(chan struct{}, min(len(runs), runtime.GOMAXPROCS(0)))
	for i := range runs {
		slots <- struct{}{}
		wait.Go(func() {
			outcomes[i], errs[i] = o.simulate(w, tree, runs[i], progress)
			<-slots
		})
	}
	wait.Wait()
	var kept []outcome
	for i, r := range runs {
		switch {
		case errs[i] != nil:
			return nil, fmt.Errorf("%s: %w", r.Title, errs[i])
		case r.unconditional:
			kept[len(kept)-1].Released = outcomes[i].Result
		default:
			kept = append(kept, outcomes[i])
		}
	}
	return kept, nil
}

// simulate runs one policy. All of the scheduler is behind scheduler.New: which
// parts it is made of, and how they hang together, is package scheduler's to read.
func (o *options) simulate(w *workload, tree *topology.Tree, r run, progress func(jobs int)) (outcome, error) {
	out := outcome{policy: r.policy, GPUs: o.nodes * o.perNode}
	s, err := scheduler.New(o.scheduler(w, tree, r.policy))
	if err != nil {
		return out, err
	}
	cfg := o.simulation(w, tree)
	cfg.Unconditional = r.unconditional
	if !r.unconditional {
		cfg.Event, cfg.Action = out.marks.event, out.marks.action
	}
	finished := 0
	cfg.Progress = func(p sim.Progress) {
		progress(p.Finished - finished)
		finished = p.Finished
	}
	jobs := w.jobs(o)
	began := time.Now()
	out.Result, err = sim.Run(cfg, jobs, s)
	out.Wall = time.Since(began)
	return out, err
}

// scheduler is what a host would write to embed the policy.
func (o *options) scheduler(w *workload, tree *topology.Tree, p policy) scheduler.Config {
	cfg := scheduler.Config{Rule: p.Rule, Weights: w.Weights, Tree: tree}
	switch p.Rule {
	case scheduler.LTGF, scheduler.SRTF, scheduler.LAS:
		cfg.Term = o.lease
	}
	return cfg
}

func (o *options) simulation(w *workload, tree *topology.Tree) sim.Config {
	return sim.Config{Tree: tree, Weights: w.Weights, Points: 1024}
}

// decisions is how many actions a second of wall time decided, with the
// simulation around them.
func (out *outcome) decisions() float64 {
	if out.Wall <= 0 {
		return 0
	}
	return float64(out.Actions) / out.Wall.Seconds()
}

// record returns what became of a job.
func (out *outcome) record(id lockstep.JobID) *sim.Record {
	for i := range out.Records {
		if out.Records[i].Job == id {
			return &out.Records[i]
		}
	}
	return nil
}
