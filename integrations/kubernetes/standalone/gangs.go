package standalone

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
)

// reconcile looks at every job that changed, by ID.
func (d *desk) reconcile() {
	for len(d.dirty) > 0 && d.broken == nil {
		ids := slices.Sorted(maps.Keys(d.dirty))
		clear(d.dirty)
		for _, id := range ids {
			d.look(id)
		}
	}
}

// look does what a job's phase and pods call for.
func (d *desk) look(id lockstep.JobID) {
	st, ok := d.asm.State(id)
	j := d.jobs[id]
	if j == nil {
		if !ok {
			return
		}
		j = &job{id: id, since: d.now}
		d.jobs[id] = j
	}
	if !ok {
		st = nil
	}
	switch j.phase {
	case idle:
		d.lookIdle(j, st)
	case queued:
		d.lookQueued(j, st)
	case running:
		d.lookRunning(j, st)
	case leaving:
		d.lookLeaving(j, st)
	case occupied:
		d.lookOccupied(j, st)
	}
}

func (d *desk) lookIdle(j *job, st *view.State) {
	switch {
	case st == nil:
		delete(d.jobs, j.id)
		delete(d.timers, j.id)
	case st.Foreign:
		d.occupy(j, st)
	case j.inflight > 0:
		// What is on its way decides what it will be.
	case waits(st):
		d.submit(j, st)
	case len(st.Leaving) > 0 && st.Phase != view.Placed && st.Phase != view.Partial:
		d.occupy(j, st)
	case st.Phase == view.Placed:
		d.adopt(j, st)
	case st.Phase == view.Partial:
		if !d.restore(j, st) {
			d.occupy(j, st)
		}
	case st.Phase == view.Faulty && st.Bound > st.Ended:
		d.occupy(j, st)
	}
}

// waits reports whether a gang is whole and holds nothing. One of which some pods
// ended well before the others were stopped is, too; it asks for room for all, since
// it cannot be told from the room of a part.
func waits(st *view.State) bool {
	if st.Gang == nil || len(st.Leaving) > 0 {
		return false
	}
	return st.Phase == view.Ready || st.Phase == view.Partial && st.Bound == st.Ended
}

// submit puts a gang into the queue.
func (d *desk) submit(j *job, st *view.State) {
	if d.now.Before(j.retry) {
		d.wakeAt(j.id, j.retry)
		return
	}
	if d.policy != nil {
		first := d.came(st)
		if t, ok := d.policy.first[j.id]; ok && t.Before(first) {
			first = t
		}
		d.policy.first[j.id] = first
	}
	if err := d.core.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: d.now, Gang: st.Gang}); err != nil {
		d.refused(j, st, err)
		return
	}
	j.phase, j.gang, j.since = queued, st.Gang, d.now
	d.change()
}

// came returns when the first pod of a gang was made, or now if clocks differ.
func (d *desk) came(st *view.State) time.Time {
	first := d.now
	for i := range st.Pods {
		if p := d.pods[podKey(&st.Pods[i])]; p != nil && p.CreationTimestamp.Time.Before(first) && !p.CreationTimestamp.IsZero() {
			first = p.CreationTimestamp.Time
		}
	}
	return first
}

func podKey(p *view.Pod) string { return p.Namespace + "/" + p.Name }

// change notes that the core has something to decide.
func (d *desk) change() {
	d.step = true
	d.changes++
}

func (d *desk) lookQueued(j *job, st *view.State) {
	if st != nil && waits(st) && (st.Gang == j.gang || reflect.DeepEqual(st.Gang, j.gang)) {
		return
	}
	d.apply(lockstep.Event{Kind: lockstep.EventCancel, Time: d.now, Job: j.id})
	j.phase = idle
	d.change()
	d.lookIdle(j, st)
}

// apply reports what the core has to accept.
func (d *desk) apply(e lockstep.Event) {
	if err := d.core.Apply(e); err != nil && !errors.Is(err, lockstep.ErrUnknown) {
		d.cfg.Logger.Error("event refused", zap.String("kind", string(e.Kind)), zap.String("job", string(e.Job)), zap.Error(err))
		d.broken = err
	}
}

func (d *desk) lookRunning(j *job, st *view.State) {
	switch {
	case j.inflight > 0 || st != nil && st.Phase == view.Faulty:
		return
	case st == nil || st.Phase == view.Over && len(st.Leaving) == 0:
		d.finish(j)
		d.dirty[j.id] = true
		return
	case st.Phase == view.Over:
		return // they hold their room until they are gone
	}
	binds, err := view.Bindings(st, j.plan, j.attempt)
	whole := st.Phase == view.Placed
	switch {
	case whole && !sits(st, j.plan) && j.taken != st: // whole, but not where it was put
		d.finish(j)
		j.taken = st // once for each state
		d.dirty[j.id] = true
		return
	case err == nil && len(binds) > 0 && !d.now.Before(j.retry):
		whole = d.bind(j, binds) || whole
	}
	if whole {
		j.weak = time.Time{}
		return
	}
	if j.weak.IsZero() {
		j.weak = d.now
	}
	if at := j.weak.Add(d.cfg.Repair); at.After(d.now) {
		d.wakeAt(j.id, at)
		return
	}
	d.undo(j, st, "fewer pods are bound than the gang needs")
}

// sits reports whether all pods that hold room are where the plan has members.
func sits(st *view.State, p *lockstep.Plan) bool {
	left := make(map[lockstep.NodeID]int)
	for i := range p.Members {
		left[p.Members[i].Node]++
	}
	for _, list := range [...][]view.Pod{st.Pods, st.Leaving} {
		for i := range list {
			if q := &list[i]; q.Node != "" && !q.Ended {
				if left[q.Node]--; left[q.Node] < 0 {
					return false
				}
			}
		}
	}
	return true
}

// finish ends a job whose pods have ended, or that is to be looked at afresh.
func (d *desk) finish(j *job) {
	d.apply(lockstep.Event{Kind: lockstep.EventFinish, Time: d.now, Job: j.id, Attempt: j.attempt})
	if d.seats != nil {
		d.seats.Release(j.id)
	}
	if d.policy != nil {
		delete(d.policy.first, j.id)
	}
	j.phase, j.plan, j.weak, j.failures = idle, nil, time.Time{}, 0
	d.change()
}
