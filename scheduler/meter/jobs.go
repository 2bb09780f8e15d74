package meter

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/lifecycle"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// job is what a Meter knows of one that has not ended.
type job struct {
	id     lockstep.JobID
	queue  lockstep.QueueID
	tenant lockstep.TenantID

	state lifecycle.State // "" before the first look
	since int64           // when it came into state
	gone  bool

	waits   int64 // when it began to wait
	held    bool  // it has room
	granted int64 // when it got it
	gpus    lockstep.MilliGPU

	resizing  int64 // when it was told to change its size; 0 for not
	direction string

	counted [lifecycle.Parts]lockstep.GPUTime // of its ledger
}

// begin takes up a job.
func (m *Meter) begin(now int64, g *lockstep.Gang) *job {
	if old := m.jobs[g.ID]; old != nil {
		m.drop(old)
	}
	j := &job{id: g.ID, since: now, waits: now}
	j.queue = lockstep.QueueID(m.queues.fold(string(g.Queue)))
	j.tenant = lockstep.TenantID(m.tenants.fold(string(g.Tenant)))
	if j.queue != g.Queue || j.tenant != g.Tenant {
		m.rec.Count(Folded, lockstep.MetricLabels{Kind: string(Jobs)}, 1)
	}
	m.jobs[g.ID] = j
	m.all = append(m.all, j)
	return j
}

// Follow takes up a job that the scheduler knew before m, as after a restart, or
// that it adopted:
// what it went through until now is not counted. It keeps nothing of g but its
// names.
func (m *Meter) Follow(src Source, now time.Time, g *lockstep.Gang) {
	if !m.On() || g == nil {
		return
	}
	st, ok := src.Status(g.ID)
	if !ok || st.Life.State.Terminal() {
		return
	}
	t := now.UnixNano()
	j := m.begin(t, g)
	j.counted = st.Life.Ledger.GPU
	j.gpus = planGPUs(st.Gang.Plan)
	j.held, j.granted = st.Gang.Plan != nil, t
	m.look(src, t, g.ID)
}

// drop lets go of a job.
func (m *Meter) drop(j *job) {
	if j.state != "" {
		m.states.add(queued{j.queue, j.state}, -1)
	}
	m.again = slices.DeleteFunc(m.again, func(o *job) bool { return o == j })
	j.gone = true
	delete(m.jobs, j.id)
	if m.dead++; m.dead > 1024 && m.dead > len(m.all)/2 {
		m.all = slices.DeleteFunc(m.all, func(o *job) bool { return o.gone })
		m.dead = 0
	}
}

// lookAll looks at all jobs, in the order of their submission, and has survey, if
// there is one, look at each that has not ended.
func (m *Meter) lookAll(src Source, now int64, survey func(j *job, st *scheduler.Status)) {
	var st scheduler.Status                 // one for all, since it escapes
	for _, j := range slices.Clone(m.all) { // looking may leave some out
		if j.gone {
			continue
		}
		var ok bool
		if st, ok = src.Status(j.id); !ok {
			m.drop(j)
			continue
		}
		if m.see(now, j, &st); !j.gone && survey != nil {
			survey(j, &st)
		}
	}
}

// look finds out where a job is and counts what has become of it since.
func (m *Meter) look(src Source, now int64, id lockstep.JobID) {
	if j := m.jobs[id]; j != nil {
		if st, ok := src.Status(id); ok {
			m.see(now, j, &st)
		} else {
			m.drop(j)
		}
	}
}

// see counts what has become of a job that is where st says.
func (m *Meter) see(now int64, j *job, st *scheduler.Status) {
	m.account(j, &st.Life)
	if j.resizing != 0 && st.Gang.Phase != gang.Resizing {
		m.rec.Observe(ResizeStall, lockstep.MetricLabels{Kind: j.direction}, seconds64(now-j.resizing))
		j.resizing = 0
	}
	if st.Life.State != j.state {
		m.pass(now, j, st)
	}
	if !j.gone && st.Gang.Phase == gang.Gone && j.state == lifecycle.Held {
		m.ended(j, "rejected") // gang admission has it no more, so nobody can queue it but by another submission
		m.drop(j)
	}
}

