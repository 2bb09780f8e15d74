package cluster

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// RunAnnotation says, as a duration, how long a pod runs before it ends well; pods
// without it run on.
const RunAnnotation = "e2e.example.com/run"

// Kubelet plays the kubelets of all nodes: pods that are bound run, those with
// RunAnnotation end, and those that are being deleted are gone behind Stop.
type Kubelet struct {
	Client kubernetes.Interface // Client reaches the API server.
	Stop   time.Duration        // Stop is how long a pod takes to stop; 0 means that it is gone at once.
	Silent bool                 // Silent leaves it unsaid that pods run.
}

// Run plays until ctx ends, and leaves no goroutine behind.
func (k *Kubelet) Run(ctx context.Context) {
	f := informers.NewSharedInformerFactory(k.Client, 0)
	i := f.Core().V1().Pods().Informer()
	var all sync.WaitGroup
	seen := &memo{done: make(map[types.UID]int)}
	look := func(obj any) {
		p, ok := obj.(*corev1.Pod)
		if !ok || p.Spec.NodeName == "" {
			return
		}
		for step, due := range k.steps(p) {
			if due.do == nil || !seen.first(p.UID, step) {
				continue
			}
			all.Go(func() {
				// A pod that is being stopped does not end well any more.
				if sleep(ctx, due.after) && (step == 0 || !seen.did(p.UID, 0)) {
					due.do(ctx)
				}
			})
		}
	}
	_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }}) // fails only once it is stopped
	f.StartWithContext(ctx)
	<-ctx.Done()
	f.Shutdown()
	all.Wait()
}

// memo remembers what was done about which pod.
type memo struct {
	mu   sync.Mutex
	done map[types.UID]int
}

func (m *memo) first(uid types.UID, step int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.done[uid]&(1<<step) != 0 {
		return false
	}
	m.done[uid] |= 1 << step
	return true
}

func (m *memo) did(uid types.UID, step int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done[uid]&(1<<step) != 0
}

// step is something that a kubelet does about a pod, some time after it saw it.
type step struct {
	after time.Duration
	do    func(context.Context)
}

func (k *Kubelet) steps(p *corev1.Pod) (steps [3]step) {
	if p.DeletionTimestamp != nil {
		steps[0] = step{k.Stop, func(ctx context.Context) { k.remove(ctx, p) }}
		return steps
	}
	if !k.Silent && p.Status.Phase == corev1.PodPending {
		steps[1] = step{0, func(ctx context.Context) { k.say(ctx, p, corev1.PodRunning) }}
	}
	if run, err := time.ParseDuration(p.Annotations[RunAnnotation]); err == nil && !Over(p) {
		steps[2] = step{run, func(ctx context.Context) { k.say(ctx, p, corev1.PodSucceeded) }}
	}
	return steps
}

// again calls do until it succeeds, a few times, as kubelets do while a server is
// away.
func again(ctx context.Context, do func() error) {
	for range 50 {
		if do() == nil || !sleep(ctx, 100*time.Millisecond) {
			return
		}
	}
}

func (k *Kubelet) remove(ctx context.Context, p *corev1.Pod) {
	now := int64(0)
	opts := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}}
	again(ctx, func() error { return ignoreGone(k.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, opts)) })
}

func (k *Kubelet) say(ctx context.Context, p *corev1.Pod, phase corev1.PodPhase) {
	body := []byte(`{"metadata":{"uid":"` + string(p.UID) + `"},"status":{"phase":"` + string(phase) + `"}}`)
	again(ctx, func() error {
		_, err := k.Client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, "status")
		return ignoreGone(err)
	})
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
