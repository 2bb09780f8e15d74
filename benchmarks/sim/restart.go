package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
)

// restart measures Snapshot, Restore and Replay where most jobs wait.
func (p *program) restart() error {
	w, absent, err := philly()
	if err != nil {
		return err
	}
	if w == nil {
		p.Note("the Philly trace is passed over, the made up one taken instead: " + absent)
		if w, err = p.madeUp(); err != nil {
			return err
		}
	}
	nodes := restartNodes(w)
	at, known := p.waits[w.name]
	if !known {
		tree, err := cluster(nodes)
		if err != nil {
			return err
		}
		c, _, err := w.replay(p.meter, ltgf, tree)
		if err != nil {
			return err
		}
		at, _ = c.crowded()
	}
	entries := 20_000
	if p.Quick {
		entries = 5_000
	}
	s, err := w.stopAt(ltgf, nodes, at, entries)
	if err != nil {
		return err
	}
	p.Input("trace "+w.name, w.about)
	p.Input("instant", fmt.Sprintf("LTGF on %d GPUs after %v: %d jobs wait, %d hold devices, %d are kept", nodes*perNode, at, s.waiting, s.holding, s.kept))
	return p.timeRestart(s)
}

// restartNodes is the cluster on which w is stopped: one that is crowded.
func restartNodes(w *workload) int {
	if w.name == philly2w {
		return crowdedNodes
	}
	return usualNodes
}

// stopped is a scheduler that was stopped, and what it was told afterwards.
type stopped struct {
	cfg       scheduler.Config
	scheduler *scheduler.Scheduler // restored from image
	image     []byte               // where it was stopped
	log       []scheduler.Entry    // behind that
	decided   []byte               // behind that, by the one that was never stopped: a digest

	waiting, holding, kept int
}

// errEnough ends a simulation that has been seen enough of.
var errEnough = errors.New("seen enough")

// recorder is a scheduler of which a snapshot is taken at the first step at or
// after some time, and the log behind it is kept.
type recorder struct {
	*scheduler.Scheduler
	at      time.Time
	entries int
	out     *stopped
	present map[lockstep.JobID]bool // of the jobs that have not left, whether they hold devices
	digest  digest
}

// digest sums up decisions.
type digest struct{ hash.Hash }

func newDigest() digest { return digest{sha256.New()} }

func (d digest) add(actions []lockstep.Action) error {
	if len(actions) == 0 {
		return nil
	}
	return json.NewEncoder(d).Encode(actions)
}

// take is the scheduler's log. Events are valid for as long as the scheduler, but
// their gangs are its own.
func (r *recorder) take(e scheduler.Entry) {
	if r.out.image == nil {
		return
	}
	if e.Event != nil && e.Event.Gang != nil {
		event := *e.Event
		event.Gang = event.Gang.Clone()
		e.Event = &event
	}
	r.out.log = append(r.out.log, e)
}

func (r *recorder) Step(now time.Time) ([]lockstep.Action, error) {
	switch {
	case r.out.image == nil && !now.Before(r.at):
		var b bytes.Buffer
		if err := r.Snapshot(&b); err != nil {
			return nil, err
		}
		r.out.image = b.Bytes()
		r.out.kept = r.Len()
		for _, holds := range r.present { // counts, so order does not matter
			if holds {
				r.out.holding++
			} else {
				r.out.waiting++
			}
		}
	case len(r.out.log) >= r.entries:
		r.out.decided = r.digest.Sum(nil)
		return nil, errEnough
	}
	actions, err := r.Scheduler.Step(now)
	if r.out.image != nil && err == nil {
		err = r.digest.add(actions)
	}
	return actions, err
}

// stopAt replays w until at, and some entries of the log beyond, or all there are.
func (w *workload) stopAt(p policy, nodes int, at time.Duration, entries int) (*stopped, error) {
	tree, err := cluster(nodes)
	if err != nil {
		return nil, err
	}
	out := &stopped{cfg: w.config(p, tree)}
	r := &recorder{at: time.Unix(0, 0).Add(at), entries: entries, out: out, present: make(map[lockstep.JobID]bool), digest: newDigest()}
	cfg := out.cfg
	cfg.Log = r.take
	if r.Scheduler, err = scheduler.New(cfg); err != nil {
		return nil, err
	}
	_, err = sim.Run(sim.Config{
		Tree: tree, Weights: w.weights,
		Event: func(e *lockstep.Event) {
			switch e.Kind {
			case lockstep.EventSubmit, lockstep.EventEvicted:
				r.present[e.Job] = false
			case lockstep.EventFinish:
				delete(r.present, e.Job)
			}
		},
		Action: func(a *lockstep.Action) {
			if a.Kind == lockstep.ActionReserve || a.Kind == lockstep.ActionStart {
				r.present[a.Job] = true
			}
		},
	}, w.jobs(), r)
	switch {
	case err == nil && len(out.log) == 0:
		return nil, fmt.Errorf("the trace is over before %v", at)
	case err == nil:
		out.decided = r.digest.Sum(nil)
	case !errors.Is(err, errEnough):
		return nil, err
	}
	out.scheduler, err = scheduler.Restore(out.cfg, bytes.NewReader(out.image))
	return out, err
}

