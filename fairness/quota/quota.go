package quota

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// MaxWeight is the largest weight of a tenant.
const MaxWeight = 1 << 32

// Tenant is a tenant's part of the capacity.
type Tenant struct {
	ID     lockstep.TenantID `json:"id"`     // ID is whose it is; empty is a tenant like any other.
	Weight int64             `json:"weight"` // Weight is 0 to MaxWeight; a tenant of weight 0 can only borrow.
}

// Config configures a Quota. The zero Config is valid: it limits nothing, and
// knows no tenant.
type Config struct {
	Capacity         lockstep.Resources `json:"capacity,omitempty"`         // Capacity is what is divided, 0 or more of each resource; others are not limited.
	Tenants          []Tenant           `json:"tenants,omitempty"`          // Tenants are those that may use it, in any order.
	DisableBorrowing bool               `json:"disableBorrowing,omitempty"` // DisableBorrowing keeps every tenant within its nominal quota.
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	_, err := New(c)
	return err
}

// Usage is the account of one tenant, by name; resources of which there is none
// are left out.
type Usage struct {
	Tenant  lockstep.TenantID  `json:"tenant"`            // Tenant is whose it is.
	Weight  int64              `json:"weight"`            // Weight is its weight.
	Jobs    int                `json:"jobs"`              // Jobs is how many of its jobs are charged.
	Nominal lockstep.Resources `json:"nominal,omitempty"` // Nominal is its own part of the capacity.
	Used    lockstep.Resources `json:"used,omitempty"`    // Used is what its jobs are charged with.
}

// Quota divides resources among tenants. Make one with New.
type Quota struct {
	borrow   bool
	schema   *lockstep.Schema
	index    indexes
	capacity lockstep.Vector
	used     lockstep.Vector // used is by all tenants.
	tenants  map[lockstep.TenantID]*tenant
	charges  map[lockstep.JobID]charge
}

type tenant struct {
	id      lockstep.TenantID
	weight  int64
	jobs    int
	nominal lockstep.Vector
	used    lockstep.Vector
}

type charge struct {
	tenant *tenant
	amount lockstep.Vector
}

// indexes are the places of what a Demand names; -1 where it is not limited.
type indexes struct {
	gpu, cpu, memory, rdma, slots int
	classes                       map[lockstep.DeviceClass]int
}

