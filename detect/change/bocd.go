package change

import (
	"math"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
)

const (
	// newMean is the weight, in samples, of the expectation that a new segment lies at the baseline.
	newMean = 0.1
	// negligible is a chance that is left out.
	negligible = 1e-12
	// apart is how many samples Greyhound's rule wants between two changes (as its code has it, commit de4d6b3).
	apart = 10
)

// runs is the distribution of the run length: how many samples ago the level last
// changed. With a constant hazard the chance of run length 0 is the hazard whatever
// was seen, so a change shows as the chance of a short run above 0. Runs longer than
// the support are one bucket.
type runs struct {
	weight []float64 // chance of each run length
	sum    []float64 // of the residuals of the run
	terms  []runTerm // what depends on the run length alone; shared
}

// runTerm is what the predictive density of a run of some length is made of.
type runTerm struct {
	mean float64 // weight of a residual in the level
	half float64 // half of the inverse of the variance of the next residual
	root float64 // inverse of the root of that variance
}

func newRuns(longest int) runs {
	r := runs{make([]float64, longest+1), make([]float64, longest+1), make([]runTerm, longest+1)}
	for n := range r.terms {
		v := 1 + 1/(float64(n)+newMean)
		r.terms[n] = runTerm{1 / (float64(n) + newMean), 1 / (2 * v), 1 / math.Sqrt(v)}
	}
	r.start()
	return r
}

// bocd is Bayesian online change-point detection for residuals of known scale with
// normal levels, one-sided: an alarm is a change to a level above the one before.
type bocd struct {
	cfg      Config
	base     baseline
	runs     runs
	before   runs // as they were before the present sample, to take it back
	last     float64
	prior    float64   // last, before the present sample
	ring     []float64 // deviations of the last samples from the baseline
	head     int
	center   float64 // of the present segment: residuals are about it, so that the clip leaves room for the next change
	level    float64 // of the segment that is taken for healthy
	fault    float64 // of the fault that stands, above level
	since    int     // samples since the onset of the fault, or of the change
	gap      int     // samples since the last change
	fired    bool    // the present change was dealt with
	standing bool
}

func newBOCD(cfg Config) *bocd {
	return &bocd{
		cfg:    cfg,
		base:   newBaseline(cfg),
		runs:   newRuns(cfg.Support),
		before: newRuns(cfg.Support),
		ring:   make([]float64, cfg.Support),
	}
}

// start says that the level has not changed for as long as can be told.
func (r *runs) start() {
	clear(r.weight)
	clear(r.sum)
	r.weight[len(r.weight)-1] = 1
}

// restart says that the level changed n samples ago, and that residuals are about the new one from now on.
func (r *runs) restart(n int) {
	clear(r.weight)
	clear(r.sum)
	r.weight[n] = 1
}

// mean returns the expected level of a run of length n.
func (r *runs) mean(n int) float64 { return float64(r.sum[n] * r.terms[n].mean) }

// update takes a residual in.
func (r *runs) update(z, hazard float64) {
	total := 0.0
	for n, w := range r.weight {
		if w < negligible {
			r.weight[n] = 0
			continue
		}
		e := z - r.mean(n)
		w = float64(w * num.Exp(-e*e*r.terms[n].half) * r.terms[n].root)
		r.weight[n] = w
		total += w
	}
	if !(total > 1e-280) { // the sample is impossible under all runs: it begins a new one
		r.start()
		total = 1
	}
	top := len(r.weight) - 1
	old, young := r.weight[top], r.weight[top-1]
	if old+young > 0 { // the two merge, by their means
		m := (float64(old*r.mean(top)) + float64(young*r.mean(top-1))) / (old + young)
		n := float64(top) + newMean
		r.sum[top] = n * (m + (z-m)/(n+1))
	}
	r.weight[top] = (old + young) * (1 - hazard) / total
	for n := top - 1; n > 0; n-- {
		r.weight[n] = r.weight[n-1] * (1 - hazard) / total
		r.sum[n] = r.sum[n-1] + z
	}
	r.weight[0], r.sum[0] = hazard, 0
}

// recent returns the chance that the level changed within k samples, and the likeliest such run.
func (r *runs) recent(k int) (chance float64, run int) {
	for n := 1; n <= k; n++ {
		chance += r.weight[n]
		if run == 0 || r.weight[n] > r.weight[run] {
			run = n
		}
	}
	return chance, run
}

