// Package quota decides whether a tenant may use so much now: a flat division of
// the cluster's resources by weight, with or without borrowing. It implements
// gang.Quota.
//
// # Model
//
// Every tenant has a nominal quota of every resource in Config.Capacity: the
// capacity times its weight over the sum of weights, in the resource's own unit,
// by largest remainder, so that nominal quotas add up to the capacity (while any
// weight is above 0). A charge is what one job uses, by its gang's demands; used
// is the sum of a tenant's charges. Resources that Capacity does not name are
// not limited and not counted.
//
// Invariants: a tenant's used is the sum of the charges of its jobs, exactly;
// Charge and Refund of the same job cancel; what Check allows keeps every tenant
// within nominal, or, beyond that, the sum of all used within capacity.
//
// # Usage
//
//	q, err := quota.New(quota.Config{
//		Capacity: lockstep.Resources{lockstep.ResourceGPU: 64_000},
//		Tenants:  []quota.Tenant{{ID: "vision", Weight: 3}, {ID: "speech", Weight: 1}},
//	})
//	if v := q.Check(gang, nil); v.Feasible {
//		err = q.Charge(gang, nil)
//	}
//	err = q.Refund(gang.ID)
//
// # Order of decision
//
// For each resource, the room of a tenant is what its nominal quota leaves above
// its used. With borrowing it is, where that is more, what the capacity leaves
// above the used of all tenants: any unused quota is lent, to whoever asks first.
// A gang may run if it asks for no more of any resource than the room, which is never less than none. A tenant within its
// nominal quota is never refused because others borrowed what is its own: then
// the placer finds no room, and whoever takes back what was lent has the right
// to. A verdict names the first resource, by name, that does not suffice, and
// how many members would fit, counted in rank order.
//
// Largest remainder goes by remainder, then to the lesser tenant ID.
//
// # Errors
//
// lockstep.ErrInvalid for capacities, weights and counts out of range,
// ErrDuplicate for a tenant named twice and for a job charged twice, ErrUnknown
// for a tenant or job that is not there, ErrConflict for dropping a tenant that
// has charges. After an error nothing has changed. Check answers with a verdict:
// lockstep.ReasonQuota, for a tenant that is not there as well.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// Check and Charge are O(roles × resources), Refund O(resources); Check
// allocates nothing. SetTenant, Remove and SetCapacity are O(tenants log
// tenants × resources). Memory is O(tenants + charged jobs).
//
// # Limits
//
// Charge records what it is told, above quota too, since jobs that run already
// must be counted. Quotas are kept for live jobs only, so that a host that
// restarts charges its running gangs again; there is no snapshot. There is no
// hierarchy and no limit on what one tenant may borrow.
package quota
