package main

import (
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep/hpo/bubble"
)

// rival is another way to fill windows, rebuilt from its description. It is asked at every safe point before the window
// ends and says how many trials to fuse in the next quantum, by index in points, or -1 to pause.
type rival struct {
	name   string
	quanta int
	next   func(window int, since time.Duration, done int) int
}

// step returns how long a step of points[i] takes.
func step(i int) time.Duration { return time.Duration(points[i].step) * 100 * time.Microsecond }

// predicted returns the length of a window as predicted.
func predicted(cfg *bubble.Config, w int) time.Duration {
	return cfg.Windows[w].End - cfg.Windows[w].Start
}

// fits says whether points[i] fits beside the main job in a window.
func fits(cfg *bubble.Config, w, i int) bool {
	return cfg.Bundles[0].Points[i].Memory <= cfg.Devices[cfg.Windows[w].Stage].Memory
}

// count returns how many steps of points[i], each longer by a share, fit a window that is shorter by another.
func count(cfg *bubble.Config, w, i int, margin, inflation float64) int {
	room := time.Duration(float64(predicted(cfg, w))*(1-margin)) - cfg.Resume - cfg.Pause
	return int(max(room, 0) / time.Duration(float64(step(i))*inflation))
}

// bestOf returns which of the points in use make the most of a window in whole steps, or -1.
func bestOf(cfg *bubble.Config, w int, use func(i int) bool, margin, inflation float64) (best, steps int) {
	best = -1
	for i := range points {
		if n := count(cfg, w, i, margin, inflation); n > 0 && fits(cfg, w, i) && use(i) && (best < 0 || n*points[i].fused > steps*points[best].fused) {
			best, steps = i, n
		}
	}
	return best, steps
}

func all(int) bool { return true }

// fixed fills what fits, or, for -i, every window, with points[i]; until says when it still starts a step.
func fixed(cfg *bubble.Config, name string, i int, until func(rest, step time.Duration) bool) rival {
	anyway := i < 0
	i = max(i, -i)
	return rival{name, 1, func(w int, since time.Duration, _ int) int {
		if !anyway && !fits(cfg, w, i) || !until(predicted(cfg, w)-since, step(i)) {
			return -1
		}
		return i
	}}
}

// elastic takes the best number of trials for each window and as many steps of it as it has counted in advance.
func elastic(cfg *bubble.Config, name string, margin, inflation float64) rival {
	type plan struct{ point, steps int }
	var plans []plan
	for w := range cfg.Windows {
		i, n := bestOf(cfg, w, all, margin, inflation)
		plans = append(plans, plan{i, n})
	}
	return rival{name, 1, func(w int, _ time.Duration, done int) int {
		if done >= plans[w].steps {
			return -1
		}
		return plans[w].point
	}}
}

// replanned plans anew at every safe point: an integer knapsack, on a grid of a quarter of a millisecond, of quanta
// longer by a share into what is left of a window that is shorter by another.
func replanned(cfg *bubble.Config, name string, quanta int, margin, inflation float64) rival {
	const cell = 250 * time.Microsecond
	first := make([][]int, len(cfg.Devices)) // by stage and cells left
	for stage := range first {
		best := make([]float64, time.Second/cell+1)
		first[stage] = make([]int, len(best))
		for c := range best {
			first[stage][c] = -1
			for i := range points {
				d := int(math.Ceil(float64(step(i)) * inflation / float64(quanta) / float64(cell)))
				if cfg.Bundles[0].Points[i].Memory > cfg.Devices[stage].Memory || d > c {
					continue
				}
				if v := best[c-d] + float64(points[i].fused); v > best[c] {
					best[c], first[stage][c] = v, i
				}
			}
		}
	}
	return rival{name, quanta, func(w int, since time.Duration, _ int) int {
		rest := time.Duration(float64(predicted(cfg, w))*(1-margin)) - since - cfg.Pause
		if rest < 0 {
			return -1
		}
		return first[cfg.Windows[w].Stage][rest/cell]
	}}
}

// inflation returns the ratio that all but a share of 1e-3 of steps stay within.
func inflation(steps []bubble.Sample) float64 {
	ratios := make([]float64, len(steps))
	for i, s := range steps {
		ratios[i] = float64(s.Actual) / float64(s.Predicted)
	}
	slices.Sort(ratios)
	n := len(ratios)
	return ratios[min(int(math.Ceil(float64(n+1)*0.999)), n)-1]
}

// rivals are those of the table with jitter.
func rivals(cfg *bubble.Config, margin, inflation float64) []rival {
	whole := func(rest, step time.Duration) bool { return rest >= step }
	always := func(time.Duration, time.Duration) bool { return true }
	return []rival{
		fixed(cfg, "naive, F=1, until the end is signalled", 0, always),
		fixed(cfg, "naive, F=20, until the end is signalled", 2, always),
		fixed(cfg, "FreeRide-like, F=20, step if the rest is as long", 2, whole),
		fixed(cfg, "the same, as if it fitted every stage", -2, whole),
		elastic(cfg, "elastic F, no margin", 0, 1),
		elastic(cfg, "elastic F, conformal margin, counted in advance", margin, inflation),
		replanned(cfg, "mixed F, margin and inflation, replanned, Q=1", 1, margin, inflation),
		replanned(cfg, "mixed F, margin and inflation, replanned, Q=4", 4, margin, inflation),
	}
}

// outcome is what n windows came to.
type outcome struct {
	steps    float64
	windows  int
	overruns int
	harm     time.Duration
}

func (o *outcome) add(b outcome) {
	o.steps += b.steps
	o.windows += b.windows
	o.overruns += b.overruns
	o.harm += b.harm
}

// play lets a rival fill n windows.
func (w *world) play(r rival, n int) outcome {
	out := outcome{windows: n}
	for k := range n {
		i := k % len(w.cfg.Windows)
		end, at, fused := w.length(i), w.cfg.Resume, 0
		for done := 0; at < end; done++ {
			c := r.next(i, at, done)
			if c < 0 {
				break
			}
			at += w.noisy(step(c)/time.Duration(r.quanta), w.uneven)
			fused += points[c].fused
		}
		out.steps += float64(fused) / float64(r.quanta)
		if over := at + w.cfg.Pause - end; over > 0 && fused > 0 {
			out.overruns++
			out.harm += over
		}
	}
	return out
}
