package reconfig

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
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
		if prev.Basis == w.basis {
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
	l := p.choose(prev, o)
	switch {
	case l == nil && kept == nil:
		return nil, p.infeasible()
	case l == nil:
		return kept, nil
	}
	next, err := p.plan(l, prev, o)
	if err != nil {
		return nil, err
	}
	if prev != nil && p.w.job.Allow.AllowMigration {
		if s := p.stay(prev); s != nil {
			if other, err := p.plan(s, prev, o); err == nil && other.Estimate.Iteration < next.Estimate.Iteration {
				next = other
			}
		}
	}
	if other := p.uniform(prev, o); other != nil && other.Estimate.Iteration < next.Estimate.Iteration {
		least := quotient(int64(next.Estimate.Iteration), o.disturb(), whole)
		if int64(next.Estimate.Iteration-other.Estimate.Iteration) >= least || !p.disturbs(prev, other) {
			next = other
		}
	}
	if kept != nil && kept.Estimate.Iteration <= next.Estimate.Iteration {
		return kept, nil
	}
	return next, nil
}

// uniform returns the best plan with the same layers in all replicas, which a search
// for any layers may have missed; nil if there is none, or the job is too large to look
// for both.
func (p *planner) uniform(prev *Plan, o Options) *Plan {
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
	l := q.choose(prev, o)
	if l == nil {
		return nil
	}
	out, err := q.plan(l, prev, o)
	if err != nil {
		return nil
	}
	return out
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
	p.budget = cmp.Or(o.Budget, max(leastBudget, budgetPerDevice*int64(len(w.units))))
	p.s.deep = len(w.units) <= smallUnits
	if o.Budget == 0 && len(w.units) <= deepUnits {
		p.budget = deepBudget
		if p.s.deep {
			p.budget *= 2
		}
	}
	p.s.limit = p.budget
	return p
}

// checkPrev refuses a plan that is not of this job.
func (w *world) checkPrev(op string, prev *Plan) error {
	bad := func(reason string) error {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: op, Field: "prev", Reason: reason}
	}
	if len(prev.Replicas) == 0 || len(prev.Split) != len(prev.Replicas) {
		return bad("want replicas, and a split among them")
	}
	if prev.Sum() != prev.Digest {
		return bad("the plan is not the one that its digest is of")
	}
	seen := map[lockstep.DeviceID]bool{}
	for i, r := range prev.Replicas {
		if i > 0 && r.Number <= prev.Replicas[i-1].Number || r.Number < 0 {
			return bad("replicas are not in the order of their numbers")
		}
		for _, s := range r.Stages {
			for _, id := range s.Devices {
				if seen[id] {
					return bad("a device has two roles: " + errtext.Quote(id))
				}
				seen[id] = true
			}
		}
		at := 0
		for c := range w.chunks {
			for j, s := range r.Stages {
				if len(s.Spans) != w.chunks || len(s.Devices) == 0 || s.Spans[c].First != at || s.Spans[c].Layers < 0 {
					return bad("is of another job: replica " + text(i) + " stage " + text(j))
				}
				at += s.Spans[c].Layers
			}
		}
		if at != w.layers {
			return bad("is of another job: replica " + text(i) + " has " + text(at) + " layers")
		}
	}
	return nil
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

// infeasible says why there is no plan.
func (p *planner) infeasible() error {
	w := p.w
	least := w.job.Allow.MinReplicas
	if w.job.Allow.FixedStages {
		least *= w.job.Layout.PP
	}
	if len(w.degrees) == 0 {
		return &Infeasible{TensorLevel, ReasonDegree, Witness{Replica: -1, Stage: -1, Need: int64(w.job.Allow.MinTP), Have: int64(w.job.Layout.TP)}}
	}
	if groups := len(p.groups(false)); groups < least {
		return &Infeasible{PipelineLevel, ReasonTooFew, Witness{Replica: -1, Stage: -1, Need: int64(least), Have: int64(groups)}}
	}
	if w.limited {
		return p.tooLarge()
	}
	return &Infeasible{DataLevel, ReasonSplit, Witness{Replica: -1, Stage: -1, Need: int64(w.job.Micros)}}
}

