package lease

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/google/btree"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Token fences off holders of the past: a later grant has a higher one. Zero is none.
type Token uint64

// Config configures a Table. The zero value is valid.
type Config struct {
	Term    time.Duration `json:"term,omitempty"`    // Term is how long a lease lasts until its boundary; 0 means 30 minutes.
	Ahead   time.Duration `json:"ahead,omitempty"`   // Ahead is how long before its boundary a holder becomes due, at most its term; 0 means at the boundary.
	Silence time.Duration `json:"silence,omitempty"` // Silence is how long a holder may go without Renew before it is overdue; 0 means for ever.
	Loss    int           `json:"loss,omitempty"`    // Loss is the share of a term that a job's overhead may take, in millionths, at most 1000000; 0 means 20000, which is 2 %.
}

// Defaults of Config.
const (
	defaultTerm = 30 * time.Minute
	defaultLoss = 20_000
	million     = 1_000_000
)

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(field string, d time.Duration) {
		if d < 0 || d > lockstep.MaxWalltime {
			errs = append(errs, fault(lockstep.ErrInvalid, "config", field, d.String(), "want 0 to "+lockstep.MaxWalltime.String()))
		}
	}
	check("Term", c.Term)
	check("Ahead", c.Ahead)
	check("Silence", c.Silence)
	if c.Loss < 0 || c.Loss > million {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Loss", strconv.Itoa(c.Loss), "want 0 to 1000000"))
	}
	return errors.Join(errs...)
}

// TermFor returns the term of a job whose checkpoint and resume together take
// overhead: the least one, not below Term, of which overhead is at most the
// share Loss. It rounds up to the nanosecond and is at most
// lockstep.MaxWalltime; a negative overhead counts as none.
func (c Config) TermFor(overhead time.Duration) time.Duration {
	c = c.withDefaults()
	hi, lo := bits.Mul64(uint64(max(overhead, 0)), million)
	loss := uint64(c.Loss)
	if hi >= loss {
		return lockstep.MaxWalltime
	}
	need, rem := bits.Div64(hi, lo, loss)
	if rem != 0 {
		need++
	}
	return max(c.Term, time.Duration(min(need, uint64(lockstep.MaxWalltime))))
}

func (c Config) withDefaults() Config {
	if c.Term == 0 {
		c.Term = defaultTerm
	}
	if c.Loss == 0 {
		c.Loss = defaultLoss
	}
	return c
}

// State says what a lease's holder is doing with it.
type State string

// The states of a lease.
const (
	Held      State = "held"      // Held: the holder keeps all of it.
	Yielding  State = "yielding"  // Yielding: the holder is to give all of it back by the deadline.
	Shrinking State = "shrinking" // Shrinking: the holder is to give back all but Target by the deadline.
)

// Lease is a copy of one lease as it stood when it was returned.
type Lease struct {
	Job      lockstep.JobID    `json:"job"`                // Job is the holder.
	Token    Token             `json:"token"`              // Token is what the holder shows.
	State    State             `json:"state"`              // State is what is asked of the holder.
	Amount   lockstep.MilliGPU `json:"amount"`             // Amount is what it holds.
	Target   lockstep.MilliGPU `json:"target,omitempty"`   // Target is what a Shrinking holder will keep; zero otherwise.
	Term     time.Duration     `json:"term"`               // Term is the length of its terms.
	Granted  time.Time         `json:"granted"`            // Granted is when it began.
	Boundary time.Time         `json:"boundary"`           // Boundary is when its present term is over.
	Renewed  time.Time         `json:"renewed"`            // Renewed is when the holder was last heard of: its grant at first.
	Deadline time.Time         `json:"deadline,omitzero"`  // Deadline is when it must have given back; zero while Held.
	Extended int               `json:"extended,omitempty"` // Extended is how many times it was extended in place.
	Reason   lockstep.Reason   `json:"reason,omitempty"`   // Reason is why it yields or shrinks; empty while Held.
}

// Charge is a stretch of time in which a job held one amount. A job's charges
// follow each other without gap or overlap from its grant to its end.
type Charge struct {
	Job    lockstep.JobID    `json:"job"`    // Job is who held it.
	Token  Token             `json:"token"`  // Token is under which lease.
	Amount lockstep.MilliGPU `json:"amount"` // Amount is how much.
	From   time.Time         `json:"from"`   // From is when it began.
	To     time.Time         `json:"to"`     // To is when it ended: at the release, the resize or the revoke.
	Reason lockstep.Reason   `json:"reason"` // Reason is why it ended; empty for a release that nobody asked for, and for a resize.
}

// Table is the set of leases. Make one with New or Restore.
type Table struct {
	cfg  Config
	now  int64 // latest time seen; math.MinInt64 before the first
	last Token // highest token issued
	jobs map[lockstep.JobID]*entry
	due  *btree.BTreeG[*entry] // Held leases by dueAt, job
	ends *btree.BTreeG[*entry] // leases with a time from which they are overdue, by endAt, job
}

// entry is one lease with times in nanoseconds.
// Invariant: it is in due iff state is Held, and in ends iff endAt < never.
type entry struct {
	job      lockstep.JobID
	token    Token
	state    State
	amount   lockstep.MilliGPU
	target   lockstep.MilliGPU
	term     int64
	granted  int64
	since    int64 // start of the charge that runs
	boundary int64
	renewed  int64
	deadline int64
	extended int
	reason   lockstep.Reason
	dueAt    int64
	endAt    int64
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
		jobs: make(map[lockstep.JobID]*entry),
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
// Config.Ahead away at now, by the time since when and then by job, and returns
// dst. A lease is named again until an outcome is recorded.
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

// NextWake returns the earliest time at which AppendDue or AppendOverdue will
// name a lease, or now if they name one already.
func (t *Table) NextWake(now time.Time) (time.Time, bool) {
	at := int64(never)
	if e, ok := t.due.Min(); ok {
		at = e.dueAt
	}
	if e, ok := t.ends.Min(); ok {
		at = min(at, instant.Add(e.endAt, 1))
	}
	if at == never {
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
	if e.state == Held {
		e.dueAt = e.boundary - min(int64(t.cfg.Ahead), e.term) // no lease is due before its term began
		t.due.ReplaceOrInsert(e)
	} else {
		e.endAt = min(e.endAt, e.deadline)
	}
	if e.endAt < never {
		t.ends.ReplaceOrInsert(e)
	}
}

// unindex takes e out of the trees, which its keys may not change in.
func (t *Table) unindex(e *entry) {
	if e.state == Held {
		t.due.Delete(e)
	}
	if e.endAt < never {
		t.ends.Delete(e)
	}
}

func (e *entry) lease() Lease {
	l := Lease{
		Job: e.job, Token: e.token, State: e.state, Amount: e.amount, Target: e.target,
		Term: time.Duration(e.term), Granted: lockstep.FromNanos(e.granted), Boundary: lockstep.FromNanos(e.boundary),
		Renewed: lockstep.FromNanos(e.renewed), Extended: e.extended, Reason: e.reason,
	}
	if e.state != Held {
		l.Deadline = lockstep.FromNanos(e.deadline)
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
