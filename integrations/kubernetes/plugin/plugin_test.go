package plugin

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
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
	clienttesting "k8s.io/client-go/testing"
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

func (h *handle) activated() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.woken)
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

func TestAPodThatIsHeldOtherwiseIsNoProbe(t *testing.T) {
	p, _ := started(t, "")
	for i := range 2 * maxProbes {
		gated, leaving := podOf("gated", i), podOf("leaving", i)
		gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}}
		now := metav1.Now()
		leaving.DeletionTimestamp = &now
		require.False(t, p.PreEnqueue(t.Context(), gated).IsSuccess())
		require.False(t, p.PreEnqueue(t.Context(), leaving).IsSuccess())
	}
	require.True(t, p.PreEnqueue(t.Context(), podOf("g", 0)).IsSuccess())
}

// As long as there are no nodes, a pod comes into the queue again and again and no
// plugin is asked for it but PreEnqueue.
func TestAPodIsOneProbeHoweverOftenItComes(t *testing.T) {
	p, _ := started(t, "")
	for range 10 * maxProbes {
		require.True(t, p.PreEnqueue(t.Context(), podOf("g", 0)).IsSuccess())
	}
	require.True(t, p.PreEnqueue(t.Context(), podOf("g", 1)).IsSuccess())
}

func TestProbesThatAreGoneAreReplaced(t *testing.T) {
	pods := podsOf("g", maxProbes+5)
	p, h := started(t, "", pods...)
	for i, pod := range pods {
		require.Equal(t, i < maxProbes, p.PreEnqueue(t.Context(), pod).IsSuccess())
	}
	for _, pod := range pods[:maxProbes] {
		require.NoError(t, h.client.CoreV1().Pods("ns").Delete(t.Context(), pod.Name, metav1.DeleteOptions{}))
	}
	soon(t, "the others are woken", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, pod := range pods[maxProbes:] {
			if !h.woken["ns/"+pod.Name] {
				return false
			}
		}
		return true
	})
	require.True(t, p.PreEnqueue(t.Context(), pods[maxProbes]).IsSuccess())
}

// The framework takes any other code for an internal error, with no plugin to blame,
// and tries again and again.
func TestPreFilterRefusesWhatIsNotPinned(t *testing.T) {
	p, _ := started(t, "")
	_, s := p.PreFilter(t.Context(), &cycle{}, podOf("g", 0), nil)
	require.Equal(t, fwk.UnschedulableAndUnresolvable, s.Code())
	require.True(t, p.board.begun)
}

func TestDecidingBeginsThoughAnotherPluginRefuses(t *testing.T) {
	p, _ := started(t, "")
	_, s := p.PostFilter(t.Context(), &cycle{}, podOf("g", 0), refusals{})
	require.Equal(t, fwk.Unschedulable, s.Code())
	require.True(t, p.board.begun)
}

func TestARefusalEndsTheBatch(t *testing.T) {
	pods := podsOf("g", 3)
	for _, before := range []bool{false, true} {
		p, h := started(t, "", pods...)
		o := h.bind(p, "g", 3, "n")
		soon(t, "pinned", isPinned(p, pods...))
		c := &cycle{}
		if !before { // a plugin that comes before ours refused it
			_, s := p.PreFilter(t.Context(), c, pods[1], nil)
			require.True(t, s.IsSuccess())
		}
		r, s := p.PostFilter(t.Context(), c, pods[1], refusals{})
		require.Equal(t, fwk.Unschedulable, s.Code())
		require.Equal(t, fwk.ModeOverride, r.Mode())
		require.Empty(t, r.NominatedNodeName)
		require.Equal(t, 3, o.count())
		require.ErrorContains(t, o.first(0), "no ports")
		_, s = p.PreFilter(t.Context(), &cycle{}, pods[0], nil)
		require.False(t, s.IsSuccess())
	}
}

