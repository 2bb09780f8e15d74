package sim

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Result is what came of a simulation. Its slices are the caller's.
type Result struct {
	Jobs     int           `json:"jobs"`     // Jobs is how many there were.
	Finished int           `json:"finished"` // Finished is how many ended by themselves; figures about jobs are of these.
	Rejected int           `json:"rejected"` // Rejected is how many the scheduler would not try.
	Makespan time.Duration `json:"makespan"` // Makespan is from the first submission to the last end, or to that of the simulation where jobs hold devices then.
	JCT      Quantiles     `json:"jct"`      // JCT is from a job's submission to its end.
	Wait     Quantiles     `json:"wait"`     // Wait is the part of it in which the job held no devices.

	Unfinished int `json:"unfinished"` // Unfinished is how many neither ended nor were rejected, such as gangs wider than the cluster; Record.Unfinished says in which state.

	Utilization   float64 `json:"utilization"`   // Utilization is the part of the capacity that was held, over the makespan.
	Fragmentation float64 `json:"fragmentation"` // Fragmentation is the part of the free device-time that lay on nodes partly in use; 0 without a Tree.

	Preemptions int `json:"preemptions"` // Preemptions is how many times a running job was told to stop; each is a checkpoint.
	Resumes     int `json:"resumes"`     // Resumes is how many starts paid for a resume: all but the first of each job.
	Extensions  int `json:"extensions"`  // Extensions is how many times a term ended and the holder stayed in place.
	Moves       int `json:"moves"`       // Moves is how many preemptions went straight to other devices.

	Service    lockstep.GPUTime `json:"service"`    // Service is what the measuring ledger charged all jobs.
	Wanted     lockstep.GPUTime `json:"wanted"`     // Wanted is the lesser of the capacity and what all jobs asked for, over time: what a scheduler that wastes nothing would have them hold.
	Held       lockstep.GPUTime `json:"held"`       // Held is the sum over jobs of devices × time held, counted apart; it equals Service.
	Checkpoint lockstep.GPUTime `json:"checkpoint"` // Checkpoint is the part of it spent on saving work.
	Resume     lockstep.GPUTime `json:"resume"`     // Resume is the part of it spent on resuming.

	Tenants []Tenant         `json:"tenants"` // Tenants are the accounts, by ID.
	MaxLag  lockstep.GPUTime `json:"maxLag"`  // MaxLag is the greatest Tenant.MaxLag.
	MinRho  float64          `json:"minRho"`  // MinRho is the least Record.Index.
	P1Rho   float64          `json:"p1Rho"`   // P1Rho is the first percentile of Record.Index, nearest rank.

	Events  int `json:"events"`  // Events is how many events about jobs the scheduler was told.
	Actions int `json:"actions"` // Actions is how many actions it decided.
	Steps   int `json:"steps"`   // Steps is how many times it was asked to decide.

	Records []Record `json:"records,omitempty"` // Records are the jobs, by submission, then ID.
	Series  Series   `json:"series"`            // Series are samples over time.
}

// Quantiles describe a distribution of times; percentiles are nearest rank.
type Quantiles struct {
	Mean time.Duration `json:"mean"` // Mean is the mean, rounded down.
	P50  time.Duration `json:"p50"`  // P50 is the median.
	P99  time.Duration `json:"p99"`  // P99 is the 99th percentile.
	Max  time.Duration `json:"max"`  // Max is the greatest.
}

// Tenant is the account of one tenant.
type Tenant struct {
	ID          lockstep.TenantID `json:"id"`          // ID is whose it is.
	Weight      int64             `json:"weight"`      // Weight is what it was measured by.
	Jobs        int               `json:"jobs"`        // Jobs is how many it submitted.
	Service     lockstep.GPUTime  `json:"service"`     // Service is what its jobs held, over time.
	Entitlement lockstep.GPUTime  `json:"entitlement"` // Entitlement is what they should have, max-min fair.
	Index       float64           `json:"index"`       // Index is service over entitlement; 1 where it was never entitled.
	MaxLag      lockstep.GPUTime  `json:"maxLag"`      // MaxLag is the greatest lag, entitlement less service, while at least two tenants had jobs that waited.
}

// Record is what became of one job. Times count from Config.Start.
type Record struct {
	Job      lockstep.JobID    `json:"job"`                // Job is which.
	Tenant   lockstep.TenantID `json:"tenant,omitempty"`   // Tenant is whose.
	GPUs     lockstep.MilliGPU `json:"gpus"`               // GPUs is what its gang needs at the least.
	Submit   time.Duration     `json:"submit"`             // Submit is when it came.
	Duration time.Duration     `json:"duration"`           // Duration is how long it had to run.
	Start    time.Duration     `json:"start"`              // Start is when it first ran.
	End      time.Duration     `json:"end"`                // End is when it ended.
	Done     bool              `json:"done,omitempty"`     // Done says that it ended by itself.
	Rejected lockstep.Reason   `json:"rejected,omitempty"` // Rejected is why it would not be tried; empty if it was not rejected.

	Unfinished Unfinished `json:"unfinished,omitempty"` // Unfinished is what it did when the simulation ended; empty if it had ended or was rejected.

	Wait    time.Duration    `json:"wait"`    // Wait is the time without devices.
	Held    time.Duration    `json:"held"`    // Held is the time with devices.
	Service lockstep.GPUTime `json:"service"` // Service is devices × time held.
	Index   float64          `json:"index"`   // Index is service over the lesser of its equal part of its tenant's entitlement and what it wanted; 0 where that is nothing.

	Preemptions int `json:"preemptions,omitempty"` // Preemptions is how many times it was told to stop.
	Resumes     int `json:"resumes,omitempty"`     // Resumes is how many times it paid to go on.
	Extensions  int `json:"extensions,omitempty"`  // Extensions is how many of its terms ended without cost.
	Moves       int `json:"moves,omitempty"`       // Moves is how many preemptions went straight to other devices.
}

