package scheduler

import (
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/policy/order"
)

// Policy says whose turn it is, and is fed what happens to the jobs. The calls
// come in the order of time. An error of Submit refuses the job, which nothing
// else then hears of; errors of the others are faults of the composition.
type Policy interface {
	gang.Orderer
	// Submit adds a job that waits. One of its name that has left was forgotten.
	Submit(now time.Time, g *lockstep.Gang) error
	// Start says that job holds an amount from now on.
	Start(now time.Time, job lockstep.JobID, held lockstep.MilliGPU) error
	// Resize says that job holds another amount from now on.
	Resize(now time.Time, job lockstep.JobID, held lockstep.MilliGPU) error
	// Due says that the term of job is over: it competes for what it holds.
	Due(now time.Time, job lockstep.JobID) error
	// Stop says that job holds nothing any more and waits again.
	Stop(now time.Time, job lockstep.JobID) error
	// Finish says that job has left, waiting or not.
	Finish(now time.Time, job lockstep.JobID) error
	// Forget drops what is still kept of a job that has left.
	Forget(job lockstep.JobID) error
}

// Waker is what a Policy can also do: say when its order changes by itself.
type Waker interface {
	// NextWake returns when a pass may decide otherwise than now.
	NextWake(now time.Time) (time.Time, bool)
}

// opener, capacity and knower are what the policies of this package can also do.
type (
	opener interface{ open(now time.Time) error }
	knower interface {
		knows(id lockstep.JobID, on bool) bool
	}
	capacity interface {
		setCapacity(now time.Time, amount lockstep.MilliGPU) error
	}
)

// Fair returns a policy that goes by what l says tenants and jobs are owed.
// Tenants join l before, or with its default weight.
func Fair(l *fairness.Ledger) Policy {
	return newFair(l)
}

// Ordered returns a policy that goes by the order of q.
func Ordered(q *order.Queue) Policy { return &ordered{q} }

// fair adapts a ledger.
type fair struct {
	*fairness.Ledger
	weights map[lockstep.TenantID]int64
	// awaiting are the jobs that were granted room which others are still
	// leaving: they are not charged yet, but passes take them for granted.
	awaiting map[lockstep.JobID]bool
	// due are the holders that compete: the ledger keeps that for itself, and
	// not in a snapshot, but a pass that is cut short leaves some.
	due map[lockstep.JobID]bool
}

func newFair(l *fairness.Ledger) *fair {
	return &fair{Ledger: l, awaiting: make(map[lockstep.JobID]bool), due: make(map[lockstep.JobID]bool)}
}

func (f *fair) open(now time.Time) error {
	for _, t := range slices.Sorted(maps.Keys(f.weights)) {
		if err := f.Join(now, t, f.weights[t]); err != nil {
			return err
		}
	}
	return nil
}

func (f *fair) setCapacity(now time.Time, amount lockstep.MilliGPU) error {
	return f.SetCapacity(now, amount)
}

func (f *fair) knows(id lockstep.JobID, on bool) bool {
	st, err := f.JobStatement(lockstep.FromNanos(math.MaxInt64), id) // reading changes nothing, at whatever time
	return err == nil && !st.Done && st.Running == on
}

func (f *fair) Submit(now time.Time, g *lockstep.Gang) error {
	return f.Ledger.Submit(now, g.ID, g.Tenant, mostGPUs(g))
}

func (f *fair) Due(_ time.Time, id lockstep.JobID) error {
	if err := f.Ledger.Due(id); err != nil {
		return err
	}
	f.due[id] = true
	return nil
}

func (f *fair) Start(now time.Time, id lockstep.JobID, held lockstep.MilliGPU) error {
	delete(f.awaiting, id)
	return f.Ledger.Start(now, id, held)
}

func (f *fair) Stop(now time.Time, id lockstep.JobID) error {
	delete(f.awaiting, id)
	delete(f.due, id)
	return f.Ledger.Stop(now, id)
}

