package standalone

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/lockstep-gpu/lockstep"
)

// orderKind says what an order is.
type orderKind int

const (
	orderBind orderKind = iota
	orderStop
)

// task is one write that the desk wants.
type task struct {
	kind    orderKind
	job     lockstep.JobID
	key     string // the pod's namespace and name
	uid     types.UID
	node    lockstep.NodeID // to bind it to
	binding *corev1.Binding
	grants  []grant // what is to be written about its claims before
	version string  // as which it is to be stopped: one that ended meanwhile is to be let be
	grace   *int64  // to stop it within; nil means what the pod says
}

// result is what became of an order.
type result struct {
	task
	err error // nil where it is done
}

// writer carries out orders, several at a time, in the order in which they come,
// and tries again what fails for a while. It writes nothing once the lease is over.
type writer struct {
	client kubernetes.Interface
	fence  *fence
	evict  bool
	wake   func()
	binder Binder // nil means client

	mu      sync.Mutex
	some    sync.Cond // there are orders, or no more will come
	idle    sync.Cond // there are none, and none is under way
	orders  []task
	busy    int
	closed  bool
	results []result
	workers sync.WaitGroup
}

// callLimit bounds one call to the API server.
const callLimit = 10 * time.Second

func newWriter(ctx context.Context, client kubernetes.Interface, f *fence, parallel int, evict bool, wake func()) *writer {
	w := &writer{client: client, fence: f, evict: evict, wake: wake}
	w.some.L, w.idle.L = &w.mu, &w.mu
	for range parallel {
		w.workers.Go(func() { w.work(ctx) })
	}
	return w
}

// add has orders carried out behind those that are there.
func (w *writer) add(orders []task) {
	if w.binder != nil {
		orders = w.delegate(orders)
	}
	if len(orders) == 0 {
		return
	}
	w.mu.Lock()
	w.orders = append(w.orders, orders...)
	w.mu.Unlock()
	w.some.Broadcast()
}

// take returns what became of orders since the last call.
func (w *writer) take() []result {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.results
	w.results = nil
	return r
}

// drain waits until nothing is under way, or ctx ends.
func (w *writer) drain(ctx context.Context) {
	stop := context.AfterFunc(ctx, w.idle.Broadcast)
	defer stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for (len(w.orders) > 0 || w.busy > 0) && ctx.Err() == nil && w.fence.left() > 0 {
		w.idle.Wait()
	}
}

// close ends the workers; what was not begun is dropped.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.some.Broadcast()
	w.workers.Wait()
}

func (w *writer) work(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for {
		for len(w.orders) == 0 && !w.closed {
			w.some.Wait()
		}
		if w.closed {
			return
		}
		o := w.orders[0]
		w.orders = w.orders[1:]
		w.busy++
		w.mu.Unlock()
		var r result
		if o.kind == orderBind {
			r = w.bind(ctx, o)
		} else {
			r = w.stop(ctx, o)
		}
		w.mu.Lock()
		w.busy--
		w.results = append(w.results, r)
		if len(w.orders) == 0 && w.busy == 0 {
			w.idle.Broadcast()
		}
		w.wake()
	}
}

// errGone is why a pod was not bound: it is no more, or another has its name.
var errGone = errors.New("standalone: the pod is gone")

// bind binds a pod. The result's node is where the pod is, whoever put it there; ""
// means that it is bound nowhere, and that trying again would be in vain.
func (w *writer) bind(ctx context.Context, o task) result {
	if err := w.allocate(ctx, o.grants); err != nil {
		o.node = "" // it is tried again with the claims as they are then
		return result{task: o, err: err}
	}
	refused := 0
	for try := 0; ; try++ {
		err := w.fence.guard(ctx, callLimit, func(ctx context.Context) error {
			return w.client.CoreV1().Pods(o.binding.Namespace).Bind(ctx, o.binding, metav1.CreateOptions{})
		})
		switch {
		case err == nil:
			return result{task: o}
		case errors.Is(err, errFenced), ctx.Err() != nil, apierrors.IsNotFound(err):
			o.node = ""
			return result{task: o, err: err}
		case apierrors.IsConflict(err):
			// Already bound, by us if an answer was lost or by somebody else;
			// or on its way out.
			if at, found := w.whereIs(ctx, o); found != nil || at != "" {
				o.node = lockstep.NodeID(at)
				return result{task: o, err: found}
			}
			refused++
		case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsUnauthorized(err):
			refused++
		}
		if refused > 3 {
			o.node = ""
			return result{task: o, err: err}
		}
		if !pause(ctx, try) {
			o.node = ""
			return result{task: o, err: ctx.Err()}
		}
	}
}

// whereIs returns the node that the pod of o is bound to, "" if to none, or errGone.
func (w *writer) whereIs(ctx context.Context, o task) (string, error) {
	var p *corev1.Pod
	err := w.fence.guard(ctx, callLimit, func(ctx context.Context) (err error) {
		p, err = w.client.CoreV1().Pods(o.binding.Namespace).Get(ctx, o.binding.Name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err):
		return "", errGone
	case err != nil:
		return "", nil // asked again
	case p.UID != o.uid, p.Spec.NodeName == "" && p.DeletionTimestamp != nil:
		return "", errGone
	}
	return p.Spec.NodeName, nil
}

// stop has a pod stopped. One that is gone is stopped.
func (w *writer) stop(ctx context.Context, o task) result {
	namespace, name, err := cache.SplitMetaNamespaceKey(o.key)
	if err != nil {
		return result{task: o, err: err}
	}
	opts := metav1.DeleteOptions{GracePeriodSeconds: o.grace, Preconditions: &metav1.Preconditions{UID: &o.uid}}
	if o.version != "" {
		opts.Preconditions.ResourceVersion = &o.version
	}
	for try := 0; ; try++ {
		err := w.fence.guard(ctx, callLimit, func(ctx context.Context) error {
			if w.evict {
				return w.client.CoreV1().Pods(namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, DeleteOptions: &opts})
			}
			return w.client.CoreV1().Pods(namespace).Delete(ctx, name, opts)
		})
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return result{task: o}
		case errors.Is(err, errFenced), ctx.Err() != nil, apierrors.IsConflict(err), try > 8:
			// A conflict is a pod that is not as it was, to be looked at again;
			// a budget may forbid it for long.
			return result{task: o, err: err}
		}
		if !pause(ctx, try) {
			return result{task: o, err: ctx.Err()}
		}
	}
}

// pause waits before the next try; false means that ctx ended.
func pause(ctx context.Context, try int) bool {
	t := time.NewTimer(20 * time.Millisecond << min(try, 6))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
