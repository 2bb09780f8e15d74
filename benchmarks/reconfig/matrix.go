package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
)

// cell is one size under one scenario, over some draws.
type cell struct {
	draws  int
	scaled []float64   // ours: throughput of what is left
	bound  []float64   // the same of the bound
	others [][]float64 // the same of each baseline
	below  int         // draws in which a baseline was better
	worst  float64     // least ratio of ours to the best baseline
	none   int         // draws without a plan
	calm   []float64   // as scaled, with the default Disturb
	lag    float64     // least ratio of that to the best baseline
	moved  []float64   // bytes that the calm plan moves over all bytes of state, sizes up to maxMoves
	groups []float64   // communicators that it makes anew
}

// maxMoves is the largest job whose moves are planned here.
const maxMoves = 1024

// matrix prints all sizes and scenarios.
func (p *program) matrix() error {
	below, cells := 0, 0
	worst, lag := math.Inf(1), math.Inf(1)
	for _, s := range sizes() {
		if p.Quick && s.devices() > 256 {
			continue
		}
		job, devs := s.job(), fleet(s.devices())
		healthy, err := reconfig.Replan(job, devs, nil, reconfig.Options{})
		if err != nil {
			return err
		}
		head := []string{"fault", "ours", "bound"}
		for _, o := range baselines() {
			head = append(head, o.name)
		}
		t := &harness.Table{Head: append(head, "ours/best", "calm", "calm/best", "moved", "groups")}
		for _, sc := range scenarios() {
			c, err := p.cell(s, job, devs, healthy, sc)
			if err != nil {
				return fmt.Errorf("%d devices, %s: %w", s.devices(), sc.name, err)
			}
			if c == nil {
				continue
			}
			t.Add(c.row(sc.name)...)
			below += c.below
			cells += c.draws
			worst, lag = min(worst, c.worst), min(lag, c.lag)
		}
		p.Printf("%d devices: %s as TP %d x PP %d x DP %d, %d micro-batches\n", s.devices(), s.name, s.tp, s.pp, s.dp, job.Micros)
		p.Table(t)
	}
	p.Result("matrix/draws", float64(cells), "")
	p.Result("matrix/worst-to-best-baseline", worst, "ratio")
	p.Result("matrix/calm-to-best-baseline", lag, "ratio")
	p.Target(harness.Target{Name: "matrix/below-a-baseline", Value: float64(below), Unit: "draws", Limit: 0})
	return nil
}

// draws returns how often a scenario is drawn on n devices.
func (p *program) draws(n int) int {
	switch {
	case p.Quick:
		return 3
	case n <= 1024:
		return 12
	case n <= 4096:
		return 4
	default:
		return 2
	}
}

// cell runs one scenario on one size; nil where it does not apply.
func (p *program) cell(s size, job reconfig.Job, devs []reconfig.Device, healthy *reconfig.Plan, sc scenario) (*cell, error) {
	rng := rand.New(rand.NewPCG(p.Seed, uint64(s.devices())))
	c := &cell{worst: math.Inf(1), lag: math.Inf(1), others: make([][]float64, len(baselines()))}
	for range p.draws(s.devices()) {
		hurt, ok := sc.hurt(rng, devs, healthy)
		if !ok {
			return nil, nil
		}
		if err := c.draw(job, hurt, healthy); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// draw plans twice, once for any gain and once as by default, and compares.
func (c *cell) draw(job reconfig.Job, hurt []reconfig.Device, healthy *reconfig.Plan) error {
	c.draws++
	base, share := healthy.Estimate.Iteration, left(hurt)
	plan, err := planned(job, hurt, healthy, reconfig.Options{Disturb: reconfig.AnyGain})
	if err != nil {
		return err
	}
	calm, err := planned(job, hurt, healthy, reconfig.Options{})
	if err != nil {
		return err
	}
	if plan == nil || calm == nil {
		c.none++
		plan, calm = &reconfig.Plan{}, &reconfig.Plan{}
	} else if err := c.note(job, hurt, healthy, calm); err != nil {
		return err
	}
	ours, quiet := over(base, plan.Estimate.Iteration), over(base, calm.Estimate.Iteration)
	c.scaled, c.calm = append(c.scaled, ours/share), append(c.calm, quiet/share)
	now := situation{job: job, devs: hurt, prev: healthy}
	best := 0.0
	for i, o := range baselines() {
		v := over(base, now.step(o.plan))
		c.others[i] = append(c.others[i], v/share)
		best = max(best, v)
	}
	if best > 0 {
		c.worst, c.lag = min(c.worst, ours/best), min(c.lag, quiet/best)
	}
	if ours < best*(1-1e-9) {
		c.below++
	}
	return nil
}

// planned returns a verified plan; nil if there is none.
func planned(job reconfig.Job, devs []reconfig.Device, prev *reconfig.Plan, o reconfig.Options) (*reconfig.Plan, error) {
	plan, err := reconfig.Replan(job, devs, prev, o)
	if errors.Is(err, reconfig.ErrInfeasible) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return plan, reconfig.Verify(job, devs, plan)
}

// note notes the bound and what it takes to go to a plan.
func (c *cell) note(job reconfig.Job, devs []reconfig.Device, prev, next *reconfig.Plan) error {
	c.bound = append(c.bound, over(prev.Estimate.Iteration, next.Estimate.Fluid)/left(devs))
	c.groups = append(c.groups, float64(rebuilt(prev, next)))
	if len(devs) > maxMoves {
		return nil
	}
	moved, err := movedShare(job, devs, prev, next)
	c.moved = append(c.moved, moved)
	return err
}

// rebuilt counts the communicators of next that prev does not have.
func rebuilt(prev, next *reconfig.Plan) int {
	have := map[string]bool{}
	key := func(g *reconfig.Group) string { return fmt.Sprint(g.Kind, g.Devices) }
	for i := range prev.Groups {
		have[key(&prev.Groups[i])] = true
	}
	n := 0
	for i := range next.Groups {
		if !have[key(&next.Groups[i])] {
			n++
		}
	}
	return n
}

// movedShare returns the bytes that move over all bytes of state that devices are to hold.
func movedShare(job reconfig.Job, devs []reconfig.Device, prev, next *reconfig.Plan) (float64, error) {
	have, err := moves.Held(job, prev)
	if err != nil {
		return 0, err
	}
	m, err := moves.Between(job, devs, have, next, moves.Options{})
	if err != nil {
		return 0, err
	}
	total := m.Traffic.Total()
	return float64(total) / float64(total+m.Kept), nil
}

// row formats c.
func (c *cell) row(name string) []string {
	out := []string{name, short(mean(c.scaled)), short(mean(c.bound))}
	for _, o := range c.others {
		out = append(out, short(mean(o)))
	}
	moved := "-"
	if len(c.moved) > 0 {
		moved = fmt.Sprintf("%.1f %%", 100*mean(c.moved))
	}
	return append(out, short(c.worst), short(mean(c.calm)), short(c.lag), moved, fmt.Sprintf("%.0f", median(c.groups)))
}

func short(x float64) string {
	if math.IsInf(x, 0) || math.IsNaN(x) {
		return "-"
	}
	return fmt.Sprintf("%.3f", x)
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	s := slices.Clone(x)
	slices.Sort(s)
	return s[len(s)/2]
}
