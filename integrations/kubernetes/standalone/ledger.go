package standalone

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
)

// ledger counts the devices of each node that pods have, whoever bound them, as
// the API server tells it and as it will tell. It is the last look before a
// binding, and knows nothing of what was decided: whatever happens meanwhile, no
// node gets more pods than it has devices for.
type ledger struct {
	nodes map[lockstep.NodeID]*account
	pods  map[types.UID]seat
}

// account is one node.
type account struct {
	has  int64 // devices that it offers
	used int64 // devices that its pods ask for
}

// seat is a pod's place.
type seat struct {
	node    lockstep.NodeID
	devices int64
}

func newLedger() *ledger {
	return &ledger{nodes: make(map[lockstep.NodeID]*account), pods: make(map[types.UID]seat)}
}

func (l *ledger) node(id lockstep.NodeID) *account {
	a := l.nodes[id]
	if a == nil {
		a = &account{}
		l.nodes[id] = a
	}
	return a
}

// offer says how many devices a node has; none means that it is no more.
func (l *ledger) offer(id lockstep.NodeID, devices int64) { l.node(id).has = devices }

// put says that a pod has devices on a node; none, or no node, that it has not.
func (l *ledger) put(pod types.UID, at seat) {
	was, known := l.pods[pod]
	if known && was == at {
		return
	}
	if known {
		l.node(was.node).used -= was.devices
		delete(l.pods, pod)
	}
	if at.node != "" && at.devices != 0 {
		l.node(at.node).used += at.devices
		l.pods[pod] = at
	}
}

// fits reports whether a node has so many devices beside those of its pods.
func (l *ledger) fits(id lockstep.NodeID, devices int64) bool {
	if devices == 0 {
		return true
	}
	a := l.nodes[id]
	return a != nil && a.used+devices <= a.has
}

// crowded reports whether a node's pods ask for more than it has.
func (l *ledger) crowded(id lockstep.NodeID) bool {
	a := l.nodes[id]
	return a != nil && a.used > a.has
}
