package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/bubble"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// job is the main job with its trials.
type job struct {
	*plan
	base   time.Time
	stages []*stage

	mu       sync.Mutex // for what follows: stages share it
	packer   *bubble.Packer
	starts   []time.Duration // of iterations
	rounds   int             // iterations that were filled
	stopped  map[lockstep.Reason]int
	reload   bool     // the packer has planned anew, and wants other trials loaded
	state    []string // by stage, what it does
	children []*trial
}

// stage is one stage of the job. Its own goroutine uses it, and others between iterations.
type stage struct {
	*job
	number  int
	rand    *rand.Rand
	trials  map[choice]*trial // nil while the job runs alone
	samples []bubble.Sample
	bars    []bar
}

// choice is what the packer chooses.
type choice struct {
	bundle bubble.BundleID
	fused  int64
}

// bar is something that a stage did, for the picture.
type bar struct {
	start, end time.Duration
	what       barKind
	trial      string
}

type barKind int

const (
	barForward barKind = iota
	barBackward
	barBubble
	barTrial
	barOverrun
)

// mark is a moment that others wait for.
type mark struct {
	reached chan struct{}
	at      time.Duration // read after reached
}

func newMark() *mark { return &mark{reached: make(chan struct{})} }

func (m *mark) reach(at time.Duration) {
	m.at = at
	close(m.reached)
}

func newJob(p *plan) (*job, error) {
	packer, err := bubble.New(p.cfg)
	if err != nil {
		return nil, err
	}
	j := &job{plan: p, base: time.Now(), packer: packer, stopped: make(map[lockstep.Reason]int), state: make([]string, p.options.stages)}
	for i := range p.options.stages {
		j.stages = append(j.stages, &stage{job: j, number: i, rand: rand.New(rand.NewPCG(p.seed, uint64(i)))})
	}
	return j, nil
}

func (j *job) now() time.Duration { return time.Since(j.base) }

// run runs the job, alone and then with trials. When it returns, no trial is left.
func (j *job) run(ctx context.Context, s *screen) (err error) {
	n, err := newNursery(j.signals)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	told := make(chan struct{})
	go func() {
		defer close(told)
		s.run(inner)
	}()
	defer func() {
		cancel()
		<-told
		err = errors.Join(err, n.close())
	}()
	if err := j.learn(inner, n); err != nil {
		return err
	}
	if err := j.load(inner, n); err != nil {
		return err
	}
	for end := j.now() + j.options.length; j.now() < end; {
		if err := j.iterate(inner); err != nil {
			return err
		}
		j.mu.Lock()
		j.rounds++
		again := j.reload
		j.reload = false
		j.mu.Unlock()
		if !again {
			continue
		}
		if err := j.load(inner, n); err != nil {
			return err
		}
	}
	return nil
}

