package main

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/hpo"
)

// outcome is a search that was simulated.
type outcome struct {
	makespan time.Duration
	w        *world
}

// rate is the trial-steps made in a second.
func (o *outcome) rate() float64 { return float64(o.w.steps) / o.makespan.Seconds() }

func simulate(rule hpo.Config, trials, bubbles int, still bool, seed uint64) (*outcome, error) {
	w, err := newWorld(rule, trials, bubbles, still, metrics(seed))
	if err != nil {
		return nil, err
	}
	span, err := w.play()
	if err != nil {
		return nil, err
	}
	return &outcome{span, w}, nil
}

// bench is a rule, run with one part in so many of the trials, and whether it is held to the targets.
type bench struct {
	name string
	rule hpo.Config
	part int
	held bool
}

// ends runs searches on one exclusive device and N bubbles.
func (p *program) ends() error {
	trials := 65_536
	if p.Quick {
		trials = 32_768
	}
	p.Input("search", fmt.Sprintf("%d trials of up to 27 epochs, one key; bundles of up to 16", trials))
	p.Input("slots", "1 exclusive GPU and N bubble GPUs at 0.15 of its throughput")
	rules := []bench{
		{"sha", hpo.Config{SHA: &hpo.SHA{Max: 27, Trials: 1024}}, 1, true},
		{"asha", hpo.Config{ASHA: &hpo.ASHA{Max: 27}}, 1, true},
		{"stopping", hpo.Config{ASHA: &hpo.ASHA{Variant: hpo.Stopping, Max: 27}}, 1, false},
		{"asha-short", hpo.Config{ASHA: &hpo.ASHA{Max: 27}}, 16, false},
	}
	t := &harness.Table{Head: []string{"rule", "N", "bound", "speed-up", "of bound", "makespan", "steps/s x", "of bound", "without moves", "mean F", "moves", "promoted steps on the GPU"}}
	for _, r := range rules {
		trials := trials / r.part
		alone, err := simulate(r.rule, trials, 0, false, p.Seed)
		if err != nil {
			return err
		}
		for _, n := range []int{0, 11, 31} {
			o, still := alone, alone
			if n > 0 {
				if o, err = simulate(r.rule, trials, n, false, p.Seed); err != nil {
					return err
				}
				if still, err = simulate(r.rule, trials, n, true, p.Seed); err != nil {
					return err
				}
			}
			bound := 1 + share*float64(n)
			up, rate := alone.makespan.Seconds()/o.makespan.Seconds(), o.rate()/alone.rate()
			on := float64(o.w.strong[0]) / float64(max(1, o.w.strong[0]+o.w.strong[1]))
			t.Add(r.name, fmt.Sprint(n), fmt.Sprintf("%.2f", bound), fmt.Sprintf("%.3f", up), fmt.Sprintf("%.3f", up/bound), fmt.Sprintf("%.0f s", o.makespan.Seconds()),
				fmt.Sprintf("%.3f", rate), fmt.Sprintf("%.3f", rate/bound), fmt.Sprintf("%.3f", alone.makespan.Seconds()/still.makespan.Seconds()/bound),
				fmt.Sprintf("%.1f", float64(o.w.fused)/float64(o.w.starts)), fmt.Sprint(o.w.moves), fmt.Sprintf("%.2f", on))
			if n == 0 || !r.held {
				continue
			}
			name := fmt.Sprintf("ends/%s/%d/of-bound", r.name, n)
			p.Result(name, rate/bound, "")
			p.Target(harness.Target{Name: name, Value: min(up, rate) / bound, Limit: 0.9, AtLeast: true})
			p.Target(harness.Target{Name: name + "/not-above", Value: max(rate, up) / bound, Limit: 1})
		}
	}
	p.Table(t)
	p.Note("published for Hydro: 2.7x with 1 exclusive GPU, simulated; asha-short has a sixteenth of the trials, of which the end takes a larger part; SHA does the same work on any slots, ASHA promotes others as trials come in another order, so that steps a second stand beside the makespan")
	return nil
}
