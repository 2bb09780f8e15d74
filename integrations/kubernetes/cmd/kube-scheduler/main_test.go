package main

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
)

func TestGangsAreBoundWholeOrNotAtAll(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 20, GPUs: 8, Rack: 4}, cluster.Kubelet{})
	gangs := w.Gangs("g", 12, 8, 1)
	gangs[3].Absent, gangs[7].Absent = 1, 1
	w.Make(gangs...)
	w.schedule("one")
	w.Rests(40*time.Second, 10, 2)

	// The missing pod of one comes late.
	_, err := w.Client.CoreV1().Pods(w.Namespace).Create(w.Ctx, gangs[3].Pod(7), metav1.CreateOptions{})
	cluster.Check(t, err)
	w.Rests(20*time.Second, 11, 1)
	for i := range gangs[3].Members {
		p, err := w.Client.CoreV1().Pods(w.Namespace).Get(w.Ctx, fmt.Sprintf("%s-%d", gangs[3].Name, i), metav1.GetOptions{})
		cluster.Check(t, err)
		if got := p.Annotations["lockstep.dev/rank"]; got != fmt.Sprint(i) {
			t.Errorf("pod %s has rank %q", p.Name, got)
		}
	}
}

func TestPreemptionTakesWholeGangs(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 4, GPUs: 8, Rack: 2}, cluster.Kubelet{Stop: 300 * time.Millisecond})
	low := w.Gangs("low", 4, 8, 1)
	for i := range low {
		low[i].Grace = 5
	}
	w.Make(low...)
	w.schedule("one")
	w.Rests(40*time.Second, 4, 0)
	high := w.Gangs("high", 1, 8, 1)
	high[0].Priority, high[0].Annotations = 100, map[string]string{cluster.RunAnnotation: "3s"}
	w.Make(high...)
	w.Rests(30*time.Second, 4, 1)
	if n := w.Controller.Made(); n != 8 {
		t.Errorf("%d pods had to make room, want those of one gang", n)
	}
	w.Rests(40*time.Second, 5, 0) // the victim is back, behind the one that ended
}

func TestKilledInMidBacklog(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 40, GPUs: 8, Rack: 4}, cluster.Kubelet{})
	gangs := w.Gangs("g", 40, 8, 1)
	for i := range gangs {
		gangs[i].Absent = i / 38 // two are one pod short
	}
	w.Make(gangs...)
	cmd := w.schedule("first")
	w.Eventually(40*time.Second, func() error {
		pods, _, err := w.Look()
		if err != nil {
			return err
		}
		n := 0
		for i := range pods {
			if pods[i].Spec.NodeName != "" {
				n++
			}
		}
		if n < 20 {
			return fmt.Errorf("%d pods are bound", n)
		}
		return nil
	})
	cluster.Check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	w.schedule("second")
	w.Rests(60*time.Second, 38, 2)
}

// TestRefusedByAnotherPlugin has pods of one gang that cannot share a node for a cause
// that only kube-scheduler's own plugins see.
func TestRefusedByAnotherPlugin(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 1, GPUs: 8, Rack: 1}, cluster.Kubelet{})
	g := w.Gangs("port", 1, 2, 1)[0]
	for i := range g.Members {
		p := g.Pod(i)
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 8080}}
		_, err := w.Client.CoreV1().Pods(w.Namespace).Create(w.Ctx, p, metav1.CreateOptions{})
		cluster.Check(t, err)
	}
	w.schedule("one")
	other := w.Gangs("other", 1, 2, 1)
	w.Make(other...)
	w.Rests(40*time.Second, 1, 1)
	w.Eventually(20*time.Second, func() error { return w.told("one", "free ports") })
	pods, _, err := w.Look()
	cluster.Check(t, err)
	for i := range pods {
		if p := &pods[i]; p.Labels[cluster.GangLabel] == g.Name && p.Spec.NodeName != "" {
			t.Errorf("%s is bound", p.Name)
		}
	}
}