func (f *fair) Finish(now time.Time, id lockstep.JobID) error {
	delete(f.awaiting, id)
	delete(f.due, id)
	return f.Ledger.Finish(now, id)
}

func (f *fair) Outcome(id lockstep.JobID, outcome lockstep.Outcome) {
	switch {
	case outcome == lockstep.Kept:
		delete(f.due, id)
	case outcome == lockstep.Granted:
		f.awaiting[id] = true
	case outcome == lockstep.Dropped && f.awaiting[id]:
		outcome = lockstep.Granted
	default:
		delete(f.awaiting, id)
	}
	f.Ledger.Outcome(id, outcome)
}

// ordered adapts a queue.
type ordered struct{ *order.Queue }

func (o *ordered) Submit(now time.Time, g *lockstep.Gang) error {
	return o.Queue.Submit(now, order.JobOf(g))
}

// Due leaves alone what competes already.
func (o *ordered) Due(now time.Time, id lockstep.JobID) error {
	if err := o.Queue.Due(now, id); !errors.Is(err, lockstep.ErrConflict) {
		return err
	}
	return nil
}

func (o *ordered) Start(now time.Time, id lockstep.JobID, held lockstep.MilliGPU) error {
	if err := o.Queue.Start(now, id); err != nil {
		return err
	}
	if j, ok := o.Job(id); ok && j.GPUs != held {
		return o.Queue.Resize(now, id, held)
	}
	return nil
}

func (o *ordered) knows(id lockstep.JobID, _ bool) bool {
	_, ok := o.Job(id)
	return ok
}

func (o *ordered) Forget(lockstep.JobID) error { return nil } // nothing is kept

// NextWake is never: levels change while jobs run, and are looked at when their
// terms are over or somebody comes.
func (o *ordered) NextWake(time.Time) (time.Time, bool) { return time.Time{}, false }

// orderer ends a pass when there is nothing left to give: no device is free, no
// holder competes and nobody takes room. Nothing that Next could propose would be
// granted then, and there would only be reservations to gain.
type orderer struct {
	Policy
	full    bool // passes do not end early
	placer  *placer
	quota   *static // nil for none
	tenants *within // that the quota holds for
	jobs    map[lockstep.JobID]*job
}

func (o *orderer) Next() (lockstep.JobID, bool) {
	if !o.full && o.placer.free == 0 && o.placer.rivals == 0 && o.placer.loose == 0 {
		return "", false
	}
	for {
		id, ok := o.Policy.Next()
		if !ok || o.fits(id) {
			return id, ok
		}
		// Gang admission would find the same, at the cost of a try.
		o.Policy.Outcome(id, lockstep.Blocked)
		o.tenants.skip()
	}
}

// fits reports whether the quota lets a job start. A holder has been let in.
func (o *orderer) fits(id lockstep.JobID) bool {
	j := o.jobs[id]
	return o.quota == nil || j == nil || j.on || o.quota.Check(j.gang, nil).Feasible
}

func (o *orderer) Outcome(id lockstep.JobID, outcome lockstep.Outcome) {
	if j := o.jobs[id]; j != nil && j.on {
		if outcome == lockstep.Dropped {
			outcome = lockstep.Kept // it does not compete any more: a pass that was cut short kept it
		} else {
			o.placer.rivals-- // its term was over
		}
	}
	o.Policy.Outcome(id, outcome)
}

// ranked is an orderer that also says who is to be stopped first.
type ranked struct {
	*orderer
	floored *floored
}

func (r *ranked) Ahead(a, b lockstep.JobID) bool { return r.floored.Ahead(a, b) }

// mostGPUs returns the devices that g takes with as many members as it may have.
func mostGPUs(g *lockstep.Gang) lockstep.MilliGPU {
	var sum lockstep.MilliGPU
	for i := range g.Roles {
		d := &g.Roles[i].Demand
		sum = sum.Add(d.DeviceShare().Mul(int64(d.GPUs)).Mul(int64(g.Roles[i].Limit())))
	}
	return sum
}