// New returns a Quota without charges.
func New(cfg Config) (*Quota, error) {
	var errs []error
	schema, err := lockstep.NewSchema(slices.Sorted(maps.Keys(cfg.Capacity))...)
	if err != nil {
		errs = append(errs, err)
		schema, _ = lockstep.NewSchema() // to find the other faults
		cfg.Capacity = nil
	}
	q := &Quota{
		borrow:  !cfg.DisableBorrowing,
		schema:  schema,
		tenants: make(map[lockstep.TenantID]*tenant, len(cfg.Tenants)),
		charges: make(map[lockstep.JobID]charge),
	}
	q.index = newIndexes(schema)
	if q.capacity, err = q.vector("config", cfg.Capacity); err != nil {
		errs = append(errs, err)
	}
	for i, t := range cfg.Tenants {
		at := "Tenants[" + strconv.Itoa(i) + "]"
		if err := check("config", at, t); err != nil {
			errs = append(errs, err)
		}
		if q.tenants[t.ID] != nil {
			errs = append(errs, fault(lockstep.ErrDuplicate, "config", at+".ID", errtext.Quote(t.ID), "named twice"))
		}
		q.tenants[t.ID] = &tenant{id: t.ID, weight: t.Weight}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	q.divide()
	return q, nil
}

func newIndexes(schema *lockstep.Schema) indexes {
	find := func(name lockstep.ResourceName) int {
		if i, ok := schema.Index(name); ok {
			return i
		}
		return -1
	}
	x := indexes{
		gpu: find(lockstep.ResourceGPU), cpu: find(lockstep.ResourceCPU), memory: find(lockstep.ResourceMemory),
		rdma: find(lockstep.ResourceRDMA), slots: find(lockstep.ResourceSlots),
		classes: make(map[lockstep.DeviceClass]int),
	}
	prefix := string(lockstep.ResourceGPUClass("x"))
	prefix = prefix[:len(prefix)-1]
	for i := range schema.Len() {
		if class, ok := strings.CutPrefix(string(schema.Name(i)), prefix); ok {
			x.classes[lockstep.DeviceClass(class)] = i
		}
	}
	return x
}

// vector returns r by index, and reports whatever is negative, joined.
func (q *Quota) vector(call string, r lockstep.Resources) (lockstep.Vector, error) {
	v, err := q.schema.Vector(r)
	if err != nil {
		return v, err
	}
	var errs []error
	for i := range q.schema.Len() {
		if v[i] < 0 {
			errs = append(errs, fault(lockstep.ErrInvalid, call, "Capacity."+string(q.schema.Name(i)), strconv.FormatInt(v[i], 10), "must not be negative"))
		}
	}
	return v, errors.Join(errs...)
}

// check reports every fault of t, joined.
func check(call, at string, t Tenant) error {
	var errs []error
	if t.ID != "" {
		if err := t.ID.Validate(); err != nil {
			errs = append(errs, fault(lockstep.ErrInvalid, call, at+".ID", errtext.Quote(t.ID), reason(err)))
		}
	}
	if t.Weight < 0 || t.Weight > MaxWeight {
		errs = append(errs, fault(lockstep.ErrInvalid, call, at+".Weight", strconv.FormatInt(t.Weight, 10), "want 0 to 2^32"))
	}
	return errors.Join(errs...)
}

// SetTenant adds a tenant, or changes its weight. Every nominal quota follows.
func (q *Quota) SetTenant(t Tenant) error {
	if err := check("set tenant", "Tenant", t); err != nil {
		return err
	}
	if old := q.tenants[t.ID]; old != nil {
		old.weight = t.Weight
	} else {
		q.tenants[t.ID] = &tenant{id: t.ID, weight: t.Weight}
	}
	q.divide()
	return nil
}

// Remove drops a tenant without charges. Every nominal quota follows.
func (q *Quota) Remove(id lockstep.TenantID) error {
	t := q.tenants[id]
	if t == nil {
		return fault(lockstep.ErrUnknown, "remove", "tenant", errtext.Quote(id), "no such tenant")
	}
	if t.jobs != 0 {
		return fault(lockstep.ErrConflict, "remove", "tenant", errtext.Quote(id), strconv.Itoa(t.jobs)+" jobs are charged to it")
	}
	delete(q.tenants, id)
	q.divide()
	return nil
}

// SetCapacity changes what is divided; a resource that is absent becomes 0. It
// may be less than what is used. It must not name resources that Config did not.
func (q *Quota) SetCapacity(capacity lockstep.Resources) error {
	v, err := q.vector("set capacity", capacity)
	if err != nil {
		return err
	}
	q.capacity = v
	q.divide()
	return nil
}

// divide sets every nominal quota.
func (q *Quota) divide() {
	all := make([]*tenant, 0, len(q.tenants))
	var total uint64
	for _, t := range q.tenants { // in any order: sorted below
		all = append(all, t)
		total += uint64(t.weight)
	}
	if total == 0 {
		for _, t := range all {
			t.nominal = lockstep.Vector{}
		}
		return
	}
	slices.SortFunc(all, func(a, b *tenant) int { return cmp.Compare(a.id, b.id) })
	type part struct {
		tenant *tenant
		rest   uint64
	}
	parts := make([]part, len(all))
	for r := range q.schema.Len() {
		left := q.capacity[r]
		for i, t := range all {
			hi, lo := bits.Mul64(uint64(q.capacity[r]), uint64(t.weight))
			quo, rest := bits.Div64(hi, lo, total) // hi < total, since capacity < 2^64 and weight <= total
			t.nominal[r] = int64(quo)
			left -= int64(quo)
			parts[i] = part{t, rest}
		}
		// Less than one unit for each tenant is left.
		slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.rest, a.rest) })
		for i := range parts[:left] {
			parts[i].tenant.nominal[r]++
		}
	}
}

// need adds what n members with demand d use to v.
func (q *Quota) need(v *lockstep.Vector, d *lockstep.Demand, n int) {
	add := func(i int, each int64) {
		if i >= 0 && each != 0 {
			v[i] = int64(lockstep.MilliGPU(v[i]).Add(lockstep.MilliGPU(each).Mul(int64(n))))
		}
	}
	gpu := int64(d.DeviceShare().Mul(int64(d.GPUs)))
	add(q.index.gpu, gpu)
	if len(d.Classes) == 1 {
		if i, ok := q.index.classes[d.Classes[0]]; ok {
			add(i, gpu)
		}
	}
	add(q.index.cpu, int64(d.CPU))
	add(q.index.memory, int64(d.Memory))
	add(q.index.rdma, int64(d.RDMA))
	add(q.index.slots, 1)
}

// total returns what counts members use, and how many they are.
func (q *Quota) total(g *lockstep.Gang, counts []int) (v lockstep.Vector, members int) {
	for i := range g.Roles {
		n := count(g, counts, i)
		q.need(&v, &g.Roles[i].Demand, n)
		members += n
	}
	return v, members
}

func count(g *lockstep.Gang, counts []int, role int) int {
	if counts == nil {
		return g.Roles[role].Min
	}
	return counts[role]
}

