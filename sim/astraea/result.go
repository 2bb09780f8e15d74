package astraea

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Record is what became of one job: a line of the artifact's table.
type Record struct {
	Job      lockstep.JobID    // Job is which.
	Tenant   lockstep.TenantID // Tenant is whose.
	GPUs     int               // GPUs is its width.
	Submit   time.Duration     // Submit is when it came.
	Duration time.Duration     // Duration is how long it had to run.
	Seen     time.Duration     // Seen is the tick at which it was let in (first_seen_time).
	End      time.Duration     // End is when it ended (end_time).
	Pending  time.Duration     // Pending is the time without devices (total_pending_time).
	Life     time.Duration     // Life is the time in the system, to the tick at which its end was seen (total_life_time).
	Deserved float64           // Deserved is what it was entitled to, in GPU-seconds.
	Fairness float64           // Fairness is its ratio of service over deserved when its end was seen.
	Class    int               // Class is that ratio's class (disc_fairness).
	Expiries int               // Expiries is how many leases ended before it did, each a checkpoint (lease_expiry_cnt, checkpoint_cnt).
	Resumes  int               // Resumes is how many of its leases began later than the one before ended (resume_cnt).
	Kills    int               // Kills is how often it was stopped inside a lease (preempt_cnt).
}

// Tenant is the account of one tenant, in GPU-seconds.
type Tenant struct {
	ID       lockstep.TenantID // ID is whose it is.
	Quota    int64             // Quota is its part of the devices.
	Service  int64             // Service is what its jobs held, over the whole run.
	Deserved int64             // Deserved is the lesser of demand and quota, over the whole run.
	Weighted int64             // Weighted is the quota, over the whole run.
	Printed  float64           // Printed is the ratio of service over deserved in the last 24 closed hours, which is what the artifact prints.
}

// Index returns service over deserved, over the whole run; 1 where it never
// deserved anything.
func (t *Tenant) Index() float64 {
	if t.Deserved == 0 {
		return 1
	}
	return float64(t.Service) / float64(t.Deserved)
}

// Result is what came of a run.
type Result struct {
	Records []Record         // Records are the jobs that ran, by submission.
	Tenants []Tenant         // Tenants are the accounts, in the order of Config.Shares.
	Dropped []lockstep.JobID // Dropped are the jobs wider than their tenant's quota.
}

func (w *world) result() *Result {
	sec := func(n int64) time.Duration { return time.Duration(n) * time.Second }
	r := &Result{Dropped: w.dropped}
	for _, j := range w.jobs {
		r.Records = append(r.Records, Record{
			Job: j.id, Tenant: j.tenant.id, GPUs: int(j.gpus), Submit: sec(j.submit), Duration: sec(j.duration), Seen: sec(j.seen), End: sec(j.end),
			Pending: sec(j.pended), Life: sec(j.life), Deserved: j.deserved, Fairness: j.fairness, Class: j.class,
			Expiries: j.expiries, Resumes: j.resumes, Kills: j.kills,
		})
	}
	for _, t := range w.tenants {
		r.Tenants = append(r.Tenants, Tenant{
			ID: t.id, Quota: t.quota, Service: t.total.used, Deserved: t.total.deserved, Weighted: t.total.weighted, Printed: t.reported,
		})
	}
	return r
}