// TestOneOfTwoActs stops one of two schedulers for longer than its lease.
func TestOneOfTwoActs(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 20, GPUs: 8, Rack: 4}, cluster.Kubelet{})
	first := w.schedule("first")
	w.Make(w.Gangs("a", 5, 8, 1)...)
	w.Rests(40*time.Second, 5, 0)
	w.schedule("second")
	stop(t, first)
	w.Make(w.Gangs("b", 5, 8, 1)...)
	w.Rests(40*time.Second, 10, 0)
	resume(t, first)
	w.Make(w.Gangs("c", 5, 8, 1)...)
	w.Rests(40*time.Second, 15, 0)
}

// TestThereIsNothingToBeginWith starts a scheduler that has no nodes, and whose first
// pods never get as far as the plugin: some are gated, others have no volume.
func TestThereIsNothingToBeginWith(t *testing.T) {
	w := newWorld(t, cluster.Nodes{}, cluster.Kubelet{})
	stuck := w.Gangs("stuck", 1, 40, 1)[0]
	for i := range stuck.Members {
		p := stuck.Pod(i)
		if i%2 == 0 {
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
		} else {
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "missing"}}}}
		}
		_, err := w.Client.CoreV1().Pods(w.Namespace).Create(w.Ctx, p, metav1.CreateOptions{})
		cluster.Check(t, err)
	}
	w.schedule("one")
	w.Eventually(30*time.Second, func() error { return w.told("one", "no nodes are registered") })
	w.Make(w.Gangs("g", 6, 8, 1)...)
	cluster.Check(t, cluster.MakeNodes(w.Ctx, w.Client, cluster.Nodes{Count: 10, GPUs: 8, Rack: 2}))
	w.Rests(60*time.Second, 6, 1)
}

// TestPodGroups says what a gang is with the objects of Kubernetes.
func TestPodGroups(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 8, GPUs: 8, Rack: 4}, cluster.Kubelet{})
	gangs := w.Gangs("g", 4, 8, 1)
	for i := range gangs {
		gangs[i].Native = true
	}
	gangs[2].Absent = 1
	w.Make(gangs...)
	w.schedule("one")
	w.Rests(40*time.Second, 3, 1)
}

// TestTwoProfiles has two profiles with the plugin decide about the same nodes, of
// which they need all.
func TestTwoProfiles(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 6, GPUs: 8, Rack: 2}, cluster.Kubelet{})
	first, second := w.Gangs("a", 3, 8, 1), w.Gangs("b", 3, 8, 1)
	for i := range second {
		second[i].Scheduler = "other-scheduler"
	}
	w.Make(append(first, second...)...)
	w.schedule("both", cluster.SchedulerName, "other-scheduler")
	w.Rests(150*time.Second, 6, 0)
}

// TestPodsThatLeaveWhileTheirGangIsBound deletes pods as a Job does, with a finalizer that
// keeps them, while gangs are being bound.
func TestPodsThatLeaveWhileTheirGangIsBound(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 20, GPUs: 8, Rack: 4}, cluster.Kubelet{})
	gangs := w.Gangs("g", 12, 8, 1)
	for i := range gangs {
		for k := range gangs[i].Members {
			p := gangs[i].Pod(k)
			if k == 0 && i%3 == 0 {
				p.Finalizers = []string{"example.com/keep"}
			}
			_, err := w.Client.CoreV1().Pods(w.Namespace).Create(w.Ctx, p, metav1.CreateOptions{})
			cluster.Check(t, err)
		}
	}
	w.schedule("one")
	w.Eventually(40*time.Second, func() error { return w.told("one", "Handlers synced") })
	for i := 0; i < len(gangs); i += 3 {
		name := gangs[i].Name + "-0"
		cluster.Check(t, w.Client.CoreV1().Pods(w.Namespace).Delete(w.Ctx, name, metav1.DeleteOptions{}))
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	for i := 0; i < len(gangs); i += 3 {
		_, err := w.Client.CoreV1().Pods(w.Namespace).Patch(w.Ctx, gangs[i].Name+"-0", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		cluster.Check(t, err)
	}
	w.Rests(150*time.Second, 12, 0) // the controller makes them anew
}