// TestAPodThatIsLostEndsItsBatch has a pod of a batch leave in each way, before and
// after it was pinned, and before and after it came to Permit.
func TestAPodThatIsLostEndsItsBatch(t *testing.T) {
	now := metav1.Now()
	for name, lose := range map[string]func(h *handle, pod *corev1.Pod) error{
		"deleted": func(h *handle, pod *corev1.Pod) error {
			return h.client.CoreV1().Pods("ns").Delete(t.Context(), pod.Name, metav1.DeleteOptions{})
		},
		"being deleted, with a finalizer": func(h *handle, pod *corev1.Pod) error {
			pod = pod.DeepCopy()
			pod.DeletionTimestamp, pod.Finalizers = &now, []string{"batch.kubernetes.io/job-tracking"}
			_, err := h.client.CoreV1().Pods("ns").Update(t.Context(), pod, metav1.UpdateOptions{})
			return err
		},
		"made anew": func(h *handle, pod *corev1.Pod) error {
			pod = pod.DeepCopy()
			pod.UID = "another"
			_, err := h.client.CoreV1().Pods("ns").Update(t.Context(), pod, metav1.UpdateOptions{})
			return err
		},
		"bound by another": func(h *handle, pod *corev1.Pod) error {
			pod = pod.DeepCopy()
			pod.Spec.NodeName = "elsewhere"
			_, err := h.client.CoreV1().Pods("ns").Update(t.Context(), pod, metav1.UpdateOptions{})
			return err
		},
	} {
		for when := range 3 {
			t.Run(fmt.Sprint(name, when), func(t *testing.T) {
				pods := podsOf("g", 3)
				p, h := started(t, "permit: 1m", pods...)
				if when == 0 {
					require.NoError(t, lose(h, pods[1]))
					lister := h.factory.Core().V1().Pods().Lister().Pods("ns")
					soon(t, "seen", func() bool {
						pod, err := lister.Get(pods[1].Name)
						return err != nil || pod.UID != pods[1].UID || lost(pod) != nil
					})
				}
				o := h.bind(p, "g", 3, "n")
				if when > 0 {
					soon(t, "pinned", isPinned(p, pods...))
					if when > 1 {
						through(t, p, pods[0], "n")
						through(t, p, pods[1], "n")
					}
					require.NoError(t, lose(h, pods[1]))
				}
				soon(t, "ended", func() bool { return o.count() == 3 })
			})
		}
	}
}

func TestAPodThatTheFrameworkSeesLaterIsWaitedFor(t *testing.T) {
	pods := podsOf("g", 2)
	p, h := started(t, "permit: 1m", pods[0])
	o := h.bind(p, "g", 2, "n")
	soon(t, "pinned", isPinned(p, pods...))
	_, err := h.client.CoreV1().Pods("ns").Create(t.Context(), pods[1], metav1.CreateOptions{})
	require.NoError(t, err)
	require.True(t, p.PreEnqueue(t.Context(), pods[1]).IsSuccess())
	time.Sleep(unseen + unseen/2)
	require.Zero(t, o.count())
}

// TestOfAnOldCycle has a pod pinned anew while the cycle that failed is not over.
func TestOfAnOldCycle(t *testing.T) {
	pods := podsOf("g", 2)
	p, h := started(t, "", pods...)
	old := h.bind(p, "g", 2, "n")
	soon(t, "pinned", isPinned(p, pods...))
	c, s := through(t, p, pods[0], "n")
	require.True(t, s.IsSuccess())
	p.board.fail(pin{mustPin(t, p, pods[1]).batch, 1}, errLate)
	require.Equal(t, 2, old.count())
	fresh := h.bind(p, "g", 2, "n")
	soon(t, "pinned anew", isPinned(p, pods...))
	require.True(t, p.Bind(t.Context(), c, pods[0], "n").IsRejected(), "the old cycle binds nothing")
	p.Unreserve(t.Context(), c, pods[0], "n")
	require.False(t, p.Reserve(t.Context(), c, pods[0], "n").IsSuccess())
	s, _ = p.Permit(t.Context(), c, pods[0], "n")
	require.False(t, s.IsSuccess())
	p.PostFilter(t.Context(), c, pods[0], refusals{})
	require.Zero(t, fresh.count(), "nor does it end the new batch")
}

func mustPin(t *testing.T, p *Plugin, pod *corev1.Pod) pin {
	t.Helper()
	at, ok := p.board.get(pod.UID)
	require.True(t, ok)
	return at
}

func claiming(gang string, n int) []*corev1.Pod {
	list := podsOf(gang, n)
	for _, pod := range list {
		pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
	}
	return list
}

// TestABatchFailsBeforeTheFrameworkHasAPodWait fails a batch right behind a Permit that
// said wait: the framework has the pod wait a moment later, for as long as it was told.
func TestABatchFailsBeforeTheFrameworkHasAPodWait(t *testing.T) {
	pods := claiming("g", 2)
	p, h := started(t, "", pods...)
	o := h.bind(p, "g", 2, "n")
	soon(t, "pinned", isPinned(p, pods...))
	_, s := through(t, p, pods[0], "n")
	require.True(t, s.IsWait())
	require.NoError(t, h.client.CoreV1().Pods("ns").Delete(t.Context(), pods[1].Name, metav1.DeleteOptions{}))
	soon(t, "ended", func() bool { return o.count() == 2 })
	w := h.wait(pods[0].UID)
	select {
	case allowed := <-w.end:
		require.False(t, allowed)
	case <-time.After(5 * time.Second):
		t.Fatal("it waits for nothing")
	}
}

