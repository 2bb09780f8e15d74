package fairness

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// change is an event on its way: each method checks, and only then changes.
type change struct {
	l    *Ledger
	e    *Event
	now  int64
	call string
}

func (c *change) fault(kind error, field, value, reason string) error {
	return fault(kind, c.call, field, value, reason)
}

// apply is a switch rather than a table so that a change stays on the stack.
func (c *change) apply() error {
	switch c.e.Kind {
	case EventJoin:
		return c.join()
	case EventLeave:
		return c.leave()
	case EventWeight:
		return c.weight()
	case EventCapacity:
		return c.capacity()
	case EventSubmit:
		return c.submit()
	case EventDemand:
		return c.demand()
	case EventStart:
		return c.start()
	case EventResize:
		return c.resize()
	case EventStop:
		return c.stop()
	case EventFinish:
		return c.finish()
	case EventOverhead:
		return c.overhead()
	case EventForget:
		return c.forget()
	}
	return c.forgetTenant()
}

// known reports whether there is such a kind.
func (k EventKind) known() bool {
	switch k {
	case EventJoin, EventLeave, EventWeight, EventCapacity, EventSubmit, EventDemand, EventStart,
		EventResize, EventStop, EventFinish, EventOverhead, EventForget, EventForgetTenant:
		return true
	}
	return false
}

// begin accrues to the time of the event and settles t.
func (c *change) begin(t *tenant) {
	c.l.accrue(c.now)
	if t != nil {
		c.l.settle(t)
	}
}

func (c *change) checkWeight() error {
	if w := c.e.Weight; w < 0 || w > MaxWeight {
		return c.fault(lockstep.ErrInvalid, "weight", strconv.FormatInt(w, 10), "want 0 to 2^32")
	}
	return nil
}

// joined returns the tenant of the event, which must have joined.
func (c *change) joined() (*tenant, error) {
	t := c.l.tenants[c.e.Tenant]
	if t == nil || !t.joined {
		return nil, c.fault(lockstep.ErrUnknown, "tenant", errtext.Quote(c.e.Tenant), "has not joined")
	}
	return t, nil
}

// live returns the job of the event, which must not be done.
func (c *change) live() (*job, error) {
	j := c.l.jobs[c.e.Job]
	if j == nil {
		return nil, c.fault(lockstep.ErrUnknown, "job", errtext.Quote(c.e.Job), "was not submitted")
	}
	if j.done {
		return nil, c.fault(lockstep.ErrConflict, "job", errtext.Quote(c.e.Job), "is finished")
	}
	return j, nil
}

// phase returns the job of the event, which must run, or wait.
func (c *change) phase(running bool) (*job, error) {
	j, err := c.live()
	switch {
	case err != nil:
		return nil, err
	case running && !j.running:
		return nil, c.fault(lockstep.ErrConflict, "job", errtext.Quote(j.id), "is waiting")
	case !running && j.running:
		return nil, c.fault(lockstep.ErrConflict, "job", errtext.Quote(j.id), "is running")
	}
	return j, nil
}

func (c *change) join() error {
	if c.e.Tenant != "" { // the empty tenant is one like any other
		if err := c.e.Tenant.Validate(); err != nil {
			return err
		}
	}
	if err := c.checkWeight(); err != nil {
		return err
	}
	t := c.l.tenants[c.e.Tenant]
	if t != nil && t.joined {
		return c.fault(lockstep.ErrDuplicate, "tenant", errtext.Quote(c.e.Tenant), "has joined")
	}
	c.begin(nil)
	if t == nil {
		t = &tenant{id: c.e.Tenant, since: c.l.now, readyAt: -1, born: c.l.bucket + 1}
		c.l.tenants[t.id] = t
		c.l.byID = nil
	}
	c.l.settleCredits()
	t.joined, t.weight, t.nominalFrom, t.since = true, c.e.Weight, c.l.nominal, c.l.now
	c.l.place(t)
	return nil
}

