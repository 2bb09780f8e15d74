package pollux

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Change is a change of a job's placement.
type Change struct {
	At       time.Duration  // At is the tick.
	Job      lockstep.JobID // Job is whose.
	Slots    []Slot         // Slots is where it runs from now on; nil means that it waits.
	Batch    int64          // Batch is the batch over all GPUs.
	Restarts int            // Restarts is how often it was placed anew after its first start.
}

// Record is what became of one job.
type Record struct {
	Job      lockstep.JobID // Job is which.
	Submit   time.Duration  // Submit is when it came.
	End      time.Duration  // End is when it was done.
	Restarts int            // Restarts is how often it was placed anew after its first start.
	Service  int64          // Service is the GPU-seconds that it held.
}

// JCT returns the time from submission to the end.
func (r *Record) JCT() time.Duration { return r.End - r.Submit }

// Result is what came of a run.
type Result struct {
	Records []Record // Records are the jobs, in the order of the workload.
}

// Mean returns the mean JCT in seconds; 0 without jobs.
func (r *Result) Mean() float64 {
	var sum time.Duration
	for i := range r.Records {
		sum += r.Records[i].JCT()
	}
	if sum == 0 {
		return 0
	}
	return float64(sum/time.Second) / float64(len(r.Records))
}

func (w *world) result() *Result {
	r := &Result{}
	for _, a := range w.jobs {
		r.Records = append(r.Records, Record{
			Job: a.Job.ID, Submit: a.Job.Submit, End: time.Duration(a.end) * time.Second, Restarts: a.Restarts(), Service: a.service,
		})
	}
	return r
}
