package drf

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

const (
	// MaxWeight is the largest weight of a tenant.
	MaxWeight = 1 << 32

	// MaxAmount is the largest amount of a resource, and the most that all jobs may
	// ask for, or use, together.
	MaxAmount = 1<<61 - 1

	// MaxDevices is MaxAmount for lockstep.ResourceGPU, which is counted with prices.
	MaxDevices lockstep.MilliGPU = 1 << 41

	// MaxDepth is how many tenants may stand one above another.
	MaxDepth = 32
)

// OnBlocked says who is passed over for the rest of a pass after a job that does not fit.
type OnBlocked string

// The ways to go on after a job that does not fit. The zero OnBlocked is BlockJob.
const (
	BlockJob    OnBlocked = ""       // BlockJob passes over the job, and goes on with the tenant's next.
	BlockTenant OnBlocked = "tenant" // BlockTenant passes over all jobs of the tenant, so that none overtakes.
	BlockAll    OnBlocked = "all"    // BlockAll ends the pass.
)

// Tenant is who has jobs, or tenants below it.
type Tenant struct {
	ID     lockstep.TenantID `json:"id"`               // ID is who it is; empty is a tenant like any other, without tenants below it.
	Parent lockstep.TenantID `json:"parent,omitempty"` // Parent is the tenant above; empty means none.
	Weight int64             `json:"weight"`           // Weight is 0 to MaxWeight; those of weight 0 come after all their siblings.
}

// Config configures a Queue. The zero Config is valid: it knows no resource, and so
// proposes jobs by tenant ID.
type Config struct {
	Capacity      lockstep.Resources `json:"capacity,omitempty"`      // Capacity is what there is, 0 or more of each resource; others do not count.
	Tenants       []Tenant           `json:"tenants,omitempty"`       // Tenants are those that may have jobs, in any order.
	DefaultWeight int64              `json:"defaultWeight,omitempty"` // DefaultWeight is the weight with which Submit lets in a tenant that is not known, at the top; 0 means that it refuses.
	OnBlocked     OnBlocked          `json:"onBlocked,omitempty"`     // OnBlocked says how a pass goes on after a job that does not fit.
	Prices        Prices             `json:"prices,omitzero"`         // Prices say what devices count for.
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	_, err := New(c)
	return err
}

// New returns a Queue without jobs.
func New(cfg Config) (*Queue, error) {
	var errs []error
	schema, err := lockstep.NewSchema(slices.Sorted(maps.Keys(cfg.Capacity))...)
	if err != nil {
		errs = append(errs, err)
		schema, _ = lockstep.NewSchema() // to find the other faults
	}
	q := &Queue{
		onBlocked: cfg.OnBlocked, prices: cfg.Prices, weight: cfg.DefaultWeight, schema: schema, gpu: -1,
		root: &tenant{at: -1}, tenants: make(map[lockstep.TenantID]*tenant, len(cfg.Tenants)), jobs: make(map[lockstep.JobID]*job),
	}
	if q.prices.Classes = maps.Clone(cfg.Prices.Classes); len(q.prices.Classes) == 0 {
		q.prices.Classes = nil
	}
	if i, ok := schema.Index(lockstep.ResourceGPU); ok {
		q.gpu = i
	}
	errs = append(errs, q.setCapacity("config", cfg.Capacity), q.prices.Validate())
	if b := cfg.OnBlocked; b != BlockJob && b != BlockTenant && b != BlockAll {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "OnBlocked", errtext.Quote(b), `want "", "tenant" or "all"`))
	}
	errs = append(errs, checkWeight("config", "DefaultWeight", cfg.DefaultWeight))
	for i, t := range cfg.Tenants {
		at := "Tenants[" + strconv.Itoa(i) + "]"
		errs = append(errs, checkTenant("config", at, t))
		if q.tenants[t.ID] != nil {
			errs = append(errs, fault(lockstep.ErrDuplicate, "config", at+".ID", errtext.Quote(t.ID), "named twice"))
		}
		q.tenants[t.ID] = &tenant{spec: t, at: -1}
	}
	for i, t := range cfg.Tenants {
		errs = append(errs, q.checkParent("config", "Tenants["+strconv.Itoa(i)+"].Parent", t))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	q.plant()
	return q, nil
}