// learn runs the job alone and a trial beside it, and tells the packer how far off both are.
func (j *job) learn(ctx context.Context, n *nursery) error {
	expected := j.cfg.Bundles[0].Points[1].Step / quanta
	probe, err := n.start(ctx, len(j.stages), bubble.Resident{Bundle: "probe", Fused: 1}, expected)
	if err != nil {
		return err
	}
	inner, cancel := context.WithCancel(ctx)
	var steps []bubble.Sample
	var failed error
	var wg sync.WaitGroup
	wg.Go(func() { steps, failed = timed(inner, probe, expected) })
	need := int(2 / miss)
	for i := 0; err == nil && (i < j.warm || j.sampled() < need); i++ {
		err = j.iterate(ctx)
	}
	cancel()
	wg.Wait()
	if err = errors.Join(err, failed, ctx.Err()); err != nil {
		return err
	}
	var windows []bubble.Sample
	for _, s := range j.stages {
		windows = append(windows, s.samples...)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.packer.Calibrate(windows, steps)
}

func (j *job) sampled() int {
	n := 0
	for _, s := range j.stages {
		n += len(s.samples)
	}
	return n
}

// timed has a trial make quanta until ctx ends, and at least as many as are needed, with its clock and with the way there and back.
func timed(ctx context.Context, t *trial, expected time.Duration) ([]bubble.Sample, error) {
	var out []bubble.Sample
	for ctx.Err() == nil || len(out) < int(2/miss) {
		start := time.Now()
		if err := t.quantum(context.WithoutCancel(ctx), expected, nil); err != nil {
			return nil, err
		}
		out = append(out, bubble.Sample{Predicted: expected, Actual: time.Since(start)})
		time.Sleep(expected) // it does not run all the time in a bubble either
	}
	return out, t.stop(context.WithoutCancel(ctx))
}

// load starts what the packer wants loaded and is not, and ends what it no longer wants. The job waits for it.
func (j *job) load(ctx context.Context, n *nursery) error {
	for _, s := range j.stages {
		old := s.trials
		s.trials = make(map[choice]*trial)
		wanted := j.packer.Residents(s.number)
		for _, r := range wanted {
			if t := old[choice{r.Bundle, r.Fused}]; t != nil {
				s.trials[choice{r.Bundle, r.Fused}] = t
				delete(old, choice{r.Bundle, r.Fused})
			}
		}
		for _, t := range old { // order does not matter
			t.quit()
			<-t.ended
		}
		for _, r := range wanted {
			if s.trials[choice{r.Bundle, r.Fused}] != nil {
				continue
			}
			t, err := n.start(ctx, s.number, r, j.quantum(r))
			if err != nil {
				return err
			}
			s.trials[choice{r.Bundle, r.Fused}] = t
			j.mu.Lock()
			j.children = append(j.children, t)
			j.mu.Unlock()
		}
	}
	return nil
}

// quantum returns how long a quantum of what is loaded takes.
func (j *job) quantum(r bubble.Resident) time.Duration {
	for _, b := range j.cfg.Bundles {
		for _, p := range b.Points {
			if b.ID == r.Bundle && int64(p.Fused) == r.Fused {
				return p.Step / quanta
			}
		}
	}
	return 0
}

// iterate runs one iteration.
func (j *job) iterate(ctx context.Context) error {
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make([][]*mark, len(j.stages))
	for i := range done {
		for range j.line.Order(i) {
			done[i] = append(done[i], newMark())
		}
	}
	j.mu.Lock()
	j.starts = append(j.starts, j.now())
	j.mu.Unlock()
	finished := newMark()
	errs := make([]error, len(j.stages))
	var ops, all sync.WaitGroup
	for i, s := range j.stages {
		ops.Add(1)
		all.Go(func() {
			err := s.ops(inner, done)
			ops.Done()
			if w := j.ends[i][len(done[i])]; err == nil && w >= 0 {
				err = s.window(inner, w, finished)
			}
			if err != nil && inner.Err() == nil {
				errs[i] = err // and not that of those who are ended by it
				cancel()
			}
		})
	}
	all.Go(func() {
		ops.Wait()
		finished.reach(j.now())
	})
	all.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	return errors.Join(errs...)
}

// ops runs the ops of an iteration, and trials in the windows before them.
func (s *stage) ops(ctx context.Context, done [][]*mark) error {
	for i, op := range s.line.Order(s.number) {
		from, at, waits := s.before(s.number, op)
		if waits {
			w := s.ends[s.number][i]
			if err := s.wait(ctx, w, done[from][at]); err != nil {
				return err
			}
		}
		kind, cost := barForward, s.forward
		if op.Kind == pipeline.Backward {
			kind, cost = barBackward, s.backward
		}
		s.say(op.String())
		start := s.now()
		if err := sleep(ctx, time.Duration(float64(cost)*max(1+s.jitter*s.rand.NormFloat64(), 0.5))); err != nil {
			return err
		}
		s.bars = append(s.bars, bar{start: start, end: s.now(), what: kind})
		done[s.number][i].reach(s.now())
	}
	return nil
}

// wait waits for a mark, in window w or, if that is -1, in none that was predicted.
func (s *stage) wait(ctx context.Context, w int, until *mark) error {
	if w >= 0 {
		return s.window(ctx, w, until)
	}
	select {
	case <-until.reached:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// say tells the table what the stage does.
func (s *stage) say(what string) {
	s.mu.Lock()
	s.state[s.number] = what
	s.mu.Unlock()
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
