package lifecycle

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/google/btree"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Config configures a Machine. The zero value is valid. Durations are at most
// lockstep.MaxWalltime.
type Config struct {
	MaxWait    time.Duration `json:"maxWait,omitempty"`    // MaxWait is the longest time in Queued; 0 means lockstep.MaxWalltime.
	Admit      time.Duration `json:"admit,omitempty"`      // Admit is the longest time in Admitted; 0 means 10 minutes.
	Reserve    time.Duration `json:"reserve,omitempty"`    // Reserve is the longest time in Reserving where the event says none; 0 means 10 minutes.
	Start      time.Duration `json:"start,omitempty"`      // Start is the longest time in Starting; 0 means 30 minutes.
	Grace      time.Duration `json:"grace,omitempty"`      // Grace is the longest time in Draining where the event says none; 0 means 30 s.
	Fence      time.Duration `json:"fence,omitempty"`      // Fence is how long a Lost attempt may come back; 0 means 2 minutes.
	Clean      time.Duration `json:"clean,omitempty"`      // Clean is the longest time in Cleaning, after which what is not clean is quarantined; 0 means 10 minutes.
	Backoff    time.Duration `json:"backoff,omitempty"`    // Backoff is the first wait before another attempt; 0 means 10 s.
	BackoffMax time.Duration `json:"backoffMax,omitempty"` // BackoffMax is the longest one; 0 means 6 minutes.
	Stable     time.Duration `json:"stable,omitempty"`     // Stable is the running time of an attempt after which budgets start afresh; 0 means 1 hour.
	Retain     time.Duration `json:"retain,omitempty"`     // Retain is how long terminal jobs are kept; 0 means until Forget.
	Rules      []Rule        `json:"rules,omitzero"`       // Rules are tried in order; nil means DefaultRules. What none matches is Failed.
	Budgets    []Budget      `json:"budgets,omitzero"`     // Budgets are those that Rules name; nil means DefaultBudgets.
}

func (c Config) withDefaults() Config {
	set := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	set(&c.MaxWait, lockstep.MaxWalltime)
	set(&c.Admit, 10*time.Minute)
	set(&c.Reserve, 10*time.Minute)
	set(&c.Start, 30*time.Minute)
	set(&c.Grace, 30*time.Second)
	set(&c.Fence, 2*time.Minute)
	set(&c.Clean, 10*time.Minute)
	set(&c.Backoff, 10*time.Second)
	set(&c.BackoffMax, 6*time.Minute)
	set(&c.Stable, time.Hour)
	if c.Rules == nil {
		c.Rules = DefaultRules()
	}
	if c.Budgets == nil {
		c.Budgets = DefaultBudgets()
	}
	return c
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	c = c.withDefaults()
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"MaxWait", c.MaxWait},
		{"Admit", c.Admit},
		{"Reserve", c.Reserve},
		{"Start", c.Start},
		{"Grace", c.Grace},
		{"Fence", c.Fence},
		{"Clean", c.Clean},
		{"Backoff", c.Backoff},
		{"BackoffMax", c.BackoffMax},
		{"Stable", c.Stable},
		{"Retain", c.Retain},
	} {
		if f.d < 0 || f.d > lockstep.MaxWalltime {
			bad(f.name, f.d.String(), "want 0 to "+lockstep.MaxWalltime.String())
		}
	}
	for i, b := range c.Budgets {
		at := "Budgets[" + strconv.Itoa(i) + "]"
		if b.Name == "" || slices.ContainsFunc(c.Budgets[:i], func(o Budget) bool { return o.Name == b.Name }) {
			bad(at+".Name", strconv.Quote(b.Name), "must be named, once")
		}
		if b.Limit < 0 {
			bad(at+".Limit", strconv.Itoa(b.Limit), "must not be negative")
		}
	}
	for i := range c.Rules {
		r, at := &c.Rules[i], "Rules["+strconv.Itoa(i)+"]"
		if r.To != Held && !Legal(Cleaning, r.To) {
			bad(at+".To", strconv.Quote(string(r.To)), "want Held or a state that may follow Cleaning")
		}
		if r.Budget != "" && !slices.ContainsFunc(c.Budgets, func(b Budget) bool { return b.Name == r.Budget }) {
			bad(at+".Budget", strconv.Quote(r.Budget), "is none of Budgets")
		}
	}
	return errors.Join(errs...)
}

