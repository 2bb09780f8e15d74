package hetero

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// RoundsConfig configures Rounds.
type RoundsConfig struct {
	Classes []Class // Classes are what is given; Price is not read. The order is that of every Target's slices.
	Explore int     // Explore is how many devices of a class a round may give to jobs whose rate there is unknown; 0 means none.
	// Idle leaves devices idle that no job is due, rather than give them to jobs that can use them.
	Idle bool
}

// Target is what a job is to get in the long run.
type Target struct {
	Job     lockstep.JobID // Job is unique.
	GPUs    int            // GPUs is how many devices it takes at once; 0 means 1.
	Shares  []Parts        // Shares are by class, together at most Whole; nil means none.
	Able    []bool         // Able says by class whether it may also have spare devices; nil means nowhere.
	Unknown []bool         // Unknown says by class whether its rate is unknown, so that it may be explored; nil means nowhere.
}

// Why says why a job has a class for a round.
type Why uint8

// The reasons, in the order in which devices are given.
const (
	Due     Why = iota // Due means that it has received least for its share.
	Explore            // Explore means that its rate there is unknown and may be measured now.
	Spare              // Spare means that nobody else was due the devices. It is not counted.
)

// String returns the name of w in lower case.
func (w Why) String() string {
	switch w {
	case Due:
		return "due"
	case Explore:
		return "explore"
	case Spare:
		return "spare"
	}
	return "Why(" + strconv.Itoa(int(w)) + ")"
}

// Grant is a class for a job for one round.
type Grant struct {
	Job   lockstep.JobID // Job is the one.
	Class int            // Class is an index of Classes.
	Why   Why            // Why says why.
	Kept  bool           // Kept says that it had the class in the round before.
}

// Rounds turns shares into rounds: in each, a job has one class or none.
type Rounds struct {
	cfg   RoundsConfig
	jobs  []*account // by ID
	count int64      // of rounds

	pairs []pair // work
	free  []int
}

// account is what a job is due and has received.
type account struct {
	Target
	due   []int64 // by class, in parts of a round
	got   []int64 // by class, in rounds
	on    int     // the class it has, -1 for none
	why   Why
	order int // index by ID
	given int64
}

// pair is a job and a class that it is due.
type pair struct {
	due, got int64
	job      *account
	class    int
	running  bool
}

// NewRounds returns Rounds without jobs.
func NewRounds(cfg RoundsConfig) (*Rounds, error) {
	f := faults{op: "hetero: rounds"}
	f.classes(cfg.Classes)
	f.within("Explore", int64(cfg.Explore), maxDevices)
	if err := errors.Join(f.errs...); err != nil {
		return nil, err
	}
	cfg.Classes = slices.Clone(cfg.Classes)
	return &Rounds{cfg: cfg}, nil
}

// Resize tells how many devices each class has from the next round on.
func (r *Rounds) Resize(devices []int) error {
	f := faults{op: "hetero: resize"}
	if len(devices) != len(r.cfg.Classes) {
		f.bad("devices", strconv.Itoa(len(devices))+" classes", "want "+strconv.Itoa(len(r.cfg.Classes)))
	}
	for i, n := range devices {
		f.within("devices["+strconv.Itoa(i)+"]", int64(n), maxDevices)
	}
	if err := errors.Join(f.errs...); err != nil {
		return err
	}
	for i, n := range devices {
		r.cfg.Classes[i].Devices = n
	}
	return nil
}

// Set replaces all targets. A job that is known keeps what it is due and has
// received, one that is missing is forgotten, and so is what it had.
func (r *Rounds) Set(targets []Target) error {
	if err := r.check(targets); err != nil {
		return err
	}
	known := make(map[lockstep.JobID]*account, len(r.jobs))
	for _, a := range r.jobs {
		known[a.Job] = a
	}
	jobs := make([]*account, 0, len(targets))
	n := len(r.cfg.Classes)
	for _, t := range targets {
		t.GPUs, t.Shares = max(t.GPUs, 1), padded(t.Shares, n)
		t.Able, t.Unknown = padded(t.Able, n), padded(t.Unknown, n)
		a := known[t.Job]
		if a == nil {
			a = &account{due: make([]int64, n), got: make([]int64, n), on: -1}
		}
		a.Target = t
		jobs = append(jobs, a)
	}
	slices.SortFunc(jobs, func(a, b *account) int { return cmp.Compare(a.Job, b.Job) })
	for i, a := range jobs {
		a.order = i
	}
	r.jobs = jobs
	return nil
}

