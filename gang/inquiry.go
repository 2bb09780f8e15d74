package gang

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// inquiry is one call of Explain about a waiting job. Nothing that it tries stays.
type inquiry struct {
	a       *Admission
	j       *job
	e       *lockstep.Explanation
	short   *lockstep.Verdict // why there is no quota; nil where there is
	told    []lockstep.Change // what the placer proposes
	victims []lockstep.JobID  // who would be taken from, sorted
	waits   bool              // it has a reservation
}

func (x *inquiry) quota() {
	var r lockstep.Request
	v, ok := x.a.limit(x.j, &r, x.j.minima, x.j.minima)
	if ok {
		return
	}
	x.short = &v
	detail := "no quota"
	if v.Requested > v.Available {
		detail = "asks for " + amount(v.Resource, v.Requested) + ", may have " + amount(v.Resource, v.Available)
	}
	x.a.note(x.e, "quota", v.Reason, detail)
}

// amount is n of a resource in words.
func amount(name lockstep.ResourceName, n int64) string {
	if name == "" {
		return strconv.FormatInt(n, 10)
	}
	return lockstep.Resources{name: n}.String()
}

// beside starts a request for the least of j beside the reservations of others.
func (x *inquiry) beside() *lockstep.Request {
	a, end := x.a, x.a.latestEnd(x.j)
	r := a.request(x.j, a.now, end)
	r.Min, r.Max, r.Busy = x.j.minima, x.j.minima, x.reserved(end)
	return r
}

// reserved is the room of the reservations of others that a stay until end meets.
func (x *inquiry) reserved(end int64) []lockstep.Busy {
	busy := x.a.scratch.busy[:0]
	for i := range x.a.res {
		if r := &x.a.res[i]; r.job != x.j && r.meets(x.a.now, end) {
			busy = appendBusy(busy, r.job.gang, r.members)
		}
	}
	x.a.scratch.busy = busy
	return busy
}

// fits tries r. In room that others are still leaving the stay has no known end.
func (x *inquiry) fits(r *lockstep.Request) bool {
	a := x.a
	v, err := a.fit(r, &a.scratch.shadow)
	if err != nil || !v.Feasible || !a.touchesDirty(room(&a.scratch.shadow)) {
		return err == nil && v.Feasible
	}
	r.Busy = x.reserved(forever)
	for i := range a.windows {
		r.Exclude = append(r.Exclude, a.windows[i].Nodes...)
	}
	v, err = a.fit(r, &a.scratch.shadow)
	return err == nil && v.Feasible
}

// tries makes a what-if of what try does.
func (x *inquiry) tries(try func() bool) bool {
	if x.a.what == nil {
		return false
	}
	mark := x.a.what.Mark()
	ok := try()
	return x.a.rollback(mark, nil) == nil && ok
}

func (x *inquiry) placer() {
	p, ok := x.a.cfg.Placer.(Explainer)
	if !ok {
		return
	}
	r := x.beside()
	r.Min, r.Max = nil, nil
	x.a.setApart(r)
	told, err := p.Explain(r)
	if err != nil {
		x.a.note(x.e, "placer", lockstep.ReasonUnsupported, err.Error())
		return
	}
	x.e.Counts, x.told = told.Counts, told.Changes
	x.e.Notes = append(x.e.Notes, told.Notes...)
}

// nodes counts those that the gang is kept off, by cause.
func (x *inquiry) nodes() {
	a := x.a
	say := func(n int, reason lockstep.Reason, what string) {
		switch n {
		case 0:
		case 1:
			a.note(x.e, "gang", reason, "1 node is "+what)
		default:
			a.note(x.e, "gang", reason, strconv.Itoa(n)+" nodes are "+what)
		}
	}
	down, cordoned := 0, 0
	for _, c := range a.closed {
		if c.down {
			down++
		} else {
			cordoned++
		}
	}
	say(down, lockstep.ReasonUnhealthy, "down")
	say(cordoned, lockstep.ReasonUnhealthy, "cordoned")
	end := a.latestEnd(x.j)
	for i := range a.windows {
		if w := &a.windows[i]; w.from < end {
			say(len(w.Nodes), lockstep.ReasonReserved, "kept free in window "+w.Name+" until "+w.To.Format(time.RFC3339))
		}
	}
	for _, t := range a.trials {
		say(len(spots(t.apart())), lockstep.ReasonReserved, "set apart for "+string(t.id)+", whose first members are tried")
	}
}

