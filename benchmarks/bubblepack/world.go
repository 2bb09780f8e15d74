package main

import (
	"math/rand/v2"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/bubble"
)

// world is the main job and the steps of the trials as they really go.
type world struct {
	cfg     bubble.Config
	rand    *rand.Rand
	spread  float64       // of windows, standard deviation over length
	uneven  float64       // of quanta, standard deviation over time
	stretch float64       // lengths of windows over those predicted
	now     time.Duration // when the next iteration begins
}

// newWorld returns a world with its own stream of random numbers.
func newWorld(cfg bubble.Config, seed, stream uint64) *world {
	return &world{cfg: cfg, rand: rand.New(rand.NewPCG(seed, stream)), spread: 0.03, uneven: 0.04, stretch: 1}
}

// length returns how long a window really is.
func (w *world) length(i int) time.Duration {
	return w.noisy(time.Duration(float64(w.cfg.Windows[i].End-w.cfg.Windows[i].Start)*w.stretch), w.spread)
}

// noisy returns d with normal noise, and at least a tenth of it.
func (w *world) noisy(d time.Duration, sigma float64) time.Duration {
	if sigma == 0 {
		return d
	}
	return max(time.Duration(float64(d)*(1+sigma*w.rand.NormFloat64())), d/10)
}

// samples returns n samples of windows and n of steps.
func (w *world) samples(n int) (windows, steps []bubble.Sample) {
	for i := range n {
		at := i % len(w.cfg.Windows)
		windows = append(windows, bubble.Sample{Predicted: w.cfg.Windows[at].End - w.cfg.Windows[at].Start, Actual: w.length(at)})
		const step = 100 * time.Millisecond
		steps = append(steps, bubble.Sample{Predicted: step, Actual: w.noisy(step, w.uneven)})
	}
	return windows, steps
}

// fill lets p fill window i of the iteration that is under way, and returns what p found.
func (w *world) fill(p *bubble.Packer, i int) (lockstep.Reason, error) {
	win := &w.cfg.Windows[i]
	start := w.now + win.Start
	end := start + w.length(i)
	f, err := p.Begin(start, i)
	if err != nil {
		return "", err
	}
	o := bubble.Observation{Window: i, Start: start, End: end}
	if f.Feasible {
		at := start + w.cfg.Resume
		for at < end { // past it the main job has asked for its device
			q, stop, err := p.MayStartQuantum(at, win.Stage)
			if err != nil {
				return "", err
			}
			if stop != "" {
				break
			}
			at += w.noisy(q.Expected, w.uneven)
		}
		o.Overrun = max(at+w.cfg.Pause-end, 0)
	}
	if i == len(w.cfg.Windows)-1 {
		w.now += period
	}
	return p.Observe(o)
}

// run fills n windows, one after the other, and returns how many there were when p first found something.
func (w *world) run(p *bubble.Packer, n int) (first int, found lockstep.Reason, err error) {
	for k := range n {
		why, err := w.fill(p, k%len(w.cfg.Windows))
		if err != nil {
			return 0, "", err
		}
		if why != "" && found == "" {
			first, found = k+1, why
		}
	}
	return first, found, nil
}

// iterate fills the windows of one iteration, and returns what p found last.
func (w *world) iterate(p *bubble.Packer) (found lockstep.Reason, err error) {
	for i := range w.cfg.Windows {
		why, err := w.fill(p, i)
		if err != nil {
			return "", err
		}
		if why != "" {
			found = why
		}
	}
	return found, nil
}
