package standalone

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness/quota"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
)

func TestGangIsAllOrNothing(t *testing.T) {
	s := newSim(t, 1, cluster.Nodes{Count: 4, GPUs: 8})
	s.gang(cluster.Gang{Name: "whole", Members: 8, GPUs: 1})
	s.gang(cluster.Gang{Name: "short", Members: 8, Absent: 1, GPUs: 1})
	s.run(10 * time.Second)
	s.atRest()
	if n := s.boundGangs(); n != 1 {
		t.Errorf("%d gangs are bound, want 1", n)
	}
	late := cluster.Gang{Namespace: "sim", Scheduler: "lockstep-scheduler", Name: "short", Members: 8, GPUs: 1}
	s.create(late.Pod(7))
	s.run(10 * time.Second)
	if n := s.boundGangs(); n != 2 {
		t.Errorf("%d gangs are bound, want 2", n)
	}
	if s.bound != 16 {
		t.Errorf("%d bindings for 16 pods", s.bound)
	}
}

// Whatever others do, and whenever the scheduler is killed, in the end every gang is
// bound whole where there is room, and no node ever has too much on it.
func TestWorldComesToRest(t *testing.T) {
	for seed := range uint64(100) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			s := newSim(t, seed, cluster.Nodes{Count: 12, GPUs: 8})
			s.lossy = true
			for i := range 10 {
				s.gang(cluster.Gang{Name: fmt.Sprint("g", i), Members: 4 + 2*(i%3), GPUs: 1, Priority: int32(i % 2)})
				s.run(time.Duration(s.rnd.IntN(400)) * time.Millisecond)
				s.disturb()
			}
			for range 20 {
				s.run(time.Duration(s.rnd.IntN(800)) * time.Millisecond)
				s.disturb()
			}
			s.lossy = false
			s.open()
			s.run(5 * time.Minute)
			s.atRest()
			if n := s.boundGangs(); n != 10 {
				t.Errorf("%d gangs are bound, want 10", n)
				for id, j := range s.desk.jobs { // for people
					st, _ := s.desk.asm.State(id)
					t.Logf("%s: phase %d, %s, bound %d, leaving %d, in flight %d, retry %v", id, j.phase, st.Phase, st.Bound, len(st.Leaving), j.inflight, j.retry)
				}
			}
		})
	}
}

// open lets all nodes take pods.
func (s *sim) open() {
	for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
		n := s.nodes[name].DeepCopy()
		n.Spec.Unschedulable = false
		s.nodes[name] = n
		s.desk.node(name, n)
	}
}

// disturb does what somebody else might.
func (s *sim) disturb() {
	keys := slices.Sorted(maps.Keys(s.pods))
	key := keys[s.rnd.IntN(len(keys))]
	p := s.pods[key]
	switch s.rnd.IntN(6) {
	case 0:
		s.restart()
	case 1:
		s.remove(key, p.UID)
	case 2: // bound by somebody who looks at room, but at no gang
		for _, name := range slices.Sorted(maps.Keys(s.nodes)) {
			if p.Spec.NodeName == "" && p.DeletionTimestamp == nil && s.free(name) > 0 {
				s.change(key, p.UID, func(p *corev1.Pod) { p.Spec.NodeName = name })
				break
			}
		}
	case 3:
		name := slices.Sorted(maps.Keys(s.nodes))[s.rnd.IntN(len(s.nodes))]
		n := s.nodes[name].DeepCopy()
		n.Spec.Unschedulable = !n.Spec.Unschedulable && s.rnd.IntN(3) == 0
		s.nodes[name] = n
		s.desk.node(name, n)
	case 4:
		if len(s.nodes) > 10 {
			name := slices.Sorted(maps.Keys(s.nodes))[s.rnd.IntN(len(s.nodes))]
			delete(s.nodes, name)
			s.desk.node(name, nil)
		}
	}
}

// free returns how many devices of a node nobody has or is about to have.
func (s *sim) free(name string) int64 {
	a := s.desk.book.nodes[lockstep.NodeID(name)]
	if a == nil {
		return 0
	}
	return a.has - a.used
}

// In ten minutes of gangs that come with any priority and end, nobody is stopped but
// for somebody with more priority, and each of those stops others at most once.
func TestNobodyMakesRoomInTurns(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			s := newSim(t, seed, cluster.Nodes{Count: 4, GPUs: 8})
			arrivals := make(map[int32]int)
			priority, members := make(map[string]int32), make(map[string]int)
			end := s.now.Add(10 * time.Minute)
			for i := 0; s.now.Before(end); i++ {
				g := cluster.Gang{Name: fmt.Sprint("g", i), Members: 4 * (1 + s.rnd.IntN(3)), GPUs: 1, Priority: int32(s.rnd.IntN(4))}
				arrivals[g.Priority]++
				priority[g.Name], members[g.Name] = g.Priority, g.Members
				s.gang(g)
				s.run(time.Duration(s.rnd.IntN(10)) * time.Second)
				s.finishOne()
			}
			s.run(time.Minute)
			s.atRest()
			total, most := 0, 0
			for name, n := range s.stopped { // sums and maxima, so order cannot matter
				above := 0
				for p, k := range arrivals {
					if p > priority[name] {
						above += k
					}
				}
				if above == 0 {
					t.Errorf("%s was stopped, and nobody has more priority", name)
				}
				total += n
				most = max(most, n/members[name])
			}
			if total == 0 {
				t.Error("nobody was ever stopped, so this shows nothing")
			}
			if most > 12 {
				t.Errorf("some gang was stopped %d times in ten minutes", most)
			}
			t.Logf("%d gangs, %d pods stopped, no gang more than %d times", len(priority), total, most)
		})
	}
}

