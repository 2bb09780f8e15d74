package standalone

import (
	"cmp"
	"reflect"
	"strconv"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness/quota"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/view"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/sharing"
)

// desk is the part that decides: objects and results come in, orders for the API
// server go out. It waits for nothing, reads no clock and starts no goroutine.
//
// What it knows of a gang is a job; what is to be done about it follows from the
// job's phase and from how its pods are, whatever led there: a lost answer, a
// restart and somebody else's doing look alike.
type desk struct {
	cfg     Config
	asm     *view.Assembler
	core    *scheduler.Scheduler
	policy  *seniority                        // nil where the rule is not Priority
	quota   *quota.Quota                      // nil where nothing is limited
	layouts map[string]sharing.GeometryConfig // that core knows
	seats   *view.Seats
	book    *ledger
	shelf   *shelf // nil where claims are not looked at

	pods    map[string]*corev1.Pod // as the API server tells, by namespace and name
	nodes   map[string]*corev1.Node
	assumed map[types.UID]lockstep.NodeID // bound, and the API server did not tell yet
	jobs    map[lockstep.JobID]*job
	dirty   map[lockstep.JobID]bool
	timers  map[lockstep.JobID]time.Time // when to look at a job again

	now      time.Time
	regroup  time.Time                // when to look at the nodes again; zero means that they did not change
	grouped  time.Time                // when they were looked at last
	closed   map[lockstep.NodeID]bool // as the core was told
	step     bool                     // something changed that the core has to decide about
	changes  uint64                   // how often that was so
	pressed  uint64                   // changes when holders were last put up for decision
	reported time.Time                // when somebody was last told why

	orders  []task
	notices []notice
	broken  error // the composition contradicts itself: it is to be made anew
}

// phase is where a job stands for the desk.
type phase int

const (
	idle     phase = iota // the composition does not have it
	queued                // it waits for room, or others leave its room
	running               // it has room: its pods are bound, or about to be
	leaving               // its pods are being stopped
	occupied              // its room is taken, but not by a decision of ours
)

// job is one gang.
type job struct {
	id        lockstep.JobID
	phase     phase
	gang      *lockstep.Gang // as submitted
	plan      *lockstep.Plan
	attempt   lockstep.Attempt
	inflight  int                // bindings on their way
	inCore    bool               // the composition has it, while it leaves
	ordered   bool               // the composition said that it has to leave
	taken     *view.State        // what is occupied
	uncounted bool               // or rather would be
	asked     map[types.UID]bool // pods that were asked to stop
	why       string             // why they are, for people
	weak      time.Time          // since when fewer are bound than the least; zero means that enough are
	retry     time.Time          // not to be tried before
	failures  int                // in a row
	since     time.Time          // when it first waited
	told      string             // what was last reported
	again     time.Time          // not to be told before
}

func newDesk(cfg Config) (*desk, error) {
	d := &desk{
		cfg: cfg, book: newLedger(),
		pods: make(map[string]*corev1.Pod), nodes: make(map[string]*corev1.Node),
		assumed: make(map[types.UID]lockstep.NodeID), jobs: make(map[lockstep.JobID]*job),
		dirty: make(map[lockstep.JobID]bool), timers: make(map[lockstep.JobID]time.Time), closed: make(map[lockstep.NodeID]bool),
	}
	if cfg.Claims {
		d.shelf = newShelf()
		d.cfg.View.Claims = d.demand
	}
	var err error
	d.asm, err = view.NewAssembler(d.cfg.View)
	return d, err
}

// pod takes note of how a pod is; nil means that it is gone.
func (d *desk) pod(key string, p *corev1.Pod) {
	if old := d.pods[key]; old != nil && (p == nil || p.UID != old.UID) {
		d.asm.Delete(old.UID)
		d.book.put(old.UID, seat{})
		delete(d.assumed, old.UID)
		delete(d.pods, key)
	}
	if p == nil {
		return
	}
	d.pods[key] = p
	if d.shelf != nil && len(p.Spec.ResourceClaims) > 0 {
		d.shelf.claimants[key] = true
	}
	if p.Spec.NodeName != "" {
		delete(d.assumed, p.UID)
	} else if node, ok := d.assumed[p.UID]; ok {
		c := *p
		c.Spec.NodeName = string(node)
		p = &c
	}
	if err := d.asm.Upsert(p); err != nil {
		d.cfg.Logger.Warn("pod at fault", zap.String("pod", key), zap.Error(err))
	}
	at := seat{node: lockstep.NodeID(p.Spec.NodeName), devices: d.devices(p)}
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		at = seat{}
	}
	if _, known := d.book.pods[p.UID]; at.node != "" || !known || at.devices == 0 {
		d.book.put(p.UID, at) // one that is on its way to a node keeps its place there
	}
}

// devices returns how many whole devices a pod asks for.
func (d *desk) devices(p *corev1.Pod) int64 {
	name := cmp.Or(d.cfg.View.GPUResource, "nvidia.com/gpu")
	sum, start := int64(0), int64(0)
	for i := range p.Spec.Containers {
		q := p.Spec.Containers[i].Resources.Requests[name]
		sum += q.Value()
	}
	for i := range p.Spec.InitContainers {
		q := p.Spec.InitContainers[i].Resources.Requests[name]
		start = max(start, q.Value())
	}
	return max(sum, start)
}