// spots returns the nodes of members, sorted.
func spots(members []lockstep.Member) []lockstep.NodeID {
	var out []lockstep.NodeID
	for i := range members {
		out = append(out, members[i].Node)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (x *inquiry) reservations() {
	a := x.a
	for i := range a.res {
		r := &a.res[i]
		if r.job != x.j {
			continue
		}
		x.waits = true
		if r.start == forever {
			a.note(x.e, "gang", lockstep.ReasonReserved, "room is kept for it; who is in it gave no end")
		} else {
			a.note(x.e, "gang", lockstep.ReasonReserved, "is to start at "+lockstep.FromNanos(max(r.start, a.now)).Format(time.RFC3339))
		}
		return
	}
	if x.e.Verdict.Reason == lockstep.ReasonReserved && len(a.res) > 0 {
		a.note(x.e, "gang", lockstep.ReasonReserved, "would delay "+string(a.res[0].job.id))
	}
}

// preemption says who would make room.
func (x *inquiry) preemption() {
	const stage = "preemption"
	a, j := x.a, x.j
	switch {
	case a.preempter == nil || a.what == nil:
		return
	case j.gang.Preemption == lockstep.PreemptNever:
		a.note(x.e, stage, lockstep.ReasonBusy, "it takes room from nobody")
		return
	case a.cfg.MaxVictims > 0 && j.taken >= a.cfg.MaxVictims:
		a.note(x.e, stage, lockstep.ReasonBusy, "it took room from "+strconv.Itoa(j.taken)+" jobs since it last ran, and may from no more")
		return
	}
	if x.e.Verdict.Feasible || x.short == nil && x.tries(func() bool { return x.fits(x.beside()) }) {
		return
	}
	res := a.res
	a.res = slices.DeleteFunc(slices.Clone(res), func(r reservation) bool { return r.job == j })
	defer func() { a.res = res }()
	if !a.listCandidates(j, j.minima) {
		return
	}
	least := lockstep.Request{Min: j.minima, Max: j.minima}
	var cuts []cut
	found := x.tries(func() bool {
		var ok bool
		var err error
		a.p.aim = nil
		cuts, ok, err = a.chooseVictims(j, &least, x.short == nil)
		return ok && err == nil
	})
	a.p.aim = nil
	if !found || len(cuts) == 0 {
		a.note(x.e, stage, lockstep.ReasonBusy, "none of "+strconv.Itoa(len(a.scratch.from.Jobs))+" jobs that could make room would make enough")
		return
	}
	x.sayVictims(cuts)
}

func (x *inquiry) sayVictims(cuts []cut) {
	lead := "off, but "
	if x.a.takes {
		lead = ""
	}
	for i := range cuts {
		c := &cuts[i]
		what := " would leave"
		if c.keep != nil {
			what = " would shrink to " + strconv.Itoa(len(c.keep))
		}
		x.victims = append(x.victims, c.job.id)
		x.a.note(x.e, "preemption", ReasonPreempted, lead+string(c.job.id)+what)
	}
	slices.Sort(x.victims)
}

// changes collects what would do, least first.
func (x *inquiry) changes() {
	if x.e.Verdict.Feasible {
		return
	}
	add := func(c lockstep.Change) { x.e.Changes = append(x.e.Changes, c) }
	if x.waits {
		add(lockstep.Change{Kind: lockstep.ChangeWait})
	}
	if x.a.p.strict || x.a.cfg.Backfill == Strict && len(x.a.res) > 0 && x.a.res[0].job != x.j {
		return
	}
	x.lend(add)
	x.shrink(add)
	if x.short == nil {
		x.open(add)
		x.pass(add)
	}
}

// lend says how much more quota would do, where there is room.
func (x *inquiry) lend(add func(lockstep.Change)) {
	v := x.short
	if v == nil || v.Resource == "" || v.Requested <= v.Available || !x.tries(func() bool { return x.fits(x.beside()) }) {
		return
	}
	who := "quota"
	if x.j.gang.Tenant != "" {
		who += " of " + string(x.j.gang.Tenant)
	}
	add(lockstep.Change{Kind: lockstep.ChangeAdd, Domain: who, Resource: v.Resource, Amount: v.Requested - v.Available})
}

// shrink finds how many members would fit, within quota, of a gang of one role; of
// others the placer knows.
func (x *inquiry) shrink(add func(lockstep.Change)) {
	g := x.j.gang
	if len(g.Roles) > 1 || x.a.what == nil {
		i := slices.IndexFunc(x.told, func(c lockstep.Change) bool { return c.Kind == lockstep.ChangeShrink })
		if i >= 0 && x.short == nil {
			add(x.told[i])
		}
		return
	}
	size := max(g.Roles[0].Inner.Size, 1)
	lo, hi := 0, g.Roles[0].Min/size // lo is known to fit, hi not
	for hi-lo > 1 {
		mid := lo + (hi-lo)/2
		counts := []int{mid * size}
		ok := x.a.cfg.Quota == nil || x.a.cfg.Quota.Check(g, counts).Feasible
		if ok {
			r := x.beside()
			r.Min, r.Max = counts, counts
			ok = x.fits(r)
		}
		if ok {
			lo = mid
		} else {
			hi = mid
		}
	}
	if lo > 0 {
		add(lockstep.Change{Kind: lockstep.ChangeShrink, Amount: int64(lo * size)})
	}
}

// open finds the fewest of the nodes that are down or cordoned that would do, if
// they were not.
func (x *inquiry) open(add func(lockstep.Change)) {
	opened := make([]lockstep.NodeID, 0, len(x.a.closed))
	for _, c := range x.a.closed {
		opened = append(opened, c.node)
	}
	would := func(opened []lockstep.NodeID) bool {
		r := x.beside()
		r.Exclude = slices.DeleteFunc(slices.Clone(r.Exclude), func(n lockstep.NodeID) bool { return slices.Contains(opened, n) })
		return x.fits(r)
	}
	if len(opened) == 0 || len(opened) > maxOpened || !would(opened) {
		return
	}
	for i := len(opened) - 1; i >= 0; i-- {
		if fewer := slices.Delete(slices.Clone(opened), i, i+1); would(fewer) {
			opened = fewer
		}
	}
	if len(opened) > 0 {
		add(lockstep.Change{Kind: lockstep.ChangeOpen, Nodes: opened})
	}
}

// maxOpened is how many closed nodes are tried one by one.
const maxOpened = 64

// pass passes on what the placer proposes, and in place of whom it would stop the
// victims that were found here.
func (x *inquiry) pass(add func(lockstep.Change)) {
	stops := func(jobs []lockstep.JobID) bool {
		return x.without(func(h *job) bool { return slices.Contains(jobs, h.id) })
	}
	if len(x.victims) > 0 && stops(x.victims) {
		add(lockstep.Change{Kind: lockstep.ChangeEvict, Jobs: x.victims})
	}
	for _, c := range x.told {
		ok := true
		switch c.Kind {
		case lockstep.ChangeShrink: // see shrink
			ok = false
		case lockstep.ChangeFree:
			ok = x.without(func(h *job) bool {
				return slices.ContainsFunc(c.Nodes, func(n lockstep.NodeID) bool { return onNode(h.plan.Members, n) || onNode(h.plan.Spares, n) })
			})
		case lockstep.ChangeEvict:
			ok = len(x.victims) == 0 && stops(c.Jobs)
		}
		if ok {
			add(c)
		}
	}
}

// without reports whether it would do that the holders left of whom gone holds.
func (x *inquiry) without(gone func(h *job) bool) bool {
	return x.tries(func() bool {
		for _, h := range x.a.ends {
			if gone(h) && x.a.release(h) != nil {
				return false
			}
		}
		return x.fits(x.beside())
	})
}
