package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/standalone"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = "Lockstep"

// Plugin is the plugin. Make one with New.
type Plugin struct {
	handle fwk.Handle
	args   Args
	core   *standalone.Scheduler
	log    klog.Logger
	board  *board
	slots  chan struct{}   // one for each binding that may be written at once
	ctx    context.Context // that of the framework: what New starts ends with it, or with Close
	cancel context.CancelFunc
	close  func()

	mu      sync.Mutex
	closing bool // nothing is started any more
	running sync.WaitGroup
}

var (
	_ fwk.PreEnqueuePlugin  = (*Plugin)(nil)
	_ fwk.EnqueueExtensions = (*Plugin)(nil)
	_ fwk.PreFilterPlugin   = (*Plugin)(nil)
	_ fwk.FilterPlugin      = (*Plugin)(nil)
	_ fwk.PostFilterPlugin  = (*Plugin)(nil)
	_ fwk.ReservePlugin     = (*Plugin)(nil)
	_ fwk.PermitPlugin      = (*Plugin)(nil)
	_ fwk.BindPlugin        = (*Plugin)(nil)
	_ fwk.PostBindPlugin    = (*Plugin)(nil)
	_ fwk.SignPlugin        = (*Plugin)(nil)
	_ standalone.Binder     = pinner{}
)

// New is the plugin's factory, for app.WithPlugin. It reports every fault of args.
func New(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	a, err := parse(args)
	if err != nil {
		return nil, err
	}
	p := &Plugin{handle: handle, args: a, log: klog.FromContext(ctx).WithName(Name)}
	p.ctx, p.cancel = context.WithCancel(ctx)
	p.board = newBoard(p.reject)
	cfg := standalone.Config{
		View: a.View, Rule: a.Rule, Queues: a.Queues, Election: standalone.Election{Disable: true},
		Repair: a.Repair.Duration, Patience: a.Patience.Duration, Reports: a.Reports, Parallel: cmp.Or(a.Parallel, defaultParallel), Evict: a.Evict,
		Client: handle.ClientSet(), Binder: pinner{p}, Logger: logger(p.log),
	}
	cfg.View.SchedulerName = handle.ProfileName()
	if p.core, err = standalone.New(cfg); err != nil {
		p.cancel()
		return nil, err
	}
	p.slots = make(chan struct{}, cfg.Parallel)
	informer := handle.SharedInformerFactory().Core().V1().Pods().Informer()
	watch, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		UpdateFunc: p.changed,
		DeleteFunc: func(obj any) {
			if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = d.Obj
			}
			p.gone(obj)
		},
	})
	if err != nil {
		p.cancel()
		return nil, err
	}
	stop := context.AfterFunc(p.ctx, func() { p.board.shut(errClosed) })
	p.close = func() {
		_ = informer.RemoveEventHandler(watch) // it was added, so there is no error
		if stop() {
			p.board.shut(errClosed)
		}
	}
	return p, nil
}

// Name returns Name.
func (p *Plugin) Name() string { return Name }

// Close ends all that the plugin started, and waits for it. Bindings that are under
// way are finished. The framework calls it.
func (p *Plugin) Close() error {
	p.close()
	p.cancel()
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	p.running.Wait()
	return nil
}

// start runs f, unless the plugin is closed.
func (p *Plugin) start(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closing {
		p.running.Go(f)
	}
}

// decide runs the part that decides until the framework ends.
func (p *Plugin) decide() {
	for p.ctx.Err() == nil {
		if err := p.core.Run(p.ctx); err != nil {
			p.log.Error(err, "deciding ended; trying again")
		}
		p.sleep(time.Second)
	}
}

// sleep waits for d; false means that the framework ended.
func (p *Plugin) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-p.ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// changed looks at how a pod is now. One that is deleted and made anew while the watch
// is broken is told as a change.
func (p *Plugin) changed(old, obj any) {
	was, now := asPod(old), asPod(obj)
	if now == nil {
		return
	}
	if was != nil && was.UID != now.UID {
		p.gone(was)
	}
	if err := lost(now); err != nil {
		p.left(now, err)
	}
}

