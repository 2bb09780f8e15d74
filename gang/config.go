package gang

import (
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Backfill says which jobs may pass one that is blocked. A positive number is
// how many blocked jobs have reservations that those behind must not delay.
//
// A reservation starts at the earliest known end, of a holder, window or
// reservation, after which the gang fits. A stay lasts from now to hold plus
// estimate from now; without an estimate, or while the room is being left by
// others, for ever. A holder past its estimate is expected any moment: nothing may
// get in the way of that start. Where known ends do not suffice the reservation
// has no time: holders without estimates are taken to leave, latest started first,
// until the gang fits; that room is kept from everybody and stays the same while
// the placer can (its Prefer), so that it can only drain. This is what keeps a
// stream of small jobs without estimates from starving a gang; if one of the
// holders in that room never ends, call it due or cancel it.
//
// Reservations are made anew in each pass, in order, so a higher claim takes them.
// Above 1 a job moves forward only past nobody's promise, unless its own has slipped.
// With Strict, or a placer that is no WhatIf, nothing passes a blocked gang.
type Backfill int

// The settings of Backfill that have names.
const (
	EASY         Backfill = 0             // EASY reserves for the first blocked job only; it equals Backfill(1).
	Strict       Backfill = -1            // Strict lets nothing pass a blocked job.
	Conservative Backfill = math.MaxInt32 // Conservative reserves for every blocked job.
)

// Preempt says whether a waiting gang may take the room of running ones before
// their term.
//
// With PreemptOn a gang whose turn has come takes room rather than wait where it
// finds none, and quota where jobs use it that must give it back. It takes of
// running Preemptible jobs: those that a Reclaimer lists; without one those of
// lower Priority, where there is a Quota of its own tenant and queue only, least
// priority first. Whoever is Resizable may shrink to no less than Min instead. Due
// holders whose turn has not come are taken from first. It takes from as few, and
// as cheap, as the Preempter finds, and for want of quota from no one
// without whom it would do; it asks for its Min. A Gang with PreemptNever waits.
//
// The room is the gang's own at once, before its victims leave: nobody gets it, not
// they either, until it is given up. Victims are told at the end of the pass: to
// shrink, to move where there is other room that nobody waits for, or to
// leave, and then they are queued in their old place. Quota is given back for all
// of them before it is charged for the gang, so that the sum never exceeds.
//
// Nobody makes room twice for one gang until that has run, and nobody takes room from
// one for whom it made room, nor from one for whom that made room, and so on, while
// they are there; so preemption comes to an end whatever priorities and quotas
// say. Reconsider makes an end of that memory.
type Preempt string

// The settings of Preempt.
const (
	PreemptOff Preempt = ""   // PreemptOff stops nobody before its term.
	PreemptOn  Preempt = "on" // PreemptOn lets waiting gangs take room; the Placer must be a Preempter and a WhatIf.
)

// Config configures an Admission. Only Placer has no default.
type Config struct {
	Hold        time.Duration // Hold is how long room is kept for gangs that do not say; 0 means 5 minutes.
	Backoff     time.Duration // Backoff is how long a gang whose hold lapsed waits before the next, doubled each time it lapses again, up to 64 times; 0 means 1 minute.
	Exclude     time.Duration // Exclude is how long a gang is kept off a node that it refused; 0 means 10 minutes.
	Backfill    Backfill      // Backfill says which jobs may pass a blocked one; 0 means EASY.
	MaxAttempts int           // MaxAttempts is how many waiting jobs one pass tries to place; those that cannot have become placeable are free; 0 means no limit.
	Retain      int           // Retain is how many jobs that have left are remembered, oldest forgotten first; 0 means 1024.
	StartAtOnce bool          // StartAtOnce starts gangs without holds: no preflight, no confirmation.
	Preempt     Preempt       // Preempt says whether waiting gangs may take the room of running ones; zero is PreemptOff.
	MaxVictims  int           // MaxVictims is how many running jobs may be touched for one waiting gang until it has run; 0 means any number.

	Inventory lockstep.Inventory `json:"-"` // Inventory is given to the plans that Restore reads back; nil means none.
	Placer    Placer             `json:"-"` // Placer finds room; required.
	Orderer   Orderer            `json:"-"` // Orderer says whose turn it is; nil means higher priority, then earlier submission, then ID.
	Quota     Quota              `json:"-"` // Quota limits tenants and queues; nil means no limits.
	Cost      Coster             `json:"-"` // Cost says what stopping a job throws away; nil means the time since it last began to run, and its Save and Restore.
	Recorder  lockstep.Recorder  `json:"-"` // Recorder takes measurements; nil means none.
}

// The defaults of Config.
const (
	defaultHold    = 5 * time.Minute
	defaultBackoff = time.Minute
	defaultExclude = 10 * time.Minute
	defaultRetain  = 1024
)

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	duration := func(field string, d time.Duration) {
		if d < 0 || d > lockstep.MaxWalltime {
			errs = append(errs, fault(lockstep.ErrInvalid, "config", field, d.String(), "want 0 to "+lockstep.MaxWalltime.String()))
		}
	}
	duration("Hold", c.Hold)
	duration("Backoff", c.Backoff)
	duration("Exclude", c.Exclude)
	count := func(field string, n, least int) {
		if n < least {
			errs = append(errs, fault(lockstep.ErrInvalid, "config", field, strconv.Itoa(n), "want at least "+strconv.Itoa(least)))
		}
	}
	count("Backfill", int(c.Backfill), int(Strict))
	count("MaxAttempts", c.MaxAttempts, 0)
	count("Retain", c.Retain, 0)
	count("MaxVictims", c.MaxVictims, 0)
	if c.Placer == nil {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Placer", "nil", "required"))
	}
	_, takes := c.Placer.(Preempter)
	_, tries := c.Placer.(WhatIf)
	switch {
	case c.Preempt != PreemptOff && c.Preempt != PreemptOn:
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Preempt", strconv.Quote(string(c.Preempt)), `want "" or "on"`))
	case c.Preempt == PreemptOn && c.Placer != nil && !(takes && tries):
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Preempt", strconv.Quote(string(c.Preempt)), "needs a Placer that is a Preempter and a WhatIf"))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Hold == 0 {
		c.Hold = defaultHold
	}
	if c.Backoff == 0 {
		c.Backoff = defaultBackoff
	}
	if c.Exclude == 0 {
		c.Exclude = defaultExclude
	}
	if c.Retain == 0 {
		c.Retain = defaultRetain
	}
	return c
}

func fault(kind error, op, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "gang: " + op, Field: field, Value: value, Reason: reason}
}
