package plugin

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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
	ctx    context.Context // that of the framework: what New starts ends with it
	log    klog.Logger
	board  board
	ended  sync.WaitGroup
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
	_ fwk.SignPlugin        = (*Plugin)(nil)
	_ standalone.Binder     = pinner{}
)

// New is the plugin's factory, for app.WithPlugin. It reports every fault of args.
func New(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	a, err := parse(args)
	if err != nil {
		return nil, err
	}
	p := &Plugin{handle: handle, args: a, ctx: ctx, log: klog.FromContext(ctx).WithName(Name)}
	p.board.pins = make(map[types.UID]pin)
	cfg := standalone.Config{
		View: a.View, Rule: a.Rule, Queues: a.Queues, Election: standalone.Election{Disable: true},
		Repair: a.Repair.Duration, Patience: a.Patience.Duration, Reports: a.Reports, Evict: a.Evict,
		Client: handle.ClientSet(), Binder: pinner{p}, Logger: logger(p.log),
	}
	cfg.View.SchedulerName = handle.ProfileName()
	if p.core, err = standalone.New(cfg); err != nil {
		return nil, err
	}
	gone := func(obj any) {
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		if pod, ok := obj.(*corev1.Pod); ok {
			p.board.fail(pod.UID, errDeleted, p.reject)
		}
	}
	_, err = handle.SharedInformerFactory().Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: gone})
	return p, err
}

// Name returns Name.
func (p *Plugin) Name() string { return Name }

// Close waits until nothing that the plugin started runs any more, which is so some
// time after the context that New was given has ended. The framework calls it.
func (p *Plugin) Close() error {
	if p.ctx.Err() != nil {
		p.ended.Wait()
	}
	return nil
}

// decide runs the part that decides until the framework ends.
func (p *Plugin) decide() {
	for p.ctx.Err() == nil {
		if err := p.core.Run(p.ctx); err != nil {
			p.log.Error(err, "deciding ended; trying again")
		}
		select {
		case <-p.ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// pinner takes bindings over from the part that decides.
type pinner struct{ *Plugin }

// Bind pins the pods of a batch, and tells the framework's queue that they may enter.
func (p pinner) Bind(gang string, bindings []*corev1.Binding, done func(i int, err error)) {
	b := &batch{gang: gang, items: make([]item, len(bindings)), done: done}
	pods := make(map[string]*corev1.Pod, len(bindings))
	for i, o := range bindings {
		b.items[i].binding = o
		pods[o.Namespace+"/"+o.Name] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID}}
	}
	limit := p.args.Permit.Duration
	if limit == 0 {
		limit = defaultPermit
	}
	first := bindings[0].UID
	p.board.mu.Lock() // so that it is set before the timer can fire
	b.timer = time.AfterFunc(limit, func() { p.late(first, b) })
	p.board.mu.Unlock()
	// Not within this call: the queue asks PreEnqueue, and a batch of old may end.
	p.ended.Go(func() {
		p.board.put(b)
		p.handle.Activate(p.log, pods)
	})
}

// late fails a batch that has not come through in time.
func (p *Plugin) late(uid types.UID, b *batch) {
	if at, ok := p.board.get(uid); ok && at.batch == b {
		p.log.Info("not in time", "gang", b.gang)
		p.board.fail(uid, errLate, p.reject)
		return
	}
	for i := range b.items {
		if at, ok := p.board.get(b.items[i].binding.UID); ok && at.batch == b {
			p.board.fail(b.items[i].binding.UID, errLate, p.reject)
			return
		}
	}
}

func (p *Plugin) reject(uid types.UID) {
	if w := p.handle.GetWaitingPod(uid); w != nil {
		w.Reject(Name, "another pod of its gang failed")
	}
}

func notPinned(node string) *fwk.Status {
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("its gang was not given room on node %s", node))
}