// Event asks for a move, as data that can be stored and replayed. Fields that
// its move does not name are ignored.
type Event struct {
	Move    Move              `json:"move"`              // Move is what happened or is wanted.
	Time    time.Time         `json:"time"`              // Time is when.
	Job     lockstep.JobID    `json:"job,omitempty"`     // Job is whom it concerns; none for MoveTick.
	Attempt lockstep.Attempt  `json:"attempt,omitempty"` // Attempt is which attempt is meant, 0 for the present one; for MoveReserve the new one, 0 for the next number. Submit, hold, queue, admit and cancel are about the job.
	GPUs    lockstep.MilliGPU `json:"gpus,omitempty"`    // GPUs is for MoveReserve, MoveResize and MoveClean.
	Until   time.Time         `json:"until,omitzero"`    // Until is a deadline, for MoveSubmit, MoveReserve and MoveDrain; zero means the Config's.
	Cause   Cause             `json:"cause,omitempty"`   // Cause is the intent of MoveDrain, what MoveExit knows, or why a save failed.
	Exit    Exit              `json:"exit,omitzero"`     // Exit is for MoveExit.
	Reason  lockstep.Reason   `json:"reason,omitempty"`  // Reason is handed on in the steps.
}

// Step is one transition that was made.
type Step struct {
	Job         lockstep.JobID    `json:"job"`                   // Job is whose.
	Attempt     lockstep.Attempt  `json:"attempt,omitempty"`     // Attempt is in which attempt.
	From        State             `json:"from,omitempty"`        // From is the state left; empty for a submit.
	To          State             `json:"to"`                    // To is the state reached; From for a fact that changes no state.
	Move        Move              `json:"move"`                  // Move is what asked for it; MoveTick for a deadline.
	Time        time.Time         `json:"time"`                  // Time is when: a deadline's own time.
	Cause       Cause             `json:"cause,omitempty"`       // Cause is why the attempt ends, once that is known.
	Reason      lockstep.Reason   `json:"reason,omitempty"`      // Reason is the event's.
	Budget      string            `json:"budget,omitempty"`      // Budget is what the attempt was charged to, on the step into Cleaning.
	Freed       lockstep.MilliGPU `json:"freed,omitempty"`       // Freed is what goes back to the pool with this step.
	Quarantined lockstep.MilliGPU `json:"quarantined,omitempty"` // Quarantined is what was not confirmed clean in time and must not be used.
}

// Job is a copy of what is known of one job.
type Job struct {
	ID       lockstep.JobID    // ID names it.
	State    State             // State is where it is.
	Attempt  lockstep.Attempt  // Attempt is its latest attempt; 0 before the first.
	Deadline time.Time         // Deadline is when a timer moves it on; zero means none does.
	GPUs     lockstep.MilliGPU // GPUs is what it holds.
	Saving   bool              // Saving says that it stands still for a checkpoint.
	Resizing bool              // Resizing says that some of its members are leaving.
	Cause    Cause             // Cause is why its latest attempt ends or ended; empty while none is known.
	Ledger   Ledger            // Ledger is where its time went.
}

// Machine holds the jobs. Make one with New or Restore.
type Machine struct {
	cfg     Config
	now     int64
	dropped int64
	jobs    map[lockstep.JobID]*job
	wake    *btree.BTreeG[*job] // jobs with a timer, by timer, then ID
	out     []Step              // what Apply appends to, while it runs
}

// job is one job. Its exported fields are the saved form.
type job struct {
	ID        lockstep.JobID    `json:"id"`
	State     State             `json:"state"`
	Attempt   lockstep.Attempt  `json:"attempt,omitempty"`
	Submitted int64             `json:"submitted"`
	At        int64             `json:"at"`       // until when the ledger is settled
	Deadline  int64             `json:"deadline"` // of the state; never if it has none
	Due       int64             `json:"due"`      // the job's own deadline; never if it has none
	GPUs      lockstep.MilliGPU `json:"gpus,omitempty"`
	Clean     lockstep.MilliGPU `json:"clean,omitempty"`  // confirmed of GPUs, in Cleaning
	Target    lockstep.MilliGPU `json:"target,omitempty"` // while resizing down; 0 otherwise
	Saving    bool              `json:"saving,omitempty"`
	Cause     Cause             `json:"cause,omitempty"`
	Exit      Exit              `json:"exit,omitzero"`
	To        State             `json:"to,omitempty"` // where Cleaning leads
	Budget    string            `json:"budget,omitempty"`
	Charges   int               `json:"charges,omitempty"` // of Budget, with this attempt's
	Used      []used            `json:"used,omitempty"`
	Ran       int64             `json:"ran,omitempty"`  // Running time of this attempt
	Risk      int64             `json:"risk,omitempty"` // productive time that is not saved
	RiskGPU   lockstep.GPUTime  `json:"riskGPU,omitzero"`
	Ledger    Ledger            `json:"ledger"`

	timer int64 // key in the wake tree; never while it is not in it
}