// gone ends the batch of a pod that is no more.
func (p *Plugin) gone(obj any) {
	if pod := asPod(obj); pod != nil {
		p.left(pod, errGone)
	}
}

// left ends the batch of a pod that is out of the framework's queue.
func (p *Plugin) left(pod *corev1.Pod, cause error) {
	// Our own binding is told as well; whether that was made, Bind says.
	p.board.lose(pod.UID, !errors.Is(cause, errBound), cause)
	if p.board.leave(pod.UID) {
		p.probe()
	}
}

func asPod(obj any) *corev1.Pod {
	pod, _ := obj.(*corev1.Pod)
	return pod
}

// lost says why a pod cannot be bound any more, nil where it can. The framework has no
// cycle for one that is being deleted, though finalizers may keep it for long.
func lost(pod *corev1.Pod) error {
	switch {
	case pod.Spec.NodeName != "":
		return errBound
	case pod.DeletionTimestamp != nil:
		return errGone
	}
	return nil
}

// pinner takes bindings over from the part that decides.
type pinner struct{ *Plugin }

// Bind pins the pods of a batch, and tells the framework's queue that they may enter.
func (p pinner) Bind(gang string, bindings []*corev1.Binding, done func(i int, err error)) {
	b := newBatch(gang, bindings, cmp.Or(p.args.Permit.Duration, defaultPermit), done)
	// Not within this call: the queue asks PreEnqueue, and a batch of old may end. Who
	// calls is one of those that Close waits for.
	p.running.Go(func() {
		p.board.put(b)
		p.activate(b)
	})
}

// unseen is how long the framework may take to see a pod that the part that decides
// has seen already. Each of them watches for itself.
const unseen = time.Second

// activate has the pods of a batch enter the queue. Those that the framework knows to
// be lost will not: what it was told of them was before they were pinned.
func (p *Plugin) activate(b *batch) {
	lister := p.handle.SharedInformerFactory().Core().V1().Pods().Lister()
	pods := make(map[string]*corev1.Pod, len(b.items))
	late := false
	look := func() {
		late = false
		for i := range b.items {
			o := b.items[i].binding
			pod, err := lister.Pods(o.Namespace).Get(o.Name)
			if err != nil || pod.UID != o.UID {
				late = true
				continue
			}
			if err := lost(pod); err != nil {
				p.left(pod, err)
			}
			pods[o.Namespace+"/"+o.Name] = pod
		}
	}
	look()
	p.handle.Activate(p.log, pods)
	if !late || !p.sleep(unseen) {
		return
	}
	// What came meanwhile was let into the queue as it came.
	if look(); !late {
		return
	}
	for i := range b.items {
		if o := b.items[i].binding; pods[o.Namespace+"/"+o.Name] == nil {
			p.board.lose(o.UID, false, errGone)
		}
	}
}

// probe has further pods enter the queue, as some that were to bring about the first
// cycle are no more.
func (p *Plugin) probe() {
	p.start(func() {
		list, err := p.handle.SharedInformerFactory().Core().V1().Pods().Lister().List(labels.Everything())
		if err != nil {
			return // a store in memory has none
		}
		pods := make(map[string]*corev1.Pod, maxProbes)
		for _, pod := range list {
			if len(pods) == maxProbes {
				break
			}
			if pod.Spec.SchedulerName == p.handle.ProfileName() && lost(pod) == nil && len(pod.Spec.SchedulingGates) == 0 {
				pods[pod.Namespace+"/"+pod.Name] = pod
			}
		}
		p.handle.Activate(p.log, pods)
	})
}

// reject has a pod that waits in Permit let go. It may be that the framework does not
// have it wait yet, though Permit said so.
func (p *Plugin) reject(at pin) {
	if p.refuse(at) {
		return
	}
	p.start(func() {
		for end := time.Now().Add(unseen); time.Now().Before(end) && p.sleep(time.Millisecond); {
			if p.board.awaits(at) || p.refuse(at) {
				return
			}
		}
	})
}

func (p *Plugin) refuse(at pin) bool {
	w := p.handle.GetWaitingPod(at.uid())
	if w == nil {
		return false
	}
	w.Reject(Name, "another pod of its gang failed")
	return true
}

func notPinned(node string) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("its gang was not given room on node %s", node))
}
