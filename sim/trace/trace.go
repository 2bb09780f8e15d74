package trace

import (
	"cmp"
	"errors"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Bounds of one row, so that sums over a trace stay inside int64.
const (
	MaxGPUs     = 1 << 16                   // MaxGPUs is the widest job that readers accept.
	MaxDuration = 10 * 365 * 24 * time.Hour // MaxDuration bounds a job's run and a trace's span.
)

// Job is one row of a trace.
type Job struct {
	ID       lockstep.JobID    // ID is unique in the trace.
	Tenant   lockstep.TenantID // Tenant is who submitted it.
	Submit   time.Duration     // Submit is when, from the trace's zero.
	Duration time.Duration     // Duration is how long it ran, more than 0.
	GPUs     int               // GPUs is how many devices it held, at least 1.
	State    string            // State is how it ended, in the source's word; "" is unknown.
}

// Trace is a list of jobs and what its reader left out.
type Trace struct {
	Jobs    []Job // Jobs are sorted by Submit, then ID.
	Skipped int   // Skipped is how many rows asked for no device or ran no time.

	lines []int // of Jobs in the source, until they are sorted
}

// Tenants returns the tenants of t, sorted.
func (t *Trace) Tenants() []lockstep.TenantID {
	var ids []lockstep.TenantID
	for i := range t.Jobs {
		ids = append(ids, t.Jobs[i].Tenant)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Span returns the time from the trace's zero to the last submission.
func (t *Trace) Span() time.Duration {
	if len(t.Jobs) == 0 {
		return 0
	}
	return t.Jobs[len(t.Jobs)-1].Submit
}

// Work returns the sum over all jobs of devices × duration, as time on one
// device, held at the end of int64 (292 device-years).
func (t *Trace) Work() time.Duration {
	var sum time.Duration
	for i := range t.Jobs {
		hi, lo := bits.Mul64(uint64(t.Jobs[i].Duration), uint64(t.Jobs[i].GPUs))
		if hi != 0 || lo > math.MaxInt64-uint64(sum) {
			return math.MaxInt64
		}
		sum += time.Duration(lo)
	}
	return sum
}

// Gang returns the gang that runs j on nodes of perNode devices: one member
// where it fits one node; otherwise members of perNode devices each, and one
// member with the rest where there is one. Walltime is the true duration. A
// perNode below 1 stands for 1.
func (j *Job) Gang(perNode int) *lockstep.Gang {
	g := &lockstep.Gang{ID: j.ID, Tenant: j.Tenant, Walltime: j.Duration}
	perNode = max(perNode, 1)
	whole, rest := j.GPUs/perNode, j.GPUs%perNode
	if whole > 0 {
		g.Roles = append(g.Roles, lockstep.Role{Name: "worker", Min: whole, Demand: lockstep.Demand{GPUs: perNode}})
	}
	if rest > 0 {
		g.Roles = append(g.Roles, lockstep.Role{Name: "rest", Min: 1, Demand: lockstep.Demand{GPUs: rest}})
	}
	return g
}

// finish refuses IDs that occur twice, and sorts jobs.
func finish(op string, t *Trace) (*Trace, error) {
	seen := make(map[lockstep.JobID]int, len(t.Jobs))
	for i := range t.Jobs {
		id := t.Jobs[i].ID
		if first := seen[id]; first != 0 {
			return nil, &lockstep.Error{
				Kind: lockstep.ErrDuplicate, Op: op, Field: "line " + strconv.Itoa(t.lines[i]) + ": job_id",
				Value: strconv.Quote(string(id)), Reason: "is that of line " + strconv.Itoa(first),
			}
		}
		seen[id] = t.lines[i]
	}
	t.lines = nil
	return t.sort(), nil
}

// sort puts the jobs into their order.
func (t *Trace) sort() *Trace {
	slices.SortStableFunc(t.Jobs, func(a, b Job) int {
		return cmp.Or(cmp.Compare(a.Submit, b.Submit), strings.Compare(string(a.ID), string(b.ID)))
	})
	return t
}

// fault builds the error for one field of one line.
func fault(op string, line int, field, value, reason string) error {
	if len(value) > 64 {
		value = value[:64] + "..."
	}
	return &lockstep.Error{
		Kind: lockstep.ErrInvalid, Op: op, Field: "line " + strconv.Itoa(line) + ": " + field,
		Value: strconv.Quote(value), Reason: reason,
	}
}

// check holds a row to the bounds that all readers share.
func check(op string, line int, j *Job) error {
	var errs []error
	if err := j.ID.Validate(); err != nil {
		errs = append(errs, fault(op, line, "job_id", string(j.ID), reasonOf(err)))
	}
	if err := j.Tenant.Validate(); err != nil {
		errs = append(errs, fault(op, line, "tenant", string(j.Tenant), reasonOf(err)))
	}
	if j.GPUs < 0 || j.GPUs > MaxGPUs {
		errs = append(errs, fault(op, line, "gpus", strconv.Itoa(j.GPUs), "want 0 to "+strconv.Itoa(MaxGPUs)))
	}
	if j.Submit < 0 || j.Submit > MaxDuration {
		errs = append(errs, fault(op, line, "submit", j.Submit.String(), "outside the trace's span"))
	}
	if j.Duration < 0 || j.Duration > MaxDuration {
		errs = append(errs, fault(op, line, "duration", j.Duration.String(), "want 0 to "+MaxDuration.String()))
	}
	return errors.Join(errs...)
}

func reasonOf(err error) string {
	var e *lockstep.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return err.Error()
}
