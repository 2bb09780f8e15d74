package main

import (
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep/detect"
	"github.com/lockstep-gpu/lockstep/detect/change"
)

// watch is one detector on one job.
type watch interface {
	// observe says whether the iteration raised an alarm.
	observe(s *sample) (bool, error)
	// blames says which places the detector blames after an alarm, likeliest first.
	blames() []int
	// now says the same, with what was seen since.
	now() []int
	// reset forgets everything.
	reset()
}

// sees says what a detector is told.
type sees int

const (
	times  sees = iota // what whole iterations took, and the lengths of their documents
	chunks             // what the chunks took as well
)

// entry is a detector in the tables.
type entry struct {
	name string
	sees sees // what it is told
	ours bool // it is one of this library's defaults, or a rung of them
	rung bool // one of the steps of a ladder: it is compared, not printed
	make func(c *cell, p *params) (watch, error)
}

// scalar is a test of one figure an iteration.
type scalar struct {
	test  change.Test
	ratio bool // of observed over expected; else of the time alone
}

func (w *scalar) observe(s *sample) (bool, error) {
	x := math.Log(float64(s.took))
	expected := math.Log(float64(s.expect.Took))
	if p, ok := w.test.(change.Predictive); ok {
		d, err := p.ObserveExpected(x, expected)
		return d.Alarm, err
	}
	if w.ratio {
		x -= expected
	}
	d, err := w.test.Observe(x)
	return d.Alarm, err
}

func (w *scalar) blames() []int { return nil }
func (w *scalar) now() []int    { return nil }
func (w *scalar) reset()        { w.test.Reset() }

// scalars is a test for each place, on the ratio of its chunk times.
type scalars struct {
	tests  []change.Test
	raised []int
}

func (w *scalars) observe(s *sample) (bool, error) {
	w.raised = w.raised[:0]
	for p, t := range w.tests {
		d, err := t.Observe(math.Log(float64(s.observed[p]) / float64(s.expected[p])))
		if err != nil {
			return false, err
		}
		if d.Alarm {
			w.raised = append(w.raised, p)
		}
	}
	return len(w.raised) > 0, nil
}

func (w *scalars) blames() []int { return w.raised }
func (w *scalars) now() []int    { return w.raised }

func (w *scalars) reset() {
	for _, t := range w.tests {
		t.Reset()
	}
}

// most is how many suspects a test of ours is asked for.
const most = 8

// suspects is what both tests of ours have in common.
type suspects struct {
	stages int
	list   []detect.Suspect
	places []int
	rearm  bool // after each alarm
}

func (w *suspects) blames() []int {
	w.places = w.places[:0]
	for _, s := range w.list {
		w.places = append(w.places, s.Replica*w.stages+s.Stage)
	}
	return w.places
}

type matched struct {
	suspects
	test *detect.MatchedTest
}

func (w *matched) observe(s *sample) (bool, error) {
	d, err := w.test.Observe(s.took, &s.expect)
	if d.Alarm {
		w.list = w.test.AppendSuspects(w.list[:0], most)
		if w.rearm {
			w.test.Rearm()
		}
	}
	return d.Alarm, err
}

func (w *matched) now() []int {
	w.list = w.test.AppendSuspects(w.list[:0], most)
	return w.blames()
}

func (w *matched) reset() { w.test.Reset() }

type chunked struct {
	suspects
	test *detect.ChunkTest
}

func (w *chunked) observe(s *sample) (bool, error) {
	d, err := w.test.Observe(s.observed, s.expected)
	if d.Alarm {
		w.list = w.test.AppendSuspects(w.list[:0], most)
		if w.rearm {
			w.test.Rearm()
		}
	}
	return d.Alarm, err
}

func (w *chunked) now() []int {
	w.list = w.test.AppendSuspects(w.list[:0], most)
	return w.blames()
}

func (w *chunked) reset() { w.test.Reset() }

// ladders are the rates of false alarms, a job, at which ours is compared with the baselines. They
// are fixed beforehand, like the default that the tables show.
var ladders = map[sees][]float64{
	times:  {150, 100, 70, 50, 35, 25, 16, 10, 5, 2, 0.7, 0.2, 0.1, 0.05, 0.02, 0.005, 0.0002},
	chunks: {20, 2, 0.5, 0.1, 0.01, 0.0002},
}

// entries are all detectors, in the order of the tables.
func entries() []entry {
	test := func(name string, ratio bool, cfg change.Config) entry {
		return entry{name: name, make: func(*cell, *params) (watch, error) {
			t, err := change.New(cfg)
			return &scalar{test: t, ratio: ratio}, err
		}}
	}
	list := []entry{
		test("raw-1.1x", false, change.Config{Method: change.Raw}),
		test("raw-1.25x", false, change.Config{Method: change.Raw, Threshold: 1.25}),
		test("raw-ewma", false, change.Config{Method: change.EWMA}),
		test("raw-cusum", false, change.Config{}),
		test("raw-bocd-10%", false, change.Config{Method: change.Greyhound}),
		test("resihp-rule", false, change.Config{Method: change.ResiHP}),
		test("ratio-cusum", true, change.Config{}),
		{name: "chunk-ratio-cusum", sees: chunks, make: func(c *cell, p *params) (watch, error) {
			w := &scalars{}
			for range c.Replicas * p.Stages {
				t, err := change.New(change.Config{})
				if err != nil {
					return nil, err
				}
				w.tests = append(w.tests, t)
			}
			return w, nil
		}},
		ours("ours-iteration", times, 0, false),
		ours("ours-chunks", chunks, 0, false),
	}
	for _, sees := range []sees{times, chunks} {
		for _, rate := range ladders[sees] {
			list = append(list, ours("rung-"+strconv.FormatFloat(rate, 'g', -1, 64), sees, rate, true))
		}
	}
	return list
}

// ours returns a test of ours at so many false alarms a job; 0 means its default.
func ours(name string, sees sees, perJob float64, rung bool) entry {
	return entry{name: name, sees: sees, ours: true, rung: rung, make: func(c *cell, p *params) (watch, error) {
		rate := min(perJob/float64(p.Iterations), 0.5)
		own := suspects{stages: p.Stages, rearm: rung}
		if sees == chunks {
			t, err := detect.NewChunks(detect.ChunkConfig{Replicas: c.Replicas, Stages: p.Stages, FalseAlarms: rate})
			return &chunked{own, t}, err
		}
		t, err := detect.NewMatched(detect.MatchedConfig{Replicas: c.Replicas, Stages: p.Stages, FalseAlarms: rate})
		return &matched{own, t}, err
	}}
}

// find returns the entry of a name.
func find(list []entry, name string) int {
	return slices.IndexFunc(list, func(e entry) bool { return e.name == name })
}
