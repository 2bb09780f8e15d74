package e2e

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
)

// boundAtLeast waits until so many pods are bound.
func (w *world) boundAtLeast(n int) {
	w.t.Helper()
	w.eventually(20*time.Second, func() error {
		pods, _, err := w.look()
		if err != nil {
			return err
		}
		bound := 0
		for i := range pods {
			if pods[i].Spec.NodeName != "" {
				bound++
			}
		}
		if bound < n {
			return fmt.Errorf("%d pods are bound, want %d", bound, n)
		}
		return nil
	})
}

func TestKilledSchedulerLeavesNothingHalfDone(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 60, GPUs: 8, Rack: 4}, cluster.Kubelet{})
	gangs := w.gangs("g", 50, 8, 1)
	gangs[5].Absent, gangs[25].Absent = 1, 1
	w.make(gangs...)
	for _, n := range []int{20, 120, 250} {
		p := w.process("scheduler-"+strconv.Itoa(n), "-leader-elect=false", "-parallel=4")
		w.boundAtLeast(n)
		check(t, p.Process.Kill())
		_ = p.Wait() // it was killed
	}
	w.process("last", "-leader-elect=false")
	w.rests(30*time.Second, 48, 2)
	if n := w.controller.Made(); n > 0 {
		t.Errorf("%d pods had to be made anew: half-bound gangs were not gone on with", n)
	}
}

func TestServerThatGoesAwayAndComesBack(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 60, GPUs: 8, Rack: 4}, cluster.Kubelet{})
	gangs := w.gangs("g", 50, 8, 1)
	gangs[5].Absent = 1
	w.make(gangs...)
	cfg := w.config()
	cfg.Parallel = 4
	w.schedule(cfg)
	w.boundAtLeast(40)
	check(t, control.Kill())
	check(t, control.Restart(w.ctx))
	w.rests(60*time.Second, 49, 1)
}

// bind binds a pod as somebody else would.
func (w *world) bind(pod, node string) error {
	return w.client.CoreV1().Pods(w.ns).Bind(w.ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, createOptions)
}

func TestSomebodyElseBindsAndDeletes(t *testing.T) {
	nodes := cluster.Nodes{Count: 40, GPUs: 8, Rack: 4}
	w := newWorld(t, nodes, cluster.Kubelet{})
	w.watch.forgive() // the other looks at nothing
	w.make(w.gangs("g", 30, 8, 1)...)
	cfg := w.config()
	cfg.Parallel = 2
	w.schedule(cfg)
	now := int64(0)
	for i := range 30 {
		name := fmt.Sprintf("g%03d-%d", 29-i, i%8)
		var err error
		if i%2 == 0 {
			err = w.bind(name, nodes.Name(39-i/4))
		} else {
			err = w.client.CoreV1().Pods(w.ns).Delete(w.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	w.rests(60*time.Second, 30, 0)
}

func TestNodesThatGo(t *testing.T) {
	nodes := cluster.Nodes{Count: 24, GPUs: 8, Rack: 4}
	w := newWorld(t, nodes, cluster.Kubelet{})
	w.make(w.gangs("g", 20, 8, 1)...)
	cfg := w.config()
	cfg.Parallel = 2
	w.schedule(cfg)
	for i := range 8 {
		w.boundAtLeast(10 * (i + 1))
		if i%2 == 0 {
			check(t, w.client.CoreV1().Nodes().Delete(w.ctx, nodes.Name(i), metav1.DeleteOptions{}))
			continue
		}
		_, err := w.client.CoreV1().Nodes().Patch(w.ctx, nodes.Name(i), types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
		check(t, err)
	}
	w.rests(60*time.Second, 20, 0)
	pods, all, err := w.look()
	check(t, err)
	there := make(map[string]bool)
	for i := range all {
		there[all[i].Name] = true
	}
	for i := range pods {
		if !there[pods[i].Spec.NodeName] {
			t.Errorf("pod %s is on %s, which is no more", pods[i].Name, pods[i].Spec.NodeName)
		}
	}
}

func TestLeaderThatSleepsPastItsLease(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 60, GPUs: 8, Rack: 4}, cluster.Kubelet{})
	lease := []string{"-lease-duration=2s", "-renew-deadline=1200ms", "-retry-period=200ms", "-parallel=2"}
	first := w.process("first", lease...)
	w.holds("first")
	w.process("second", lease...)
	gangs := w.gangs("g", 40, 8, 1)
	gangs[7].Absent = 1
	w.make(gangs[:20]...)
	w.boundAtLeast(30)
	check(t, first.Process.Signal(syscall.SIGSTOP))
	w.holds("second")
	w.make(gangs[20:]...)
	w.boundAtLeast(200)
	check(t, first.Process.Signal(syscall.SIGCONT))
	w.rests(40*time.Second, 39, 1)
	w.holds("second")

	// A graceful end gives the lease back at once.
	check(t, first.Process.Signal(syscall.SIGTERM))
	if err := first.Wait(); err != nil {
		t.Errorf("the first ended with %v", err)
	}
}

// holds waits until identity has the lease.
func (w *world) holds(identity string) {
	w.t.Helper()
	w.eventually(20*time.Second, func() error {
		l, err := w.client.CoordinationV1().Leases(w.ns).Get(w.ctx, "lockstep", getOptions)
		if err != nil {
			return err
		}
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != identity {
			return fmt.Errorf("the lease is not held by %s: %v", identity, l.Spec.HolderIdentity)
		}
		return nil
	})
}