// Unfinished is what a job did when the simulation ended before it.
type Unfinished string

// The states of jobs that did not end.
const (
	Unsubmitted Unfinished = "unsubmitted" // Unsubmitted: the simulation ended before it came.
	Waiting     Unfinished = "waiting"     // Waiting: it waited for devices.
	Holding     Unfinished = "holding"     // Holding: it held devices.
)

// Overhead returns what checkpoints and resumes took together.
func (r *Result) Overhead() lockstep.GPUTime { return r.Checkpoint.Add(r.Resume) }

// result makes up the figures.
func (a *account) result(h *host) (*Result, error) {
	now := lockstep.FromNanos(h.now)
	totals, err := a.ledger.Totals(now)
	if err != nil {
		return nil, err
	}
	r := &Result{
		Jobs: len(h.runs), Events: h.events, Actions: h.actions, Steps: h.steps, Records: make([]Record, 0, len(h.runs)),
		Service: totals.Service, Wanted: totals.Wanted, Held: a.service, Checkpoint: a.saving, Resume: a.resuming,
		Series: a.series.out, MinRho: 1, P1Rho: 1,
	}
	if r.Service != r.Held {
		return nil, fault(lockstep.ErrConflict, "run", "Held", r.Held.String(), "the ledger has "+r.Service.String())
	}
	r.addRecords(h)
	if r.Makespan > 0 && a.capacity > 0 {
		r.Utilization = a.service.GPUSeconds() / lockstep.GPUTimeOf(a.capacity, r.Makespan).GPUSeconds()
	}
	if a.unusedT.Sign() > 0 {
		r.Fragmentation = a.looseT.GPUSeconds() / a.unusedT.GPUSeconds()
	}
	if slices.Sort(a.indices); len(a.indices) > 0 {
		r.MinRho, r.P1Rho = a.indices[0], a.indices[rank(len(a.indices), 1)]
	}
	return r, a.report(r, now)
}

// addRecords makes up the figures of the jobs.
func (r *Result) addRecords(h *host) {
	var jct, wait []time.Duration
	var last time.Duration
	if h.acc.held > 0 {
		last = dur(h.now - h.zero)
	}
	for _, j := range h.runs {
		r.Records = append(r.Records, j.rec)
		r.Preemptions += j.rec.Preemptions
		r.Resumes += j.rec.Resumes
		r.Extensions += j.rec.Extensions
		r.Moves += j.rec.Moves
		switch {
		case j.rec.Rejected != "":
			r.Rejected++
		case j.rec.Unfinished != "":
			r.Unfinished++
		}
		if !j.rec.Done {
			continue
		}
		r.Finished++
		jct = append(jct, j.rec.End-j.rec.Submit)
		wait = append(wait, j.rec.Wait)
		last = max(last, j.rec.End)
	}
	r.JCT, r.Wait = quantiles(jct), quantiles(wait)
	if len(h.runs) > 0 {
		r.Makespan = max(last-h.runs[0].rec.Submit, 0)
	}
}

// report makes up the figures of the tenants.
func (a *account) report(r *Result, now time.Time) error {
	statements, err := a.ledger.AppendStatements(nil, now)
	if err != nil {
		return err
	}
	for i := range statements {
		st, t := &statements[i], a.tenants[i]
		x := Tenant{ID: t.id, Weight: t.weight, Jobs: t.jobs, Service: st.Service, Entitlement: st.Entitlement, Index: 1, MaxLag: t.worst}
		if index, ok := st.Index(); ok {
			x.Index = index
		}
		if x.MaxLag.Cmp(r.MaxLag) > 0 {
			r.MaxLag = x.MaxLag
		}
		r.Tenants = append(r.Tenants, x)
	}
	return nil
}

// rank returns the index of a percentile by nearest rank.
func rank(n, percent int) int { return max((n*percent+99)/100, 1) - 1 }

func quantiles(v []time.Duration) Quantiles {
	if len(v) == 0 {
		return Quantiles{}
	}
	slices.SortFunc(v, cmp.Compare[time.Duration])
	var mean, rest time.Duration // whole parts and remainders apart, so that no sum can overflow
	n := time.Duration(len(v))
	for _, d := range v {
		mean += d / n
		rest += d % n
	}
	return Quantiles{Mean: mean + rest/n, P50: v[rank(len(v), 50)], P99: v[rank(len(v), 99)], Max: v[len(v)-1]}
}
