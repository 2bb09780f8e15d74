package lifecycle

// System is another scheduler whose words for a job's state a host may have to speak.
type System string

// The systems.
const (
	Kubernetes System = "kubernetes" // Kubernetes: a Job's condition, or its pods' phase while it has none.
	Volcano    System = "volcano"    // Volcano: the phase of a Job (volcano.sh, v1alpha1).
	Kueue      System = "kueue"      // Kueue: the condition of a Workload that says most.
	Slurm      System = "slurm"      // Slurm: a job state code, as squeue and sacct print it.
)

// word is what a system calls a state.
type word struct {
	system System
	name   string
	state  State
	also   bool // the name is read, and another is written for the state
}

// words holds each pair once. The first name of a state that is not also-read is the one that is written; several
// states may share one.
func words() []word {
	return []word{
		{Kubernetes, "Suspended", Held, false},
		{Kubernetes, "Pending", Queued, false},
		{Kubernetes, "Pending", Admitted, false},
		{Kubernetes, "Pending", Reserving, false},
		{Kubernetes, "Pending", Starting, false},
		{Kubernetes, "Running", Running, false},
		{Kubernetes, "Terminating", Draining, false},
		{Kubernetes, "Suspended", Suspended, false},
		{Kubernetes, "Pending", Backoff, false},
		{Kubernetes, "Unknown", Lost, false},
		{Kubernetes, "Terminating", Cleaning, false},
		{Kubernetes, "Complete", Succeeded, false},
		{Kubernetes, "SuccessCriteriaMet", Cleaning, true},
		{Kubernetes, "FailureTarget", Cleaning, true},
		{Kubernetes, "Succeeded", Succeeded, true},
		{Kubernetes, "Failed", Failed, false},
		{Kubernetes, "Failed", Cancelled, false},
		{Kubernetes, "Failed", DeadlineExceeded, false},

		{Volcano, "Aborted", Held, false},
		{Volcano, "Pending", Queued, false},
		{Volcano, "Pending", Admitted, false},
		{Volcano, "Pending", Reserving, false},
		{Volcano, "Pending", Starting, false},
		{Volcano, "Running", Running, false},
		{Volcano, "Terminating", Draining, false},
		{Volcano, "Aborting", Draining, true},
		{Volcano, "Completing", Draining, true},
		{Volcano, "Aborted", Suspended, false},
		{Volcano, "Restarting", Backoff, false},
		{Volcano, "Unknown", Lost, false},
		{Volcano, "Terminating", Cleaning, false},
		{Volcano, "Completed", Succeeded, false},
		{Volcano, "Failed", Failed, false},
		{Volcano, "Terminated", Cancelled, false},
		{Volcano, "Terminated", DeadlineExceeded, false},

		{Kueue, "Deactivated", Held, false},
		{Kueue, "Inadmissible", Held, true},
		{Kueue, "OnHold", Held, true},
		{Kueue, "Pending", Queued, false},
		{Kueue, "QuotaReserved", Admitted, false},
		{Kueue, "Admitted", Reserving, false},
		{Kueue, "Admitted", Starting, false},
		{Kueue, "PodsReady", Running, false},
		{Kueue, "Evicted", Draining, false},
		{Kueue, "Evicted", Suspended, false},
		{Kueue, "Requeued", Backoff, false},
		{Kueue, "WaitForRecovery", Lost, false},
		{Kueue, "NodeFailures", Lost, true},
		{Kueue, "Evicted", Cleaning, false},
		{Kueue, "Succeeded", Succeeded, false},
		{Kueue, "Finished", Succeeded, true},
		{Kueue, "Failed", Failed, false},
		{Kueue, "Deactivated", Cancelled, false},
		{Kueue, "MaximumExecutionTimeExceeded", DeadlineExceeded, false},

		{Slurm, "REQUEUE_HOLD", Held, false},
		{Slurm, "SPECIAL_EXIT", Held, true},
		{Slurm, "PENDING", Queued, false},
		{Slurm, "PENDING", Admitted, false},
		{Slurm, "PENDING", Reserving, false},
		{Slurm, "CONFIGURING", Starting, false},
		{Slurm, "RUNNING", Running, false},
		{Slurm, "RESIZING", Running, true},
		{Slurm, "SIGNALING", Draining, false},
		{Slurm, "STAGE_OUT", Draining, true},
		{Slurm, "SUSPENDED", Suspended, false},
		{Slurm, "STOPPED", Suspended, true},
		{Slurm, "PREEMPTED", Suspended, true},
		{Slurm, "REQUEUED", Backoff, false},
		{Slurm, "NODE_FAIL", Lost, false},
		{Slurm, "BOOT_FAIL", Lost, true},
		{Slurm, "COMPLETING", Cleaning, false},
		{Slurm, "COMPLETED", Succeeded, false},
		{Slurm, "FAILED", Failed, false},
		{Slurm, "OUT_OF_MEMORY", Failed, true},
		{Slurm, "CANCELLED", Cancelled, false},
		{Slurm, "REVOKED", Cancelled, true},
		{Slurm, "TIMEOUT", DeadlineExceeded, false},
		{Slurm, "DEADLINE", DeadlineExceeded, true},
	}
}

// In returns what a system calls s; ok is false for a system or a state that there is not.
func (s State) In(system System) (name string, ok bool) {
	for _, w := range words() {
		if w.system == system && w.state == s && !w.also {
			return w.name, true
		}
	}
	return "", false
}

// StateIn returns the state that a system's word stands for. Where it stands for several it is the earliest in the
// life of a job: a word alone does not tell that a pending job was admitted already. Words are case-sensitive, as the
// systems write them; ok is false for a word that is not known.
func StateIn(system System, name string) (s State, ok bool) {
	for _, w := range words() {
		if w.system == system && w.name == name {
			return w.state, true
		}
	}
	return "", false
}
