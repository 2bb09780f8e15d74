package scheduler

import (
	"maps"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness/quota"
)

// static is the quota of the rule Static: each tenant has its nominal part and
// borrows nothing, its jobs start in the order of submission, and one that is
// wider than all of the part may run alone, so that it is not refused for ever.
type static struct {
	*quota.Quota
	weight  int64                      // of tenants that are not named
	charges map[lockstep.JobID]*charge // what Quota was told, since it has no snapshot
	joined  map[lockstep.TenantID]bool // tenants that are not named
}

type charge struct {
	gang   *lockstep.Gang
	counts []int
}

func newStatic(cfg Config, devices int) (*static, error) {
	c := quota.Config{
		Capacity:         lockstep.Resources{lockstep.ResourceGPU: int64(lockstep.WholeGPU.Mul(int64(devices)))},
		ByTenant:         true,
		DisableBorrowing: true,
	}
	for _, t := range slices.Sorted(maps.Keys(cfg.Weights)) {
		c.Tenants = append(c.Tenants, quota.Tenant{ID: t, Weight: cfg.Weights[t]})
	}
	q, err := quota.New(c)
	if err != nil {
		return nil, err
	}
	return &static{Quota: q, weight: cfg.DefaultWeight, charges: make(map[lockstep.JobID]*charge), joined: make(map[lockstep.TenantID]bool)}, nil
}

// join lets an unnamed tenant in.
func (q *static) join(t lockstep.TenantID) error {
	if _, ok := q.Usage(t); ok {
		return nil
	}
	q.joined[t] = true
	return q.SetTenant(quota.Tenant{ID: t, Weight: q.weight})
}

// Check is that of gang.Quota.
func (q *static) Check(g *lockstep.Gang, counts []int) lockstep.Verdict {
	v := q.Quota.Check(g, counts)
	if v.Feasible {
		return v
	}
	if u, ok := q.Usage(g.Tenant); ok && u.Jobs == 0 && v.Reason == lockstep.ReasonQuota {
		v.Feasible, v.Reason = true, ""
	}
	return v
}

// Charge is that of gang.Quota.
func (q *static) Charge(g *lockstep.Gang, counts []int) error {
	if err := q.Quota.Charge(g, counts); err != nil {
		return err
	}
	q.charges[g.ID] = &charge{gang: g, counts: slices.Clone(counts)}
	return nil
}

// Refund is that of gang.Quota.
func (q *static) Refund(id lockstep.JobID) error {
	if err := q.Quota.Refund(id); err != nil {
		return err
	}
	delete(q.charges, id)
	return nil
}