// fits reports whether counts are counts of g.
func fits(g *lockstep.Gang, counts []int) bool {
	if counts == nil {
		return true
	}
	for _, n := range counts {
		if n < 0 || n > lockstep.MaxMembers {
			return false
		}
	}
	return len(counts) == len(g.Roles)
}

// room returns what t may still use, 0 where that is overdrawn.
func (q *Quota) room(t *tenant) lockstep.Vector {
	room, free := t.nominal.Sub(t.used), q.capacity.Sub(q.used)
	for i := range room {
		if q.borrow {
			room[i] = max(room[i], free[i])
		}
		// All charges together stay inside int64, or Charge would refuse.
		room[i] = max(min(room[i], math.MaxInt64-1-q.used[i]), 0)
	}
	return room
}

// Check reports whether g may use counts members of each role now, beside all
// charges; nil stands for each role's Min. Counts that are not g's give
// lockstep.ReasonUnsupported.
func (q *Quota) Check(g *lockstep.Gang, counts []int) lockstep.Verdict {
	if !fits(g, counts) {
		return lockstep.Verdict{Reason: lockstep.ReasonUnsupported, Want: g.MinMembers()}
	}
	need, members := q.total(g, counts)
	var room lockstep.Vector
	t := q.tenants[g.Tenant]
	if t != nil {
		room = q.room(t)
	}
	for i := q.schema.Len(); i < len(room); i++ {
		room[i] = math.MaxInt64
	}
	r, ok := need.Fits(room)
	switch {
	case t == nil:
		return lockstep.Verdict{Reason: lockstep.ReasonQuota, Want: members}
	case ok:
		return lockstep.Verdict{Feasible: true, Fit: members, Want: members}
	}
	return lockstep.Verdict{
		Reason: lockstep.ReasonQuota, Fit: q.fit(g, counts, room), Want: members,
		Resource: q.schema.Name(r), Requested: need[r], Available: room[r],
	}
}

// fit returns how many members there is room for, in rank order.
func (q *Quota) fit(g *lockstep.Gang, counts []int, room lockstep.Vector) int {
	fit := 0
	for i := range g.Roles {
		var each lockstep.Vector
		q.need(&each, &g.Roles[i].Demand, 1)
		n := int64(count(g, counts, i))
		most := n
		for r := range q.schema.Len() {
			if each[r] > 0 {
				most = min(most, room[r]/each[r])
			}
		}
		fit += int(most)
		if most < n {
			break
		}
		room = room.Sub(each.Mul(n))
	}
	return fit
}

// Charge takes what counts members of g use from its tenant's quota, within it
// or not; nil stands for each role's Min.
func (q *Quota) Charge(g *lockstep.Gang, counts []int) error {
	if !fits(g, counts) {
		return fault(lockstep.ErrInvalid, "charge", "counts", "", "want a count for each role, 0 or more")
	}
	t := q.tenants[g.Tenant]
	if t == nil {
		return fault(lockstep.ErrUnknown, "charge", "tenant", errtext.Quote(g.Tenant), "no such tenant")
	}
	if _, ok := q.charges[g.ID]; ok {
		return fault(lockstep.ErrDuplicate, "charge", "job", errtext.Quote(g.ID), "is charged")
	}
	amount, _ := q.total(g, counts)
	if !adds(q.used, amount) {
		return fault(lockstep.ErrInvalid, "charge", "job", errtext.Quote(g.ID), "the sum of all charges is absurd")
	}
	q.charges[g.ID] = charge{t, amount}
	t.used, q.used = t.used.Add(amount), q.used.Add(amount)
	t.jobs++
	return nil
}

// adds reports whether v+w stays inside int64, so that it can be taken back.
func adds(v, w lockstep.Vector) bool {
	for i := range v {
		if w[i] > math.MaxInt64-v[i] || w[i] == math.MaxInt64 {
			return false
		}
	}
	return true
}

// Refund gives back the charge of job.
func (q *Quota) Refund(job lockstep.JobID) error {
	c, ok := q.charges[job]
	if !ok {
		return fault(lockstep.ErrUnknown, "refund", "job", errtext.Quote(job), "is not charged")
	}
	delete(q.charges, job)
	c.tenant.used, q.used = c.tenant.used.Sub(c.amount), q.used.Sub(c.amount)
	c.tenant.jobs--
	return nil
}

// Usage returns the account of a tenant.
func (q *Quota) Usage(id lockstep.TenantID) (Usage, bool) {
	t := q.tenants[id]
	if t == nil {
		return Usage{}, false
	}
	return Usage{
		Tenant: id, Weight: t.weight, Jobs: t.jobs,
		Nominal: q.schema.Resources(t.nominal), Used: q.schema.Resources(t.used),
	}, true
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
