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

// stretch is a part of a job's plan.
type stretch struct {
	from, to int64
	gpus     int
	rate     int64
}

// profile is how many devices are free over time: free[i] from at[i] on.
type profile struct {
	at   []int64
	free []int
}

// reserve takes the stretches of a plan out of p.
func (p *profile) reserve(plan []stretch) {
	for _, s := range plan {
		i, j := p.cut(s.from), p.cut(s.to)
		for ; i < j; i++ {
			p.free[i] -= s.gpus
		}
	}
}

// cut makes an entry begin at t, if there is none and t is not before the first, and returns its index.
func (p *profile) cut(t int64) int {
	i, ok := slices.BinarySearch(p.at, t)
	if ok || i == 0 {
		return i
	}
	p.at, p.free = slices.Insert(p.at, i, t), slices.Insert(p.free, i, p.free[i-1])
	return i
}

// fit plans a job on at most limit devices at any time, and on as many of them as are free; it returns nil if that does
// not end by the deadline.
func (p *profile) fit(points []Point, limit int, left work, deadline int64) []stretch {
	var plan []stretch
	for i, from := range p.at {
		if from >= deadline {
			return nil
		}
		to := deadline
		if i+1 < len(p.at) {
			to = min(to, p.at[i+1])
		}
		on, ok := within(points, min(limit, p.free[i]))
		if !ok {
			continue
		}
		if need := takes(left, on.Rate); need <= to-from {
			return append(plan, stretch{from, from + need, on.GPUs, on.Rate})
		}
		plan = append(plan, stretch{from, to, on.GPUs, on.Rate})
		left = left.Sub(int128.Product(on.Rate, to-from))
	}
	return nil
}

// within returns the point with the most devices that are no more than n.
func within(points []Point, n int) (Point, bool) {
	i, ok := slices.BinarySearchFunc(points, n, func(p Point, n int) int { return cmp.Compare(p.GPUs, n) })
	if ok {
		return points[i], true
	}
	if i == 0 {
		return Point{}, false
	}
	return points[i-1], true
}

// Elastic admits elastic jobs so that each admitted one can end by its deadline, and says how many devices each must
// have now for that. Make one with NewElastic.
type Elastic struct {
	gpus int
	now  int64
	jobs []*elastic // by deadline, then ID
	free profile    // from now on, with all plans taken out
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
	return &Elastic{gpus: gpus}, nil
}

// Admit decides about a job once and for all: it is admitted if it can end by its deadline and all that were admitted
// before still can. Then Share says what it must have.
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
	n := &elastic{id: j.ID, points: slices.Clone(j.Points), left: workOf(j.Left), deadline: deadline}
	least, ok := MinShare(j.Points, j.Left, time.Duration(max(deadline-ns, 0)), e.gpus)
	d := Decision{Need: least}
	if !ok {
		d.Reason, d.Exact = TooLate, true
		return d, nil
	}
	at, _ := slices.BinarySearchFunc(e.jobs, n, byDeadline)
	list := slices.Insert(slices.Clone(e.jobs), at, n)
	if plans, free, ok := e.fill(list, ns); ok {
		e.adopt(list, plans, free)
		d.Feasible = true
		return d, nil
	}
	// Keep the others where they are: progressive filling may fail where an old plan still holds.
	if plan := e.least(n, &e.free); plan != nil {
		n.plan = plan
		e.free.reserve(plan)
		e.jobs = list
		d.Feasible = true
		return d, nil
	}
	d.Reason = NoCapacity
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
	if len(j.Points) == 0 {
		errs = append(errs, fault(lockstep.ErrInvalid, op, "Points", "0", "want at least one"))
	}
	for i, p := range j.Points {
		at := "Points[" + strconv.Itoa(i) + "]"
		switch {
		case p.GPUs < 1 || p.GPUs > maxGPUs || i > 0 && p.GPUs <= j.Points[i-1].GPUs:
			errs = append(errs, fault(lockstep.ErrInvalid, op, at+".GPUs", strconv.Itoa(p.GPUs), "want 1 or more, ascending"))
		case p.Rate < 1 || i > 0 && p.Rate < j.Points[i-1].Rate:
			errs = append(errs, fault(lockstep.ErrInvalid, op, at+".Rate", strconv.FormatInt(p.Rate, 10), "want 1 or more, not falling; leave out numbers of devices that are slower than fewer"))
		}
	}
	if e.find(j.ID) != nil {
		errs = append(errs, fault(lockstep.ErrDuplicate, op, "ID", errtext.Quote(j.ID), "was admitted"))
	}
	deadline, err := in.SinceEpoch(op, "Deadline", j.Deadline)
	return deadline, errors.Join(append(errs, err)...)
}

// byDeadline orders jobs.
func byDeadline(a, b *elastic) int {
	return cmp.Or(cmp.Compare(a.deadline, b.deadline), cmp.Compare(a.id, b.id))
}

// fill plans all jobs from ns on by progressive filling, earliest deadline first. Jobs that could not end in time with
// all devices either come last, with what the others leave: they must not keep newcomers out.
func (e *Elastic) fill(list []*elastic, ns int64) (plans [][]stretch, free profile, ok bool) {
	free = profile{at: []int64{ns}, free: []int{e.gpus}}
	plans = make([][]stretch, len(list))
	var late []int
	for i, j := range list {
		if j.left.Sign() <= 0 {
			continue // has ended by its plan, and waits for Finish or Ran
		}
		if e.hopeless(j, ns) {
			late = append(late, i)
			continue
		}
		if plans[i] = e.least(j, &free); plans[i] == nil {
			return nil, free, false
		}
		free.reserve(plans[i])
	}
	for _, i := range late {
		plans[i] = list[i].most(&free)
		free.reserve(plans[i])
	}
	return plans, free, true
}

