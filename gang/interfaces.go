package gang

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Orderer says whose turn it is, one job at a time, since the order may change
// with each grant. It must be deterministic. Between Begin and the end of a
// pass each Next is followed by one Outcome, before the next Next. A job may be
// waiting or hold devices whose term is over; others are passed over. A pass asks
// no further once it knows that nothing is left to decide.
type Orderer interface {
	// Begin starts a pass at time now, from the front.
	Begin(now time.Time)
	// Next proposes a job; false ends the pass.
	Next() (lockstep.JobID, bool)
	// Outcome tells what became of the job that Next proposed last.
	Outcome(job lockstep.JobID, outcome lockstep.Outcome)
}

// Placer finds room and keeps the account of it. It must be deterministic.
// placertest.TestPlacer holds one to this contract.
type Placer interface {
	// Fit finds room for r now and writes it to out, which holds nothing yet.
	// It keeps neither. Where r.Prefer is still free, its members stay there.
	// An error of kind lockstep.ErrInvalid or ErrUnknown means that r.Gang can never
	// be placed, such as for a level that does not exist; nodes that do not exist
	// are no error.
	Fit(r *lockstep.Request, out *lockstep.Plan) (lockstep.Verdict, error)
	// Apply takes the room of p, all of it or, with an error, none. A plan from
	// another version of the state is lockstep.ErrStale.
	Apply(p *lockstep.Plan) error
	// Release gives back all the room of job.
	Release(job lockstep.JobID) error
}

// WhatIf is what a Placer can also do so that futures can be tried out:
// reservations, backfill and boundaries need it.
type WhatIf interface {
	// Mark names the present state. Marks nest.
	Mark() lockstep.Mark
	// Rollback restores the state of m, its version included, and forgets m
	// and the marks made after it.
	Rollback(m lockstep.Mark) error
}

// Explainer is what a Placer can also do to say why a request does not fit.
type Explainer interface {
	// Explain tells why r does or does not fit now.
	Explain(r *lockstep.Request) (lockstep.Explanation, error)
}

// Preempter is what a Placer can also do to find whom to stop so that a gang gets
// in. Config.Preempt needs it, and WhatIf.
type Preempter interface {
	// Victims finds room for r that some of c would have to leave, and writes it
	// and them to out; it changes nothing. Each eviction is of a whole job or, with
	// Ranks, of some members of one that may shrink, which keeps its Min. The set is
	// minimal: with any of them left out r would not fit. Those of higher tiers
	// are never taken where lower ones suffice, and no limit of c is exceeded.
	Victims(r *lockstep.Request, c *lockstep.Candidates, out *lockstep.Preempted) (lockstep.Verdict, error)
}

// Keeper is what a Placer can also do so that who shrinks keeps its other members in
// place where nobody new may go, such as on a cordoned node.
type Keeper interface {
	// Adopt takes the room of p, all of it or, with an error, none: whatever the
	// version, and on closed nodes too.
	Adopt(p *lockstep.Plan) error
	// Plan writes what job holds to out, or returns false.
	Plan(job lockstep.JobID, out *lockstep.Plan) bool
}

// Quota says how much a tenant or queue may use. It must be deterministic.
// Counts are members of each role, without spares: whether it charges those as well
// is its own affair.
type Quota interface {
	// Check reports whether g may use counts members now, beside all charges.
	Check(g *lockstep.Gang, counts []int) lockstep.Verdict
	// Charge takes quota for g; after a feasible Check it must not fail. A job
	// has at most one charge.
	Charge(g *lockstep.Gang, counts []int) error
	// Refund gives back the whole charge of job.
	Refund(job lockstep.JobID) error
}

// Reclaimer is what a Quota can also do to say from whom a gang may take room.
type Reclaimer interface {
	// Reclaim lists the charged jobs that may have to make room for counts members
	// of g, with tiers and limits, so that whatever is taken within the limits
	// leaves each queue what it deserves. The order of the jobs is that in which they
	// go for want of quota. Costs, Min and Max are filled in by the caller. Who is
	// listed depends on nothing of g but its tenant, queue, priority and demands.
	Reclaim(g *lockstep.Gang, counts []int, out *lockstep.Candidates)
}

// Ranker is what an Orderer can also do: say which due holders go first when one
// has to make room for a job that is proposed ahead of it.
type Ranker interface {
	// Ahead reports whether the due holder a is to stay rather than b.
	Ahead(a, b lockstep.JobID) bool
}

// AfterChecker is what a Quota can also do to say what Check would say if others had
// given back what they have, without their doing so.
type AfterChecker interface {
	// CheckAfter reports whether g may use counts members once evictions are carried
	// out. It changes nothing.
	CheckAfter(g *lockstep.Gang, counts []int, evictions []lockstep.Eviction) lockstep.Verdict
}

// Coster says what stopping a job would throw away.
type Coster interface {
	// Cost returns what stopping job at now throws away, its devices apart; false
	// where that is not known.
	Cost(job lockstep.JobID, now time.Time) (lockstep.EvictionCost, bool)
}
