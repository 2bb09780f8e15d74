package slurm

import (
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
)

// Report is what a plan came to. It shares no memory with the View.
type Report struct {
	Now     time.Time            // Now is that of the view.
	Horizon time.Duration        // Horizon is how far ahead was planned.
	Rule    Rule                 // Rule is the order that was used.
	Nodes   int                  // Nodes is how many there are.
	Open    int                  // Open is on how many of them jobs may start.
	Devices int                  // Devices is how many all nodes have.
	Running int                  // Running is how many jobs hold nodes.
	Rows    []Row                // Rows are the jobs that wait, by turn; those without one come last, by number.
	Tenants []fairness.Statement // Tenants are the accounts under LTGF, by ID; nil under other rules.
	Faults  []*lockstep.Error    // Faults are what was left out or mended, each naming its job or node and the field.
}

// Row is a job, array or heterogeneous job that waits.
type Row struct {
	ID        uint32        // ID is Slurm's number of it.
	Job       string        // Job is the name by which scontrol knows it.
	Name      string        // Name is what its owner calls it.
	User      string        // User owns it.
	Account   string        // Account is charged.
	Partition string        // Partition is where it waits.
	Devices   int64         // Devices is how many it wants, of an array each task.
	MinNodes  int           // MinNodes is how many nodes it wants at least.
	Limit     time.Duration // Limit is how long it may run; 0 means unlimited or unknown.

	Turn     int               // Turn is its place in the order, from 1; 0 where it has none within the horizon.
	Start    time.Time         // Start is when it would start; zero where that is not within the horizon or not known.
	Last     time.Time         // Last is when the last task that was planned would start; Start of one that is no array.
	Planned  int               // Planned is how many tasks have a start.
	Tasks    int               // Tasks is how many wait.
	On       []lockstep.NodeID // On are the nodes it would start on, of an array the first task, in rank order.
	Expected time.Time         // Expected is when Slurm itself says that it will start; zero where it says nothing.

	Reason      lockstep.Reason       // Reason is why it does not start now; empty where it does.
	Detail      string                // Detail is more of it, for people.
	Explanation *lockstep.Explanation // Explanation is all of it, for those in Config.Explain that may have a turn and do not start now; else nil.

	Current  uint32 // Current is Slurm's priority of it.
	Priority uint32 // Priority is what it ought to be; Current where that will do, and 0 where none is given.

	first *entry
	known int    // tasks with a gang
	het   bool   // heterogeneous
	array uint32 // number of the array; 0 for none
	tasks string // of the array that wait, as Slurm writes them; empty where it cuts them
}

func newRow(parts []*Job) *Row {
	j := parts[0]
	r := &Row{
		ID: j.ID, Job: j.String(), Name: j.Name, User: j.User, Account: j.Account, Partition: j.Partition, Limit: j.Limit,
		Tasks: j.Tasks, Expected: j.Started, Current: j.Priority, array: j.Array, tasks: j.waits,
	}
	if j.Het != 0 {
		r.ID, r.Job, r.het = j.Het, label(j.Het), true // which stands for all of its components
	}
	for _, p := range parts {
		r.Devices += p.GPUs
		r.MinNodes += p.MinNodes
	}
	return r
}

// started notes the start of one more task.
func (r *Row) started(t, now time.Time, p *lockstep.Plan) {
	if r.Planned++; r.Planned == 1 {
		r.Start = t
		if t.Equal(now) {
			r.Reason, r.Detail = "", ""
		}
		for i := range p.Members {
			if n := p.Members[i].Node; !slices.Contains(r.On, n) {
				r.On = append(r.On, n)
			}
		}
		if !r.het && len(r.On) < r.MinNodes {
			r.Detail = strings.TrimPrefix(r.Detail+"; on fewer nodes than Slurm would take", "; ")
		}
	}
	r.Last = t
}

// Change is a priority to be set.
type Change struct {
	ID   uint32 // ID is Slurm's number of the job.
	Job  string // Job is the name by which scontrol knows it, or the tasks of an array of which others wait apart.
	From uint32 // From is the priority that it had.
	To   uint32 // To is the one that it gets.
}

// Changes returns the priorities that have to be set so that Slurm's order is that of the turns, the highest first.
func (r *Report) Changes() []Change {
	parts := make(map[uint32]int) // arrays of which more than one part waits, since a task was requeued or changed
	for i := range r.Rows {
		if a := r.Rows[i].array; a != 0 {
			parts[a]++
		}
	}
	var out []Change
	for i := range r.Rows {
		w := &r.Rows[i]
		if w.Priority == 0 || w.Priority == w.Current {
			continue
		}
		ch := Change{ID: w.ID, Job: w.Job, From: w.Current, To: w.Priority}
		if parts[w.array] > 1 && w.tasks != "" {
			ch.Job = label(w.array) + "_[" + w.tasks + "]" // or it would be set for all parts
		}
		out = append(out, ch)
	}
	return out
}
