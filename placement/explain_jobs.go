package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// explainedMoves is how many jobs a change may move.
const explainedMoves = 4

// yielding returns the jobs that may be stopped and are of a priority up to most.
func (e *explainer) yielding(most lockstep.Priority) (jobs []lockstep.JobID) {
	for id, rec := range e.s.byID { // in any order: sorted below
		if g := e.s.jobs[rec].gang; g.Capabilities.Preemptible && g.Priority <= most && id != e.g.ID {
			jobs = append(jobs, id)
		}
	}
	slices.Sort(jobs)
	return jobs
}

// evict looks for the fewest jobs of lower priority whose end would let the gang in.
func (e *explainer) evict() {
	if e.g.Preemption == lockstep.PreemptNever || e.g.Priority == math.MinInt32 {
		return
	}
	var c lockstep.Candidates
	for _, id := range e.yielding(e.g.Priority - 1) {
		c.Jobs = append(c.Jobs, lockstep.Candidate{Job: id})
	}
	var out lockstep.Preempted
	v, err := e.s.Victims(e.r, &c, &out)
	if err != nil || !v.Feasible {
		return
	}
	o := lockstep.Change{Kind: lockstep.ChangeEvict}
	for i := range out.Evictions {
		o.Jobs = append(o.Jobs, out.Evictions[i].Job)
	}
	e.propose(o)
}

// move looks for the fewest jobs, of no higher priority, whose move would let the gang
// in.
func (e *explainer) move() {
	r := *e.r
	r.Prefer = nil
	goal := &Goal{Request: &r, MaxMoves: explainedMoves}
	for _, id := range e.yielding(e.g.Priority) {
		goal.Jobs = append(goal.Jobs, Movable{Job: id})
	}
	var out Moves
	v, err := e.s.Repack(goal, &out)
	if err != nil || !v.Feasible || len(out.Moves) == 0 {
		return
	}
	o := lockstep.Change{Kind: lockstep.ChangeMove, Level: out.Moves[0].Level, Domain: out.Moves[0].Domain}
	for i := range out.Moves {
		o.Jobs = append(o.Jobs, out.Moves[i].Job)
	}
	slices.SortFunc(o.Jobs, cmp.Compare[lockstep.JobID])
	e.propose(o)
}
