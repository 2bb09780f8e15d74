package fairness

import (
	"github.com/google/btree"
	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
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
	if l.cfg.JobOrder != FIFO {
		e.key = j.key
	}
	return e
}

// keyOf returns what orders j among its tenant's, where it got service and ran so
// long, as far as that does not change while it waits.
func (l *Ledger) keyOf(j *job, service, ran int128.Int) int128.Int {
	switch l.cfg.JobOrder {
	case MostOwed:
		return j.share.Add(service)
	case Smallest:
		return int128.Of(int64(j.demand))
	case LeastRun:
		return ran
	}
	return int128.Int{}
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
	j.key = l.keyOf(j, j.service, j.ran)
	t.queue.ReplaceOrInsert(l.entry(j))
	l.pass.changed(t)
}

// rekey puts j, whose demand changed, in its place anew if it is in the queue.
func (l *Ledger) rekey(j *job) {
	if l.cfg.JobOrder != Smallest || j.running && !j.due {
		return
	}
	j.tenant.queue.Delete(l.entry(j))
	j.key = l.keyOf(j, j.service, j.ran)
	j.tenant.queue.ReplaceOrInsert(l.entry(j))
	l.pass.changed(j.tenant)
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
	l.pass.changed(t)
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
		return fault(lockstep.ErrUnknown, "due", "job", errtext.Quote(job), "was not submitted")
	case !j.running:
		return fault(lockstep.ErrConflict, "due", "job", errtext.Quote(job), "does not run")
	case l.recent != nil:
		return l.recent.Due(job)
	case j.due:
		return nil
	}
	l.settleJob(j)
	l.enqueue(j)
	j.due, j.dueAt = true, len(l.due)
	l.due = append(l.due, j)
	return nil
}
