package quota

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

const (
	// MaxWeight is the largest weight of a queue.
	MaxWeight = 1 << 32

	// MaxAmount is the largest amount of a resource that may be configured, and the
	// most that all charges, or all demands, may come to together.
	MaxAmount = 1<<61 - 1

	// MaxDepth is how many queues may stand one above another.
	MaxDepth = 32
)

// Tenant is a queue at the top of the tree that has nothing but a weight.
type Tenant struct {
	ID     lockstep.TenantID `json:"id"`     // ID is whose it is, and names the queue; empty is a tenant like any other.
	Weight int64             `json:"weight"` // Weight is 0 to MaxWeight; a tenant of weight 0 can only borrow.
}

// Queue is a node of the tree. Jobs are charged to queues that have no queues
// under them; the others are what Kueue calls cohorts. Amounts are by resource, of
// those that Config.Capacity names; what a name that is absent means, each field says.
type Queue struct {
	Name   lockstep.QueueID `json:"name"`             // Name is unique in the tree.
	Parent lockstep.QueueID `json:"parent,omitempty"` // Parent is the queue above; empty means none.
	Weight int64            `json:"weight"`           // Weight is 0 to MaxWeight: its part, among its siblings, of what is divided by weight. One of weight 0 gets its guarantee, and borrows last.
	Tier   int32            `json:"tier,omitempty"`   // Tier orders siblings where not all get what they want: all of a higher one first.

	Nominal     lockstep.Resources `json:"nominal,omitempty"`     // Nominal is its own, its queues' included; absent means a part by weight of what the parent's siblings with a figure leave.
	Guarantee   lockstep.Resources `json:"guarantee,omitempty"`   // Guarantee is the part of Nominal that is never lent, not even while it is idle; absent means none.
	BorrowLimit lockstep.Resources `json:"borrowLimit,omitempty"` // BorrowLimit is how much more than Nominal it may use; absent means no limit.
	LendLimit   lockstep.Resources `json:"lendLimit,omitempty"`   // LendLimit is how much of Nominal others may use while it is idle; absent means all but the Guarantee.
	Max         lockstep.Resources `json:"max,omitempty"`         // Max is the most that it may use, Nominal or not; absent means no limit.

	NotReclaimable bool `json:"notReclaimable,omitempty"` // NotReclaimable keeps what it borrowed until its jobs end: no queue from outside may take it back.
}

// Config configures a Quota. The zero Config is valid: it limits nothing, and
// knows no queue.
type Config struct {
	Capacity         lockstep.Resources `json:"capacity,omitempty"`         // Capacity is what is divided, 0 or more of each resource; others are not limited.
	Tenants          []Tenant           `json:"tenants,omitempty"`          // Tenants are queues at the top with nothing but a weight, in any order.
	Queues           []Queue            `json:"queues,omitempty"`           // Queues are the tree, in any order.
	ByTenant         bool               `json:"byTenant,omitempty"`         // ByTenant charges each gang to the queue named as its Tenant, whatever its Queue.
	DisableBorrowing bool               `json:"disableBorrowing,omitempty"` // DisableBorrowing keeps every queue within its nominal quota.
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	_, err := New(c)
	return err
}

