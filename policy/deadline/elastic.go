package deadline

import (
	"cmp"
	"errors"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Point is how fast a job is on some number of devices.
type Point struct {
	GPUs int   `json:"gpus"` // GPUs is how many whole devices; at least 1.
	Rate int64 `json:"rate"` // Rate is units of work a second; more than 0.
}

// ElasticJob is a job that runs on as many devices as it is given.
type ElasticJob struct {
	ID       lockstep.JobID // ID names it.
	Left     int64          // Left is how much work is left, in the units of its Points' rates; more than 0.
	Points   []Point        // Points are the numbers of devices that it can run on, ascending, such as powers of two, with rates that do not fall.
	Deadline time.Time      // Deadline is when it must have ended.
}

// MinShare returns the fewest devices of points, at most limit, on which a job with so much work left ends within a
// time; ok is false if none do. That is its minimum satisfactory share if nobody else is there.
func MinShare(points []Point, left int64, within time.Duration, limit int) (gpus int, ok bool) {
	for _, p := range points {
		if p.GPUs > limit {
			break
		}
		if p.Rate > 0 && takes(workOf(left), p.Rate) <= int64(within) {
			return p.GPUs, true
		}
	}
	return 0, false
}

// work is an amount of work exactly: units × nanoseconds a second, so that a rate × nanoseconds is one.
type work = int128.Int

// workOf returns so many units.
func workOf(units int64) work { return int128.Product(units, int64(time.Second)) }

// takes returns how many nanoseconds some work takes at a rate, rounded up; never if that is out of reach.
func takes(left work, rate int64) int64 {
	if left.Sign() <= 0 {
		return 0
	}
	hi, lo := left.Words()
	if rate <= 0 || hi >= uint64(rate) {
		return never
	}
	quo, rem := bits.Div64(hi, lo, uint64(rate))
	if rem > 0 {
		quo = min(quo, never) + 1
	}
	return int64(min(quo, uint64(never)))
}

// Elastic admits elastic jobs so that each admitted one can end by its deadline, and says how many devices each must
// have now for that. Make one with NewElastic.
type Elastic struct {
	gpus  int
	now   int64
	jobs  []*elastic // by deadline, then ID
	byID  map[lockstep.JobID]*elastic
	free  profile // from now on, with all plans taken out
	stale bool    // something has changed since the plans were made, and free is not to be used before settle

	filled bool // all plans are those that fill makes at this time, and nobody is late

	// Buffers.
	spare  profile
	speeds speeds
}

// elastic is one job.
type elastic struct {
	id       lockstep.JobID
	points   []Point
	left     work
	deadline int64
	plan     []stretch
}

// NewElastic returns an Elastic without jobs for so many whole devices.
func NewElastic(gpus int) (*Elastic, error) {
	if gpus < 1 || gpus > maxGPUs {
		return nil, fault(lockstep.ErrInvalid, "new elastic", "gpus", strconv.Itoa(gpus), "want 1 to "+strconv.Itoa(maxGPUs))
	}
	e := &Elastic{gpus: gpus, byID: make(map[lockstep.JobID]*elastic)}
	e.free.empty(0, gpus)
	return e, nil
}

// Admit decides about a job once and for all: it is admitted if it can end by its deadline and all that were admitted
// before still can. Then AppendShares says what it must have.
func (e *Elastic) Admit(now time.Time, j ElasticJob) (Decision, error) {
	const op = "admit"
	ns, err := e.at(op, now)
	if err != nil {
		return Decision{}, err
	}
	deadline, err := e.check(op, &j)
	if err != nil {
		return Decision{}, err
	}
	e.advance(ns)
	d := Decision{}
	fewest, ok := MinShare(j.Points, j.Left, time.Duration(max(deadline-ns, 0)), e.gpus)
	if d.Need = fewest; !ok {
		d.Reason, d.Exact = TooLate, true
		return d, nil
	}
	e.settle()
	n := &elastic{id: j.ID, points: j.Points, left: workOf(j.Left), deadline: deadline}
	if !e.admit(n, fewest) {
		d.Reason = NoCapacity
		return d, nil
	}
	n.points = slices.Clone(j.Points)
	e.byID[n.id] = n
	d.Feasible = true
	return d, nil
}

// check refuses a job that can never be right, and returns its deadline.
func (e *Elastic) check(op string, j *ElasticJob) (int64, error) {
	if err := j.ID.Validate(); err != nil {
		return 0, err
	}
	var errs []error
	if j.Left <= 0 {
		errs = append(errs, fault(lockstep.ErrInvalid, op, "Left", strconv.FormatInt(j.Left, 10), "want more than 0"))
	}
	errs = append(errs, checkPoints(op, j.Points)...)
	if e.byID[j.ID] != nil {
		errs = append(errs, fault(lockstep.ErrDuplicate, op, "ID", errtext.Quote(j.ID), "was admitted"))
	}
	deadline, err := in.SinceEpoch(op, "Deadline", j.Deadline)
	return deadline, errors.Join(append(errs, err)...)
}

// checkPoints returns all faults of a job's points.
func checkPoints(op string, points []Point) (errs []error) {
	if len(points) == 0 {
		errs = append(errs, fault(lockstep.ErrInvalid, op, "Points", "0", "want at least one"))
	}
	for i, p := range points {
		at := "Points[" + strconv.Itoa(i) + "]"
		switch {
		case p.GPUs < 1 || p.GPUs > maxGPUs || i > 0 && p.GPUs <= points[i-1].GPUs:
			errs = append(errs, fault(lockstep.ErrInvalid, op, at+".GPUs", strconv.Itoa(p.GPUs), "want 1 or more, ascending"))
		case p.Rate < 1 || i > 0 && p.Rate < points[i-1].Rate:
			errs = append(errs, fault(lockstep.ErrInvalid, op, at+".Rate", strconv.FormatInt(p.Rate, 10), "want 1 or more, not falling; leave out numbers of devices that are slower than fewer"))
		}
	}
	return errs
}

// byDeadline orders jobs.
func byDeadline(a, b *elastic) int {
	return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.id, b.id))
}