const in instant.In = "lifecycle" // whose times are read

const (
	never  = instant.Never
	degree = 32 // of the btree
)

// New returns a machine without jobs, or the faults of cfg.
func New(cfg Config) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	cfg.Rules, cfg.Budgets = slices.Clone(cfg.Rules), slices.Clone(cfg.Budgets)
	for i := range cfg.Rules {
		r := &cfg.Rules[i]
		r.Causes, r.Codes = slices.Clone(r.Causes), slices.Clone(r.Codes)
	}
	return &Machine{
		cfg:  cfg,
		now:  math.MinInt64,
		jobs: make(map[lockstep.JobID]*job),
		wake: btree.NewG(degree, func(a, b *job) bool {
			return a.timer < b.timer || a.timer == b.timer && a.ID < b.ID
		}),
	}, nil
}

// Len returns how many jobs the machine knows, terminal ones included.
func (m *Machine) Len() int { return len(m.jobs) }

// Dropped returns how many events were about attempts that were over.
func (m *Machine) Dropped() int64 { return m.dropped }

// Job returns what is known of a job.
func (m *Machine) Job(id lockstep.JobID) (Job, bool) {
	j, ok := m.jobs[id]
	if !ok {
		return Job{}, false
	}
	v := Job{
		ID: j.ID, State: j.State, Attempt: j.Attempt, GPUs: j.GPUs, Saving: j.Saving, Resizing: j.Target != 0,
		Cause: j.Cause, Ledger: j.Ledger,
	}
	if j.timer != never {
		v.Deadline = lockstep.FromNanos(j.timer)
	}
	return v, true
}

// NextWake returns the earliest deadline, at which a MoveTick is due, or now if
// one has passed.
func (m *Machine) NextWake(now time.Time) (time.Time, bool) {
	j, ok := m.wake.Min()
	if !ok {
		return time.Time{}, false
	}
	if at := lockstep.FromNanos(j.timer); at.After(now) {
		return at, true
	}
	return now, true
}

// Forget drops a terminal job. Its ID may then be used again. It is no event, so
// who replays a log has to note it there too; Config.Retain needs no note.
func (m *Machine) Forget(id lockstep.JobID) error {
	j, ok := m.jobs[id]
	switch {
	case !ok:
		return fault(lockstep.ErrUnknown, "forget", "job", string(id), "is not known")
	case !j.State.Terminal():
		return fault(lockstep.ErrConflict, "forget", "job", string(id), "is "+string(j.State))
	}
	m.forget(j)
	return nil
}

func (m *Machine) forget(j *job) {
	m.unset(j)
	delete(m.jobs, j.ID)
}

// set puts j's timer into the tree; unset takes it out.
func (m *Machine) set(j *job) {
	j.timer = j.nextTimer()
	if j.timer != never {
		m.wake.ReplaceOrInsert(j)
	}
}

func (m *Machine) unset(j *job) {
	if j.timer != never {
		m.wake.Delete(j)
		j.timer = never
	}
}

// nextTimer returns when time alone moves j on.
func (j *job) nextTimer() int64 {
	switch j.State {
	case Draining, Lost, Cleaning, Succeeded, Failed, Cancelled, DeadlineExceeded:
		return j.Deadline // its own deadline waits until it is clean
	}
	return max(min(j.Deadline, j.Due), j.At) // Due may have passed meanwhile
}

func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: string(in) + ": " + op, Field: field, Value: value, Reason: reason}
}

func itoa(a lockstep.Attempt) string { return strconv.FormatUint(uint64(a), 10) }
