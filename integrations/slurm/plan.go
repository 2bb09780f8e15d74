package slurm

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// The reasons that this package gives beside those of the root package.
const (
	ReasonHeld       lockstep.Reason = "held"       // ReasonHeld: its owner or an operator holds it.
	ReasonDependency lockstep.Reason = "dependency" // ReasonDependency: it waits for other jobs.
	ReasonBegin      lockstep.Reason = "begin"      // ReasonBegin: it is to begin later.
	ReasonTasks      lockstep.Reason = "tasks"      // ReasonTasks: as many tasks of its array run as may.
	ReasonTurn       lockstep.Reason = "turn"       // ReasonTurn: others are before it.
	ReasonLimit      lockstep.Reason = "limit"      // ReasonLimit: Slurm holds it back for what is not looked at here, such as a limit of its account or a license.
	ReasonUnreadable lockstep.Reason = "unreadable" // ReasonUnreadable: a field of it cannot be used; see the faults.
)

// planner runs the composition ahead in time: jobs end when their limits say.
type planner struct {
	c      *cluster
	s      *scheduler.Scheduler
	turns  *turns
	ledger *fairness.Ledger // nil where the rule has none
	now    time.Time
	end    time.Time

	due     happenings
	seq     int
	entries map[lockstep.JobID]*entry
	open    map[uint32]int // gangs that have not ended, by the numbers of their job and array
	waiting []*entry       // for other jobs, in the order of the view
	arrays  map[uint32]*array
	rows    []*Row

	statements []fairness.Statement

	watch func(t time.Time, e *entry, p *lockstep.Plan) // is told of each start; nil outside of tests
}

// array counts the tasks of an array that has a limit.
type array struct {
	limit, active int
	queue         []*entry
}

// kind is what happens; those of one time happen in this order.
type kind int

const (
	ends kind = iota
	runs
	comes
)

type happening struct {
	at   time.Time
	kind kind
	seq  int
	e    *entry
}

type happenings []happening

func (h happenings) Len() int { return len(h) }
func (h happenings) Less(i, j int) bool {
	return cmp.Or(h[i].at.Compare(h[j].at), cmp.Compare(h[i].kind, h[j].kind), cmp.Compare(h[i].seq, h[j].seq)) < 0
}
func (h happenings) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *happenings) Push(x any)   { *h = append(*h, x.(happening)) }
func (h *happenings) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = happening{}
	*h = old[:len(old)-1]
	return x
}

func (p *planner) add(at time.Time, k kind, e *entry) {
	p.seq++
	heap.Push(&p.due, happening{at: at, kind: k, seq: p.seq, e: e})
}

// Plan says when and in which order the jobs of a view would start if Lockstep decided, and why those that wait do.
// Jobs that run are left where they are. A job that cannot be used is a fault in the Report, and harms no other.
// The error is for a configuration, a time or a topology that is not valid, and for nodes that are there twice or of
// which a number cannot be.
func Plan(v *View, cfg Config) (*Report, error) {
	p, err := prepare(v, cfg)
	if err != nil {
		return nil, err
	}
	if err := p.run(); err != nil {
		return nil, err
	}
	return p.report(), nil
}

