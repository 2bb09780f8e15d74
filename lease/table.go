package lease

import (
	"math"
	"time"

	"github.com/google/btree"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Token fences off holders of the past: a later grant has a higher one. Zero is none.
type Token uint64

// State says what a lease's holder is doing with it.
type State string

// The states of a lease.
const (
	Held      State = "held"      // Held: the holder keeps all of it.
	HeldOver  State = "heldover"  // HeldOver: its term is over and the holder keeps all of it until somebody else should have it.
	Yielding  State = "yielding"  // Yielding: the holder is to give all of it back by the deadline.
	Shrinking State = "shrinking" // Shrinking: the holder is to give back all but Target by the deadline.
)

// givesBack says whether the holder has been told to give something back.
func (s State) givesBack() bool { return s == Yielding || s == Shrinking }

// Lease is a copy of one lease as it stood when it was returned.
type Lease struct {
	Job      lockstep.JobID    `json:"job"`                // Job is the holder.
	Token    Token             `json:"token"`              // Token is what the holder shows.
	State    State             `json:"state"`              // State is what is asked of the holder.
	Amount   lockstep.MilliGPU `json:"amount"`             // Amount is what it holds.
	Target   lockstep.MilliGPU `json:"target,omitempty"`   // Target is what a Shrinking holder will keep; zero otherwise.
	Term     time.Duration     `json:"term"`               // Term is the length of its present term.
	Longest  time.Duration     `json:"longest"`            // Longest is what its terms grow to.
	Granted  time.Time         `json:"granted"`            // Granted is when it began.
	Boundary time.Time         `json:"boundary"`           // Boundary is when its present term is over.
	Renewed  time.Time         `json:"renewed"`            // Renewed is when the holder was last heard of: its grant at first.
	Deadline time.Time         `json:"deadline,omitzero"`  // Deadline is when it must have given back; zero while it need not.
	Extended int               `json:"extended,omitempty"` // Extended is how many times it was extended in place.
	Reason   lockstep.Reason   `json:"reason,omitempty"`   // Reason is why it yields or shrinks; empty while it does not.
	Loan     LoanID            `json:"loan,omitempty"`     // Loan is the loan that it is on; empty for none.
}

// Charge is a stretch of time in which a job held one amount. A job's charges
// follow each other without gap or overlap from its grant to its end.
type Charge struct {
	Job    lockstep.JobID    `json:"job"`              // Job is who held it.
	Token  Token             `json:"token"`            // Token is under which lease.
	Amount lockstep.MilliGPU `json:"amount"`           // Amount is how much.
	From   time.Time         `json:"from"`             // From is when it began.
	To     time.Time         `json:"to"`               // To is when it ended: at the release, the resize or the revoke.
	Reason lockstep.Reason   `json:"reason"`           // Reason is why it ended; empty for a release that nobody asked for, and for a resize.
	Loan   LoanID            `json:"loan,omitempty"`   // Loan is the loan that it was on; empty for none.
	Resume time.Duration     `json:"resume,omitempty"` // Resume is how much of it, from From, was spent on restoring, as far as Resumed told.
	Save   time.Duration     `json:"save,omitempty"`   // Save is how much of it, up to To, was spent on giving back: since it was told to yield or shrink.
}

// Table is the set of leases. Make one with New or Restore.
type Table struct {
	cfg  Config
	now  int64 // latest time seen; math.MinInt64 before the first
	last Token // highest token issued
	jobs map[lockstep.JobID]*entry
	due  *btree.BTreeG[*entry] // leases with a time from which they are due, by dueAt, job
	ends *btree.BTreeG[*entry] // leases with a time from which they are overdue, by endAt, job

	loans map[LoanID]*loan
}

// entry is one lease with times in nanoseconds.
// Invariant: it is in due iff indue is true, and in ends iff endAt < never.
type entry struct {
	job      lockstep.JobID
	token    Token
	state    State
	amount   lockstep.MilliGPU
	target   lockstep.MilliGPU
	term     int64
	longest  int64
	granted  int64
	since    int64 // start of the charge that runs
	boundary int64
	renewed  int64
	deadline int64
	told     int64 // when it was told to give back; 0 where it was not
	resumed  int64 // when it was said to work; never where it was not
	loan     *loan
	extended int
	reason   lockstep.Reason
	dueAt    int64
	endAt    int64
	indue    bool
}

const in instant.In = "lease" // whose times are read

const (
	never  = instant.Never
	degree = 32 // of the btrees; measured flat between 16 and 64
)

// New returns an empty table, or the faults of cfg.
func New(cfg Config) (*Table, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	t := &Table{
		cfg:  cfg.withDefaults(),
		now:  math.MinInt64,
		jobs: make(map[lockstep.JobID]*entry), loans: make(map[LoanID]*loan),
		due: btree.NewG(degree, func(a, b *entry) bool {
			return a.dueAt < b.dueAt || a.dueAt == b.dueAt && a.job < b.job
		}),
		ends: btree.NewG(degree, func(a, b *entry) bool {
			return a.endAt < b.endAt || a.endAt == b.endAt && a.job < b.job
		}),
	}
	return t, nil
}

// Len returns how many leases there are.
func (t *Table) Len() int { return len(t.jobs) }

// Last returns the highest token issued so far, 0 before the first.
func (t *Table) Last() Token { return t.last }

// Get returns the lease of job.
func (t *Table) Get(job lockstep.JobID) (Lease, bool) {
	e, ok := t.jobs[job]
	if !ok {
		return Lease{}, false
	}
	return e.lease(), true
}

// Valid reports whether token is the one under which job holds a lease. It is
// what a guard asks before it lets job touch a device.
func (t *Table) Valid(job lockstep.JobID, token Token) bool {
	e, ok := t.jobs[job]
	return ok && e.token == token
}

// AppendDue appends the leases that are Held and whose boundary is at most
// Config.Ahead away at now, and those on a loan that is short of what is recalled,
// by the time since when and then by job, and returns dst. A lease is named again
// until an outcome is recorded, or the loan is no longer short; of those on such a
// loan whose own term is not over, none can be extended, and those that are not told
// to give back just stay.
func (t *Table) AppendDue(dst []Lease, now time.Time) []Lease {
	ns := clampNanos(now)
	t.due.Ascend(func(e *entry) bool {
		if e.dueAt > ns {
			return false
		}
		dst = append(dst, e.lease())
		return true
	})
	return dst
}

// AppendOverdue appends the leases whose holder let its deadline pass before
// now, or stayed silent for longer than Config.Silence, by the time since when
// and then by job, and returns dst. The host stops such a holder and calls Revoke.
func (t *Table) AppendOverdue(dst []Lease, now time.Time) []Lease {
	ns := clampNanos(now)
	t.ends.Ascend(func(e *entry) bool {
		if e.endAt >= ns {
			return false
		}
		dst = append(dst, e.lease())
		return true
	})
	return dst
}

// NextWake returns the earliest time at which AppendDue, AppendOverdue or
// AppendSettled will name a lease, or now if they name one already. O(loans).
func (t *Table) NextWake(now time.Time) (time.Time, bool) {
	at, found := int64(never), false
	if e, ok := t.due.Min(); ok {
		at, found = e.dueAt, true
	}
	if e, ok := t.ends.Min(); ok {
		at, found = min(at, e.endAt+1), true
	}
	for _, l := range t.loans { // the least is the same in any order
		if len(l.calls) > 0 {
			at, found = min(at, l.calls[0].deadline), true
		}
	}
	if !found {
		return time.Time{}, false
	}
	if wake := lockstep.FromNanos(at); wake.After(now) {
		return wake, true
	}
	return now, true
}

// index puts e where its state says. It must be in neither tree.
func (t *Table) index(e *entry) {
	e.dueAt, e.endAt = never, never
	if t.cfg.Silence > 0 {
		e.endAt = instant.Add(e.renewed, t.cfg.Silence)
	}
	if e.state.givesBack() {
		e.endAt = min(e.endAt, e.deadline)
	}
	if e.state == Held {
		e.dueAt = t.termAt(e)
	}
	short := e.loan != nil && e.loan.since != never && !e.state.givesBack()
	if short {
		e.dueAt = min(e.dueAt, e.loan.since)
	}
	if e.indue = e.state == Held || short; e.indue {
		t.due.ReplaceOrInsert(e)
	}
	if e.endAt < never {
		t.ends.ReplaceOrInsert(e)
	}
}

// termAt returns the time from which a lease that is Held is due since its term is
// over: none before its term began.
func (t *Table) termAt(e *entry) int64 {
	return e.boundary - min(int64(t.cfg.Ahead), e.term)
}

// unindex takes e out of the trees, which its keys may not change in.
func (t *Table) unindex(e *entry) {
	if e.indue {
		t.due.Delete(e)
	}
	if e.endAt < never {
		t.ends.Delete(e)
	}
}

func (e *entry) lease() Lease {
	l := Lease{
		Job: e.job, Token: e.token, State: e.state, Amount: e.amount, Target: e.target,
		Term: time.Duration(e.term), Longest: time.Duration(e.longest), Granted: lockstep.FromNanos(e.granted), Boundary: lockstep.FromNanos(e.boundary),
		Renewed: lockstep.FromNanos(e.renewed), Extended: e.extended, Reason: e.reason,
	}
	if e.state.givesBack() {
		l.Deadline = lockstep.FromNanos(e.deadline)
	}
	if e.loan != nil {
		l.Loan = e.loan.id
	}
	return l
}

// clampNanos returns t in nanoseconds, held at the ends of what int64 can say.
func clampNanos(t time.Time) int64 {
	ns, err := lockstep.Nanos(t)
	switch {
	case err == nil:
		return ns
	case t.Before(lockstep.FromNanos(0)):
		return math.MinInt64
	}
	return never
}

func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: string(in) + ": " + op, Field: field, Value: value, Reason: reason}
}
