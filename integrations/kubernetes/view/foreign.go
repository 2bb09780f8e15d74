package view

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
)

// other takes in a pod that is not ours and has no devices.
func (a *Assembler) other(p *corev1.Pod) {
	if p.Spec.NodeName == "" || over(p) {
		a.forget(p.UID)
		return
	}
	t := a.cfg.take(p)
	now := other{node: a.node(p.Spec.NodeName), cpu: max(t.cpu, 0), memory: max(t.memory, 0)}
	if a.others[p.UID] == now {
		return
	}
	a.forget(p.UID)
	a.others[p.UID] = now
	u := a.usage[now.node]
	a.usage[now.node] = Usage{CPU: u.CPU.Add(now.cpu), Memory: u.Memory.Add(now.memory), Pods: u.Pods + 1}
	a.moved[now.node] = struct{}{}
}

// forget takes such a pod out again.
func (a *Assembler) forget(uid types.UID) {
	o, ok := a.others[uid]
	if !ok {
		return
	}
	delete(a.others, uid)
	u := a.usage[o.node]
	if u = (Usage{CPU: u.CPU.Sub(o.cpu), Memory: u.Memory.Sub(o.memory), Pods: u.Pods - 1}); u.Pods == 0 {
		delete(a.usage, o.node)
	} else {
		a.usage[o.node] = u
	}
	a.moved[o.node] = struct{}{}
}

// Foreign returns what pods without devices that are not ours take of each node. The
// map is the caller's. O(nodes).
func (a *Assembler) Foreign() map[lockstep.NodeID]Usage { return maps.Clone(a.usage) }
