package reconfig

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// Defaults of Options.
const (
	defaultDisturb   = 20_000 // millionths
	budgetPerDevice  = 1000
	leastBudget      = 300_000
	deepBudget       = 2_000_000 // up to deepUnits, and twice as much up to smallUnits
	seedShare        = 8         // one start may use this part of what is left
	smallUnits       = 16        // up to how many devices every division is improved by simulation
	deepUnits        = 64        // up to how many devices more starts are tried
	maxSeedReplicas  = 4         // how many numbers of replicas a plan from scratch tries, beyond deepUnits
	maxDropsOneByOne = 8
)

// Replan returns the best plan that it finds for the devices that are left. prev is
// the plan in force, nil for none; it is only read. If neither the job nor the devices
// have changed since prev was made, prev itself is returned. It returns an *Infeasible
// if no plan is possible. The same arguments give the same plan on every platform.
func Replan(job Job, devs []Device, prev *Plan, o Options) (*Plan, error) {
	const op = "reconfig: replan"
	f := faults{op: op}
	o.validate(&f)
	if err := f.err(); err != nil {
		return nil, err
	}
	w, err := newWorld(op, job, devs)
	if err != nil {
		return nil, err
	}
	if prev != nil {
		if err := w.checkPrev(op, prev); err != nil {
			return nil, err
		}
		if prev.Basis == w.basis && Verify(job, devs, prev) == nil {
			return prev, nil
		}
	}
	if w.live == 0 {
		return nil, &Infeasible{TensorLevel, ReasonNoDevices, Witness{Replica: -1, Stage: -1, Need: 1}}
	}
	p := newPlanner(w, o)
	if prev != nil {
		p.held = w.hold(prev)
	}
	return p.best(prev, o)
}

// best returns the best plan: the one before if nothing is faster.
func (p *planner) best(prev *Plan, o Options) (*Plan, error) {
	kept := p.kept(prev, o)
	l, calm := p.choose(prev, o)
	if l == nil {
		return p.none(kept, prev, o)
	}
	next, err := p.plan(l, prev, o)
	if err != nil {
		return nil, err
	}
	next = p.others(next, calm, prev, o)
	if kept != nil && kept.Estimate.Iteration <= next.Estimate.Iteration {
		return kept, nil
	}
	return next, nil
}

// none returns what is left where no layout was found: the plan before, if it can stay.
func (p *planner) none(kept, prev *Plan, o Options) (*Plan, error) {
	switch {
	case kept != nil:
		return kept, nil
	case o.Budget > 0 && o.Budget < usual(len(p.w.units)):
		o.Budget = 0 // too little to tell whether there is a plan
		q := newPlanner(p.w, o)
		q.held = p.held
		return q.best(prev, o)
	}
	return nil, p.infeasible()
}

// others returns next, or what is to be preferred to it: with migrations the calm layout
// or the layers of before, or the same layers in all replicas.
func (p *planner) others(next *Plan, calm *layout, prev *Plan, o Options) *Plan {
	if prev != nil && p.w.job.Allow.AllowMigration {
		for _, l := range []*layout{calm, p.stay(prev)} {
			if l == nil {
				continue
			}
			if other, err := p.plan(l, prev, o); err == nil {
				next = p.prefer(next, other, prev, o)
			}
		}
	}
	for _, other := range p.uniform(prev, o) {
		next = p.prefer(next, other, prev, o)
	}
	return next
}

// prefer returns the faster of two plans, a if they tie; but one that changes replicas
// of prev that lost nothing, as the other does not, has to gain Options.Disturb.
func (p *planner) prefer(a, b, prev *Plan, o Options) *Plan {
	x, y := int64(a.Estimate.Iteration), int64(b.Estimate.Iteration)
	enough := y < x
	switch wild := p.disturbs(prev, a); {
	case wild == p.disturbs(prev, b):
	case wild:
		enough = y <= x || y-x < quotient(y, o.disturb(), whole)
	default:
		enough = y < x && x-y >= quotient(x, o.disturb(), whole)
	}
	if enough {
		return b
	}
	return a
}

// disturbs says whether a plan changes a replica of prev that lost nothing.
func (p *planner) disturbs(prev, next *Plan) bool {
	if prev == nil {
		return false
	}
	lost := map[int]bool{}
	for _, q := range p.mend(prev) {
		lost[q.number] = q.own
	}
	for _, r := range prev.Replicas {
		if own, left := lost[r.Number]; own || !left {
			continue
		}
		i := slices.IndexFunc(next.Replicas, func(n Replica) bool { return n.Number == r.Number })
		if i < 0 || !slices.EqualFunc(r.Stages, next.Replicas[i].Stages, func(a, b Stage) bool {
			return slices.Equal(a.Devices, b.Devices) && slices.Equal(a.Spans, b.Spans)
		}) {
			return true
		}
	}
	return false
}

// disturb returns Options.Disturb in millionths.
func (o Options) disturb() int64 {
	switch {
	case o.Disturb == AnyGain:
		return 0
	case o.Disturb > 0:
		return millionths(o.Disturb)
	default:
		return defaultDisturb
	}
}

func newPlanner(w *world, o Options) *planner {
	p := &planner{w: w, s: shapes{w: w, all: map[string]*shape{}}}
	budget := cmp.Or(o.Budget, usual(len(w.units)))
	p.budget, p.extra = w.ops+budget, budget/4
	p.s.deep = len(w.units) <= smallUnits
	p.s.limit = p.budget
	return p
}

// usual returns Options.Budget where none is given.
func usual(devices int) int64 {
	switch {
	case devices <= smallUnits:
		return 2 * deepBudget
	case devices <= deepUnits:
		return deepBudget
	}
	return max(leastBudget, budgetPerDevice*int64(devices))
}

// kept returns the plan before as it is now; nil if there is none or it cannot stay.
func (p *planner) kept(prev *Plan, o Options) *Plan {
	if prev == nil {
		return nil
	}
	w := p.w
	if _, err := w.read("reconfig: replan", prev); err != nil {
		return nil
	}
	out := &Plan{Version: prev.Version + 1, Basis: w.basis, Replicas: prev.Replicas, Split: prev.Split, Migrations: prev.Migrations}
	used := map[lockstep.DeviceID]bool{}
	for _, r := range prev.Replicas {
		for _, s := range r.Stages {
			for _, id := range s.Devices {
				used[id] = true
			}
		}
	}
	for i := range w.units {
		if u := &w.units[i]; u.speed > 0 && !used[u.id] {
			out.Standby = append(out.Standby, u.id)
		}
	}
	out, err := p.seal(out, prev, o)
	if err != nil || verify(w.given, w.devs, out, false) != nil {
		return nil
	}
	return out
}

// uniform returns the best plans with the same layers in all replicas, which a search
// for any layers may have missed: of any, and of those that change only what was hurt.
// There are none if the job is too large to look for both.
func (p *planner) uniform(prev *Plan, o Options) []*Plan {
	if p.w.job.Allow.Uniform || len(p.w.units) > deepUnits {
		return nil
	}
	job := p.w.given
	job.Allow.Uniform = true
	w, err := newWorld("reconfig: replan", job, p.w.devs)
	if err != nil {
		return nil
	}
	w.basis = p.w.basis
	q := newPlanner(w, o)
	q.held = p.held
	l, calm := q.choose(prev, o)
	var out []*Plan
	for _, l := range []*layout{l, calm} {
		if l == nil {
			continue
		}
		if next, err := q.plan(l, prev, o); err == nil {
			out = append(out, next)
		}
	}
	return out
}