// TestVolumesAreNotMadeForHalfAGang has pods with volumes wait in Permit, before
// anything is made for them, and those without in Bind.
func TestVolumesAreNotMadeForHalfAGang(t *testing.T) {
	pods := append(claiming("g", 2), podOf("g", 2))
	p, h := started(t, "", pods...)
	o := h.bind(p, "g", 3, "n")
	soon(t, "pinned", isPinned(p, pods...))
	_, s := through(t, p, pods[0], "n")
	require.True(t, s.IsWait())
	w := h.wait(pods[0].UID)
	c, s := through(t, p, pods[2], "n")
	require.True(t, s.IsSuccess())
	bound := make(chan *fwk.Status, 1)
	go func() { bound <- p.Bind(t.Context(), c, pods[2], "n") }()
	select {
	case <-bound:
		t.Fatal("it did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	_, s = through(t, p, pods[1], "n")
	require.True(t, s.IsSuccess(), "the last does not wait")
	require.True(t, <-w.end)
	require.True(t, (<-bound).IsSuccess())
	require.Equal(t, 1, o.count())
}

func TestADeadlineThatIsOverAtOnce(t *testing.T) {
	pods := podsOf("g", 2)
	p, h := started(t, "permit: 1ns", pods...)
	for range 50 {
		o := h.bind(p, "g", 2, "n")
		soon(t, "ended", func() bool { return o.count() == 2 })
		require.ErrorIs(t, o.first(0), errLate)
	}
}

// TestAnAnswerIsLost has the API server bind a pod and answer that it did not.
func TestAnAnswerIsLost(t *testing.T) {
	pods := podsOf("g", 1)
	p, h := started(t, "", pods...)
	lost := errors.New("connection reset")
	h.client.(*fake.Clientset).PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "binding" {
			return false, nil, nil
		}
		pod := pods[0].DeepCopy()
		pod.Spec.NodeName = "n"
		return true, nil, errors.Join(lost, h.client.(*fake.Clientset).Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "ns"))
	})
	o := h.bind(p, "g", 1, "n")
	soon(t, "pinned", isPinned(p, pods...))
	c, s := through(t, p, pods[0], "n")
	require.True(t, s.IsSuccess())
	require.True(t, p.Bind(t.Context(), c, pods[0], "n").IsSuccess())
	require.NoError(t, o.first(0))
}

// TestFewBindingsAreWrittenAtOnce has a gang come through at once.
func TestFewBindingsAreWrittenAtOnce(t *testing.T) {
	pods := podsOf("g", 40)
	p, h := started(t, "parallel: 3", pods...)
	var now, most atomic.Int32
	h.client.(*fake.Clientset).PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		most.Store(max(most.Load(), now.Add(1)))
		time.Sleep(time.Millisecond)
		now.Add(-1)
		return true, nil, nil
	})
	o := h.bind(p, "g", len(pods), "n")
	soon(t, "pinned", isPinned(p, pods...))
	var all sync.WaitGroup
	for _, pod := range pods {
		c, s := through(t, p, pod, "n")
		require.True(t, s.IsSuccess())
		all.Go(func() { p.Bind(t.Context(), c, pod, "n") })
	}
	all.Wait()
	require.Equal(t, len(pods), o.count())
	require.LessOrEqual(t, most.Load(), int32(3))
}

// TestSomethingElseBinds has an extender, or a plugin that comes before, bind the pod.
func TestSomethingElseBinds(t *testing.T) {
	pods := podsOf("g", 1)
	p, h := started(t, "", pods...)
	o := h.bind(p, "g", 1, "n")
	soon(t, "pinned", isPinned(p, pods...))
	c, _ := through(t, p, pods[0], "n")
	p.PostBind(t.Context(), c, pods[0], "n")
	require.Equal(t, 1, o.count())
	require.NoError(t, o.first(0))
}

// TestCloseEndsWhatWaits closes the plugin while it decides, one batch waits for a pod
// that does not come, and a pod of it waits in Bind.
func TestCloseEndsWhatWaits(t *testing.T) {
	pods := podsOf("g", 2)
	p, h := started(t, "permit: 1m", pods...)
	p.PreFilter(t.Context(), &cycle{}, podOf("probe", 0), nil)
	o := h.bind(p, "g", 2, "n")
	soon(t, "pinned", isPinned(p, pods...))
	c, _ := through(t, p, pods[0], "n")
	status := make(chan *fwk.Status, 1)
	go func() { status <- p.Bind(context.Background(), c, pods[0], "n") }()
	begun := time.Now()
	require.NoError(t, p.Close())
	require.Less(t, time.Since(begun), 5*time.Second)
	require.True(t, (<-status).IsRejected())
	require.Equal(t, 2, o.count())
	late := h.bind(p, "g", 2, "n")
	soon(t, "ended", func() bool { return late.count() == 2 })
	p.PreFilter(t.Context(), &cycle{}, podOf("probe", 0), nil) // a cycle may be under way
}
