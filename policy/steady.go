package policy

import (
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

const in instant.In = "policy"

// MaxCount is the largest size that is taken: 2^30.
const MaxCount = 1 << 30

// Steady is the decorators of a wish in their fixed order, with their state. The
// zero value is ready and steadies nothing. Encoded as JSON it is its own snapshot.
type Steady struct {
	Hysteresis  Hysteresis  // Hysteresis is asked first: it makes a whole number of the wish.
	Delayed     Delayed     // Delayed is asked with a legal size.
	RateLimited RateLimited // RateLimited is asked with what Delayed lets through.
	Cooldown    Cooldown    // Cooldown is asked last but for the bounds.
	Bounded     Bounded     // Bounded is asked before Delayed, and at the end.
}

// Verdict is what Steady says about a wish.
type Verdict struct {
	Want   int  // Want is the wish as a legal size.
	Target int  // Target is what to have now.
	Held   Held // Held is the last decorator that stands between Want, or the demand, and Target; Free if none.
}

// Held names the decorator that keeps a size from being what was wished for.
type Held uint8

// The decorators, in the order in which Steady asks them.
const (
	Free         Held = iota // Free means that the wish is granted as it is.
	ByHysteresis             // ByHysteresis means that the demand did not pass an edge by the band.
	ByDelayed                // ByDelayed means that the change has not been wanted for long enough.
	ByRate                   // ByRate means that the change is larger than the rate allows.
	ByCooldown               // ByCooldown means that the last change is too recent.
	ByBounds                 // ByBounds means that the size wished for is not a legal one.
)

// heldNames is immutable.
var heldNames = [...]string{"free", "hysteresis", "delayed", "rate", "cooldown", "bounds"}

// String returns the name of h in lower case.
func (h Held) String() string {
	if int(h) < len(heldNames) {
		return heldNames[h]
	}
	return "Held(" + strconv.Itoa(int(h)) + ")"
}

// Validate reports every fault of the configuration and of the state: ErrInvalid,
// joined. It also refuses a rate that could never reach the next legal size.
func (s Steady) Validate() error {
	return errors.Join(s.Hysteresis.Validate(), s.Delayed.Validate(), s.RateLimited.Validate(),
		s.Cooldown.Validate(), s.Bounded.Validate(), s.reachable())
}

// reachable refuses rates under which a legal size has no legal neighbour.
func (s Steady) reachable() error {
	step, r := s.Bounded.Step, s.RateLimited
	if step <= 1 && !s.Bounded.PowersOfTwo {
		return nil // the next size is one away; every rate moves by one
	}
	// Doubling reaches the next power and, from any multiple, the next multiple; factors take none for a step.
	reaches := func(amount int, factor float64) bool {
		return amount == 0 && factor == 0 || factor >= 2 || amount >= step && !s.Bounded.PowersOfTwo
	}
	const reason = "never reaches the next legal size: want a factor of 2 or an amount of Step"
	var errs []error
	if !reaches(r.UpAmount, r.UpFactor) {
		errs = append(errs, invalid("RateLimited.UpFactor", number(r.UpFactor), reason))
	}
	if !reaches(r.DownAmount, r.DownFactor) {
		errs = append(errs, invalid("RateLimited.DownFactor", number(r.DownFactor), reason))
	}
	return errors.Join(errs...)
}

// Step returns what to have at now, when have are had or on their way and want is
// wished for. Call it when either changes, and at NextWake.
func (s *Steady) Step(now time.Time, have int, want Demand) (Verdict, error) {
	if err := s.check(now, have, want); err != nil {
		return Verdict{}, err
	}
	v := Verdict{}
	ns, _ := lockstep.Nanos(now)
	n := s.Hysteresis.step(have, want)
	if n == have && s.Bounded.legal(n) != n {
		n = want.Ceil() // what cannot stay is not held on to: rounded, it might pass the wish
	}
	if n != want.Ceil() {
		v.Held = ByHysteresis
	}
	v.Want = s.Bounded.legal(n)
	v.note(n, v.Want, ByBounds)
	delayed := s.Delayed.step(ns, have, v.Want)
	v.note(v.Want, delayed, ByDelayed)
	rated := s.RateLimited.step(ns, have, delayed, s.Bounded.step())
	v.note(delayed, rated, ByRate)
	cooled := s.Cooldown.step(ns, have, rated)
	v.note(rated, cooled, ByCooldown)
	v.Target = s.Bounded.towards(have, cooled)
	v.note(cooled, v.Target, ByBounds)
	if v.Target == want.Ceil() {
		v.Held = Free // whatever was done and undone in between
	}
	return v, nil
}

// note says that h made after of before.
func (v *Verdict) note(before, after int, h Held) {
	if before != after {
		v.Held = h
	}
}

// check refuses what Step does not take, before anything has changed.
func (s *Steady) check(now time.Time, have int, want Demand) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if want < 0 || want > MaxCount*One {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "policy: step", Field: "want", Value: want.String(), Reason: "want 0 to 2^30"}
	}
	return checkStep(now, max(s.Delayed.State.Now, s.RateLimited.State.Now, s.Cooldown.State.Now), have, 0)
}

// NextWake returns when Step might say something else although neither have nor
// the wish changed since the last one; false if it never would.
func (s *Steady) NextWake() (time.Time, bool) {
	at := min(s.Delayed.wake(), s.RateLimited.wake(), s.Cooldown.wake())
	return wakeTime(at)
}

// checkStep refuses a time that is no time or before last, and counts out of range.
func checkStep(now time.Time, last int64, have, want int) error {
	ns, err := in.SinceEpoch("step", "now", now)
	if err == nil {
		err = in.NotBefore("step", "now", now, ns, last)
	}
	return errors.Join(err, checkCount("have", have), checkCount("want", want))
}

func checkCount(field string, n int) error {
	if n < 0 || n > MaxCount {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "policy: step", Field: field, Value: strconv.Itoa(n), Reason: "want 0 to 2^30"}
	}
	return nil
}

// wakeTime is the public form of an instant, where Never is none.
func wakeTime(at int64) (time.Time, bool) {
	if at == instant.Never {
		return time.Time{}, false
	}
	return lockstep.FromNanos(at), true
}

func invalid(field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "policy: validate", Field: field, Value: value, Reason: reason}
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
