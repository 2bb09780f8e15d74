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
	w.T.Helper()
	w.Eventually(20*time.Second, func() error {
		pods, _, err := w.Look()
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
	gangs := w.Gangs("g", 50, 8, 1)
	gangs[5].Absent, gangs[25].Absent = 1, 1
	w.Make(gangs...)
	for _, n := range []int{20, 120, 250} {
		p := w.process("scheduler-"+strconv.Itoa(n), "-leader-elect=false", "-parallel=4")
		w.boundAtLeast(n)
		cluster.Check(t, p.Process.Kill())
		_ = p.Wait() // it was killed
	}
	w.process("last", "-leader-elect=false")
	w.Rests(30*time.Second, 48, 2)
	if n := w.Controller.Made(); n > 0 {
		t.Errorf("%d pods had to be made anew: half-bound gangs were not gone on with", n)
	}
}

func TestServerThatGoesAwayAndComesBack(t *testing.T) {
	w := newWorld(t, cluster.Nodes{Count: 60, GPUs: 8, Rack: 4}, cluster.Kubelet{})
	gangs := w.Gangs("g", 50, 8, 1)
	gangs[5].Absent = 1
	w.Make(gangs...)
	cfg := w.config()
	cfg.Parallel = 4
	w.schedule(cfg)
	w.boundAtLeast(40)
	cluster.Check(t, control.Kill())
	cluster.Check(t, control.Restart(w.Ctx))
	w.Rests(60*time.Second, 49, 1)
}

// bind binds a pod as somebody else would.
func (w *world) bind(pod, node string) error {
	return w.Client.CoreV1().Pods(w.Namespace).Bind(w.Ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, createOptions)
}

func TestSomebodyElseBindsAndDeletes(t *testing.T) {
	nodes := cluster.Nodes{Count: 40, GPUs: 8, Rack: 4}
	w := newWorld(t, nodes, cluster.Kubelet{})
	w.watch.forgive() // the other looks at nothing
	w.Make(w.Gangs("g", 30, 8, 1)...)
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
			err = w.Client.CoreV1().Pods(w.Namespace).Delete(w.Ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		}
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	w.Rests(60*time.Second, 30, 0)
}

func TestNodesThatGo(t *testing.T) {
	nodes := cluster.Nodes{Count: 24, GPUs: 8, Rack: 4}
	w := newWorld(t, nodes, cluster.Kubelet{})
	w.Make(w.Gangs("g", 20, 8, 1)...)
	cfg := w.config()
	cfg.Parallel = 2
	w.schedule(cfg)
	for i := range 8 {
		w.boundAtLeast(10 * (i + 1))
		if i%2 == 0 {
			cluster.Check(t, w.Client.CoreV1().Nodes().Delete(w.Ctx, nodes.Name(i), metav1.DeleteOptions{}))
			continue
		}
		_, err := w.Client.CoreV1().Nodes().Patch(w.Ctx, nodes.Name(i), types.StrategicMergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
		cluster.Check(t, err)
	}
	w.Rests(60*time.Second, 20, 0)
	pods, all, err := w.Look()
	cluster.Check(t, err)
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
	gangs := w.Gangs("g", 40, 8, 1)
	gangs[7].Absent = 1
	w.Make(gangs[:20]...)
	w.boundAtLeast(30)
	cluster.Check(t, first.Process.Signal(syscall.SIGSTOP))
	w.holds("second")
	w.Make(gangs[20:]...)
	w.boundAtLeast(200)
	cluster.Check(t, first.Process.Signal(syscall.SIGCONT))
	w.Rests(40*time.Second, 39, 1)
	w.holds("second")

	// A graceful end gives the lease back at once.
	cluster.Check(t, first.Process.Signal(syscall.SIGTERM))
	if err := first.Wait(); err != nil {
		t.Errorf("the first ended with %v", err)
	}
}

// holds waits until identity has the lease.
func (w *world) holds(identity string) {
	w.T.Helper()
	w.Eventually(20*time.Second, func() error {
		l, err := w.Client.CoordinationV1().Leases(w.Namespace).Get(w.Ctx, "lockstep", getOptions)
		if err != nil {
			return err
		}
		if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != identity {
			return fmt.Errorf("the lease is not held by %s: %v", identity, l.Spec.HolderIdentity)
		}
		return nil
	})
}
