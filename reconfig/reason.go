package reconfig

import (
	"math"

	"github.com/lockstep-gpu/lockstep"
)

// infeasible says why there is no plan.
func (p *planner) infeasible() error {
	w := p.w
	least := w.job.Allow.MinReplicas
	if w.job.Allow.FixedStages {
		least *= w.job.Layout.PP
	}
	if len(w.degrees) == 0 {
		return &Infeasible{TensorLevel, ReasonDegree, Witness{Replica: -1, Stage: -1, Need: int64(w.job.Allow.MinTP), Have: int64(w.job.Layout.TP)}}
	}
	if groups := len(p.groups(false)); groups < least {
		return &Infeasible{PipelineLevel, ReasonTooFew, Witness{Replica: -1, Stage: -1, Need: int64(least), Have: int64(groups)}}
	}
	if w.limited {
		return p.tooLarge()
	}
	return &Infeasible{DataLevel, ReasonSplit, Witness{Replica: -1, Stage: -1, Need: int64(w.job.Micros)}}
}

// tooLarge says that the model does not fit: what the first stage would need of the
// roomiest device, in the pipeline for which that is least; or if that is not too much,
// what all its stages would need, and what all devices have.
func (p *planner) tooLarge() error {
	w, witness, stages := p.w, nowhere(), int64(0)
	for i := range w.units {
		if u := &w.units[i]; u.speed > 0 && u.mem > witness.Have {
			witness.Have, witness.Devices = u.mem, []lockstep.DeviceID{u.id}
		}
	}
	micros := max(1, w.job.Micros/w.job.Layout.DP)
	k := w.degrees[len(w.degrees)-1]
	for n := 1; n <= min(w.stages, len(p.groups(true))); n++ {
		l := w.schedule(n, micros)
		if l == nil {
			continue
		}
		need := w.memory(k, (w.layers+n-1)/n, true, n == 1, l.peaks[0], w.losses(micros), w.job.Layout.DP)
		if witness.Need == 0 || need < witness.Need {
			witness.Need, witness.Layers, stages = need, Span{0, (w.layers + n - 1) / n}, int64(n)
		}
	}
	if witness.Need <= witness.Have {
		return p.tooLargeTogether(witness.Need, stages*int64(k))
	}
	return &Infeasible{PipelineLevel, ReasonMemory, witness}
}

// tooLargeTogether says that the least replicas do not fit on all devices together, each
// on so many that need so much each; or only that no layout was found.
func (p *planner) tooLargeTogether(each, devices int64) error {
	w, witness := p.w, nowhere()
	for i := range w.units {
		if u := &w.units[i]; u.speed > 0 {
			witness.Have += min(u.mem, math.MaxInt64-witness.Have)
		}
	}
	witness.Need = each * devices * int64(w.job.Allow.MinReplicas)
	if witness.Need > witness.Have {
		return &Infeasible{PipelineLevel, ReasonMemory, witness}
	}
	return &Infeasible{DataLevel, ReasonSplit, Witness{Replica: -1, Stage: -1, Need: int64(w.job.Micros)}}
}
