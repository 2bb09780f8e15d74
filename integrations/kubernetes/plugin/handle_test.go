package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// handle is what the plugin needs of a framework.
type handle struct {
	fwk.Handle
	client  kubernetes.Interface
	factory informers.SharedInformerFactory

	mu     sync.Mutex
	woken  map[string]bool // pods that were to enter the queue
	waits  map[types.UID]*waitingPod
	extend []fwk.Extender
}

func (h *handle) ClientSet() kubernetes.Interface                        { return h.client }
func (h *handle) SharedInformerFactory() informers.SharedInformerFactory { return h.factory }
func (h *handle) ProfileName() string                                    { return "lockstep-scheduler" }
func (h *handle) Extenders() []fwk.Extender                              { return h.extend }

func (h *handle) Activate(_ klog.Logger, pods map[string]*corev1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key := range pods { // into a set, so order cannot matter
		h.woken[key] = true
	}
}

func (h *handle) GetWaitingPod(uid types.UID) fwk.WaitingPod {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.waits[uid]; w != nil {
		return w
	}
	return nil
}

// wait does what the framework does when Permit has said that a pod waits.
func (h *handle) wait(uid types.UID) *waitingPod {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &waitingPod{end: make(chan bool, 1)}
	h.waits[uid] = w
	return w
}

type waitingPod struct {
	fwk.WaitingPod
	end chan bool
}

func (w *waitingPod) Allow(string) { w.end <- true }

func (w *waitingPod) Reject(string, string) bool {
	select {
	case w.end <- false:
	default:
	}
	return true
}

// cycle is the state of a cycle.
type cycle struct {
	fwk.CycleState
	data map[fwk.StateKey]fwk.StateData
}

func (c *cycle) Read(key fwk.StateKey) (fwk.StateData, error) {
	if d, ok := c.data[key]; ok {
		return d, nil
	}
	return nil, errors.New("not there")
}

func (c *cycle) Write(key fwk.StateKey, d fwk.StateData) {
	if c.data == nil {
		c.data = make(map[fwk.StateKey]fwk.StateData)
	}
	c.data[key] = d
}

type refusals struct{ fwk.NodeToStatusReader }

func (refusals) Get(string) *fwk.Status { return fwk.NewStatus(fwk.Unschedulable, "no ports") }

// started returns a plugin with a framework that has pods.
func started(t *testing.T, args string, pods ...*corev1.Pod) (*Plugin, *handle) {
	t.Helper()
	objects := make([]runtime.Object, len(pods))
	for i, p := range pods {
		objects[i] = p
	}
	client := fake.NewClientset(objects...)
	h := &handle{client: client, factory: informers.NewSharedInformerFactory(client, 0), woken: make(map[string]bool), waits: make(map[types.UID]*waitingPod)}
	made, err := New(t.Context(), &runtime.Unknown{Raw: []byte(args)}, h)
	require.NoError(t, err)
	p := made.(*Plugin)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	ctx, cancel := context.WithCancel(context.Background())
	h.factory.StartWithContext(ctx)
	t.Cleanup(func() {
		cancel()
		h.factory.Shutdown()
	})
	for kind, ok := range h.factory.WaitForCacheSync(ctx.Done()) { // all of them, in any order
		require.True(t, ok, kind)
	}
	// The client drops what happens before its watch has begun.
	lister, serial := h.factory.Core().V1().Pods().Lister().Pods("other"), 0
	soon(t, "watching", func() bool {
		serial++
		name := fmt.Sprint("sentinel", serial)
		_, err := client.CoreV1().Pods("other").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: name}}, metav1.CreateOptions{})
		if err != nil {
			return false
		}
		time.Sleep(5 * time.Millisecond)
		_, err = lister.Get(name)
		return err == nil
	})
	return p, h
}

func podOf(gang string, i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(gang, i), UID: uidOf(gang, i)},
		Spec:       corev1.PodSpec{SchedulerName: "lockstep-scheduler"},
	}
}

func podsOf(gang string, n int) []*corev1.Pod {
	list := make([]*corev1.Pod, n)
	for i := range list {
		list[i] = podOf(gang, i)
	}
	return list
}

// bind has the pods of a gang pinned to a node, as the part that decides does.
func (h *handle) bind(p *Plugin, gang string, n int, node string) *outcome {
	b, o := batchOf(gang, n, node)
	list := make([]*corev1.Binding, n)
	for i := range list {
		list[i] = b.items[i].binding
	}
	pinner{p}.Bind(gang, list, o.done)
	return o
}

func (o *outcome) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ends)
}

func (o *outcome) first(i int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ends[i][0]
}

func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 10*time.Second, time.Millisecond, what)
}

func isPinned(p *Plugin, pods ...*corev1.Pod) func() bool {
	return func() bool {
		for _, pod := range pods {
			if _, ok := p.board.get(pod.UID); !ok {
				return false
			}
		}
		return true
	}
}

// through takes a pod as far as Permit.
func through(t *testing.T, p *Plugin, pod *corev1.Pod, node string) (*cycle, *fwk.Status) {
	t.Helper()
	c := &cycle{}
	r, s := p.PreFilter(t.Context(), c, pod, nil)
	require.True(t, s.IsSuccess(), s)
	require.True(t, r.NodeNames.Has(node))
	s = p.Reserve(t.Context(), c, pod, node)
	require.True(t, s.IsSuccess(), s)
	s, _ = p.Permit(t.Context(), c, pod, node)
	return c, s
}
