package fit

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/detect/internal/num"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

// Coeff says what a chunk takes: Alpha for each token, Beta for each pair of a query
// and a key, and Fixed for each chunk, all in nanoseconds and none negative.
type Coeff struct {
	Alpha float64 `json:"alpha,omitempty"` // nanoseconds a token
	Beta  float64 `json:"beta,omitempty"`  // nanoseconds a pair
	Fixed float64 `json:"fixed,omitempty"` // nanoseconds a chunk
}

// Validate reports a coefficient that is negative, infinite or NaN.
func (c Coeff) Validate() error {
	for i, x := range c.array() {
		if !(x >= 0 && x <= math.MaxFloat64) {
			return invalid("coeff", terms[i], text(x), "want a finite number that is not negative")
		}
	}
	return nil
}

// Time returns what a chunk with the micro-batch b takes, to the nearest nanosecond.
// Times beyond those of time.Duration are the largest one.
func (c Coeff) Time(b perfmodel.Batch) time.Duration {
	return num.Duration(c.nanos(b))
}

func (c Coeff) nanos(b perfmodel.Batch) float64 {
	return float64(c.Alpha*float64(b.Tokens)) + float64(c.Beta*b.Pairs) + c.Fixed
}

func (c Coeff) array() [3]float64 { return [3]float64{c.Alpha, c.Beta, c.Fixed} }

// terms are the names of the coefficients; immutable.
var terms = [3]string{"Alpha", "Beta", "Fixed"}

// Sample is one measurement to fit: a chunk, or several of the same kind and stage summed up.
type Sample struct {
	Batch perfmodel.Batch // micro-batch, or the sum of them
	Count int             // chunks summed up; 0 means 1
	Took  time.Duration   // time on the device, above 0
}

// Options say what to fit. The zero value is valid: a part a token and a part a pair.
type Options struct {
	Fixed     bool    // a part for each chunk is fitted as well
	Linear    bool    // there is no part for each pair, as with the gradient of weights
	Classes   bool    // detect.FitRates: the stages between the first and the last share their coefficients
	MinSpread float64 // least part of a term, in [0, 1), that the other terms must not explain; 0 means 0.02
}

// Report says how good a fit is.
type Report struct {
	Samples   int     // samples given
	Outliers  int     // samples beyond 4.7 scales of the fit, which did not count
	MAPE      float64 // mean absolute relative error over all samples; a fraction
	Scale     float64 // robust standard deviation of the relative error; a fraction
	Condition float64 // how many times as uncertain the worst coefficient is as it would be if terms varied independently; at least 1
	Bounded   bool    // a coefficient is 0 because it would be negative
}

const (
	maxPairs  = 1e30  // most pairs of a batch; a million documents of a million tokens have 1e18
	fitRounds = 40    // most rounds of reweighting
	biweight  = 4.685 // scales beyond which a sample does not count: 95 % efficient for normal errors
)

// fitter is one fit in progress. Rows are relative to the predicted time, since errors
// of times are; the first rounds minimise absolute residuals, which a minority of wrong
// samples cannot bend, and the others Tukey's biweight, by iterated reweighting (Beaton
// and Tukey, "The fitting of power series", 1974).
type fitter struct {
	samples []Sample
	use     [3]bool
	weight  []float64
	scratch []float64
}

// Solve finds the coefficients of a chunk kind on a stage that suit the samples best:
// non-negative least squares of relative errors, made robust. Samples of
// replicas of a stage are fitted together; a slow one among them is outvoted.
// ErrUnidentifiable where the samples do not determine them, ErrInvalid for a sample that
// cannot be.
func Solve(samples []Sample, o Options) (Coeff, Report, error) {
	f := fitter{samples: samples, use: [3]bool{true, !o.Linear, o.Fixed}}
	if err := f.check(&o); err != nil {
		return Coeff{}, Report{}, err
	}
	f.weight = make([]float64, len(samples))
	f.scratch = make([]float64, len(samples))
	condition, err := f.identify(o.MinSpread)
	if err != nil {
		return Coeff{}, Report{}, err
	}
	c := f.solve()
	if err := c.Validate(); err != nil {
		return Coeff{}, Report{}, err
	}
	r := f.report(c)
	r.Condition = condition
	return c, r, nil
}

func (f *fitter) check(o *Options) error {
	if o.MinSpread == 0 {
		o.MinSpread = 0.02
	}
	if !(o.MinSpread > 0 && o.MinSpread < 1) {
		return invalid("solve", "MinSpread", text(o.MinSpread), "want 0 to less than 1")
	}
	want := 0
	for _, used := range f.use {
		if used {
			want++
		}
	}
	for i := range f.samples {
		if err := f.samples[i].check(at("samples", i)); err != nil {
			return err
		}
	}
	if len(f.samples) < want {
		return unidentifiable("samples", strconv.Itoa(len(f.samples)), "want at least one for each of "+strconv.Itoa(want)+" coefficients")
	}
	return nil
}

// Validate reports what cannot be about s.
func (s Sample) Validate() error { return s.check("sample") }

// Expected returns what s should have taken by c, to the nearest nanosecond, held to the largest time.
func (s Sample) Expected(c Coeff) time.Duration { return num.Duration(dot(c, s.row(1))) }