func checkWeight(call, field string, w int64) error {
	if w < 0 || w > MaxWeight {
		return fault(lockstep.ErrInvalid, call, field, strconv.FormatInt(w, 10), "want 0 to 2^32")
	}
	return nil
}

// checkTenant reports every fault of t on its own, joined.
func checkTenant(call, at string, t Tenant) error {
	var errs []error
	if t.ID != "" {
		if err := t.ID.Validate(); err != nil {
			errs = append(errs, fault(lockstep.ErrInvalid, call, at+".ID", errtext.Quote(t.ID), reason(err)))
		}
	}
	return errors.Join(append(errs, checkWeight(call, at+".Weight", t.Weight))...)
}

// checkParent reports whether t can stand under its parent.
func (q *Queue) checkParent(call, field string, t Tenant) error {
	bad := func(kind error, reason string) error {
		return fault(kind, call, field, errtext.Quote(t.Parent), reason)
	}
	depth := 1
	for above := t.Parent; above != ""; depth++ {
		n := q.tenants[above]
		switch {
		case above == t.ID:
			return bad(lockstep.ErrInvalid, "stands below the tenant itself")
		case n == nil && above == t.Parent:
			return bad(lockstep.ErrUnknown, "no such tenant")
		case n == nil:
			return nil // the fault is another tenant's
		case depth == MaxDepth:
			return bad(lockstep.ErrInvalid, "is too deep, or under itself; want at most "+strconv.Itoa(MaxDepth)+" tenants one above another")
		case n.jobs > 0 && above == t.Parent:
			return bad(lockstep.ErrConflict, "has jobs")
		}
		above = n.spec.Parent
	}
	if n := q.tenants[t.ID]; n != nil && depth-1+n.height() > MaxDepth {
		return bad(lockstep.ErrInvalid, "is too deep for those below; want at most "+strconv.Itoa(MaxDepth)+" tenants one above another")
	}
	return nil
}

// amounts returns r by index and what its devices come to, and reports what
// is out of range, joined. Names that capacity has not are left out.
func (q *Queue) amounts(call, at string, r lockstep.Resources, rate func(lockstep.DeviceClass) int64) (v lockstep.Vector, priced int64, err error) {
	var errs []error
	devices := r[lockstep.ResourceGPU]
	for _, name := range slices.Sorted(maps.Keys(r)) {
		amount, most := r[name], int64(MaxAmount)
		class, isClass := strings.CutPrefix(string(name), string(lockstep.ResourceGPU)+"/")
		if isClass || name == lockstep.ResourceGPU {
			most = int64(MaxDevices)
		}
		if amount < 0 || amount > most {
			errs = append(errs, fault(lockstep.ErrInvalid, call, at+"."+string(name[:min(len(name), lockstep.MaxIDLength)]), strconv.FormatInt(amount, 10), "want 0 to "+strconv.FormatInt(most, 10)))
			continue
		}
		if i, ok := q.schema.Index(name); ok {
			v[i] = amount
		}
		if isClass {
			amount = min(amount, max(devices, 0))
			devices -= amount
			priced += amount * rate(lockstep.DeviceClass(class))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return lockstep.Vector{}, 0, err
	}
	if q.gpu < 0 {
		return v, 0, nil
	}
	return v, priced + max(devices, 0)*ReferencePrice, nil
}

func fault(kind error, call, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "drf: " + call, Field: field, Value: value, Reason: reason}
}

// reason returns what a validator of package lockstep found.
func reason(err error) string {
	var e *lockstep.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return err.Error()
}
