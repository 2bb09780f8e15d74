package main

import (
	"fmt"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/hpo/bubble"
)

// change prints how soon the packer finds that windows scatter more or have another length, and how often it does while
// nothing has changed.
func (p *program) change() error {
	repeats, calm := 300, 30_000
	if p.Quick {
		repeats, calm = 100, 9000
	}
	p.Input("change", fmt.Sprintf("%d runs a change, each calibrated with %d samples of its own; %d windows without one after each of %d calibrations", repeats, calibration, calm, repeats/10))
	cfg, err := scenario("A", 4, bubble.FreeSwitching)
	if err != nil {
		return err
	}
	if err := p.falseTrips(cfg, repeats/10, calm); err != nil {
		return err
	}
	table := &harness.Table{Head: []string{"change", "median windows", "p90", "p99", "worst", "within 5", "overruns until then, mean"}}
	for _, c := range []struct {
		name    string
		scatter float64
		stretch float64
	}{{"twice-the-jitter", 2, 1}, {"longer-by-10-percent", 1, 1.1}, {"shorter-by-10-percent", 1, 0.9}, {"shorter-by-20-percent", 1, 0.8}} {
		var after []int
		overruns := 0
		for k := range uint64(repeats) {
			n, o, err := p.until(cfg, p.Seed+k, c.scatter, c.stretch)
			if err != nil {
				return err
			}
			after, overruns = append(after, n), overruns+o
		}
		p.found(table, c.name, c.scatter != 1, after, overruns)
	}
	p.Table(table)
	return p.again()
}

// found prints after how many windows a change was found in each run, and the overruns until then in all.
func (p *program) found(table *harness.Table, name string, scatter bool, after []int, overruns int) {
	slices.Sort(after)
	at := func(q int) int { return after[min(len(after)*q/100, len(after)-1)] }
	within, _ := slices.BinarySearch(after, 6)
	runs := float64(len(after))
	share := float64(within) / runs
	table.Add(name, fmt.Sprint(at(50)), fmt.Sprint(at(90)), fmt.Sprint(at(99)), fmt.Sprint(at(100)), fmt.Sprintf("%.3f", share), fmt.Sprintf("%.2f", float64(overruns)/runs))
	if scatter {
		p.Target(harness.Target{Name: "change/" + name + "/median", Value: float64(at(50)), Unit: "windows", Limit: 15})
		p.Target(harness.Target{Name: "change/" + name + "/p90", Value: float64(at(90)), Unit: "windows", Limit: 30})
		return
	}
	p.Result("change/"+name+"/within-5", share, "of-runs")
	p.Target(harness.Target{Name: "change/" + name + "/p90", Value: float64(at(90)), Unit: "windows", Limit: 5})
}

// again prints what is made after jitter has doubled for good, once the packer has stopped and armed itself anew.
func (p *program) again() error {
	windows := 15_000
	if p.Quick {
		windows = 3000
	}
	for _, kind := range []bubble.Residency{bubble.FreeSwitching, bubble.ResidentSet} {
		cfg, err := scenario("A", 4, kind)
		if err != nil {
			return err
		}
		t := tally{seeds: 5, marginLP: 1}
		if t.lp, err = bubble.Bound(cfg, 0); err != nil {
			return err
		}
		for k := range uint64(t.seeds) {
			o, err := p.rearmed(cfg, p.Seed+k, windows)
			if err != nil {
				return err
			}
			t.add(o)
		}
		lp, _ := t.ratios()
		name := fmt.Sprintf("change/rearmed/%v/Q4/x2", kind)
		p.Result(name+"/harm", 100*t.harmFraction(), "%")
		p.Target(harness.Target{Name: name + "/overrun", Value: t.overrunFraction(), Unit: "of-windows", Limit: miss})
		p.Target(harness.Target{Name: name + "/lp", Value: lp, Unit: "of-LP", Limit: 0.74, AtLeast: true})
	}
	return nil
}

// rearmed returns what windows came to after a packer has armed itself anew.
func (p *program) rearmed(cfg bubble.Config, seed uint64, windows int) (outcome, error) {
	packer, _, err := calibrated(newWorld(cfg, seed, 7), calibration)
	if err != nil {
		return outcome{}, err
	}
	w := newWorld(cfg, seed, 8)
	w.spread, w.uneven = 2*w.spread, 2*w.uneven
	for {
		found, err := w.iterate(packer)
		if err != nil {
			return outcome{}, err
		}
		if found == bubble.ReasonRearmed && packer.View().Learning == 0 && packer.View().Armed {
			if m, _ := packer.Margin(); m > 0.15 { // with the new samples
				break
			}
		}
	}
	before := packer.View()
	if _, _, err := w.run(packer, windows); err != nil {
		return outcome{}, err
	}
	v := packer.View()
	return outcome{v.Steps - before.Steps, windows, int(v.Overruns - before.Overruns), v.Harm - before.Harm}, nil
}

// falseTrips counts what is found while nothing has changed.
func (p *program) falseTrips(cfg bubble.Config, runs, windows int) error {
	trips, drifts := 0, 0
	for k := range uint64(runs) {
		packer, _, err := calibrated(newWorld(cfg, p.Seed+k, 3), calibration)
		if err != nil {
			return err
		}
		w := newWorld(cfg, p.Seed+k, 4)
		for i := range windows {
			found, err := w.fill(packer, i%len(cfg.Windows))
			if err != nil {
				return err
			}
			switch found {
			case bubble.ReasonScale, bubble.ReasonHarm:
				trips++
			case bubble.ReasonDrift:
				drifts++
			}
		}
	}
	per := float64(runs) * float64(windows) / 30_000
	p.Result("change/false-drifts", float64(drifts)/per, "per-30000-windows")
	p.Target(harness.Target{Name: "change/false-trips", Value: float64(trips) / per, Unit: "per-30000-windows", Limit: 1})
	return nil
}

// until returns how many windows after a change filling stops everywhere, and how many overran until then.
func (p *program) until(cfg bubble.Config, seed uint64, scatter, stretch float64) (windows, overruns int, err error) {
	packer, _, err := calibrated(newWorld(cfg, seed, 5), calibration)
	if err != nil {
		return 0, 0, err
	}
	w := newWorld(cfg, seed, 6)
	const before = 300
	var found lockstep.Reason
	if _, found, err = w.run(packer, before); err != nil {
		return 0, 0, err
	}
	if found != "" { // by chance; begin anew
		if err := packer.Calibrate(nil, nil); err != nil {
			return 0, 0, err
		}
	}
	at := packer.View().Overruns
	w.spread, w.uneven, w.stretch = w.spread*scatter, w.uneven*scatter, stretch
	for n := 1; ; n++ {
		if _, err := w.fill(packer, (n-1)%len(cfg.Windows)); err != nil {
			return 0, 0, err
		}
		v := packer.View()
		if !v.Armed || v.Learning == len(cfg.Windows) {
			return n, int(v.Overruns - at), nil
		}
		if n == 10_000 {
			return n, int(v.Overruns - at), nil
		}
	}
}
