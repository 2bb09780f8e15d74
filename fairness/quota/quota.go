package quota

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// LevelQueue is the Level of verdicts and changes whose Domain is a queue.
const LevelQueue lockstep.Level = "queue"

// Quota divides resources among a tree of queues. Make one with New or Restore.
type Quota struct {
	static, byTenant bool
	schema           *lockstep.Schema
	index            indexes
	root             *node // root is all queues together; its nominal is the capacity
	nodes            map[lockstep.QueueID]*node
	order            []*node // order is all nodes, parents first, siblings by name
	jobs             map[lockstep.JobID]*job
	wanted           lockstep.Vector // wanted is the sum of all wants
	seq              uint64          // seq numbers charges

	fill    filler      // scratch
	reclaim reclamation // scratch
}

// job is what is charged and what is asked for.
type job struct {
	id       lockstep.JobID
	queue    *node
	priority lockstep.Priority
	parts    []part           // parts are the roles, as charged; nil while nothing is
	want     *lockstep.Vector // want is what Demand told; nil if it did not

	// While it is charged:
	seq                  uint64
	prev, next           *job // neighbours in the queue, by seq
	preemptible, elastic bool
}

// part is one role of a charged job.
type part struct {
	members, spares, least int
	each                   lockstep.Vector
}

// amount returns what p takes, with room for its spares.
func (p *part) amount() lockstep.Vector {
	n := p.members
	if n > 0 {
		n += p.spares
	}
	return p.each.Mul(int64(n))
}

// charged returns what j is charged with.
func (j *job) charged() lockstep.Vector {
	var v lockstep.Vector
	for i := range j.parts {
		v = v.Add(j.parts[i].amount())
	}
	return v
}

// demand returns what j asks for: what it was charged or what was told, where that
// is more.
func (j *job) demand() lockstep.Vector {
	v := j.charged()
	if j.want != nil {
		for r := range v {
			v[r] = max(v[r], j.want[r])
		}
	}
	return v
}

// leaf returns the queue that g is charged to, nil if there is none.
func (q *Quota) leaf(g *lockstep.Gang) *node {
	name := g.Queue
	if name == "" || q.byTenant {
		name = lockstep.QueueID(g.Tenant)
	}
	n := q.nodes[name]
	if n == nil || len(n.children) != 0 {
		return nil
	}
	return n
}

// admit returns the queue of g, if an account can be kept of it.
func (q *Quota) admit(call string, g *lockstep.Gang, counts []int) (*node, error) {
	if !fits(g, counts) || len(g.Roles) == 0 {
		return nil, fault(lockstep.ErrInvalid, call, "counts", "", "want a count for each role, 0 or more")
	}
	if err := g.ID.Validate(); err != nil {
		return nil, fault(lockstep.ErrInvalid, call, "job", errtext.Quote(g.ID), reason(err))
	}
	return q.leafOf(call, g)
}

// leafOf is leaf, or the error that says why there is none.
func (q *Quota) leafOf(call string, g *lockstep.Gang) (*node, error) {
	n := q.leaf(g)
	switch {
	case n != nil:
		return n, nil
	case q.byTenant || g.Queue == "":
		return nil, fault(lockstep.ErrUnknown, call, "tenant", errtext.Quote(g.Tenant), "names no queue without queues under it")
	}
	return nil, fault(lockstep.ErrUnknown, call, "queue", errtext.Quote(g.Queue), "names no queue without queues under it")
}

// Check reports whether g may use counts members of each role now, beside all
// charges; nil stands for each role's Min. Counts that are not g's give
// lockstep.ReasonUnsupported.
func (q *Quota) Check(g *lockstep.Gang, counts []int) lockstep.Verdict {
	if !fits(g, counts) {
		return lockstep.Verdict{Reason: lockstep.ReasonUnsupported, Want: g.MinMembers()}
	}
	need, members := q.total(g, counts)
	leaf := q.leaf(g)
	if leaf == nil {
		return lockstep.Verdict{Reason: lockstep.ReasonQuota, Want: members}
	}
	w := newWay(q, leaf)
	var room lockstep.Vector
	for r := range room {
		room[r] = noLimit
	}
	ok := true
	for r := range q.schema.Len() {
		if need[r] > 0 {
			room[r] = q.room(&w, r, need[r])
			ok = ok && need[r] <= room[r]
		}
	}
	if ok {
		return lockstep.Verdict{Feasible: true, Fit: members, Want: members}
	}
	r, _ := need.Fits(room)
	v := lockstep.Verdict{
		Reason: lockstep.ReasonQuota, Fit: q.fit(g, counts, room), Want: members,
		Resource: q.schema.Name(r), Requested: need[r], Available: room[r],
	}
	if n, _ := q.binding(&w, r); n != q.root {
		v.Level, v.Domain = LevelQueue, string(n.spec.Name)
	}
	return v
}

