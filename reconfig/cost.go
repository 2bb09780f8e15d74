package reconfig

import (
	"time"

	"github.com/lockstep-gpu/lockstep/perfmodel"
)

// costs returns the times that j is judged by: those measured, or else those that
// its model, batch and rate give.
func (j *Job) costs() Costs {
	c := j.Costs
	if !c.zero() {
		return c
	}
	b := j.Batch
	b.Tokens = max(1, b.Tokens)
	one := perfmodel.Stage{Layers: 1, Flash: j.Flash, Recompute: j.Recompute}
	c.Layer = j.cost(one, b)
	c.Head = j.cost(perfmodel.Stage{Last: true}, b)
	return c
}

// cost returns what a stage takes on one healthy device.
func (j *Job) cost(s perfmodel.Stage, b perfmodel.Batch) Cost {
	work := j.Model.Work(s, b)
	return Cost{
		Forward:  work.Forward.Time(j.Rate),
		Backward: work.Input.Time(j.Rate),
		Weight:   work.Weight.Time(j.Rate),
	}
}

// collective returns entry k of a list, or its last one.
func collective(list []time.Duration, k int) int64 {
	if len(list) == 0 || k < 2 {
		return 0
	}
	return int64(list[min(k, len(list)-1)])
}
