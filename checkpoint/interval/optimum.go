package interval

import (
	"math"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// fault builds the error of a call of this package.
func fault(call, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "interval: " + call, Field: field, Value: value, Reason: reason}
}

// within checks a duration that may be zero.
func within(call, field string, d time.Duration) error {
	if d < 0 || d > lockstep.MaxWalltime {
		return fault(call, field, d.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	return nil
}

// checkPair checks a stall and a time between failures.
func checkPair(call string, stall, between time.Duration) error {
	if err := within(call, "stall", stall); err != nil {
		return err
	}
	if between <= 0 || between > lockstep.MaxWalltime {
		return fault(call, "between", between.String(), "want more than 0, at most "+lockstep.MaxWalltime.String())
	}
	return nil
}

// quantised rounds nanoseconds to a whole microsecond, at least one: what is decided by it must not depend on the last
// digits of a float.
func quantised(ns float64) time.Duration {
	if !(ns < float64(lockstep.MaxWalltime)) {
		return lockstep.MaxWalltime
	}
	return max(time.Duration(math.Round(ns/1e3))*time.Microsecond, time.Microsecond)
}

// Young returns the interval sqrt(2 C M) for saves that stall a job for C, stall, and failures every M, between. It
// is within 5 % of the best while C ≤ M/100, and what it wastes more than the best is small even then. A stall of 0
// gives the least interval, a microsecond.
func Young(stall, between time.Duration) (time.Duration, error) {
	if err := checkPair("young", stall, between); err != nil {
		return 0, err
	}
	return quantised(math.Sqrt(2 * float64(stall) * float64(between))), nil
}

// Daly returns Daly's higher-order interval; as long as the time between failures where the stall is twice that or
// more, as nothing then helps. There it falls, by a ninth, when the time between failures rises beyond half the stall.
func Daly(stall, between time.Duration) (time.Duration, error) {
	if err := checkPair("daly", stall, between); err != nil {
		return 0, err
	}
	c, m := float64(stall), float64(between)
	if c >= 2*m {
		return max(between, time.Microsecond), nil
	}
	x := c / (2 * m)
	return quantised(float64(math.Sqrt(2*c*m)*(1+float64(math.Sqrt(x)/3)+x/9)) - c), nil
}

// Optimum returns the interval that wastes least where failures are independent: the T that minimises
// (exp((T+C)/M) - 1) / T. It is no longer than the time between failures, however long the stall; a microsecond at least.
func Optimum(stall, between time.Duration) (time.Duration, error) {
	if err := checkPair("optimum", stall, between); err != nil {
		return 0, err
	}
	return quantised(float64(between) * ratio(float64(stall)/float64(between))), nil
}

// ratio solves -ln(1-x) - x = c for x in [0, 1), which is where the derivative of the waste is zero. The left side is
// x²/2 + x³/3 + ..., rising and convex, so Newton's steps from the right of the root come down to it.
func ratio(c float64) float64 {
	if c <= 0 {
		return 0
	}
	// y = 1-x is at least exp(-1-c), so the start is right of the root.
	x := math.Sqrt(2 * c)
	if x > .5 {
		x = 1 - exp(-1-min(c, 40))
	}
	for range 100 {
		if x <= 0 || x >= 1 {
			break
		}
		next := x - float64((logGap(x)-c)*(1-x))/x
		if next >= x { // rounding has the last word
			break
		}
		x = next
	}
	return min(max(x, 0), 1)
}

// logGap is -ln(1-x) - x for x in (0, 1), by operations that are the same on every platform. Nothing cancels: near
// 0 it is the sum of x^k/k from k = 2.
func logGap(x float64) float64 {
	if x > .25 {
		return -ln(1-x) - x
	}
	sum, p := 0.0, x
	for k := 2.0; k < 60; k++ {
		p *= x
		sum += p / k
	}
	return sum
}

// ln is the natural logarithm of y in (0, 1]: y = m 2^e with m in [1/2, 1), and ln m = 2 artanh((m-1)/(m+1)).
func ln(y float64) float64 {
	m, e := math.Frexp(y)
	z := (m - 1) / (m + 1)
	zz, sum := z*z, 0.0
	for k := 41.0; k >= 1; k -= 2 {
		sum = float64(sum*zz) + 1/k
	}
	return float64(2*z*sum) + float64(float64(e)*math.Ln2)
}

// exp is e^x for x in [-700, 0]: the series of x/2^k, squared k times.
func exp(x float64) float64 {
	k := 0
	for x < -.5 {
		x /= 2
		k++
	}
	sum := 1.0
	for n := 20.0; n >= 1; n-- {
		sum = 1 + float64(x*sum)/n
	}
	for range k {
		sum *= sum
	}
	return sum
}

// Waste returns the share of time, in [0, 1], that a job loses which saves after every interval of work: to stalls,
// to work done twice and to restarts. A job that never gets on loses 1. It is a figure for people: platforms may
// differ in the last digits.
func Waste(interval, stall, restart, between time.Duration) (float64, error) {
	if err := checkPair("waste", stall, between); err != nil {
		return 0, err
	}
	if err := within("waste", "restart", restart); err != nil {
		return 0, err
	}
	if interval <= 0 || interval > lockstep.MaxWalltime {
		return 0, fault("waste", "interval", interval.String(), "want more than 0, at most "+lockstep.MaxWalltime.String())
	}
	t, c, r, m := float64(interval), float64(stall), float64(restart), float64(between)
	// Daly's equation 20: an interval takes M exp(R/M) (exp((T+C)/M) - 1) on average.
	takes := m * math.Exp(r/m) * math.Expm1((t+c)/m)
	return min(max(1-t/takes, 0), 1), nil
}

// Failures is how often work is lost without a save.
type Failures struct {
	Unit  time.Duration `json:"unit,omitempty"`  // Unit is the mean time between failures of one unit, such as a node; 0 means that it never fails.
	Units int           `json:"units,omitempty"` // Units is how many units the job needs at once; 0 means 1.

	// Preempted is the mean time between preemptions whose warning is too short to save in; 0 means none. Those with
	// enough warning lose nothing and are not counted.
	Preempted time.Duration `json:"preempted,omitempty"`
}

// Between returns the mean time between losses of work, and false if there never is one.
func (f Failures) Between() (time.Duration, bool) {
	rate := 0.0 // per nanosecond
	if f.Unit > 0 {
		rate = float64(max(f.Units, 1)) / float64(f.Unit)
	}
	if f.Preempted > 0 {
		rate += 1 / float64(f.Preempted)
	}
	if rate <= 0 {
		return 0, false
	}
	return quantised(1 / rate), true
}

// validate reports every fault of f.
func (f Failures) validate(call, path string) []error {
	var errs []error
	for _, x := range []struct {
		field string
		d     time.Duration
	}{{"Unit", f.Unit}, {"Preempted", f.Preempted}} {
		if err := within(call, path+x.field, x.d); err != nil {
			errs = append(errs, err)
		}
	}
	if f.Units < 0 {
		errs = append(errs, fault(call, path+"Units", strconv.Itoa(f.Units), "want 0 or more"))
	}
	return errs
}
