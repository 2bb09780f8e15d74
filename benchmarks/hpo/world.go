package main

import (
	"fmt"
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep/hpo"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/hpo/search"
)

// share is the throughput of a bubble slot over that of an exclusive device, as published for bundles of 16.
const share = 0.15

// launch is how long it takes to start a bundle on an exclusive device.
const launch = time.Second

// exclusive is the time of an epoch and the memory in MiB of bundles on a device of 24 GiB, as published with Hydro for
// a ResNet-18 at an eighth of its width with a batch of 256. That of 16 is on the line between 10 and 20.
func exclusive() []fusion.Point {
	return []fusion.Point{
		{Fused: 1, Step: 5594 * time.Millisecond, Memory: 1581},
		{Fused: 10, Step: 9398 * time.Millisecond, Memory: 2513},
		{Fused: 16, Step: 12909 * time.Millisecond, Memory: 3114},
	}
}

// slowed returns points with steps so much longer.
func slowed(points []fusion.Point, times float64) []fusion.Point {
	for i := range points {
		points[i].Step = time.Duration(math.Round(float64(points[i].Step) * times))
	}
	return points
}

// job is a bundle that runs.
type job struct {
	search.Action
	bubble bool
	from   uint64
	begun  time.Duration // of the step after from
	ends   time.Duration // of the step Until
}

// world is the devices that a search runs on.
type world struct {
	s        *search.Search
	now      time.Duration
	jobs     []*job                  // in the order of starting
	profiles map[bool]fusion.Profile // by whether it is a bubble
	bubble   map[search.SlotID]bool
	value    func(id hpo.TrialID, step uint64) float64
	steps    uint64 // trial-steps made
	starts   int
	moves    int
	fused    int    // members started, summed up
	strong   [2]int // steps of promoted trials, begun on the device and in bubbles
}

func newWorld(rule hpo.Config, trials, bubbles int, disableMoves bool, value func(hpo.TrialID, uint64) float64) (*world, error) {
	w := &world{profiles: map[bool]fusion.Profile{}, bubble: map[search.SlotID]bool{}, value: value}
	cfg := search.Config{Rule: rule, DisableMoves: disableMoves, Classes: []search.Class{
		{Name: "exclusive", Profiles: []search.Profile{{Points: exclusive()}}},
		{Name: "bubble", Kind: search.Bubble, Profiles: []search.Profile{{Points: slowed(exclusive(), 1/share)}}},
	}, SlackFraction: 0.001}
	for i, c := range cfg.Classes {
		p, err := fusion.NewProfile(c.Profiles[0].Points)
		if err != nil {
			return nil, err
		}
		w.profiles[i == 1] = p
	}
	var err error
	if w.s, err = search.New(cfg); err != nil {
		return nil, err
	}
	for i := range trials {
		if err := w.s.Add(hpo.TrialID(fmt.Sprintf("trial-%06d", i)), "batch=256"); err != nil {
			return nil, err
		}
	}
	for i := range 1 + bubbles {
		id, class := search.SlotID(fmt.Sprintf("slot-%02d", i)), search.ClassName("exclusive")
		if i > 0 {
			class, w.bubble[id] = "bubble", true
		}
		if err := w.s.AddSlot(id, class); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// step returns how long a step of j takes where it is.
func (w *world) step(j *job) time.Duration {
	p, _ := w.profiles[j.bubble].At(len(j.Members))
	return p.Step
}

// play runs the search to its end and returns when that is.
func (w *world) play() (time.Duration, error) {
	for {
		actions, _ := w.s.Next()
		for _, a := range actions {
			w.act(a)
		}
		if len(w.jobs) == 0 {
			if !w.s.Quiescent() {
				return 0, fmt.Errorf("nothing runs and the search is not over: %+v", w.s.View())
			}
			return w.now, nil
		}
		first := w.jobs[0]
		for _, j := range w.jobs {
			if j.ends < first.ends {
				first = j
			}
		}
		w.now = first.ends
		w.steps += (first.Until - first.from) * uint64(len(first.Members))
		r := search.Report{Bundle: first.Bundle, Step: first.Until}
		for _, m := range first.Members {
			r.Values = append(r.Values, w.value(m.Trial, first.Until))
		}
		decisions, err := w.s.Report(r)
		if err != nil {
			return 0, err
		}
		if err := w.goOn(first, decisions); err != nil {
			return 0, err
		}
	}
}

// goOn lets a bundle all of whose members go on run to the next rung.
func (w *world) goOn(j *job, decisions []hpo.Decision) error {
	for _, d := range decisions[:len(j.Members)] {
		if d.Action != hpo.Continue {
			return nil // Next will stop it
		}
	}
	until, ok := w.s.Until(j.Bundle)
	if !ok || until <= j.Until {
		return fmt.Errorf("bundle %s goes on from %d to nowhere", j.Bundle, j.Until)
	}
	j.from, j.Until, j.begun = j.Until, until, w.now
	j.ends = w.now + time.Duration(j.Until-j.from)*w.step(j)
	return nil
}

func (w *world) act(a search.Action) {
	switch a.Do {
	case search.Start:
		j := &job{Action: a, bubble: w.bubble[a.Slot], from: a.Begin}
		j.begun = w.now + launch
		if j.bubble {
			j.begun = w.now + time.Duration(math.Round(launch.Seconds()/share*1e9))
		}
		j.ends = j.begun + time.Duration(a.Until-a.Begin)*w.step(j)
		w.jobs = append(w.jobs, j)
		w.starts++
		w.fused += len(a.Members)
		if a.Begin > 0 {
			w.strong[b2i(j.bubble)] += len(a.Members) * int(a.Until-a.Begin)
		}
	case search.Stop:
		for i, j := range w.jobs {
			if j.Bundle == a.Bundle {
				w.jobs = append(w.jobs[:i], w.jobs[i+1:]...)
				return
			}
		}
	case search.Move:
		w.moves++
		for _, j := range w.jobs {
			if j.Bundle != a.Bundle {
				continue
			}
			// The steps that are complete stay; the one that is not is made again.
			if done := max(0, w.now-j.begun) / w.step(j); done > 0 {
				w.steps += uint64(done) * uint64(len(j.Members))
				j.from += uint64(done)
			}
			j.Slot, j.bubble = a.Slot, false
			j.begun = w.now + launch
			j.ends = j.begun + time.Duration(j.Until-j.from)*w.step(j)
		}
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// metrics returns losses that fall with the steps, to what differs by trial, with noise: all of it drawn from the seed.
func metrics(seed uint64) func(hpo.TrialID, uint64) float64 {
	return func(id hpo.TrialID, step uint64) float64 {
		h := seed ^ 0x9e3779b97f4a7c15
		for _, c := range []byte(id) {
			h = mix(h ^ uint64(c))
		}
		floor, speed, noise := unit(h), 0.2+unit(mix(h+1)), unit(mix(h+2+step))
		return floor + 2*math.Exp(-speed*math.Sqrt(float64(step))) + 0.05*noise
	}
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }
