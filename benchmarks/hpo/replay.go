package main

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/hpo"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/hpo/search"
)

// fifo returns when trials are over that are started in order, each on the first of n devices to be free, and the sum of
// their times over n, which nothing can be below.
func fifo(trials []rayTrial, n int) (makespan, bound float64) {
	free := make([]float64, n)
	for _, t := range trials {
		i := slices.Index(free, slices.Min(free))
		free[i] += t.seconds
		bound += t.seconds / float64(n)
	}
	return slices.Max(free), bound
}

// asHydro returns when all is over if bundles start in the order of Hydro's run and targets by its rule, at the head of
// the queue: after half of the trials, the best; and again when the best has changed.
func asHydro() float64 {
	free := make([]float64, replayDevices)
	ends := make([]float64, len(bundles))
	begin := make([]float64, len(bundles))
	take := func(from, seconds float64) (float64, float64) {
		i := slices.Index(free, slices.Min(free))
		start := max(free[i], from)
		free[i] = start + seconds
		return start, free[i]
	}
	for i, b := range bundles {
		begin[i], ends[i] = take(0, b.seconds)
	}
	var over []float64
	for i, b := range bundles {
		for range b.fused {
			over = append(over, ends[i])
		}
	}
	slices.Sort(over)
	take(over[len(over)/2-1], firstTarget)
	take(begin[secondBundle]+secondSeen, secondTarget)
	return slices.Max(free)
}

// event is something that comes at a time, in seconds.
type event struct {
	at   float64
	what func() error
}

// rerun is a replay by package search on the measured times.
type rerun struct {
	s        *search.Search
	now      float64
	events   []event
	batch    map[hpo.TrialID]int // index in bundles of the bundle that it was measured in
	used     []bool              // bundles that have run
	log      *harness.Table
	busy     float64
	makespan float64
	targets  int
}

// memberOf returns the name of the i-th member of a bundle. The first is its best.
func memberOf(b, i int) hpo.TrialID { return hpo.TrialID(fmt.Sprintf("trial-%d-%d", b, i)) }

