package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// published is a row of the fail-stop table of ResiHP (arXiv 2605.06374v2, table 1.4 in samples a second): fractions of
// fault-free at one failure every 2 h, 1 h and 30 min; 0 is an abort.
type published struct {
	size
	resihp, oobleck, recycle [3]float64
}

// tables returns the rows for the models whose shapes are known.
func tables() []published {
	of := func(healthy float64, v [3]float64) [3]float64 {
		for i := range v {
			v[i] /= healthy
		}
		return v
	}
	return []published{
		{
			size{"7B", llama7, 4, 2, 2, 8},
			of(8.22, [3]float64{7.55, 6.48, 5.46}), of(8.22, [3]float64{6.04, 4.59, 0}), of(8.22, [3]float64{4.16, 3.94, 0}),
		},
		{
			size{"13B", llama13, 4, 4, 2, 8},
			of(8.05, [3]float64{7.95, 7.23, 5.95}), of(8.05, [3]float64{6.47, 4.79, 0}), of(8.05, [3]float64{4.91, 4.66, 0}),
		},
		{
			size{"30B", llama30, 4, 8, 2, 16},
			of(5.05, [3]float64{4.80, 4.38, 3.53}), of(5.05, [3]float64{4.48, 3.31, 0}), of(5.05, [3]float64{3.48, 3.36, 0}),
		},
	}
}

// system is a way to live through a session.
type system struct {
	name      string
	published func(p *published) [3]float64
	step      func(s situation, last **reconfig.Plan) (time.Duration, error)
}

func systems() []system {
	from := func(plan func(situation) (*reconfig.Plan, bool)) func(situation, **reconfig.Plan) (time.Duration, error) {
		return func(s situation, _ **reconfig.Plan) (time.Duration, error) { return s.step(plan), nil }
	}
	return []system{
		{"ours", nil, replanned},
		{"uniform, migrating (ResiHP)", func(p *published) [3]float64 { return p.resihp }, from(migrating)},
		{"drop group (Oobleck)", func(p *published) [3]float64 { return p.oobleck }, from(dropGroup)},
		{"re-route (ReCycle)", func(p *published) [3]float64 { return p.recycle }, from(reroute)},
	}
}

// replanned goes on with the plan after the last one.
func replanned(s situation, last **reconfig.Plan) (time.Duration, error) {
	p, err := reconfig.Replan(s.job, s.devs, *last, reconfig.Options{})
	if errors.Is(err, reconfig.ErrInfeasible) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	*last = p
	return p.Estimate.Iteration, nil
}

// lasted formats a cell: a figure, and how many sessions ended before their time.
func lasted(got float64, aborts, sessions int) string {
	switch aborts {
	case 0:
		return short(got)
	case sessions:
		return "abort"
	}
	return short(got) + fmt.Sprintf(" (%d of %d end)", aborts, sessions)
}

// failstop prints the table.
func (p *program) failstop() error {
	sessions := 20
	if p.Quick {
		sessions = 3
	}
	t := &harness.Table{Head: []string{"system", "model", "2 h", "published", "1 h", "published", "30 min", "published", "calibrated"}}
	for _, row := range tables() {
		if p.Quick && row.devices() > 32 {
			continue
		}
		for _, sys := range systems() {
			cells := []string{sys.name, row.name}
			worst := 0.0
			for rate := range 3 {
				got, aborts, err := p.sessions(row.size, sys, rate, sessions)
				if err != nil {
					return err
				}
				cells = append(cells, lasted(got, aborts, sessions))
				if sys.published == nil {
					cells = append(cells, "")
					p.Result(fmt.Sprintf("failstop/%s/rate%d", row.name, rate), got, "of-healthy")
					continue
				}
				want := sys.published(&row)[rate]
				if want == 0 {
					cells = append(cells, "abort")
					continue
				}
				cells = append(cells, short(want))
				worst = max(worst, math.Abs(got/want-1))
			}
			switch {
			case sys.published == nil:
				cells = append(cells, "")
			case worst <= 0.1:
				cells = append(cells, "yes")
			default:
				cells = append(cells, fmt.Sprintf("NO: off by %.0f %%", 100*worst))
			}
			t.Add(cells...)
		}
	}
	p.Printf("fail-stop sessions: mean throughput over that of the healthy job\n")
	p.Table(t)
	p.Note("where a rebuilt Oobleck or ReCycle is not calibrated, it is ours that stands beside it, not the authors' system")
	return nil
}

// sessions returns the mean throughput at one rate (0 is every two hours) over the sessions that lasted, 0 if none did,
// and how many ended early. In the harshest session half of the devices die; the milder ones last as long.
func (p *program) sessions(s size, sys system, rate, n int) (float64, int, error) {
	job, devs := s.job(), fleet(s.devices())
	healthy, err := reconfig.Replan(job, devs, nil, reconfig.Options{})
	if err != nil {
		return 0, 0, err
	}
	failures := s.devices() / 2 >> (2 - rate)
	sum, aborts := 0.0, 0
	for session := range n {
		rng := rand.New(rand.NewPCG(p.Seed, uint64(session)))
		dead := rng.Perm(len(devs))
		now, last := devs, healthy
		total := 1.0 // of the time before the first failure
		ended := false
		for i := range failures {
			now = slowed(now, 0, dead[i])
			step, err := sys.step(situation{job: job, devs: now, prev: healthy}, &last)
			if err != nil {
				return 0, 0, err
			}
			if step == 0 {
				ended = true
				break
			}
			total += over(healthy.Estimate.Iteration, step)
		}
		if ended {
			aborts++
			continue
		}
		sum += total / float64(failures+1)
	}
	return sum / float64(max(1, n-aborts)), aborts, nil
}

// step returns what a step takes as planned, 0 if the job stands still.
func (s situation) step(plan func(situation) (*reconfig.Plan, bool)) time.Duration {
	p, ok := plan(s)
	if !ok {
		return 0
	}
	e, err := reconfig.Evaluate(s.job, s.devs, p)
	if err != nil {
		return 0
	}
	return e.Iteration
}