// prepare brings a planner to the present.
func prepare(v *View, cfg Config) (*planner, error) {
	if v == nil {
		return nil, fault(lockstep.ErrInvalid, "plan", "View", "nil", "required")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	now := v.Now.UTC().Truncate(time.Second)
	if s := now.Unix(); s <= 0 || s > maxEpoch {
		return nil, fault(lockstep.ErrInvalid, "plan", "View.Now", now.String(), "want a time after 1970")
	}
	cfg = cfg.withDefaults()
	c, err := newCluster(v, cfg)
	if err != nil {
		return nil, err
	}
	p := &planner{
		c: c, now: now, end: now.Add(cfg.Horizon),
		entries: make(map[lockstep.JobID]*entry), open: make(map[uint32]int), arrays: make(map[uint32]*array),
	}
	others := p.gather()
	if err := p.compose(); err != nil {
		return nil, err
	}
	return p, p.catchUp(others)
}

// compose makes the scheduler.
func (p *planner) compose() error {
	devices := 0
	for i := range p.c.view.Nodes {
		if n := &p.c.view.Nodes[i]; n.Open {
			devices += n.GPUs
		} else {
			devices += n.Used
		}
	}
	policy, ledger, err := p.c.cfg.policy(devices)
	if err != nil {
		return err
	}
	p.ledger = ledger
	p.turns = newTurns(policy, p.c.cfg.Backfill)
	p.s, err = scheduler.New(scheduler.Config{
		Rule: scheduler.FIFO, Term: scheduler.NoTerm, Policy: p.turns, Backfill: p.c.cfg.Backfill, StartAtOnce: true,
		Nodes: p.c.nodes, Tree: p.c.tree,
	})
	return err
}

// catchUp brings the scheduler to the present: jobs come and start when they did, so that accounts know of it, then
// nodes close.
func (p *planner) catchUp(others []*lockstep.Plan) error {
	begin := p.now
	if len(p.due) > 0 && p.due[0].at.Before(begin) {
		begin = p.due[0].at
	}
	if p.ledger != nil {
		for _, t := range slices.Sorted(maps.Keys(p.c.cfg.Weights)) {
			if err := p.ledger.Join(begin, t, p.c.cfg.Weights[t]); err != nil {
				return err
			}
		}
	}
	for _, plan := range others {
		if err := p.s.Occupy(begin, plan); err != nil {
			p.c.faults = append(p.c.faults, fault(lockstep.ErrConflict, "plan", "node "+string(plan.Members[0].Node), "", "what others use: "+err.Error()))
		}
	}
	if err := p.happen(p.now); err != nil {
		return err
	}
	for i := range p.c.view.Nodes {
		if n := &p.c.view.Nodes[i]; !n.Open {
			if err := p.s.Apply(lockstep.Event{Kind: lockstep.EventCordon, Time: p.now, Node: n.ID}); err != nil {
				return err
			}
		}
	}
	return nil
}

// happen lets all happen that is due until t.
func (p *planner) happen(t time.Time) error {
	for len(p.due) > 0 && !p.due[0].at.After(t) {
		h := heap.Pop(&p.due).(happening)
		switch h.kind {
		case runs:
			p.adopt(h.at, h.e)
		case comes:
			p.arrive(h.at, h.e)
		case ends:
			if h.e.over {
				continue // it could not be taken in
			}
			if err := p.s.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: h.at, Job: h.e.gang.ID}); err != nil {
				return err
			}
			p.leave(h.at, h.e)
		}
	}
	return nil
}

func (p *planner) adopt(at time.Time, e *entry) {
	started := e.start
	if err := p.s.Adopt(at, e.plan, started); err != nil {
		p.c.faults = append(p.c.faults, refuse(e.job, "nodes", "", "cannot be where it is: "+err.Error()))
		e.over = true
	}
}

// arrive lets a job come, unless its array has as many tasks running as it may.
func (p *planner) arrive(at time.Time, e *entry) {
	if a := p.arrays[e.job.Array]; e.job.Array != 0 && a != nil {
		if a.active >= a.limit {
			a.queue = append(a.queue, e)
			if e == e.row.first {
				e.row.Reason = ReasonTasks
			}
			return
		}
		a.active++
	}
	if err := p.s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: at, Gang: e.gang}); err != nil {
		p.c.faults = append(p.c.faults, refuse(e.job, "gang", "", err.Error()))
		e.row.Reason = ReasonUnreadable
		e.row.known--
		p.vacate(at, e)
	}
}

// vacate lets the next task of an array have the place of e. Who waits for e waits on: it has not ended.
func (p *planner) vacate(at time.Time, e *entry) {
	e.over = true
	if a := p.arrays[e.job.Array]; e.job.Array != 0 && a != nil {
		a.active--
		if len(a.queue) > 0 && a.active < a.limit { // or the first would come to stand behind the rest
			next := a.queue[0]
			a.queue = a.queue[1:]
			p.add(at, comes, next)
		}
	}
}

