package order

import (
	"math"
	"time"

	"github.com/google/btree"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Config configures a Queue. The zero value is valid.
type Config struct {
	Order Order `json:"-"` // Order is the whole chain; nil means FIFO.
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	_, _, err := describe(c.Order)
	return err
}

// Queue keeps jobs in order. It implements gang.Orderer. Make one with New or Restore.
type Queue struct {
	order  Order
	name   string
	limits []lockstep.GPUTime // of LAS
	knob   int64

	now    int64
	pass   int64 // passes begun
	lets   int64 // jobs let run
	jobs   map[lockstep.JobID]*Job
	tree   *btree.BTreeG[*Job] // waiting and competing jobs, in order
	rivals *btree.BTreeG[*Job] // competing jobs, by ID
	timers *btree.BTreeG[*Job] // jobs whose LAS queue changes by itself, by when, then ID

	// The walk of Next. It reads ahead, for a step in the tree costs less than a
	// search, and forgets what it read before anything moves.
	// Invariant: last stands in the tree where it was given, if it is not nil.
	begun  bool
	last   *Job // what Next gave last; nil if that has moved, or may have
	cursor Job  // then: a copy of it as it stood
	ahead  []*Job
	given  int // of ahead
	reach  int // how many to read ahead next
	read   btree.ItemIteratorG[*Job]
	batch  []*Job
}

const in instant.In = "order" // whose times are read

const (
	never    = instant.Never
	degree   = 32 // of the btrees
	minReach = 4  // for passes that end early
	maxReach = 128
)

// New returns an empty queue, or the faults of cfg.
func New(cfg Config) (*Queue, error) {
	if cfg.Order == nil {
		cfg.Order = FIFO{}
	}
	name, las, err := describe(cfg.Order)
	if err != nil {
		return nil, err
	}
	q := &Queue{order: cfg.Order, name: name, now: math.MinInt64, jobs: make(map[lockstep.JobID]*Job)}
	if las != nil {
		q.knob = int64(las.Knob)
		for _, l := range las.Limits {
			q.limits = append(q.limits, lockstep.GPUTimeOf(lockstep.WholeGPU, l))
		}
	}
	q.tree = btree.NewG(degree, func(a, b *Job) bool {
		if c := q.order.Compare(a, b); c != 0 {
			return c < 0
		}
		return FIFO{}.Compare(a, b) < 0
	})
	byID := func(a, b *Job) bool { return a.ID < b.ID }
	q.rivals = btree.NewG(degree, byID)
	q.timers = btree.NewG(degree, func(a, b *Job) bool { return a.timer < b.timer || a.timer == b.timer && a.ID < b.ID })
	q.read = func(j *Job) bool {
		if len(q.ahead) == 0 && q.begun && j.ID == q.pivot().ID {
			return true // the one that was given last, where it stood
		}
		q.ahead = append(q.ahead, j)
		return len(q.ahead) < q.reach
	}
	return q, nil
}

// Len returns how many jobs the queue keeps, waiting or not.
func (q *Queue) Len() int { return len(q.jobs) }

// Job returns a copy of a job, settled up to the latest time that the queue has seen.
func (q *Queue) Job(id lockstep.JobID) (Job, bool) {
	j, ok := q.jobs[id]
	if !ok {
		return Job{}, false
	}
	c := *j
	c.settle(q.now)
	return c, true
}

// Submit puts a job into the order. Only its exported fields count. One that comes back with its First keeps the
// place that FIFO and Aging gave it; LAS takes it for a new one.
func (q *Queue) Submit(now time.Time, job Job) error {
	const op = "submit"
	ns, err := q.at(op, now)
	if err != nil {
		return err
	}
	if err := job.ID.Validate(); err != nil {
		return err
	}
	if job.GPUs < 0 {
		return fault(lockstep.ErrInvalid, op, "GPUs", job.GPUs.String(), "must not be negative")
	}
	if job.Duration < 0 || job.Duration > lockstep.MaxWalltime {
		return fault(lockstep.ErrInvalid, op, "Duration", job.Duration.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	deadline := int64(never)
	if !job.Deadline.IsZero() {
		if deadline, err = in.SinceEpoch(op, "Deadline", job.Deadline); err != nil {
			return err
		}
	}
	first := ns
	if !job.First.IsZero() {
		if first, err = in.SinceEpoch(op, "First", job.First); err != nil {
			return err
		}
		if first > ns {
			return fault(lockstep.ErrInvalid, op, "First", job.First.String(), "is after now")
		}
	}
	if _, ok := q.jobs[job.ID]; ok {
		return fault(lockstep.ErrDuplicate, op, "ID", string(job.ID), "is in the queue")
	}
	q.advance(ns)
	j := &Job{
		ID: job.ID, Priority: job.Priority, GPUs: job.GPUs, Duration: job.Duration,
		submit: first, deadline: deadline, since: first, timer: never,
	}
	if deadline != never {
		j.Deadline = lockstep.FromNanos(deadline)
	}
	j.First = lockstep.FromNanos(first)
	j.arrive(ns)
	q.halt()
	q.jobs[j.ID] = j
	q.tree.ReplaceOrInsert(j)
	return nil
}

// Start notes that a job that waits or was granted runs from now on.
func (q *Queue) Start(now time.Time, id lockstep.JobID) error {
	return q.change("start", now, id, func(p phase) bool { return p == waiting || p == granted }, func(j *Job, ns int64) {
		j.let(&q.lets)
		j.phase, j.at = running, ns
	})
}

// Due lets a running job compete for its devices: Next proposes it, and an
// Outcome of Kept takes it out of the order again.
func (q *Queue) Due(now time.Time, id lockstep.JobID) error {
	return q.change("due", now, id, func(p phase) bool { return p == running }, func(j *Job, ns int64) {
		j.phase, j.since = competing, ns
	})
}

// Stop notes that a job no longer runs and waits again from now on, or that it
// lost what it was granted before it ran, and waits on.
func (q *Queue) Stop(now time.Time, id lockstep.JobID) error {
	return q.change("stop", now, id, func(p phase) bool { return p != waiting }, func(j *Job, ns int64) {
		if j.phase != granted {
			j.since = ns
		}
		j.phase = waiting
		if j.place.class == let {
			j.place = place{class: stopped, major: -q.pass, minor: j.place.major}
		}
	})
}

// Resize notes that a job runs on other devices than before, or would.
func (q *Queue) Resize(now time.Time, id lockstep.JobID, gpus lockstep.MilliGPU) error {
	if gpus < 0 {
		return fault(lockstep.ErrInvalid, "resize", "gpus", gpus.String(), "must not be negative")
	}
	return q.change("resize", now, id, func(phase) bool { return true }, func(j *Job, _ int64) { j.GPUs = gpus })
}

// Finish drops a job, whatever it does.
func (q *Queue) Finish(now time.Time, id lockstep.JobID) error {
	const op = "finish"
	ns, j, err := q.find(op, now, id)
	if err != nil {
		return err
	}
	q.advance(ns)
	q.takeOut(j)
	delete(q.jobs, id)
	return nil
}

// Begin starts a pass, from the front. A time before the latest one seen, or
// out of range, counts as that.
func (q *Queue) Begin(now time.Time) {
	if ns, err := in.SinceEpoch("begin", "now", now); err == nil && ns > q.now {
		q.advance(ns)
	}
	q.halt()
	q.pass++
	q.begun = false
	if q.rivals.Len() == 0 {
		return
	}
	// What competing jobs attain moves them: read them afresh.
	q.batch = q.batch[:0]
	q.rivals.Ascend(func(j *Job) bool {
		q.batch = append(q.batch, j)
		return true
	})
	for _, j := range q.batch {
		q.tree.Delete(j)
		j.settle(q.now)
		j.since = q.now
		q.tree.ReplaceOrInsert(j)
	}
	clear(q.batch)
}

// Next returns the job whose turn it is, waiting or competing, behind the one
// that it returned before; false at the end. Without a Begin it goes on where it was.
func (q *Queue) Next() (lockstep.JobID, bool) {
	if q.given == len(q.ahead) && !q.readAhead() {
		return "", false
	}
	q.last, q.begun = q.ahead[q.given], true
	q.given++
	return q.last.ID, true
}

// readAhead reads what comes behind the job that was given last.
func (q *Queue) readAhead() bool {
	q.ahead, q.given = q.ahead[:0], 0
	q.reach = min(max(2*q.reach, minReach), maxReach)
	if q.begun {
		q.tree.AscendGreaterOrEqual(q.pivot(), q.read)
	} else {
		q.tree.Ascend(q.read)
	}
	return len(q.ahead) > 0
}

// pivot is the job that was given last, as it stood.
func (q *Queue) pivot() *Job {
	if q.last != nil {
		return q.last
	}
	return &q.cursor
}

// halt forgets what was read ahead. It comes before every change of the tree.
func (q *Queue) halt() {
	if q.last != nil {
		q.cursor, q.last = *q.last, nil
	}
	clear(q.ahead) // of jobs that may be finished
	q.ahead, q.given, q.reach = q.ahead[:0], 0, 0
}

// Outcome notes what became of a job that Next returned. Granted takes it out
// of the order until Start or Stop, Kept until it is due again; with the others
// it stays. What does not suit the job's phase, or names none, changes nothing.
func (q *Queue) Outcome(id lockstep.JobID, outcome lockstep.Outcome) {
	if outcome != lockstep.Granted && outcome != lockstep.Kept {
		return
	}
	j, ok := q.jobs[id]
	if !ok {
		return
	}
	var to phase
	switch {
	case outcome == lockstep.Granted && j.phase == waiting:
		to = granted
	case outcome == lockstep.Kept && j.phase == competing:
		to = running
	default:
		return
	}
	q.takeOut(j)
	j.let(&q.lets)
	j.phase = to
	q.putIn(j)
}

// NextWake returns when a job next sinks to another LAS queue or returns to the
// first one, so that a pass may decide otherwise; now if that time has passed.
func (q *Queue) NextWake(now time.Time) (time.Time, bool) {
	j, ok := q.timers.Min()
	if !ok {
		return time.Time{}, false
	}
	if at := lockstep.FromNanos(j.timer); at.After(now) {
		return at, true
	}
	return now, true
}

// change does a job from one phase to another.
func (q *Queue) change(op string, now time.Time, id lockstep.JobID, from func(phase) bool, do func(*Job, int64)) error {
	ns, j, err := q.find(op, now, id)
	if err != nil {
		return err
	}
	if !from(j.phase) {
		return fault(lockstep.ErrConflict, op, "job", string(id), "is "+[...]string{"waiting", "granted", "running", "competing"}[j.phase])
	}
	q.advance(ns)
	q.takeOut(j)
	j.settle(ns)
	do(j, ns)
	q.putIn(j)
	q.advance(ns) // a hold that fell through may have waited long enough meanwhile
	return nil
}

// at returns now in nanoseconds, refusing times before one already seen.
func (q *Queue) at(op string, now time.Time) (int64, error) {
	ns, err := in.SinceEpoch(op, "now", now)
	if err != nil {
		return 0, err
	}
	return ns, in.NotBefore(op, "now", now, ns, q.now)
}

func (q *Queue) find(op string, now time.Time, id lockstep.JobID) (int64, *Job, error) {
	ns, err := q.at(op, now)
	if err != nil {
		return 0, nil, err
	}
	j, ok := q.jobs[id]
	if !ok {
		return 0, nil, fault(lockstep.ErrUnknown, op, "job", string(id), "is not in the queue")
	}
	return ns, j, nil
}

// takeOut removes j from all trees, whose keys may not change in them.
func (q *Queue) takeOut(j *Job) {
	q.halt()
	if j.phase == waiting || j.phase == competing {
		q.tree.Delete(j)
	}
	if j.phase == competing {
		q.rivals.Delete(j)
	}
	if j.timer != never {
		q.timers.Delete(j)
		j.timer = never
	}
}

// putIn inserts j where its phase says.
func (q *Queue) putIn(j *Job) {
	if j.phase == waiting || j.phase == competing {
		q.tree.ReplaceOrInsert(j)
	}
	if j.phase == competing {
		q.rivals.ReplaceOrInsert(j)
	}
	if j.timer = q.nextTimer(j); j.timer != never {
		q.timers.ReplaceOrInsert(j)
	}
}

// nextTimer returns when j's LAS queue changes by itself.
func (q *Queue) nextTimer(j *Job) int64 {
	switch {
	case j.phase == running || j.phase == competing:
		if j.level < len(q.limits) {
			return instant.Add(j.at, until(j.gauge, q.limits[j.level], j.GPUs))
		}
	case j.phase == waiting && q.knob > 0 && j.level > 0:
		if j.spent > never/q.knob {
			return never
		}
		return instant.Add(j.since, time.Duration(j.spent*q.knob))
	}
	return never
}

// advance lets time pass: it moves jobs between LAS queues, each at its own time.
func (q *Queue) advance(ns int64) {
	q.now = ns
	for {
		j, ok := q.timers.Min()
		if !ok || j.timer > ns {
			return
		}
		at := j.timer
		q.takeOut(j)
		if j.phase == waiting {
			j.level, j.gauge, j.spent = 0, lockstep.GPUTime{}, 0
		} else {
			j.settle(at)
			j.level++
		}
		j.arrive(at)
		q.putIn(j)
	}
}

func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: string(in) + ": " + op, Field: field, Value: value, Reason: reason}
}
