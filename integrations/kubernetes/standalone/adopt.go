package standalone

import (
	"errors"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness/quota"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sharing"
	"github.com/lockstep-gpu/lockstep/topology"
)

// PlanAnnotation is the key of the annotation that says, on each pod that is
// bound, where all members of its gang go: nodes in rank order, each with the
// number of members that follow one another on it, as "a:8,b:8". A scheduler that
// finds a gang half bound goes on with it.
const PlanAnnotation = "lockstep.dev/plan"

// maxPlanText bounds the annotation; a plan that takes more is not written down, and
// such a gang is undone rather than gone on with.
const maxPlanText = 16 << 10

func planText(p *lockstep.Plan) string {
	var b strings.Builder
	for i := 0; i < len(p.Members); {
		n := 1
		for i+n < len(p.Members) && p.Members[i+n].Node == p.Members[i].Node {
			n++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(string(p.Members[i].Node) + ":" + strconv.Itoa(n))
		i += n
	}
	if b.Len() > maxPlanText {
		return ""
	}
	return b.String()
}

// parsePlan returns the nodes of an annotation in rank order; false where it is none.
func parsePlan(text string) (ids []lockstep.NodeID, ok bool) {
	if text == "" || len(text) > maxPlanText {
		return nil, false
	}
	for part := range strings.SplitSeq(text, ",") {
		at := strings.LastIndexByte(part, ':')
		if at < 1 {
			return nil, false
		}
		n, err := strconv.Atoi(part[at+1:])
		if err != nil || n < 1 || len(ids)+n > lockstep.MaxMembers {
			return nil, false
		}
		for range n {
			ids = append(ids, lockstep.NodeID(part[:at]))
		}
	}
	return ids, true
}

// adopt takes in a gang whose pods are bound.
func (d *desk) adopt(j *job, st *view.State) {
	plan, err := d.seats.Observe(st)
	if err == nil {
		err = d.core.Adopt(d.now, plan, d.began(st))
	}
	if err != nil {
		// Somebody bound it where there is no room, or the queues do not know it. It
		// is left alone, and what can be counted of its room is others'.
		d.cfg.Logger.Warn("not adopted", zap.String("job", string(j.id)), zap.Error(err))
		d.occupy(j, st)
		return
	}
	d.adopted(j, st, plan)
}

func (d *desk) adopted(j *job, st *view.State, plan *lockstep.Plan) {
	j.phase, j.gang, j.plan, j.told, j.weak = running, plan.Gang, plan, "", time.Time{}
	if s, ok := d.core.Status(j.id); ok {
		j.attempt = s.Gang.Attempt
	}
	if d.policy != nil {
		d.policy.first[j.id] = d.came(st)
	}
	d.dirty[j.id] = true // members may be missing
	d.change()
}

// began returns since when a gang runs, as far as its pods tell.
func (d *desk) began(st *view.State) time.Time {
	at := d.now
	for i := range st.Pods {
		p := d.pods[podKey(&st.Pods[i])]
		if p == nil {
			continue
		}
		for k := range p.Status.Conditions {
			c := &p.Status.Conditions[k]
			if c.Type == "PodScheduled" && c.Status == "True" && !c.LastTransitionTime.IsZero() && c.LastTransitionTime.Time.Before(at) {
				at = c.LastTransitionTime.Time
			}
		}
	}
	return at
}

// restore goes on with a gang that is half bound, as the annotation of those that
// are says. It reports whether it did.
func (d *desk) restore(j *job, st *view.State) bool {
	var ids []lockstep.NodeID
	for i := range st.Pods {
		if p := d.pods[podKey(&st.Pods[i])]; p != nil && st.Pods[i].Node != "" {
			var ok bool
			if ids, ok = parsePlan(p.Annotations[PlanAnnotation]); ok {
				break
			}
		}
	}
	if len(ids) == 0 || len(ids) > len(st.Pods) || st.Gang == nil {
		return false
	}
	// The pods as they would be when all are bound; those beyond the plan, of
	// roles with more pods than it has members, are not told from it here.
	want := *st
	want.Pods = slices.Clone(st.Pods)
	if len(ids) != len(want.Pods) {
		return false
	}
	for i := range want.Pods {
		p := &want.Pods[i]
		if p.Node != "" && p.Node != ids[i] || p.Node == "" && !d.open(ids[i]) {
			return false
		}
		p.Node = ids[i]
	}
	want.Bound, want.Phase = len(want.Pods), view.Placed
	plan, err := d.seats.Observe(&want)
	if err == nil {
		err = d.core.Adopt(d.now, plan, d.began(st))
	}
	if err != nil {
		d.seats.Release(j.id)
		return false
	}
	d.cfg.Logger.Info("half bound, gone on with", zap.String("job", string(j.id)), zap.Int("bound", st.Bound), zap.Int("members", len(ids)))
	d.adopted(j, st, plan)
	return true
}

// occupy takes the room of pods that others bound, or that are at fault.
func (d *desk) occupy(j *job, st *view.State) {
	j.phase, j.taken = occupied, st
	plan, err := d.seats.Observe(st)
	if err == nil && len(plan.Members) > 0 {
		err = d.core.Occupy(d.now, plan)
	}
	if err != nil {
		d.cfg.Logger.Warn("not counted", zap.String("job", string(j.id)), zap.Error(err))
		d.uncounted(j, st)
	}
	d.change()
	if st.Phase == view.Partial && !st.Foreign {
		j.weak = d.now
		d.wakeAt(j.id, d.now.Add(d.cfg.Repair))
	}
}

// uncounted notes that the room of pods could not be taken, such as where it was
// promised to a gang that others are still leaving. It is tried again; until then
// the ledger keeps others off.
func (d *desk) uncounted(j *job, st *view.State) {
	d.seats.Release(j.id)
	j.phase, j.taken, j.uncounted, j.weak = occupied, st, true, d.now
	d.wakeAt(j.id, d.now.Add(min(d.cfg.Repair, time.Second)))
}

// crowded reports whether a pod of a gang is on a node whose pods ask for more than
// it has.
func (d *desk) crowded(st *view.State) bool {
	for i := range st.Pods {
		if p := &st.Pods[i]; p.Node != "" && !p.Ended && d.book.crowded(p.Node) {
			return true
		}
	}
	return false
}

// vacate gives back what occupy took.
func (d *desk) vacate(j *job) {
	j.taken, j.uncounted = nil, false
	d.seats.Release(j.id)
	if err := d.core.Vacate(d.now, j.id); err == nil {
		d.change()
	}
}

func (d *desk) lookOccupied(j *job, st *view.State) {
	// Half of a gang that nobody goes on with does not stay, nor does one that
	// somebody bound where there is not enough for it.
	if st != nil && !st.Foreign && !j.weak.IsZero() && !d.now.Before(j.weak.Add(d.cfg.Repair)) {
		if st.Phase == view.Partial {
			d.undo(j, st, "fewer pods are bound than the gang needs")
			return
		}
		if j.uncounted && st.Phase == view.Placed && d.crowded(st) {
			d.undo(j, st, "a node has fewer devices than its pods ask for")
			return
		}
	}
	if !j.uncounted && (st == j.taken || st != nil && reflect.DeepEqual(st, j.taken)) {
		if !j.weak.IsZero() {
			d.wakeAt(j.id, j.weak.Add(d.cfg.Repair))
		}
		return
	}
	weak := j.weak
	d.vacate(j)
	j.phase, j.weak = idle, time.Time{}
	d.lookIdle(j, st)
	if j.phase == occupied && !weak.IsZero() && !j.weak.IsZero() {
		j.weak = weak // it has been so for longer
	}
}

// rebase looks at the nodes afresh.
func (d *desk) rebase() {
	d.regroup, d.grouped = time.Time{}, d.now
	in := view.Inputs{Foreign: d.asm.Foreign()}
	if d.shelf != nil {
		in.Devices = d.published().Devices()
	}
	for _, n := range d.nodes { // the view sorts them
		in.Nodes = append(in.Nodes, n)
	}
	cl, err := d.cfg.View.Cluster(in)
	if err != nil {
		d.broken = err
		return
	}
	for _, f := range cl.Faults {
		d.cfg.Logger.Warn("node at fault", zap.String("node", f.Name), zap.Error(f))
	}
	switch {
	case d.core == nil:
		err = d.found(&cl)
	case !d.knows(cl.Layouts):
		err = errLayouts
	default:
		if err = d.capacity(cl.Tree); err == nil {
			err = d.core.Rebase(d.now, cl.Tree, cl.Nodes)
		}
	}
	if err != nil {
		d.cfg.Logger.Error("nodes refused", zap.Error(err))
		d.broken = err
		return
	}
	if d.seats == nil {
		d.seats = view.NewSeats(&cl, d.known)
	} else {
		d.seats.Rebase(&cl)
	}
	d.close(&cl)
	d.change()
}

// found makes the composition.
func (d *desk) found(cl *view.Cluster) error {
	cfg := d.cfg.Scheduler
	cfg.Tree, cfg.Nodes, cfg.Recorder, cfg.StartAtOnce = cl.Tree, cl.Nodes, d.cfg.Recorder, true
	cfg.Rule = d.cfg.Rule
	if cfg.Rule == Priority {
		policy, err := newSeniority()
		if err != nil {
			return err
		}
		// Under this rule nobody's term ends, as under FIFO.
		cfg.Rule, cfg.Policy, d.policy = scheduler.FIFO, policy, policy
	} else if cfg.Rule == LTGF {
		cfg.Rule = scheduler.LTGF
	}
	cfg.Layouts, d.layouts = cl.Layouts, cl.Layouts
	if limits(&d.cfg.Quota) {
		limits := d.cfg.Quota
		if limits.Capacity == nil {
			limits.Capacity = devices(cl.Tree)
		}
		q, err := quota.New(limits)
		if err != nil {
			return err
		}
		d.quota, cfg.Quota, cfg.Preempt = q, q, gang.PreemptOn
	}
	core, err := scheduler.New(cfg)
	d.core = core
	return err
}

// errLayouts is why the desk is made anew: placement learns layouts when it is made.
var errLayouts = errors.New("standalone: nodes divide their devices as none did before")

// knows reports whether placement has all of these layouts.
func (d *desk) knows(layouts map[string]sharing.GeometryConfig) bool {
	for name, l := range layouts { // all of them, so order cannot matter
		if has, ok := d.layouts[name]; !ok || !reflect.DeepEqual(has, l) {
			return false
		}
	}
	return true
}

// capacity tells the quota how many devices there are, unless it says that itself.
func (d *desk) capacity(tree *topology.Tree) error {
	if d.quota == nil || d.cfg.Quota.Capacity != nil {
		return nil
	}
	return d.quota.SetCapacity(devices(tree))
}

// devices returns the devices of all nodes.
func devices(tree *topology.Tree) lockstep.Resources {
	n := int64(0)
	for slot := range int32(tree.Slots()) {
		n += int64(tree.DeviceCount(slot))
	}
	return lockstep.Resources{lockstep.ResourceGPU: n * int64(lockstep.WholeGPU)}
}

// close tells the core which nodes take no more members.
func (d *desk) close(cl *view.Cluster) {
	now := make(map[lockstep.NodeID]bool, len(cl.Closed))
	for i := range cl.Closed {
		id := cl.Closed[i].Node
		if now[id] = true; !d.closed[id] {
			d.apply(lockstep.Event{Kind: lockstep.EventCordon, Time: d.now, Node: id})
		}
	}
	for id := range d.closed { // each on its own, so order cannot matter
		if _, there := cl.Tree.Slot(id); there && !now[id] {
			d.apply(lockstep.Event{Kind: lockstep.EventOpen, Time: d.now, Node: id})
		}
	}
	d.closed = now
}
