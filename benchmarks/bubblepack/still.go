package main

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/hpo/bubble"
)

// want is a figure's limit on memory A.
type want struct {
	quanta         int
	free, resident float64
}

var wants = []want{{1, 0.895, 0.87}, {4, 0.96, 0.955}, {16, 0.98, 0.975}}

// bounds is the linear programme's bound by memory.
var bounds = map[string]float64{"A": 1947.0, "B": 2342.3}

// still prints what policies make where nothing scatters.
func (p *program) still() error {
	for _, memory := range []string{"A", "B"} {
		cfg, err := scenario(memory, 1, bubble.FreeSwitching)
		if err != nil {
			return err
		}
		lp, err := bubble.Bound(cfg, 0)
		if err != nil {
			return err
		}
		p.Printf("\nmemory %s, no jitter: bound of the linear programme %.1f trial-steps an iteration\n", memory, lp)
		p.Result("still/"+memory+"/lp", lp, "trial-steps")
		p.Target(harness.Target{Name: "still/" + memory + "/lp-off", Value: max(lp-bounds[memory], bounds[memory]-lp), Unit: "trial-steps", Limit: 0.05})
		table := &harness.Table{Head: []string{"policy", "trial-steps", "of LP"}}
		row := func(name string, steps float64) {
			table.Add(name, fmt.Sprintf("%.1f", steps), fmt.Sprintf("%.4f", steps/lp))
		}
		for _, i := range []int{0, 2, 4, 6} {
			row(fmt.Sprintf("fixed F=%d", points[i].fused), inSteps(&cfg, func(_, c int) bool { return c == i }))
		}
		one, set := bestLoaded(&cfg)
		row("one bundle a stage, best F, whole steps", one)
		row("best resident set a stage, one F a window, whole steps", set)
		row("best F a window, whole steps", inSteps(&cfg, func(int, int) bool { return true }))
		for _, residency := range []bubble.Residency{bubble.FreeSwitching, bubble.ResidentSet} {
			for _, w := range wants {
				if err := p.stillOurs(memory, w, residency, lp, row); err != nil {
					return err
				}
			}
		}
		p.Table(table)
	}
	return nil
}

// stillOurs adds the rows of the knapsack and of the packer.
func (p *program) stillOurs(memory string, w want, residency bubble.Residency, lp float64, row func(string, float64)) error {
	cfg, err := scenario(memory, w.quanta, residency)
	if err != nil {
		return err
	}
	most, err := bubble.Knapsack(cfg)
	if err != nil {
		return err
	}
	row(fmt.Sprintf("integer knapsack optimum, %v, Q=%d", residency, w.quanta), most)
	world := newWorld(cfg, p.Seed, 0)
	world.spread, world.uneven = 0, 0
	packer, _, err := calibrated(world, calibration)
	if err != nil {
		return err
	}
	if _, _, err := world.run(packer, len(cfg.Windows)); err != nil {
		return err
	}
	v := packer.View()
	row(fmt.Sprintf("ours, %v, Q=%d", residency, w.quanta), v.Steps)
	name := fmt.Sprintf("still/%s/%v/Q%d", memory, residency, w.quanta)
	p.Result(name, v.Steps/lp, "of-LP")
	if memory == "A" {
		limit := w.free
		if residency == bubble.ResidentSet {
			limit = w.resident
		}
		p.Target(harness.Target{Name: name, Value: v.Steps / lp, Unit: "of-LP", Limit: limit, AtLeast: true})
	}
	p.Target(harness.Target{Name: name + "/overruns", Value: float64(v.Overruns), Unit: "windows", Limit: 0})
	return nil
}

// inSteps returns the trial-steps of whole steps of the best point in use in each window.
func inSteps(cfg *bubble.Config, use func(window, i int) bool) float64 {
	sum := 0
	for w := range cfg.Windows {
		if i, n := bestOf(cfg, w, func(c int) bool { return use(w, c) }, 0, 1); i >= 0 {
			sum += n * points[i].fused
		}
	}
	return float64(sum)
}

// bestLoaded returns the trial-steps of whole steps with the best single point loaded on each stage, and with the best
// set of them that fits.
func bestLoaded(cfg *bubble.Config) (one, set float64) {
	for stage := range cfg.Devices {
		var ones, sets []float64
		for s := range uint(1) << len(points) {
			memory := lockstep.Bytes(0)
			for i, b := range cfg.Bundles[0].Points {
				if s>>i&1 != 0 {
					memory += b.Memory
				}
			}
			if memory > cfg.Devices[stage].Memory {
				continue
			}
			made := inSteps(cfg, func(w, c int) bool { return cfg.Windows[w].Stage == stage && s>>c&1 != 0 })
			sets = append(sets, made)
			if bits.OnesCount(s) == 1 {
				ones = append(ones, made)
			}
		}
		one, set = one+slices.Max(append(ones, 0)), set+slices.Max(sets)
	}
	return one, set
}
