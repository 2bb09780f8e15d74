package pollux

import (
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep/perfmodel/goodput"
)

// Slot is the GPUs that a job has on one node.
type Slot struct {
	Node int // Node is which, from 0.
	GPUs int // GPUs is how many of it, at least 1.
}

// Active is a job that is there, as a Policy sees it. What it returns is the policy's to read only.
type Active struct {
	Job   Job    // Job is what was submitted.
	Index int    // Index is its line in the workload, from 0: the authors' order of jobs, and their last tie-break.
	Held  []Slot // Held is where it runs; nil means that it waits.

	w       *world
	profile *Profile

	now       int64 // seconds
	end       int64 // -1 while it is not done
	stall     int64 // seconds of a restart that are left
	restarts  int   // -1 before the first start
	epoch     int
	progress  float64
	local     int64 // samples of one GPU in a pass
	passes    int64 // of a step, but for the last
	service   int64 // GPU-seconds, stalls included
	fixed     int64 // the batch, 0 for the best one
	norm, dev float64

	seen    []goodput.Sample
	key     map[goodput.Shape]bool
	most    int // GPUs that it ran on
	fit     goodput.Params
	fitted  int  // samples that fit is of
	fresh   bool // a layout was measured that fit does not know
	model   *goodput.Model
	modelOf [2]float64 // the noise that model is of
}

// Restarts returns how often a was moved or started again after its first start.
func (a *Active) Restarts() int { return max(a.restarts, 0) }

// Service returns the GPU time it held, in GPU-seconds.
func (a *Active) Service() int64 { return a.service }

// widest returns the most GPUs that a can use with a batch.
func (a *Active) widest(batch int64) int {
	if a.profile.single {
		return 1
	}
	return int(max(batch/a.profile.minLocal, 1))
}

func count(slots []Slot) (gpus int) {
	for _, s := range slots {
		gpus += s.GPUs
	}
	return gpus
}

// split sets how a batch is shared out: over the GPUs, and over passes where one GPU cannot take its part
// at once.
func split(p *Profile, batch, gpus int64, twice bool) (local, passes int64) {
	part := ceil(batch, gpus)
	passes = ceil(part, p.maxLocal) - 1
	if gpus == 1 && twice {
		passes = max(passes, 1)
	}
	return ceil(part, passes+1), passes
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// rescale sets the batch for where a runs.
func (a *Active) rescale() {
	gpus := int64(count(a.Held))
	if gpus == 0 {
		return
	}
	p, batch := a.profile, a.fixed
	if batch == 0 && len(a.seen) == 0 {
		batch = max(p.initial(), p.minLocal*gpus)
	}
	if batch > 0 {
		a.local, a.passes = split(p, batch, gpus, batch > p.initial())
	} else if m := a.Model(); m != nil {
		if c, ok := m.Best(len(a.Held), int(gpus)); ok {
			a.local, a.passes = c.Shape.Batch, c.Shape.Accumulate
		}
	}
	a.local = min(a.local, p.largest()/(gpus*(a.passes+1)))
}

// move places a elsewhere, which stalls it, or nowhere.
func (a *Active) move(slots []Slot, restart int64) {
	a.Held = slices.Clone(slots)
	if len(slots) == 0 {
		a.Held, a.local = nil, 0
		return
	}
	a.rescale()
	a.stall = restart
	a.restarts++
}

// run lets that many seconds pass for a.
func (a *Active) run(seconds int64, slowdown float64) error {
	if len(a.Held) == 0 {
		a.now += seconds
		return nil
	}
	gpus := int64(count(a.Held))
	stall := min(a.stall, seconds)
	a.now, a.stall, seconds = a.now+stall, a.stall-stall, seconds-stall
	a.service += stall * gpus
	for seconds > 0 && a.end < 0 {
		rate, err := a.rate(gpus, slowdown)
		if err != nil {
			return err
		}
		goal := a.profile.progressAt(a.epoch + 1)
		used := seconds
		if next := a.progress + float64(rate*float64(seconds)); next < goal {
			a.progress = next
		} else {
			used = int64(math.RoundToEven((goal - a.progress) / rate))
			a.progress = goal
			a.epoch++
			if a.epoch == a.profile.epochs {
				a.end = a.now + used
			}
		}
		a.now, a.service, seconds = a.now+used, a.service+used*gpus, seconds-used
		a.rescale()
	}
	a.now += seconds
	return nil
}

// rate returns the progress a second, and learns from it.
func (a *Active) rate(gpus int64, slowdown float64) (float64, error) {
	t, err := a.w.timing(a.profile, a.Held, a.local)
	if err != nil {
		return 0, err
	}
	batch := gpus * a.local * (a.passes + 1)
	norm, variance, ok := a.profile.noise(batch, a.epoch)
	if !ok {
		return 0, a.w.outside(a.profile, "batch", batch)
	}
	scale := float64(batch) / float64(a.profile.initial())
	gain := (variance + norm) / (variance/scale + norm)
	a.norm, a.dev = norm, variance
	if a.fixed == 0 {
		a.learn(t, int(gpus))
	}
	total := t.step + float64((t.step-t.sync)*float64(a.passes))
	return gain / total * (1 - slowdown), nil
}

// refit is the part of its samples by which what a job has seen must grow before its model is fitted anew, unless
// it has seen a new layout. The authors fit after each new sample, and this is what most of a run's time goes to.
const refit = 1

// learn notes a measurement, unless there is one of the same shape.
func (a *Active) learn(t timing, gpus int) {
	a.most = max(a.most, gpus)
	shape := goodput.Shape{Nodes: len(a.Held), GPUs: gpus, Batch: a.local}
	if a.key[shape] {
		return
	}
	if a.key == nil {
		a.key = map[goodput.Shape]bool{}
	}
	a.key[shape] = true
	layout := goodput.Shape{Nodes: shape.Nodes, GPUs: shape.GPUs}
	a.fresh = a.fresh || !a.key[layout]
	a.key[layout] = true
	a.seen = append(a.seen, goodput.Sample{Shape: shape, Step: seconds(t.step), Compute: seconds(t.step - t.sync)})
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * 1e9)) }

// Model returns what a has learned of itself so far; nil before it ran.
func (a *Active) Model() *goodput.Model {
	if len(a.seen) == 0 {
		return nil
	}
	noise := [2]float64{a.norm, a.dev}
	if a.model != nil && !a.fresh && a.modelOf == noise {
		return a.model
	}
	if a.fresh || len(a.seen) > a.fitted+a.fitted/refit {
		fit, err := goodput.FitParams(a.seen)
		if err != nil {
			return a.model
		}
		a.fit, a.fitted, a.fresh = fit.Params, len(a.seen), false
	}
	p := a.profile
	m, err := goodput.New(goodput.Config{
		Params: a.fit, Noise: goodput.Noise{Norm: a.norm, Variance: a.dev}, Initial: p.initial(),
		Limits: goodput.Limits{MaxSamples: p.largest(), MinBatch: p.minLocal, MaxBatch: p.maxLocal, Accumulate: true},
	})
	if err == nil {
		a.model, a.modelOf = m, noise
	}
	return a.model
}
