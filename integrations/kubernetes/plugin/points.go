package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// stateKey is where a cycle keeps the pin that it began with: a pod may be pinned anew
// while its cycle is under way, and what becomes of that one says nothing of the new.
const stateKey fwk.StateKey = Name + "/pin"

// Clone returns p, which does not change.
func (p pin) Clone() fwk.StateData { return p }

// pinOf returns the pin that a cycle began with.
func pinOf(state fwk.CycleState) (pin, bool) {
	data, err := state.Read(stateKey)
	if err != nil {
		return pin{}, false
	}
	p, ok := data.(pin)
	return p, ok
}

// PreEnqueue keeps a pod out of the queue until its gang has room. The condition of a
// pod that waits is written by the part that decides.
func (p *Plugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	// One that has no cycle for other causes is no probe.
	if len(pod.Spec.SchedulingGates) == 0 && lost(pod) == nil && p.board.enters(pod.UID, p.prepared(pod)) {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "its gang has no room yet")
}

// EventsToRegister names the events at which a pod that was kept out, or that failed,
// is looked at again: those of itself. That its gang has room, the queue is told.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	hint := func(_ klog.Logger, pod *corev1.Pod, _, now any) (fwk.QueueingHint, error) {
		if as := asPod(now); as != nil {
			pod = as
		}
		if p.PreEnqueue(p.ctx, pod) == nil {
			return fwk.Queue, nil
		}
		return fwk.QueueSkip, nil
	}
	return []fwk.ClusterEventWithHint{{
		Event:          fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update},
		QueueingHintFn: hint,
	}}, nil
}

// begin begins to decide, if this is the first cycle.
func (p *Plugin) begin() {
	if p.board.begin() {
		p.start(p.decide)
	}
}

// PreFilter leaves the node that the pod is pinned to. The first cycle begins deciding.
func (p *Plugin) PreFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	p.begin()
	at, ok := p.board.get(pod.UID)
	if !ok {
		return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "its gang has no room yet")
	}
	state.Write(stateKey, at)
	return &fwk.PreFilterResult{NodeNames: sets.New(at.node())}, nil
}

// PreFilterExtensions returns nil: there is nothing to keep up to date.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses every node but the one that the pod is pinned to.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	name := node.Node().Name
	if at, ok := pinOf(state); !ok || at.node() != name {
		return notPinned(name)
	}
	return nil
}

// PostFilter ends the batch of a pod that another plugin refused on its node. It makes
// no room: victims are chosen by the part that decides.
func (p *Plugin) PostFilter(_ context.Context, state fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	p.begin() // a plugin that comes before may have refused all nodes
	at, ok := pinOf(state)
	if !ok {
		at, ok = p.board.get(pod.UID)
	}
	if ok && p.board.holds(at) {
		reason := nodes.Get(at.node()).Message()
		p.log.Info("refused", "gang", at.batch.gang, "pod", klog.KObj(pod), "node", at.node(), "reason", reason)
		p.board.fail(at, fmt.Errorf("plugin: pod %s/%s was refused on node %s: %s", pod.Namespace, pod.Name, at.node(), reason))
	}
	// A node that it was to have before is not kept for it.
	none := &fwk.PostFilterResult{NominatingInfo: &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride}}
	return none, fwk.NewStatus(fwk.Unschedulable)
}

// Reserve checks that the pod goes where it is pinned, still.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, _ *corev1.Pod, node string) *fwk.Status {
	if at, ok := pinOf(state); !ok || at.node() != node || !p.board.holds(at) {
		return notPinned(node)
	}
	return nil
}

// Unreserve ends the batch of a pod that failed behind Reserve.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *corev1.Pod, _ string) {
	if at, ok := pinOf(state); ok {
		p.board.fail(at, fmt.Errorf("plugin: pod %s/%s was not let through", pod.Namespace, pod.Name))
	}
}

// Permit counts the pods of a batch. Those for which something is done before Bind
// wait here until all are there; the others go on, and wait in Bind: what waits in
// Permit costs a write of the pod's status.
func (p *Plugin) Permit(_ context.Context, state fwk.CycleState, pod *corev1.Pod, node string) (*fwk.Status, time.Duration) {
	at, ok := pinOf(state)
	if !ok || at.node() != node {
		return notPinned(node), 0
	}
	held := p.prepared(pod)
	others, last, ok := p.board.arrive(at, held)
	switch {
	case !ok:
		return notPinned(node), 0
	case !last && held:
		// The batch has a deadline of its own, which comes first.
		return fwk.NewStatus(fwk.Wait, "waits for the other pods of its gang"), 2 * max(p.args.Permit.Duration, defaultPermit)
	}
	for _, uid := range others {
		if w := p.handle.GetWaitingPod(uid); w != nil {
			w.Allow(Name)
		}
	}
	return nil, 0
}

// prepared reports whether plugins that come before Bind, or an extender in its place,
// do what has to wait until the whole gang is there, such as making volumes.
func (p *Plugin) prepared(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 ||
		slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }) ||
		slices.ContainsFunc(p.handle.Extenders(), func(e fwk.Extender) bool { return e.IsBinder() && e.IsInterested(pod) })
}

// callLimit bounds one call to the API server.
const callLimit = 10 * time.Second

// Bind waits until the whole batch is there, and writes the binding of a pod, with its
// annotations. The part that decides learns what became of it.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	at, ok := pinOf(state)
	if !ok || at.node() != node {
		return fwk.NewStatus(fwk.Error, "plugin: bound without a decision")
	}
	select {
	case <-at.batch.settled:
	case <-ctx.Done():
		if !p.board.passes(at) {
			p.board.fail(at, ctx.Err())
		}
	}
	if !p.board.passes(at) {
		return fwk.NewStatus(fwk.Unschedulable, "another pod of its gang failed")
	}
	// What has been begun is finished, since the rest of the gang is.
	p.slots <- struct{}{} // who came first is first, so gangs are bound one behind the other
	defer func() { <-p.slots }()
	if !p.board.passes(at) {
		return fwk.NewStatus(fwk.Unschedulable, "the pod was lost before it was bound")
	}
	err := p.write(context.WithoutCancel(ctx), at)
	p.board.finish(at, err)
	return fwk.AsStatus(err)
}

func (p *Plugin) write(ctx context.Context, at pin) error {
	o := at.item().binding
	pods := p.handle.ClientSet().CoreV1().Pods(o.Namespace)
	limited, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err := pods.Bind(limited, o, metav1.CreateOptions{})
	if err == nil {
		return nil
	}
	// An answer may have been lost: what counts is where the pod is.
	limited, cancel = context.WithTimeout(ctx, callLimit)
	defer cancel()
	if now, e := pods.Get(limited, o.Name, metav1.GetOptions{}); e == nil && now.UID == o.UID && now.Spec.NodeName == o.Target.Name {
		return nil
	}
	return err
}

// PostBind ends a pod that something else has bound, such as an extender.
func (p *Plugin) PostBind(_ context.Context, state fwk.CycleState, _ *corev1.Pod, _ string) {
	if at, ok := pinOf(state); ok {
		p.board.finish(at, nil)
	}
}

// SignPod refuses batching of like pods: each has a node of its own.
func (p *Plugin) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, fwk.NewStatus(fwk.Unschedulable)
}
