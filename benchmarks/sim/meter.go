package main

import (
	"runtime"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// meter times work that takes long compared with a calibration, or is repeated.
type meter struct {
	clock       harness.Clock
	calibration *harness.Calibration
}

func newMeter() *meter {
	clock := harness.NewClock()
	return &meter{clock: clock, calibration: harness.NewCalibration(clock)}
}

// cost is what a piece of work took.
type cost struct {
	wall, cpu float64 // nanoseconds; cpu is wall where the system does not tell
	slowness  float64 // of the machine meanwhile; see quiet
	allocs    float64 // how many
	bytes     float64 // of them
}

// ref is the processor time that the reference core would have shown.
func (c cost) ref() float64 { return c.cpu / c.slowness }

// per divides c among n units.
func (c cost) per(n int) cost {
	d := float64(max(n, 1))
	return cost{wall: c.wall / d, cpu: c.cpu / d, slowness: c.slowness, allocs: c.allocs / d, bytes: c.bytes / d}
}

// watch is a stopwatch that can be held while the machine is calibrated.
type watch struct {
	meter     *meter
	slowness  []float64
	sum       cost
	start     int64
	startCPU  time.Duration
	startHeap runtime.MemStats
}

// watch returns a stopwatch that runs.
func (m *meter) watch() *watch {
	w := &watch{meter: m}
	w.slowness = append(make([]float64, 0, 64), m.calibration.Slowness())
	w.resume()
	return w
}

func (w *watch) resume() {
	runtime.ReadMemStats(&w.startHeap)
	w.startCPU, _ = harness.CPUTime()
	w.start = w.meter.clock.Nanos()
}

func (w *watch) pause() {
	wall := float64(w.meter.clock.Nanos() - w.start)
	cpu := wall
	if now, ok := harness.CPUTime(); ok {
		cpu = float64(now - w.startCPU)
	}
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	w.sum.wall += wall
	w.sum.cpu += cpu
	w.sum.allocs += float64(heap.Mallocs - w.startHeap.Mallocs)
	w.sum.bytes += float64(heap.TotalAlloc - w.startHeap.TotalAlloc)
}

// calibrate holds the watch and looks how slow the machine is.
func (w *watch) calibrate() {
	w.pause()
	w.slowness = append(w.slowness, w.meter.calibration.Slowness())
	w.resume()
}

// stop ends the measurement.
func (w *watch) stop() cost {
	w.pause()
	w.slowness = append(w.slowness, w.meter.calibration.Slowness())
	w.sum.slowness = quiet(w.slowness)
	return w.sum
}

// quiet returns the slowness that counts of several: their first quartile. A
// calibration suffers more from neighbours than the work does, which waits less
// for caches; the median would credit the work with more than it lost.
func quiet(slowness []float64) float64 {
	sorted := slices.Clone(slowness)
	slices.Sort(sorted)
	return harness.Percentile(sorted, 25)
}

// rounds measures several rounds of work, each with its own preparation, which
// is not measured, and returns the round of the median processor time as the
// reference core would have shown it.
func (m *meter) rounds(n int, prepare func() error, work func() error) (cost, error) {
	costs := make([]cost, 0, n)
	for range n {
		if prepare != nil {
			if err := prepare(); err != nil {
				return cost{}, err
			}
		}
		w := m.watch()
		if err := work(); err != nil {
			return cost{}, err
		}
		costs = append(costs, w.stop())
	}
	return middle(costs), nil
}

// middle returns the cost with the median ref, which is whole: its figures were
// measured together.
func middle(costs []cost) cost {
	refs := make([]float64, len(costs))
	for i, c := range costs {
		refs[i] = c.ref()
	}
	want := harness.Median(refs)
	for i := range costs {
		if refs[i] == want {
			return costs[i]
		}
	}
	return cost{}
}

// perSecond turns a time in nanoseconds into a rate.
func perSecond(nanos float64) float64 { return 1e9 / nanos }

// live returns the live bytes after a collection.
func live() float64 {
	var stats runtime.MemStats
	for range 2 { // what finalizers let go of is collected by the second
		runtime.GC()
	}
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
