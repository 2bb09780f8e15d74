package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sim"
)

// state is what a job does, as far as a timeline shows it.
type state string

const (
	waiting state = "waiting"
	running state = "running"
	saving  state = "saving"
	done    state = "done"
)

// mark is a time at which a job came to another state.
type mark struct {
	at    int64 // UnixNano
	job   lockstep.JobID
	state state
}

// marks are all those of a run, by time. Its methods are hooks of sim.Config.
type marks struct{ list []mark }

func (m *marks) add(t time.Time, job lockstep.JobID, s state) {
	m.list = append(m.list, mark{at: t.UnixNano(), job: job, state: s})
}

func (m *marks) event(e *lockstep.Event) {
	switch e.Kind {
	case lockstep.EventSubmit:
		m.add(e.Time, e.Gang.ID, waiting)
	case lockstep.EventEvicted:
		m.add(e.Time, e.Job, waiting)
	case lockstep.EventFinish:
		m.add(e.Time, e.Job, done)
	}
}

func (m *marks) action(a *lockstep.Action) {
	switch a.Kind {
	case lockstep.ActionStart:
		m.add(a.Time, a.Job, running)
	case lockstep.ActionEvict, lockstep.ActionMove:
		m.add(a.Time, a.Job, saving)
	}
}

// span is a stretch of one state, from Config.Start.
type span struct {
	State    state
	From, To time.Duration
}

// of returns the stretches of a job, joining those of one state and dropping
// those of no time.
func (m *marks) of(job lockstep.JobID) (spans []span) {
	for i := range m.list {
		if x := &m.list[i]; x.job == job {
			at := time.Duration(x.at)
			if n := len(spans); n > 0 {
				spans[n-1].To = at
				if spans[n-1].From == at {
					spans = spans[:n-1]
				}
			}
			if n := len(spans); x.state != done && (n == 0 || spans[n-1].State != x.state) {
				spans = append(spans, span{State: x.state, From: at, To: at})
			}
		}
	}
	return spans
}

// watcher is a scheduler that is asked, on the way, why one job stands where it
// stands. Asking changes nothing, so the run is the same as without.
type watcher struct {
	*scheduler.Scheduler
	job     lockstep.JobID
	news    string        // what was heard of the job since the last step
	state   state         // of the job; empty before it came
	since   time.Time     // of the state
	look    time.Duration // after since, when to ask next while nothing happens
	extends int           // leases extended since the job last started
	moments []moment
}

// moment is an explanation of the job at one time.
type moment struct {
	At      time.Duration
	What    string // what happened, or that time passed
	Explain lockstep.Explanation
}

const (
	firstLook    = time.Minute // after a wait began, when it is first asked about
	momentsMost  = 500         // how many moments are kept
	momentsFirst = 14          // how many of the first are told
	momentsLast  = 8           // how many of the last are told
)

// Apply notes what is observed of the job.
func (w *watcher) Apply(e lockstep.Event) error {
	job := e.Job
	if e.Gang != nil {
		job = e.Gang.ID
	}
	if job == w.job {
		switch e.Kind {
		case lockstep.EventSubmit:
			w.enter(e.Time, waiting, "submitted")
		case lockstep.EventEvicted:
			w.enter(e.Time, waiting, "stopped, GPUs given back")
		case lockstep.EventFinish:
			w.enter(e.Time, done, "finished")
		}
	}
	return w.Scheduler.Apply(e)
}

// Step notes what is decided about the job, and asks why.
func (w *watcher) Step(now time.Time) ([]lockstep.Action, error) {
	actions, err := w.Scheduler.Step(now)
	for i := range actions {
		if a := &actions[i]; a.Job == w.job {
			w.decided(a)
		}
	}
	w.ask(now)
	return actions, err
}

