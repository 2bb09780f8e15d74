package fairness

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// pass is one round of proposals. It is not part of the account.
type pass struct {
	seq              uint64
	now              int64  // now is the time of the pass, which is not warped, for jobs that are ranked.
	epoch            int64  // epoch is that in whose units heap and horizon are, of a recent.
	horizon, quantum uint64 // horizon and quantum are those of the configuration, or what they come to in a recent.
	ranks            bool   // ranks says that jobs are ranked, rather than read from the queue.
	ranked           []*job // ranked are the jobs of the tenants that the pass came to, if so.
	rankings         []ranking
	heap             []seat // heap is the tenants that are left, most owed first.

	// Looking one job further in a queue costs a search, so several are read at
	// once while a tenant stays on top, twice as many each time.
	ahead  []*job           // ahead are the jobs of reader behind its latest proposal, not all.
	reader *tenant          // reader is whose ahead is; nil once its queue changed.
	wanted int              // wanted is how many were read at most.
	visit  func(entry) bool // visit is take, bound once.
	room   [maxAhead]*job   // room is where ahead lies.
}

// maxAhead is how many jobs are read at once, at most.
const maxAhead = 32

// seat is a tenant's place in the heap of a pass.
type seat struct {
	lag    int128.Int // lag is what it would be owed after the horizon, as things stand.
	guest  bool       // guest says that its weight was 0 when the pass began.
	tenant *tenant
}

// turn is a tenant's part in a pass.
type turn struct {
	pass    uint64     // pass is which one; the rest is of no meaning in another.
	service int128.Int // service is at the time of the pass, for ties.
	due     int128.Int // due is what its due jobs would go on to hold; for Begin only.
	after   entry      // after is its latest proposal; its job is nil before the first.
	ranked  bool       // ranked says that its jobs are in pass.ranked.
	next    int        // next is where those begin that the pass has not proposed.
	end     int        // end is where they end.
}

// part returns t's turn in this pass.
func (p *pass) part(t *tenant) *turn {
	if turn := &t.turn; turn.pass != p.seq {
		turn.pass, turn.due, turn.ranked = p.seq, int128.Int{}, false
		turn.after.job = nil
	}
	return &t.turn
}

// ahead reports whether s is proposed before r.
func (s *seat) ahead(r *seat) bool {
	if s.guest != r.guest {
		return r.guest
	}
	if c := s.lag.Cmp(r.lag); c != 0 {
		return c > 0
	}
	t, u := s.tenant, r.tenant
	if c := int128.CmpProducts(t.turn.service, u.pull(), u.turn.service, t.pull()); c != 0 {
		return c < 0
	}
	return t.id < u.id
}

// outlook is the view of a pass, and what follows from it for the horizon.
type outlook struct {
	view
	l       *Ledger
	horizon uint64
	quantum uint64
	plain   bool // plain says that a claim is lag and adjust.
	window  window
	gains   [2]int128.Fixed // gains are entitlements per pull over the horizon, above the level.
}

// Begin starts a pass at now and ends the one before. A time before the latest
// event counts as that event's.
func (l *Ledger) Begin(now time.Time) {
	ns, err := lockstep.Nanos(now)
	if err != nil {
		ns = l.now
	}
	if l.recent != nil {
		l.recent.begin(ns)
	} else {
		l.begin(ns)
	}
}

func (l *Ledger) begin(ns int64) {
	o := l.outlook(ns)
	p := &l.pass
	p.seq++
	p.reader, p.now, p.horizon, p.quantum = nil, ns, o.horizon, o.quantum
	p.ranks = l.cfg.JobOrder.ranked() || o.aged != 0
	if l.clock != nil {
		p.epoch = l.clock.epochOf(max(ns, l.stamp))
	}
	clear(p.heap)
	clear(p.ranked)
	p.heap, p.ranked = p.heap[:0], p.ranked[:0]
	o.requeue()
	// One sweep over all is cheaper than a walk up the tree for each of many.
	if 8*len(l.ready) < len(l.tenants) {
		for _, t := range l.ready {
			t.swept = t.credited()
		}
	} else {
		for i := range l.tiers {
			l.tiers[i].root.sweep(0, int128.Fixed{})
		}
	}
	for _, t := range l.ready {
		p.heap = append(p.heap, o.seat(t))
	}
	for i := len(p.heap)/2 - 1; i >= 0; i-- {
		p.down(i)
	}
}

// outlook returns what a pass at ns goes by.
func (l *Ledger) outlook(ns int64) outlook {
	o := outlook{view: l.look(ns), l: l, horizon: uint64(l.cfg.Horizon), quantum: uint64(l.cfg.Quantum)}
	if w := l.clock; w != nil {
		o.horizon, o.quantum = w.over(l.cfg.Horizon, o.now), w.over(l.cfg.Quantum, o.now)
	}
	o.window = l.window(&o.view)
	o.plain = l.cfg.Memory.Bucket == 0 && l.cfg.CreditCap == 0 && o.aged == 0
	for k, level := range o.levels {
		if level.pull != 0 {
			o.gains[k], _ = int128.Divide(int128.Mul(level.room, o.horizon), 0, level.pull)
		}
	}
	return o
}