// inputs returns the log with gangs of its own.
func (s *stopped) inputs() []scheduler.Entry {
	log := make([]scheduler.Entry, len(s.log))
	for i, e := range s.log {
		if e.Event != nil && e.Event.Gang != nil {
			event := *e.Event
			event.Gang = event.Gang.Clone()
			e.Event = &event
		}
		log[i] = e
	}
	return log
}

// timeRestart times what a restart is made of.
func (p *program) timeRestart(s *stopped) error {
	var image bytes.Buffer
	save, err := p.meter.rounds(p.Rounds(), nil, func() error {
		image.Reset()
		return s.scheduler.Snapshot(&image)
	})
	if err != nil {
		return err
	}
	if !bytes.Equal(image.Bytes(), s.image) {
		return errors.New("a restored scheduler saves itself as other bytes")
	}
	load, err := p.meter.rounds(p.Rounds(), nil, func() error {
		_, err := scheduler.Restore(s.cfg, bytes.NewReader(s.image))
		return err
	})
	if err != nil {
		return err
	}
	again, err := p.replayLog(s)
	if err != nil {
		return err
	}
	mega := float64(len(s.image)) / 1e6
	table := &harness.Table{Head: []string{"restart", "wall ms", "CPU ms", "ref ms", "MB/s ref", "allocs", "slowness"}}
	for _, row := range []struct {
		name string
		cost cost
	}{{"snapshot", save}, {"restore", load}} {
		c := row.cost
		table.Add(row.name, harness.Number(c.wall/1e6), harness.Number(c.cpu/1e6), harness.Number(c.ref()/1e6), harness.Number(mega*perSecond(c.ref())), harness.Number(c.allocs), harness.Number(c.slowness))
		p.Result("restart/"+row.name, c.wall/1e6, "ms")
		p.Result("restart/"+row.name+"-cpu", c.cpu/1e6, "ms")
		p.Result("restart/"+row.name+"-ref", c.ref()/1e6, "ms")
	}
	p.Table(table)
	p.Result("restart/size", mega, "MB")
	p.Result("restart/size-per-job", float64(len(s.image))/float64(max(s.kept, 1)), "B/job")
	each := again.per(len(s.log))
	p.Result("restart/replay", perSecond(each.wall), "entries/s")
	p.Result("restart/replay-cpu", perSecond(each.cpu), "entries/CPU-s")
	p.Result("restart/replay-ref", perSecond(each.ref()), "entries/CPU-s")
	return nil
}

// replayLog times the replay of the log on restored schedulers.
func (p *program) replayLog(s *stopped) (cost, error) {
	var restored *scheduler.Scheduler
	var log []scheduler.Entry
	prepare := func() (err error) {
		log = s.inputs()
		restored, err = scheduler.Restore(s.cfg, bytes.NewReader(s.image))
		return err
	}
	if err := prepare(); err != nil {
		return cost{}, err
	}
	if err := s.compare(restored, log); err != nil {
		return cost{}, err
	}
	p.Input("log", fmt.Sprintf("%d entries behind the instant; the restored scheduler decides the same on them", len(s.log)))
	return p.meter.rounds(max(p.Rounds()/3, 3), prepare, func() error {
		for i := range log {
			if _, err := restored.Replay(log[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// compare replays a log on a restored scheduler and compares what it decides
// with what was decided by the one that was never stopped.
func (s *stopped) compare(restored *scheduler.Scheduler, log []scheduler.Entry) error {
	d := newDigest()
	for i := range log {
		actions, err := restored.Replay(log[i])
		if err != nil {
			return err
		}
		if err := d.add(actions); err != nil {
			return err
		}
	}
	if !bytes.Equal(d.Sum(nil), s.decided) {
		return errors.New("a restored scheduler decides otherwise than the one that was never stopped")
	}
	return nil
}
