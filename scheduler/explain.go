package scheduler

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/lease"
	"github.com/lockstep-gpu/lockstep/lifecycle"
)

// Explain says why job waits, or where it stands: what admission and placement
// say, and notes of the tenant's account, the lease and the lifecycle. It
// changes nothing; false means that the job is not known. Times are those of the
// latest input.
func (s *Scheduler) Explain(job lockstep.JobID) (lockstep.Explanation, bool) {
	j := s.jobs[job]
	if j == nil {
		return lockstep.Explanation{Job: job}, false
	}
	e, ok := s.gangs.Explain(job)
	if !ok {
		e.Job = job
	}
	if !j.gone && !j.on && e.Verdict == (lockstep.Verdict{}) { // no pass came as far as job
		if told, err := s.room.Explain(&lockstep.Request{Gang: j.gang}); err == nil {
			e.Verdict = told.Verdict
		}
	}
	e.Notes = s.appendNotes(e.Notes, j)
	return e, true
}

// appendNotes appends what the parts beside admission say.
func (s *Scheduler) appendNotes(dst []lockstep.Note, j *job) []lockstep.Note {
	note := func(stage string, reason lockstep.Reason, detail string) {
		dst = append(dst, lockstep.Note{Stage: stage, Reason: reason, Detail: detail})
	}
	if l := s.ledger(); l != nil {
		if st, err := l.Statement(lockstep.FromNanos(s.now), j.gang.Tenant); err == nil {
			note("fairness", reasonOfLag(&st), describe(&st))
		}
	}
	if s.quota != nil {
		if u, ok := s.quota.Usage(j.gang.Tenant); ok {
			note("quota", lockstep.ReasonQuota, "tenant "+string(u.Tenant)+" uses "+gpus(u.Used)+" of "+gpus(u.Nominal)+" devices")
		}
	}
	if l, held := s.lease(j.gang.ID); held {
		detail := "until " + l.Boundary.Format(time.RFC3339) + ", extended " + strconv.Itoa(l.Extended) + " times"
		if l.State != lease.Held {
			detail = "to be given back by " + l.Deadline.Format(time.RFC3339) + " for " + string(l.Reason)
		}
		note("lease", lockstep.Reason(l.State), detail)
	}
	if l, ok := s.life(j); ok {
		note("lifecycle", lockstep.Reason(l.State), "attempt "+strconv.FormatUint(uint64(l.Attempt), 10)+
			", waited "+l.Ledger.Time[lifecycle.PartWaiting].String()+", ran "+l.Ledger.Time[lifecycle.PartProductive].String())
	}
	return dst
}

// life is what lifecycle knows of j, which is settled up to the last step of j,
// with the time from then until now.
func (s *Scheduler) life(j *job) (lifecycle.Job, bool) {
	l, ok := s.lives.Job(j.gang.ID)
	if !ok || l.State.Terminal() {
		return l, ok
	}
	settled, _ := l.Ledger.Total()
	part := lifecycle.PartWaiting
	switch l.State {
	case lifecycle.Starting:
		part = lifecycle.PartStarting
	case lifecycle.Running:
		part = lifecycle.PartProductive
		if l.Saving {
			part = lifecycle.PartCheckpoint
		}
	case lifecycle.Lost:
		part = lifecycle.PartLost
	case lifecycle.Draining:
		part = lifecycle.PartDraining
	case lifecycle.Cleaning:
		part = lifecycle.PartCleaning
	}
	since := time.Duration(s.now-j.since) - settled
	l.Ledger.Time[part] += since
	l.Ledger.GPU[part] = l.Ledger.GPU[part].Add(lockstep.GPUTimeOf(l.GPUs, since))
	return l, true
}

// The reasons that this package gives in notes of the stage "fairness".
const (
	ReasonOwed   lockstep.Reason = "owed"   // ReasonOwed: the job's tenant got less than it is entitled to.
	ReasonServed lockstep.Reason = "served" // ReasonServed: the job's tenant got what it is entitled to, or more.
)

func reasonOfLag(st *fairness.Statement) lockstep.Reason {
	if st.Lag().Sign() > 0 {
		return ReasonOwed
	}
	return ReasonServed
}

func describe(st *fairness.Statement) string {
	text := "tenant " + string(st.Tenant) + " of weight " + strconv.FormatInt(st.Weight, 10) + " holds " + amount(st.Held) + " of " + amount(st.Share) + " devices, "
	if lag := st.Lag().GPUSeconds(); lag > 0 {
		text += "is owed " + strconv.FormatFloat(lag, 'f', 0, 64) + " GPU-seconds"
	} else {
		text += "got " + strconv.FormatFloat(0-lag, 'f', 0, 64) + " GPU-seconds more than it is entitled to"
	}
	if i, ok := st.Index(); ok {
		text += ", index " + strconv.FormatFloat(i, 'f', 3, 64)
	}
	return text
}

func gpus(r lockstep.Resources) string { return amount(lockstep.MilliGPU(r[lockstep.ResourceGPU])) }

// amount is m in devices, for people: 33.818 rather than 33818m.
func amount(m lockstep.MilliGPU) string {
	return strconv.FormatFloat(float64(m)/float64(lockstep.WholeGPU), 'f', -1, 64)
}

// Status is where a job stands, as told by each part.
type Status struct {
	Gang  gang.Status   `json:"gang"`           // Gang is its place in admission, and its room.
	Life  lifecycle.Job `json:"life"`           // Life is its state and where its time went, up to the latest input.
	Lease lease.Lease   `json:"lease,omitzero"` // Lease is the lease it holds; zero if it holds none.
}

// Status returns where job stands; false means that it is not known.
func (s *Scheduler) Status(job lockstep.JobID) (Status, bool) {
	j := s.jobs[job]
	if j == nil {
		return Status{}, false
	}
	var st Status
	st.Gang, _ = s.gangs.State(job)
	st.Life, _ = s.life(j)
	st.Lease, _ = s.lease(job)
	return st, true
}

// Statements appends the accounts of all tenants to dst, by ID, where the
// policy keeps any.
func (s *Scheduler) Statements(dst []fairness.Statement, now time.Time) ([]fairness.Statement, error) {
	if l := s.ledger(); l != nil {
		return l.AppendStatements(dst, now)
	}
	return dst, nil
}

// ledger returns the policy's ledger, or nil.
func (s *Scheduler) ledger() *fairness.Ledger {
	switch p := s.policy.(type) {
	case *fair:
		return p.Ledger
	case *within:
		return p.ledger
	}
	return nil
}

// Len returns how many jobs are kept, those that have left and are not yet
// forgotten included.
func (s *Scheduler) Len() int { return len(s.jobs) }

// Forecast returns when and where a waiting job is expected to start by its
// reservation; false where it has none. Reservations are those of the latest Step: of
// the foremost blocked job, or of all under gang.Conservative; where no device is free
// there are none but with Config.Forecasts.
func (s *Scheduler) Forecast(job lockstep.JobID) (gang.Forecast, bool) {
	return s.gangs.Forecast(job)
}
