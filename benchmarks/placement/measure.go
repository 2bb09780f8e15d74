package main

import (
	"runtime"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// meter measures repeated steps in rounds.
type meter struct {
	clock       harness.Clock
	calibration *harness.Calibration
	samples     []int64
	tail        []int64   // all samples of all rounds, for the overall percentiles
	judged      []float64 // the same as the reference core would have shown them
	dropped     int       // of them, those that were interrupted
	keep        bool      // none is dropped
}

// glance is how often, in nanoseconds, a round looks whether it was interrupted.
const glance = 100_000

func newMeter() *meter {
	clock := harness.NewClock()
	return &meter{clock: clock, calibration: harness.NewCalibration(clock)}
}

// figures are what a measurement found. Times are in nanoseconds; those that end
// in Ref are as the reference core would have shown them. Percentiles are medians
// over the rounds, except all99, all99Ref, all999 and worst, which are over all of them.
// They leave out the decisions around which another process had the core: on a
// busy machine those are more than one in a hundred, and as long as its turn.
type figures struct {
	count, dropped    int
	slowness          float64 // median
	p50, p50Ref       float64
	p99, p99Ref       float64
	all99, all999     float64
	all99Ref          float64
	worst             float64
	wall, cpu, cpuRef float64 // a step, all of it
	allocs            float64 // a step
}

// perSecond turns the time of a step into a rate.
func perSecond(nanos float64) float64 { return 1e9 / nanos }

// measure runs rounds of steps of about the same work as a calibration takes.
// A step returns the time of its decision.
func (m *meter) measure(rounds, perRound int, step func() (int64, error)) (figures, error) {
	var slowness, p50, p50Ref, p99, p99Ref, wall, cpu, cpuRef []float64
	m.samples = slices.Grow(m.samples[:0], perRound)
	m.tail = slices.Grow(m.tail[:0], rounds*perRound)
	m.judged = slices.Grow(m.judged[:0], rounds*perRound)
	m.dropped = 0
	var allocs uint64
	var before, after runtime.MemStats
	for range rounds {
		slow := m.calibration.Slowness()
		runtime.ReadMemStats(&before)
		cpuStart, _ := harness.CPUTime()
		start := m.clock.Nanos()
		if err := m.round(perRound, step); err != nil {
			return figures{}, err
		}
		elapsed := float64(m.clock.Nanos()-start) / float64(perRound)
		used := elapsed
		if cpuEnd, ok := harness.CPUTime(); ok {
			used = float64(cpuEnd-cpuStart) / float64(perRound)
		}
		runtime.ReadMemStats(&after)
		allocs += after.Mallocs - before.Mallocs
		slow = (slow + m.calibration.Slowness()) / 2
		m.tail = append(m.tail, m.samples...)
		for _, took := range m.samples {
			m.judged = append(m.judged, float64(took)/slow)
		}
		slices.Sort(m.samples)
		if len(m.samples) == 0 {
			continue
		}
		half, high := float64(harness.Percentile(m.samples, 50)), float64(harness.Percentile(m.samples, 99))
		slowness = append(slowness, slow)
		p50, p50Ref = append(p50, half), append(p50Ref, half/slow)
		p99, p99Ref = append(p99, high), append(p99Ref, high/slow)
		wall, cpu, cpuRef = append(wall, elapsed), append(cpu, used), append(cpuRef, used/slow)
	}
	slices.Sort(m.tail)
	slices.Sort(m.judged)
	return figures{
		count: rounds * perRound, dropped: m.dropped, slowness: harness.Median(slowness),
		p50: harness.Median(p50), p50Ref: harness.Median(p50Ref),
		p99: harness.Median(p99), p99Ref: harness.Median(p99Ref),
		all99Ref: harness.Percentile(m.judged, 99),
		all99:    float64(harness.Percentile(m.tail, 99)), all999: float64(harness.Percentile(m.tail, 99.9)), worst: float64(harness.Percentile(m.tail, 100)),
		wall: harness.Median(wall), cpu: harness.Median(cpu), cpuRef: harness.Median(cpuRef),
		allocs: float64(allocs) / float64(rounds*perRound),
	}, nil
}

// round takes n steps and keeps the times of those that were not interrupted.
func (m *meter) round(n int, step func() (int64, error)) error {
	m.samples = m.samples[:0]
	seen, looked, kept := harness.Interruptions(), m.clock.Nanos(), 0
	for i := range n {
		took, err := step()
		if err != nil {
			return err
		}
		m.samples = append(m.samples, took)
		if now := m.clock.Nanos(); now-looked > glance || i == n-1 {
			if count := harness.Interruptions(); count != seen && !m.keep {
				m.dropped += len(m.samples) - kept
				m.samples, seen = m.samples[:kept], count
			}
			looked, kept = m.clock.Nanos(), len(m.samples)
		}
	}
	return nil
}

// perRound returns how many steps take about two calibrations, by timing some.
// Rounds as short as that are judged by the slowness of their own moment.
func (m *meter) perRound(step func() (int64, error)) (int, error) {
	const probe = 64
	best := int64(1) << 62
	for range 5 {
		start := m.clock.Nanos()
		for range probe {
			if _, err := step(); err != nil {
				return 0, err
			}
		}
		best = min(best, m.clock.Nanos()-start)
	}
	n := int64(2*harness.Nominal) * probe / max(best, 1)
	return int(min(max(n, 20), 20_000)), nil
}

// long measures rounds of a few steps, a quarter of them under -quick, that take as long as a round of others, and time themselves by
// spent: on a busy machine most of them are interrupted, and none is left out.
// Their 99th percentiles are over all rounds.
func (m *meter) long(b *harness.Bench, perRound int, step func() (int64, error)) (figures, error) {
	m.keep = true
	defer func() { m.keep = false }()
	if b.Quick {
		perRound = max(1, perRound/4)
	}
	f, err := m.measure(b.Rounds(), perRound, step)
	f.p99, f.p99Ref = f.all99, f.all99Ref
	return f, err
}

// spent reads the processor time of this process, or the clock where the system does
// not tell, in nanoseconds.
func (m *meter) spent() int64 {
	if cpu, ok := harness.CPUTime(); ok {
		return int64(cpu)
	}
	return m.clock.Nanos()
}

// mallocs returns how many allocations there were so far.
func mallocs() uint64 {
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.Mallocs
}

// run chooses the size of rounds and measures.
func (m *meter) run(b *harness.Bench, step func() (int64, error)) (figures, error) {
	n, err := m.perRound(step)
	if err != nil {
		return figures{}, err
	}
	rounds := 3 * b.Rounds()
	return m.measure(rounds, n, step)
}

// heap returns the live bytes after a collection.
func heap() float64 {
	var stats runtime.MemStats
	for range 2 { // what finalizers let go of is collected by the second
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

func micros(nanos float64) float64 { return nanos / float64(time.Microsecond) }