func (w *watcher) decided(a *lockstep.Action) {
	switch a.Kind {
	case lockstep.ActionStart:
		w.enter(a.Time, running, "started on "+nodesOf(a.Plan))
		w.extends = 0
	case lockstep.ActionExtend:
		// Where a lease goes on and on, the 1st, 2nd, 4th, 8th ... time will do.
		if w.extends++; w.extends&(w.extends-1) == 0 {
			w.enter(a.Time, running, "lease extended in place")
		}
	case lockstep.ActionEvict, lockstep.ActionMove:
		w.enter(a.Time, saving, "told to stop")
	case lockstep.ActionReject:
		w.enter(a.Time, done, "rejected")
	}
}

func (w *watcher) enter(now time.Time, s state, news string) {
	if w.news != "" {
		w.news += ", "
	}
	w.news += news
	w.state, w.since, w.look = s, now, firstLook
}

// nodesOf names the nodes of a plan.
func nodesOf(p *lockstep.Plan) string {
	var names []string
	for i := range p.Members {
		names = append(names, string(p.Members[i].Node))
	}
	const most = 4
	if more := len(names) - most; more > 1 {
		names = append(names[:most], fmt.Sprintf("%d more nodes", more))
	}
	return and(names)
}

// ask explains the job where there is news, and where it waits longer and longer.
func (w *watcher) ask(now time.Time) {
	what := w.news
	w.news = ""
	if what == "" {
		if w.state != waiting || now.Sub(w.since) < w.look {
			return
		}
		what = "still waiting"
	}
	e, ok := w.Explain(w.job)
	if !ok {
		return
	}
	for w.state == waiting && now.Sub(w.since) >= w.look {
		w.look *= 4
	}
	if len(w.moments) < momentsMost {
		w.moments = append(w.moments, moment{At: time.Duration(now.UnixNano()), What: what, Explain: e})
	}
}

// story is one job's way through all runs, with its explanations under one policy.
type story struct {
	Job     lockstep.JobID
	Policy  policy
	Record  *sim.Record
	Moments []moment
	Left    int // how many moments were left out, behind the first momentsFirst
	Ways    []way
}

// way is the job's timeline under one policy.
type way struct {
	policy
	Record *sim.Record
	Spans  []span
}

// tell picks the job and replays one run again with a watcher: only the end says
// which job is worth asking about, and a run is the same every time.
func (o *options) tell(w *workload, outcomes []outcome) (*story, error) {
	at := slices.IndexFunc(outcomes, func(x outcome) bool { return x.Rule == scheduler.LTGF })
	at = max(at, 0)
	main := &outcomes[at]
	t := &story{Policy: main.policy, Job: o.job}
	if t.Job == "" {
		longest := slices.MaxFunc(main.Records, func(a, b sim.Record) int { return cmp.Compare(a.Wait, b.Wait) })
		t.Job = longest.Job
	}
	if t.Record = main.record(t.Job); t.Record == nil {
		return nil, &lockstep.Error{Kind: lockstep.ErrUnknown, Op: "cluster: story", Field: "-job", Value: string(t.Job), Reason: "the trace has no such job"}
	}
	for i := range outcomes {
		t.Ways = append(t.Ways, way{policy: outcomes[i].policy, Record: outcomes[i].record(t.Job), Spans: outcomes[i].marks.of(t.Job)})
	}
	tree, err := o.cluster()
	if err != nil {
		return nil, err
	}
	s, err := scheduler.New(o.scheduler(w, tree, main.policy))
	if err != nil {
		return nil, err
	}
	cfg := o.simulation(w, tree)
	cfg.Until = t.Record.End + time.Second
	watch := &watcher{Scheduler: s, job: t.Job}
	if _, err := sim.Run(cfg, w.jobs(o), watch); err != nil {
		return nil, err
	}
	t.Moments = watch.moments
	if t.Left = len(t.Moments) - momentsFirst - momentsLast; t.Left > 0 {
		t.Moments = slices.Delete(t.Moments, momentsFirst, momentsFirst+t.Left)
	}
	return t, nil
}
