package standalone

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
)

// bind orders pods to be bound, all or none of them. It reports whether it did: not
// where a node has not the devices, or takes no pods any more.
func (d *desk) bind(j *job, binds []view.Binding) bool {
	done := 0
	granted := make([][]grant, len(binds))
	for ; done < len(binds); done++ {
		b := &binds[done]
		p := d.pods[b.Namespace+"/"+b.Name]
		if p == nil || p.UID != b.UID || !d.open(b.Node) || !d.book.fits(b.Node, d.devices(p)) {
			break
		}
		var err error
		if granted[done], err = d.grants(p, j.plan.Members[b.Member]); err != nil {
			d.cfg.Logger.Warn("claims not allocated", zap.String("job", string(j.id)), zap.Error(err))
			break
		}
		d.book.put(b.UID, seat{node: b.Node, devices: d.devices(p)})
	}
	if done < len(binds) {
		for _, b := range binds[:done] {
			d.book.put(b.UID, seat{})
		}
		return false
	}
	text := planText(j.plan)
	for i := range binds {
		b := &binds[i]
		o := b.Object()
		if text != "" {
			if o.Annotations == nil {
				o.Annotations = make(map[string]string, 1)
			}
			o.Annotations[PlanAnnotation] = text
		}
		d.orders = append(d.orders, task{kind: orderBind, job: j.id, key: b.Namespace + "/" + b.Name, uid: b.UID, node: b.Node, binding: o, grants: granted[i]})
	}
	j.inflight += len(binds)
	return true
}

// open reports whether a node takes pods, by what the API server says now.
func (d *desk) open(id lockstep.NodeID) bool {
	n := d.nodes[string(id)]
	if n == nil {
		return false
	}
	_, open := d.cfg.View.Open(n)
	return open
}

// undo stops what a gang has bound, so that its pods come anew together.
func (d *desk) undo(j *job, st *view.State, why string) {
	if j.phase == running {
		d.apply(lockstep.Event{Kind: lockstep.EventCancel, Time: d.now, Job: j.id})
		j.inCore, j.ordered = true, false
		d.change()
	}
	j.failures++
	j.retry = d.now.Add(backoff(j.failures))
	d.leave(j, st, why)
}

// leave begins to stop the pods of a job.
func (d *desk) leave(j *job, st *view.State, why string) {
	j.phase, j.weak, j.why = leaving, time.Time{}, why
	j.asked = make(map[types.UID]bool)
	d.lookLeaving(j, st)
}

func (d *desk) lookLeaving(j *job, st *view.State) {
	if st != nil {
		if d.stop(j, st); st.Bound > st.Ended || len(st.Leaving) > 0 {
			return
		}
	}
	if j.inflight > 0 || j.inCore && !j.ordered {
		return
	}
	if j.taken != nil {
		d.vacate(j)
	}
	j.phase, j.plan, j.asked = idle, nil, nil
	if j.inCore {
		d.seats.Release(j.id)
		d.apply(lockstep.Event{Kind: lockstep.EventEvicted, Time: d.now, Job: j.id, Attempt: j.attempt})
		if s, ok := d.core.Status(j.id); ok && s.Gang.Phase != gang.Gone {
			j.phase = queued // in its old place, until its pods say otherwise
		}
		j.inCore, j.ordered = false, false
	}
	d.change()
	d.dirty[j.id] = true
}

// stop orders the bound pods of a job to be stopped, each once.
func (d *desk) stop(j *job, st *view.State) {
	for i := range st.Pods {
		p := &st.Pods[i]
		if p.Node == "" || p.Ended || j.asked[p.UID] {
			continue
		}
		j.asked[p.UID] = true
		o := task{kind: orderStop, job: j.id, key: podKey(p), uid: p.UID, grace: d.grace(j, p.Node)}
		if known := d.pods[o.key]; known != nil {
			o.version = known.ResourceVersion
		}
		d.orders = append(d.orders, o)
		if d.cfg.Reports >= 0 {
			d.notices = append(d.notices, notice{key: podKey(p), uid: p.UID, reason: "Preempted", action: "Preempting", text: j.why})
		}
	}
}

// grace returns how many seconds a pod gets; nil means what it says itself. One on a
// node that is no more gets none: nobody would ever say that it has stopped.
func (d *desk) grace(j *job, node lockstep.NodeID) *int64 {
	if d.nodes[string(node)] == nil {
		return new(int64)
	}
	if j.gang == nil || j.gang.Capabilities.Grace == 0 {
		return nil
	}
	s := int64((j.gang.Capabilities.Grace + time.Second - 1) / time.Second)
	return &s
}

