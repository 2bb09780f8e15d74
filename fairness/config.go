package fairness

import (
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// JobOrder says which of a tenant's jobs comes first. Orders that need to know how
// long a job will run are to be had from policy/order.
type JobOrder string

// The orders of jobs. The zero JobOrder is MostOwed. The last three are looked at
// anew in each pass, which costs O(n log n) in the tenant's jobs.
const (
	MostOwed    JobOrder = ""         // MostOwed puts the job with the greatest Lag first.
	FIFO        JobOrder = "fifo"     // FIFO puts the job that was submitted first first.
	Smallest    JobOrder = "smallest" // Smallest puts the job with the least demand first.
	LeastRun    JobOrder = "leastrun" // LeastRun puts the job first that held its grants for the shortest time, whatever their size.
	LeastIndex  JobOrder = "index"    // LeastIndex puts the job with the least Index first, and one without an index at the very front: ASTRAEA's fairness order.
	IndexClass  JobOrder = "class"    // IndexClass is LeastIndex in five classes, with their bounds at 0.472, 0.815, 1.227 and 2.117: ASTRAEA's discretised order with its default of five.
	LeastExpect JobOrder = "expect"   // LeastExpect puts the job first whose Index would be least after it ran for Config.Quantum: unlike LeastIndex it tells apart jobs that have not run.
)

// Payer says on whose account overhead goes that Overhead reports.
type Payer string

// The payers. The zero Payer is PayHolder.
const (
	PayHolder    Payer = ""          // PayHolder: the tenant whose job it is, as for all that it holds.
	PayReclaimer Payer = "reclaimer" // PayReclaimer: the tenant that caused it; where there is none, its own.
	PayNobody    Payer = "nobody"    // PayNobody: nobody is thought to have had it.
)

// Memory says how far back what tenants got and should have got counts in their
// order. Whatever it is, Statement has the whole as well. The zero Memory is for
// ever. At most one of Buckets and HalfLife is set.
type Memory struct {
	Bucket  time.Duration `json:"bucket,omitempty"`  // Bucket is the length of the parts that a sliding window moves by, which begin at its multiples since 1970, at least a millisecond; 0 means no window.
	Buckets int           `json:"buckets,omitempty"` // Buckets is how many whole ones count, beside the one that runs: at least 1 with a window, at most 10000.

	// HalfLife is the time after which something counts half; 0 means that nothing
	// decays. It decays continuously and without rounding along the way; times are
	// taken in steps of HalfLife/2^48. Accounts of jobs decay likewise where they order
	// a tenant's jobs, and Horizon and Quantum count as two half-lives at most.
	HalfLife time.Duration `json:"halfLife,omitempty"`
}

// Config configures a Ledger. The zero Config is valid.
type Config struct {
	Basis         Basis             `json:"basis,omitempty"`         // Basis is what tenants are entitled to; zero is MaxMin.
	JobOrder      JobOrder          `json:"jobOrder,omitempty"`      // JobOrder is the order of one tenant's jobs; zero is MostOwed.
	Quantum       time.Duration     `json:"quantum,omitempty"`       // Quantum is how far LeastExpect looks ahead; 0 means DefaultQuantum.
	Capacity      lockstep.MilliGPU `json:"capacity,omitempty"`      // Capacity is what there is to share until SetCapacity says otherwise; 0 is none.
	Horizon       time.Duration     `json:"horizon,omitempty"`       // Horizon is how long a grant is taken to last when tenants are compared in a pass, such as the term of a lease; 0 means DefaultHorizon.
	Memory        Memory            `json:"memory,omitzero"`         // Memory is how far back the order of tenants looks; zero is for ever.
	CreditCap     time.Duration     `json:"creditCap,omitempty"`     // CreditCap is how much of its own part of the capacity an idle tenant may save up, as time: what it is owed and its credit come to no more while it saves; 0 means that idle time earns nothing. Only with the Memory that is for ever.
	Payer         Payer             `json:"payer,omitempty"`         // Payer is who pays for overhead; zero is the holder.
	DefaultWeight int64             `json:"defaultWeight,omitempty"` // DefaultWeight is the weight with which Submit lets a tenant join that has not joined, or has left; 0 means that it refuses.
	Log           func(Event)       `json:"-"`                       // Log is called with each event once it is applied, to be stored; nil means not. It must not block or call back.
}

const (
	maxBuckets  = 10_000
	leastBucket = time.Millisecond // so that numbers of buckets are far from the ends of int64
)

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	duration := func(field string, d time.Duration) {
		if d < 0 || d > lockstep.MaxWalltime {
			bad(field, d.String(), "want 0 to "+lockstep.MaxWalltime.String())
		}
	}
	switch c.Basis {
	case MaxMin, Active, Fixed:
	default:
		bad("Basis", errtext.Quote(c.Basis), `want "", "active" or "fixed"`)
	}
	switch c.JobOrder {
	case MostOwed, FIFO, Smallest, LeastRun, LeastIndex, IndexClass, LeastExpect:
	default:
		bad("JobOrder", errtext.Quote(c.JobOrder), "no such order")
	}
	switch c.Payer {
	case PayHolder, PayReclaimer, PayNobody:
	default:
		bad("Payer", errtext.Quote(c.Payer), `want "", "reclaimer" or "nobody"`)
	}
	if c.Capacity < 0 || c.Capacity > maxRate {
		bad("Capacity", c.Capacity.String(), "want 0 to "+lockstep.MilliGPU(maxRate).String())
	}
	duration("Horizon", c.Horizon)
	duration("Quantum", c.Quantum)
	duration("CreditCap", c.CreditCap)
	if c.DefaultWeight < 0 || c.DefaultWeight > MaxWeight {
		bad("DefaultWeight", strconv.FormatInt(c.DefaultWeight, 10), "want 0 to 2^32")
	}
	c.Memory.check(duration, bad)
	if c.Memory != (Memory{}) && c.CreditCap != 0 {
		bad("CreditCap", c.CreditCap.String(), "is not for a window or a half-life") // what it paid for is forgotten, and it would pay again
	}
	return errors.Join(errs...)
}

// check names what is wrong with m.
func (m *Memory) check(duration func(string, time.Duration), bad func(field, value, reason string)) {
	duration("Memory.Bucket", m.Bucket)
	if m.Bucket > 0 && m.Bucket < leastBucket {
		bad("Memory.Bucket", m.Bucket.String(), "want 0, or at least "+leastBucket.String())
	}
	duration("Memory.HalfLife", m.HalfLife)
	switch n := m.Buckets; {
	case (n != 0) != (m.Bucket != 0), n < 0, n > maxBuckets:
		bad("Memory.Buckets", strconv.Itoa(n), "want 1 to "+strconv.Itoa(maxBuckets)+" with a Bucket, and 0 without")
	case m.HalfLife != 0 && n != 0:
		bad("Memory.HalfLife", m.HalfLife.String(), "is not for a window")
	}
}

// withDefaults returns c with its zero fields filled in.
func (c Config) withDefaults() Config {
	if c.Horizon == 0 {
		c.Horizon = DefaultHorizon
	}
	if c.Quantum == 0 {
		c.Quantum = DefaultQuantum
	}
	return c
}
