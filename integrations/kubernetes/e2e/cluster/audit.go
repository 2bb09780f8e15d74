package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Audit says what is wrong with where pods are, at rest: a node whose pods ask for
// more devices than it has, or a gang of which some pods are bound, but fewer than
// must run together. Pods that have ended count for their gang, not for their node.
func Audit(pods []corev1.Pod, nodes []corev1.Node) error {
	return errors.Join(append(Overcommitted(pods, nodes), PartlyBound(pods)...)...)
}

// Overcommitted returns a fault for each node that is asked for more than it has.
func Overcommitted(pods []corev1.Pod, nodes []corev1.Node) (faults []error) {
	has := make(map[string]int64)
	for i := range nodes {
		q := nodes[i].Status.Allocatable[GPU]
		has[nodes[i].Name] = q.Value()
	}
	used := make(map[string]int64)
	for i := range pods {
		if p := &pods[i]; p.Spec.NodeName != "" && !Over(p) {
			used[p.Spec.NodeName] += Devices(p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(used)) {
		if n, there := has[name]; there && used[name] > n {
			faults = append(faults, fmt.Errorf("node %s has %d devices, and its pods ask for %d", name, n, used[name]))
		}
	}
	return faults
}

// PartlyBound returns a fault for each gang of which a part is bound.
func PartlyBound(pods []corev1.Pod) (faults []error) {
	for _, g := range Tally(pods) {
		if g.Bound > 0 && g.Bound < g.Members {
			faults = append(faults, fmt.Errorf("gang %s has %d pods bound of the %d that must run together (%d are being deleted)", g.Name, g.Bound, g.Members, g.Leaving))
		}
	}
	return faults
}

// Count is how the pods of a gang are.
type Count struct {
	Name    string   // Name is its namespace and name.
	Members int      // Members is how many must run together.
	Pods    int      // Pods is how many there are that are not being deleted.
	Bound   int      // Bound is how many of them have a node, or had one until they ended.
	Leaving int      // Leaving is how many are bound and being deleted.
	Nodes   []string // Nodes are those of the bound, sorted, each as often as there are pods on it.
}

// Tally counts the pods of gangs, by name.
func Tally(pods []corev1.Pod) []Count {
	gangs := make(map[string]*Count)
	for i := range pods {
		p := &pods[i]
		name := p.Labels[GangLabel]
		if name == "" {
			continue
		}
		name = p.Namespace + "/" + name
		g := gangs[name]
		if g == nil {
			g = &Count{Name: name}
			g.Members, _ = strconv.Atoi(p.Labels[MembersLabel]) // 0 where somebody else wrote it
			gangs[name] = g
		}
		switch {
		case p.DeletionTimestamp != nil && p.Spec.NodeName != "":
			g.Leaving++
		case p.DeletionTimestamp != nil:
		default:
			g.Pods++
			if p.Spec.NodeName != "" {
				g.Bound++
				g.Nodes = append(g.Nodes, p.Spec.NodeName)
			}
		}
	}
	out := make([]Count, 0, len(gangs))
	for _, name := range slices.Sorted(maps.Keys(gangs)) {
		slices.Sort(gangs[name].Nodes)
		out = append(out, *gangs[name])
	}
	return out
}

// Over reports whether a pod has ended.
func Over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Devices returns how many devices a pod asks for.
func Devices(p *corev1.Pod) int64 {
	var n int64
	for i := range p.Spec.Containers {
		q := p.Spec.Containers[i].Resources.Requests[GPU]
		n += q.Value()
	}
	return n
}
