package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lockstep-gpu/lockstep/detect"
	"github.com/lockstep-gpu/lockstep/detect/signal"
)

// point is one iteration of the picture.
type point struct {
	number uint64
	ratio  float64
	alarm  bool
	slow   bool
}

// watcher gives a log to the detector and tells what it says.
type watcher struct {
	out     io.Writer
	all     bool // print every iteration
	monitor *detect.Monitor
	signals *signal.Watch
	last    detect.Verdict
	finds   signal.Findings
	points  []point
	alarms  int
	spikes  int
}

func newWatcher(out io.Writer, all bool) (*watcher, error) {
	signals, err := signal.New(signal.Config{})
	return &watcher{out: out, all: all, signals: signals}, err
}

// read watches a whole log.
func (w *watcher) read(r io.Reader) error {
	l := newLog(r)
	for {
		j, rec, err := l.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case j != nil:
			err = w.begin(j)
		default:
			err = w.observe(rec)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", l.line, err)
		}
	}
}

// begin makes the detector for a job.
func (w *watcher) begin(j *job) error {
	if w.monitor != nil {
		return errors.New("a second description of the job, or one after its first iteration")
	}
	cfg, err := j.config()
	if err != nil {
		return err
	}
	w.monitor, err = detect.New(cfg)
	return err
}

// observe takes an iteration.
func (w *watcher) observe(r *record) error {
	if w.monitor == nil {
		m, err := detect.New(detect.Config{})
		if err != nil {
			return err
		}
		w.monitor = m
	}
	it, err := r.iteration()
	if err != nil {
		return err
	}
	v, err := w.monitor.Observe(it)
	if err != nil {
		return err
	}
	finds, err := w.signals.Observe(r.reading())
	if err != nil {
		return err
	}
	w.tell(&v)
	w.tellSignals(v.Number, finds)
	if v.Ratio > 0 {
		w.points = append(w.points, point{number: v.Number, ratio: v.Ratio, alarm: v.Alarm, slow: v.State == detect.Slow})
	}
	v.Suspects, v.Probes = nil, nil // shared until the next call
	w.last, w.finds = v, finds
	return nil
}

// tell prints what changed.
func (w *watcher) tell(v *detect.Verdict) {
	before := w.last.State
	switch {
	case v.Alarm:
		w.alarms++
		fmt.Fprintf(w.out, "%6d  ALARM %s, since iteration %d: %s\n", v.Number, v.Cause, v.Onset, v.Reason)
		w.tellSuspects(v)
	case v.Cause == detect.Resize && w.last.Cause != detect.Resize:
		fmt.Fprintf(w.out, "%6d  the layout changed: learning anew\n", v.Number)
	case v.Cause == detect.Pause:
		w.spikes++
		if w.all {
			fmt.Fprintf(w.out, "%6d  one slow iteration, %.2f times what it should take: a pause, no alarm\n", v.Number, v.Ratio)
		}
	case before == detect.Slow && v.State != detect.Slow:
		fmt.Fprintf(w.out, "%6d  the slowdown is over\n", v.Number)
	case before == detect.Learning && v.State != detect.Learning:
		fmt.Fprintf(w.out, "%6d  learned: from now on slowdowns of %s are found\n", v.Number, detectable(v))
	case w.all:
		fmt.Fprintf(w.out, "%6d  %s, ratio %.3f, score %.2f\n", v.Number, v.State, v.Ratio, v.Score)
	}
}

// tellSuspects prints where the slowdown may be, or what would tell.
func (w *watcher) tellSuspects(v *detect.Verdict) {
	for _, s := range v.Suspects {
		fmt.Fprintf(w.out, "        replica %s stage %s: %.2f times what it should take (score %.2f)\n",
			index(s.Replica), index(s.Stage), s.Factor, s.Score)
	}
	if len(v.Suspects) > 0 {
		return
	}
	for _, p := range v.Probes {
		fmt.Fprintf(w.out, "        to find out where: %s, replica %s, stage %s\n", p.Kind, index(p.Replica), index(p.Stage))
	}
}

// tellSignals prints signals that changed.
func (w *watcher) tellSignals(number uint64, now signal.Findings) {
	for _, s := range []struct {
		name        string
		before, now signal.Level
	}{
		{"tokens a second", w.finds.Throughput, now.Throughput},
		{"gap between the slowest steps and the median", w.finds.StepGap, now.StepGap},
		{"loss", w.finds.Loss, now.Loss},
		{"gradient norm", w.finds.GradNorm, now.GradNorm},
	} {
		if s.now == signal.Abnormal && s.before != signal.Abnormal {
			fmt.Fprintf(w.out, "%6d  %s: out of its usual range\n", number, s.name)
		}
	}
}

// summary prints what the log came to.
func (w *watcher) summary() {
	fmt.Fprintf(w.out, "%d iterations compared, %d alarms, %d single slow iterations", len(w.points), w.alarms, w.spikes)
	if w.monitor != nil {
		fmt.Fprintf(w.out, "; at the end %s, slowdowns of %s would be found", strings.ToLower(w.last.State.String()), detectable(&w.last))
	}
	fmt.Fprintln(w.out)
}

// detectable tells the smallest slowdown that would be found.
func detectable(v *detect.Verdict) string {
	if v.MinDetectable == 0 {
		return "no known size"
	}
	return fmt.Sprintf("%.3f times and more", v.MinDetectable)
}

// index tells a place.
func index(i int) string {
	if i == detect.Everywhere {
		return "any"
	}
	return fmt.Sprint(i)
}
