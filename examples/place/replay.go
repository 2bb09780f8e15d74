package main

import (
	"container/heap"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/placement"
)

// replayConfig says how a trace is replayed.
type replayConfig struct {
	Cluster      clusterSpec
	Backfill     gang.Backfill
	HideWalltime bool // keeps from the admission how long jobs run
}

// replayer plays the host of an admission: it submits jobs at their times, lets
// them run for their durations, and reports their ends. Time is the trace's;
// nothing waits.
type replayer struct {
	cfg       replayConfig
	empty     *placement.State // the same cluster with nothing on it, to tell what will never fit
	admission *gang.Admission
	ledger    *ledger
	jobs      map[lockstep.JobID]*traced
	ends      endHeap
	wake      time.Duration // when the admission wants to be stepped, if before the next event; 0 is not
	probe     lockstep.Plan
	waiting   int
	rejected  int
	history   history
}

// traced is a job on its way through the replay.
type traced struct {
	job
	start time.Duration // since the trace's zero; meaningful once started
	ran   bool
	held  lockstep.Attempt
}

// zero is the trace's zero. Any would do; this one is the first of the Philly traces' days.
var zero = time.Date(2017, 10, 3, 0, 0, 0, 0, time.UTC)

// newReplayer builds the cluster and an admission over it.
func newReplayer(cfg replayConfig) (*replayer, error) {
	state, err := cfg.Cluster.state()
	if err != nil {
		return nil, err
	}
	empty, err := cfg.Cluster.state()
	if err != nil {
		return nil, err
	}
	admission, err := gang.New(gang.Config{Placer: state, Backfill: cfg.Backfill, StartAtOnce: true})
	if err != nil {
		return nil, err
	}
	devices := make(map[lockstep.NodeID]lockstep.DeviceSet)
	tree := state.Tree()
	for slot := range int32(tree.Slots()) {
		if id, ok := tree.NodeAt(slot); ok {
			devices[id] = tree.Shape(slot).All()
		}
	}
	return &replayer{
		cfg: cfg, empty: empty, admission: admission, ledger: newLedger(devices, zero),
		jobs: make(map[lockstep.JobID]*traced), history: history{total: cfg.Cluster.Nodes * cfg.Cluster.GPUs},
	}, nil
}

// run plays jobs, which are sorted by submit time, to the end of the last.
func (r *replayer) run(jobs []job) error {
	next := 0
	for {
		now, ok := r.nextTime(jobs[next:])
		if !ok {
			return nil
		}
		at := zero.Add(now)
		// Ends come before arrivals of the same moment, so that these find the room.
		for len(r.ends) > 0 && r.ends[0].at == now {
			if err := r.finish(at, heap.Pop(&r.ends).(end).job); err != nil {
				return err
			}
		}
		for ; next < len(jobs) && jobs[next].Submit == now; next++ {
			if err := r.submit(at, jobs[next]); err != nil {
				return err
			}
		}
		if err := r.step(at); err != nil {
			return err
		}
		r.history.add(now, r.ledger.busy, r.ledger.scattered, r.waiting)
	}
}

// nextTime returns when the next job arrives or ends or the admission wakes; it
// reports false when none will.
func (r *replayer) nextTime(rest []job) (next time.Duration, ok bool) {
	consider := func(at time.Duration) {
		if !ok || at < next {
			next, ok = at, true
		}
	}
	if len(rest) > 0 {
		consider(rest[0].Submit)
	}
	if len(r.ends) > 0 {
		consider(r.ends[0].at)
	}
	if r.wake > 0 {
		consider(r.wake)
	}
	return next, ok
}

// submit hands a job to the admission, unless the cluster could not hold it even
// when empty: to wait for a larger cluster is a choice of the host's, and this
// one has no other to come.
func (r *replayer) submit(at time.Time, j job) error {
	g := gangOf(j, r.cfg.Cluster.GPUs)
	r.jobs[j.ID] = &traced{job: j}
	verdict, err := r.empty.Fit(&lockstep.Request{Gang: g}, &r.probe)
	if err != nil {
		return err
	}
	if !verdict.Feasible {
		r.rejected++
		return nil
	}
	if !r.cfg.HideWalltime {
		g.Walltime = j.Duration
	}
	r.waiting++
	return r.admission.Submit(at, g)
}

func (r *replayer) finish(at time.Time, id lockstep.JobID) error {
	r.ledger.finish(at, id)
	return r.admission.Finish(at, id, r.jobs[id].held)
}

// step lets the admission decide and carries its actions out.
func (r *replayer) step(at time.Time) error {
	actions, err := r.admission.Step(at)
	if err != nil {
		return err
	}
	for i := range actions {
		a := &actions[i]
		t := r.jobs[a.Job]
		switch a.Kind {
		case lockstep.ActionStart:
			t.start, t.ran, t.held = at.Sub(zero), true, a.Attempt
			r.waiting--
			r.ledger.start(at, t.job, zero.Add(t.Submit), a.Plan)
			heap.Push(&r.ends, end{at: t.start + t.Duration, job: a.Job})
		case lockstep.ActionReject:
			r.waiting--
			r.rejected++
		default:
			return fmt.Errorf("%s: unexpected action %s", a.Job, a.Kind)
		}
	}
	r.wake = 0
	if wake, ok := r.admission.NextWake(at); ok && wake.After(at) {
		r.wake = wake.Sub(zero)
	}
	return nil
}

// gangOf makes the gang of a job: one member where a node suffices, else as many
// members of a whole node as it fills, and one for the rest.
func gangOf(j job, perNode int) *lockstep.Gang {
	g := &lockstep.Gang{ID: j.ID, Tenant: j.Tenant}
	add := func(name lockstep.RoleName, members, gpus int) {
		if members > 0 && gpus > 0 {
			g.Roles = append(g.Roles, lockstep.Role{Name: name, Min: members, Demand: lockstep.Demand{GPUs: gpus}})
		}
	}
	if perNode > 0 {
		add("whole", j.GPUs/perNode, perNode)
		add("rest", 1, j.GPUs%perNode)
	}
	return g
}

// end is when a running job ends.
type end struct {
	at  time.Duration
	job lockstep.JobID
}

// endHeap is a heap of ends, the earliest first and of those the lowest ID.
type endHeap []end

func (h endHeap) Len() int { return len(h) }

func (h endHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].job < h[j].job
}

func (h endHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push appends an end, for heap.Push.
func (h *endHeap) Push(e any) { *h = append(*h, e.(end)) }

// Pop removes the last end, for heap.Pop.
func (h *endHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