// group takes note of how a PodGroup is; nil means that it is gone.
func (d *desk) group(namespace, name string, g *schedulingv1beta1.PodGroup) {
	if g == nil {
		d.asm.DeleteGroup(namespace, name)
		return
	}
	if err := d.asm.UpsertGroup(view.PodGroup(g)); err != nil {
		d.cfg.Logger.Warn("pod group at fault", zap.String("group", namespace+"/"+name), zap.Error(err))
	}
}

// node takes note of how a node is; nil means that it is no more.
func (d *desk) node(name string, n *corev1.Node) {
	old := d.nodes[name]
	if n == nil {
		delete(d.nodes, name)
		d.book.offer(lockstep.NodeID(name), 0)
	} else {
		if old != nil && reflect.DeepEqual(old.Spec, n.Spec) && reflect.DeepEqual(old.Labels, n.Labels) && reflect.DeepEqual(old.Status, n.Status) {
			return
		}
		d.nodes[name] = n
		q := n.Status.Allocatable[cmp.Or(d.cfg.View.GPUResource, "nvidia.com/gpu")]
		d.book.offer(lockstep.NodeID(name), q.Value())
	}
	d.stir(d.grouped.Add(d.cfg.Regroup))
}

// stir has the nodes looked at again, no later than at.
func (d *desk) stir(at time.Time) {
	if d.regroup.IsZero() || at.Before(d.regroup) {
		d.regroup = at
	}
	if d.regroup.IsZero() {
		d.regroup = time.Unix(0, 1) // at once
	}
}

// bound takes note of what became of a binding.
func (d *desk) bound(r result) {
	j := d.jobs[r.job]
	if j != nil && j.inflight > 0 {
		j.inflight--
		d.dirty[j.id] = true
	}
	p := d.pods[r.key]
	present := p != nil && p.UID == r.uid
	switch {
	case r.node != "" && present:
		if p.Spec.NodeName == "" {
			d.assumed[r.uid] = r.node
		}
		d.pod(r.key, p)
	case r.node == "":
		d.book.put(r.uid, seat{})
		if present {
			d.pod(r.key, p)
		}
		if j != nil {
			// The pods of a gang that fail together are one failure.
			if !d.now.Before(j.retry) {
				j.failures++
				j.retry = d.now.Add(backoff(j.failures))
			}
			d.wakeAt(j.id, j.retry)
		}
	}
}

// stopped takes note of what became of a deletion.
func (d *desk) stopped(r result) {
	if j := d.jobs[r.job]; j != nil && r.err != nil {
		delete(j.asked, r.uid)
		d.wakeAt(j.id, d.now.Add(backoff(0)))
	}
}

// backoff returns how long to wait behind n failures in a row.
func backoff(n int) time.Duration { return 100 * time.Millisecond << min(n, 9) }

func (d *desk) wakeAt(id lockstep.JobID, at time.Time) {
	if t, ok := d.timers[id]; !ok || at.Before(t) {
		d.timers[id] = at
	}
}

// turn decides all that can be decided at now; orders are in d.orders then. It
// returns when to come again if nothing happens before.
func (d *desk) turn(now time.Time) (time.Time, bool) {
	if now.After(d.now) {
		d.now = now
	}
	d.reread()
	d.collect()
	if !d.regroup.IsZero() && !d.regroup.After(d.now) {
		d.rebase()
	}
	if d.core == nil || d.broken != nil {
		return time.Time{}, false
	}
	for id, at := range d.timers { // into a set, so order cannot matter
		if !at.After(d.now) {
			delete(d.timers, id)
			d.dirty[id] = true
		}
	}
	if at, ok := d.core.NextWake(d.now); ok && !at.After(d.now) {
		d.step = true
	}
	// Each round answers what the one before brought about; a gang goes through
	// a few at the most.
	for range 32 {
		d.reconcile()
		if !d.step || d.broken != nil {
			break
		}
		d.step = false
		d.decide()
		d.collect()
	}
	d.report()
	return d.next()
}

// collect asks the assembler what changed.
func (d *desk) collect() {
	c := d.asm.Take()
	for _, id := range c.Gangs {
		d.dirty[id] = true
	}
	if len(c.Nodes) > 0 {
		d.stir(d.grouped.Add(d.cfg.Regroup))
	}
}

// next returns when to come again.
func (d *desk) next() (at time.Time, ok bool) {
	earlier := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if t, some := d.core.NextWake(d.now); some {
		earlier(t)
	}
	for _, t := range d.timers { // a minimum, so order cannot matter
		earlier(t)
	}
	if !d.regroup.IsZero() {
		earlier(d.regroup)
	}
	if t, some := d.nextReport(); some {
		earlier(t)
	}
	return at, ok
}

func itoa(n int) string { return strconv.Itoa(n) }