func newRerun() (*rerun, error) {
	r := &rerun{batch: map[hpo.TrialID]int{}, used: make([]bool, len(bundles)), log: &harness.Table{Head: []string{"started", "at", "until", "what", "trials", "GPU"}}}
	var profiles []search.Profile
	for _, batch := range []int{128, 256, 512} {
		p := search.Profile{Key: fusion.Key(fmt.Sprint("batch=", batch))}
		var last float64
		for _, size := range []int{8, 9, 10} {
			for _, b := range bundles {
				if b.batch == batch && b.fused <= size {
					last = max(last, b.seconds)
				}
			}
			p.Points = append(p.Points, fusion.Point{Fused: size, Step: time.Duration(last / epochs * 1e9)})
		}
		// A single trial was not measured at this width; what matters here is that ten are the limit.
		p.Points = append(p.Points, fusion.Point{Fused: 1, Step: p.Points[0].Step})
		profiles = append(profiles, p)
	}
	var err error
	r.s, err = search.New(search.Config{
		// Nobody is stopped: the rule judges no trial before its last epoch.
		Rule:          hpo.Config{Median: &hpo.Median{Grace: epochs, Max: epochs, Min: 1000}, Mode: hpo.Maximize},
		Classes:       []search.Class{{Name: "gpu", Profiles: profiles}},
		SlackFraction: 0.001,
		Transfer:      &search.Transfer{Trials: len(rayTrials)},
	})
	if err != nil {
		return nil, err
	}
	for i, b := range bundles {
		for j := range b.fused {
			id := memberOf(i, j)
			r.batch[id] = i
			if err := r.s.Add(id, fusion.Key(fmt.Sprint("batch=", b.batch))); err != nil {
				return nil, err
			}
		}
	}
	for i := range replayDevices {
		if err := r.s.AddSlot(search.SlotID(fmt.Sprint("gpu", i)), "gpu"); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *rerun) play() error {
	for {
		actions, _ := r.s.Next()
		for _, a := range actions {
			if err := r.act(a); err != nil {
				return err
			}
		}
		if len(r.events) == 0 {
			if !r.s.Quiescent() {
				return fmt.Errorf("nothing runs and the search is not over: %+v", r.s.View())
			}
			return nil
		}
		i := 0
		for j := range r.events {
			if r.events[j].at < r.events[i].at {
				i = j
			}
		}
		e := r.events[i]
		r.events = slices.Delete(r.events, i, i+1)
		r.now = e.at
		if err := e.what(); err != nil {
			return err
		}
	}
}

func (r *rerun) act(a search.Action) error {
	switch a.Do {
	case search.Stop:
	case search.Target:
		seconds, ok := map[hpo.TrialID]float64{memberOf(firstBundle, 0): firstTarget, memberOf(secondBundle, 0): secondTarget}[a.Trial]
		if !ok {
			return fmt.Errorf("%s has no measured target", a.Trial)
		}
		r.targets++
		r.note(a.Slot, "target of "+string(a.Trial), 1, seconds)
		r.events = append(r.events, event{r.now + seconds, func() error { return r.s.TargetEnded(a.Trial) }})
	case search.Start:
		return r.bundle(a)
	default:
		return fmt.Errorf("no time was measured for %s", a.Do)
	}
	return nil
}

// bundle runs a bundle of which the time was measured: of its key and size, the slower one first.
func (r *rerun) bundle(a search.Action) error {
	i := slices.IndexFunc(bundles, func(b measured) bool {
		return fusion.Key(fmt.Sprint("batch=", b.batch)) == a.Key && b.fused == len(a.Members) && !r.used[slices.IndexFunc(bundles, func(o measured) bool { return o == b })]
	})
	if i < 0 || a.Begin > 0 {
		return fmt.Errorf("no time was measured for %d trials of %s", len(a.Members), a.Key)
	}
	r.used[i] = true
	seconds := bundles[i].seconds
	r.note(a.Slot, string(a.Key), len(a.Members), seconds)
	report := func(epoch uint64) func() error {
		return func() error {
			values := make([]float64, len(a.Members))
			for j, m := range a.Members {
				values[j] = value(m.Trial, r.batch[m.Trial], epoch)
			}
			_, err := r.s.Report(search.Report{Bundle: a.Bundle, Step: epoch, Values: values})
			return err
		}
	}
	r.events = append(r.events, event{r.now + seconds*secondSeen/bundles[secondBundle].seconds, report(secondEpoch)}, event{r.now + seconds, report(epochs)})
	return nil
}

// value returns a metric: of the first member of a bundle what was measured, of the others less.
func value(id hpo.TrialID, bundle int, epoch uint64) float64 {
	if id != memberOf(bundle, 0) {
		return 0.5
	}
	if bundle == secondBundle && epoch < epochs {
		return secondThen
	}
	if epoch < epochs { // not published; below what it comes to
		return bundles[bundle].best - 0.01
	}
	return bundles[bundle].best
}

func (r *rerun) note(slot search.SlotID, what string, trials int, seconds float64) {
	r.busy += seconds
	r.makespan = max(r.makespan, r.now+seconds)
	r.log.Add(fmt.Sprint(len(r.log.Rows)+1), fmt.Sprintf("%.1f", r.now), fmt.Sprintf("%.1f", r.now+seconds), what, fmt.Sprint(trials), string(slot))
}

// replay prints what became of the 50 trials and what would have under package search.
func (p *program) replay() error {
	p.Input("trials", "50 of ResNet-18 on CIFAR-10, 50 epochs each, 3 batch sizes, 4 GPUs; times as measured by Hydro's authors")
	makespan, bound := fifo(rayTrials, replayDevices)
	hydro := asHydro()
	r, err := newRerun()
	if err != nil {
		return err
	}
	if err := r.play(); err != nil {
		return err
	}
	least := r.busy / replayDevices
	t := &harness.Table{Head: []string{"run", "seconds", "what it is"}}
	add := func(run string, seconds float64, what string) { t.Add(run, fmt.Sprintf("%.1f", seconds), what) }
	add("Ray, reported", reportedRay, "as measured, with what it takes to launch")
	add("Ray, replayed", makespan, "trials at full size in their order, each on the first GPU to be free")
	add("Ray, bound", bound, "sum of their times over 4")
	add("Hydro, reported", reportedHydro, "as measured, with what it takes to launch")
	add("Hydro, replayed", hydro, "6 bundles in their order and 2 targets by its rule, without launches")
	add("ours", r.makespan, "the same 6 bundles and 2 targets as package search starts them, without launches")
	launches := (reportedHydro - hydro) * float64(len(r.log.Rows)) / 8
	add("ours + launches", r.makespan+launches, "with as much for launches as Hydro's run took more than its replay")
	add("ours, bound", least, "sum of the times of the bundles and targets over 4")
	p.Table(t)
	p.Table(r.log)
	p.Note("no trial stops before its last epoch here, so nothing was left to fuse anew or refill: the gain is the order, bundles that take longest first, and targets by last reports")
	p.Note("the metrics that decide on the targets are the final ones, and one of epoch 43 that the log of the run implies; others were not published")
	p.Result("replay/ray/fifo", makespan, "s")
	p.Result("replay/ray/bound", bound, "s")
	p.Result("replay/hydro", hydro, "s")
	p.Result("replay/ours", r.makespan, "s")
	p.Target(harness.Target{Name: "replay/ray/fifo/off", Value: math.Abs(makespan - 3906.2), Unit: "s", Limit: 0.1})
	p.Target(harness.Target{Name: "replay/ray/bound/off", Value: math.Abs(bound - 3841.5), Unit: "s", Limit: 0.1})
	p.Target(harness.Target{Name: "replay/hydro/off", Value: math.Abs(hydro - reportedHydro), Unit: "s", Limit: 0.015 * reportedHydro})
	p.Target(harness.Target{Name: "replay/ours", Value: r.makespan + launches, Unit: "s", Limit: reportedHydro})
	return nil
}
