package resize

import (
	"math"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Guard says when a change of size is worth its pause. The zero value works.
type Guard struct {
	Dwell   time.Duration `json:"dwell,omitempty"`   // Dwell is how long a size lasts at the least; 0 means 10 min, NoDwell none.
	Horizon time.Duration `json:"horizon,omitempty"` // Horizon is how long the new size is expected to last, at most a year; 0 means 1 h.
	Margin  float64       `json:"margin,omitempty"`  // Margin is by which part more samples must be done until then than without the change, so that small gains do not go back and forth; 0 means 0.01, AnyGain any more at all.
}

// NoDwell stands for a Guard.Dwell of 0.
const NoDwell time.Duration = -1

// AnyGain stands for a Guard.Margin of 0.
const AnyGain = -1.0

// defaultMargin is how many more samples there must be, in millionths.
const defaultMargin = 10_000

// Pace is how fast a job goes.
type Pace struct {
	Samples int64         `json:"samples"` // Samples is how many a step has.
	Step    time.Duration `json:"step"`    // Step is what it takes, as in reconfig.Estimate.Iteration.
}

// Change is a change of size that is proposed.
type Change struct {
	Old    Pace          `json:"old"`              // Old is the present pace; with no Samples the job stands still.
	New    Pace          `json:"new"`              // New is the pace after it.
	Pause  time.Duration `json:"pause"`            // Pause is how long the job stands still for it.
	Since  time.Duration `json:"since"`            // Since is how long the present size has lasted.
	Forced bool          `json:"forced,omitempty"` // Forced says that the present size cannot go on, as when a device is lost.
}

const maxHorizon = 365 * 24 * time.Hour

// Validate reports every fault of g, joined, each an *lockstep.Error.
func (g Guard) Validate() error {
	f := faults{op: "resize: guard"}
	g.validate(&f)
	return f.err()
}

func (g Guard) validate(f *faults) {
	if g.Dwell < NoDwell || g.Dwell > maxHorizon {
		f.bad("Dwell", g.Dwell.String(), "want 0 to a year, or NoDwell")
	}
	if g.Horizon < 0 || g.Horizon > maxHorizon {
		f.bad("Horizon", g.Horizon.String(), "want 0 to a year")
	}
	if g.Margin != AnyGain && !(g.Margin >= 0 && g.Margin <= 1) {
		f.bad("Margin", strconv.FormatFloat(g.Margin, 'g', -1, 64), "want 0 to 1, or AnyGain")
	}
}

// Allow says whether a change is to be made: always if it is forced, else if the
// present size has lasted for Dwell, or the job stands still, and more samples are done
// by the end of Horizon with the change than without it, by Margin. It returns an *lockstep.Error for paces
// that none can be.
func (g Guard) Allow(c Change) (lockstep.Verdict, error) {
	f := faults{op: "resize: allow"}
	g.validate(&f)
	c.validate(&f)
	if err := f.err(); err != nil {
		return lockstep.Verdict{}, err
	}
	v := lockstep.Verdict{Feasible: true, Fit: 1, Want: 1}
	if c.Forced {
		return v, nil
	}
	dwell, horizon, margin := g.filled()
	switch {
	case c.Since < dwell && c.Old.Samples > 0:
		v = lockstep.Verdict{Want: 1, Reason: ReasonDwell, Requested: int64(dwell), Available: int64(c.Since)}
	case !pays(c, horizon, margin):
		v = lockstep.Verdict{Want: 1, Reason: ReasonBreakEven, Requested: int64(c.Pause), Available: int64(horizon)}
	}
	return v, nil
}

func (g Guard) filled() (dwell, horizon time.Duration, margin int64) {
	dwell, horizon = g.Dwell, g.Horizon
	if dwell == 0 {
		dwell = 10 * time.Minute
	}
	if horizon == 0 {
		horizon = time.Hour
	}
	switch g.Margin {
	case 0:
		margin = defaultMargin
	case AnyGain:
	default:
		margin = int64(math.Round(float64(g.Margin * whole)))
	}
	return max(0, dwell), horizon, margin
}

// pays compares (horizon - pause)·new with horizon·(1 + margin)·old, exactly but for
// the rounding down of margin's part of the horizon.
func pays(c Change, horizon time.Duration, margin int64) bool {
	left := int64(horizon - c.Pause)
	if left <= 0 || c.New.Samples == 0 {
		return false
	}
	if c.Old.Samples == 0 {
		return true
	}
	raised := int64(horizon) + part(int64(horizon), margin, whole)
	return int128.CmpProducts(int128.Mul(uint64(left), uint64(c.New.Samples)), uint64(c.Old.Step), int128.Mul(uint64(raised), uint64(c.Old.Samples)), uint64(c.New.Step)) > 0
}

func (c Change) validate(f *faults) {
	pace := func(name string, p Pace) {
		f.within(name+".Samples", p.Samples, 0, maxSamples)
		if p.Samples > 0 && (p.Step <= 0 || p.Step > maxHorizon) {
			f.bad(name+".Step", strconv.FormatInt(int64(p.Step), 10), "want above 0, at most a year")
		}
	}
	pace("Old", c.Old)
	pace("New", c.New)
	if c.Pause < 0 || c.Pause > maxHorizon {
		f.bad("Pause", c.Pause.String(), "want 0 to a year")
	}
	if c.Since < 0 {
		f.bad("Since", c.Since.String(), "want at least 0")
	}
}
