package deadline

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

const in instant.In = "deadline" // whose times are read

// Reasons of this package.
const (
	TooLate    lockstep.Reason = "deadline-too-near" // TooLate: the job alone, with all devices, would miss its deadline.
	NoCapacity lockstep.Reason = "deadline-capacity" // NoCapacity: it would miss it beside those that were admitted.
	TooWide    lockstep.Reason = "gang-too-wide"     // TooWide: it needs more devices at once than there are.
)

// Config configures a Table.
type Config struct {
	GPUs   int           `json:"gpus"`             // GPUs is how many whole devices there are; at least 1.
	Lease  time.Duration `json:"lease,omitempty"`  // Lease is the length of the slots that time is cut into; 0 means 20 minutes.
	Origin time.Time     `json:"origin,omitzero"`  // Origin is when some slot begins; zero means 1970-01-01 UTC.
	Noise  int           `json:"noise,omitempty"`  // Noise is what is added to remaining times, in thousandths, at most 10000; 0 means none.
	Search int           `json:"search,omitempty"` // Search is how many steps the exact search may take for a job that no rule of thumb finds room for; 0 means 20000, None means no search. With n jobs, more than 64, it is 64/n of that, since each step then takes longer.
	Eager  bool          `json:"eager,omitempty"`  // Eager lets admitted jobs run ahead of their plan before jobs without a deadline get the idle devices, instead of after.
}

// None as Config.Search turns the search off.
const None = -1

