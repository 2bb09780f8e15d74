package fairness

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// EventKind says what an Event changes.
type EventKind string

// The kinds of event, one for each call that changes a ledger.
const (
	EventJoin         EventKind = "join"         // EventJoin: Tenant joins with Weight.
	EventLeave        EventKind = "leave"        // EventLeave: Tenant leaves.
	EventWeight       EventKind = "weight"       // EventWeight: Tenant's weight is Weight from now on.
	EventCapacity     EventKind = "capacity"     // EventCapacity: the capacity is Amount from now on.
	EventSubmit       EventKind = "submit"       // EventSubmit: Tenant's Job waits for Amount.
	EventDemand       EventKind = "demand"       // EventDemand: Job asks for Amount from now on.
	EventStart        EventKind = "start"        // EventStart: Job holds Amount from now on.
	EventResize       EventKind = "resize"       // EventResize: Job, which runs, holds Amount from now on.
	EventStop         EventKind = "stop"         // EventStop: Job holds nothing any more and waits again.
	EventFinish       EventKind = "finish"       // EventFinish: Job is over.
	EventOverhead     EventKind = "overhead"     // EventOverhead: Job spent Cost of what it held on saving or restoring, for the sake of Tenant where that is not empty.
	EventForget       EventKind = "forget"       // EventForget: Job is dropped.
	EventForgetTenant EventKind = "forgetTenant" // EventForgetTenant: Tenant is dropped.
)

// Event is one change of a ledger, as data that can be stored and replayed.
// Fields that its kind does not name are zero.
type Event struct {
	Seq    uint64            `json:"seq,omitempty"`    // Seq is its place in the log, from 1; 0 means the next.
	Kind   EventKind         `json:"kind"`             // Kind says what changes and which fields count.
	Time   time.Time         `json:"time"`             // Time is when; that of the kinds that forget does not matter.
	Tenant lockstep.TenantID `json:"tenant,omitempty"` // Tenant is whose account it is.
	Job    lockstep.JobID    `json:"job,omitempty"`    // Job is which job it is.
	Weight int64             `json:"weight,omitempty"` // Weight is 0 to MaxWeight.
	Amount lockstep.MilliGPU `json:"amount,omitempty"` // Amount is a demand, a grant or a capacity, in the ledger's unit.
	Raw    lockstep.MilliGPU `json:"raw,omitempty"`    // Raw is a grant in devices, where the unit is another (see Prices); 0 means Amount.
	Cost   lockstep.GPUTime  `json:"cost,omitzero"`    // Cost is overhead, in the ledger's unit over time.
}

// Join opens the account of tenant, or opens it again where it left it. A
// tenant with weight 0 is entitled to what those with weight leave, and is
// proposed after them.
func (l *Ledger) Join(now time.Time, tenant lockstep.TenantID, weight int64) error {
	return l.Apply(Event{Kind: EventJoin, Time: now, Tenant: tenant, Weight: weight})
}

// Leave closes the account of tenant, which must have no job that is not done,
// and returns its statement. The account is kept until ForgetTenant: a tenant
// that joins again is owed what it was owed when it left.
func (l *Ledger) Leave(now time.Time, tenant lockstep.TenantID) (Statement, error) {
	if err := l.Apply(Event{Kind: EventLeave, Time: now, Tenant: tenant}); err != nil {
		return Statement{}, err
	}
	return l.Statement(now, tenant)
}

// SetWeight changes the weight of tenant from now on.
func (l *Ledger) SetWeight(now time.Time, tenant lockstep.TenantID, weight int64) error {
	return l.Apply(Event{Kind: EventWeight, Time: now, Tenant: tenant, Weight: weight})
}

// SetCapacity changes what there is to share from now on. It may be less than
// what jobs hold.
func (l *Ledger) SetCapacity(now time.Time, capacity lockstep.MilliGPU) error {
	return l.Apply(Event{Kind: EventCapacity, Time: now, Amount: capacity})
}

// Submit adds a job of tenant that waits for demand from now on. What it asks
// for counts as wanted until Finish, whether it runs or not. A demand of 0 is a
// job that uses no device.
func (l *Ledger) Submit(now time.Time, job lockstep.JobID, tenant lockstep.TenantID, demand lockstep.MilliGPU) error {
	return l.Apply(Event{Kind: EventSubmit, Time: now, Job: job, Tenant: tenant, Amount: demand})
}

