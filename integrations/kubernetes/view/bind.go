package view

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Binding is one pod that is to be bound.
type Binding struct {
	Namespace   string            // Namespace is the pod's.
	Name        string            // Name is the pod's.
	UID         types.UID         // UID is the pod's; the API server refuses another pod of the name.
	Node        lockstep.NodeID   // Node is where it goes.
	Member      int               // Member is the index in Plan.Members that the pod takes.
	Annotations map[string]string // Annotations are to be carried by the Binding object; the server copies them to the pod. They are the caller's.
}

// Bindings returns who is to be bound where, in rank order, for the plan of a gang:
// those of s.Pods that have no node yet. Of a role with more pods than the plan has
// members, those that are bound or ended stay, then the first in order. Pods take the
// members of their role in order; where some are bound already, each of them takes
// the first on its own node, and the others take what is left. A pod that ended takes
// one last, since it needs none.
//
// It returns lockstep.ErrStale where s has no Gang or fewer pods than the plan
// members, and lockstep.ErrConflict where a pod is bound where the plan has nobody of
// its role; nothing is to be bound then.
func Bindings(s *State, p *lockstep.Plan, attempt lockstep.Attempt) ([]Binding, error) {
	if s.Gang == nil || p.Job != s.ID {
		return nil, refuse(lockstep.ErrStale, s, "Gang", "", "the gang is not one that the plan is for")
	}
	counts := p.AppendCounts(nil, len(s.Gang.Roles))
	world := strconv.Itoa(len(p.Members))
	var out []Binding
	offset, seen := 0, 0
	for r, n := range counts {
		pods, err := chosen(s, int32(r), n)
		if err != nil {
			return nil, err
		}
		members := make([]int, 0, n)
		for i := range p.Members {
			if int(p.Members[i].Role) == r {
				members = append(members, i)
			}
		}
		seen += len(members)
		match, err := match(s, pods, members, p)
		if err != nil {
			return nil, err
		}
		for i, pod := range pods {
			if pod.Node != "" || pod.Ended {
				continue
			}
			out = append(out, Binding{
				Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Node: p.Members[match[i]].Node, Member: match[i],
				Annotations: map[string]string{
					KeyRank: strconv.Itoa(offset + i), KeyRoleRank: strconv.Itoa(i), KeyWorldSize: world,
					KeyAttempt: strconv.FormatUint(uint64(attempt), 10),
				},
			})
		}
		offset += n
	}
	if seen != len(p.Members) {
		return nil, refuse(lockstep.ErrStale, s, "Members", world, "the plan has members of roles that the gang has not")
	}
	return out, nil
}

func refuse(kind error, s *State, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "view: bindings of " + errtext.Quote(s.ID), Field: field, Value: value, Reason: reason}
}

// chosen returns the n pods of a role that take part, in rank order.
func chosen(s *State, role int32, n int) ([]*Pod, error) {
	var all []*Pod
	fixed := 0
	for i := range s.Pods {
		if p := &s.Pods[i]; p.Role == role {
			all = append(all, p)
			if p.Node != "" || p.Ended {
				fixed++
			}
		}
	}
	switch {
	case len(all) < n:
		return nil, refuse(lockstep.ErrStale, s, "Pods", number(len(all)), "the plan has "+number(n)+" members of the role")
	case fixed > n:
		return nil, refuse(lockstep.ErrConflict, s, "Pods", number(fixed), "so many are bound, and the plan has "+number(n)+" members of the role")
	}
	free := n - fixed
	out := all[:0]
	for _, p := range all {
		if p.Node == "" && !p.Ended {
			if free == 0 {
				continue
			}
			free--
		}
		out = append(out, p)
	}
	return out, nil
}

// match returns the member that each of the pods takes.
func match(s *State, pods []*Pod, members []int, p *lockstep.Plan) ([]int, error) {
	out := make([]int, len(pods))
	left := append([]int(nil), members...)
	take := func(i, at int) {
		out[i] = left[at]
		left = append(left[:at], left[at+1:]...)
	}
	for i, pod := range pods {
		if pod.Node == "" || pod.Ended {
			continue
		}
		at := 0
		for at < len(left) && p.Members[left[at]].Node != pod.Node {
			at++
		}
		if at == len(left) {
			return nil, refuse(lockstep.ErrConflict, s, "Pods", errtext.Quote(pod.Name), "it is bound to "+errtext.Quote(pod.Node)+", where the plan has nobody of its role left")
		}
		take(i, at)
	}
	for _, over := range []bool{false, true} {
		for i, pod := range pods {
			if pod.Ended == over && (over || pod.Node == "") {
				take(i, 0)
			}
		}
	}
	return out, nil
}

// Object returns what to create as pods/binding.
func (b Binding) Object() *corev1.Binding {
	return &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Name, UID: b.UID, Annotations: b.Annotations},
		Target:     corev1.ObjectReference{Kind: "Node", Name: string(b.Node)},
	}
}