const (
	defaultLease  = 20 * time.Minute
	defaultSearch = 20_000
	maxSlots      = 1 << 20 // how far ahead a deadline may be
	maxGPUs       = 1 << 24
)

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	if c.GPUs < 1 || c.GPUs > maxGPUs {
		bad("GPUs", strconv.Itoa(c.GPUs), "want 1 to "+strconv.Itoa(maxGPUs))
	}
	if c.Lease < 0 || c.Lease > lockstep.MaxWalltime || c.Lease > 0 && c.Lease < time.Millisecond {
		bad("Lease", c.Lease.String(), "want 0, or 1ms to "+lockstep.MaxWalltime.String())
	}
	if c.Noise < 0 || c.Noise > 10_000 {
		bad("Noise", strconv.Itoa(c.Noise), "want 0 to 10000")
	}
	if c.Search < None {
		bad("Search", strconv.Itoa(c.Search), "want -1 or more")
	}
	if !c.Origin.IsZero() {
		if _, err := in.Nanos("config", "Origin", c.Origin); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Job is a job whose length is known.
type Job struct {
	ID        lockstep.JobID // ID names it.
	GPUs      int            // GPUs is how many whole devices it needs at once; at least 1.
	Remaining time.Duration  // Remaining is how long it has to run on them; more than 0.
	Deadline  time.Time      // Deadline is when it must have ended; zero means that it has none and takes what is idle.
}

// Decision is whether a job was admitted.
type Decision struct {
	lockstep.Verdict           // Verdict is the answer; Requested and Available are in whole devices × slots up to the deadline.
	Need             int       // Need is how many slots the job needs; of an ElasticJob, the fewest devices with which it would end in time if it had them at once.
	Have             int       // Have is how many whole slots there are before its deadline; 0 for an ElasticJob. The last slot of a job need not be whole.
	Exact            bool      // Exact says, of a refusal, that no plan at all would have kept all deadlines; false means that none was found.
	Earliest         time.Time // Earliest is, of a refusal, a deadline with which it would have been admitted; zero if there is none within reach.
}

// Table admits jobs with deadlines so that each admitted one can be kept, and says which run in each slot. Make one
// with New or Restore.
type Table struct {
	cfg    Config
	now    int64
	index  int64 // of the present slot, counted from the origin
	given  bool  // the present slot was given out
	jobs   map[lockstep.JobID]*job
	used   []int // devices planned, by slot, the present one first
	missed int64
}

// job is one job of a table.
type job struct {
	id       lockstep.JobID
	gpus     int
	left     int64 // nanoseconds from at, without noise
	at       int64 // until when left is settled
	deadline int64 // never if it has none
	slots    []int // planned, ascending, with the present one as 0
	running  bool  // in the present slot
	atRisk   bool  // has fewer slots than it needs
}

// New returns an empty table, or the faults of cfg.
func New(cfg Config) (*Table, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Lease == 0 {
		cfg.Lease = defaultLease
	}
	if cfg.Search == 0 {
		cfg.Search = defaultSearch
	}
	return &Table{cfg: cfg, now: math.MinInt64, jobs: make(map[lockstep.JobID]*job)}, nil
}

// Admit decides about a job once and for all: one that is admitted will run long enough before its deadline as long as
// Step is called when NextWake says and neither the devices nor the remaining times turn out worse than was said. A
// job without a deadline is always admitted, if there are devices enough for it.
func (t *Table) Admit(now time.Time, j Job) (Decision, error) {
	const op = "admit"
	ns, err := t.at(op, now)
	if err != nil {
		return Decision{}, err
	}
	deadline, err := t.check(op, j, ns)
	if err != nil {
		return Decision{}, err
	}
	t.advance(ns)
	n := &job{id: j.ID, gpus: j.GPUs, left: int64(j.Remaining), at: ns, deadline: deadline}
	if j.GPUs > t.cfg.GPUs {
		d := Decision{Exact: true}
		d.Reason, d.Resource = TooWide, lockstep.ResourceGPU
		d.Requested, d.Available = int64(lockstep.WholeGPU.Mul(int64(j.GPUs))), int64(lockstep.WholeGPU.Mul(int64(t.cfg.GPUs)))
		return d, nil
	}
	if deadline == never {
		t.jobs[j.ID] = n
		return Decision{Verdict: lockstep.Verdict{Feasible: true}}, nil
	}
	need, last := t.need(n)
	d := Decision{Need: need, Have: max(t.have(deadline, int64(t.cfg.Lease))-t.first(), 0)}
	if need > t.have(deadline, last)-t.first() {
		d.Reason, d.Exact = TooLate, true
		t.explain(&d, n, last)
		return d, nil
	}
	found, exact := t.place(n)
	if found {
		t.jobs[j.ID] = n
		d.Feasible = true
		return d, nil
	}
	d.Reason, d.Exact = NoCapacity, exact
	t.explain(&d, n, last)
	return d, nil
}

// check refuses a job that can never be right, and returns its deadline.
func (t *Table) check(op string, j Job, ns int64) (int64, error) {
	if err := j.ID.Validate(); err != nil {
		return 0, err
	}
	if j.GPUs < 1 || j.GPUs > maxGPUs {
		return 0, fault(lockstep.ErrInvalid, op, "GPUs", strconv.Itoa(j.GPUs), "want 1 to "+strconv.Itoa(maxGPUs))
	}
	if j.Remaining <= 0 || j.Remaining > lockstep.MaxWalltime {
		return 0, fault(lockstep.ErrInvalid, op, "Remaining", j.Remaining.String(), "want more than 0, at most "+lockstep.MaxWalltime.String())
	}
	if _, ok := t.jobs[j.ID]; ok {
		return 0, fault(lockstep.ErrDuplicate, op, "ID", errtext.Quote(j.ID), "was admitted")
	}
	if j.Deadline.IsZero() {
		return never, nil
	}
	deadline, err := in.SinceEpoch(op, "Deadline", j.Deadline)
	if err != nil {
		return 0, err
	}
	if (deadline-ns)/int64(t.cfg.Lease) > maxSlots-2 {
		return 0, fault(lockstep.ErrInvalid, op, "Deadline", j.Deadline.String(), "is more than "+strconv.Itoa(maxSlots)+" slots ahead")
	}
	return deadline, nil
}

// place plans a job: in its latest slots, without moving others, if they have room; else all are planned anew. Exact
// says of a job that was not placed that there is no plan.
func (t *Table) place(n *job) (found, exact bool) {
	w := t.want(n)
	if slots, ok := latest(t.used, t.cfg.GPUs, w, t.first()); ok {
		t.plan(n, slots)
		return true, false
	}
	list := append(t.withDeadline(), n)
	plan, exact := t.solve(list)
	if plan == nil {
		return false, exact
	}
	t.adopt(list, plan)
	return true, false
}

// adopt puts a new plan in place of the old one, but for the present slot if that cannot be changed any more.
func (t *Table) adopt(list []*job, plan [][]int) {
	clear(t.used)
	for i, j := range list {
		t.plan(j, append(slices.Clone(j.slots[:t.held(j)]), plan[i]...))
	}
}

// plan books slots for a job.
func (t *Table) plan(j *job, slots []int) {
	j.slots = slots
	for _, s := range slots {
		for len(t.used) <= s {
			t.used = append(t.used, 0)
		}
		t.used[s] += j.gpus
	}
}

// unplan gives them back.
func (t *Table) unplan(j *job) {
	for _, s := range j.slots {
		t.used[s] -= j.gpus
	}
	j.slots = nil
}

// withDeadline returns the admitted jobs that have one, by ID.
func (t *Table) withDeadline() []*job {
	list := make([]*job, 0, len(t.jobs)+1)
	for _, j := range t.jobs { // sorted below, so order cannot matter
		if j.deadline != never {
			list = append(list, j)
		}
	}
	slices.SortFunc(list, func(a, b *job) int { return cmp.Compare(a.id, b.id) })
	return list
}

// want is what a job wants of the slots that can still be planned.
type want struct{ gpus, need, have int }

func (t *Table) want(j *job) want {
	need, last := t.need(j)
	return want{j.gpus, max(need-t.held(j), 0), t.have(j.deadline, last)}
}

// held returns how many of a job's slots can no longer be planned: 1 if the present one is booked, not given out yet,
// and has begun.
func (t *Table) held(j *job) int {
	if t.first() > 0 && len(j.slots) > 0 && j.slots[0] == 0 {
		return 1
	}
	return 0
}

// need returns how many slots a job needs from the next one on, noise included, and how much of the last of them: all of
// it if there is none.
func (t *Table) need(j *job) (slots int, last int64) {
	lease := int64(t.cfg.Lease)
	left := j.left
	if j.running {
		left -= t.start(t.index+1) - j.at
	}
	if left <= 0 {
		return 0, lease
	}
	padded := uint64(left) + uint64(left)/thousand*uint64(t.cfg.Noise) + uint64(left)%thousand*uint64(t.cfg.Noise)/thousand
	return int(min((padded-1)/uint64(lease)+1, math.MaxInt32)), int64((padded-1)%uint64(lease)) + 1
}

const thousand = 1000

// have returns how many slots, the present one first, come to so much of themselves by a deadline.
func (t *Table) have(deadline, last int64) int {
	n := int128.FloorDiv(deadline-last-t.origin(), int64(t.cfg.Lease)) + 1 - t.index
	return int(min(max(n, 0), maxSlots))
}

// first returns the first slot that can still be planned: the present one at its very beginning, if it was not given
// out, else the next.
func (t *Table) first() int {
	if t.given || t.now > t.start(t.index) {
		return 1
	}
	return 0
}

func (t *Table) origin() int64 {
	if t.cfg.Origin.IsZero() {
		return 0
	}
	ns, _ := lockstep.Nanos(t.cfg.Origin) // Validate has seen it
	return ns
}

// start returns when a slot begins.
func (t *Table) start(index int64) int64 { return t.origin() + index*int64(t.cfg.Lease) }

// explain fills in what a refused job, which needs that part of its last slot, lacked.
func (t *Table) explain(d *Decision, n *job, part int64) {
	d.Requested = int64(d.Need) * int64(n.gpus)
	last := t.first() + d.Have
	for s := t.first(); s < last; s++ {
		if t.free(s) >= n.gpus {
			d.Available += int64(n.gpus)
		}
	}
	left := d.Need
	for s := t.first(); s < maxSlots && s < math.MaxInt32; s++ {
		if t.free(s) < n.gpus {
			continue
		}
		if s >= len(t.used) { // nothing is planned from here on
			s += left - 1
			left = 1
		}
		if left--; left == 0 {
			if end := t.index + int64(s) + 1; s < maxSlots-2 && end < (math.MaxInt64-max(t.origin(), 0))/int64(t.cfg.Lease) {
				d.Earliest = lockstep.FromNanos(t.start(end-1) + part)
			}
			return
		}
	}
}

// free returns how many devices a slot has left.
func (t *Table) free(slot int) int {
	if slot < len(t.used) {
		return t.cfg.GPUs - t.used[slot]
	}
	return t.cfg.GPUs
}

// at returns now in nanoseconds, refusing times before one already seen.
func (t *Table) at(op string, now time.Time) (int64, error) {
	ns, err := in.SinceEpoch(op, "now", now)
	if err != nil {
		return 0, err
	}
	return ns, in.NotBefore(op, "now", now, ns, t.now)
}

func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: string(in) + ": " + op, Field: field, Value: value, Reason: reason}
}

const never = instant.Never