// Share is what a job must have now.
type Share struct {
	ID   lockstep.JobID // ID names it.
	GPUs int            // GPUs is how many devices are reserved for it now; 0 means that it can wait.
}

// AppendShares appends what all jobs must have from now on until Until, by deadline, then ID, and returns how many
// devices are left over. To give them to where they help most is policy/elastic's; tell Ran what came of it. until is
// when the shares change by themselves; ok is false if they do not.
func (e *Elastic) AppendShares(dst []Share, now time.Time) (shares []Share, left int, until time.Time, ok bool, err error) {
	ns, err := e.at("shares", now)
	if err != nil {
		return dst, 0, time.Time{}, false, err
	}
	e.advance(ns)
	e.settle()
	next := int64(never)
	left = e.gpus
	for _, j := range e.jobs {
		s := Share{ID: j.id}
		for _, p := range j.plan {
			if p.from <= ns && ns < p.to {
				s.GPUs = p.gpus
			}
			for _, t := range [...]int64{p.from, p.to} {
				if t > ns {
					next = min(next, t)
				}
			}
		}
		left -= s.GPUs
		dst = append(dst, s)
	}
	if next == never {
		return dst, left, time.Time{}, false, nil
	}
	return dst, left, lockstep.FromNanos(next), true, nil
}

// Ran says how much work a job has left now. More than its plan says is taken as it is: the job may then miss its
// deadline, which AppendAtRisk tells; less frees devices. Less than a unit more is taken for rounding. Plans are made
// anew when they are next needed, so that a word about each of many jobs costs no more than about one.
func (e *Elastic) Ran(now time.Time, id lockstep.JobID, left int64) error {
	const op = "ran"
	ns, err := e.at(op, now)
	if err != nil {
		return err
	}
	j := e.byID[id]
	if j == nil {
		return fault(lockstep.ErrUnknown, op, "id", errtext.Quote(id), "was not admitted")
	}
	if left <= 0 {
		return fault(lockstep.ErrInvalid, op, "left", strconv.FormatInt(left, 10), "want more than 0; use Finish for a job that has ended")
	}
	e.advance(ns)
	said := workOf(left)
	if more := said.Sub(j.left); more.Sign() > 0 && more.Cmp(workOf(1)) < 0 {
		return nil // the same, in whole units
	}
	j.left = said
	e.changed()
	return nil
}

// Finish drops a job that has ended, or is not wanted any more.
func (e *Elastic) Finish(now time.Time, id lockstep.JobID) error {
	const op = "finish"
	ns, err := e.at(op, now)
	if err != nil {
		return err
	}
	j := e.byID[id]
	if j == nil {
		return fault(lockstep.ErrUnknown, op, "id", errtext.Quote(id), "was not admitted")
	}
	e.advance(ns)
	if at, ok := slices.BinarySearchFunc(e.jobs, j, byDeadline); ok {
		e.jobs = slices.Delete(e.jobs, at, at+1)
	}
	delete(e.byID, id)
	e.changed()
	return nil
}

// SetGPUs says how many devices there are from now on. Fewer may put jobs at risk.
func (e *Elastic) SetGPUs(now time.Time, gpus int) error {
	const op = "set GPUs"
	ns, err := e.at(op, now)
	if err != nil {
		return err
	}
	if gpus < 1 || gpus > maxGPUs {
		return fault(lockstep.ErrInvalid, op, "gpus", strconv.Itoa(gpus), "want 1 to "+strconv.Itoa(maxGPUs))
	}
	e.advance(ns)
	e.gpus = gpus
	e.changed()
	return nil
}

// AppendAtRisk appends the jobs that will miss their deadlines as things stand, by deadline, then ID.
func (e *Elastic) AppendAtRisk(dst []lockstep.JobID) []lockstep.JobID {
	e.settle()
	for _, j := range e.jobs {
		if !j.holds() {
			dst = append(dst, j.id)
		}
	}
	return dst
}

// holds reports whether a job's plan ends it in time.
func (j *elastic) holds() bool {
	left := j.left
	for _, s := range j.plan {
		left = left.Sub(int128.Product(s.rate, s.to-s.from))
		if s.to > j.deadline {
			return false
		}
	}
	return left.Sign() <= 0
}

// Len returns how many jobs were admitted and have not ended.
func (e *Elastic) Len() int { return len(e.jobs) }

// advance lets time pass: jobs do what their plans say, until Ran says otherwise. One that should have ended waits,
// without a plan, for Finish or Ran.
func (e *Elastic) advance(ns int64) {
	if ns == e.now {
		return
	}
	e.settle() // what was to be done until now
	for _, j := range e.jobs {
		kept := j.plan[:0]
		for _, s := range j.plan {
			if s.from < ns {
				j.left = j.left.Sub(int128.Product(s.rate, min(s.to, ns)-s.from))
				s.from = ns
			}
			if s.to > s.from {
				kept = append(kept, s)
			}
		}
		j.plan = kept
	}
	e.free.skip(ns)
	e.now, e.filled = ns, false
}

// at returns now in nanoseconds, refusing times before one already seen.
func (e *Elastic) at(op string, now time.Time) (int64, error) {
	ns, err := in.SinceEpoch(op, "now", now)
	if err != nil {
		return 0, err
	}
	return ns, in.NotBefore(op, "now", now, ns, e.now)
}
