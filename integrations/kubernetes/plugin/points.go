package plugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// PreEnqueue keeps a pod out of the queue until its gang has room. The condition of a
// pod that waits is written by the part that decides.
func (p *Plugin) PreEnqueue(_ context.Context, pod *corev1.Pod) *fwk.Status {
	if p.board.enters(pod.UID) {
		return nil
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "its gang has no room yet")
}

// EventsToRegister names the events at which a pod that was kept out, or that failed,
// is looked at again: those of itself. That its gang has room, the queue is told.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	hint := func(_ klog.Logger, pod *corev1.Pod, _, _ any) (fwk.QueueingHint, error) {
		if _, ok := p.board.get(pod.UID); ok {
			return fwk.Queue, nil
		}
		return fwk.QueueSkip, nil
	}
	return []fwk.ClusterEventWithHint{{
		Event:          fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update},
		QueueingHintFn: hint,
	}}, nil
}

// PreFilter leaves the node that the pod is pinned to. The first call begins deciding.
func (p *Plugin) PreFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if p.board.begin() {
		p.ended.Go(p.decide)
	}
	at, ok := p.board.get(pod.UID)
	if !ok {
		return nil, fwk.NewStatus(fwk.Pending, "its gang has no room yet")
	}
	return &fwk.PreFilterResult{NodeNames: sets.New(at.node())}, nil
}

// PreFilterExtensions returns nil: there is nothing to keep up to date.
func (p *Plugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

// Filter refuses every node but the one that the pod is pinned to.
func (p *Plugin) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node fwk.NodeInfo) *fwk.Status {
	name := node.Node().Name
	if at, ok := p.board.get(pod.UID); !ok || at.node() != name {
		return notPinned(name)
	}
	return nil
}

// PostFilter ends the batch of a pod that another plugin refused on its node. It makes
// no room: victims are chosen by the part that decides.
func (p *Plugin) PostFilter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if at, ok := p.board.get(pod.UID); ok {
		err := fmt.Errorf("plugin: pod %s/%s was refused on node %s: %s", pod.Namespace, pod.Name, at.node(), nodes.Get(at.node()).Message())
		p.log.Info("refused", "gang", at.batch.gang, "pod", klog.KObj(pod), "node", at.node(), "reason", err.Error())
		p.board.fail(pod.UID, err, p.reject)
	}
	return nil, fwk.NewStatus(fwk.Unschedulable)
}

// Reserve checks that the pod goes where it is pinned.
func (p *Plugin) Reserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	if at, ok := p.board.get(pod.UID); !ok || at.node() != node {
		return notPinned(node)
	}
	return nil
}

// Unreserve ends the batch of a pod that failed behind Reserve.
func (p *Plugin) Unreserve(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, _ string) {
	p.board.fail(pod.UID, fmt.Errorf("plugin: pod %s/%s was not let through", pod.Namespace, pod.Name), p.reject)
}

// Permit lets a pod wait until its whole batch is there.
func (p *Plugin) Permit(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) (*fwk.Status, time.Duration) {
	others, last, ok := p.board.arrive(pod.UID, node)
	switch {
	case !ok:
		return notPinned(node), 0
	case !last:
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

// callLimit bounds one call to the API server.
const callLimit = 10 * time.Second

// Bind writes the binding of a pod, with its annotations. The part that decides learns
// what became of it.
func (p *Plugin) Bind(ctx context.Context, _ fwk.CycleState, pod *corev1.Pod, node string) *fwk.Status {
	at, ok := p.board.get(pod.UID)
	if !ok || at.node() != node {
		return fwk.AsStatus(errors.New("plugin: bound without a decision"))
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	pods := p.handle.ClientSet().CoreV1().Pods(pod.Namespace)
	err := pods.Bind(ctx, at.item().binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		// An answer may have been lost: what counts is where the pod is.
		if now, e := pods.Get(ctx, pod.Name, metav1.GetOptions{}); e == nil && now.UID == pod.UID && now.Spec.NodeName == node {
			err = nil
		}
	}
	p.board.finish(pod.UID, err)
	return fwk.AsStatus(err)
}

// SignPod refuses batching of like pods: each has a node of its own.
func (p *Plugin) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, fwk.NewStatus(fwk.Unschedulable)
}
