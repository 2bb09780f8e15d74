package main

import (
	"slices"
	"sync"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

// tally is how one detector did in one cell.
type tally struct {
	False  int       // alarms without a fault
	True   int       // alarms while one was on, or shortly after
	Found  int       // jobs whose fault was found in time
	Top    int       // of them, those in which the right place was blamed first
	Later  int       // of them, those in which it is blamed first some iterations later
	Side   int       // of them, those in which its replica is
	Large  int       // jobs found of those whose fault shows in the whole iteration
	Second int       // jobs whose second fault was found in time
	Delays []float64 // iterations to the alarm, where found
	Nanos  float64   // of all samples
}

// score is a cell with its outcome.
type score struct {
	cell
	Jobs, Faulty int
	Large        int     // faulty jobs whose fault shows in the whole iteration
	Effect       float64 // mean effect of the faults on the iteration
	Unseen       int     // faulty jobs of which no factor would have been found, in a cell about the limit
	Mean         float64 // mean factor
	Tallies      []tally // by entry
}

// large is the effect on the whole iteration from which a fault counts as one that shows.
const large = 1.04

// settled is how many iterations after an alarm the suspects are looked at again.
const settled = 10

// outcome is one job.
type outcome struct {
	fault
	faulty, unseen bool
	tallies        []tally
}

// worker runs jobs one after the other.
type worker struct {
	params
	gen     *generator
	list    []entry
	watches []watch // of the cell
}

// measure runs the jobs of a cell on some cores; the outcome does not depend on how many.
func measure(p params, list []entry, c cell, jobs int, seed uint64, cores int) (*score, error) {
	results := make([]outcome, jobs)
	errs := make([]error, cores)
	var wg sync.WaitGroup
	for core := range cores {
		wg.Go(func() {
			w := &worker{params: p, list: list}
			if errs[core] = w.ready(&c); errs[core] != nil {
				return
			}
			for i := core; i < jobs; i += cores {
				if results[i], errs[core] = w.job(&c, seed, uint64(i), i%2 == 0); errs[core] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return sum(c, list, results), nil
}

func (w *worker) ready(c *cell) (err error) {
	if w.gen, err = newGenerator(w.params); err != nil {
		return err
	}
	for _, e := range w.list {
		d, err := e.make(c, &w.params)
		if err != nil {
			return err
		}
		w.watches = append(w.watches, d)
	}
	return nil
}

// job makes a job and shows it to every detector.
func (w *worker) job(c *cell, seed, number uint64, faulty bool) (outcome, error) {
	o := outcome{faulty: faulty, tallies: make([]tally, len(w.list))}
	var decide func(*fault, []sample) error
	if faulty && (c.Kind == limit || c.Kind == chunkLimit) {
		decide = func(f *fault, before []sample) error {
			var err error
			f.Factor, err = w.detectable(c, f.Place, before)
			o.unseen = f.Factor == 1
			return err
		}
	}
	var err error
	if o.fault, err = w.gen.job(c, seed, number, faulty, decide); err != nil {
		return o, err
	}
	clock := harness.NewClock()
	for i, d := range w.watches {
		d.reset()
		start := clock.Nanos()
		if err := w.show(c, &o.fault, d, &o.tallies[i]); err != nil {
			return o, err
		}
		o.tallies[i].Nanos = float64(clock.Nanos()-start) / float64(len(w.gen.samples))
	}
	return o, nil
}

// detectable returns the factor that the test says it can find in a place after what it has seen,
// or 1 where there is none.
func (w *worker) detectable(c *cell, place int, before []sample) (float64, error) {
	name := "ours-iteration"
	if c.Kind == chunkLimit {
		name = "ours-chunks"
	}
	d := w.watches[find(w.list, name)]
	d.reset()
	for i := range before {
		if _, err := d.observe(&before[i]); err != nil {
			return 0, err
		}
	}
	var test interface {
		Detectable(replica, stage int) (float64, bool)
	}
	switch d := d.(type) {
	case *matched:
		test = d.test
	case *chunked:
		test = d.test
	}
	if factor, ok := test.Detectable(place/w.Stages, place%w.Stages); ok {
		return factor, nil
	}
	return 1, nil
}

// show shows a job to a detector and judges its alarms.
func (w *worker) show(c *cell, f *fault, d watch, t *tally) error {
	found, second, look := false, false, -1
	for i := range w.gen.samples {
		alarm, err := d.observe(&w.gen.samples[i])
		if err != nil {
			return err
		}
		if i == look {
			if blamed := d.now(); len(blamed) > 0 {
				t.Later += count(blamed[0] == f.Place)
				t.Side += count(blamed[0]/w.Stages == f.Place/w.Stages)
			}
		}
		if !alarm {
			continue
		}
		if i < f.Onset || w.gen.over(c, f, i) {
			t.False++
			continue
		}
		t.True++
		blamed := d.blames()
		if !found && i < f.Onset+w.Window {
			found = true
			look = min(i+settled, len(w.gen.samples)-1)
			t.Found++
			t.Delays = append(t.Delays, float64(i-f.Onset))
			t.Top += count(len(blamed) > 0 && blamed[0] == f.Place)
			t.Large += count(f.Effect >= large)
		}
		if k := i - f.Onset - apart; c.Kind == double && !second && k >= 0 && k < w.Window && slices.Contains(blamed, f.Second) {
			second = true
			t.Second++
		}
	}
	return nil
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// sum adds jobs up.
func sum(c cell, list []entry, results []outcome) *score {
	s := &score{cell: c, Jobs: len(results), Tallies: make([]tally, len(list))}
	for _, o := range results {
		if o.unseen {
			s.Unseen++
			s.Faulty++
		} else if o.faulty {
			s.Faulty++
			s.Effect += o.Effect
			s.Mean += o.Factor
			if o.Effect >= large {
				s.Large++
			}
		}
		for i, t := range o.tallies {
			a := &s.Tallies[i]
			a.False += t.False
			a.Nanos += t.Nanos / float64(len(results))
			if o.unseen { // there was nothing to find
				a.False += t.True
				continue
			}
			a.True += t.True
			a.Found += t.Found
			a.Top += t.Top
			a.Later += t.Later
			a.Side += t.Side
			a.Large += t.Large
			a.Second += t.Second
			a.Delays = append(a.Delays, t.Delays...)
		}
	}
	n := float64(max(s.Faulty-s.Unseen, 1))
	s.Effect /= n
	s.Mean /= n
	return s
}

func share(part, of int) float64 {
	if of == 0 {
		return 0
	}
	return float64(part) / float64(of)
}

func (s *score) falseAlarms(i int) float64 { return share(s.Tallies[i].False, s.Jobs) }
func (s *score) recall(i int) float64      { return share(s.Tallies[i].Found, s.Faulty-s.Unseen) }
func (s *score) precision(i int) float64 {
	return share(s.Tallies[i].True, s.Tallies[i].True+s.Tallies[i].False)
}
func (s *score) delay(i int) float64 { return harness.Median(s.Tallies[i].Delays) }
func (s *score) top(i int) float64   { return share(s.Tallies[i].Top, s.Tallies[i].Found) }
func (s *score) side(i int) float64  { return share(s.Tallies[i].Side, s.Tallies[i].Found) }
func (s *score) later(i int) float64 { return share(s.Tallies[i].Later, s.Tallies[i].Found) }
