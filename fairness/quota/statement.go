package quota

import (
	"strings"

	"github.com/lockstep-gpu/lockstep"
)

// Usage is the account of one tenant, by name; resources of which there is none
// are left out.
type Usage struct {
	Tenant  lockstep.TenantID  `json:"tenant"`            // Tenant is whose it is.
	Weight  int64              `json:"weight"`            // Weight is its weight.
	Jobs    int                `json:"jobs"`              // Jobs is how many of its jobs are charged.
	Nominal lockstep.Resources `json:"nominal,omitempty"` // Nominal is its own part of the capacity.
	Used    lockstep.Resources `json:"used,omitempty"`    // Used is what its jobs are charged with.
}

// Usage returns the account of a tenant: of the queue of its name.
func (q *Quota) Usage(id lockstep.TenantID) (Usage, bool) {
	n := q.nodes[lockstep.QueueID(id)]
	if n == nil {
		return Usage{}, false
	}
	return Usage{
		Tenant: id, Weight: n.spec.Weight, Jobs: n.jobs,
		Nominal: q.schema.Resources(n.nominal), Used: q.schema.Resources(n.used),
	}, true
}

// Statement is the account of one queue, the queues under it included, by name;
// resources of which there is none are left out.
type Statement struct {
	Queue   lockstep.QueueID `json:"queue"`            // Queue is whose it is.
	Parent  lockstep.QueueID `json:"parent,omitempty"` // Parent is the queue above; empty means none.
	Weight  int64            `json:"weight"`           // Weight is its weight.
	Tier    int32            `json:"tier,omitempty"`   // Tier is its tier.
	Jobs    int              `json:"jobs"`             // Jobs is how many jobs are charged to it itself.
	Waiting int              `json:"waiting"`          // Waiting is how many of its own jobs demand but are not charged.

	Nominal   lockstep.Resources `json:"nominal,omitempty"`   // Nominal is its own, as it was given or divided, and cut where the parent has less.
	Kept      lockstep.Resources `json:"kept,omitempty"`      // Kept is the part of Nominal that is never lent.
	Used      lockstep.Resources `json:"used,omitempty"`      // Used is what its jobs are charged with.
	Demand    lockstep.Resources `json:"demand,omitempty"`    // Demand is what its jobs demand, those that are charged included.
	Deserved  lockstep.Resources `json:"deserved,omitempty"`  // Deserved is its fair share, by present demands; no more than it demands.
	Borrowed  lockstep.Resources `json:"borrowed,omitempty"`  // Borrowed is what it uses, or keeps for queues under it, above Nominal.
	Available lockstep.Resources `json:"available,omitempty"` // Available is what it may add now, by right or as a loan.
}

// Statement returns the account of a queue. It is O(queues in and under it, and
// beside those above it × resources) after a change, and allocates.
func (q *Quota) Statement(name lockstep.QueueID) (Statement, bool) {
	n := q.nodes[name]
	if n == nil {
		return Statement{}, false
	}
	w := newWay(q, n)
	var deserved, borrowed, available lockstep.Vector
	for r := range q.schema.Len() {
		q.refresh(&w, r)
		deserved[r] = q.deserved(n, r)
		borrowed[r] = max(n.load[r]-n.nominal[r], 0)
		m := q.measure(&w, r, true)
		available[r] = max(min(m.right[0], MaxAmount-q.root.used[r]), 0)
	}
	by := q.schema.Resources
	return Statement{
		Queue: name, Parent: n.spec.Parent, Weight: n.spec.Weight, Tier: n.spec.Tier, Jobs: n.jobs, Waiting: n.waiting,
		Nominal: by(n.nominal), Kept: by(n.kept), Used: by(n.used), Demand: by(n.demand),
		Deserved: by(deserved), Borrowed: by(borrowed), Available: by(available),
	}, true
}

// deserved returns what the jobs in and below n deserve; the division above must be
// fresh.
func (q *Quota) deserved(n *node, r int) (sum int64) {
	if len(n.children) == 0 {
		return min(n.got(r), n.most[r], n.asked[r])
	}
	q.distribute(n, r)
	for _, c := range n.children {
		sum += q.deserved(c, r)
	}
	return sum
}

// AppendQueues appends the names of all queues to dst, parents first and siblings by name.
func (q *Quota) AppendQueues(dst []lockstep.QueueID) []lockstep.QueueID {
	for _, n := range q.order[1:] {
		dst = append(dst, n.spec.Name)
	}
	return dst
}

// Explain tells why counts members of g may or may not run now: Check's verdict, how
// the queue and each one above it stand in the resource that binds, and what would
// let g in.
func (q *Quota) Explain(g *lockstep.Gang, counts []int) lockstep.Explanation {
	e := lockstep.Explanation{Job: g.ID, Verdict: q.Check(g, counts)}
	note := func(reason lockstep.Reason, detail string) {
		e.Notes = append(e.Notes, lockstep.Note{Stage: "quota", Reason: reason, Detail: detail})
	}
	leaf := q.leaf(g)
	switch {
	case e.Verdict.Reason == lockstep.ReasonUnsupported:
		return e
	case leaf == nil:
		_, err := q.leafOf("explain", g)
		note(ReasonNoQueue, strings.TrimPrefix(err.Error(), "quota: explain: "))
		return e
	}
	w := newWay(q, leaf)
	r, bound := q.schema.Index(e.Verdict.Resource)
	if !bound {
		return e
	}
	binds, why := q.binding(&w, r)
	q.refresh(&w, r)
	for _, n := range w.nodes[:w.length] {
		reason := lockstep.ReasonQuota
		if n == binds {
			reason = why
		}
		note(reason, q.describe(n, r))
	}
	if binds == q.root {
		note(why, q.schema.Resources(q.only(r, q.root.used)).String()+" of "+q.schema.Resources(q.only(r, q.root.nominal)).String()+" used")
	}
	add := lockstep.Change{Kind: lockstep.ChangeAdd, Resource: e.Verdict.Resource, Amount: e.Verdict.Requested - e.Verdict.Available}
	add.Level, add.Domain = e.Verdict.Level, e.Verdict.Domain
	e.Changes = append(e.Changes, add)
	if e.Verdict.Fit >= g.MinMembers() {
		e.Changes = append(e.Changes, lockstep.Change{Kind: lockstep.ChangeShrink, Amount: int64(e.Verdict.Fit)})
	}
	return e
}

// describe says how n stands in one resource.
func (q *Quota) describe(n *node, r int) string {
	text := func(v int64) string {
		if v == noLimit {
			return "any"
		}
		s := lockstep.Resources{q.schema.Name(r): v}.String()
		return s[strings.IndexByte(s, '=')+1:]
	}
	return "queue " + string(n.spec.Name) + ": " + string(q.schema.Name(r)) + " used " + text(n.used[r]) + ", nominal " + text(n.nominal[r]) +
		", share " + text(n.got(r)) + ", at most " + text(n.most[r])
}

// only returns v with nothing but resource r.
func (q *Quota) only(r int, v lockstep.Vector) (one lockstep.Vector) {
	one[r] = v[r]
	return one
}
