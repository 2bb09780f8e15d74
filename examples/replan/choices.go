package main

import (
	"errors"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// choice is an alternative to the plan.
type choice struct {
	name     string
	estimate reconfig.Estimate
	why      string // it is none, if not empty
}

// alternatives returns what else could be done.
func alternatives(job reconfig.Job, devs []reconfig.Device, old *reconfig.Plan) ([]choice, error) {
	out := []choice{judge("go on as before", job, devs, old), judge("drop the replicas that are hit", job, devs, dropped(job, devs, old))}
	alike := job
	alike.Allow.Uniform = true
	p, err := reconfig.Replan(alike, devs, old, reconfig.Options{Disturb: reconfig.AnyGain})
	switch {
	case errors.Is(err, reconfig.ErrInfeasible):
		out = append(out, choice{name: "all replicas alike", why: "there is no such plan"})
	case err != nil:
		return nil, err
	default:
		out = append(out, choice{name: "all replicas alike", estimate: p.Estimate})
	}
	return out, nil
}

// judge evaluates a plan.
func judge(name string, job reconfig.Job, devs []reconfig.Device, p *reconfig.Plan) choice {
	if len(p.Replicas) == 0 {
		return choice{name: name, why: "none is left"}
	}
	e, err := reconfig.Evaluate(job, devs, p)
	var none *reconfig.Infeasible
	switch {
	case errors.As(err, &none) && none.Reason == reconfig.ReasonDead:
		return choice{name: name, why: "the job stands still"}
	case err != nil:
		return choice{name: name, why: err.Error()}
	}
	return choice{name: name, estimate: e}
}

// dropped is the plan without the replicas that have a device which is not healthy; the others share their work.
func dropped(job reconfig.Job, devs []reconfig.Device, old *reconfig.Plan) *reconfig.Plan {
	bad := map[lockstep.DeviceID]bool{}
	for _, d := range devs {
		bad[d.ID] = d.State != reconfig.Up || d.Speed < 1
	}
	p := &reconfig.Plan{}
	for _, r := range old.Replicas {
		hit := false
		for _, s := range r.Stages {
			for _, id := range s.Devices {
				hit = hit || bad[id]
			}
		}
		if !hit {
			p.Replicas = append(p.Replicas, r)
		}
	}
	for i := range p.Replicas {
		n := job.Micros / len(p.Replicas)
		if i < job.Micros%len(p.Replicas) {
			n++
		}
		p.Split = append(p.Split, n)
	}
	return p
}