// New returns a Quota without charges.
func New(cfg Config) (*Quota, error) {
	var errs []error
	schema, err := lockstep.NewSchema(slices.Sorted(maps.Keys(cfg.Capacity))...)
	readable := err == nil
	if !readable {
		errs = append(errs, err)
		schema, _ = lockstep.NewSchema() // to find the other faults
	}
	q := &Quota{
		static:   cfg.DisableBorrowing,
		byTenant: cfg.ByTenant,
		schema:   schema,
		index:    newIndexes(schema),
		root:     &node{},
		nodes:    make(map[lockstep.QueueID]*node, len(cfg.Tenants)+len(cfg.Queues)),
		jobs:     make(map[lockstep.JobID]*job),
	}
	if q.root.nominal, err = q.amounts("config", "Capacity", cfg.Capacity, 0); err != nil && readable {
		errs = append(errs, err)
	}
	add := func(field string, spec *Queue) *node {
		if q.nodes[spec.Name] != nil {
			errs = append(errs, fault(lockstep.ErrDuplicate, "config", field, errtext.Quote(spec.Name), "named twice"))
		}
		n := q.newNode(spec)
		q.nodes[spec.Name] = n
		return n
	}
	for i, t := range cfg.Tenants {
		at := "Tenants[" + strconv.Itoa(i) + "]"
		errs = append(errs, checkTenant("config", at, t))
		add(at+".ID", &Queue{Name: lockstep.QueueID(t.ID), Weight: t.Weight})
	}
	for i := range cfg.Queues {
		at := "Queues[" + strconv.Itoa(i) + "]"
		errs = append(errs, checkQueue("config", at, &cfg.Queues[i]))
		n := add(at+".Name", &cfg.Queues[i])
		if readable {
			errs = append(errs, q.read("config", at, n))
		}
	}
	for i := range cfg.Queues {
		errs = append(errs, q.checkParent("config", "Queues["+strconv.Itoa(i)+"].Parent", &cfg.Queues[i], nil))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	q.plant()
	return q, nil
}

// newNode returns a node that stands nowhere yet, without amounts.
func (q *Quota) newNode(spec *Queue) *node {
	n := &node{spec: spec.clone()}
	for r := range q.schema.Len() {
		n.given.nominal[r], n.given.borrow[r], n.given.lend[r], n.given.most[r] = noLimit, noLimit, noLimit, noLimit
	}
	return n
}

// read sets the amounts that n is given, and reports every fault of them, joined.
func (q *Quota) read(call, at string, n *node) error {
	var errs []error
	amounts := func(field string, r lockstep.Resources, absent int64) lockstep.Vector {
		v, err := q.amounts(call, at+"."+field, r, absent)
		errs = append(errs, err)
		return v
	}
	g := &n.given
	g.nominal = amounts("Nominal", n.spec.Nominal, noLimit)
	g.guarantee = amounts("Guarantee", n.spec.Guarantee, 0)
	g.borrow = amounts("BorrowLimit", n.spec.BorrowLimit, noLimit)
	g.lend = amounts("LendLimit", n.spec.LendLimit, noLimit)
	g.most = amounts("Max", n.spec.Max, noLimit)
	for r := range q.schema.Len() {
		above := func(field string, v int64, reason string) {
			errs = append(errs, fault(lockstep.ErrInvalid, call, at+"."+field+"."+string(q.schema.Name(r)), strconv.FormatInt(v, 10), reason))
		}
		switch {
		case g.guarantee[r] > g.nominal[r]:
			above("Guarantee", g.guarantee[r], "is more than Nominal")
		case g.guarantee[r] > g.most[r]:
			above("Guarantee", g.guarantee[r], "is more than Max")
		case g.nominal[r] != noLimit && g.nominal[r] > g.most[r]:
			above("Nominal", g.nominal[r], "is more than Max")
		}
	}
	return errors.Join(errs...)
}

// amounts returns r by index, absent where a name is absent, and reports whatever
// is out of range or unknown, joined.
func (q *Quota) amounts(call, at string, r lockstep.Resources, absent int64) (lockstep.Vector, error) {
	var v lockstep.Vector
	for i := range q.schema.Len() {
		v[i] = absent
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(r)) {
		i, ok := q.schema.Index(name)
		switch amount := r[name]; {
		case !ok:
			errs = append(errs, fault(lockstep.ErrUnknown, call, at+"."+string(name), "", "Capacity does not name it"))
		case amount < 0:
			errs = append(errs, fault(lockstep.ErrInvalid, call, at+"."+string(name), strconv.FormatInt(amount, 10), "must not be negative"))
		case amount > MaxAmount:
			errs = append(errs, fault(lockstep.ErrInvalid, call, at+"."+string(name), strconv.FormatInt(amount, 10), "want at most 2^61-1"))
		default:
			v[i] = amount
		}
	}
	return v, errors.Join(errs...)
}

// checkTenant reports every fault of t, joined.
func checkTenant(call, at string, t Tenant) error {
	var errs []error
	if t.ID != "" {
		errs = append(errs, checkName(call, at+".ID", lockstep.QueueID(t.ID)))
	}
	return errors.Join(append(errs, checkWeight(call, at, t.Weight))...)
}

// checkQueue reports every fault of q's name and weight, joined.
func checkQueue(call, at string, q *Queue) error {
	return errors.Join(checkName(call, at+".Name", q.Name), checkWeight(call, at, q.Weight))
}

func checkWeight(call, at string, w int64) error {
	if w < 0 || w > MaxWeight {
		return fault(lockstep.ErrInvalid, call, at+".Weight", strconv.FormatInt(w, 10), "want 0 to 2^32")
	}
	return nil
}

func checkName(call, at string, name lockstep.QueueID) error {
	if err := name.Validate(); err != nil {
		return fault(lockstep.ErrInvalid, call, at, errtext.Quote(name), reason(err))
	}
	return nil
}

// checkParent reports whether the queue of spec can stand under its parent, where
// moved, if not nil, stands for the node of its name.
func (q *Quota) checkParent(call, at string, spec *Queue, moved *node) error {
	if spec.Parent == "" {
		return nil
	}
	bad := func(kind error, reason string) error {
		return fault(kind, call, at, errtext.Quote(spec.Parent), reason)
	}
	if err := checkName(call, at, spec.Parent); err != nil {
		return err
	}
	depth := 1
	for above := spec.Parent; above != ""; depth++ {
		n := q.nodes[above]
		switch {
		case above == spec.Name:
			return bad(lockstep.ErrInvalid, "stands below "+errtext.Quote(spec.Name)+" itself")
		case n == nil && above == spec.Parent:
			return bad(lockstep.ErrUnknown, "no such queue")
		case n == nil:
			return nil // the fault is another queue's
		case depth == MaxDepth:
			return bad(lockstep.ErrInvalid, "is too deep, or under itself; want at most "+strconv.Itoa(MaxDepth)+" queues one above another")
		case n.jobs+n.waiting > 0 && above == spec.Parent:
			return bad(lockstep.ErrConflict, "jobs are charged to it or wait in it")
		}
		above = n.spec.Parent
	}
	if moved != nil && depth-1+moved.height() > MaxDepth {
		return bad(lockstep.ErrInvalid, "is too deep for what stands below; want at most "+strconv.Itoa(MaxDepth)+" queues one above another")
	}
	return nil
}

func (s *Queue) clone() Queue {
	c := *s
	for _, r := range []*lockstep.Resources{&c.Nominal, &c.Guarantee, &c.BorrowLimit, &c.LendLimit, &c.Max} {
		if *r = maps.Clone(*r); len(*r) == 0 {
			*r = nil
		}
	}
	return c
}

func fault(kind error, call, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "quota: " + call, Field: field, Value: value, Reason: reason}
}

// reason returns what a validator of package lockstep found.
func reason(err error) string {
	var e *lockstep.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return err.Error()
}
