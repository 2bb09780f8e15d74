package bubble

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

const ms = time.Millisecond

// measured is the profile of the benchmark.
func measured() []fusion.Point {
	var out []fusion.Point
	for _, p := range [][3]int{{1, 285, 1581}, {10, 479, 2513}, {20, 778, 3515}, {25, 935, 4065}, {100, 1952, 11603}, {150, 2863, 16795}, {220, 4135, 23921}} {
		out = append(out, fusion.Point{Fused: p[0], Step: time.Duration(p[1]) * ms / 10, Memory: lockstep.Bytes(p[2]) * lockstep.MiB})
	}
	return out
}

// job is bubblepack-v1: a pipeline of four stages and devices with so many thousand MiB to spare.
func job(t testing.TB, quanta int, residency Residency, spare ...int) Config {
	t.Helper()
	cfg := Config{
		Bundles: []Bundle{{ID: "resnet", Points: measured()}}, Quanta: quanta, Residency: residency,
		Resume: 10 * ms, Pause: 10 * ms,
	}
	line, err := pipeline.New(pipeline.Config{Stages: len(spare), Micros: 8})
	require.NoError(t, err)
	costs := line.Uniform(150*ms, 300*ms, 0)
	var r pipeline.Result
	require.NoError(t, line.Run(&costs, &r))
	for stage, s := range spare {
		cfg.Devices = append(cfg.Devices, Device{Memory: 80_000 * lockstep.MiB, Peak: lockstep.Bytes(80-s) * 1000 * lockstep.MiB})
		for _, w := range r.AppendWindows(nil, stage) {
			cfg.Windows = append(cfg.Windows, Window{Stage: stage, Start: w.Start, End: w.End, Kind: w.Kind})
		}
	}
	return cfg
}

// small is a job of two stages that is quick to plan.
func small() Config {
	return Config{
		Bundles: []Bundle{{ID: "a", Points: []fusion.Point{{Fused: 1, Step: 20 * ms, Memory: 10}, {Fused: 4, Step: 50 * ms, Memory: 30}}}},
		Devices: []Device{{Memory: 100, Peak: 50}, {Memory: 100, Peak: 85}},
		Windows: []Window{{Stage: 0, End: 400 * ms}, {Stage: 0, Start: 600 * ms, End: 800 * ms}, {Stage: 1, Start: 100 * ms, End: 300 * ms}},
		Quanta:  2, Resume: 5 * ms, Pause: 5 * ms,
	}
}

// world is a main job and steps as they really go.
type world struct {
	cfg     Config
	rand    *rand.Rand
	spread  float64
	uneven  float64
	stretch float64
	noise   func(*rand.Rand) float64 // of standard deviation 1
	now     time.Duration
	starts  int
}

func newWorld(cfg Config, seed uint64, spread, uneven float64) *world {
	return &world{cfg: cfg, rand: rand.New(rand.NewPCG(seed, 9)), spread: spread, uneven: uneven, stretch: 1, noise: (*rand.Rand).NormFloat64}
}

func (w *world) noisy(d time.Duration, sigma float64) time.Duration {
	if sigma == 0 {
		return d
	}
	return max(time.Duration(float64(d)*(1+sigma*w.noise(w.rand))), d/10, 1)
}

func (w *world) length(i int) time.Duration {
	return w.noisy(time.Duration(float64(w.cfg.Windows[i].End-w.cfg.Windows[i].Start)*w.stretch), w.spread)
}

// samples returns n samples of windows and of steps.
func (w *world) samples(n int) (windows, steps []Sample) {
	for i := range n {
		at := i % len(w.cfg.Windows)
		windows = append(windows, Sample{w.cfg.Windows[at].End - w.cfg.Windows[at].Start, w.length(at)})
		steps = append(steps, Sample{100 * ms, w.noisy(100*ms, w.uneven)})
	}
	return windows, steps
}

// fill goes through window i and returns what Observe said.
func (w *world) fill(t testing.TB, p *Packer, i int) lockstep.Reason {
	t.Helper()
	win := &w.cfg.Windows[i]
	start := w.now + win.Start
	end := start + w.length(i)
	f, err := p.Begin(start, i)
	require.NoError(t, err)
	require.Equal(t, f.Feasible, f.Reason == "")
	o := Observation{Window: i, Start: start, End: end}
	if f.Feasible {
		at := start + w.cfg.Resume
		for at < end {
			q, why, err := p.MayStartQuantum(at, win.Stage)
			require.NoError(t, err)
			if why != "" {
				break
			}
			w.starts++
			at += w.noisy(q.Expected, w.uneven)
		}
		o.Overrun = max(at+w.cfg.Pause-end, 0)
	}
	why, err := p.Observe(o)
	require.NoError(t, err)
	return why
}

// run goes through n windows, iteration by iteration, and returns when something was first said, and what.
func (w *world) run(t testing.TB, p *Packer, n int) (first int, found lockstep.Reason) {
	t.Helper()
	for k := range n {
		i := k % len(w.cfg.Windows)
		if why := w.fill(t, p, i); why != "" && found == "" {
			first, found = k+1, why
		}
		if i == len(w.cfg.Windows)-1 {
			w.now += time.Minute
		}
	}
	return first, found
}

// armed returns a packer that has been calibrated by n samples of w.
func armed(t testing.TB, w *world, n int) *Packer {
	t.Helper()
	p, err := New(w.cfg)
	require.NoError(t, err)
	windows, steps := w.samples(n)
	require.NoError(t, p.Calibrate(windows, steps))
	return p
}

// random returns a job of random size.
func random(r *rand.Rand) Config {
	cfg := Config{Quanta: 1 + r.IntN(4), Resume: time.Duration(r.IntN(10)) * ms, Pause: time.Duration(r.IntN(10)) * ms, Residency: Residency(r.IntN(2))}
	for b := range 1 + r.IntN(2) {
		bundle := Bundle{ID: BundleID(rune('a' + b)), Weight: int64(r.IntN(3)), LowBandwidth: r.IntN(2) == 0, Members: int64(r.IntN(3) * 20)}
		fused, step, memory := 1, 10+r.IntN(20), 1+r.IntN(10)
		for range 1 + r.IntN(4) {
			bundle.Points = append(bundle.Points, fusion.Point{Fused: fused, Step: time.Duration(step) * ms, Memory: lockstep.Bytes(memory)})
			fused, step, memory = fused+1+r.IntN(8), step+r.IntN(30), memory+r.IntN(20)
		}
		cfg.Bundles = append(cfg.Bundles, bundle)
	}
	for stage := range 1 + r.IntN(3) {
		cfg.Devices = append(cfg.Devices, Device{Memory: 100, Peak: lockstep.Bytes(40 + r.IntN(60))})
		at := 0
		for range 1 + r.IntN(3) {
			at += r.IntN(50)
			w := Window{Stage: stage, Start: time.Duration(at) * ms, Kind: pipeline.WindowKind(r.IntN(2))}
			at += 10 + r.IntN(300)
			w.End = time.Duration(at) * ms
			if r.IntN(3) == 0 {
				w.ShareFraction = 0.5
			}
			at += 1000
			cfg.Windows = append(cfg.Windows, w)
		}
	}
	return cfg
}