func (s *Sample) check(field string) error {
	switch {
	case s.Took <= 0:
		return invalid("solve", field+".Took", s.Took.String(), "want more than 0")
	case s.Batch.Tokens < 1:
		return invalid("solve", field+".Batch.Tokens", strconv.FormatInt(s.Batch.Tokens, 10), "want at least 1")
	case !(s.Batch.Pairs >= 0 && s.Batch.Pairs <= maxPairs):
		return invalid("solve", field+".Batch.Pairs", text(s.Batch.Pairs), "want 0 to "+text(maxPairs))
	case s.Count < 0:
		return invalid("solve", field+".Count", strconv.Itoa(s.Count), "want at least 0")
	}
	return nil
}

// row returns the terms of a sample over base.
func (s *Sample) row(base float64) [3]float64 {
	return [3]float64{float64(s.Batch.Tokens) / base, s.Batch.Pairs / base, float64(max(s.Count, 1)) / base}
}

// identify returns the condition of the fit, or what it lacks.
func (f *fitter) identify(minSpread float64) (float64, error) {
	var n normalEquations
	for i := range f.samples {
		s := &f.samples[i]
		n.add(s.row(float64(s.Took)), 1, 1)
	}
	lacks := [3]string{"Tokens", "Pairs", "Count"}
	worst, condition := 1.0, 1.0
	for _, j := range [...]int{1, 0, 2} { // pairs first: where they do not vary by themselves, tokens do not either
		if !f.use[j] {
			continue
		}
		if n.gram[j][j] == 0 {
			return 0, unidentifiable("samples."+lacks[j], "", "is 0 in all samples")
		}
		use := f.use
		use[j] = false
		spread := n.unexplained(use, j)
		if spread < minSpread && f.use[0] && f.use[2] && j == 1 && n.unexplained([3]bool{2: true}, 0) < minSpread {
			continue // tokens are what does not vary; they come next
		}
		if spread < minSpread {
			return 0, unidentifiable("samples."+lacks[j], text(spread), "hardly varies by itself; want a spread of at least "+text(minSpread))
		}
		worst = min(worst, spread)
	}
	condition = 1 / worst
	return condition, nil
}

// solve reweights until the coefficients stay.
func (f *fitter) solve() Coeff {
	for i := range f.weight {
		f.weight[i] = 1
	}
	c := f.round(Coeff{}, false)
	for _, absolute := range [...]bool{true, false} {
		for range fitRounds / 2 {
			f.reweight(c, absolute)
			last := c
			c = f.round(c, true)
			if c.near(last) {
				break
			}
		}
	}
	return c
}

// round solves with the weights as they are, relative to what c predicts, or to what was measured.
func (f *fitter) round(c Coeff, predicted bool) Coeff {
	var n normalEquations
	for i := range f.samples {
		s := &f.samples[i]
		base := float64(s.Took)
		if predicted {
			base = f.predict(c, s)
		}
		n.add(s.row(base), float64(s.Took)/base, f.weight[i])
	}
	return n.solve(f.use)
}

// near says whether c is as good as o.
func (c Coeff) near(o Coeff) bool {
	x, y := c.array(), o.array()
	for j := range x {
		if math.Abs(x[j]-y[j]) > 1e-12*y[j] {
			return false
		}
	}
	return true
}

func (f *fitter) predict(c Coeff, s *Sample) float64 {
	t := float64(c.Alpha*float64(s.Batch.Tokens)) + float64(c.Beta*s.Batch.Pairs) + float64(c.Fixed*float64(max(s.Count, 1)))
	return max(t, 1e-9)
}

// reweight sets the weights from the relative residuals.
func (f *fitter) reweight(c Coeff, absolute bool) {
	scale := max(f.spread(c), 1e-9)
	for i := range f.samples {
		s := &f.samples[i]
		r := math.Abs(float64(s.Took)/f.predict(c, s) - 1)
		switch {
		case absolute:
			f.weight[i] = min(1, scale/(10*r))
		case r >= biweight*scale:
			f.weight[i] = 0
		default:
			x := r / (biweight * scale)
			f.weight[i] = (1 - float64(x*x)) * (1 - float64(x*x))
		}
	}
}

// spread returns the robust scale of relative residuals.
func (f *fitter) spread(c Coeff) float64 {
	for i := range f.samples {
		s := &f.samples[i]
		f.scratch[i] = math.Abs(float64(s.Took)/f.predict(c, s) - 1)
	}
	slices.Sort(f.scratch)
	return max(num.MADScale*num.Median(f.scratch), 1e-12)
}

func (f *fitter) report(c Coeff) Report {
	r := Report{Samples: len(f.samples), Scale: f.spread(c)}
	for i := range f.samples {
		s := &f.samples[i]
		e := math.Abs(float64(s.Took)/f.predict(c, s) - 1)
		r.MAPE += e / float64(len(f.samples))
		if e > biweight*max(r.Scale, 1e-6) {
			r.Outliers++
		}
	}
	for j, x := range c.array() {
		r.Bounded = r.Bounded || f.use[j] && x == 0
	}
	return r
}
