package policy

import (
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Delayed lets through only as much of a change as was wanted throughout the last
// Up or Down. The zero value delays nothing.
type Delayed struct {
	Up          time.Duration // Up is how long a rise must have been wanted; 0 means not at all.
	Down        time.Duration // Down is how long a fall must have been wanted; 0 means not at all.
	FirstAtOnce bool          // FirstAtOnce lets the first one come without delay when there are none.
	State       DelayedState  // State is what it remembers; zero at the start.
}

// DelayedState is what a Delayed remembers. It is written by Step only, and
// exported so that it is saved and restored with the rest.
type DelayedState struct {
	Now   int64       // Now is the latest time seen, in nanoseconds since 1970.
	From  int64       // From is since when wishes are known, in nanoseconds since 1970.
	Known bool        // Known says that there was a wish.
	Have  int         // Have is that of the last Step.
	Least []WishUntil // Least are wishes of the last Up from which the least can be told: ascending in both.
	Most  []WishUntil // Most are wishes of the last Down from which the largest can be told: descending wishes, ascending times.
}

// WishUntil is a wish and when it was last held.
type WishUntil struct {
	Want  int   // Want is the size wished for.
	Until int64 // Until is when another wish took its place, in nanoseconds since 1970; of the last one, the latest Step.
}

// Validate reports every fault of the configuration and of the state, joined:
// ErrInvalid.
func (d Delayed) Validate() error {
	s := &d.State
	var state, have error
	if s.Now < 0 || s.From < 0 || s.From > s.Now || s.Known != (len(s.Least) > 0) || s.Known != (len(s.Most) > 0) {
		state = invalid("Delayed.State", "", "is no saved state")
	}
	if s.Have < 0 || s.Have > MaxCount {
		have = invalid("Delayed.State.Have", strconv.Itoa(s.Have), "want 0 to 2^30")
	}
	return errors.Join(checkDuration("Delayed.Up", d.Up), checkDuration("Delayed.Down", d.Down), state, have,
		checkWindow("Delayed.State.Least", s.Least, s.Now, 1), checkWindow("Delayed.State.Most", s.Most, s.Now, -1))
}

// checkWindow refuses a window that Step could not have left: wishes rise (sign 1)
// or fall (sign -1), and times rise.
func checkWindow(field string, w []WishUntil, now int64, sign int) error {
	if len(w) > window {
		return invalid(field, strconv.Itoa(len(w))+" entries", "want at most "+strconv.Itoa(window))
	}
	for i, e := range w {
		bad := e.Want < 0 || e.Want > MaxCount || e.Until < 0 || e.Until > now
		if i > 0 {
			bad = bad || sign*(e.Want-w[i-1].Want) <= 0 || e.Until < w[i-1].Until
		}
		if bad {
			return invalid(field+"["+strconv.Itoa(i)+"]", strconv.Itoa(e.Want), "is out of range or order")
		}
	}
	return nil
}

// Step returns what may be had of want at now.
func (d *Delayed) Step(now time.Time, have, want int) (int, error) {
	if err := errors.Join(d.Validate(), checkStep(now, d.State.Now, have, want)); err != nil {
		return 0, err
	}
	ns, _ := lockstep.Nanos(now)
	return d.step(ns, have, want), nil
}

func (d *Delayed) step(now int64, have, want int) int {
	if d.Up == 0 && d.Down == 0 {
		return want
	}
	s := &d.State
	if !s.Known {
		s.Known, s.From = true, now
	}
	s.Now, s.Have = now, have
	s.Least = push(s.Least, now, int64(d.Up), want, 1)
	s.Most = push(s.Most, now, int64(d.Down), want, -1)
	if want > have {
		n := have
		if now-s.From >= int64(d.Up) {
			n = max(have, s.Least[0].Want)
		}
		if have == 0 && d.FirstAtOnce {
			n = max(n, 1)
		}
		return n
	}
	if now-s.From < int64(d.Down) {
		return have
	}
	return min(have, s.Most[0].Want)
}

// window is the most entries that a window keeps.
const window = 64

// push enters a wish into a window of the last d and drops what is too old or can
// no longer be the extreme. Its first entry is then the least wish (sign 1) or the
// largest (sign -1) in the window.
func push(w []WishUntil, now, d int64, want, sign int) []WishUntil {
	if len(w) > 0 {
		w[len(w)-1].Until = now // a wish holds until the next one
	}
	for len(w) > 0 && sign*(w[len(w)-1].Want-want) >= 0 {
		w = w[:len(w)-1]
	}
	w = append(w, WishUntil{want, now})
	old := 0
	for old < len(w)-1 && w[old].Until <= now-d {
		old++
	}
	if len(w)-old > window {
		// The first two become one that is as extreme as the first and lasts as
		// long as the second: a change comes later, never sooner.
		w[old+1].Want = w[old].Want
		old++
	}
	return append(w[:0], w[old:]...)
}

// NextWake returns when Step may let more through although nothing changed since
// the last one; false if it never will.
func (d *Delayed) NextWake() (time.Time, bool) { return wakeTime(d.wake()) }

func (d *Delayed) wake() int64 {
	s := &d.State
	if !s.Known {
		return instant.Never
	}
	want := s.Least[len(s.Least)-1].Want
	w, delay := s.Least, d.Up
	switch {
	case want == s.Have:
		return instant.Never
	case want < s.Have:
		w, delay = s.Most, d.Down
	}
	at := int64(instant.Never)
	if known := instant.Add(s.From, delay); known > s.Now {
		at = known
	}
	if len(w) > 1 {
		at = min(at, instant.Add(w[0].Until, delay))
	}
	return at
}

// checkDuration refuses a negative one and one that no job outlives.
func checkDuration(field string, d time.Duration) error {
	if d < 0 || d > lockstep.MaxWalltime {
		return invalid(field, d.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	return nil
}
