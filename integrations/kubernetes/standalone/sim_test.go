package standalone

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
)

// sim is an API server with kubelets and controllers, as far as a desk sees them, on
// a clock of its own. What happens later is in a list, by time and then by number.
type sim struct {
	t      *testing.T
	rnd    *rand.Rand
	cfg    Config
	desk   *desk
	now    time.Time
	pods   map[string]*corev1.Pod
	nodes  map[string]*corev1.Node
	later  []happening
	serial int

	lossy   bool // bindings may fail, or be made by somebody else
	stopped map[string]int
	bound   int
}

// happening is something that happens at a time.
type happening struct {
	at time.Time
	n  int
	do func()
}

func newSim(t *testing.T, seed uint64, n cluster.Nodes) *sim {
	t.Helper()
	cfg := Config{Rule: Priority, Repair: 2 * time.Second, Reports: -1}.withDefaults()
	s := &sim{
		t: t, rnd: rand.New(rand.NewPCG(seed, 7)), cfg: cfg, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		pods: make(map[string]*corev1.Pod), nodes: make(map[string]*corev1.Node), stopped: make(map[string]int),
	}
	for i := range n.Count {
		s.nodes[n.Name(i)] = n.Object(i)
	}
	s.restart()
	return s
}

// restart gives the desk up and makes one that knows what the server knows.
func (s *sim) restart() {
	s.t.Helper()
	d, err := newDesk(s.cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	s.desk = d
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		d.node(name, s.nodes[name])
	}
	for _, key := range slices.Sorted(maps.Keys(s.pods)) {
		d.pod(key, s.pods[key])
	}
	d.stir(time.Time{})
}

func (s *sim) after(d time.Duration, do func()) {
	s.serial++
	s.later = append(s.later, happening{s.now.Add(d), s.serial, do})
}

// set stores a pod and tells the desk; nil removes it.
func (s *sim) set(key string, p *corev1.Pod) {
	if p == nil {
		delete(s.pods, key)
	} else {
		s.pods[key] = p
	}
	s.desk.pod(key, p)
	s.check(p)
}

// change alters a pod if it is there still.
func (s *sim) change(key string, uid types.UID, alter func(*corev1.Pod)) {
	p := s.pods[key]
	if p == nil || p.UID != uid {
		return
	}
	c := p.DeepCopy()
	alter(c)
	s.set(key, c)
}

func (s *sim) create(p *corev1.Pod) {
	s.serial++
	p.UID = types.UID(fmt.Sprint("uid-", s.serial))
	p.CreationTimestamp = metav1.NewTime(s.now)
	s.set(p.Namespace+"/"+p.Name, p)
}

// gang makes the pods of a gang.
func (s *sim) gang(g cluster.Gang) {
	g.Namespace, g.Scheduler = "sim", "lockstep-scheduler"
	for i := range g.Members - g.Absent {
		s.create(g.Pod(i))
	}
}

// remove deletes a pod, with what kubelet and controller do about it.
func (s *sim) remove(key string, uid types.UID) {
	s.change(key, uid, func(p *corev1.Pod) { t := metav1.NewTime(s.now); p.DeletionTimestamp = &t })
	s.after(time.Duration(s.rnd.IntN(3000))*time.Millisecond, func() {
		p := s.pods[key]
		if p == nil || p.UID != uid {
			return
		}
		s.set(key, nil)
		s.after(time.Duration(s.rnd.IntN(1000))*time.Millisecond, func() {
			fresh := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: maps.Clone(p.Annotations)}, Spec: p.Spec}
			fresh.Spec.NodeName = ""
			for _, k := range []string{"rank", "role-rank", "world-size", "attempt", "plan"} {
				delete(fresh.Annotations, "lockstep.dev/"+k)
			}
			s.create(fresh)
		})
	})
}

// turn turns the desk and sends its orders on their way.
func (s *sim) turn() (time.Time, bool) {
	d := s.desk
	at, ok := d.turn(s.now)
	if d.broken != nil {
		s.t.Fatalf("%v: %v", s.now, d.broken)
	}
	for _, o := range d.orders {
		s.after(time.Duration(1+s.rnd.IntN(400))*time.Millisecond, func() { s.carry(d, o) })
	}
	d.orders = nil
	return at, ok
}