// account notes where the device time of a job went since the last look. What
// was productive may turn out to be lost: then the productive time of its tenant
// is owed, and the counter stands until that is made up for.
func (m *Meter) account(j *job, life *lifecycle.Job) {
	for p := range lifecycle.Parts {
		delta := life.Ledger.GPU[p].Sub(j.counted[p])
		if delta.Sign() == 0 {
			continue
		}
		j.counted[p] = life.Ledger.GPU[p]
		at := spending{j.tenant, p}
		m.spent[at] = m.spent[at].Add(delta)
		if p == lifecycle.PartLost {
			cause := causeOf(life)
			m.lost[cause] = m.lost[cause].Add(delta)
		}
	}
}

// causeOf returns why the latest attempt of a job ended or ends.
func causeOf(life *lifecycle.Job) lockstep.Reason {
	if life.Cause == "" {
		return "unknown"
	}
	return lockstep.Reason(life.Cause)
}

// pass notes that a job has another state.
func (m *Meter) pass(now int64, j *job, st *scheduler.Status) {
	from, to := j.state, st.Life.State
	if from != "" {
		m.states.add(queued{j.queue, from}, -1)
		m.rec.Observe(StateDuration, lockstep.MetricLabels{Queue: j.queue, State: string(from)}, seconds64(now-j.since))
	}
	if from == lifecycle.Backoff {
		m.again = slices.DeleteFunc(m.again, func(o *job) bool { return o == j })
	}
	j.state, j.since = "", now
	if to.Terminal() {
		m.ended(j, to)
		m.drop(j)
		return
	}
	j.state = to
	m.states.add(queued{j.queue, to}, 1)
	switch to {
	case lifecycle.Backoff:
		m.again = append(m.again, j)
		m.restarted(now, j, from, &st.Life)
	case lifecycle.Queued, lifecycle.Held:
		m.restarted(now, j, from, &st.Life)
	}
}

// ended notes that a job has left, in the state to or, by a word of this
// package, before it came to an end.
func (m *Meter) ended(j *job, to lifecycle.State) {
	m.rec.Count(JobsEnded, lockstep.MetricLabels{Queue: j.queue, Result: string(to)}, 1)
	if to == lifecycle.DeadlineExceeded {
		m.rec.Count(DeadlineJobs, lockstep.MetricLabels{Result: "missed"}, 1)
	}
}

// restarted notes that a job waits, again if it had begun an attempt.
func (m *Meter) restarted(now int64, j *job, from lifecycle.State, life *lifecycle.Job) {
	switch from {
	case lifecycle.Starting, lifecycle.Running, lifecycle.Draining, lifecycle.Lost, lifecycle.Cleaning:
		j.waits, j.held, j.granted, j.gpus = now, false, 0, 0
		m.rec.Count(Restarts, lockstep.MetricLabels{Reason: causeOf(life), Kind: m.budget(life.Cause)}, 1)
	case lifecycle.Held, lifecycle.Suspended:
		j.waits = now // somebody queued it
	}
}

// budget returns which budget pays for a cause. Gang admission knows of no exit
// code but failure, which lifecycle.Machine.ForEvent calls 1.
func (m *Meter) budget(cause lifecycle.Cause) string {
	for i := range m.cfg.Rules {
		r := &m.cfg.Rules[i]
		if len(r.Causes) > 0 && !slices.Contains(r.Causes, cause) {
			continue
		}
		if len(r.Codes) > 0 && slices.Contains(r.Codes, 1) == r.NotCodes {
			continue
		}
		if r.Budget != "" {
			return r.Budget
		}
		break
	}
	return "none"
}
