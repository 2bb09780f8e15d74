package detect

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// State is what is known of a job's speed.
type State uint8

// States of a job.
const (
	Learning   State = iota // the baseline is not known yet: neither healthy nor slow
	Healthy                 // nothing above the minimum detectable slowdown was seen
	Suspicious              // evidence grows, below the threshold
	Slow                    // an alarm is standing
	Recovered               // the first iterations after an alarm was cleared
	Paused                  // the caller paused judging
)

// String returns the name of s.
func (s State) String() string {
	switch s {
	case Learning:
		return "learning"
	case Healthy:
		return "healthy"
	case Suspicious:
		return "suspicious"
	case Slow:
		return "slow"
	case Recovered:
		return "recovered"
	case Paused:
		return "paused"
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

// Cause is what a deviation is put down to.
type Cause uint8

// Causes of a deviation.
const (
	NoCause   Cause = iota // there is nothing to explain
	Unknown                // slower than it should be, and nothing says why
	Hardware               // one (replica, stage) stands out from its peers and from its own past
	Network                // transfers are slower, chunks are not
	Lengths                // the document lengths of the batch explain it: the prediction rose as well
	LossLayer              // the last stage is slower in every replica: the model, not a device
	Pause                  // isolated spikes, such as garbage collection
	Resize                 // layout, model or micro-batch count changed: learned anew
	Phases                 // a checkpoint, an evaluation or another phase ran beside it
)

// String returns the name of c.
func (c Cause) String() string {
	switch c {
	case NoCause:
		return "none"
	case Unknown:
		return "unknown"
	case Hardware:
		return "hardware"
	case Network:
		return "network"
	case Lengths:
		return "lengths"
	case LossLayer:
		return "loss layer"
	case Pause:
		return "pause"
	case Resize:
		return "resize"
	case Phases:
		return "phase"
	}
	return "Cause(" + strconv.Itoa(int(c)) + ")"
}

// Everywhere as a Replica, Stage or Rank says that it is not narrowed down.
const Everywhere = -1

// Suspect is a place that may be what slows a job down.
type Suspect struct {
	Replica int     // data-parallel replica, or Everywhere
	Stage   int     // pipeline stage, or Everywhere
	Rank    int     // rank within the tensor-parallel group of the stage, or Everywhere
	Factor  float64 // estimated time of the place over what it should be; 1 is healthy
	Score   float64 // evidence, comparable between suspects of one verdict; higher is worse
}

// ProbeKind is what a probe measures.
type ProbeKind uint8

// Kinds of probe, cheapest first.
const (
	ProbeChunks  ProbeKind = iota // record chunk times of some iterations, without stopping the job
	ProbeCompute                  // run the same matrix product on every rank named and compare
	ProbeLink                     // send point to point between neighbours of a ring, all pairs of a round at once
)

// String returns the name of k.
func (k ProbeKind) String() string {
	switch k {
	case ProbeChunks:
		return "chunks"
	case ProbeCompute:
		return "compute"
	case ProbeLink:
		return "link"
	}
	return "ProbeKind(" + strconv.Itoa(int(k)) + ")"
}

// Probe is one measurement that would narrow a slowdown down.
type Probe struct {
	Kind    ProbeKind // what to measure
	Replica int       // replica to measure, or Everywhere
	Stage   int       // stage to measure, or Everywhere
	Round   int       // round of a link probe: pairs of one round do not overlap; else 0
}

// Verdict is what one iteration showed.
type Verdict struct {
	Number        uint64    // iteration that was judged
	State         State     // state of the job after it
	Alarm         bool      // the alarm was raised by this iteration; later ones of the same slowdown have State Slow only
	Ratio         float64   // observed over expected time of this iteration, where the level that was learned is expected; 0 means unknown
	Score         float64   // test statistic over its threshold; 1 and more is an alarm
	MinDetectable float64   // smallest slowdown that would be found, of a place where chunks are timed, else of the iteration, as a factor; 0 while it is unknown, infinite where none would be
	Onset         uint64    // estimated first iteration of the slowdown that was told last, where State is Slow
	Cause         Cause     // what the deviation is put down to
	Suspects      []Suspect // places, worst first; empty means that it is not localised; shared until the next call
	Probes        []Probe   // what to measure where it is not localised; shared until the next call
	// Reason is why the state is what it is ("learning", "healthy", "evidence grows", "chunks are slow", "iterations are
	// slow", "slow beside chunks", "cleared", "one slow iteration", "not measured"), or why the iteration was not
	// judged ("paused", "phase", "repeated", "out of order", "rearmed").
	Reason lockstep.Reason
}

// Reasons of a Verdict.
const (
	reasonLearning   lockstep.Reason = "learning"            // the baseline is not known yet
	reasonHealthy    lockstep.Reason = "healthy"             // as expected
	reasonEvidence   lockstep.Reason = "evidence grows"      // slower than expected, not yet for long enough
	reasonChunks     lockstep.Reason = "chunks are slow"     // chunk times of a place are over their threshold
	reasonMatched    lockstep.Reason = "iterations are slow" // iteration times are as with a slow place, or slow as a whole
	reasonWhole      lockstep.Reason = "slow beside chunks"  // iterations are slow, no chunk is
	reasonCleared    lockstep.Reason = "cleared"             // the slowdown is over
	reasonSpike      lockstep.Reason = "one slow iteration"  // it stands out alone
	reasonPaused     lockstep.Reason = "paused"              // the caller paused judging
	reasonPhase      lockstep.Reason = "phase"               // iterations of this phase are not judged
	reasonRepeated   lockstep.Reason = "repeated"            // the iteration was seen before
	reasonReordered  lockstep.Reason = "out of order"        // a later iteration was seen before
	reasonRearmed    lockstep.Reason = "rearmed"             // the layout changed, so everything is learned anew
	reasonUnmeasured lockstep.Reason = "not measured"        // neither a time nor a chunk of it can be compared
)
