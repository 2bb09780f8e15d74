package standalone

import (
	"context"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
)

type ctxOf = context.Context

// apiServer returns a fake that binds and deletes pods as the real one does.
func apiServer(t *testing.T, n cluster.Nodes, gangs ...cluster.Gang) *fake.Clientset {
	t.Helper()
	c := fake.NewClientset()
	c.PrependReactor("create", "pods", func(a ktesting.Action) (bool, pruntime.Object, error) {
		if a.GetSubresource() != "binding" {
			return false, nil, nil
		}
		b := a.(ktesting.CreateAction).GetObject().(*corev1.Binding)
		obj, err := c.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), b.Namespace, b.Name)
		if err != nil {
			return true, nil, err
		}
		p := obj.(*corev1.Pod).DeepCopy()
		p.Spec.NodeName = b.Target.Name
		if p.Annotations == nil {
			p.Annotations = make(map[string]string)
		}
		for k, v := range b.Annotations { // a copy, so order cannot matter
			p.Annotations[k] = v
		}
		return true, b, c.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), p, b.Namespace)
	})
	for i := range n.Count {
		if err := c.Tracker().Add(n.Object(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, g := range gangs {
		for i := range g.Members - g.Absent {
			p := g.Pod(i)
			p.UID = types.UID(g.Name + p.Name)
			if err := c.Tracker().Add(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	return c
}

// counts is a Recorder that counts.
type counts struct{ ch chan lockstep.Metric }

func (c counts) Count(m lockstep.Metric, _ lockstep.MetricLabels, n int64) {
	if m == MetricBindings {
		c.ch <- m
	}
}
func (counts) Gauge(lockstep.Metric, lockstep.MetricLabels, float64)   {}
func (counts) Observe(lockstep.Metric, lockstep.MetricLabels, float64) {}

func TestRunBindsAndLeavesNothingBehind(t *testing.T) {
	before := runtime.NumGoroutine()
	g := cluster.Gang{Namespace: "x", Name: "g", Scheduler: "lockstep-scheduler", Members: 4, GPUs: 2}
	client := apiServer(t, cluster.Nodes{Count: 2, GPUs: 8}, g)
	rec := counts{make(chan lockstep.Metric, 16)}
	s, err := New(Config{
		Client: client, Recorder: rec, Listen: "127.0.0.1:0",
		Election: Election{Term: 3 * time.Second, Lease: ObjectName{Namespace: "x", Name: "l"}},
		Metrics:  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "some 1\n") }),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	for range 4 {
		select {
		case <-rec.ch:
		case <-time.After(20 * time.Second):
			t.Fatal("not bound in time")
		}
	}
	for path, want := range map[string]string{"/healthz": "ok", "/readyz": "ok", "/metrics": "some 1"} { // each on its own
		resp, err := http.Get("http://" + s.Addr() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK || strings.TrimSpace(string(body)) != want {
			t.Errorf("%s: %s %q", path, resp.Status, body)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if !s.Leading() {
		t.Error("it does not lead")
	}
	list, err := client.CoreV1().Pods("x").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.NodeName == "" || p.Annotations[PlanAnnotation] != "node-00000:4" {
			t.Errorf("%s is on %q with the plan %q", p.Name, p.Spec.NodeName, p.Annotations[PlanAnnotation])
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run returned %v", err)
	}
	l, err := client.CoordinationV1().Leases("x").Get(t.Context(), "l", metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != "" {
		t.Errorf("the lease was not given back: %+v, %v", l, err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond) // goroutines of the fake's watches end by themselves
	}
	if n := runtime.NumGoroutine(); n > before {
		buf := make([]byte, 1<<16)
		t.Errorf("%d goroutines are left of %d:\n%s", n, before, buf[:runtime.Stack(buf, true)])
	}
}

func TestAddressThatIsTaken(t *testing.T) {
	client := fake.NewClientset()
	s, err := New(Config{Client: client, Listen: "256.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil {
		t.Error("it runs without the address that it was given")
	}
}