// leave lets go of who waited for e, and of the next task of its array.
func (p *planner) leave(at time.Time, e *entry) {
	p.vacate(at, e)
	for _, id := range numbers(e.job) {
		p.open[id]--
	}
	kept := p.waiting[:0]
	for _, w := range p.waiting {
		if p.free(w) {
			p.add(later(at, w.job.Eligible), comes, w)
		} else {
			kept = append(kept, w)
		}
	}
	p.waiting = kept
}

// numbers are those by which others may wait for j.
func numbers(j *Job) []uint32 {
	out := []uint32{j.ID}
	for _, id := range []uint32{j.Array, j.Het} {
		if id != 0 && id != j.ID {
			out = append(out, id)
		}
	}
	return out
}

// free says whether what e waits for is there.
func (p *planner) free(e *entry) bool {
	if e.needs.never {
		return false
	}
	for _, id := range e.needs.jobs {
		n, known := p.open[id]
		done := known && n == 0
		if done == e.needs.any {
			return done
		}
	}
	return !e.needs.any
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// run steps ahead until all have started, nothing more happens, or the horizon is reached.
func (p *planner) run() error {
	t := p.now
	for {
		if err := p.happen(t); err != nil {
			return err
		}
		actions, err := p.s.Step(t)
		if err != nil {
			return err
		}
		for i := range actions {
			p.act(t, &actions[i])
		}
		if t.Equal(p.now) {
			p.explain()
		}
		next, ok := p.s.NextWake(t)
		if len(p.due) > 0 && (!ok || p.due[0].at.Before(next)) {
			next, ok = p.due[0].at, true
		}
		if !ok || next.After(p.end) || p.settled() {
			return nil
		}
		if !next.After(t) {
			next = t.Add(p.c.cfg.Resolution)
		}
		t = next
	}
}

// settled says whether every job that waits has its start, or none to hope for.
func (p *planner) settled() bool {
	for _, r := range p.rows {
		if r.Planned < r.known {
			return false
		}
	}
	return true
}

func (p *planner) act(t time.Time, a *lockstep.Action) {
	e := p.entries[a.Job]
	if e == nil || e.row == nil {
		return
	}
	switch a.Kind {
	case lockstep.ActionStart:
		if p.watch != nil {
			p.watch(t, e, a.Plan)
		}
		e.row.started(t, p.now, a.Plan)
		if e.gang.Walltime > 0 {
			p.add(p.round(t.Add(e.gang.Walltime)), ends, e)
		}
	case lockstep.ActionReject:
		e.row.Reason, e.row.Detail = a.Reason, "can never be placed"
		e.row.known-- // nothing to wait for
		p.vacate(t, e)
	}
}

// round rounds a time after now up to the grid that begins there.
func (p *planner) round(t time.Time) time.Time {
	d := t.Sub(p.now)
	if d > 100*maxHorizon {
		return t // never reached, and rounding must not turn it over
	}
	if r := d % p.c.cfg.Resolution; r != 0 {
		d += p.c.cfg.Resolution - r
	}
	return p.now.Add(d)
}

// report puts together what came out.
func (p *planner) report() *Report {
	r := &Report{Now: p.now, Horizon: p.c.cfg.Horizon, Rule: p.c.cfg.Rule, Nodes: len(p.c.view.Nodes), Faults: p.c.faults}
	for i := range p.c.view.Nodes {
		n := &p.c.view.Nodes[i]
		r.Devices += n.GPUs
		if n.Open {
			r.Open++
		}
	}
	for i := range p.c.view.Jobs {
		if s := p.c.view.Jobs[i].State; s != Pending && s != Ended {
			r.Running++
		}
	}
	for _, row := range p.rows {
		if row.first != nil {
			row.Turn = p.turns.order[row.first.gang.ID]
		}
		r.Rows = append(r.Rows, *row)
	}
	slices.SortStableFunc(r.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(rank(a.Turn), rank(b.Turn)), cmp.Compare(a.ID, b.ID))
	})
	turn := 0
	for i := range r.Rows {
		if r.Rows[i].Turn != 0 {
			turn++
			r.Rows[i].Turn = turn // by rows rather than by tasks
		}
	}
	r.Tenants = p.statements
	r.prioritise(&p.c.cfg)
	return r
}

// rank puts those without a turn last.
func rank(turn int) uint { return uint(turn) - 1 }