// carry does what an order says, as the server would, and answers the desk that gave
// it, if that is there still.
func (s *sim) carry(d *desk, o task) {
	if d != s.desk {
		return // whoever comes after a leader waits until nothing of it is on its way
	}
	p := s.pods[o.key]
	there := p != nil && p.UID == o.uid
	if o.kind == orderStop {
		if there && p.DeletionTimestamp == nil {
			s.stopped[p.Labels[cluster.GangLabel]]++
			s.remove(o.key, o.uid)
		}
		s.answer(d, result{task: o})
		return
	}
	r := result{task: o}
	switch {
	case !there || p.DeletionTimestamp != nil:
		r.node, r.err = "", errGone
	case p.Spec.NodeName != "":
		r.node = lockstep.NodeID(p.Spec.NodeName)
	case s.lossy && s.rnd.IntN(20) == 0:
		r.node, r.err = "", fmt.Errorf("it did not work")
	default:
		s.bound++
		node := string(o.node)
		alter := func(p *corev1.Pod) {
			p.Spec.NodeName = node
			maps.Copy(p.Annotations, o.binding.Annotations)
		}
		if s.rnd.IntN(2) == 0 { // the watch is faster than the answer
			s.change(o.key, o.uid, alter)
			break
		}
		// The other way round: the server has it, and tells the desk later.
		c := p.DeepCopy()
		alter(c)
		s.pods[o.key] = c
		s.check(c)
		s.after(time.Duration(s.rnd.IntN(200))*time.Millisecond, func() { s.change(o.key, o.uid, func(*corev1.Pod) {}) })
	}
	s.answer(d, r)
}

func (s *sim) answer(d *desk, r result) {
	if d != s.desk {
		return // it was asked by one that is no more
	}
	if r.kind == orderStop {
		d.stopped(r)
	} else {
		d.bound(r)
	}
}

// run lets time pass.
func (s *sim) run(d time.Duration) {
	end := s.now.Add(d)
	for {
		at, ok := s.turn()
		if !ok || at.After(end) {
			at = end
		}
		slices.SortStableFunc(s.later, func(a, b happening) int {
			if c := a.at.Compare(b.at); c != 0 {
				return c
			}
			return a.n - b.n
		})
		if len(s.later) > 0 && !s.later[0].at.After(at) {
			next := s.later[0]
			s.later = s.later[1:]
			s.now = later(s.now, next.at)
			next.do()
			continue
		}
		s.now = later(s.now, at)
		if !s.now.Before(end) {
			return
		}
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (s *sim) lists() (pods []corev1.Pod, nodes []corev1.Node) {
	for _, k := range slices.Sorted(maps.Keys(s.pods)) {
		pods = append(pods, *s.pods[k])
	}
	for _, k := range slices.Sorted(maps.Keys(s.nodes)) {
		nodes = append(nodes, *s.nodes[k])
	}
	return pods, nodes
}

// check fails the test when the node of a pod that changed has too much on it.
func (s *sim) check(changed *corev1.Pod) {
	if changed == nil || changed.Spec.NodeName == "" {
		return
	}
	n, used := s.nodes[changed.Spec.NodeName], int64(0)
	if n == nil {
		return
	}
	for _, p := range s.pods { // a sum, so order cannot matter
		if p.Spec.NodeName == n.Name && !cluster.Over(p) {
			used += cluster.Devices(p)
		}
	}
	if q := n.Status.Allocatable[cluster.GPU]; used > q.Value() {
		s.t.Fatalf("%v: node %s has %d devices, and its pods ask for %d", s.now, n.Name, q.Value(), used)
	}
}

// atRest fails the test where a gang is bound in part.
func (s *sim) atRest() {
	s.t.Helper()
	pods, _ := s.lists()
	for _, err := range cluster.PartlyBound(pods) {
		s.t.Errorf("%v: %v", s.now, err)
	}
}

// boundGangs returns how many gangs are bound whole.
func (s *sim) boundGangs() (n int) {
	pods, _ := s.lists()
	for _, g := range cluster.Tally(pods) {
		if g.Bound >= g.Members {
			n++
		}
	}
	return n
}
