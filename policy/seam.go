package policy

import (
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// SeamConfig configures a Seam for plans of type P. Check is needed; the rest may
// be zero.
type SeamConfig[P any] struct {
	Budget   time.Duration // Budget is how long a solver may take; 0 means 1 s.
	MinEvery time.Duration // MinEvery is the least time between two asks; 0 means none.
	// MaxBehind is how many versions an answer may be behind and still be looked at. It has to pass Check as of now all the same.
	// 0 means none: a change of state makes every open answer stale.
	MaxBehind uint64
	Seed      uint64 // Seed is what the seeds of asks are made from.

	// Check says what stands in the way of a plan in the present state, nil if
	// nothing does. It judges plans of the fast path and of the solver alike, must
	// not keep them, and must not call back.
	Check func(P) error `json:"-"`
}

const defaultBudget = time.Second

// Validate reports every fault, joined: ErrInvalid.
func (c SeamConfig[P]) Validate() error {
	errs := []error{checkDuration("Budget", c.Budget), checkDuration("MinEvery", c.MinEvery)}
	if c.Check == nil {
		errs = append(errs, invalid("Check", "nil", "is needed"))
	}
	return errors.Join(errs...)
}

// Ask is a request to a solver.
type Ask struct {
	Number   uint64    // Number counts asks from 1 on.
	Version  uint64    // Version is that of the state which the solver is given.
	Deadline time.Time // Deadline is when its answer must be back; one at that very time is in time.
	Seed     uint64    // Seed is for the solver's random choices, the same in every replay.
}

// Proposal is a solver's answer.
type Proposal[P any] struct {
	Ask   Ask   // Ask is what it answers, as Seam.Ask returned it.
	Plan  P     // Plan is what it proposes.
	Score int64 // Score is the plan's worth, more is better, as the fast path counts it for the same state.
}

// Outcome is what became of a plan.
type Outcome uint8

// The outcomes. A plan is adopted or dropped for one reason.
const (
	Adopted    Outcome = iota // Adopted means that the plan is the one in force.
	Unasked                   // Unasked means that no open ask is the one that is answered: it was answered, or given up, before.
	Late                      // Late means that the deadline was over, of the open ask or of the one that it says it answers.
	Stale                     // Stale means that the state has moved on by more than MaxBehind versions.
	Infeasible                // Infeasible means that Check found something in its way.
	Worse                     // Worse means that the plan in force is as good at least.
)

// outcomeNames is immutable.
var outcomeNames = [...]string{"adopted", "unasked", "late", "stale", "infeasible", "worse"}

// String returns the name of o in lower case.
func (o Outcome) String() string {
	if int(o) < len(outcomeNames) {
		return outcomeNames[o]
	}
	return "Outcome(" + strconv.Itoa(int(o)) + ")"
}

// SeamState is what a Seam remembers. It can be saved as JSON.
type SeamState struct {
	Now     int64  // Now is the latest time seen, in nanoseconds since 1970.
	Version uint64 // Version is the latest version seen.
	InForce bool   // InForce says that a plan was adopted at Version.
	Score   int64  // Score is that plan's.
	Open    Ask    // Open is the ask that is out; its Number is 0 if none is.
	Asked   uint64 // Asked counts asks.
	AskedAt int64  // AskedAt is when the last one was made, in nanoseconds since 1970.
	Counts  Counts // Counts are those of all answers.
}

// Counts says how many answers of solvers had which outcome.
type Counts struct {
	Adopted    uint64 // Adopted counts answers that were adopted.
	Unasked    uint64 // Unasked counts answers that nobody had asked for, or twice.
	Late       uint64 // Late counts answers after their deadline, and asks that were given up because none had come by then.
	Stale      uint64 // Stale counts answers for a state that has moved on.
	Infeasible uint64 // Infeasible counts answers that Check refused.
	Worse      uint64 // Worse counts answers that were no better than the fast path's.
}

func (c *Counts) add(o Outcome) {
	*[...]*uint64{&c.Adopted, &c.Unasked, &c.Late, &c.Stale, &c.Infeasible, &c.Worse}[o]++
}

// Seam stands between a fast path and an optional solver. It starts nothing and
// waits for nothing.
type Seam[P any] struct {
	cfg   SeamConfig[P]
	state SeamState
}

// NewSeam returns a Seam that has seen nothing.
func NewSeam[P any](cfg SeamConfig[P]) (*Seam[P], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Budget == 0 {
		cfg.Budget = defaultBudget
	}
	return &Seam[P]{cfg: cfg}, nil
}

// State returns a copy of what s remembers.
func (s *Seam[P]) State() SeamState { return s.state }

// Restore makes s remember what another one with the same configuration did. Its
// error is ErrInvalid.
func (s *Seam[P]) Restore(state SeamState) error {
	open := state.Open
	bad := state.Now < 0 || state.AskedAt < 0 || state.AskedAt > state.Now || open.Version > state.Version
	if open.Number == 0 {
		bad = bad || open != (Ask{})
	} else if deadline, err := in.SinceEpoch("restore", "Open.Deadline", open.Deadline); err != nil {
		return err
	} else {
		// Only the last ask is ever open, and for the budget: a later deadline would let a late answer in.
		bad = bad || open.Number != state.Asked || deadline > instant.Add(state.AskedAt, s.cfg.Budget)
	}
	if bad {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "policy: restore", Field: "state", Reason: "is no saved state"}
	}
	s.state = state
	return nil
}

