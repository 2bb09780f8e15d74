package goodput

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// maxSamples is how many measurements a fit takes.
const maxSamples = 1 << 16

// least is the smallest coefficient of a fit, in seconds, and what stands for those of
// a regime that was never seen.
const least = 1e-8

// Sample is a measurement of steps of one shape.
type Sample struct {
	Shape   Shape         `json:"shape"`             // Shape is how the job ran.
	Step    time.Duration `json:"step"`              // Step is how long a step took, with all its passes, more than 0.
	Compute time.Duration `json:"compute,omitempty"` // Compute is how long one pass took without the exchange, at most Step; 0 means unknown.
}

// Fit is what measurements say of Params.
type Fit struct {
	Params Params `json:"params"` // Params are the best that were found.

	Loss    float64 `json:"loss"`    // Loss is what was minimised: the errors below and what holds the parameters back.
	RMSLE   float64 `json:"rmsle"`   // RMSLE is the root of the mean squared error of the logarithm of the step times.
	Error   float64 `json:"error"`   // Error is the median distance of a step time from the model's, as a part of it.
	Spread  float64 `json:"spread"`  // Spread is the distance that nine in ten of the step times do not exceed.
	Samples int     `json:"samples"` // Samples is how many measurements there were.

	MinBatch int64 `json:"minBatch"` // MinBatch is the least samples in a pass that were measured.
	MaxBatch int64 `json:"maxBatch"` // MaxBatch is the most; where it is MinBatch, what a batch of no samples takes was set, to half of a pass.
	MaxGPUs  int   `json:"maxGPUs"`  // MaxGPUs is the most GPUs that were measured.
	Local    bool  `json:"local"`    // Local says that several GPUs of one node were measured; else exchange inside a node is thought free.
	Remote   bool  `json:"remote"`   // Remote says that several nodes were measured; else exchange between nodes is thought free.
}

// FitParams returns the parameters under which the model comes nearest to samples, by
// the objective, the bounds and the priors of Pollux: what was never measured is thought
// free, so that trying it looks good. Samples that cannot be, and none, are ErrInvalid.
// The order of samples does not matter.
func FitParams(samples []Sample) (Fit, error) {
	if err := checkSamples(samples); err != nil {
		return Fit{}, err
	}
	sorted := slices.Clone(samples)
	slices.SortFunc(sorted, compareSamples)
	r := Fit{Samples: len(sorted), MinBatch: math.MaxInt64}
	for _, s := range sorted {
		r.MinBatch, r.MaxBatch = min(r.MinBatch, s.Shape.Batch), max(r.MaxBatch, s.Shape.Batch)
		r.MaxGPUs = max(r.MaxGPUs, s.Shape.GPUs)
		r.Local = r.Local || s.Shape.Nodes == 1 && s.Shape.GPUs > 1
		r.Remote = r.Remote || s.Shape.Nodes > 1
	}
	p := newProblem(sorted, &r)
	best, loss := vector{}, math.Inf(1)
	for _, start := range p.starts() {
		x, f := p.descend(start)
		if quantise(f*1000) < quantise(loss*1000) { // of equals the first
			best, loss = x, f
		}
	}
	r.Params, r.Loss = best.params(), loss
	misses := make([]float64, len(sorted))
	for i, s := range sorted {
		t := r.Params.step(s.Shape)
		r.RMSLE += square(math.Log(t / s.Step.Seconds()))
		misses[i] = math.Abs(t/s.Step.Seconds() - 1)
	}
	r.RMSLE = math.Sqrt(r.RMSLE / float64(len(sorted)))
	r.Error = median(misses) // which sorts them
	r.Spread = misses[(len(misses)*9+9)/10-1]
	return r, nil
}

// Basis says what a prediction for shape s rests on. It is Unknown where the exchange was
// never measured or s has more than twice as many GPUs as ever were, the bound to which
// Pollux lets a job grow; Inferred outside of the batches and the number of GPUs that
// were measured; else Measured.
func (r Fit) Basis(s Shape) Basis {
	switch {
	case !s.valid() || r.Samples == 0 || s.GPUs > 2*r.MaxGPUs:
		return Unknown
	case s.Nodes > 1 && !r.Remote, s.Nodes == 1 && s.GPUs > 1 && !r.Local:
		return Unknown
	case s.GPUs > r.MaxGPUs || s.Batch < r.MinBatch || s.Batch > r.MaxBatch:
		return Inferred
	}
	return Measured
}

func checkSamples(samples []Sample) error {
	f := faults{op: "goodput: fit"}
	if len(samples) == 0 || len(samples) > maxSamples {
		f.bad("samples", strconv.Itoa(len(samples)), "want 1 to "+strconv.Itoa(maxSamples))
	}
	for i, s := range samples[:min(len(samples), maxSamples)] {
		at := "samples[" + strconv.Itoa(i) + "]."
		if !s.Shape.valid() {
			f.bad(at+"Shape", "", "want a node or more, as many GPUs or more, and 1 to 2⁴⁰ samples a step")
		}
		if s.Step <= 0 || s.Step > lockstep.MaxWalltime {
			f.bad(at+"Step", s.Step.String(), "want more than 0, up to ten years")
		}
		if s.Compute < 0 || s.Compute > max(s.Step, 0) {
			f.bad(at+"Compute", s.Compute.String(), "want 0 to Step")
		}
	}
	return f.err()
}

func compareSamples(a, b Sample) int {
	return cmp.Or(
		cmp.Compare(a.Shape.Nodes, b.Shape.Nodes), cmp.Compare(a.Shape.GPUs, b.Shape.GPUs),
		cmp.Compare(a.Shape.Batch, b.Shape.Batch), cmp.Compare(a.Shape.Accumulate, b.Shape.Accumulate),
		cmp.Compare(a.Step, b.Step), cmp.Compare(a.Compute, b.Compute),
	)
}

func square(x float64) float64 { return x * x }
