package gang

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// The metrics that an Admission records.
const (
	MetricWait    lockstep.Metric = "gang_wait_seconds"  // MetricWait is a sample of the time from submission to start.
	MetricActions lockstep.Metric = "gang_actions_total" // MetricActions counts actions, by kind as the label Reason.
	MetricQueued  lockstep.Metric = "gang_queued_jobs"   // MetricQueued is how many jobs wait, after each Step.
	MetricFits    lockstep.Metric = "gang_tries_total"   // MetricFits counts waiting jobs that a pass tried to place.
	MetricHunts   lockstep.Metric = "gang_hunts_total"   // MetricHunts counts searches for jobs to take room from.
)

func (a *Admission) count(m lockstep.Metric, j *job, reason lockstep.Reason) {
	if r := a.cfg.Recorder; r != nil {
		r.Count(m, lockstep.MetricLabels{Tenant: j.gang.Tenant, Queue: j.gang.Queue, Reason: reason}, 1)
	}
}

func (a *Admission) observe(m lockstep.Metric, j *job, ns int64) {
	if r := a.cfg.Recorder; r != nil {
		r.Observe(m, lockstep.MetricLabels{Tenant: j.gang.Tenant, Queue: j.gang.Queue}, time.Duration(ns).Seconds())
	}
}
