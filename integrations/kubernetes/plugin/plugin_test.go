package plugin

import (
	"context"
	"errors"
	"fmt"
	runtimego "runtime"
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
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
)

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

func TestPodsThatOthersMayRefuseAreNotTheOnlyProbes(t *testing.T) {
	p, _ := started(t, "")
	for _, pod := range claiming("g", 10*maxProbes) {
		p.PreEnqueue(t.Context(), pod)
	}
	require.True(t, p.PreEnqueue(t.Context(), podOf("h", 0)).IsSuccess())
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

// TestNoGoroutineIsLeft has a plugin decide, pin, and end with its context only.
func TestNoGoroutineIsLeft(t *testing.T) {
	pods := claiming("g", 2)
	client := fake.NewClientset(pods[0], pods[1])
	h := &handle{client: client, factory: informers.NewSharedInformerFactory(client, 0), woken: make(map[string]bool), waits: make(map[types.UID]*waitingPod)}
	before := runtimego.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	made, err := New(ctx, nil, h)
	require.NoError(t, err)
	p := made.(*Plugin)
	p.PreFilter(ctx, &cycle{}, pods[0], nil)
	soon(t, "deciding", func() bool { return p.core.Leading() })
	o := h.bind(p, "g", 2, "n")
	soon(t, "pinned", isPinned(p, pods...))
	through(t, p, pods[0], "n") // the framework will never have it wait
	cancel()
	soon(t, "ended", func() bool { return o.count() == 2 })
	require.NoError(t, p.Close())
	require.NoError(t, p.Close(), "again")
	deadline := time.Now().Add(5 * time.Second)
	for runtimego.NumGoroutine() > before && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond) // goroutines of the fake's watches end by themselves
	}
	if n := runtimego.NumGoroutine(); n > before {
		buf := make([]byte, 1<<16)
		t.Errorf("%d goroutines are left of %d:\n%s", n, before, buf[:runtimego.Stack(buf, true)])
	}
}