// tooLarge says that the model does not fit: what the first stage would need of the
// roomiest device, in the pipeline for which that is least.
func (p *planner) tooLarge() error {
	w, witness := p.w, nowhere()
	for i := range w.units {
		if u := &w.units[i]; u.speed > 0 && u.mem > witness.Have {
			witness.Have, witness.Devices = u.mem, []lockstep.DeviceID{u.id}
		}
	}
	micros := max(1, w.job.Micros/w.job.Layout.DP)
	k := w.degrees[len(w.degrees)-1]
	for n := 1; n <= min(w.stages, len(p.groups(true))); n++ {
		l := w.schedule(n, micros)
		if l == nil {
			continue
		}
		need := w.memory(k, (w.layers+n-1)/n, true, n == 1, l.peaks[0], w.losses(micros), w.job.Layout.DP)
		if witness.Need == 0 || need < witness.Need {
			witness.Need, witness.Layers = need, Span{0, (w.layers + n - 1) / n}
		}
	}
	return &Infeasible{PipelineLevel, ReasonMemory, witness}
}

// choose returns the layout to go to; nil if there is none.
func (p *planner) choose(prev *Plan, o Options) *layout {
	var local, global *layout
	budget := p.budget
	if prev == nil {
		if p.keep(&local, p.asked()); local != nil && p.healthy() && o.Disturb != AnyGain {
			p.polish(local)
			return local
		}
	} else {
		p.budget = budget / 2
		for _, l := range p.repairs(prev) {
			p.keep(&local, p.seek(l, false))
		}
		p.budget = budget
	}
	if local != nil {
		p.keep(&global, p.seek(p.copyOf(local), true))
	}
	for _, l := range p.scratch() {
		p.budget = min(budget, p.w.ops+(budget-p.w.ops)/seedShare)
		p.keep(&global, p.seek(l, true))
	}
	p.budget = budget
	p.shuffled(&global)
	for _, l := range []*layout{local, global} {
		if l != nil {
			p.polish(l)
		}
	}
	if local == nil || global == nil {
		return cmp.Or(local, global)
	}
	if global.iter < local.iter && local.iter-global.iter >= quotient(local.iter, o.disturb(), whole) {
		return global
	}
	return local
}

// healthy says that every device is there and at full speed.
func (p *planner) healthy() bool {
	return !slices.ContainsFunc(p.w.units, func(u unit) bool { return u.speed < whole })
}

// asked returns the job's own layout: groups of TP neighbours of a node, PP of them in
// a replica, DP replicas; nil if there are not as many, or it is not allowed.
func (p *planner) asked() *layout {
	w := p.w
	l := w.job.Layout
	if !slices.Contains(w.degrees, int32(l.TP)) || l.PP > w.stages || l.DP > w.job.Allow.MaxReplicas {
		return nil
	}
	p.room(&layout{used: make([]bool, len(w.units))})
	var groups []*group
	for _, units := range p.pools(p.free) {
		slices.Sort(units)
		for ; len(units) >= l.TP && len(groups) < l.PP*l.DP; units = units[l.TP:] {
			groups = append(groups, w.group(slices.Clone(units[:l.TP])))
		}
	}
	if len(groups) < l.PP*l.DP {
		return nil
	}
	pipes := make([]*pipe, l.DP)
	for d := range pipes {
		pipes[d] = &pipe{number: d, groups: groups[d*l.PP : (d+1)*l.PP], own: true}
	}
	if !w.job.Allow.Uniform {
		return p.layout(pipes)
	}
	var best *layout
	from := p.layout(pipes)
	for _, d := range p.common(from) {
		p.s.use(d)
		c := *from
		c.fixed = d
		p.keep(&best, p.copyOf(&c))
	}
	p.s.use(nil)
	return best
}