func padded[T any](s []T, n int) []T {
	out := make([]T, n)
	copy(out, s)
	return out
}

func (r *Rounds) check(targets []Target) error {
	f := faults{op: "hetero: set"}
	seen := make(map[lockstep.JobID]bool, len(targets))
	for i := range targets {
		t := &targets[i]
		if bad := t.fault(len(r.cfg.Classes)); bad != "" || seen[t.Job] { // names are made only where there is something to say
			field := "targets[" + strconv.Itoa(i) + "]"
			if seen[t.Job] {
				f.duplicate(field+".Job", errtext.Quote(t.Job))
			}
			if bad != "" {
				f.bad(field, errtext.Quote(t.Job), bad)
			}
		}
		seen[t.Job] = true
	}
	return errors.Join(f.errs...)
}

// fault says what is wrong with t, "" for nothing.
func (t *Target) fault(classes int) string {
	if err := t.Job.Validate(); err != nil {
		return "Job must be a name"
	}
	if t.GPUs < 0 || t.GPUs > maxCount {
		return "GPUs must be 0 to 2^20"
	}
	for _, n := range []int{len(t.Shares), len(t.Able), len(t.Unknown)} {
		if n != 0 && n != classes {
			return "Shares, Able and Unknown must be nil or as long as Classes"
		}
	}
	sum := int64(0)
	for _, s := range t.Shares {
		if s < 0 {
			return "Shares must not be negative"
		}
		sum += int64(s)
	}
	if sum > int64(Whole) {
		return "Shares are more than the whole together"
	}
	return ""
}

// Next decides one round and counts it as received. The grants come in the order
// in which they were decided; whoever is not among them has nothing in this round.
func (r *Rounds) Next() []Grant {
	r.count++
	r.collect()
	r.free = r.free[:0]
	for _, c := range r.cfg.Classes {
		r.free = append(r.free, c.Devices)
	}
	grants := make([]Grant, 0, len(r.jobs))
	for _, p := range r.pairs {
		if p.job.given == r.count || r.free[p.class] < p.job.GPUs {
			continue
		}
		p.job.got[p.class]++
		grants = append(grants, r.give(p.job, p.class, Due))
	}
	grants = r.explore(grants)
	if !r.cfg.Idle {
		grants = r.spare(grants)
	}
	for _, a := range r.jobs {
		if a.given != r.count {
			a.on = -1
		}
	}
	return grants
}

// collect adds a round to what is due and sorts what has received least for it.
func (r *Rounds) collect() {
	r.pairs = r.pairs[:0]
	for _, a := range r.jobs {
		for c, s := range a.Shares {
			a.due[c] += int64(s)
			if s > 0 {
				r.pairs = append(r.pairs, pair{a.due[c], a.got[c], a, c, a.on == c})
			}
		}
	}
	slices.SortFunc(r.pairs, func(a, b pair) int {
		if c := ahead(&a, &b); c != 0 {
			return c
		}
		if a.running != b.running {
			if a.running {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.job.order, b.job.order), cmp.Compare(a.class, b.class))
	})
}

// ahead compares due over got, the larger first. Of those that got nothing, which
// is infinite, the one that is due more comes first.
func ahead(a, b *pair) int {
	if a.got == 0 || b.got == 0 {
		if a.got != b.got {
			return cmp.Compare(a.got, b.got)
		}
		return cmp.Compare(b.due, a.due)
	}
	hi1, lo1 := bits.Mul64(uint64(a.due), uint64(b.got))
	hi2, lo2 := bits.Mul64(uint64(b.due), uint64(a.got))
	return cmp.Or(cmp.Compare(hi2, hi1), cmp.Compare(lo2, lo1))
}

func (r *Rounds) give(a *account, c int, why Why) Grant {
	g := Grant{Job: a.Job, Class: c, Why: why, Kept: a.on == c}
	a.given, a.on, a.why = r.count, c, why
	r.free[c] -= a.GPUs
	return g
}