// Demand changes what job asks for, to no less than it holds.
func (l *Ledger) Demand(now time.Time, job lockstep.JobID, demand lockstep.MilliGPU) error {
	return l.Apply(Event{Kind: EventDemand, Time: now, Job: job, Amount: demand})
}

// Start charges job with grant from now on, at most its demand. Call it when
// the devices are taken from others, which is when they are reserved.
func (l *Ledger) Start(now time.Time, job lockstep.JobID, grant lockstep.MilliGPU) error {
	return l.Apply(Event{Kind: EventStart, Time: now, Job: job, Amount: grant})
}

// Resize charges a running job with grant, rather than what it held, from now on.
func (l *Ledger) Resize(now time.Time, job lockstep.JobID, grant lockstep.MilliGPU) error {
	return l.Apply(Event{Kind: EventResize, Time: now, Job: job, Amount: grant})
}

// Overhead says that cost of what job held so far went into saving or restoring,
// for the sake of the tenant by, which reclaimed its devices; "" where there is
// none. It is part of the job's service all the same; who pays for it in the order
// of tenants is for Config.Payer to say. By must have joined, if it pays.
func (l *Ledger) Overhead(now time.Time, job lockstep.JobID, cost lockstep.GPUTime, by lockstep.TenantID) error {
	return l.Apply(Event{Kind: EventOverhead, Time: now, Job: job, Tenant: by, Cost: cost})
}

// Stop ends the charge of a running job, which waits again from now on.
func (l *Ledger) Stop(now time.Time, job lockstep.JobID) error {
	return l.Apply(Event{Kind: EventStop, Time: now, Job: job})
}

// Finish ends job, waiting or running: it asks for nothing any more. Its
// statement can be read until Forget.
func (l *Ledger) Finish(now time.Time, job lockstep.JobID) error {
	return l.Apply(Event{Kind: EventFinish, Time: now, Job: job})
}

// Forget drops a job that is finished. Its tenant's account is as it was.
func (l *Ledger) Forget(job lockstep.JobID) error {
	return l.Apply(Event{Kind: EventForget, Job: job})
}

// ForgetTenant drops the account of a tenant that left, once its jobs are
// forgotten, and with it what it is owed or owes: one that joins again starts
// from nothing.
func (l *Ledger) ForgetTenant(tenant lockstep.TenantID) error {
	return l.Apply(Event{Kind: EventForgetTenant, Tenant: tenant})
}

// Apply does what the method for e.Kind does. Where e.Seq is set, e must be the
// next event: one that was applied before is ErrDuplicate, one after a gap is
// ErrConflict, so that a log can be replayed on a snapshot from anywhere before
// it. An event of a log joins no unknown tenant: the log holds that as its own event.
func (l *Ledger) Apply(e Event) error {
	c := change{l: l, e: &e, call: string(e.Kind)}
	switch {
	case !e.Kind.known():
		return fault(lockstep.ErrInvalid, "apply", "Kind", errtext.Quote(e.Kind), "no such kind of event")
	case l.jobs == nil:
		return c.fault(lockstep.ErrInvalid, "Ledger", "", "want one made by New or Restore")
	case e.Seq != 0 && e.Seq <= l.seq:
		return c.fault(lockstep.ErrDuplicate, "Seq", strconv.FormatUint(e.Seq, 10), "applied before")
	case e.Seq > l.seq+1:
		return c.fault(lockstep.ErrConflict, "Seq", strconv.FormatUint(e.Seq, 10), "want "+strconv.FormatUint(l.seq+1, 10))
	}
	if e.Kind == EventForget || e.Kind == EventForgetTenant {
		c.now, e.Time = l.now, lockstep.FromNanos(l.now)
	} else {
		now, err := l.read(c.call, e.Time)
		if err != nil {
			return err
		}
		c.now, e.Time = now, lockstep.FromNanos(now)
	}
	if err := c.apply(); err != nil {
		return err
	}
	if l.recent != nil {
		l.follow(&c)
	}
	l.seq++
	if l.cfg.Log != nil {
		e.Seq = l.seq
		l.cfg.Log(e)
	}
	return nil
}