// hopeless reports whether a job misses its deadline even alone.
func (e *Elastic) hopeless(j *elastic, ns int64) bool {
	on, ok := within(j.points, e.gpus)
	return !ok || takes(j.left, on.Rate) > j.deadline-ns
}

// most plans a job on as many devices as it can use, for as long as it takes.
func (j *elastic) most(free *profile) []stretch {
	return free.fit(j.points, j.points[len(j.points)-1].GPUs, j.left, never)
}

// least plans a job on the fewest devices with which it ends in time.
func (e *Elastic) least(j *elastic, free *profile) []stretch {
	for _, p := range j.points {
		if p.GPUs > e.gpus {
			break
		}
		if plan := free.fit(j.points, p.GPUs, j.left, j.deadline); plan != nil {
			return plan
		}
	}
	return nil
}

// adopt takes new plans.
func (e *Elastic) adopt(list []*elastic, plans [][]stretch, free profile) {
	e.jobs, e.free = list, free
	for i, j := range list {
		j.plan = plans[i]
	}
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
// deadline, which AppendAtRisk tells; less frees devices. Less than a unit more is taken for rounding.
func (e *Elastic) Ran(now time.Time, id lockstep.JobID, left int64) error {
	const op = "ran"
	ns, err := e.at(op, now)
	if err != nil {
		return err
	}
	j := e.find(id)
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
	e.replan()
	return nil
}

// Finish drops a job that has ended, or is not wanted any more.
func (e *Elastic) Finish(now time.Time, id lockstep.JobID) error {
	const op = "finish"
	ns, err := e.at(op, now)
	if err != nil {
		return err
	}
	j := e.find(id)
	if j == nil {
		return fault(lockstep.ErrUnknown, op, "id", errtext.Quote(id), "was not admitted")
	}
	e.advance(ns)
	e.jobs = slices.DeleteFunc(e.jobs, func(o *elastic) bool { return o == j })
	e.replan()
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
	e.replan()
	return nil
}

// AppendAtRisk appends the jobs that will miss their deadlines as things stand, by deadline, then ID.
func (e *Elastic) AppendAtRisk(dst []lockstep.JobID) []lockstep.JobID {
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

// replan plans all jobs anew. If that does not work out the old plans are kept, as long as they hold; a job whose plan
// does not gets the most that the others leave.
func (e *Elastic) replan() {
	if plans, free, ok := e.fill(e.jobs, e.now); ok {
		e.adopt(e.jobs, plans, free)
		return
	}
	free := profile{at: []int64{e.now}, free: []int{e.gpus}}
	var late []*elastic
	for _, j := range e.jobs {
		if j.left.Sign() <= 0 {
			j.plan = nil
			continue
		}
		if plan := trim(j.plan, j.left); plan != nil && free.has(plan) {
			j.plan = plan
			free.reserve(plan)
			continue
		}
		late = append(late, j)
	}
	for _, j := range late {
		if j.plan = e.least(j, &free); j.plan == nil {
			j.plan = j.most(&free)
		}
		free.reserve(j.plan)
	}
	e.free = free
}

// has reports whether p has room for a plan.
func (p *profile) has(plan []stretch) bool {
	for _, s := range plan {
		i, j := p.cut(s.from), p.cut(s.to)
		for ; i < j; i++ {
			if p.free[i] < s.gpus {
				return false
			}
		}
	}
	return true
}

// trim cuts a plan where the work is done; nil if it never is.
func trim(plan []stretch, left work) []stretch {
	var out []stretch
	for _, s := range plan {
		if need := takes(left, s.rate); need <= s.to-s.from {
			s.to = s.from + need
			return append(out, s)
		}
		left = left.Sub(int128.Product(s.rate, s.to-s.from))
		out = append(out, s)
	}
	return nil
}

// advance lets time pass: jobs do what their plans say, until Ran says otherwise. One that should have ended waits,
// without a plan, for Finish or Ran.
func (e *Elastic) advance(ns int64) {
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
	if len(e.free.at) == 0 || ns > e.now {
		i, ok := slices.BinarySearch(e.free.at, ns)
		switch {
		case len(e.free.at) == 0:
			e.free = profile{at: []int64{ns}, free: []int{e.gpus}}
		case !ok:
			e.free.at, e.free.free = e.free.at[i-1:], e.free.free[i-1:]
			e.free.at[0] = ns
		default:
			e.free.at, e.free.free = e.free.at[i:], e.free.free[i:]
		}
	}
	e.now = ns
}

// at returns now in nanoseconds, refusing times before one already seen.
func (e *Elastic) at(op string, now time.Time) (int64, error) {
	ns, err := in.SinceEpoch(op, "now", now)
	if err != nil {
		return 0, err
	}
	return ns, in.NotBefore(op, "now", now, ns, e.now)
}

// find looks a job up; nil if there is none.
func (e *Elastic) find(id lockstep.JobID) *elastic {
	for _, j := range e.jobs {
		if j.id == id {
			return j
		}
	}
	return nil
}