// see takes in the present time and version, which do not go backwards.
func (s *Seam[P]) see(op string, now time.Time, version uint64) error {
	ns, err := in.SinceEpoch(op, "now", now)
	if err != nil {
		return err
	}
	if err := in.NotBefore(op, "now", now, ns, s.state.Now); err != nil {
		return err
	}
	if version < s.state.Version {
		return &lockstep.Error{Kind: lockstep.ErrPast, Op: "policy: " + op, Field: "version", Value: strconv.FormatUint(version, 10), Reason: "is before " + strconv.FormatUint(s.state.Version, 10)}
	}
	s.state.Now = ns
	if version > s.state.Version {
		s.state.Version, s.state.InForce, s.state.Score = version, false, 0
	}
	return nil
}

// Fast judges a plan of the fast path for the state of that version. It is
// adopted unless Check refuses it: then the outcome is Infeasible and the error
// that of Check, for it is a fault of the fast path.
func (s *Seam[P]) Fast(now time.Time, version uint64, plan P, score int64) (Outcome, error) {
	if err := s.see("fast", now, version); err != nil {
		return Infeasible, err
	}
	if err := s.cfg.Check(plan); err != nil {
		return Infeasible, err
	}
	s.state.InForce, s.state.Score = true, score
	return Adopted, nil
}

// Ask returns a request for the solver, with the state of that version. It is
// false while one is out whose deadline is not over, and before MinEvery has
// passed since the last one. One whose deadline is over is given up and counted
// as late; its answer is then unasked.
func (s *Seam[P]) Ask(now time.Time, version uint64) (Ask, bool, error) {
	if err := s.see("ask", now, version); err != nil {
		return Ask{}, false, err
	}
	st := &s.state
	if at, ok := s.wake(); ok && at > st.Now {
		return Ask{}, false, nil
	}
	if st.Open.Number != 0 {
		st.Counts.add(Late)
	}
	st.Asked++
	st.AskedAt = st.Now
	// A step of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): seeds of one stream that look unrelated.
	seed := s.cfg.Seed + st.Asked*0x9e3779b97f4a7c15
	seed = (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
	seed = (seed ^ seed>>27) * 0x94d049bb133111eb
	st.Open = Ask{Number: st.Asked, Version: version, Seed: seed ^ seed>>31, Deadline: lockstep.FromNanos(instant.Add(st.Now, s.cfg.Budget))}
	return st.Open, true, nil
}

// NextWake returns when the next Ask may be made; false if it may be at once.
func (s *Seam[P]) NextWake() (time.Time, bool) {
	at, ok := s.wake()
	if !ok || at <= s.state.Now {
		return time.Time{}, false
	}
	return lockstep.FromNanos(at), true
}

func (s *Seam[P]) wake() (int64, bool) {
	if s.state.Asked == 0 {
		return 0, false
	}
	at := instant.Add(s.state.AskedAt, s.cfg.MinEvery)
	if s.state.Open.Number != 0 {
		deadline, _ := lockstep.Nanos(s.state.Open.Deadline)
		at = max(at, instant.Add(deadline, 1)) // at the deadline itself an answer is in time
	}
	return at, true
}

// Answer judges a proposal when the state has that version, and counts the
// outcome. The plan is in force if it is Adopted; else the fast path's stays, and
// the error is that of Check where the outcome is Infeasible. Any other error
// means that nothing was judged.
func (s *Seam[P]) Answer(now time.Time, version uint64, p Proposal[P]) (Outcome, error) {
	if err := s.see("answer", now, version); err != nil {
		return Unasked, err
	}
	o, err := s.judge(p)
	s.state.Counts.add(o)
	if o != Unasked {
		s.state.Open = Ask{}
	}
	if o == Adopted {
		s.state.InForce, s.state.Score = true, p.Score
	}
	return o, err
}

// judge finds the outcome of a proposal and changes nothing.
func (s *Seam[P]) judge(p Proposal[P]) (Outcome, error) {
	st := &s.state
	if p.Ask.Number == 0 || p.Ask.Number != st.Open.Number {
		return Unasked, nil
	}
	// What came back may make an answer later or older than what was asked, never the reverse: after a Restore of an earlier
	// state, numbers are given out again, and an answer from before has the older version and deadline.
	if deadline, _ := lockstep.Nanos(st.Open.Deadline); st.Now > deadline || p.Ask.Deadline.Before(st.Open.Deadline) {
		return Late, nil
	}
	if st.Version-min(p.Ask.Version, st.Open.Version) > s.cfg.MaxBehind {
		return Stale, nil
	}
	if err := s.cfg.Check(p.Plan); err != nil {
		return Infeasible, err
	}
	if st.InForce && p.Score <= st.Score {
		return Worse, nil
	}
	return Adopted, nil
}
