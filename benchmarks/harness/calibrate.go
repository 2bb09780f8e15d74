package harness

import (
	"slices"
	"time"
)

// Nominal is how long one run of a Calibration takes on the reference: one quiet
// core of an AMD EPYC of the 9005 series (family 26, model 2) in a virtual
// machine, with Go 1.26 (the least of some hundred runs there was 5.02 ms). It
// defines the unit that times are compared in; it does not follow new machines.
const Nominal = 5 * time.Millisecond

const (
	calibrationWords = 1 << 17 // one MiB: larger than the first cache, as the state of a scheduler is
	calibrationSteps = 1 << 19
)

// Calibration is a fixed piece of work whose duration tells how slow a core is
// at this moment. Make one with NewCalibration.
type Calibration struct {
	clock Clock
	table []uint64
}

// NewCalibration returns a warm calibration that reads clock.
func NewCalibration(clock Clock) *Calibration {
	c := &Calibration{clock: clock, table: make([]uint64, calibrationWords)}
	c.work()
	return c
}

// work does the fixed work from a fixed start and returns its checksum, which is
// the same on every machine.
func (c *Calibration) work() uint64 {
	for i := range c.table {
		c.table[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	x := uint64(1)
	for range calibrationSteps {
		// Each load depends on the one before: the loop measures latency and
		// arithmetic, not how much a core can overlap.
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		i := (x >> 11) % calibrationWords
		x += c.table[i]
		c.table[i] = x
	}
	return x
}

// Slowness returns how many times longer the fixed work takes now than on the
// reference: 1 is as fast, 2 half as fast. It counts processor time where the
// system tells it, for the figures that it is applied to leave out the moments
// in which others ran as well: rates per second of processor time, and
// percentiles of times so short that few are interrupted. Elsewhere it counts
// wall time.
func (c *Calibration) Slowness() float64 {
	start, cpu := c.clock.Nanos(), time.Duration(0)
	before, ok := CPUTime()
	sum := c.work()
	if after, _ := CPUTime(); ok {
		cpu = after - before
	}
	elapsed := time.Duration(c.clock.Nanos() - start)
	if cpu > 0 {
		elapsed = cpu
	}
	if sum == 0 { // never; but the compiler does not know, so the work is done
		return 1
	}
	return float64(elapsed) / float64(Nominal)
}

// Clock reads monotonic time cheaply. The zero Clock is not ready; use NewClock.
type Clock struct{ start time.Time }

// NewClock returns a clock that starts at zero.
func NewClock() Clock { return Clock{start: time.Now()} }

// Nanos returns the nanoseconds since the clock was made.
func (c Clock) Nanos() int64 { return int64(time.Since(c.start)) }

// Overhead returns what one pair of readings adds to the time between them, in
// nanoseconds: the median of many pairs with nothing between.
func (c Clock) Overhead() int64 {
	samples := make([]int64, 4096)
	for i := range samples {
		start := c.Nanos()
		samples[i] = c.Nanos() - start
	}
	slices.Sort(samples)
	return Percentile(samples, 50)
}

// Percentile returns the p-th percentile, 0 < p <= 100, of samples sorted in
// increasing order, by nearest rank; 0 when there are none.
func Percentile[T int64 | float64](sorted []T, p float64) T {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(float64(float64(len(sorted))*p)/100 + 0.999999)
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median returns the middle of values, the lower one of an even number of them,
// and leaves them as they are; 0 when there are none.
func Median(values []float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return Percentile(sorted, 50)
}
