package lifecycle

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Part is a kind of time in a job's life.
type Part int

// The parts of a ledger.
const (
	PartWaiting    Part = iota // PartWaiting: held, queued, admitted, reserving, suspended or in backoff.
	PartStarting               // PartStarting: members are starting up.
	PartProductive             // PartProductive: running, and not lost later.
	PartCheckpoint             // PartCheckpoint: running, but standing still for a checkpoint.
	PartLost                   // PartLost: out of touch, or work that was done and not saved.
	PartDraining               // PartDraining: draining.
	PartCleaning               // PartCleaning: cleaning.
	Parts                      // Parts is how many parts there are.
)

// String returns the name under which p is reported: waiting, starting,
// productive, checkpoint, lost, draining or cleaning.
func (p Part) String() string {
	switch p {
	case PartWaiting:
		return "waiting"
	case PartStarting:
		return "starting"
	case PartProductive:
		return "productive"
	case PartCheckpoint:
		return "checkpoint"
	case PartLost:
		return "lost"
	case PartDraining:
		return "draining"
	case PartCleaning:
		return "cleaning"
	}
	return strconv.Itoa(int(p))
}

// Ledger is where a job's time went. It is settled up to the last step of the
// job, so its parts sum to the time from the submit to that step, exactly.
type Ledger struct {
	Time [Parts]time.Duration    `json:"time"` // Time is the time in each part.
	GPU  [Parts]lockstep.GPUTime `json:"gpu"`  // GPU is the same times the devices held.
}

// Total returns the sums of all parts.
func (l *Ledger) Total() (time.Duration, lockstep.GPUTime) {
	var d time.Duration
	var g lockstep.GPUTime
	for p := range Parts {
		d += l.Time[p]
		g = g.Add(l.GPU[p])
	}
	return d, g
}

// part returns where the time of j goes now.
func (j *job) part() Part {
	switch j.State {
	case Starting:
		return PartStarting
	case Running:
		if j.Saving {
			return PartCheckpoint
		}
		return PartProductive
	case Lost:
		return PartLost
	case Draining:
		return PartDraining
	case Cleaning:
		return PartCleaning
	}
	return PartWaiting
}

// settle books the time until ns.
func (j *job) settle(ns int64) {
	d := ns - j.At
	j.At = ns
	if d == 0 || j.State.Terminal() {
		return
	}
	p := j.part()
	g := lockstep.GPUTimeOf(j.GPUs, time.Duration(d))
	j.Ledger.Time[p] += time.Duration(d)
	j.Ledger.GPU[p] = j.Ledger.GPU[p].Add(g)
	if j.State == Running {
		j.Ran += d
	}
	if p == PartProductive {
		j.Risk += d
		j.RiskGPU = j.RiskGPU.Add(g)
	}
}

// lose moves the work since the last save from productive to lost.
func (j *job) lose() {
	j.Ledger.Time[PartProductive] -= time.Duration(j.Risk)
	j.Ledger.Time[PartLost] += time.Duration(j.Risk)
	j.Ledger.GPU[PartProductive] = j.Ledger.GPU[PartProductive].Sub(j.RiskGPU)
	j.Ledger.GPU[PartLost] = j.Ledger.GPU[PartLost].Add(j.RiskGPU)
	j.safe()
}

// safe notes that all work until now is durable.
func (j *job) safe() { j.Risk, j.RiskGPU = 0, lockstep.GPUTime{} }
