// Package policy steadies a wished size before anybody acts on it, and judges what an optional solver proposes beside
// the fast answer. The orders, deadlines, sizes and mixes themselves are in the packages below this one.
//
// # Model
//
// A size is a count: the devices of a training job, the replicas of a served model. Something wishes for one, again
// and again, and what it wishes for jumps about. [Steady] turns the wish into a size to have now. It is made of
// decorators, each of which is also of use by itself and does nothing as a zero value:
//
//	Hysteresis   a wish that is not a whole number (load over target) needs to pass an edge by a band
//	Delayed      only a change that was wanted throughout the last Up or Down is made
//	RateLimited  at most so much of a change in any Interval
//	Cooldown     no rise (fall) for Up (Down) after any change
//	Bounded      sizes are Min to Max, in multiples of Step or powers of two
//
// Have is what there is or is on its way: a replica that still starts is had, or it would be asked for again and
// again. Decorators learn of changes from it, so one that the caller could not make was not made.
//
// A [Seam] lets a slow solver help without being waited for. The fast path answers at every event. Ask hands out the
// version, a deadline and a seed; the caller runs the solver wherever it likes; Answer judges what comes back with the
// check that judges the fast path's plans, and drops and counts it with an [Outcome] if it came late, is for a state
// that has moved on, does not fit, or is no better.
//
// Invariants: a Verdict's Target lies from Min to Max, and is legal or what is had; a zero Steady returns the wish, rounded up; without a change
// of wish or have, Target does not change between two instants of NextWake; a plan is adopted only after Check accepted
// it; one Ask is open at a time and is answered at most once.
//
// # Usage
//
//	s := policy.Steady{Delayed: policy.Delayed{Up: 30 * time.Second, Down: 10 * time.Minute}, Bounded: policy.Bounded{Min: 1, Max: 64}}
//	want, err := policy.DemandOf(ongoing, perReplica)
//	v, err := s.Step(now, ready+starting, want) // have v.Target; call again at s.NextWake() at the latest
//	saved, err := json.Marshal(s)               // configuration and state
//
// # Order of decision
//
// Steady asks Hysteresis, Bounded (rounding as configured), Delayed, RateLimited, Cooldown and Bounded again, which
// now rounds towards have. Hysteresis does not hold on to a size that is not legal. So a band is laid around the wish and not around what delays make of it; a delay sees sizes
// that are legal; a rate counts changes that were let through; and bounds have the last word: what is out of them is
// brought back at once, whatever the others say. Held names the last decorator that changed the wish.
//
// Seam tries unasked, late, stale, infeasible, worse, in this order, and adopts what is none of them.
//
// # Sources
//
// Delayed is the stabilisation window of Kubernetes' horizontal pod autoscaler (autoscaling/v2, behaviour): the least
// rise, the least fall, over the window. That a rise from none to one skips it is Ray Serve's. RateLimited with Interval
// 0 is the clamp of Knative's pod autoscaler, which takes none for one (under a Bounded with a Step, for one step); with an Interval it counts the changes of an interval, and takes the larger of
// its two limits as its default selectPolicy does. A solver with a time budget whose answer is a proposal that the
// planner may refuse is Nomad's plan queue (optimistic, by version).
//
// # Errors
//
// All are *lockstep.Error: ErrInvalid for a field, a saved state, a count or a time out of range, ErrPast for a time
// before one already seen. After these nothing has changed. The error of a Check comes back as it is; the time and version that
// came with the plan have been seen then.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls. A solver runs in a goroutine of the caller's and touches
// the Seam only through whoever serializes.
//
// # Cost
//
// Step is O(1), amortised, in time, and keeps at most 64 entries in each window; when more are needed, neighbours are merged in the
// direction that delays a change. Ask and Answer are O(1) and what Check takes.
//
// # Limits
//
// After a Restore of an earlier state, numbers of asks are given out again; an answer from before is known by its Ask, so hand back
// the Ask as it was. Nothing here says what to wish for: serving/autoscale and policy/elastic do. Whether a resize pays for its restart
// is policy/elastic's question. A Seam does not stop a solver; give it the Ask's deadline.
package policy
