package serving

import (
	"errors"
	"math"
	"math/rand/v2"
	"time"
)

// LearnerConfig configures a Learner. The zero value works.
type LearnerConfig struct {
	BudgetFraction float64 `json:"budgetFraction,omitempty"` // share of the time left that a batch may take, below 1; 0 means 0.92
	Sigmas         float64 `json:"sigmas,omitempty"`         // how many standard deviations above the mean a batch may turn out, up to 100; 0 means 2
	Small          int     `json:"small,omitempty"`          // up to this size it explores in steps of one; 0 means 10
	Samples        int     `json:"samples,omitempty"`        // batches at the largest size before a larger one is tried; 0 means 10
	Keep           int     `json:"keep,omitempty"`           // batches after which what was seen before counts half; 0 means 1000
	Most           int     `json:"most,omitempty"`           // largest size; 0 means MaxSize
	Seed           uint64  `json:"seed,omitempty"`           // of the steps by which it explores
}

// withDefaults fills in what zero means.
func (c LearnerConfig) withDefaults() LearnerConfig {
	if c.BudgetFraction == 0 {
		c.BudgetFraction = 0.92
	}
	if c.Sigmas == 0 {
		c.Sigmas = 2
	}
	for _, f := range []struct {
		field *int
		value int
	}{{&c.Small, 10}, {&c.Samples, 10}, {&c.Keep, 1000}, {&c.Most, MaxSize}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
	return c
}

// Validate reports all faults of c, joined.
func (c LearnerConfig) Validate() error {
	errs := []error{
		checkFraction("config", "BudgetFraction", c.BudgetFraction),
		checkInt("config", "Small", c.Small, 0, MaxSize),
		checkInt("config", "Samples", c.Samples, 0, math.MaxInt32),
		checkInt("config", "Keep", c.Keep, 0, math.MaxInt32),
		checkInt("config", "Most", c.Most, 0, MaxSize),
	}
	if !(c.Sigmas >= 0 && c.Sigmas <= 100) {
		errs = append(errs, invalid("config", "Sigmas", formatFloat(c.Sigmas), "must be from 0 to 100"))
	}
	return errors.Join(errs...)
}

// Learner finds the largest batch for the time that is left from what batches took. While it has more time than any
// batch took it explores: larger by one, and from Small on by a share drawn from a normal distribution of mean 0.1 and
// deviation 0.05, but at least by one, once it has Samples at its largest size and the line, see below, allows it. Otherwise it takes the largest batch whose time by a line
// through all samples, with Sigmas deviations of a new one from it added, is within BudgetFraction of the time left. The shape
// of this rule is that of Clipper's later code (github.com/ucbrise/clipper, 0.4), which fits the size by the time; here
// the time is fitted by the size. Not safe for concurrent use.
type Learner struct {
	config LearnerConfig
	rand   *rand.Rand
	seen   int           // batches since old ones were halved
	worst  time.Duration // longest batch
	recent int           // largest size since then
	before int           // largest size in the Keep batches before
	most   int           // largest size seen, of late
	at     int           // batches of that size
	next   int           // the size to try after it

	// Weighted sums over batches of size x and time y, in milliseconds so that squares stay exact for longer.
	n, x, y, xx, xy, yy float64
}

// NewLearner returns a Learner that has seen nothing.
func NewLearner(c LearnerConfig) (*Learner, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	return &Learner{config: c, rand: rand.New(rand.NewPCG(c.Seed, 0x5e71)), next: 1}, nil
}

// Observe tells what a batch took. Sizes below 1 or above MaxSize, and times below 0 or above 100 h, are ignored.
func (l *Learner) Observe(size int, took time.Duration) {
	if size < 1 || size > MaxSize || took < 0 || took > maxSpan {
		return
	}
	if l.seen++; l.seen > l.config.Keep {
		l.seen = 1
		l.fade()
	}
	x, y := float64(size), float64(took)/1e6
	l.n++
	l.x += x
	l.y += y
	l.xx += float64(x * x)
	l.xy += float64(x * y)
	l.yy += float64(y * y)
	l.worst = max(l.worst, took)
	l.recent = max(l.recent, size)
	switch {
	case size > l.most:
		l.most, l.at = size, 1
		l.next = l.step()
	case size == l.most:
		l.at++
	}
}

// fade lets what was seen before count less, so that one slow batch does not end exploration for ever, nor one large batch
// long ago let it begin there.
func (l *Learner) fade() {
	for _, s := range []*float64{&l.n, &l.x, &l.y, &l.xx, &l.xy, &l.yy} {
		*s /= 2
	}
	l.worst -= l.worst / 8
	if most := max(l.recent, l.before); most < l.most {
		l.most, l.at = most, 0
		l.next = l.step()
	}
	l.before, l.recent = l.recent, 0
}

// step draws the size that is tried after the largest one seen.
func (l *Learner) step() int {
	if l.most < l.config.Small {
		return min(l.most+1, l.config.Most)
	}
	grow := 1.1 + float64(0.05*l.rand.NormFloat64())
	return min(max(l.most+1, int(float64(l.most)*grow)), l.config.Most)
}

// Size is the most requests that a batch shall have whose tightest request has left to its deadline; at least 1, as
// the host decides what becomes of a request that is late already.
func (l *Learner) Size(left time.Duration) int {
	budget := time.Duration(float64(max(left, 0)) * l.config.BudgetFraction)
	if l.most == 0 {
		return 1
	}
	if budget > l.worst {
		next := l.next
		if l.at < l.config.Samples {
			next = min(l.most, l.config.Most)
		}
		if l.alike() {
			return next
		}
		return max(1, Largest(l, budget, next)) // what was worst is forgotten in time, the line knows better then
	}
	return max(1, Largest(l, budget, min(l.most, l.config.Most)))
}

// spread is the variance of the sizes seen.
func (l *Learner) spread() float64 {
	at := l.x / l.n
	return l.xx/l.n - float64(at*at)
}

// alike says whether all sizes seen are the same, so that they say nothing of others.
func (l *Learner) alike() bool { return l.spread() <= 1e-9 }

// Batch returns the time of a batch of n by the line through all samples, with Sigmas deviations of a new sample from it
// added, which grow with how far n is beyond the samples; a Learner is a Latency. The line does not fall. Where all samples
// are of one size, larger batches take as much time for each request. It returns 0 before the first sample.
func (l *Learner) Batch(n int) time.Duration {
	if l.n == 0 {
		return 0
	}
	at, mean, slope := l.x/l.n, l.y/l.n, 0.0
	beyond := max(float64(n)-at, 0)
	vx, alike := l.spread(), l.alike()
	cov := l.xy/l.n - float64(at*mean)
	if !alike && cov > 0 {
		slope = cov / vx
	}
	residual := max(l.yy/l.n-float64(mean*mean)-float64(slope*cov), 0)
	if alike {
		slope = mean / at
	} else {
		residual *= 1 + 1/l.n + float64(beyond*beyond)/float64(l.n*vx)
	}
	ms := mean + float64(slope*beyond) + float64(l.config.Sigmas*math.Sqrt(residual))
	if !alike {
		ms -= float64(slope * max(at-float64(n), 0))
	}
	ns := math.Round(max(ms, 0) * 1e6)
	if ns >= float64(maxTime) {
		return maxTime
	}
	return time.Duration(ns)
}
