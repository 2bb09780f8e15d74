package meter

import "github.com/lockstep-gpu/lockstep"

// The metrics that a Meter records.
const (
	Jobs             lockstep.Metric = "jobs"                       // Jobs is how many jobs there are, by queue and state.
	JobsEnded        lockstep.Metric = "jobs_ended_total"           // JobsEnded counts jobs that reached an end, by queue and result.
	StateDuration    lockstep.Metric = "job_state_duration_seconds" // StateDuration samples how long jobs stayed in a state.
	AdmissionWait    lockstep.Metric = "admission_wait_seconds"     // AdmissionWait samples the time from when a job began to wait until it was granted room.
	StartLatency     lockstep.Metric = "start_latency_seconds"      // StartLatency samples the time from the grant of room to the start.
	Decisions        lockstep.Metric = "decisions_total"            // Decisions counts tries of jobs: placed, deferred or rejected.
	DecisionDuration lockstep.Metric = "decision_duration_seconds"  // DecisionDuration samples how long a step took, as the host measured it.
	PendingReason    lockstep.Metric = "pending_reason_jobs"        // PendingReason is how many jobs wait for a reason.
	CapacityGPUs     lockstep.Metric = "capacity_gpus"              // CapacityGPUs is how many devices there are.
	AllocatedGPUs    lockstep.Metric = "allocated_gpus"             // AllocatedGPUs is how many devices jobs that run or leave hold.
	ReservedGPUs     lockstep.Metric = "reserved_gpus"              // ReservedGPUs is how many devices are held for jobs that have not started.
	QuarantinedGPUs  lockstep.Metric = "quarantined_gpus"           // QuarantinedGPUs is how many devices sit on nodes that are down or cordoned.
	QuotaNominal     lockstep.Metric = "quota_nominal_gpus"         // QuotaNominal is a tenant's own part of the devices.
	QuotaBorrowed    lockstep.Metric = "quota_borrowed_gpus"        // QuotaBorrowed is what a tenant holds beyond its own part.
	QuotaLent        lockstep.Metric = "quota_lent_gpus"            // QuotaLent is what others may use of a tenant's own part, since it does not.
	DominantShare    lockstep.Metric = "dominant_share_ratio"       // DominantShare is the part of all devices that a tenant holds.
	FairShare        lockstep.Metric = "fair_share_ratio"           // FairShare is a tenant's service over what it was entitled to: 1 is fair, less is owed.
	GPUSeconds       lockstep.Metric = "gpu_seconds_total"          // GPUSeconds counts device time by what it went into.
	LostGPUSeconds   lockstep.Metric = "lost_gpu_seconds_total"     // LostGPUSeconds counts device time that came to nothing, by cause.
	Preemptions      lockstep.Metric = "preemptions_total"          // Preemptions counts jobs stopped or cut for others.
	Victims          lockstep.Metric = "preemption_victims"         // Victims samples how many jobs had to go for one.
	Evictions        lockstep.Metric = "evictions_total"            // Evictions counts jobs told to leave devices, for whatever reason.
	Restarts         lockstep.Metric = "restarts_total"             // Restarts counts attempts that ended with the job to be tried again.
	DeadlineJobs     lockstep.Metric = "deadline_jobs_total"        // DeadlineJobs counts jobs with a deadline: met, missed or rejected. A Meter sees those missed.
	StaleEvents      lockstep.Metric = "stale_events_total"         // StaleEvents counts events that came too late.
	RefusedEvents    lockstep.Metric = "refused_events_total"       // RefusedEvents counts events that were refused.
	Resizes          lockstep.Metric = "resize_total"               // Resizes counts changes of size.
	ResizeStall      lockstep.Metric = "resize_stall_seconds"       // ResizeStall samples how long a change of size took.
)

// The metrics that a Meter describes and the host records, where it has the
// package that knows them; Feeder says which.
const (
	Fragmentation      lockstep.Metric = "fragmentation_ratio"          // Fragmentation is the part of what is idle that a shape of demand cannot use.
	Fenced             lockstep.Metric = "fenced_total"                 // Fenced counts writes refused for a token that is over.
	PackPairs          lockstep.Metric = "pack_pairs"                   // PackPairs is how many pairs of jobs share devices.
	PackSlowdown       lockstep.Metric = "pack_slowdown_ratio"          // PackSlowdown samples a job's rate alone over that beside another.
	Oversubscription   lockstep.Metric = "oversubscription_ratio"       // Oversubscription is what tenants of devices may use over what there is.
	ContentionEvicted  lockstep.Metric = "contention_evictions_total"   // ContentionEvicted counts jobs that left a device they shared.
	LoanedGPUs         lockstep.Metric = "loaned_gpus"                  // LoanedGPUs is how many devices are on loan.
	RecallDuration     lockstep.Metric = "recall_duration_seconds"      // RecallDuration samples how long recalls of loans took.
	RecallOverdue      lockstep.Metric = "recall_overdue_total"         // RecallOverdue counts recalls that were not met in time.
	ServingBatchSize   lockstep.Metric = "serving_batch_size"           // ServingBatchSize samples the requests of a batch.
	ServingQueue       lockstep.Metric = "serving_queue_seconds"        // ServingQueue samples how long requests waited for their batch.
	ServingSLORequests lockstep.Metric = "serving_slo_requests_total"   // ServingSLORequests counts requests by whether they met their objective.
	ServingDesired     lockstep.Metric = "serving_desired_replicas"     // ServingDesired is how many replicas are wanted.
	ServingReady       lockstep.Metric = "serving_ready_replicas"       // ServingReady is how many replicas serve.
	ServingStarting    lockstep.Metric = "serving_starting_replicas"    // ServingStarting is how many replicas load.
	PredictionError    lockstep.Metric = "model_prediction_error_ratio" // PredictionError samples what a model predicted over what came.
	HealthScore        lockstep.Metric = "health_score"                 // HealthScore is the mean health of devices, 0 to 1.
	Suspects           lockstep.Metric = "suspects"                     // Suspects is how many devices are under suspicion.
	Verdicts           lockstep.Metric = "verdicts_total"               // Verdicts counts what detection found.
)

// The metrics about the recording itself.
const (
	Folded  lockstep.Metric = "metrics_folded_total"  // Folded counts measurements whose labels were folded into Other, by metric.
	Dropped lockstep.Metric = "metrics_dropped_total" // Dropped counts measurements that no descriptor fits.
)