// keep replaces best by l, without its idle replicas, if that is better.
func (p *planner) keep(best **layout, l *layout) {
	if l != nil {
		l = p.drop(l)
	}
	if l == nil {
		return
	}
	l.moved = p.moving(l)
	if l.better(*best) {
		*best = l
	}
}

// seek improves l, by search and by further replicas. Where all replicas must have
// the same layers it tries several ways to deal them out, and has to copy l.
func (p *planner) seek(l *layout, all bool) *layout {
	if !p.w.job.Allow.Uniform {
		p.search(l, all)
		return p.grown(l)
	}
	var best *layout
	for range 2 {
		from := cmp.Or(best, l)
		for _, d := range p.common(from) {
			p.s.use(d)
			c := *from
			c.fixed = d
			next := p.copyOf(&c)
			p.search(next, all)
			p.keep(&best, p.grown(next))
		}
		if best == nil {
			break
		}
	}
	return best
}

// common returns divisions that all pipes of l might have: those of plans before, the
// even one, and those best for the slowest group of each place and for each pipe.
func (p *planner) common(l *layout) []division {
	n := len(l.pipes[0].groups)
	var out []division
	add := func(d division) {
		if !slices.ContainsFunc(out, func(o division) bool { return slices.Equal(o, d) }) {
			out = append(out, slices.Clone(d))
		}
	}
	worst := make([]lane, n)
	for i, q := range l.pipes {
		if len(q.groups) != n {
			return nil
		}
		for _, h := range q.shape.hints {
			add(h)
		}
		if !p.s.measure(q.shape, p.s.stepOf(q.shape)) {
			return out
		}
		d := make(division, n)
		if len(out) < maxCommon && p.w.divide(p.s.lanes, d) {
			add(d)
		}
		for s, lane := range p.s.lanes {
			if i == 0 {
				worst[s] = lane
			}
			worst[s].rate, worst[s].wire, worst[s].room = min(worst[s].rate, lane.rate), max(worst[s].wire, lane.wire), min(worst[s].room, lane.room)
		}
	}
	d := make(division, n)
	if p.w.divide(worst, d) {
		add(d)
	}
	p.w.even(n, d)
	add(d)
	return out
}

// maxCommon is how many ways to deal out layers are tried for all replicas, about.
const maxCommon = 8

// copyOf returns a layout that can be searched without changing l.
func (p *planner) copyOf(l *layout) *layout {
	p.s.use(l.fixed)
	pipes := make([]*pipe, len(l.pipes))
	for i, q := range l.pipes {
		c := *q
		pipes[i] = &c
	}
	return p.layout(pipes)
}

// repairs returns the layouts from which to mend the plan before: its groups without
// the devices that are gone, and the same without the replicas that lost something.
func (p *planner) repairs(prev *Plan) []*layout {
	pipes := p.mend(prev)
	if len(pipes) == 0 {
		return nil
	}
	base := p.layout(pipes)
	out := []*layout{base}
	var own []int
	for i, q := range base.pipes {
		if q.own {
			own = append(own, i)
		}
	}
	without := func(drop func(i int) bool) {
		var kept []*pipe
		for i, q := range base.pipes {
			if !drop(i) {
				c := *q
				kept = append(kept, &c)
			}
		}
		if len(kept) > 0 && len(kept) < len(base.pipes) {
			out = append(out, p.layout(kept))
		}
	}
	if len(own) > 0 {
		without(func(i int) bool { return base.pipes[i].own })
	}
	if len(own) > 1 && len(own) <= maxDropsOneByOne {
		for _, o := range own {
			without(func(i int) bool { return i == o })
		}
	}
	return out
}

