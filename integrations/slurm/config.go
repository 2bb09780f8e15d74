package slurm

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/topology/slurm"
)

// Rule says in which order jobs have their turn.
type Rule string

// The rules. The zero Rule is LTGF.
const (
	LTGF  Rule = ""      // LTGF is long-term GPU-time fairness among tenants, and the shortest limit first within one.
	FIFO  Rule = "fifo"  // FIFO is the order in which jobs became eligible.
	SRTF  Rule = "srtf"  // SRTF is the shortest limit first.
	LAS   Rule = "las"   // LAS is the least attained service first, which for jobs that are never stopped is nearly FIFO.
	Slurm Rule = "slurm" // Slurm is the order of the priorities that jobs have: what the incumbent is expected to do.
)

// Tenant says who counts as one tenant.
type Tenant string

// The tenants. The zero Tenant is ByAccount.
const (
	ByAccount   Tenant = ""          // ByAccount: an account.
	ByUser      Tenant = "user"      // ByUser: a user.
	ByQOS       Tenant = "qos"       // ByQOS: a quality of service.
	ByPartition Tenant = "partition" // ByPartition: a partition, or the list of those that a job may go to.
)

// Config says how a view is planned. The zero value works.
type Config struct {
	Rule    Rule                        `json:"rule,omitempty"`    // Rule is the order; zero is LTGF.
	Tenant  Tenant                      `json:"tenant,omitempty"`  // Tenant says who is a tenant under LTGF; zero is ByAccount.
	Weights map[lockstep.TenantID]int64 `json:"weights,omitempty"` // Weights are those of the tenants under LTGF, 0 to 2^32; those that are not named have 1.

	Backfill   gang.Backfill `json:"backfill,omitempty"`   // Backfill says which jobs may pass a blocked one; zero is EASY.
	Horizon    time.Duration `json:"horizon,omitempty"`    // Horizon is how far ahead starts are planned, at most 366 days; 0 means 7 days.
	Resolution time.Duration `json:"resolution,omitempty"` // Resolution is to what ends of jobs are rounded up, 1 s to 1 h; 0 means 1 minute.
	ArrayTasks int           `json:"arrayTasks,omitempty"` // ArrayTasks is how many tasks of one array are planned; 0 means 16.
	History    time.Duration `json:"history,omitempty"`    // History is how far back what running jobs got, and waiting ones did not, counts under LTGF; 0 means 7 days.

	IgnoreCPUs   bool `json:"ignoreCPUs,omitempty"`   // IgnoreCPUs leaves processors out of account, for clusters that do not allot them.
	IgnoreMemory bool `json:"ignoreMemory,omitempty"` // IgnoreMemory leaves host memory out of account, for clusters with CR_Core or CR_CPU rather than CR_Core_Memory.

	Explain []uint32 `json:"explain,omitempty"` // Explain are the numbers of jobs that are to be explained at length, of those that do not start now; nil means none.

	Users []string `json:"users,omitempty"` // Users are whose jobs may be given priorities; nil means everybody's.
	Low   uint32   `json:"low,omitempty"`   // Low is the least priority that is given; 0 means 1,000,000,000.
	High  uint32   `json:"high,omitempty"`  // High is the greatest; 0 means 3,000,000,000. Slurm takes at most 4,294,967,293.
}

// maxPriority is the greatest priority that slurmctld takes.
const maxPriority = 1<<32 - 3

const maxHorizon = 366 * 24 * time.Hour

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	if !slices.Contains([]Rule{LTGF, FIFO, SRTF, LAS, Slurm}, c.Rule) {
		bad("Rule", quote(c.Rule), "want fifo, srtf, las, slurm or nothing")
	}
	if !slices.Contains([]Tenant{ByAccount, ByUser, ByQOS, ByPartition}, c.Tenant) {
		bad("Tenant", quote(c.Tenant), "want user, qos, partition or nothing")
	}
	for _, t := range slices.Sorted(maps.Keys(c.Weights)) {
		if w := c.Weights[t]; w < 0 || w > fairness.MaxWeight {
			bad("Weights["+printable(string(t))+"]", strconv.FormatInt(w, 10), "want 0 to 2^32")
		}
		if t != "" {
			errs = append(errs, t.Validate())
		}
	}
	span := func(field string, d, limit time.Duration) {
		if d < 0 || d > limit {
			bad(field, d.String(), "want 0 to "+limit.String())
		}
	}
	span("Horizon", c.Horizon, maxHorizon)
	span("History", c.History, maxHorizon)
	span("Resolution", c.Resolution, time.Hour)
	if c.Resolution > 0 && c.Resolution < time.Second {
		bad("Resolution", c.Resolution.String(), "want 1s or more")
	}
	if c.ArrayTasks < 0 || c.ArrayTasks > maxNodes {
		bad("ArrayTasks", strconv.Itoa(c.ArrayTasks), "want 0 to "+strconv.Itoa(maxNodes))
	}
	if c.Backfill < gang.Strict {
		bad("Backfill", strconv.Itoa(int(c.Backfill)), "want -1 or more")
	}
	if d := c.withDefaults(); d.High > maxPriority || d.Low > d.High {
		bad("High", strconv.FormatUint(uint64(d.High), 10), "want Low to "+label(maxPriority))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	c.Horizon = cmp.Or(c.Horizon, 7*24*time.Hour)
	c.History = cmp.Or(c.History, 7*24*time.Hour)
	c.Resolution = cmp.Or(c.Resolution, time.Minute)
	c.ArrayTasks = cmp.Or(c.ArrayTasks, 16)
	c.Low = cmp.Or(c.Low, 1_000_000_000)
	c.High = cmp.Or(c.High, 3_000_000_000)
	return c
}

// View is a cluster at one time, as Slurm's commands told of it.
type View struct {
	Now      time.Time         // Now is when it was taken.
	Nodes    []Node            // Nodes are those of the cluster.
	Jobs     []Job             // Jobs are those that wait or hold nodes; ended ones are passed over.
	Topology *slurm.Topology   // Topology is what topology.conf says; nil means that all nodes are equally near.
	Faults   []*lockstep.Error // Faults are what the readers left out, to be passed on in the Report.
}
