package policy

import (
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// RateLimited lets a size change one way in any Interval by at most the larger of a
// factor and an amount, counted from what would be had without the changes of that
// interval the same way. The zero value limits nothing.
type RateLimited struct {
	Interval   time.Duration    // Interval is how long a change counts; 0 means that each Step counts by itself.
	UpFactor   float64          // UpFactor is the most by which a size is multiplied, rounded up, above 1 to 10^6; 0 means no factor. Kept to the millionth.
	UpAmount   int              // UpAmount is the most that is added; 0 means no amount. With neither, rises are free.
	DownFactor float64          // DownFactor is the most by which a size is divided, rounded down, above 1 to 10^6; 0 means no factor. Kept to the millionth.
	DownAmount int              // DownAmount is the most that is taken; 0 means no amount. With neither, falls are free.
	State      RateLimitedState // State is what it remembers; zero at the start.
}

// RateLimitedState is what a RateLimited remembers, exported to be saved.
type RateLimitedState struct {
	Now   int64    // Now is the latest time seen, in nanoseconds since 1970.
	Known bool     // Known says that there was a Step.
	Have  int      // Have is what was had at the last Step.
	Rises []Change // Rises are those of the last Interval, oldest first.
	Falls []Change // Falls are those of the last Interval, oldest first.
}

// Change is a change of what is had, as a Step found it.
type Change struct {
	At int64 // At is when it was found, in nanoseconds since 1970.
	By int   // By is how much came or went, at least 1.
}

// Validate reports every fault of the configuration and of the state, joined:
// ErrInvalid.
func (r RateLimited) Validate() error {
	err := errors.Join(checkDuration("RateLimited.Interval", r.Interval), checkFactor("RateLimited.UpFactor", r.UpFactor), checkFactor("RateLimited.DownFactor", r.DownFactor))
	for _, f := range [...]struct {
		name  string
		value int
	}{{"RateLimited.UpAmount", r.UpAmount}, {"RateLimited.DownAmount", r.DownAmount}, {"RateLimited.State.Have", r.State.Have}} {
		if f.value < 0 || f.value > MaxCount {
			err = errors.Join(err, invalid(f.name, strconv.Itoa(f.value), "want 0 to 2^30"))
		}
	}
	if r.State.Now < 0 {
		err = errors.Join(err, invalid("RateLimited.State.Now", strconv.FormatInt(r.State.Now, 10), "want 0 or more"))
	}
	return errors.Join(err, checkChanges("RateLimited.State.Rises", r.State.Rises, r.State.Now), checkChanges("RateLimited.State.Falls", r.State.Falls, r.State.Now))
}

// checkChanges refuses changes that Step could not have left.
func checkChanges(field string, changes []Change, now int64) error {
	if n := len(changes); n > window {
		return invalid(field, strconv.Itoa(n)+" entries", "want at most "+strconv.Itoa(window))
	}
	last := int64(0)
	for i, c := range changes {
		if c.At < last || c.At > now || c.By <= 0 || c.By > MaxCount {
			return invalid(field+"["+strconv.Itoa(i)+"]", strconv.Itoa(c.By), "is out of range or order")
		}
		last = c.At
	}
	return nil
}

func checkFactor(field string, v float64) error {
	// A factor of 1 would never let anything change.
	if v == 0 || v <= 1e6 && millionth(v) > millionths {
		return nil
	}
	return invalid(field, number(v), "want above 1 to 10^6, or 0 for none")
}

// Step returns what may be had of want at now.
func (r *RateLimited) Step(now time.Time, have, want int) (int, error) {
	if err := errors.Join(r.Validate(), checkStep(now, r.State.Now, have, want)); err != nil {
		return 0, err
	}
	ns, _ := lockstep.Nanos(now)
	return r.step(ns, have, want, 1), nil
}

// step is Step of valid arguments, where least is the least size above none: factors take none for that many, and fall
// from it to none, or a size in steps would never start and never end.
func (r *RateLimited) step(now int64, have, want, least int) int {
	if r.UpFactor == 0 && r.UpAmount == 0 && r.DownFactor == 0 && r.DownAmount == 0 {
		return want
	}
	r.observe(now, have)
	// Only changes the same way count: what was lost and comes back is a rise like any other.
	if want > have {
		base := int64(have)
		for _, c := range r.State.Rises {
			base -= int64(c.By)
		}
		return max(have, min(want, r.ceiling(base, least)))
	}
	base := int64(have)
	for _, c := range r.State.Falls {
		base += int64(c.By)
	}
	return min(have, max(want, r.floor(base, least)))
}

// observe notes what have tells, and forgets changes that no longer count.
func (r *RateLimited) observe(now int64, have int) {
	s := &r.State
	by := have - s.Have
	if !s.Known || r.Interval == 0 {
		by = 0
	}
	s.Rises = note(s.Rises, now, int64(r.Interval), by)
	s.Falls = note(s.Falls, now, int64(r.Interval), -by)
	s.Known, s.Now, s.Have = true, now, have
}

// note drops changes that are no longer in an interval that ends now and enters
// one more, if by is above 0. Where there is no room the two latest become one at
// the later time, which counts for longer.
func note(changes []Change, now, interval int64, by int) []Change {
	old := 0
	for old < len(changes) && changes[old].At <= now-interval {
		old++
	}
	changes = append(changes[:0], changes[old:]...)
	switch n := len(changes); {
	case by <= 0:
	case n == window:
		changes[n-1] = Change{now, int(min(int64(changes[n-1].By)+int64(by), MaxCount))}
	default:
		changes = append(changes, Change{now, by})
	}
	return changes
}

// ceiling is the most that a size may grow to from base.
func (r *RateLimited) ceiling(base int64, least int) int {
	if r.UpFactor == 0 && r.UpAmount == 0 {
		return MaxCount
	}
	n := base + int64(r.UpAmount)
	if r.UpFactor != 0 {
		// None counts as the least, or nothing would ever start.
		n = max(n, int128.MulDivUp(max(base, int64(least)), millionth(r.UpFactor), millionths))
	}
	return int(min(max(n, 0), MaxCount))
}

// floor is the least that a size may shrink to from base.
func (r *RateLimited) floor(base int64, least int) int {
	if r.DownFactor == 0 && r.DownAmount == 0 || r.DownFactor != 0 && base <= int64(least) {
		return 0
	}
	n := base
	if r.DownAmount > 0 {
		n = base - int64(r.DownAmount)
	}
	if r.DownFactor != 0 {
		n = min(n, int128.MulDiv(base, millionths, millionth(r.DownFactor)))
	}
	return int(min(max(n, 0), MaxCount))
}

// NextWake returns when the oldest change ceases to count; false if none does.
func (r *RateLimited) NextWake() (time.Time, bool) { return wakeTime(r.wake()) }

func (r *RateLimited) wake() int64 {
	at := int64(instant.Never)
	for _, changes := range [...][]Change{r.State.Rises, r.State.Falls} {
		if len(changes) > 0 {
			at = min(at, instant.Add(changes[0].At, r.Interval))
		}
	}
	return at
}

// Cooldown keeps a size as it is for a while after it changed: the least dwell of
// a job that was resized. The zero value keeps nothing.
type Cooldown struct {
	Up    time.Duration // Up is how long after a change the next rise may come; 0 means at once.
	Down  time.Duration // Down is how long after a change the next fall may come; 0 means at once.
	State CooldownState // State is what it remembers; zero at the start.
}

// CooldownState is what a Cooldown remembers, exported to be saved.
type CooldownState struct {
	Now     int64 // Now is the latest time seen, in nanoseconds since 1970.
	Known   bool  // Known says that there was a Step.
	Have    int   // Have is what was had at the last Step.
	Want    int   // Want is what was wanted at the last Step.
	Changed int64 // Changed is when a Step last found that it had changed, in nanoseconds since 1970; -1 for never, 0 before the first Step.
}

// Validate reports every fault of the configuration and of the state, joined:
// ErrInvalid.
func (c Cooldown) Validate() error {
	s := c.State
	var state error
	if s.Now < 0 || s.Changed < -1 || s.Changed > s.Now || min(s.Have, s.Want) < 0 || max(s.Have, s.Want) > MaxCount || !s.Known && s != (CooldownState{}) {
		state = invalid("Cooldown.State", "", "is no saved state")
	}
	return errors.Join(checkDuration("Cooldown.Up", c.Up), checkDuration("Cooldown.Down", c.Down), state)
}

// Step returns what may be had of want at now.
func (c *Cooldown) Step(now time.Time, have, want int) (int, error) {
	if err := errors.Join(c.Validate(), checkStep(now, c.State.Now, have, want)); err != nil {
		return 0, err
	}
	ns, _ := lockstep.Nanos(now)
	return c.step(ns, have, want), nil
}

func (c *Cooldown) step(now int64, have, want int) int {
	if c.Up == 0 && c.Down == 0 {
		return want
	}
	s := &c.State
	switch {
	case !s.Known:
		s.Changed = -1
	case have != s.Have:
		s.Changed = now
	}
	s.Known, s.Now, s.Have, s.Want = true, now, have, want
	if s.Changed < 0 || want == have || now >= c.until() {
		return want
	}
	return have
}

// until is when the change wanted last may come.
func (c *Cooldown) until() int64 {
	if c.State.Want > c.State.Have {
		return instant.Add(c.State.Changed, c.Up)
	}
	return instant.Add(c.State.Changed, c.Down)
}

// NextWake returns when Step may let a change through although nothing changed
// since the last one; false if it never will.
func (c *Cooldown) NextWake() (time.Time, bool) { return wakeTime(c.wake()) }

func (c *Cooldown) wake() int64 {
	s := &c.State
	if !s.Known || s.Changed < 0 || s.Want == s.Have || s.Now >= c.until() {
		return instant.Never
	}
	return c.until()
}