// of returns what the members of the given ranks take; the ranks are in increasing
// order.
func (j *job) of(ranks []int) lockstep.Vector {
	var v lockstep.Vector
	first := 0
	for i := range j.parts {
		p := &j.parts[i]
		n := 0
		for n < len(ranks) && ranks[n] < first+p.members {
			n++
		}
		v = v.Add(p.each.Mul(int64(min(n, p.members))))
		ranks = ranks[n:]
		first += p.members
	}
	return v
}

// Charge takes what counts members of g use from its queue's quota, within it
// or not; nil stands for each role's Min.
func (q *Quota) Charge(g *lockstep.Gang, counts []int) error {
	leaf, err := q.admit("charge", g, counts)
	if err != nil {
		return err
	}
	j := q.jobs[g.ID]
	switch {
	case j == nil:
		j = &job{id: g.ID, queue: leaf}
	case j.parts != nil:
		return fault(lockstep.ErrDuplicate, "charge", "job", errtext.Quote(g.ID), "is charged")
	case j.queue != leaf:
		return fault(lockstep.ErrConflict, "charge", "job", errtext.Quote(g.ID), "waits in queue "+errtext.Quote(j.queue.spec.Name))
	}
	amount, _ := q.total(g, counts)
	if !adds(&q.root.used, &amount) {
		return fault(lockstep.ErrInvalid, "charge", "job", errtext.Quote(g.ID), "the sum of all charges is absurd")
	}
	before := j.demand()
	j.parts = make([]part, len(g.Roles))
	for i := range g.Roles {
		r := &g.Roles[i]
		p := part{members: count(g, counts, i), spares: r.Spares, least: r.Min}
		q.need(&p.each, &r.Demand, 1)
		j.parts[i] = p
	}
	j.priority, j.preemptible, j.elastic = g.Priority, g.Capabilities.Preemptible, g.Capabilities.Resizable
	q.jobs[g.ID] = j
	q.enter(j)
	q.charge(leaf, &amount, 1)
	after := j.demand()
	change := after.Sub(before)
	q.ask(leaf, &change, 1)
	return nil
}

// enter makes j the newest charged job of its queue.
func (q *Quota) enter(j *job) {
	n := j.queue
	q.seq++
	j.seq, j.prev, j.next = q.seq, n.last, nil
	if n.last != nil {
		n.last.next = j
	} else {
		n.first = j
	}
	n.last = j
	n.jobs++
	if j.want != nil {
		n.waiting--
	}
}

// leave takes j out of the charged jobs of its queue.
func (q *Quota) leave(j *job) {
	n := j.queue
	if j.prev != nil {
		j.prev.next = j.next
	} else {
		n.first = j.next
	}
	if j.next != nil {
		j.next.prev = j.prev
	} else {
		n.last = j.prev
	}
	j.seq, j.prev, j.next = 0, nil, nil
	n.jobs--
	if j.want != nil {
		n.waiting++
	}
}

// adds reports whether v+w stays within MaxAmount.
func adds(v, w *lockstep.Vector) bool {
	for i := range v {
		if w[i] > MaxAmount-v[i] {
			return false
		}
	}
	return true
}

// Refund gives back the charge of job. What Demand told of it stays.
func (q *Quota) Refund(id lockstep.JobID) error {
	j := q.jobs[id]
	if j == nil || j.parts == nil {
		return fault(lockstep.ErrUnknown, "refund", "job", errtext.Quote(id), "is not charged")
	}
	amount, before := j.charged(), j.demand()
	q.leave(j)
	j.parts = nil
	q.charge(j.queue, &amount, -1)
	after := j.demand()
	change := before.Sub(after)
	q.ask(j.queue, &change, -1)
	if j.want == nil {
		delete(q.jobs, id)
	}
	return nil
}

