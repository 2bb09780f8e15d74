package drf

import (
	"strings"
	"time"

	"github.com/google/btree"
	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Queue proposes jobs of the tenant with the least dominant share. It implements
// gang.Orderer. Make one with New or Restore.
type Queue struct {
	onBlocked OnBlocked
	prices    Prices
	weight    int64 // of tenants that are not known
	schema    *lockstep.Schema
	gpu       int // gpu is the index of lockstep.ResourceGPU; -1 if it does not count

	raw      lockstep.Vector // raw is the capacity as it was given.
	capacity lockstep.Vector // capacity is raw with the priced devices.
	root     *tenant
	tenants  map[lockstep.TenantID]*tenant
	order    []*tenant // order is all tenants, parents first
	jobs     map[lockstep.JobID]*job
	seq      uint64
	demand   lockstep.Vector // demand is what all jobs ask for together.
	held     lockstep.Vector // held is what all jobs use together.

	proposed *job
	granted  []*job // granted are jobs that the last pass let run, some of which may have started.
	due      []*job // due are jobs that competed in the last pass or will in the next, some of which may not any more.
	over     bool   // over says that the pass is.
}

// job is a job that waits or runs.
type job struct {
	id       lockstep.JobID
	tenant   *tenant
	priority lockstep.Priority
	seq      uint64
	speedUps map[lockstep.DeviceClass]int64
	demand   amount
	running  bool
	used     amount // used is while it runs.

	// In a pass:
	granted bool // granted says that a waiting job counts as running until the next pass.
	due     bool // due says that a running one competes; it is in the queue.
	listed  bool // listed says that it is in Queue.due.
	lifted  bool // lifted says that one that is due does not count as running until it is kept.
}

// amount is an amount of each resource, and what its devices come to by price.
type amount struct {
	raw    lockstep.Vector
	priced int64
}

// before is the order of a tenant's jobs: higher priority, then submitted earlier.
func (j *job) before(k *job) bool {
	if j.priority != k.priority {
		return j.priority > k.priority
	}
	return j.seq < k.seq
}

// degree of the trees that hold jobs.
const degree = 16

// SetCapacity changes what there is; a resource that is absent becomes 0. It must
// not name resources that Config did not.
func (q *Queue) SetCapacity(capacity lockstep.Resources) error {
	return q.setCapacity("set capacity", capacity)
}

func (q *Queue) setCapacity(call string, capacity lockstep.Resources) error {
	if _, err := q.schema.Vector(capacity); err != nil && call != "config" {
		return err
	}
	raw, priced, err := q.amounts(call, "Capacity", capacity, func(c lockstep.DeviceClass) int64 { return q.prices.Rate(c, nil) })
	if err != nil {
		return err
	}
	q.raw, q.capacity = raw, q.price(amount{raw, priced})
	q.over = true // shares have changed
	return nil
}

// price returns a with what its devices come to.
func (q *Queue) price(a amount) lockstep.Vector {
	v := a.raw
	if q.gpu >= 0 {
		v[q.gpu] = a.priced
	}
	return v
}

// SetTenant adds a tenant, or changes one: its weight, or whom it stands under. It ends
// a pass that is under way.
func (q *Queue) SetTenant(t Tenant) error {
	if err := checkTenant("set tenant", "Tenant", t); err != nil {
		return err
	}
	if err := q.checkParent("set tenant", "Tenant.Parent", t); err != nil {
		return err
	}
	if old := q.tenants[t.ID]; old != nil {
		old.spec = t
	} else {
		q.tenants[t.ID] = &tenant{spec: t, at: -1}
	}
	q.plant()
	return nil
}

// Remove drops a tenant without jobs and without tenants below it.
func (q *Queue) Remove(id lockstep.TenantID) error {
	t := q.tenants[id]
	switch {
	case t == nil:
		return fault(lockstep.ErrUnknown, "remove", "tenant", errtext.Quote(id), "no such tenant")
	case t.jobs > 0:
		return fault(lockstep.ErrConflict, "remove", "tenant", errtext.Quote(id), "has jobs")
	case len(t.children) > 0:
		return fault(lockstep.ErrConflict, "remove", "tenant", errtext.Quote(id), "has tenants below it")
	}
	delete(q.tenants, id)
	q.plant()
	return nil
}

// Submit adds g, which waits for counts members of each role, with room for the roles'
// spares; nil stands for each role's Min. SpeedUps are how much faster it is on devices of a
// class than on reference devices, in thousandths; nil, or a class that is absent,
// means as the price says. They are not kept, nor is g.
func (q *Queue) Submit(g *lockstep.Gang, counts []int, speedUps map[lockstep.DeviceClass]int64) error {
	t, err := q.admit(g, counts)
	if err != nil {
		return err
	}
	j := &job{id: g.ID, priority: g.Priority}
	for class, v := range speedUps { // in any order: copied to a map
		if j.speedUps == nil {
			j.speedUps = make(map[lockstep.DeviceClass]int64, len(speedUps))
		}
		j.speedUps[class] = v
	}
	if j.demand, err = q.need(j, g, counts); err != nil {
		return err
	}
	if t == nil {
		t = &tenant{spec: Tenant{ID: g.Tenant, Weight: q.weight}, at: -1}
		q.tenants[g.Tenant] = t
		q.plant()
	}
	q.seq++
	j.seq, j.tenant = q.seq, t
	q.jobs[g.ID] = j
	q.demand = q.demand.Add(j.demand.raw)
	t.jobs++
	t.enqueue(j)
	return nil
}

// admit returns the tenant of g, nil where it is to be let in.
func (q *Queue) admit(g *lockstep.Gang, counts []int) (*tenant, error) {
	t := q.tenants[g.Tenant]
	switch {
	case g.ID.Validate() != nil:
		return nil, fault(lockstep.ErrInvalid, "submit", "job", errtext.Quote(g.ID), reason(g.ID.Validate()))
	case q.jobs[g.ID] != nil:
		return nil, fault(lockstep.ErrDuplicate, "submit", "job", errtext.Quote(g.ID), "was submitted")
	case counts != nil && len(counts) != len(g.Roles):
		return nil, fault(lockstep.ErrInvalid, "submit", "counts", "", "want a count for each role")
	case t == nil && q.weight == 0:
		return nil, fault(lockstep.ErrUnknown, "submit", "tenant", errtext.Quote(g.Tenant), "no such tenant")
	case t == nil:
		return nil, checkTenant("submit", "Tenant", Tenant{ID: g.Tenant})
	case len(t.children) > 0:
		return nil, fault(lockstep.ErrConflict, "submit", "tenant", errtext.Quote(g.Tenant), "has tenants below it")
	}
	return t, nil
}

// need returns what counts members of g take.
func (q *Queue) need(j *job, g *lockstep.Gang, counts []int) (amount, error) {
	var a amount
	for i := range g.Roles {
		role := &g.Roles[i]
		n := int64(role.Min)
		if counts != nil {
			n = int64(counts[i])
		}
		if n < 0 || n > lockstep.MaxMembers {
			return a, fault(lockstep.ErrInvalid, "submit", "counts", "", "want a count for each role, 0 or more")
		}
		if n == 0 {
			continue
		}
		n += int64(role.Spares)
		for name, each := range role.Demand.Resources() { // order does not matter: each is on its own
			if r, ok := q.schema.Index(name); ok {
				a.raw[r] = int64(lockstep.MilliGPU(a.raw[r]).Add(lockstep.MilliGPU(each).Mul(n)))
			}
		}
		if q.gpu < 0 {
			continue
		}
		rate := int64(ReferencePrice)
		if len(role.Demand.Classes) == 1 {
			rate = q.prices.Rate(role.Demand.Classes[0], j.speedUps)
		}
		devices := role.Demand.DeviceShare().Mul(int64(role.Demand.GPUs)).Mul(n)
		a.priced = int64(lockstep.MilliGPU(a.priced).Add(devices.Mul(rate)))
	}
	if !q.adds(q.demand, a.raw) {
		return a, fault(lockstep.ErrInvalid, "submit", "job", errtext.Quote(g.ID), "the sum of all demands is absurd")
	}
	return a, nil
}

// adds reports whether v+w stays in range.
func (q *Queue) adds(v, w lockstep.Vector) bool {
	for r := range q.schema.Len() {
		most := int64(MaxAmount)
		if n := q.schema.Name(r); n == lockstep.ResourceGPU || strings.HasPrefix(string(n), string(lockstep.ResourceGPU)+"/") {
			most = int64(MaxDevices)
		}
		if w[r] > most-v[r] {
			return false
		}
	}
	return true
}

func (t *tenant) enqueue(j *job) {
	if t.queue == nil {
		t.queue = btree.NewG(degree, (*job).before)
	}
	t.queue.ReplaceOrInsert(j)
}

// hold adds a to what t uses, or takes it off with sign -1.
func (q *Queue) hold(t *tenant, a *amount, sign int64) {
	for m := t; m != nil; m = m.parent {
		for r := range q.schema.Len() {
			m.raw[r] += sign * a.raw[r]
		}
	}
}

// weigh adds a to what t is compared by, or takes it off with sign -1.
func (q *Queue) weigh(t *tenant, a *amount, sign int64) {
	v := q.price(*a)
	for m := t; m != nil; m = m.parent {
		for r := range q.schema.Len() {
			m.used[r] += sign * v[r]
		}
	}
	if !q.over {
		q.changed(t)
	}
}

// Start says that a waiting job runs now and uses so much, with the devices by class
// as well where that matters for their price; nil stands for what it asked for.
func (q *Queue) Start(id lockstep.JobID, used lockstep.Resources) error {
	j, err := q.find("start", id)
	switch {
	case err != nil:
		return err
	case j.running:
		return fault(lockstep.ErrConflict, "start", "job", errtext.Quote(id), "runs")
	}
	a := j.demand
	if used != nil {
		a.raw, a.priced, err = q.amounts("start", "used", used, func(c lockstep.DeviceClass) int64 { return q.prices.Rate(c, j.speedUps) })
		if err != nil {
			return err
		}
	}
	if !q.adds(q.held, a.raw) {
		return fault(lockstep.ErrInvalid, "start", "job", errtext.Quote(id), "the sum of all use is absurd")
	}
	q.settle(j)
	j.tenant.queue.Delete(j)
	j.running, j.used = true, a
	q.held = q.held.Add(a.raw)
	q.hold(j.tenant, &j.used, 1)
	q.weigh(j.tenant, &j.used, 1)
	return nil
}

// Stop says that a running job waits again, in its old place.
func (q *Queue) Stop(id lockstep.JobID) error {
	j, err := q.find("stop", id)
	switch {
	case err != nil:
		return err
	case !j.running:
		return fault(lockstep.ErrConflict, "stop", "job", errtext.Quote(id), "does not run")
	}
	q.release(j)
	j.tenant.enqueue(j)
	return nil
}

// Due says that the term of a running job is over, so that passes propose it like a
// waiting one, as though it did not run, until it is granted or kept, or stops. Snapshot
// does not hold it. A job that is due already stays so.
func (q *Queue) Due(id lockstep.JobID) error {
	j, err := q.find("due", id)
	switch {
	case err != nil:
		return err
	case !j.running:
		return fault(lockstep.ErrConflict, "due", "job", errtext.Quote(id), "does not run")
	case !j.due:
		j.due = true
		j.tenant.enqueue(j)
		if !j.listed {
			j.listed = true
			q.due = append(q.due, j)
		}
	}
	return nil
}

// release ends j's use.
func (q *Queue) release(j *job) {
	q.settle(j)
	q.held = q.held.Sub(j.used.raw)
	q.hold(j.tenant, &j.used, -1)
	q.weigh(j.tenant, &j.used, -1)
	j.running, j.used = false, amount{}
	j.undue()
}

// undue ends that j is due.
func (j *job) undue() {
	if j.due {
		j.due = false
		j.tenant.queue.Delete(j)
	}
}

// settle makes j count as what it is, whatever the pass made of it.
func (q *Queue) settle(j *job) {
	if j.granted {
		j.granted = false
		q.weigh(j.tenant, &j.demand, -1)
	}
	if j.lifted {
		j.lifted = false
		q.weigh(j.tenant, &j.used, 1)
	}
}

// Finish forgets a job, which ended or is no longer wanted.
func (q *Queue) Finish(id lockstep.JobID) error {
	j, err := q.find("finish", id)
	if err != nil {
		return err
	}
	if j.running {
		q.release(j)
	} else {
		q.settle(j)
		j.tenant.queue.Delete(j)
	}
	q.demand = q.demand.Sub(j.demand.raw)
	j.tenant.jobs--
	delete(q.jobs, id)
	return nil
}

func (q *Queue) find(call string, id lockstep.JobID) (*job, error) {
	j := q.jobs[id]
	if j == nil {
		return nil, fault(lockstep.ErrUnknown, call, "job", errtext.Quote(id), "was not submitted")
	}
	return j, nil
}

// Begin starts a pass over the waiting jobs, and those that are due. The time does
// not matter.
func (q *Queue) Begin(time.Time) {
	q.over = true // until all is in place
	q.proposed = nil
	for _, j := range q.granted { // those that did not start after all
		q.settle(j)
	}
	clear(q.granted)
	q.granted = q.granted[:0]
	kept := q.due[:0]
	for _, j := range q.due {
		q.settle(j)
		if j.listed = j.due; j.due {
			j.lifted = true
			q.weigh(j.tenant, &j.used, -1)
			kept = append(kept, j)
		}
	}
	clear(q.due[len(kept):])
	q.due = kept
	for i := len(q.order) - 1; i >= 0; i-- { // children first
		q.line(q.order[i])
	}
	q.over = false
}

// line puts those children of t in line that have something to propose.
func (q *Queue) line(t *tenant) {
	t.cursor, t.at = nil, -1
	t.live = t.live[:0]
	if len(t.children) == 0 {
		q.measure(t)
		return
	}
	for _, c := range t.children {
		if len(c.live) > 0 || c.queue != nil && c.queue.Len() > 0 {
			c.at = len(t.live)
			t.live = append(t.live, c)
		}
	}
	for k := len(t.live)/2 - 1; k >= 0; k-- {
		t.live[k].sink()
	}
	t.gather(q.schema.Len())
}

// Next proposes the first job, that was not proposed in this pass, of the tenant
// with the least share; false ends the pass.
func (q *Queue) Next() (lockstep.JobID, bool) {
	if q.proposed != nil {
		q.Outcome(q.proposed.id, lockstep.Blocked)
	}
	t := q.root
	for !q.over {
		if len(t.live) == 0 {
			q.over = true
			break
		}
		t = t.live[0]
		if len(t.children) > 0 {
			continue
		}
		if j := t.next(); j != nil {
			q.proposed, t.cursor = j, j
			return j.id, true
		}
		t = q.done(t)
	}
	return "", false
}

// next returns the job behind the cursor, nil if there is none.
func (t *tenant) next() (next *job) {
	if t.cursor == nil {
		next, _ = t.queue.Min()
		return next
	}
	t.queue.AscendGreaterOrEqual(t.cursor, func(j *job) bool {
		if j == t.cursor {
			return true
		}
		next = j
		return false
	})
	return next
}

// done passes over t for the rest of the pass, and returns the root.
func (q *Queue) done(t *tenant) *tenant {
	t.drop()
	q.changed(t)
	return q.root
}

// Outcome tells what became of the job that Next proposed last. One that was
// granted counts as running, with what it asked for, until it starts or the next pass
// begins.
func (q *Queue) Outcome(id lockstep.JobID, outcome lockstep.Outcome) {
	j := q.proposed
	if j == nil || j.id != id {
		return
	}
	q.proposed = nil
	if q.over || q.jobs[id] != j {
		return
	}
	switch outcome {
	case lockstep.Granted, lockstep.Kept:
		q.grant(j)
	case lockstep.Blocked:
		switch q.onBlocked {
		case BlockAll:
			q.over = true
		case BlockTenant:
			q.done(j.tenant)
		}
	}
	if t := j.tenant; !q.over && t.at >= 0 && t.next() == nil {
		q.done(t)
	}
}

// grant makes j count as running.
func (q *Queue) grant(j *job) {
	switch {
	case j.due:
		j.undue()
		q.settle(j)
	case !j.running && !j.granted: // else Start came first
		j.granted = true
		q.granted = append(q.granted, j)
		q.weigh(j.tenant, &j.demand, 1)
	}
}
