package interval

import (
	"errors"
	"hash/fnv"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Rule is which formula gives the interval.
type Rule string

// The rules.
const (
	ByOptimum Rule = ""      // ByOptimum: the exact one, Optimum.
	ByDaly    Rule = "daly"  // ByDaly: Daly.
	ByYoung   Rule = "young" // ByYoung: Young.
)

// Config configures a Policy. The zero value is valid, and advises MaxWalltime since nothing ever fails.
type Config struct {
	Rule     Rule          `json:"rule,omitempty"`     // Rule is the formula; "" means Optimum.
	Failures Failures      `json:"failures"`           // Failures is how often work is lost, until SetFailures says otherwise.
	Stall    time.Duration `json:"stall,omitempty"`    // Stall is what a save is taken to hold the job up until one was measured.
	Restart  time.Duration `json:"restart,omitempty"`  // Restart is how long a failure keeps the job from working; it matters for Advice.Waste alone.
	Min      time.Duration `json:"min,omitempty"`      // Min is the least interval; 0 means none.
	Max      time.Duration `json:"max,omitempty"`      // Max is the greatest, where Min, Share and whole steps leave one below it; 0 means lockstep.MaxWalltime.
	Step     time.Duration `json:"step,omitempty"`     // Step is the length of a training step, of which an interval is a multiple, rounded up; 0 means any interval.
	Write    time.Duration `json:"write,omitempty"`    // Write is how long a save keeps the storage busy, where the job goes on meanwhile; 0 means no longer than it stalls.
	Share    int           `json:"share,omitempty"`    // Share is how much of the time the storage may be busy with this job, in thousandths; 0 means 1000. One save is under way at a time.
	Smooth   int           `json:"smooth,omitempty"`   // Smooth is the weight of the newest stall in the mean, in thousandths; 0 means 200.
	Steady   int           `json:"steady,omitempty"`   // Steady is by how much an interval must differ from the last one to be advised, in thousandths of that; 0 means 100.
	Spread   int           `json:"spread,omitempty"`   // Spread shortens a job's intervals by a part that depends on its ID, up to this many thousandths, at most 500; 0 means none.
	NoSteady bool          `json:"noSteady,omitempty"` // NoSteady advises every change, whatever Steady says.
}

// Defaults of Config.
const (
	defaultSmooth = 200
	defaultSteady = 100
	window        = 64 // stalls that are kept for Longest
)

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	errs := c.Failures.validate("config", "Failures.")
	for _, x := range []struct {
		field string
		d     time.Duration
	}{{"Stall", c.Stall}, {"Restart", c.Restart}, {"Min", c.Min}, {"Max", c.Max}, {"Step", c.Step}, {"Write", c.Write}} {
		if err := within("config", x.field, x.d); err != nil {
			errs = append(errs, err)
		}
	}
	if c.Max != 0 && c.Min > c.Max {
		errs = append(errs, fault("config", "Min", c.Min.String(), "is more than Max, "+c.Max.String()))
	}
	for _, x := range []struct {
		field   string
		n, most int
	}{{"Share", c.Share, thousand}, {"Smooth", c.Smooth, thousand}, {"Steady", c.Steady, thousand}, {"Spread", c.Spread, 500}} {
		if x.n < 0 || x.n > x.most {
			errs = append(errs, fault("config", x.field, strconv.Itoa(x.n), "want 0 to "+strconv.Itoa(x.most)))
		}
	}
	switch c.Rule {
	case ByOptimum, ByDaly, ByYoung:
	default:
		errs = append(errs, fault("config", "Rule", errtext.Quote(c.Rule), `want "", "daly" or "young"`))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Max == 0 {
		c.Max = lockstep.MaxWalltime
	}
	if c.Share == 0 {
		c.Share = thousand
	}
	if c.Smooth == 0 {
		c.Smooth = defaultSmooth
	}
	if c.Steady == 0 {
		c.Steady = defaultSteady
	}
	return c
}

// Policy advises one job how often to save, from what its saves cost. Make one with New or Restore.
type Policy struct {
	given    Config // as it came
	cfg      Config
	failures Failures
	mean     time.Duration // smoothed stall
	measured bool
	seen     []time.Duration // the last window stalls, a ring once full
	next     int             // where the next goes
	last     time.Duration   // the interval advised last; 0 if none
}

// New returns a policy without measurements, or the faults of cfg.
func New(cfg Config) (*Policy, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Policy{given: cfg, cfg: cfg.withDefaults(), failures: cfg.Failures, mean: cfg.Stall}, nil
}

// Saved takes in how long a save held the job up.
func (p *Policy) Saved(stall time.Duration) error {
	if err := within("saved", "stall", stall); err != nil {
		return err
	}
	if p.measured {
		// Whole nanoseconds, rounded towards the old mean.
		p.mean += (stall - p.mean) / thousand * time.Duration(p.cfg.Smooth)
	} else {
		p.mean, p.measured = stall, true
	}
	if len(p.seen) < window {
		p.seen = append(p.seen, stall)
		return nil
	}
	p.seen[p.next] = stall
	p.next = (p.next + 1) % window
	return nil
}

// SetFailures says how often work is lost from now on: the job has another size, or preemptions come faster.
func (p *Policy) SetFailures(f Failures) error {
	if errs := f.validate("set failures", "f."); len(errs) > 0 {
		return errors.Join(errs...)
	}
	p.failures = f
	return nil
}

// Longest returns the stall that permille of the last 64 did not exceed, such as 950 or 990; ok is false before the
// first one.
func (p *Policy) Longest(permille int) (stall time.Duration, ok bool) {
	if len(p.seen) == 0 {
		return 0, false
	}
	var sorted [window]time.Duration
	s := sorted[:copy(sorted[:], p.seen)]
	slices.Sort(s)
	// The least that at least so many are not above.
	at := (min(max(permille, 1), thousand)*len(s) + thousand - 1) / thousand
	return s[at-1], true
}

// Advice is how often to save.
type Advice struct {
	Interval time.Duration   `json:"interval"`         // Interval is work between saves.
	Reason   lockstep.Reason `json:"reason,omitempty"` // Reason is NoProgress, or Clamped where a bound holds the interval; "" otherwise.
	Best     time.Duration   `json:"best"`             // Best is what the rule asks for, before bounds and steps.
	Stall    time.Duration   `json:"stall"`            // Stall is what a save is taken to hold the job up.
	Between  time.Duration   `json:"between"`          // Between is the mean time between losses of work; 0 if there are none.
	Waste    float64         `json:"waste"`            // Waste is the share of time lost, in [0, 1], for people.
}

// Advise returns how often to save a job, whose ID spreads jobs that save to the same place.
func (p *Policy) Advise(job lockstep.JobID) (Advice, error) {
	if err := job.Validate(); err != nil {
		return Advice{}, fault("advise", "job", errtext.Quote(job), err.Error())
	}
	a := Advice{Stall: p.mean, Best: lockstep.MaxWalltime}
	between, fails := p.failures.Between()
	if fails {
		a.Between = between
		best, err := p.best(between)
		if err != nil {
			return Advice{}, err
		}
		a.Best = best
	}
	a.Interval, a.Reason = p.bound(p.spread(a.Best, job))
	if p.last != 0 && !p.cfg.NoSteady && p.near(a.Interval) {
		a.Interval = p.last
	}
	p.last = a.Interval
	if fails {
		if p.mean >= between {
			a.Reason = NoProgress
		}
		waste, err := Waste(min(a.Interval, lockstep.MaxWalltime), p.mean, p.cfg.Restart, between)
		if err != nil {
			return Advice{}, err
		}
		a.Waste = waste
	}
	return a, nil
}

// best is what the rule says.
func (p *Policy) best(between time.Duration) (time.Duration, error) {
	switch p.cfg.Rule {
	case ByDaly:
		return Daly(p.mean, between)
	case ByYoung:
		return Young(p.mean, between)
	}
	return Optimum(p.mean, between)
}

// spread shortens d by the job's own part of Spread.
func (p *Policy) spread(d time.Duration, job lockstep.JobID) time.Duration {
	if p.cfg.Spread == 0 {
		return d
	}
	h := fnv.New64a()
	h.Write([]byte(job)) // never fails
	part := int64(h.Sum64() % uint64(p.cfg.Spread*thousand+1))
	return d - time.Duration(int64(d)/million*part)
}

// bound clamps d, in whole steps, and says whether it had to.
func (p *Policy) bound(d time.Duration) (time.Duration, lockstep.Reason) {
	lo, hi := max(p.cfg.Min, p.busy(), time.Microsecond), p.cfg.Max
	out := min(max(d, lo), max(hi, lo)) // what storage can take comes before Max
	var why lockstep.Reason
	if out != d {
		why = Clamped
	}
	if step := p.cfg.Step; step > 0 {
		n := (out + step - 1) / step
		if n*step > max(hi, lo) && n > 1 {
			n-- // the last whole step within Max
		}
		if n*step < lo {
			n++
		}
		if n*step > lockstep.MaxWalltime {
			n-- // which no step is longer than
		}
		out = n * step
	}
	return out, why
}

// busy is the least work between saves for which the storage is not busier than Share.
func (p *Policy) busy() time.Duration {
	write := max(p.cfg.Write, p.mean)
	// A save starts every interval and stall: write ≤ share × (interval + stall).
	cycle := min(int128.MulDivUp(int64(write), thousand, int64(p.cfg.Share)), int64(lockstep.MaxWalltime))
	return max(time.Duration(cycle)-p.mean, 0)
}

// near reports whether d is too little away from the last interval to be worth a change. What the bounds rule out
// is never near.
func (p *Policy) near(d time.Duration) bool {
	if kept, _ := p.bound(p.last); kept != p.last {
		return false
	}
	return (d - p.last).Abs() <= p.last/thousand*time.Duration(p.cfg.Steady)
}