// decide has the core decide, and puts holders up for decision if somebody who
// comes before them waits still.
func (d *desk) decide() {
	d.act()
	if d.policy != nil && d.broken == nil && d.pressed != d.changes {
		d.pressed = d.changes
		if d.press() {
			d.act()
		}
	}
}

func (d *desk) act() {
	actions, err := d.core.Step(d.now)
	if err != nil {
		d.cfg.Logger.Error("step", zap.Error(err))
	}
	for i := range actions {
		d.carry(&actions[i])
	}
}

// press puts those holders up for decision that may be preempted and have less
// priority than the first who waits. It reports whether there are any.
func (d *desk) press() bool {
	most, some := lockstep.Priority(0), false
	for _, j := range d.jobs { // a maximum, so order cannot matter
		if j.phase != queued || j.gang.Preemption == lockstep.PreemptNever || some && j.gang.Priority <= most {
			continue
		}
		if s, ok := d.core.Status(j.id); ok && s.Gang.Phase == gang.Queued {
			most, some = j.gang.Priority, true
		}
	}
	if !some {
		return false
	}
	var due []lockstep.JobID
	for id, j := range d.jobs { // sorted below
		if j.phase == running && j.gang.Capabilities.Preemptible && j.gang.Priority < most {
			due = append(due, id)
		}
	}
	slices.Sort(due)
	for _, id := range due {
		d.apply(lockstep.Event{Kind: lockstep.EventDue, Time: d.now, Job: id})
	}
	return len(due) > 0
}

// carry carries out one action.
func (d *desk) carry(a *lockstep.Action) {
	j := d.jobs[a.Job]
	if j == nil {
		return
	}
	log := d.cfg.Logger.With(zap.String("action", string(a.Kind)), zap.String("job", string(a.Job)), zap.String("reason", string(a.Reason)))
	switch a.Kind {
	case lockstep.ActionStart:
		log.Info("start", zap.Uint64("attempt", uint64(a.Attempt)))
		d.start(j, a)
	case lockstep.ActionEvict:
		j.inCore, j.ordered, j.attempt = true, true, a.Attempt
		st, _ := d.asm.State(j.id)
		if j.phase != leaving {
			log.Info("evict")
			if s, ok := d.core.Status(j.id); ok && d.policy != nil {
				d.policy.first[j.id] = cmp.Or(d.policy.first[j.id], s.Gang.Submitted)
			}
			d.leave(j, st, "its room goes to a gang that comes first ("+string(a.Reason)+")")
			break
		}
		d.lookLeaving(j, st)
	case lockstep.ActionMove, lockstep.ActionResize:
		d.resize(j, a)
	case lockstep.ActionReject:
		log.Info("reject")
		j.phase = idle
		j.retry = d.now.Add(time.Minute)
		st, _ := d.asm.State(j.id)
		d.refused(j, st, errors.New("no place in the cluster would ever do: "+string(a.Reason)))
	}
}

// start binds the pods of a gang that has room.
func (d *desk) start(j *job, a *lockstep.Action) {
	st, ok := d.asm.State(j.id)
	j.phase, j.plan, j.attempt, j.told = running, a.Plan, a.Attempt, ""
	d.seats.Hold(a.Plan)
	if ok {
		binds, err := view.Bindings(st, a.Plan, a.Attempt)
		if err == nil && d.bind(j, binds) {
			d.cfg.observeWait(j, d.now)
			return
		}
	}
	// The room is not what it seemed, or the pods are not. Nothing was bound.
	d.undo(j, st, "")
}

// resize carries out that a running gang goes on as another plan. Members that are
// new are bound; members that have to go are stopped. One that would have to move
// leaves whole, since a pod cannot move.
func (d *desk) resize(j *job, a *lockstep.Action) {
	st, _ := d.asm.State(j.id)
	if a.Kind == lockstep.ActionMove || a.Eviction != nil {
		d.undo(j, st, "its room goes to a gang that comes first ("+string(a.Reason)+")")
		return
	}
	j.plan, j.attempt = a.Plan, a.Attempt
	d.seats.Hold(a.Plan)
	d.dirty[j.id] = true
}
