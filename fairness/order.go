package fairness

import (
	"time"

	"github.com/google/btree"
	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// entry is a job's place among those of its tenant that can be proposed.
type entry struct {
	key       int128.Int // key is less for a job that is owed more.
	submitted int64
	job       *job
}

// degree of the trees that hold entries.
const degree = 16

func (e entry) before(f entry) bool {
	if c := e.key.Cmp(f.key); c != 0 {
		return c < 0
	}
	if e.submitted != f.submitted {
		return e.submitted < f.submitted
	}
	return e.job.id < f.job.id
}

// entry returns j's place. Each live job's share grows by the same, so what
// orders jobs by lag does not change while they wait: what the share had come to
// at submission, plus the job's service.
func (l *Ledger) entry(j *job) entry {
	e := entry{submitted: j.submitted, job: j}
	if l.cfg.JobOrder == MostOwed {
		e.key = j.key
	}
	return e
}

// enqueue makes j, which is settled, one that can be proposed.
func (l *Ledger) enqueue(j *job) {
	t := j.tenant
	if t.queue == nil {
		t.queue = btree.NewWithFreeListG(degree, entry.before, l.free)
	}
	if t.readyAt < 0 {
		t.readyAt = len(l.ready)
		l.ready = append(l.ready, t)
	}
	j.key = j.share.Add(j.service)
	t.queue.ReplaceOrInsert(l.entry(j))
}

// dequeue undoes enqueue, and does nothing for a job that is not in the queue.
func (l *Ledger) dequeue(j *job) {
	t := j.tenant
	if j.running && !j.due {
		return
	}
	if j.due {
		last := l.due[len(l.due)-1]
		l.due[j.dueAt], last.dueAt = last, j.dueAt
		l.due[len(l.due)-1] = nil
		l.due = l.due[:len(l.due)-1]
		j.due = false
	}
	t.queue.Delete(l.entry(j))
	if t.queue.Len() == 0 {
		last := l.ready[len(l.ready)-1]
		l.ready[t.readyAt], last.readyAt = last, t.readyAt
		l.ready[len(l.ready)-1] = nil
		l.ready = l.ready[:len(l.ready)-1]
		t.readyAt = -1
	}
}

// Due says that the term of a running job is over, so that passes propose it
// like a waiting one until it is granted or kept, or stops. It is not an event:
// it changes no account, and neither Snapshot nor the log holds it. A job that
// is due already stays so.
func (l *Ledger) Due(job lockstep.JobID) error {
	j := l.jobs[job]
	switch {
	case j == nil:
		return fault(lockstep.ErrUnknown, "due", "job", quote(job), "was not submitted")
	case !j.running:
		return fault(lockstep.ErrConflict, "due", "job", quote(job), "does not run")
	case j.due:
		return nil
	}
	l.settleJob(j)
	l.enqueue(j)
	j.due, j.dueAt = true, len(l.due)
	l.due = append(l.due, j)
	return nil
}

// pass is one round of proposals. It is not part of the account.
type pass struct {
	seq  uint64
	heap []seat // heap is the tenants that are left, most owed first.

	visit func(entry) bool // visit is take, bound once.
	after entry            // after is the latest proposal of the tenant that visit looks at; its job is nil if there is none.
	found *job
}

// seat is a tenant's place in the heap of a pass.
type seat struct {
	lag    int128.Int // lag is what it would be owed after the horizon, as things stand.
	guest  bool       // guest says that its weight was 0 when the pass began.
	tenant *tenant
}

// turn is the rest of a tenant's part in a pass.
type turn struct {
	service int128.Int // service is at the time of the pass, for ties.
	due     int128.Int // due is what its due jobs would go on to hold; for Begin only.
	after   entry      // after is its latest proposal; its job is nil before the first.
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

// Begin starts a pass at now and ends the one before. A time before the latest
// event counts as that event's.
func (l *Ledger) Begin(now time.Time) {
	ns, err := lockstep.Nanos(now)
	if err != nil {
		ns = l.now
	}
	v := l.at(ns)
	p := &l.pass
	p.seq++
	clear(p.heap)
	p.heap = p.heap[:0]

	horizon := uint64(l.cfg.Horizon)
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
		t.turn = turn{}
	}
	// Due jobs still run: their places are as of this pass, and what they hold
	// does not count as held over the horizon.
	for _, j := range l.due {
		t := j.tenant
		t.queue.Delete(l.entry(j))
		service, _ := j.at(v.now)
		j.key = j.share.Add(service)
		t.queue.ReplaceOrInsert(l.entry(j))
		t.turn.due = t.turn.due.Add(rated(j.grant, horizon))
	}
	var ahead [2]int128.Fixed // entitlement per pull over the horizon, above the level
	for i, level := range v.levels {
		if level.pull != 0 {
			ahead[i], _ = int128.Divide(int128.Mul(level.room, horizon), 0, level.pull)
		}
	}
	for _, t := range l.ready {
		s := seat{tenant: t, guest: t.weight == 0}
		k := 0
		if s.guest {
			k = 1
		}
		gain := rated(t.demand, horizon)
		if !v.levels[k].satisfied(uint64(t.demand), t.pull()) {
			gain = ahead[k].Mul(t.pull()).Near()
		}
		t.turn.service = t.served(&v)
		lag := l.advanced(t, t.swept, &v).Near().Sub(t.turn.service)
		s.lag = lag.Add(gain).Sub(rated(t.rate, horizon)).Add(t.turn.due)
		p.heap = append(p.heap, s)
	}
	for i := len(p.heap)/2 - 1; i >= 0; i-- {
		p.down(i)
	}
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
	p := &l.pass
	for len(p.heap) != 0 {
		t := p.heap[0].tenant
		if j := p.following(t); j != nil {
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
func (p *pass) following(t *tenant) *job {
	if t.queue == nil {
		return nil
	}
	p.after, p.found = t.turn.after, nil
	if p.after.job == nil {
		t.queue.Ascend(p.visit)
	} else {
		t.queue.AscendGreaterOrEqual(p.after, p.visit)
	}
	p.after = entry{}
	return p.found
}

// take stops at the first job that this pass has not proposed. A job that
// stopped after its proposal may have moved back.
func (p *pass) take(e entry) bool {
	if e.job.proposed == p.seq {
		return true
	}
	p.found = e.job
	return false
}

// Outcome tells what became of job, which this pass proposed. If it was granted
// or kept, its tenant is charged ahead with what the job holds, or asks for, over
// the horizon, once in a pass. Other outcomes, and other jobs, change nothing.
func (l *Ledger) Outcome(job lockstep.JobID, outcome lockstep.Outcome) {
	j, p := l.jobs[job], &l.pass
	if j == nil || j.proposed != p.seq || j.charged == p.seq || outcome != lockstep.Granted && outcome != lockstep.Kept {
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
			p.heap[i].lag = p.heap[i].lag.Sub(rated(amount, uint64(l.cfg.Horizon)))
			p.down(i)
			return
		}
	}
}