// mend returns the replicas of prev on the devices that are left of them: of each
// stage the fastest group, and no stage where nothing is left.
func (p *planner) mend(prev *Plan) []*pipe {
	w := p.w
	l := &layout{used: make([]bool, len(w.units))}
	for _, r := range prev.Replicas {
		for _, s := range r.Stages {
			for _, id := range s.Devices {
				if u, ok := w.index[id]; ok {
					l.used[u] = true
				}
			}
		}
	}
	p.room(l)
	var out []*pipe
	for i, r := range prev.Replicas {
		q := &pipe{number: r.Number, own: slices.ContainsFunc(prev.Migrations, func(m Migration) bool { return m.Owner == i || m.Host == i })}
		var d division
		for _, s := range r.Stages {
			g, lost := p.left(s)
			q.own = q.own || lost
			if g != nil {
				q.groups, d = append(q.groups, g), append(d, int32(s.Layers()))
			}
		}
		if len(q.groups) == 0 {
			continue
		}
		q.shape = p.s.of(q.groups, len(prev.Replicas))
		if len(d) == len(r.Stages) {
			q.shape.hint(d)
			slots, hops := q.shape.slots, q.shape.hops
			virt := make([]int32, len(d)*w.chunks)
			w.virtual(d, virt)
			q.own = q.own || prev.Split[i] < 0 || prev.Split[i] > w.job.Micros || len(prev.Migrations) == 0 && len(prev.Estimate.Replicas) == len(prev.Replicas) &&
				w.run(slots, hops, virt, prev.Split[i]) != int64(prev.Estimate.Replicas[i])
		}
		out = append(out, q)
	}
	return out
}

// left returns the group that is left of a stage, nil if none is, and whether it
// lost something.
func (p *planner) left(s Stage) (*group, bool) {
	var units []int32
	for _, id := range s.Devices {
		if u, ok := p.w.index[id]; ok && p.w.units[u].speed > 0 {
			units = append(units, u)
		}
	}
	if len(units) == len(s.Devices) && slices.Contains(p.w.degrees, int32(len(units))) {
		return p.w.group(units), false
	}
	p.byWorth(units)
	if k := p.bestDegree(units); k > 0 {
		return p.pick(units, k), true
	}
	return nil, true
}

// grown returns l with as many further replicas as the free devices carry and are of
// use.
func (p *planner) grown(l *layout) *layout {
	for len(l.pipes) < p.w.job.Allow.MaxReplicas && !p.spent() {
		p.room(l)
		groups := p.groupsOf(p.free, false)
		n := min(len(groups), p.w.job.Layout.PP)
		if n == 0 || p.w.job.Allow.FixedStages && n < p.w.job.Layout.PP {
			return l
		}
		pipes := make([]*pipe, 0, len(l.pipes)+1)
		for _, q := range l.pipes {
			c := *q
			pipes = append(pipes, &c)
		}
		next := p.layout(append(pipes, &pipe{number: p.unused(l), groups: groups[:n], own: true}))
		if next.iter >= l.iter {
			return l
		}
		p.search(next, false)
		l = next
	}
	return l
}

// unused returns the least number that no replica of l has.
func (p *planner) unused(l *layout) int {
	for n := 0; ; n++ {
		if !slices.ContainsFunc(l.pipes, func(q *pipe) bool { return q.number == n }) {
			return n
		}
	}
}

// polish improves the divisions of the slowest replicas by simulation.
func (p *planner) polish(l *layout) {
	if p.s.deep || l.top >= forever {
		return
	}
	for range 8 {
		top, better := l.top, false
		for i, q := range l.pipes {
			took, d := p.s.time(q.shape, int(l.split[i]))
			if took < top || d == nil {
				continue
			}
			t := timed{micros: l.split[i], took: took, layers: d}
			p.s.improve(q.shape, &t)
			if t.took < took {
				q.shape.hint(t.layers)
				better = true
			}
		}
		if !better {
			return
		}
		p.settle(l)
		if l.top >= top {
			return
		}
	}
}