// finishOne lets the pods of one running gang end well.
func (s *sim) finishOne() {
	pods, _ := s.lists()
	for _, g := range cluster.Tally(pods) {
		if g.Bound < g.Members || g.Leaving > 0 {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(s.pods)) {
			if p := s.pods[key]; "sim/"+p.Labels[cluster.GangLabel] == g.Name && p.Spec.NodeName != "" && p.Status.Phase != corev1.PodSucceeded {
				s.change(key, p.UID, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
				s.after(time.Minute, func() { s.set(key, nil) })
			}
		}
		if s.rnd.IntN(2) == 0 {
			return
		}
	}
}

// TestQueuesHaveQuotas has one queue borrow what another is due, and give it back.
func TestQueuesHaveQuotas(t *testing.T) {
	s := newSim(t, 3, cluster.Nodes{Count: 4, GPUs: 8})
	s.cfg.Quota = quota.Config{Queues: []quota.Queue{{Name: "a", Weight: 1}, {Name: "b", Weight: 1}, {Name: "c", Weight: 0, Max: lockstep.Resources{lockstep.ResourceGPU: 0}}}}
	s.restart()
	for i := range 4 {
		s.gang(cluster.Gang{Name: fmt.Sprint("a", i), Members: 8, GPUs: 1, Annotations: map[string]string{"lockstep.dev/queue": "a"}})
	}
	s.gang(cluster.Gang{Name: "c", Members: 1, GPUs: 1, Annotations: map[string]string{"lockstep.dev/queue": "c"}})
	s.run(10 * time.Second)
	s.atRest()
	if n := s.boundGangs(); n != 4 {
		t.Fatalf("%d gangs are bound, want the 4 that borrow", n)
	}
	for i := range 2 {
		s.gang(cluster.Gang{Name: fmt.Sprint("b", i), Members: 8, GPUs: 1, Annotations: map[string]string{"lockstep.dev/queue": "b"}})
	}
	s.run(5 * time.Minute)
	s.atRest()
	var bound []string
	pods, _ := s.lists()
	for _, g := range cluster.Tally(pods) {
		if g.Bound > 0 {
			bound = append(bound, g.Name)
		}
	}
	if len(bound) != 4 || !slices.Contains(bound, "sim/b0") || !slices.Contains(bound, "sim/b1") {
		t.Errorf("bound are %v, want two of each queue", bound)
	}
	// A node more is room for one more of those that borrowed.
	more := cluster.Nodes{Prefix: "more-", GPUs: 8}.Object(0)
	s.nodes[more.Name] = more
	s.restart()
	s.run(5 * time.Minute)
	s.atRest()
	if n := s.boundGangs(); n != 5 {
		t.Errorf("%d gangs are bound, want 5", n)
	}
}

// TestInstancesOfDividedDevices places pods that ask for MIG instances.
func TestInstancesOfDividedDevices(t *testing.T) {
	s := newSim(t, 4, cluster.Nodes{Count: 1, GPUs: 8})
	n := cluster.Nodes{Prefix: "mig-"}.Object(0)
	n.Labels["nvidia.com/gpu.product"] = "NVIDIA-A100-SXM4-40GB"
	for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		delete(list, cluster.GPU)
		list["nvidia.com/mig-1g.5gb"] = resource.MustParse("7")
	}
	s.nodes[n.Name] = n
	s.desk.node(n.Name, n)
	for i := range 9 {
		p := cluster.Gang{Namespace: "sim", Scheduler: "lockstep-scheduler", Name: fmt.Sprint("m", i), Members: 1}.Pod(0)
		c := &p.Spec.Containers[0].Resources
		c.Requests["nvidia.com/mig-1g.5gb"], c.Limits["nvidia.com/mig-1g.5gb"] = resource.MustParse("1"), resource.MustParse("1")
		s.create(p)
	}
	s.run(time.Minute)
	s.atRest()
	if got := s.boundGangs(); got != 7 {
		t.Errorf("%d pods are bound, want one for each instance", got)
		for id := range s.desk.jobs { // for people
			st, _ := s.desk.asm.State(id)
			t.Log(id, st.Phase, st.Detail, st.Faults)
		}
	}
}

// TestGangsOfQueuesThatAreGone keeps others off the room of gangs that run and whose
// queue the tree does not have any more.
func TestGangsOfQueuesThatAreGone(t *testing.T) {
	s := newSim(t, 5, cluster.Nodes{Count: 2, GPUs: 8})
	s.gang(cluster.Gang{Name: "old", Members: 8, GPUs: 1, Annotations: map[string]string{"lockstep.dev/queue": "gone"}})
	s.run(10 * time.Second)
	s.cfg.Quota = quota.Config{Queues: []quota.Queue{{Name: "a", Weight: 1}}}
	s.restart()
	s.run(10 * time.Second)
	if free := s.desk.core.Usage().Free; free != 8 {
		t.Errorf("%d devices are free, want those of one node", free)
	}
	for i := range 2 {
		s.gang(cluster.Gang{Name: fmt.Sprint("a", i), Members: 8, GPUs: 1, Annotations: map[string]string{"lockstep.dev/queue": "a"}})
	}
	s.run(time.Minute)
	s.atRest()
	if n := s.boundGangs(); n != 2 {
		t.Errorf("%d gangs are bound, want the old one and one more", n)
	}
}