// Demand tells that g asks for counts members in all, whether it waits or is
// charged with less; nil stands for each role's Min. It holds, through Charge and
// Refund, until the next Demand for the job or its Withdraw. A queue of which
// nothing is told demands what its jobs are charged with.
func (q *Quota) Demand(g *lockstep.Gang, counts []int) error {
	leaf, err := q.admit("demand", g, counts)
	if err != nil {
		return err
	}
	j := q.jobs[g.ID]
	if j != nil && j.queue != leaf {
		return fault(lockstep.ErrConflict, "demand", "job", errtext.Quote(g.ID), "is in queue "+errtext.Quote(j.queue.spec.Name))
	}
	want, _ := q.total(g, counts)
	others := q.wanted
	if j != nil && j.want != nil {
		others = others.Sub(*j.want)
	}
	if !adds(&others, &want) {
		return fault(lockstep.ErrInvalid, "demand", "job", errtext.Quote(g.ID), "the sum of all demands is absurd")
	}
	if j == nil {
		j = &job{id: g.ID, queue: leaf}
		q.jobs[g.ID] = j
	}
	before := j.demand()
	if j.want == nil && j.parts == nil {
		leaf.waiting++
	}
	j.want = &want
	q.wanted = others.Add(want)
	after := j.demand()
	change := after.Sub(before)
	q.ask(leaf, &change, 1)
	return nil
}

// Withdraw forgets what Demand told of job, which ended or is no longer wanted. Its
// charge, if it has one, stays.
func (q *Quota) Withdraw(id lockstep.JobID) error {
	j := q.jobs[id]
	if j == nil || j.want == nil {
		return fault(lockstep.ErrUnknown, "withdraw", "job", errtext.Quote(id), "has no demand")
	}
	before := j.demand()
	q.wanted = q.wanted.Sub(*j.want)
	j.want = nil
	after := j.demand()
	change := before.Sub(after)
	q.ask(j.queue, &change, -1)
	if j.parts == nil {
		j.queue.waiting--
		delete(q.jobs, id)
	}
	return nil
}

// SetCapacity changes what is divided; a resource that is absent becomes 0. It
// may be less than what is used. It must not name resources that Config did not.
func (q *Quota) SetCapacity(capacity lockstep.Resources) error {
	v, err := q.amounts("set capacity", "Capacity", capacity, 0)
	if err != nil {
		return err
	}
	q.root.nominal = v
	q.divide()
	return nil
}

// SetTenant adds a tenant, or changes the weight of the queue of its name.
func (q *Quota) SetTenant(t Tenant) error {
	if err := checkTenant("set tenant", "Tenant", t); err != nil {
		return err
	}
	name := lockstep.QueueID(t.ID)
	if n := q.nodes[name]; n != nil {
		n.spec.Weight = t.Weight
		q.divide()
		return nil
	}
	q.nodes[name] = q.newNode(&Queue{Name: name, Weight: t.Weight})
	q.plant()
	return nil
}

// SetQueue adds a queue, or changes the one of its name, which may move to
// another parent. A queue with jobs can have no queues under it.
func (q *Quota) SetQueue(spec Queue) error {
	n := q.newNode(&spec)
	err := checkQueue("set queue", "Queue", &spec)
	if faults := q.read("set queue", "Queue", n); err == nil {
		err = faults
	}
	if err != nil {
		return err
	}
	old := q.nodes[spec.Name]
	if err := q.checkParent("set queue", "Queue.Parent", &spec, old); err != nil {
		return err
	}
	if old == nil {
		q.nodes[spec.Name] = n
		q.plant()
		return nil
	}
	moved := old.spec.Parent != spec.Parent
	old.spec, old.given = n.spec, n.given
	if moved {
		q.plant()
	} else {
		q.divide()
	}
	return nil
}

// Remove drops a tenant without charges; RemoveQueue says more.
func (q *Quota) Remove(id lockstep.TenantID) error {
	return q.remove("tenant", lockstep.QueueID(id))
}

// RemoveQueue drops a queue without jobs and without queues under it.
func (q *Quota) RemoveQueue(name lockstep.QueueID) error { return q.remove("queue", name) }

func (q *Quota) remove(field string, name lockstep.QueueID) error {
	n := q.nodes[name]
	conflict := func(reason string) error {
		return fault(lockstep.ErrConflict, "remove", field, errtext.Quote(name), reason)
	}
	switch {
	case n == nil:
		return fault(lockstep.ErrUnknown, "remove", field, errtext.Quote(name), "no such "+field)
	case len(n.children) != 0:
		return conflict(strconv.Itoa(len(n.children)) + " queues stand under it")
	case n.jobs != 0:
		return conflict(strconv.Itoa(n.jobs) + " jobs are charged to it")
	case n.waiting != 0:
		return conflict(strconv.Itoa(n.waiting) + " jobs wait in it")
	}
	delete(q.nodes, name)
	q.plant()
	return nil
}
