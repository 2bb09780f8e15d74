package deploy

import (
	"cmp"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Namespace is where the manifests put the scheduler, its lease and its ConfigMap.
const Namespace = "lockstep-system"

// Name is what the manifests call the scheduler: its service account, its roles, its
// Deployment and its lease.
const Name = "lockstep-scheduler"

// Queues is the ConfigMap with the policy and the queues; see view.ParseQueues.
const Queues = "lockstep-queues"

// Use says what a right is used for, so that a cluster which does without can leave it
// out.
type Use string

// The uses.
const (
	Always    Use = ""          // Always: no scheduler works without.
	Gangs     Use = "gangs"     // Gangs: PodGroups of Kubernetes are read; where the API is off, nobody uses it.
	Evictions Use = "evictions" // Evictions: pods are stopped by the eviction API, with the flag -evict.
	Elections Use = "elections" // Elections: one of several replicas acts, the stand-alone scheduler's flag -leader-elect.
	Claims    Use = "claims"    // Claims: devices are given out by resource claims, for hosts that use package dra.
)

// Right is what the scheduler may do with one resource, and does.
type Right struct {
	Use       Use      // Use says what for.
	Group     string   // Group is the API group; "" is the core.
	Resource  string   // Resource is the resource, with its subresource behind a slash.
	Verbs     []string // Verbs are what is done, sorted.
	Namespace string   // Namespace is the one in which it is done; "" means all, or that the resource has none.
	Names     []string // Names are the objects with which it is done; nil means all.
}

// Rights returns all that the stand-alone scheduler does with the API server, sorted.
// The manifests grant exactly this; the plugin has those of kube-scheduler beside, and
// needs no Elections. The slice is the caller's.
func Rights() []Right {
	read := []string{"list", "watch"}
	rights := []Right{
		{Group: "", Resource: "nodes", Verbs: read},
		{Group: "", Resource: "pods", Verbs: []string{"delete", "get", "list", "watch"}},
		{Group: "", Resource: "pods/binding", Verbs: []string{"create"}},
		{Group: "", Resource: "pods/status", Verbs: []string{"patch"}},
		{Group: "", Resource: "configmaps", Verbs: read, Namespace: Namespace, Names: []string{Queues}},
		{Group: "events.k8s.io", Resource: "events", Verbs: []string{"create"}},
		{Use: Evictions, Group: "", Resource: "pods/eviction", Verbs: []string{"create"}},
		{Use: Gangs, Group: "scheduling.k8s.io", Resource: "podgroups", Verbs: read},
		{Use: Elections, Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"create"}, Namespace: Namespace},
		{Use: Elections, Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"get", "update"}, Namespace: Namespace, Names: []string{Name}},
		{Use: Claims, Group: "resource.k8s.io", Resource: "deviceclasses", Verbs: read},
		{Use: Claims, Group: "resource.k8s.io", Resource: "resourceslices", Verbs: read},
		{Use: Claims, Group: "resource.k8s.io", Resource: "resourceclaims", Verbs: []string{"list", "update", "watch"}},
		{Use: Claims, Group: "resource.k8s.io", Resource: "resourceclaims/status", Verbs: []string{"update"}},
		{Use: Claims, Group: "resource.k8s.io", Resource: "resourceclaims/binding", Verbs: []string{"update"}},
	}
	slices.SortStableFunc(rights, func(a, b Right) int {
		return cmp.Or(cmp.Compare(a.Use, b.Use), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), slices.Compare(a.Verbs, b.Verbs))
	})
	return rights
}

// Rules returns what those of rights come to that are for one of uses and in
// namespace, "" for those in all: the rules of a ClusterRole, or of a Role there.
func Rules(rights []Right, namespace string, uses ...Use) (out []rbacv1.PolicyRule) {
	for _, r := range rights {
		if r.Namespace == namespace && slices.Contains(uses, r.Use) {
			out = append(out, rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, Verbs: slices.Clone(r.Verbs), ResourceNames: slices.Clone(r.Names)})
		}
	}
	return out
}