func (c *change) leave() error {
	t, err := c.joined()
	if err != nil {
		return err
	}
	if t.live != 0 {
		return c.fault(lockstep.ErrConflict, "tenant", errtext.Quote(t.id), "has "+strconv.Itoa(t.live)+" jobs that are not finished")
	}
	c.begin(t)
	c.l.settleCredits()
	c.l.unplace(t)
	t.joined = false
	return nil
}

func (c *change) weight() error {
	t, err := c.joined()
	if err != nil {
		return err
	}
	if err := c.checkWeight(); err != nil {
		return err
	}
	c.begin(t)
	c.l.settleCredits()
	c.l.unplace(t)
	t.weight = c.e.Weight
	c.l.place(t)
	return nil
}

func (c *change) capacity() error {
	if c.e.Amount < 0 || c.e.Amount > maxRate {
		return c.fault(lockstep.ErrInvalid, "capacity", c.e.Amount.String(), "want 0 to "+lockstep.MilliGPU(maxRate).String())
	}
	c.begin(nil)
	c.l.settleCredits()
	c.l.capacity = c.e.Amount
	return nil
}

// checkDemand checks the demand of the event, where old is what it replaces.
func (c *change) checkDemand(old lockstep.MilliGPU) error {
	if c.e.Amount < 0 {
		return c.fault(lockstep.ErrInvalid, "demand", c.e.Amount.String(), "must not be negative")
	}
	if c.e.Amount > maxRate-(c.l.demand-old) {
		return c.fault(lockstep.ErrInvalid, "demand", c.e.Amount.String(), "the demands of all jobs together must not exceed "+lockstep.MilliGPU(maxRate).String())
	}
	return nil
}

func (c *change) submit() error {
	if err := c.e.Job.Validate(); err != nil {
		return err
	}
	if c.l.jobs[c.e.Job] != nil {
		return c.fault(lockstep.ErrDuplicate, "job", errtext.Quote(c.e.Job), "was submitted")
	}
	if err := c.checkDemand(0); err != nil {
		return err
	}
	t, err := c.joined()
	if err != nil {
		if c.l.cfg.DefaultWeight == 0 || c.e.Seq != 0 {
			return err
		}
		if err := c.l.Join(c.e.Time, c.e.Tenant, c.l.cfg.DefaultWeight); err != nil {
			return err
		}
		t = c.l.tenants[c.e.Tenant]
	}
	c.begin(t)
	j := &job{id: c.e.Job, tenant: t, demand: c.e.Amount, submitted: c.l.real(c.now), since: c.now, share: t.share}
	c.l.jobs[j.id] = j
	t.live++
	c.l.addDemand(t, j.demand)
	c.l.enqueue(j)
	return nil
}

func (c *change) demand() error {
	j, err := c.live()
	if err != nil {
		return err
	}
	if err := c.checkDemand(j.demand); err != nil {
		return err
	}
	if c.e.Amount < j.grant {
		return c.fault(lockstep.ErrConflict, "demand", c.e.Amount.String(), "it holds "+j.grant.String())
	}
	c.begin(j.tenant)
	c.l.settleJob(j)
	c.l.addDemand(j.tenant, c.e.Amount-j.demand)
	j.demand = c.e.Amount
	c.l.rekey(j)
	return nil
}

func (c *change) start() error {
	j, err := c.phase(false)
	if err != nil {
		return err
	}
	return c.grant(j)
}

func (c *change) resize() error {
	j, err := c.phase(true)
	if err != nil {
		return err
	}
	return c.grant(j)
}

