package cluster

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Controller makes a gang's pods anew, under their old names, once they are gone
// without having ended.
type Controller struct {
	Client kubernetes.Interface // Client reaches the API server.
	After  time.Duration        // After is how long it takes to notice; 0 means at once.

	mu   sync.Mutex
	made int
	off  bool
}

// Forget makes it do nothing about pods that go from now on.
func (c *Controller) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = true
}

func (c *Controller) forgets() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.off
}

// Made returns how many pods were made anew.
func (c *Controller) Made() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// Run works until ctx ends, and leaves no goroutine behind.
func (c *Controller) Run(ctx context.Context) {
	f := informers.NewSharedInformerFactory(c.Client, 0)
	var all sync.WaitGroup
	_, _ = f.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(obj any) {
		if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = gone.Obj
		}
		p, ok := obj.(*corev1.Pod)
		if !ok || p.Labels[GangLabel] == "" || Over(p) || c.forgets() {
			return
		}
		all.Go(func() { c.remake(ctx, p) })
	}}) // fails only once it is stopped
	f.StartWithContext(ctx)
	<-ctx.Done()
	f.Shutdown()
	all.Wait()
}

func (c *Controller) remake(ctx context.Context, p *corev1.Pod) {
	if !sleep(ctx, c.After) {
		return
	}
	fresh := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: asked(p)}, Spec: p.Spec}
	fresh.Spec.NodeName = ""
	again(ctx, func() error {
		_, err := c.Client.CoreV1().Pods(p.Namespace).Create(ctx, fresh, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) || apierrors.IsForbidden(err) { // somebody else did, or the namespace is going
			return nil
		}
		if err == nil {
			c.mu.Lock()
			c.made++
			c.mu.Unlock()
		}
		return err
	})
}

// asked returns the annotations of a pod but for those that its binding added.
func asked(p *corev1.Pod) map[string]string {
	out := make(map[string]string)
	for k, v := range p.Annotations { // a copy, so order cannot matter
		switch k {
		case "lockstep.dev/rank", "lockstep.dev/role-rank", "lockstep.dev/world-size", "lockstep.dev/attempt", "lockstep.dev/plan":
		default:
			out[k] = v
		}
	}
	return out
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
