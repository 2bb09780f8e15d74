package lease

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Config configures a Table. The zero value is valid.
type Config struct {
	Term    time.Duration `json:"term,omitempty"`    // Term is how long a lease lasts until its boundary; 0 means 30 minutes.
	First   time.Duration `json:"first,omitempty"`   // First is how long a job's first term is, where its terms are longer: it is looked at again soon, and then ever later; 0 means as long as the others.
	Growth  int           `json:"growth,omitempty"`  // Growth is how many times as long as the one before each term is, in thousandths, until it is as long as the job's terms are to be; at least 1000, which is no growth; 0 means 2000. It matters with First only.
	Jitter  int           `json:"jitter,omitempty"`  // Jitter spreads boundaries: a first term is longer by a part of itself that depends on the job's ID, up to this many millionths, at most 1000000; 0 means none.
	Ahead   time.Duration `json:"ahead,omitempty"`   // Ahead is how long before its boundary a holder becomes due, at most its term; 0 means at the boundary.
	Silence time.Duration `json:"silence,omitempty"` // Silence is how long a holder may go without Renew before it is overdue; 0 means for ever.
	Loss    int           `json:"loss,omitempty"`    // Loss is the share of a term that a job's overhead may take, in millionths, at most 1000000; 0 means 20000, which is 2 %.
}

// Defaults of Config.
const (
	defaultTerm = 30 * time.Minute
	defaultLoss = 20_000
	defaultGrow = 2_000
	thousand    = 1_000
	million     = 1_000_000
)

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var errs []error
	check := func(field string, d time.Duration) {
		if d < 0 || d > lockstep.MaxWalltime {
			errs = append(errs, fault(lockstep.ErrInvalid, "config", field, d.String(), "want 0 to "+lockstep.MaxWalltime.String()))
		}
	}
	check("Term", c.Term)
	check("First", c.First)
	check("Ahead", c.Ahead)
	check("Silence", c.Silence)
	if c.Loss < 0 || c.Loss > million {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Loss", strconv.Itoa(c.Loss), "want 0 to 1000000"))
	}
	if c.Growth != 0 && (c.Growth < thousand || c.Growth > million) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Growth", strconv.Itoa(c.Growth), "want 0, or 1000 to 1000000"))
	}
	if c.Jitter < 0 || c.Jitter > million {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Jitter", strconv.Itoa(c.Jitter), "want 0 to 1000000"))
	}
	return errors.Join(errs...)
}

// TermFor returns the term of a job whose checkpoint and resume together take
// overhead: the least one, not below Term, of which overhead is at most the
// share Loss. It rounds up to the nanosecond and is at most
// lockstep.MaxWalltime; a negative overhead counts as none.
func (c Config) TermFor(overhead time.Duration) time.Duration {
	c = c.withDefaults()
	hi, lo := bits.Mul64(uint64(max(overhead, 0)), million)
	loss := uint64(c.Loss)
	if hi >= loss {
		return lockstep.MaxWalltime
	}
	need, rem := bits.Div64(hi, lo, loss)
	if rem != 0 {
		need++
	}
	return max(c.Term, time.Duration(min(need, uint64(lockstep.MaxWalltime))))
}

func (c Config) withDefaults() Config {
	if c.Term == 0 {
		c.Term = defaultTerm
	}
	if c.Loss == 0 {
		c.Loss = defaultLoss
	}
	if c.Growth == 0 {
		c.Growth = defaultGrow
	}
	return c
}

// first returns the length of the first of the terms that grow to term.
func (c *Config) first(term time.Duration) time.Duration {
	if c.First == 0 {
		return term
	}
	return min(c.First, term)
}

// grow returns the length of the term after one of length term, rounded up, so that
// a Growth above 1000 always makes it longer.
func (c *Config) grow(term, longest int64) int64 {
	if term >= longest {
		return longest
	}
	hi, lo := bits.Mul64(uint64(term), uint64(c.Growth))
	if hi >= thousand {
		return longest
	}
	next, rem := bits.Div64(hi, lo, thousand)
	if rem != 0 {
		next++
	}
	return int64(min(next, uint64(longest)))
}

// jitter returns by how much the first term of job is longer than it would be: by
// a part of it that is spread evenly over jobs, by a hash of the ID (FNV-1a, mixed).
func (c *Config) jitter(job lockstep.JobID, first time.Duration) time.Duration {
	if c.Jitter == 0 {
		return 0
	}
	h := uint64(14695981039346656037)
	for i := range len(job) {
		h = (h ^ uint64(job[i])) * 1099511628211
	}
	for _, m := range [...]uint64{0xbf58476d1ce4e5b9, 0x94d049bb133111eb} { // the finalizer of splitmix64: IDs are much alike
		h = (h ^ h>>30) * m
	}
	most := scaleUp(lockstep.MilliGPU(first), c.Jitter)
	part, _ := bits.Mul64(h^h>>31, uint64(most)+1)
	return time.Duration(part)
}

// scaleUp returns x times millionths, rounded up, held at the end of int64; x and
// millionths are not negative.
func scaleUp(x lockstep.MilliGPU, millionths int) lockstep.MilliGPU {
	hi, lo := bits.Mul64(uint64(x), uint64(millionths))
	if hi >= million {
		return math.MaxInt64
	}
	q, rem := bits.Div64(hi, lo, million)
	if rem != 0 {
		q++
	}
	return lockstep.MilliGPU(min(q, math.MaxInt64))
}