// requeue puts due jobs where they belong as of this pass, since they still run.
// What they hold does not count as held over the horizon.
func (o *outlook) requeue() {
	for _, j := range o.l.due {
		turn := o.l.pass.part(j.tenant)
		turn.due = turn.due.Add(rated(j.grant, o.horizon))
		if o.l.pass.ranks {
			continue // then the queue's order does not matter
		}
		queue := j.tenant.queue
		queue.Delete(o.l.entry(j))
		service, _ := j.seen(&o.view)
		j.key = o.l.keyOf(j, service, j.ranBy(&o.view))
		queue.ReplaceOrInsert(o.l.entry(j))
	}
}

// seat returns the place of t, which is swept.
func (o *outlook) seat(t *tenant) seat {
	k, turn := t.rank(), o.l.pass.part(t)
	turn.service = t.served(&o.view)
	gain := rated(t.demand, o.horizon)
	if !o.levels[k].satisfied(uint64(t.demand), t.pull()) {
		gain = o.gains[k].Mul(t.pull()).Near()
	}
	lag := o.l.advanced(t, t.swept, &o.view).Near().Sub(turn.service)
	if o.plain {
		lag = lag.Add(t.adjust)
	} else {
		lag = lag.Add(o.l.extra(t, &o.view, &o.window))
	}
	lag = lag.Add(gain).Sub(rated(t.rate, o.horizon)).Add(turn.due)
	return seat{lag: lag, guest: k == 1, tenant: t}
}

// extra returns by how much t's claim at v differs from its lag over the whole run.
func (l *Ledger) extra(t *tenant, v *view, w *window) int128.Int {
	if l.cfg.Memory.Bucket == 0 {
		return v.agedInt(t.adjust).Add(l.saved(t, v))
	}
	before := w.of(t)
	return t.adjust.Sub(before.adjust).Sub(before.entitled.Sub(before.service))
}

// down restores the heap below i.
func (p *pass) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(p.heap) {
			return
		}
		if right := child + 1; right < len(p.heap) && p.heap[right].ahead(&p.heap[child]) {
			child = right
		}
		if !p.heap[child].ahead(&p.heap[i]) {
			return
		}
		p.heap[i], p.heap[child] = p.heap[child], p.heap[i]
		i = child
	}
}

// Next proposes the most owed job of the tenant that is owed most, given what
// this pass granted so far. It returns false when every job was proposed, and
// before the first Begin.
func (l *Ledger) Next() (lockstep.JobID, bool) {
	if l.recent != nil {
		return l.recent.Next()
	}
	p := &l.pass
	for len(p.heap) != 0 {
		t := p.heap[0].tenant
		if j := l.following(t); j != nil {
			t.turn.after = l.entry(j)
			j.proposed = p.seq
			return j.id, true
		}
		last := len(p.heap) - 1
		p.heap[0], p.heap[last] = p.heap[last], seat{}
		p.heap = p.heap[:last]
		p.down(0)
	}
	return "", false
}

// following returns the first job of t behind its latest proposal, or nil.
func (l *Ledger) following(t *tenant) *job {
	if l.pass.ranks {
		return l.nextRanked(t)
	}
	return l.pass.following(t)
}

func (p *pass) following(t *tenant) *job {
	if p.reader != t || len(p.ahead) == 0 {
		p.read(t)
	}
	if len(p.ahead) == 0 {
		return nil
	}
	j := p.ahead[0]
	p.ahead = p.ahead[1:]
	return j
}

// read fills ahead with jobs of t behind its latest proposal.
func (p *pass) read(t *tenant) {
	want := 1
	if p.reader == t {
		want = min(2*p.wanted, maxAhead)
	}
	clear(p.room[:])
	p.reader, p.wanted, p.ahead = t, want, p.room[:0]
	if t.turn.after.job == nil {
		t.queue.Ascend(p.visit)
	} else {
		t.queue.AscendGreaterOrEqual(t.turn.after, p.visit)
	}
}

// take reads one job that this pass has not proposed, and says whether to read
// on. A job that stopped after its proposal may have moved back.
func (p *pass) take(e entry) bool {
	if e.job.proposed != p.seq {
		p.ahead = append(p.ahead, e.job)
	}
	return len(p.ahead) < p.wanted
}

// changed says that t's queue is not what was read any more.
func (p *pass) changed(t *tenant) {
	if p.reader == t {
		p.reader = nil
	}
}

// Outcome tells what became of job, which this pass proposed. If it was granted
// or kept, its tenant is charged ahead with what the job holds, or asks for, over
// the horizon, once in a pass. Other outcomes, and other jobs, change nothing.
func (l *Ledger) Outcome(job lockstep.JobID, outcome lockstep.Outcome) {
	if outcome != lockstep.Granted && outcome != lockstep.Kept {
		return
	}
	if l.recent != nil {
		l.recent.Outcome(job, outcome)
		return
	}
	j, p := l.jobs[job], &l.pass
	if j == nil || j.proposed != p.seq || j.charged == p.seq {
		return
	}
	j.charged = p.seq
	amount := j.demand
	if j.running {
		amount = j.grant
	}
	if j.due {
		l.dequeue(j)
	}
	// The tenant that was proposed last is at the top. One of an earlier proposal
	// is anywhere or gone.
	for i := range p.heap {
		if p.heap[i].tenant == j.tenant {
			p.heap[i].lag = p.heap[i].lag.Sub(rated(amount, p.horizon))
			p.down(i)
			return
		}
	}
}