// grant charges j with the amount of the event.
func (c *change) grant(j *job) error {
	if c.e.Amount < 0 || c.e.Amount > j.demand {
		return c.fault(lockstep.ErrInvalid, "grant", c.e.Amount.String(), "want 0 to its demand of "+j.demand.String())
	}
	raw := c.e.Raw
	if raw == 0 {
		raw = c.e.Amount
	}
	if raw < 0 || raw > maxRate-(c.l.rawRate-j.raw) {
		return c.fault(lockstep.ErrInvalid, "raw", raw.String(), "want no less than 0, and at most "+lockstep.MilliGPU(maxRate).String()+" of all jobs together")
	}
	c.begin(j.tenant)
	c.l.settleJob(j)
	if !j.running {
		c.l.dequeue(j)
		j.running = true
	}
	c.l.setGrant(j, c.e.Amount, raw)
	return nil
}

// overhead books what a job spent on saving and restoring.
func (c *change) overhead() error {
	j := c.l.jobs[c.e.Job]
	if j == nil {
		return c.fault(lockstep.ErrUnknown, "job", errtext.Quote(c.e.Job), "was not submitted")
	}
	cost, by := int128.Int(c.e.Cost), c.l.tenants[c.e.Tenant]
	service, _ := j.at(c.now)
	if cost.Sign() < 0 || cost.Cmp(service.Sub(j.overhead)) > 0 {
		return c.fault(lockstep.ErrInvalid, "cost", c.e.Cost.String(), "want 0 to the "+lockstep.GPUTime(service.Sub(j.overhead)).String()+" that the job held and that is no overhead yet")
	}
	pays := c.l.cfg.Payer == PayReclaimer && c.e.Tenant != ""
	if pays && (by == nil || !by.joined) {
		return c.fault(lockstep.ErrUnknown, "tenant", errtext.Quote(c.e.Tenant), "has not joined")
	}
	c.begin(j.tenant)
	j.overhead = j.overhead.Add(cost)
	j.tenant.overhead = j.tenant.overhead.Add(cost)
	if pays || c.l.cfg.Payer == PayNobody {
		j.tenant.adjust = j.tenant.adjust.Add(cost)
	}
	if pays {
		by.adjust = by.adjust.Sub(cost)
	}
	return nil
}

func (c *change) stop() error {
	j, err := c.phase(true)
	if err != nil {
		return err
	}
	c.begin(j.tenant)
	c.l.settleJob(j)
	c.l.dequeue(j)
	c.l.setGrant(j, 0, 0)
	j.running = false
	c.l.enqueue(j)
	return nil
}

func (c *change) finish() error {
	j, err := c.live()
	if err != nil {
		return err
	}
	t := j.tenant
	c.begin(t)
	c.l.settleJob(j)
	c.l.dequeue(j)
	c.l.setGrant(j, 0, 0)
	c.l.addDemand(t, -j.demand)
	j.running, j.done = false, true
	j.share = t.share.Sub(j.share)
	t.live--
	t.kept++
	return nil
}

func (c *change) forget() error {
	j := c.l.jobs[c.e.Job]
	if j == nil {
		return c.fault(lockstep.ErrUnknown, "job", errtext.Quote(c.e.Job), "was not submitted")
	}
	if !j.done {
		return c.fault(lockstep.ErrConflict, "job", errtext.Quote(c.e.Job), "is not finished")
	}
	j.tenant.kept--
	delete(c.l.jobs, j.id)
	return nil
}

func (c *change) forgetTenant() error {
	t := c.l.tenants[c.e.Tenant]
	switch {
	case t == nil:
		return c.fault(lockstep.ErrUnknown, "tenant", errtext.Quote(c.e.Tenant), "has not joined")
	case t.joined:
		return c.fault(lockstep.ErrConflict, "tenant", errtext.Quote(t.id), "has not left")
	case t.kept != 0:
		return c.fault(lockstep.ErrConflict, "tenant", errtext.Quote(t.id), "has "+strconv.Itoa(t.kept)+" jobs that are not forgotten")
	}
	delete(c.l.tenants, t.id)
	c.l.byID = nil
	return nil
}
