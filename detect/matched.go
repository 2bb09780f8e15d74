package detect

import (
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep/detect/change"
	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

// moments are means over iterations of what a fault would do to them: of the square of its shift,
// of the product of neighbouring shifts, and of the shift.
type moments struct{ mean, square, product, fourth, before float64 }

// MatchedTest finds a slow stage of one replica from nothing but the times of whole iterations,
// and says which it may be. For every place and some factors it follows what each iteration should
// take with that place slower, and compares, by the odds of what is seen, a past in which such a
// fault began at some iteration with one in which none did.
//
// The alarm is raised once the mean odds over all faults reach one over FalseAlarms. Without a
// fault they grow by at most 1 an iteration in the mean, whatever the number of faults looked for
// (Shiryaev 1963; Roberts 1966; Pollak 1985), so the threshold needs no tuning. A slowdown of the
// whole iteration is one more thing that is looked for. The alarm ends when the odds are back at
// the root of the threshold.
//
// Cost: linear in places times factors, and so is memory; what each iteration should take with a
// place slower is for Expectation.Evaluate. Observe allocates nothing.
//
// Not safe for concurrent use.
type MatchedTest struct {
	cfg      MatchedConfig
	limit    float64 // odds at which the alarm is raised
	forget   float64
	own      float64   // chance, beforehand, of one place and factor
	whole    float64   // the same for one shift of the whole iteration
	needed   float64   // information that finds a fault with the power configured
	warm     []float64 // the first Warmup samples, fewer while they come in
	scratch  []float64
	series   series
	branches []branch  // as Expectation.shifts, then one for each of anywhere
	moments  []moments // as Expectation.shifts
	seen     int       // iterations in moments, held at meanMemory
	standing bool
	total    float64 // mean odds
}

// NewMatched returns a test that has seen nothing.
func NewMatched(cfg MatchedConfig) (*MatchedTest, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	n := cfg.Replicas * cfg.Stages * len(cfg.Factors)
	t := &MatchedTest{
		cfg:      cfg,
		warm:     make([]float64, 0, cfg.Warmup),
		scratch:  make([]float64, cfg.Warmup),
		branches: make([]branch, n+len(anywhere)),
		moments:  make([]moments, n),
		own:      (1 - elsewhere) / float64(n),
		whole:    elsewhere / float64(len(anywhere)),
	}
	t.design()
	return t, nil
}

// design works out what follows from the configuration.
func (t *MatchedTest) design() {
	t.limit = 1 / t.cfg.FalseAlarms
	t.forget = 1 - 1/float64(memorySpan*t.cfg.Horizon)
	t.needed = neededInformation(num.Log(t.limit)+matchedExcess, t.cfg.Power)
}

// Tune changes the rate of false alarms that is allowed for, 0 meaning the default, and keeps what
// was learned.
func (t *MatchedTest) Tune(falseAlarms float64) error {
	cfg := t.cfg
	cfg.FalseAlarms = falseAlarms
	if err := cfg.Validate(); err != nil {
		return err
	}
	t.cfg = cfg.withDefaults()
	t.design()
	t.hold()
	return nil
}

// Reset forgets everything but the configuration.
func (t *MatchedTest) Reset() {
	t.warm = t.warm[:0]
	t.series = series{}
	clear(t.branches)
	clear(t.moments)
	t.seen, t.standing, t.total = 0, false, 0
}

// Rearm ends a standing alarm and forgets the evidence for it, as after a repair. What was learned
// of health stays.
func (t *MatchedTest) Rearm() {
	t.standing, t.total = false, 0
	for i := range t.branches {
		t.branches[i].start(&t.series)
	}
}

func (t *MatchedTest) learning() bool { return t.series.n == 0 }

// Observe takes what an iteration took and what e says that it should have taken; e was worked out
// for the replicas, stages and factors of the test. ErrInvalid otherwise, and for a time that is
// not above 0; then nothing has changed.
func (t *MatchedTest) Observe(took time.Duration, e *Expectation) (change.Decision, error) {
	switch {
	case took <= 0:
		return change.Decision{}, invalid("observe", "took", took.String(), "want more than 0")
	case e == nil || !e.suits(t.cfg.Replicas, t.cfg.Stages, t.cfg.Factors):
		return change.Decision{}, invalid("observe", "e", "", "was not worked out for the replicas, stages and factors of the test")
	}
	x := num.Log(float64(took) / float64(e.Took))
	t.average(e)
	if t.learning() {
		t.begin(x)
		return change.Decision{Learning: true}, nil
	}
	s := &t.series
	d := change.Decision{Residual: num.Clip((x-s.mean)/math.Sqrt(s.scale), 8)}
	t.judge(x, e)
	switch {
	case !t.standing && t.total >= t.limit:
		d.Alarm, t.standing = true, true
		s.level = t.mean(func(b *branch) float64 { return b.level })
	case t.standing && t.total*t.total < t.limit:
		t.standing = false
	}
	if t.standing {
		s.pass(x)
	} else {
		s.learn(x, leastScale)
	}
	t.report(&d)
	return d, nil
}

// begin takes one of the first samples.
func (t *MatchedTest) begin(x float64) {
	t.warm = append(t.warm, x)
	if len(t.warm) < t.cfg.Warmup {
		return
	}
	t.series.begin(t.warm, t.scratch, leastScale)
	t.warm = t.warm[:0]
	for i := range t.branches {
		t.branches[i].start(&t.series)
	}
}

// average takes the shifts of an iteration into the moments.
func (t *MatchedTest) average(e *Expectation) {
	t.seen = min(t.seen+1, meanMemory)
	gain := 1 / float64(t.seen)
	for i, shift := range e.shifts {
		m := &t.moments[i]
		m.mean += float64(gain * (shift - m.mean))
		m.square += float64(gain * (float64(shift*shift) - m.square))
		m.product += float64(gain * (float64(shift*m.before) - m.product))
		m.fourth += float64(gain * (float64(float64(shift*shift)*float64(shift*shift)) - m.fourth))
		m.before = shift
	}
}

// judge takes a sample into the odds.
func (t *MatchedTest) judge(x float64, e *Expectation) {
	s := &t.series
	r := x - s.mean
	healthy, _ := density(r * r / s.scale)
	n := len(e.shifts)
	places, whole := 0.0, 0.0
	for i, shift := range e.shifts {
		places += t.branches[i].take(s, x, shift, healthy, t.forget)
	}
	for i, shift := range anywhere {
		whole += t.branches[n+i].take(s, x, shift, healthy, t.forget)
	}
	t.total = float64(places*t.own) + float64(whole*t.whole)
	t.hold()
}

// hold keeps the odds in bounds.
func (t *MatchedTest) hold() {
	most := t.limit * oddsRoom
	if t.total <= most {
		return
	}
	part := most / t.total
	for i := range t.branches {
		t.branches[i].odds *= part
	}
	t.total = most
}

// mean returns the mean of something over all faults, by their odds.
func (t *MatchedTest) mean(of func(*branch) float64) float64 {
	n := len(t.moments)
	places, whole := 0.0, 0.0
	for i := range t.branches {
		b := &t.branches[i]
		if i < n {
			places += float64(b.odds * of(b))
		} else {
			whole += float64(b.odds * of(b))
		}
	}
	if !(t.total > 0) {
		return t.series.level
	}
	return (float64(places*t.own) + float64(whole*t.whole)) / t.total
}

func (t *MatchedTest) report(d *change.Decision) {
	s := &t.series
	d.Standing = t.standing
	d.Score = num.Log(1+t.total) / num.Log(1+t.limit)
	if t.standing { // it ends at half the logarithm of the limit
		d.Score = max(d.Score, 1)
	}
	if t.standing || d.Score > 0.5 {
		d.Since = int(t.mean(func(b *branch) float64 { return b.age }) + 0.5)
		d.Shift = s.last - t.mean(func(b *branch) float64 { return b.last })
	}
	d.MinDetectable = num.Exp(s.visible(t.needed, t.cfg.Horizon, leastWhole))
}