func (r *runs) copyFrom(o *runs) {
	copy(r.weight, o.weight)
	copy(r.sum, o.sum)
}

func (t *bocd) Observe(x float64) (Decision, error) { return t.observe(x, math.Inf(-1)) }

// observe takes a sample that alarms only where it is above least.
func (t *bocd) observe(x, least float64) (Decision, error) {
	if err := checkSample(x); err != nil {
		return Decision{}, err
	}
	if t.base.learning() {
		t.base.begin(x)
		t.last = t.base.last
		return Decision{Learning: true}, nil
	}
	t.before.copyFrom(&t.runs)
	t.prior = t.last
	u := x - t.base.mean
	z := (u - t.center - float64(t.base.rho*(t.last-t.center))) / t.base.scale()
	z = num.Clip(z, t.cfg.Clip)
	t.last = t.center + num.Clip(u-t.center, t.cfg.Clip*t.base.sdU)
	t.runs.update(z, t.cfg.Hazard)
	t.gap = min(t.gap+1, math.MaxInt32)
	if t.since > 0 {
		t.since = min(t.since+1, math.MaxInt32)
	}
	d := Decision{Residual: z}
	chance, run := t.runs.recent(t.cfg.Within)
	d.Score = chance / t.cfg.Threshold
	oldest := t.ring[t.head]
	t.ring[t.head] = u
	switch {
	case d.Score < 1:
		t.fired = false
	case !t.fired && !t.change(run, x > least, &d):
		t.runs.copyFrom(&t.before)
		t.last = t.prior
		t.gap--
		t.ring[t.head] = oldest
		d.Standing, d.Score = t.standing, 0
		return d, nil
	}
	t.head = (t.head + 1) % len(t.ring)
	d.Standing, d.Since, d.Shift = t.standing, t.since, t.fault
	return d, nil
}

// mean returns the mean deviation of the last n samples.
func (t *bocd) mean(n int) float64 {
	sum := 0.0
	for i := range n {
		sum += t.ring[(t.head-i+len(t.ring))%len(t.ring)]
	}
	return sum / float64(n)
}

// change deals with a change point: run is its length, and open says that the sample is over the gate. It reports false
// where the sample is to be left out.
func (t *bocd) change(run int, open bool, d *Decision) bool {
	mean := t.mean(run)
	switch rise := mean - t.level; {
	case t.standing && rise <= t.fault/2:
		t.standing, t.fault, t.since = false, 0, 0
		t.level = mean
	case rise > t.fault && t.accepts(rise-t.fault, open):
		d.Alarm, t.standing = true, true
		t.fault, t.since = rise, run
	case t.cfg.Method == ResiHP && !t.standing:
		return false
	case !t.standing:
		t.level = mean
	}
	t.fired, t.gap, t.center = true, 0, mean
	t.runs.restart(run)
	return true
}

// accepts is the rule of the method on a rise of the level.
func (t *bocd) accepts(rise float64, open bool) bool {
	switch t.cfg.Method {
	case Greyhound:
		return t.gap >= apart && rise >= num.Log(t.cfg.Shift)
	case ResiHP:
		return open
	}
	return true
}

func (t *bocd) Tune(cfg Config) error {
	cfg, err := tuned(t.cfg, cfg)
	if err != nil {
		return err
	}
	t.cfg, t.base.cfg = cfg, cfg
	return nil
}

func (t *bocd) Reset() {
	t.base.reset()
	t.runs.start()
	t.before.copyFrom(&t.runs)
	clear(t.ring)
	t.head, t.last, t.prior, t.center, t.level, t.fault = 0, 0, 0, 0, 0, 0
	t.since, t.gap, t.fired, t.standing = 0, 0, false, false
}

// resiHP is bocd behind the gate on the prediction.
type resiHP struct{ bocd }

func (t *resiHP) Observe(x float64) (Decision, error) { return t.ObserveExpected(x, x) }

func (t *resiHP) ObserveExpected(x, expected float64) (Decision, error) {
	if err := checkSample(expected); err != nil {
		return Decision{}, err
	}
	return t.observe(x, expected+num.Log(t.cfg.Shift))
}
