package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/hpo/bubble"
)

const (
	calibration = 4000 // samples of each kind
	iteration   = 4.95 // seconds
	miss        = 1e-3
)

// calibrated returns a packer for the scenario of w that knows n samples of each kind, and those of steps.
func calibrated(w *world, n int) (*bubble.Packer, []bubble.Sample, error) {
	p, err := bubble.New(w.cfg)
	if err != nil {
		return nil, nil, err
	}
	windows, steps := w.samples(n)
	return p, steps, p.Calibrate(windows, steps)
}

// run is one row of the table with jitter.
type run struct {
	memory string
	quanta int
	kind   bubble.Residency
	times  float64 // the jitter over the usual
}

// tally is what a row came to over all seeds.
type tally struct {
	outcome
	lp, marginLP float64 // an iteration; the second one summed over seeds
	seeds        int
	stops        []string
}

// jitter prints what policies make where windows and steps scatter.
func (p *program) jitter() error {
	seeds, windows := 5, 30_000
	if p.Quick {
		windows = 6000
	}
	p.Input("jitter", fmt.Sprintf("windows %d a seed, %d seeds from %d, %d samples of each kind for calibration, streams apart", windows, seeds, p.Seed, calibration))
	for _, memory := range []string{"A", "B"} {
		table := &harness.Table{Head: []string{"memory " + memory, "of LP", "of margin LP", "harm %", "windows overrun", "steps a ms of harm"}}
		if err := p.rivalRows(table, memory, seeds, windows); err != nil {
			return err
		}
		for _, r := range []run{
			{memory, 1, bubble.FreeSwitching, 1},
			{memory, 4, bubble.FreeSwitching, 1},
			{memory, 16, bubble.FreeSwitching, 1},
			{memory, 1, bubble.ResidentSet, 1},
			{memory, 4, bubble.ResidentSet, 1},
			{memory, 16, bubble.ResidentSet, 1},
			{memory, 4, bubble.FreeSwitching, 2},
			{memory, 4, bubble.ResidentSet, 2},
		} {
			t, err := p.ours(r, seeds, windows)
			if err != nil {
				return err
			}
			name := fmt.Sprintf("ours, %v, Q=%d", r.kind, r.quanta)
			if r.times != 1 {
				name += fmt.Sprintf(", %gx jitter, calibrated for it", r.times)
			}
			t.row(table, name)
			p.judge(r, &t)
		}
		p.Table(table)
	}
	return nil
}

// ours lets the packer fill.
func (p *program) ours(r run, seeds, windows int) (tally, error) {
	t := tally{seeds: seeds}
	cfg, err := scenario(r.memory, r.quanta, r.kind)
	if err != nil {
		return t, err
	}
	if t.lp, err = bubble.Bound(cfg, 0); err != nil {
		return t, err
	}
	for k := range uint64(seeds) {
		before, after := newWorld(cfg, p.Seed+k, 1), newWorld(cfg, p.Seed+k, 2)
		for _, w := range []*world{before, after} {
			w.spread, w.uneven = w.spread*r.times, w.uneven*r.times
		}
		packer, _, err := calibrated(before, calibration)
		if err != nil {
			return t, err
		}
		margin, _ := packer.Margin()
		lp, err := bubble.Bound(cfg, margin)
		if err != nil {
			return t, err
		}
		t.marginLP += lp
		at, found, err := after.run(packer, windows)
		if err != nil {
			return t, err
		}
		if found != "" {
			t.stops = append(t.stops, fmt.Sprintf("seed %d after %d windows: %s", p.Seed+k, at, found))
		}
		v := packer.View()
		t.add(outcome{v.Steps, int(v.Windows), int(v.Overruns), v.Harm})
	}
	return t, nil
}

// rivalRows adds the rows of the others.
func (p *program) rivalRows(table *harness.Table, memory string, seeds, windows int) error {
	cfg, err := scenario(memory, 1, bubble.FreeSwitching)
	if err != nil {
		return err
	}
	lp, err := bubble.Bound(cfg, 0)
	if err != nil {
		return err
	}
	var tallies []tally
	var names []string
	for k := range uint64(seeds) {
		packer, steps, err := calibrated(newWorld(cfg, p.Seed+k, 1), calibration)
		if err != nil {
			return err
		}
		margin, _ := packer.Margin()
		marginLP, err := bubble.Bound(cfg, margin)
		if err != nil {
			return err
		}
		p.Note(fmt.Sprintf("memory %s, seed %d: margin %.4f of the window, inflation of steps %.4f", memory, p.Seed+k, margin, inflation(steps)))
		for i, r := range rivals(&cfg, margin, inflation(steps)) {
			if len(tallies) <= i {
				tallies, names = append(tallies, tally{lp: lp, seeds: seeds}), append(names, r.name)
			}
			tallies[i].marginLP += marginLP
			tallies[i].add(newWorld(cfg, p.Seed+k, 2).play(r, windows))
		}
	}
	for i := range tallies {
		tallies[i].row(table, names[i])
	}
	return nil
}

// ratios returns the shares of the bounds.
func (t *tally) ratios() (lp, marginLP float64) {
	made := t.steps / float64(t.windows) * 15
	return made / t.lp, made / (t.marginLP / float64(t.seeds))
}

// harmFraction returns the sum of overruns over the time of all iterations, a bound on the slowdown of the main job.
func (t *tally) harmFraction() float64 {
	return t.harm.Seconds() / (float64(t.windows) / 15 * iteration)
}

func (t *tally) overrunFraction() float64 { return float64(t.overruns) / float64(t.windows) }

func (t *tally) row(table *harness.Table, name string) {
	lp, marginLP := t.ratios()
	perHarm := "-"
	if t.harm > 0 {
		perHarm = harness.Number(t.steps / (float64(t.harm) / float64(time.Millisecond)))
	}
	table.Add(name, fmt.Sprintf("%.4f", lp), fmt.Sprintf("%.4f", marginLP), fmt.Sprintf("%.5f", 100*t.harmFraction()), fmt.Sprintf("%.6f", t.overrunFraction()), perHarm)
}

// judge holds a row against its targets.
func (p *program) judge(r run, t *tally) {
	name := fmt.Sprintf("jitter/%s/%v/Q%d/x%g", r.memory, r.kind, r.quanta, r.times)
	lp, marginLP := t.ratios()
	p.Result(name, lp, "of-LP")
	if len(t.stops) > 0 {
		p.Note(name + ": filling stopped for a while: " + strings.Join(t.stops, "; "))
	}
	p.Target(harness.Target{Name: name + "/overrun", Value: t.overrunFraction(), Unit: "of-windows", Limit: miss})
	if r.memory != "A" || r.quanta != 4 {
		return
	}
	least := func(what string, value, limit float64) {
		p.Target(harness.Target{Name: name + "/" + what, Value: value, Unit: "of-LP", Limit: limit, AtLeast: true})
	}
	switch {
	case r.times == 2:
		least("lp", lp, 0.74)
	default:
		least("lp", lp, map[bubble.Residency]float64{bubble.FreeSwitching: 0.85, bubble.ResidentSet: 0.84}[r.kind])
		least("margin-lp", marginLP, 0.95)
		p.Target(harness.Target{Name: name + "/harm", Value: 100 * t.harmFraction(), Unit: "%", Limit: 0.002})
	}
}
