package detect

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// AllMicros as the Micro of a Chunk says that Took is the sum over all
// micro-batches of the iteration.
const AllMicros = -1

// Chunk is one measured piece of an iteration: what one stage of one replica
// took for one kind of pass over one micro-batch, without waiting for others.
type Chunk struct {
	Replica int           // data-parallel replica, from 0
	Stage   int           // pipeline stage, from 0
	Part    int           // model chunk on that stage where the schedule is interleaved, else 0
	Kind    pipeline.Kind // pass that was measured
	Micro   int           // micro-batch of the iteration, from 0, or AllMicros
	Took    time.Duration // time on the device, above 0
}

// Wait is what the ranks of one tensor-parallel group waited for each other in their collectives.
type Wait struct {
	Replica int             // data-parallel replica, from 0
	Stage   int             // pipeline stage, from 0
	Ranks   []time.Duration // by rank of the group, at least 0 each; of this iteration or of some of late
}

// Phase is what a job does around an iteration.
type Phase uint8

// Phases. Only iterations of Training are judged and learned from.
const (
	Training   Phase = iota // a training step and nothing else
	Warming                 // first steps: compilation, autotuning, caches
	Saving                  // a checkpoint is written
	Evaluating              // the model is evaluated
	Resizing                // groups are built anew, layers or ranks move
)

// String returns the name of p.
func (p Phase) String() string {
	switch p {
	case Training:
		return "training"
	case Warming:
		return "warming"
	case Saving:
		return "saving"
	case Evaluating:
		return "evaluating"
	case Resizing:
		return "resizing"
	}
	return "Phase(" + strconv.Itoa(int(p)) + ")"
}

// Iteration is one observed training step of a job.
type Iteration struct {
	Number  uint64              // number within the job; it grows, and may skip
	Took    time.Duration       // whole iteration; 0 means unknown, which needs Chunks
	Batches [][]perfmodel.Batch // what was computed, by replica and micro-batch; nil means unknown: the mean
	Chunks  []Chunk             // measured pieces in any order; nil means only Took is known
	Waits   []Wait              // what tensor-parallel groups waited, in any order, to name the rank of a suspect; nil means unknown
	Layout  uint64              // version of model, layout and micro-batch count; a change arms anew
	Phase   Phase               // what the job did besides; zero is Training
}
