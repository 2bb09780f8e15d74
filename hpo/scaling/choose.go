package scaling

import (
	"fmt"
	"math"

	"github.com/lockstep-gpu/lockstep"
)

// Why Choose went no further.
const (
	StopLargest lockstep.Reason = "largest" // 32 is the largest ratio that is tried
	StopShape   lockstep.Reason = "shape"   // the next ratio does not divide a width, or makes it too narrow
	StopGain    lockstep.Reason = "gain"    // the next doubling gains too little
	StopUnknown lockstep.Reason = "unknown" // what the next ratio gains was not measured
)

// maxRatio is the largest ratio that Choose tries. Hydro (OSDI 2023) has 8 by default.
const maxRatio = 32

// millions is the step in which gains are compared.
const millions = 1e6

// Choice is a ratio and why it is not larger.
type Choice struct {
	Ratio  int64           // a power of two from 1 to 32
	Stop   lockstep.Reason // why it is not twice that
	Gain   float64         // trials a second that the next doubling would multiply by; 0 if that was not looked at
	Reason string          // the same for people
}

// Choose returns the largest ratio among 1, 2, 4, ..., 32 that every parameter allows and whose last doubling
// multiplies the speed by minGain at least. speed tells trials a second at a ratio, with as many fused as memory
// allows, and false for one that was not measured; nil means that every ratio pays. minGain 0 means 1.3.
func Choose(params []Param, speed func(ratio int64) (perSecond float64, ok bool), minGain float64, o Options) (Choice, error) {
	if minGain == 0 {
		minGain = 1.3
	}
	if !(minGain >= 1) || math.IsInf(minGain, 0) {
		return Choice{}, fault(lockstep.ErrInvalid, "choose", "minGain", fmt.Sprint(minGain), "must be a number of at least 1")
	}
	if _, err := New(params, 1, o); err != nil {
		return Choice{}, err
	}
	for ratio := int64(1); ; ratio *= 2 {
		if ratio == maxRatio {
			return Choice{Ratio: ratio, Stop: StopLargest, Reason: "no larger ratio is tried"}, nil
		}
		if _, err := New(params, 2*ratio, o); err != nil {
			return Choice{Ratio: ratio, Stop: StopShape, Reason: err.Error()}, nil
		}
		if speed == nil {
			continue
		}
		gain, ok := doubling(speed, ratio)
		if !ok {
			return Choice{Ratio: ratio, Stop: StopUnknown, Reason: fmt.Sprint("no speed is known for ratio ", ratio, " or ", 2*ratio)}, nil
		}
		if math.Round(gain*millions) < math.Round(minGain*millions) {
			return Choice{Ratio: ratio, Stop: StopGain, Gain: gain, Reason: fmt.Sprintf("ratio %d is only %.3g times as fast", 2*ratio, gain)}, nil
		}
	}
}

// doubling returns how many times as fast twice the ratio is, or false if one of them is not known.
func doubling(speed func(int64) (float64, bool), ratio int64) (gain float64, ok bool) {
	now, ok := speed(ratio)
	next, okNext := speed(2 * ratio)
	for _, x := range [2]float64{now, next} {
		ok = ok && x > 0 && x <= math.MaxFloat64
	}
	return next / now, ok && okNext
}

// Hyper is a kind of hyperparameter.
type Hyper string

// The kinds of hyperparameters.
const (
	LearningRate Hyper = "learning rate" // and its schedule
	Momentum     Hyper = "momentum"      // and Adam's betas
	BatchSize    Hyper = "batch size"    // in samples or tokens
	InitScale    Hyper = "init scale"    // of any layer
	Multiplier   Hyper = "multiplier"    // of the output of a layer or of attention
	Dropout      Hyper = "dropout"       // any of them
	WeightDecay  Hyper = "weight decay"  // coupled or not
	Regularizer  Hyper = "regularizer"   // any other that fits the model to the amount of data
	Depth        Hyper = "depth"         // layers
)

// Transfers says whether the best value found on the surrogate may be carried to the target, and why. What acts on
// the start and on the updates does; what regularises depends on the sizes of model and data and does not (Yang et
// al. 2021, table 1). Of an unknown kind nothing is promised.
func Transfers(h Hyper) (bool, string) {
	switch h {
	case LearningRate, Momentum, BatchSize, InitScale, Multiplier:
		return true, "acts on the start and the updates, which the plan keeps alike"
	case Dropout, WeightDecay, Regularizer:
		return false, "regularises, and so depends on the sizes of model and data"
	case Depth:
		return false, "the plan scales width alone"
	default:
		return false, "is of no known kind"
	}
}