// explore gives what is left, up to Explore devices of a class, to jobs whose rate
// there is unknown: those that run there already, then by ID.
func (r *Rounds) explore(grants []Grant) []Grant {
	if r.cfg.Explore == 0 {
		return grants
	}
	for c := range r.cfg.Classes {
		budget := min(r.cfg.Explore, r.free[c])
		for _, running := range []bool{true, false} {
			for _, a := range r.jobs {
				if a.given != r.count && a.Unknown[c] && (a.on == c) == running && a.GPUs <= budget {
					grants = append(grants, r.give(a, c, Explore))
					budget -= a.GPUs
				}
			}
		}
	}
	return grants
}

// spare gives what is left to jobs that can use it: those that run there already,
// then by ID.
func (r *Rounds) spare(grants []Grant) []Grant {
	for c := range r.cfg.Classes {
		for _, running := range []bool{true, false} {
			for _, a := range r.jobs {
				if r.free[c] == 0 {
					break
				}
				if a.given != r.count && a.Able[c] && (a.on == c) == running && a.GPUs <= r.free[c] {
					grants = append(grants, r.give(a, c, Spare))
				}
			}
		}
	}
	return grants
}

// Revoke takes a grant of the last round back, as when it could not be placed: it
// was not received, and the job does not run. The error is ErrUnknown for a job
// that is not there, ErrConflict for one that has nothing.
func (r *Rounds) Revoke(job lockstep.JobID) error {
	i, ok := slices.BinarySearchFunc(r.jobs, job, func(a *account, id lockstep.JobID) int { return cmp.Compare(a.Job, id) })
	if !ok {
		return &lockstep.Error{Kind: lockstep.ErrUnknown, Op: "hetero: revoke", Field: "job", Value: errtext.Quote(job)}
	}
	a := r.jobs[i]
	if a.on < 0 {
		return &lockstep.Error{Kind: lockstep.ErrConflict, Op: "hetero: revoke", Field: "job", Value: errtext.Quote(job), Reason: "has nothing in this round"}
	}
	if a.why == Due {
		a.got[a.on]--
	}
	a.on = -1
	return nil
}

// JobRounds is what a job is due and has received.
type JobRounds struct {
	Job lockstep.JobID // Job is the one.
	Due []int64        // Due is by class, in millionths of a round.
	Got []int64        // Got is by class, in rounds that were due.
	On  int            // On is the class that it has, -1 for none.
	Why Why            // Why says why it has that.
}

// possible says whether j can be what so many rounds left of a job.
func (j *JobRounds) possible(classes int, count int64) bool {
	if j.Job.Validate() != nil || len(j.Due) != classes || len(j.Got) != classes || j.On < -1 || j.On >= classes || j.Why > Spare {
		return false
	}
	for c := range classes {
		if j.Due[c] < 0 || j.Due[c] > count*int64(Whole) || j.Got[c] < 0 || j.Got[c] > count {
			return false
		}
	}
	return true
}

// RoundsState is what Rounds remembers besides configuration and targets.
type RoundsState struct {
	Count int64       // Count is how many rounds there were.
	Jobs  []JobRounds // Jobs are by ID.
}

// State returns a copy of what r remembers.
func (r *Rounds) State() RoundsState {
	s := RoundsState{Count: r.count}
	for _, a := range r.jobs {
		s.Jobs = append(s.Jobs, JobRounds{a.Job, slices.Clone(a.due), slices.Clone(a.got), a.on, a.why})
	}
	return s
}

// Restore makes r remember what another one with the same configuration did; Set
// then tells the targets. The error is ErrInvalid.
func (r *Rounds) Restore(s RoundsState) error {
	f := faults{op: "hetero: restore"}
	n := len(r.cfg.Classes)
	if f.within("Count", s.Count, 1<<40); f.errs != nil {
		return errors.Join(f.errs...) // the bounds of the others follow from it
	}
	jobs := make([]*account, 0, len(s.Jobs))
	for i, j := range s.Jobs {
		if !j.possible(n, s.Count) || i > 0 && s.Jobs[i-1].Job >= j.Job {
			f.bad("Jobs["+strconv.Itoa(i)+"]", errtext.Quote(j.Job), "is no saved state, or out of order")
			continue
		}
		t := Target{Job: j.Job, GPUs: 1, Shares: make([]Parts, n), Able: make([]bool, n), Unknown: make([]bool, n)}
		jobs = append(jobs, &account{Target: t, due: slices.Clone(j.Due), got: slices.Clone(j.Got), on: j.On, why: j.Why, order: i})
	}
	if err := errors.Join(f.errs...); err != nil {
		return err
	}
	r.jobs, r.count = jobs, s.Count
	return nil
}
