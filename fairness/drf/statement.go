package drf

import "github.com/lockstep-gpu/lockstep"

// Statement is the account of one tenant, those below it included.
type Statement struct {
	Tenant   lockstep.TenantID     `json:"tenant"`             // Tenant is whose it is.
	Parent   lockstep.TenantID     `json:"parent,omitempty"`   // Parent is the tenant above; empty means none.
	Weight   int64                 `json:"weight"`             // Weight is its weight.
	Jobs     int                   `json:"jobs"`               // Jobs is how many jobs it has itself, waiting or not.
	Used     lockstep.Resources    `json:"used,omitempty"`     // Used is what its jobs use.
	Dominant lockstep.ResourceName `json:"dominant,omitempty"` // Dominant is the resource of which it uses the greatest part; empty where it uses none.
	Share    Ratio                 `json:"share"`              // Share is that part, by price, over its weight.
}

// Statement returns the account of a tenant, with what passes granted or lifted left out.
// Its share is of what is used, added up, and not scaled as in a pass.
func (q *Queue) Statement(id lockstep.TenantID) (Statement, bool) {
	t := q.tenants[id]
	if t == nil {
		return Statement{}, false
	}
	s := Statement{Tenant: id, Parent: t.spec.Parent, Weight: t.spec.Weight, Jobs: t.jobs, Used: q.schema.Resources(t.raw)}
	r, share := Dominant(q.running(t), q.capacity, t.spec.Weight)
	if share.Cmp(Ratio{}) > 0 {
		s.Dominant, s.Share = q.schema.Name(r), share
	}
	return s, true
}

// running returns what t uses, by price.
func (q *Queue) running(t *tenant) lockstep.Vector {
	v := t.used
	for _, jobs := range [][]*job{q.granted, q.due} {
		for _, j := range jobs {
			if !below(j.tenant, t) {
				continue
			}
			if j.granted {
				v = v.Sub(q.price(j.demand))
			}
			if j.lifted {
				v = v.Add(q.price(j.used))
			}
		}
	}
	return v
}

// below reports whether t is u or stands below it.
func below(t, u *tenant) bool {
	for ; t != nil; t = t.parent {
		if t == u {
			return true
		}
	}
	return false
}
