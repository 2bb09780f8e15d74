package standalone

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// strip drops what nobody here looks at from an object that an informer is about to
// keep: most of the memory of a pod is environment, volumes and who wrote what.
func strip(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		stripPod(o)
	case *corev1.Node:
		stripNode(o)
	case metav1.Object:
		o.SetManagedFields(nil)
	}
	return obj, nil
}

func stripMeta(m *metav1.ObjectMeta) {
	m.ManagedFields = nil
	delete(m.Annotations, corev1.LastAppliedConfigAnnotation)
}

func stripPod(p *corev1.Pod) {
	stripMeta(&p.ObjectMeta)
	p.OwnerReferences = nil
	p.Finalizers = nil
	s := p.Spec
	p.Spec = corev1.PodSpec{
		NodeName: s.NodeName, SchedulerName: s.SchedulerName, NodeSelector: s.NodeSelector, Affinity: s.Affinity,
		Tolerations: s.Tolerations, Priority: s.Priority, PriorityClassName: s.PriorityClassName, PreemptionPolicy: s.PreemptionPolicy,
		Overhead: s.Overhead, SchedulingGates: s.SchedulingGates, SchedulingGroup: s.SchedulingGroup, Resources: s.Resources,
		ResourceClaims: s.ResourceClaims, TerminationGracePeriodSeconds: s.TerminationGracePeriodSeconds,
		TopologySpreadConstraints: s.TopologySpreadConstraints, HostNetwork: s.HostNetwork, RestartPolicy: s.RestartPolicy,
		Containers: stripContainers(s.Containers, true), InitContainers: stripContainers(s.InitContainers, false),
	}
	status := p.Status
	p.Status = corev1.PodStatus{Phase: status.Phase, ResourceClaimStatuses: status.ResourceClaimStatuses, NominatedNodeName: status.NominatedNodeName}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == corev1.PodScheduled {
			p.Status.Conditions = []corev1.PodCondition{*c}
		}
	}
}

func stripContainers(list []corev1.Container, ports bool) []corev1.Container {
	out := make([]corev1.Container, len(list))
	for i := range list {
		c := &list[i]
		out[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		if ports {
			for _, p := range c.Ports {
				if p.HostPort != 0 {
					out[i].Ports = append(out[i].Ports, p)
				}
			}
		}
	}
	return out
}

func stripNode(n *corev1.Node) {
	stripMeta(&n.ObjectMeta)
	n.Annotations = nil
	status := n.Status
	n.Status = corev1.NodeStatus{Capacity: status.Capacity, Allocatable: status.Allocatable, Addresses: status.Addresses}
	for i := range status.Conditions {
		// Times of heartbeats would make every one of them a change.
		if c := &status.Conditions[i]; c.Type == corev1.NodeReady {
			n.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status, Reason: c.Reason}}
		}
	}
}
