package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/internal/plane"
)

// SchedulerName is spec.schedulerName of all pods of a World.
const SchedulerName = "lockstep-scheduler"

// World is what one test has: a namespace, nodes, kubelets, and a controller that
// makes pods anew. Make one with NewWorld. Its methods end the test where they fail.
type World struct {
	T          *testing.T
	Ctx        context.Context      // Ctx ends with the test, or long before a test binary's own limit.
	Client     kubernetes.Interface // Client may do everything.
	Namespace  string               // Namespace is named after the test.
	Controller *Controller          // Controller makes pods anew that are deleted.
}

// NewWorld makes a World on p. Everything of it ends with the test. Without a plane the
// test is skipped, or fails where one is required.
func NewWorld(t *testing.T, p *plane.Plane, n Nodes, k Kubelet) *World {
	t.Helper()
	// Both are read here too, since a result that is kept does not know what
	// TestMain reads.
	if assets, required := os.Getenv(plane.Env), os.Getenv(plane.RequireEnv); p == nil {
		if assets != "" || required == "1" {
			t.Fatal("there is no plane")
		}
		t.Skipf("%s names no folder with etcd and kube-apiserver", plane.Env)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	t.Cleanup(cancel)
	client, err := Client(p, plane.Admin)
	Check(t, err)
	ns := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	made, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: ns[:min(len(ns), 50)] + "-"}}, metav1.CreateOptions{})
	Check(t, err)
	w := &World{T: t, Ctx: ctx, Client: client, Namespace: made.Name}
	Check(t, MakeNodes(ctx, client, n))
	t.Cleanup(w.clear)

	k.Client = client
	w.Controller = &Controller{Client: client, After: 20 * time.Millisecond}
	playing, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { k.Run(playing) })
	all.Go(func() { w.Controller.Run(playing) })
	t.Cleanup(func() {
		stop()
		all.Wait()
	})
	return w
}

// clear removes what the test made.
func (w *World) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	now := int64(0)
	gone := metav1.DeleteOptions{GracePeriodSeconds: &now}
	_ = w.Client.CoreV1().Pods(w.Namespace).DeleteCollection(ctx, gone, metav1.ListOptions{})
	_ = w.Client.CoreV1().Nodes().DeleteCollection(ctx, gone, metav1.ListOptions{})
	_ = w.Client.SchedulingV1beta1().PodGroups(w.Namespace).DeleteCollection(ctx, gone, metav1.ListOptions{})
}

// Check ends the test where there is an error.
func Check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Gangs returns n gangs of the namespace.
func (w *World) Gangs(prefix string, n, members, gpus int) []Gang {
	out := make([]Gang, n)
	for i := range out {
		out[i] = Gang{Namespace: w.Namespace, Name: fmt.Sprintf("%s%03d", prefix, i), Scheduler: SchedulerName, Members: members, GPUs: gpus}
	}
	return out
}

// Make makes the pods of gangs.
func (w *World) Make(gangs ...Gang) {
	w.T.Helper()
	Check(w.T, MakeGangs(w.Ctx, w.Client, gangs...))
}

// Look returns all pods of the namespace, and all nodes.
func (w *World) Look() ([]corev1.Pod, []corev1.Node, error) {
	ps, err := w.Client.CoreV1().Pods(w.Namespace).List(w.Ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	ns, err := w.Client.CoreV1().Nodes().List(w.Ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	return ps.Items, ns.Items, nil
}

// Eventually waits until ok returns nil.
func (w *World) Eventually(within time.Duration, ok func() error) {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.Ctx, within)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			w.T.Fatalf("not within %v: %v", within, err)
		case <-tick.C:
		}
	}
}

// Rests waits until bound gangs are bound whole, waiting ones are not bound at all, and
// no node has too much on it; and that it stays so for a while.
func (w *World) Rests(within time.Duration, bound, waiting int) {
	w.T.Helper()
	calm := 0
	w.Eventually(within, func() error {
		err := w.AtRest(bound, waiting)
		if err != nil {
			calm = 0
			return err
		}
		if calm++; calm < 6 {
			return errors.New("it has not stayed so")
		}
		return nil
	})
}

// AtRest says what keeps the world from resting so.
func (w *World) AtRest(bound, waiting int) error {
	pods, nodes, err := w.Look()
	if err != nil {
		return err
	}
	if err := Audit(pods, nodes); err != nil {
		return err
	}
	whole, none := 0, 0
	for _, g := range Tally(pods) {
		switch {
		case g.Leaving > 0:
			return fmt.Errorf("gang %s has %d pods that are being deleted", g.Name, g.Leaving)
		case g.Bound >= g.Members:
			whole++
		case g.Bound == 0:
			none++
		}
	}
	if whole != bound || none != waiting {
		return fmt.Errorf("%d gangs are bound and %d wait, want %d and %d", whole, none, bound, waiting)
	}
	return nil
}
