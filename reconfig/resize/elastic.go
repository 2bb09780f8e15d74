package resize

import (
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// BatchMode says what becomes of the global batch when the number of replicas changes.
type BatchMode string

// The modes.
const (
	FixedBatch  BatchMode = ""       // FixedBatch: the global batch stays; replicas accumulate more or fewer micro-batches.
	ScaledBatch BatchMode = "scaled" // ScaledBatch: each replica's share stays; the learning rate follows the declared rule.
	NoResize    BatchMode = "none"   // NoResize: the number of replicas must stay.
)

// RateRule says how the learning rate follows a scaled batch.
type RateRule string

// The rules, for a batch r times as large as declared.
const (
	LinearRate   RateRule = "linear"   // LinearRate: r times.
	SqrtRate     RateRule = "sqrt"     // SqrtRate: the square root of r times.
	AdaScaleRate RateRule = "adascale" // AdaScaleRate: the gain that the job measures, between 1 and r.
)

// Elastic declares how a job may be resized. Its zero value is not valid: a batch has
// to be declared.
type Elastic struct {
	Mode     BatchMode `json:"mode,omitempty"`     // Mode is what becomes of the batch; zero is FixedBatch.
	Rule     RateRule  `json:"rule,omitempty"`     // Rule is for ScaledBatch, which has to declare one.
	Global   int64     `json:"global"`             // Global is how many samples a step has with Replicas.
	Micro    int64     `json:"micro,omitempty"`    // Micro is how many samples a micro-batch has; 0 means 1.
	Replicas int       `json:"replicas,omitempty"` // Replicas is what Global and the learning rate are declared for; 0 means 1.
	Min      int       `json:"min,omitempty"`      // Min is the fewest replicas; 0 means 1.
	Max      int       `json:"max,omitempty"`      // Max is the most replicas; 0 means the larger of Min and Replicas.
	Uneven   bool      `json:"uneven,omitempty"`   // Uneven lets FixedBatch give some replicas one micro-batch more; the job then has to weigh gradients by samples.
}

// Batch is what a step has at one size.
type Batch struct {
	Global int64 `json:"global"` // Global is how many samples it has.
	Micros int   `json:"micros"` // Micros is how many micro-batches, as in reconfig.Job.Micros.
	Split  []int `json:"split"`  // Split are those of each replica; the first ones may have one more.
	Rate   int64 `json:"rate"`   // Rate is the learning rate in millionths of the declared one.
	Counts int64 `json:"counts"` // Counts is what the step counts for in the learning rate's schedule, in millionths of a declared step.
}

// The reasons why a job is not resized.
const (
	ReasonForbidden lockstep.Reason = "forbidden"  // ReasonForbidden: the job may not be resized.
	ReasonSize      lockstep.Reason = "size"       // ReasonSize: so many replicas are outside Min and Max.
	ReasonBatch     lockstep.Reason = "batch"      // ReasonBatch: the micro-batches cannot be dealt out evenly, or are too few.
	ReasonDwell     lockstep.Reason = "dwell"      // ReasonDwell: the present size has not lasted long enough.
	ReasonBreakEven lockstep.Reason = "break-even" // ReasonBreakEven: the pause costs more than the new size gains.
)

// Validate reports every fault of e, joined, each an *lockstep.Error.
func (e Elastic) Validate() error {
	f := faults{op: "resize: elastic"}
	e.validate(&f)
	return f.err()
}

func (e Elastic) validate(f *faults) {
	d := e.filled()
	f.within("Global", e.Global, 1, maxSamples)
	f.within("Micro", d.Micro, 1, maxSamples)
	f.within("Replicas", int64(d.Replicas), 1, maxReplicas)
	f.within("Min", int64(d.Min), 1, maxReplicas)
	f.within("Max", int64(d.Max), int64(max(1, d.Min)), maxReplicas)
	if len(f.errs) > 0 {
		return
	}
	if e.Mode == NoResize && (d.Replicas < d.Min || d.Replicas > d.Max) {
		f.bad("Replicas", strconv.Itoa(d.Replicas), "want Min to Max, since the size must stay")
	}
	switch e.Mode {
	case FixedBatch, NoResize:
		if e.Rule != "" {
			f.bad("Rule", errtext.Quote(e.Rule), "want none unless Mode is scaled")
		}
		if e.Global%d.Micro != 0 || e.Global/d.Micro > maxMicros {
			f.bad("Global", strconv.FormatInt(e.Global, 10), "want a multiple of Micro = "+strconv.FormatInt(d.Micro, 10)+", at most 2^20 times")
		}
	case ScaledBatch:
		if !slices.Contains([]RateRule{LinearRate, SqrtRate, AdaScaleRate}, e.Rule) {
			f.bad("Rule", errtext.Quote(e.Rule), "want linear, sqrt or adascale")
		}
		step := d.Micro * int64(d.Replicas)
		if d.Micro > maxSamples/int64(d.Replicas) || e.Global%step != 0 || e.Global/step > maxMicros/int64(d.Max) {
			f.bad("Global", strconv.FormatInt(e.Global, 10), "want a multiple of Micro × Replicas, and at Max replicas at most 2^20 micro-batches")
		}
	default:
		f.bad("Mode", errtext.Quote(e.Mode), "unknown")
	}
}

func (e Elastic) filled() Elastic {
	for _, p := range []*int{&e.Replicas, &e.Min} {
		if *p == 0 {
			*p = 1
		}
	}
	if e.Micro == 0 {
		e.Micro = 1
	}
	if e.Max == 0 {
		e.Max = max(e.Min, e.Replicas)
	}
	return e
}

// At returns the batch with so many replicas. gain is what AdaScale measures, in
// millionths, and 0 for the other rules. If that size is not possible the verdict says
// why, and in Fit the largest smaller one that is, 0 if there is none.
func (e Elastic) At(replicas int, gain int64) (Batch, lockstep.Verdict, error) {
	f := faults{op: "resize: at"}
	e.validate(&f)
	if len(f.errs) == 0 {
		e = e.filled()
		e.checkGain(&f, replicas, gain)
	}
	if err := f.err(); err != nil {
		return Batch{}, lockstep.Verdict{}, err
	}
	v := lockstep.Verdict{Want: replicas, Reason: e.refuses(replicas)}
	if v.Reason != "" {
		for n := min(replicas, e.Max); n >= e.Min; n-- {
			if e.refuses(n) == "" {
				v.Fit = n
				break
			}
		}
		return Batch{}, v, nil
	}
	v.Feasible, v.Fit = true, replicas
	return e.batch(replicas, gain), v, nil
}

// checkGain refuses a gain that cannot be measured. With r times the batch it lies
// between 1 and r, whichever is larger.
func (e Elastic) checkGain(f *faults, replicas int, gain int64) {
	f.within("replicas", int64(replicas), 1, maxReplicas)
	if e.Rule != AdaScaleRate {
		f.within("gain", gain, 0, 0)
		return
	}
	if len(f.errs) == 0 {
		low, high := ratio(replicas, e.Replicas, false), ratio(replicas, e.Replicas, true)
		f.within("gain", gain, min(low, whole), max(high, whole))
	}
}

// refuses says why a job cannot have n replicas; empty if it can.
func (e Elastic) refuses(n int) lockstep.Reason {
	switch {
	case e.Mode == NoResize && n != e.Replicas:
		return ReasonForbidden
	case n < e.Min || n > e.Max:
		return ReasonSize
	case e.Mode == ScaledBatch:
		return ""
	}
	micros := e.Global / e.Micro
	if micros < int64(n) || micros%int64(n) != 0 && !e.Uneven {
		return ReasonBatch
	}
	return ""
}

// Sizes returns the numbers of replicas that are possible, ascending. It returns nil
// if e is not valid.
func (e Elastic) Sizes() []int {
	if e.Validate() != nil {
		return nil
	}
	e = e.filled()
	var out []int
	for n := e.Min; n <= e.Max; n++ {
		if e.refuses(n) == "" {
			out = append(out, n)
		}
	}
	return out
}

// batch builds the batch of a size that is possible.
func (e Elastic) batch(n int, gain int64) Batch {
	b := Batch{Global: e.Global, Rate: whole, Counts: whole}
	if e.Mode == ScaledBatch {
		b.Global = e.Global / int64(e.Replicas) * int64(n)
		r := ratio(n, e.Replicas, false)
		b.Rate, b.Counts = r, r
		switch e.Rule {
		case SqrtRate:
			b.Rate = root(int64(n)*(whole*whole), int64(e.Replicas))
		case AdaScaleRate:
			b.Rate, b.Counts = gain, gain
		}
	}
	b.Micros = int(b.Global / e.Micro)
	b.Split = make([]int, n)
	for i := range b.Split {
		b.Split[i] = b.Micros / n
		if i < b.Micros%n {
			b.Split[i]++
		}
	}
	return b
}

// ratio returns n/of in millionths, to the nearest or rounded up.
func ratio(n, of int, up bool) int64 {
	a, b := int64(n)*whole, int64(of)
	if up {
		return (a + b - 1) / b
	}
	return (a + b/2) / b
}

// root returns the square root of a/b, rounded down.
func root(a, b int64) int64 {
	v := a / b
	r := int64(math.Sqrt(float64(v))) // at most one off, which the loops below put right
	for r*r > v {
		r--
	}
	for (r+1)*(r+1) <= v {
		r++
	}
	return r
}
