package main

import (
	"encoding/json"
	"io"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sim"
)

// result is what -json prints. All of it but Wall is the same for the same flags.
type result struct {
	Trace    traceResult                 `json:"trace"`
	Nodes    int                         `json:"nodes"`
	PerNode  int                         `json:"gpusPerNode"`
	Lease    float64                     `json:"leaseSeconds"`
	Save     float64                     `json:"checkpointCostSeconds"`
	Restore  float64                     `json:"resumeCostSeconds"`
	Weights  map[lockstep.TenantID]int64 `json:"weights"`
	Policies []policyResult              `json:"policies"`
	Findings []string                    `json:"findings"`
	Faults   string                      `json:"faults"` // what -check found; empty when all is well
	Wall     wallResult                  `json:"wall"`
}

type traceResult struct {
	Name    string  `json:"name"`
	Jobs    int     `json:"jobs"`
	Skipped int     `json:"skipped"` // rows that asked for no device or ran no time
	Span    float64 `json:"spanSeconds"`
	Work    float64 `json:"workGPUHours"`
}

// policyResult is the comparison's column of one policy.
type policyResult struct {
	Policy   string `json:"policy"`
	Title    string `json:"title"`
	Finished int    `json:"finished"`
	Rejected int    `json:"rejected"`

	JCT      quantiles `json:"jctSeconds"`
	Wait     quantiles `json:"waitSeconds"`
	Makespan float64   `json:"makespanSeconds"`

	Utilization      float64 `json:"utilization"`
	Fragmentation    float64 `json:"fragmentation"`
	WorstTenantIndex float64 `json:"worstTenantIndex"`
	MaxLag           float64 `json:"maxTenantLagGPUHours"`
	MinRho           float64 `json:"jobRhoMin"`
	P1Rho            float64 `json:"jobRhoP1"`

	Preemptions int     `json:"preemptions"`
	Resumes     int     `json:"paidResumes"`
	Released    *int    `json:"paidResumesIfAlwaysReleased,omitempty"`
	Extensions  int     `json:"extendedInPlace"`
	Overhead    float64 `json:"overheadGPUHours"`

	Service string `json:"serviceMilliGPUNanoseconds"` // exact
	Held    string `json:"heldMilliGPUNanoseconds"`    // the sum over jobs of GPUs × time held, exact; the same

	Events  int `json:"events"`
	Actions int `json:"actions"`
	Steps   int `json:"steps"`

	Tenants []tenantResult `json:"tenants"`
}

type quantiles struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

type tenantResult struct {
	Tenant      lockstep.TenantID `json:"tenant"`
	Weight      int64             `json:"weight"`
	Jobs        int               `json:"jobs"`
	Service     float64           `json:"serviceGPUHours"`
	Entitlement float64           `json:"entitlementGPUHours"`
	Index       float64           `json:"index"`
	MaxLag      float64           `json:"maxLagGPUHours"`
}

// wallResult is how long it took, in seconds of wall time.
type wallResult struct {
	Total     float64            `json:"totalSeconds"`
	Run       map[string]float64 `json:"runSeconds"` // of each policy, others running beside it
	Decisions map[string]float64 `json:"decisionsPerSecond"`
}

func (o *options) newResult(w *workload, outcomes []outcome, findings []string, wrong error, wall time.Duration) *result {
	r := &result{
		Trace: traceResult{
			Name: w.Name, Jobs: len(w.Trace.Jobs), Skipped: w.Trace.Skipped,
			Span: w.Trace.Span().Seconds(), Work: w.Trace.Work().Hours(),
		},
		Nodes: o.nodes, PerNode: o.perNode, Weights: w.Weights, Findings: findings,
		Lease: o.lease.Seconds(), Save: o.save.Seconds(), Restore: o.restore.Seconds(),
		Wall: wallResult{Total: wall.Seconds(), Run: make(map[string]float64), Decisions: make(map[string]float64)},
	}
	if wrong != nil {
		r.Faults = wrong.Error()
	}
	for i := range outcomes {
		x := &outcomes[i]
		r.Policies = append(r.Policies, x.result())
		r.Wall.Run[x.Flag], r.Wall.Decisions[x.Flag] = x.Wall.Seconds(), x.decisions()
	}
	return r
}

func (out *outcome) result() policyResult {
	p := policyResult{
		Policy: out.Flag, Title: out.Title, Finished: out.Finished, Rejected: out.Rejected,
		JCT: newQuantiles(&out.JCT), Wait: newQuantiles(&out.Wait), Makespan: out.Makespan.Seconds(),
		Utilization: out.Utilization, Fragmentation: out.Fragmentation, WorstTenantIndex: worstIndex(out),
		MaxLag: gpuHours(out.MaxLag), MinRho: out.MinRho, P1Rho: out.P1Rho,
		Preemptions: out.Preemptions, Resumes: out.Resumes, Extensions: out.Extensions, Overhead: gpuHours(out.Overhead()),
		Service: out.Service.String(), Held: out.Held.String(),
		Events: out.Events, Actions: out.Actions, Steps: out.Steps,
	}
	if out.Released != nil {
		p.Released = &out.Released.Resumes
	}
	for i := range out.Tenants {
		t := &out.Tenants[i]
		p.Tenants = append(p.Tenants, tenantResult{
			Tenant: t.ID, Weight: t.Weight, Jobs: t.Jobs, Service: gpuHours(t.Service), Entitlement: gpuHours(t.Entitlement),
			Index: t.Index, MaxLag: gpuHours(t.MaxLag),
		})
	}
	return p
}

func newQuantiles(q *sim.Quantiles) quantiles {
	return quantiles{Mean: q.Mean.Seconds(), P50: q.P50.Seconds(), P99: q.P99.Seconds(), Max: q.Max.Seconds()}
}

func printJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
