package liveness

import (
	"math/big"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// This file is a plain model of a monitor, which keeps every interval and every gap in
// lists, and works all else out anew from them whenever it is asked.

type plainGap struct {
	phase Phase
	block int64
	took  int64
}

type plainRank struct {
	inc, of              uint64
	seen, dead, gone     bool
	told                 State
	why                  lockstep.Reason
	joined, last, paused int64
	intervals            []int64 // in microseconds
	quiet                bool
	cut, calm            *int64
	hold, cohort, steady int64
	relapses             int
	hung                 bool
	phase                Phase
	phases               map[Phase]bool
	progress             uint64
	moved, since, spoke  int64
}

type plain struct {
	cfg           Config
	now, pausedTo int64
	late          *int64
	blind         *int64
	gaps          []plainGap
	ranks         map[int]*plainRank
	z             map[int]int64 // sigmasFor each threshold
	nodes         bool          // the members are nodes, whose progress is not judged
}

func (p *plain) rule(phase Phase) Rule { return p.cfg.table()[phase] }

// spread returns the mean and the deviation of the intervals of r, in nanoseconds.
func (p *plain) spread(r *plainRank) (mean, sigma int64) {
	sum, square, n := new(big.Int), new(big.Int), big.NewInt(int64(len(r.intervals)))
	for _, x := range r.intervals {
		b := big.NewInt(x)
		sum.Add(sum, b)
		square.Add(square, new(big.Int).Mul(b, b))
	}
	m := new(big.Int).Mul(sum, big.NewInt(1000))
	m.Quo(m, n)
	// The least root with root² >= (n·Σx² - (Σx)²)/n².
	v := new(big.Int).Mul(n, square)
	v.Sub(v, new(big.Int).Mul(sum, sum))
	root := new(big.Int).Sqrt(new(big.Int).Quo(v, new(big.Int).Mul(n, n)))
	for new(big.Int).Mul(new(big.Int).Mul(root, root), new(big.Int).Mul(n, n)).Cmp(v) < 0 {
		root.Add(root, big.NewInt(1))
	}
	return m.Int64(), max(root.Int64()*1000, int64(p.cfg.MinSigma))
}

func (p *plain) timeouts(r *plainRank) (quiet, dead int64) {
	if p.cfg.Method == Deadline {
		return int64(p.cfg.SuspectAfter), int64(p.cfg.DeadAfter)
	}
	mean, sigma := p.spread(r)
	up := func(threshold int) int64 {
		z := new(big.Int).Mul(big.NewInt(p.z[threshold]), big.NewInt(sigma))
		z.Add(z, big.NewInt(million-1))
		return z.Quo(z, big.NewInt(million)).Int64()
	}
	base := mean + max(int64(p.cfg.Pause), 0)
	quiet = base + up(p.cfg.Suspect)
	return quiet, max(quiet, base+up(p.cfg.Dead), 2*mean+4*sigma, int64(p.cfg.DeadAfter))
}

func (p *plain) silence(r *plainRank) (quietAt, deadAt int64) {
	quiet, dead := p.timeouts(r)
	if !r.seen {
		quietAt = max(r.joined, p.pausedTo) + int64(p.cfg.Startup)
		return quietAt, quietAt + dead - quiet
	}
	from := max(r.last, r.paused, p.pausedTo) + int64(p.rule(r.phase).Pause)
	return from + quiet, from + dead
}

func (p *plain) allowed(phase Phase) int64 {
	rule, latest, seen, longest := p.rule(phase), int64(0), 0, int64(0)
	for _, g := range p.gaps {
		if g.phase == phase {
			latest = g.block
		}
	}
	for _, g := range p.gaps {
		if g.phase == phase && g.block >= latest-1 {
			seen++
			longest = max(longest, g.took)
		}
	}
	if rule.Fixed || seen < p.cfg.Learn {
		return int64(rule.Gap)
	}
	return max(int64(rule.Least), min(longest*int64(p.cfg.Factor)/1000, int64(rule.Most)))
}

func (p *plain) hungAt(r *plainRank) int64 {
	all := int64(0)
	for phase := range r.phases { // in any order: a sum
		all += p.allowed(phase)
	}
	return min(max(r.since, p.pausedTo)+p.allowed(r.phase), max(r.moved, p.pausedTo)+all)
}

func (p *plain) state(r *plainRank) State {
	switch {
	case r.gone:
		return Left
	case r.dead:
		return Dead
	case r.quiet:
		return Suspect
	case !r.seen:
		return Unknown
	case r.hung:
		return Hung
	}
	return Alive
}

func (p *plain) wake() (int64, bool) {
	var at []int64
	for _, r := range p.ranks { // in any order: the least
		if due, ok := p.due(r); ok {
			at = append(at, due)
		}
	}
	if len(at) == 0 {
		return 0, false
	}
	return slices.Min(at), true
}

// due is when there is something to decide about r.
func (p *plain) due(r *plainRank) (int64, bool) {
	quietAt, deadAt := p.silence(r)
	switch {
	case p.state(r) != r.told, r.inc != r.of:
		return 0, true
	case r.dead || r.gone:
		return 0, false
	}
	at := max(deadAt, r.hold, r.cohort)
	if r.cut != nil {
		at = min(at, max(*r.cut+int64(p.cfg.Reconnect), r.cohort))
	}
	if !r.quiet {
		at = min(at, quietAt)
	}
	if r.calm != nil {
		at = min(at, *r.calm, quietAt)
	}
	if r.seen && !r.hung && !p.nodes {
		at = min(at, p.hungAt(r))
	}
	return at, true
}

func (p *plain) pass(ns int64) {
	if wake, ok := p.wake(); ok && p.blind == nil && ns-max(p.now, wake) > int64(p.cfg.Late) {
		if p.late == nil {
			p.late = new(int64)
			*p.late = p.now
		}
		p.blind = &ns
		p.pausedTo = max(p.pausedTo, ns)
	}
	p.now = ns
}

func (p *plain) join(ns int64, rank int, inc uint64) bool {
	old := p.ranks[rank]
	if old != nil && inc <= old.inc {
		return false
	}
	p.pass(ns)
	mean := int64(p.cfg.Interval) / 1000
	r := &plainRank{inc: inc, of: inc, joined: ns, last: ns, moved: ns, since: ns, steady: ns, phases: map[Phase]bool{}}
	r.intervals = []int64{mean - mean/4, mean + mean/4}
	if old != nil {
		r.told, r.of = old.told, old.of
	}
	p.ranks[rank] = r
	return true
}

func (r *plainRank) refuse(inc uint64) (Outcome, bool) {
	switch {
	case r == nil:
		return Stranger, true
	case inc < r.inc:
		return Stale, true
	case inc > r.inc:
		return Early, true
	case r.gone:
		return Retired, true
	case r.dead:
		return Fenced, true
	}
	return Accepted, false
}

func (p *plain) beat(ns int64, rank int, b Beat) Outcome {
	p.pass(ns)
	r := p.ranks[rank]
	if out, no := r.refuse(b.Incarnation); no {
		return out
	}
	quietAt, _ := p.silence(r)
	again := r.seen && ns == r.last
	if r.seen && !again && r.last >= p.pausedTo && r.paused <= r.last && p.rule(r.phase).Pause == 0 {
		quiet, _ := p.timeouts(r)
		r.intervals = append(r.intervals, min(ns-r.last, quiet)/1000)
		r.intervals = r.intervals[max(0, len(r.intervals)-p.cfg.Window):]
	}
	if r.cut != nil && *r.cut < ns {
		r.cut = nil
	}
	if r.quiet && r.cut == nil && (r.calm == nil || ns >= quietAt) {
		calm := ns + int64(p.cfg.Settle)<<r.relapses
		r.calm = &calm
	}
	longer := true
	if again {
		longer = ns+int64(b.Pause) > r.paused
		r.paused = max(r.paused, ns+int64(b.Pause))
	} else {
		r.paused = ns + int64(b.Pause)
	}
	r.last = ns
	if !r.seen {
		r.seen, r.phase, r.phases, r.progress, r.moved, r.since, r.spoke = true, b.Phase, map[Phase]bool{b.Phase: true}, b.Progress, ns, ns, ns
		return Accepted
	}
	if again && b.Progress < r.progress || r.spoke == ns && b.Progress == r.progress && b.Phase <= r.phase {
		if longer {
			return Accepted
		}
		return Repeated
	}
	if b.Progress < r.progress {
		return Rewound
	}
	r.spoke = ns
	if b.Progress > r.progress || b.Phase != r.phase {
		if ns > r.since && r.since >= p.pausedTo {
			p.gaps = append(p.gaps, plainGap{r.phase, ns / int64(p.cfg.Memory), ns - r.since})
		}
		r.since = ns
	}
	if b.Progress > r.progress {
		r.progress, r.moved, r.hung = b.Progress, ns, false
	}
	if r.moved == ns {
		r.phases = map[Phase]bool{}
	}
	r.phase = b.Phase
	r.phases[b.Phase] = true
	return Accepted
}

func (p *plain) evidence(ns int64, rank int, inc uint64, e Evidence) Outcome {
	p.pass(ns)
	r := p.ranks[rank]
	if out, no := r.refuse(inc); no {
		return out
	}
	switch e {
	case Exited, Broken:
		r.dead, r.why = true, map[Evidence]lockstep.Reason{Exited: reasonExited, Broken: reasonBroken}[e]
	case Seen:
		r.hold = max(r.hold, ns+int64(p.cfg.Hold))
	case Disconnected:
		if r.cut != nil {
			return Repeated
		}
		r.cut, r.calm = &ns, nil
		p.fall(r, ns, reasonDisconnected)
	}
	return Accepted
}

func (p *plain) fall(r *plainRank, ns int64, why lockstep.Reason) {
	r.why = why
	if !r.quiet && ns-r.steady >= 64*int64(p.cfg.Settle) {
		r.relapses = 0
	}
	r.quiet = true
}

func (p *plain) leave(ns int64, rank int, inc uint64) Outcome {
	p.pass(ns)
	r := p.ranks[rank]
	out, no := r.refuse(inc)
	if !no {
		r.gone = true
	}
	return out
}

func (p *plain) check(ns int64) []Event {
	p.pass(ns)
	var out []Event
	if p.late != nil {
		out = append(out, Event{Kind: ObserverLate, At: lockstep.FromNanos(ns), Reason: reasonLate, Since: lockstep.FromNanos(*p.late)})
		p.late = nil
	}
	var ranks []int
	for rank := range p.ranks { // in any order: sorted
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	for _, rank := range ranks {
		r := p.ranks[rank]
		p.decide(r, ns)
		if p.state(r) != r.told || r.inc != r.of {
			e := p.tell(r, ns)
			e.Rank, e.Node = rank, "n0"
			out = append(out, e)
		}
	}
	if p.blind != nil && ns > *p.blind {
		p.blind = nil
	}
	return out
}

// tell returns the event that r changed, without its name.
func (p *plain) tell(r *plainRank, ns int64) Event {
	to := p.state(r)
	e := Event{At: lockstep.FromNanos(ns), Incarnation: r.inc, From: r.told, To: to, Reason: r.why, Since: lockstep.FromNanos(r.last)}
	switch to {
	case Left:
		e.Reason = reasonLeft
	case Unknown:
		e.Reason = reasonJoined
	case Hung:
		e.Reason, e.Since = reasonNoProgress, lockstep.FromNanos(r.moved)
	case Alive:
		e.Reason = map[bool]lockstep.Reason{true: reasonProgress, false: reasonBeating}[r.told == Hung]
	}
	r.told, r.of = to, r.inc
	return e
}

// hush finds r quiet where it is silent.
func (p *plain) hush(r *plainRank, ns int64) {
	if quietAt, _ := p.silence(r); r.dead || r.gone || ns < quietAt {
		return
	}
	if !r.quiet {
		p.fall(r, ns, map[bool]lockstep.Reason{true: reasonSilent, false: reasonNeverStarted}[r.seen])
	}
	r.calm = nil
}

func (p *plain) decide(r *plainRank, ns int64) {
	if r.dead || r.gone {
		return
	}
	p.hush(r, ns)
	_, deadAt := p.silence(r)
	silent := map[bool]lockstep.Reason{true: reasonSilent, false: reasonNeverStarted}[r.seen]
	switch {
	case r.cut != nil && ns >= max(*r.cut+int64(p.cfg.Reconnect), r.cohort):
		r.dead, r.why = true, reasonDisconnected
		return
	case ns >= max(deadAt, r.hold, r.cohort):
		r.dead, r.why = true, silent
		return
	case r.calm != nil && ns >= *r.calm:
		r.quiet, r.calm, r.hold, r.cohort, r.steady = false, nil, 0, 0, ns
		r.relapses = min(r.relapses+1, 5)
	}
	if r.seen && !r.hung && !p.nodes && ns >= p.hungAt(r) {
		if r.phase == PhaseTeardown {
			r.dead, r.why = true, reasonTeardown
		} else {
			r.hung = true
		}
	}
}
