package rendezvous

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// step is the operation that errors name.
const step = "step"

// check says whether c may be taken in the present state.
func (m *Machine) check(c Call) error {
	switch c.Kind {
	case Tick, Close:
		return nil
	case Retry:
		if m.state == Closed {
			return fault(lockstep.ErrConflict, step, "Kind", string(c.Kind), "the machine is closed")
		}
		return nil
	case Join:
		return m.checkJoin(c)
	case Heard, Leave, Fail:
		return m.checkNode(c)
	default:
		return fault(lockstep.ErrInvalid, step, "Kind", errtext.Quote(string(c.Kind)), "is no kind of call")
	}
}

// checkJoin says whether the node of c may join.
func (m *Machine) checkJoin(c Call) error {
	if c.Node == "" {
		return fault(lockstep.ErrInvalid, step, "Node", "", "must be given")
	}
	if c.Slots < 1 || c.Slots > maxSlots {
		return fault(lockstep.ErrInvalid, step, "Slots", strconv.Itoa(c.Slots), "must lie between 1 and "+strconv.Itoa(maxSlots))
	}
	if m.state == Closed {
		return fault(lockstep.ErrConflict, step, "Node", errtext.Quote(string(c.Node)), "the machine is closed")
	}
	if _, known := m.find(c.Node); !known && len(m.nodes) >= 2*maxNodes {
		return fault(lockstep.ErrConflict, step, "Node", errtext.Quote(string(c.Node)), "too many nodes have joined")
	}
	return nil
}

// checkNode says whether c may be said of its node.
func (m *Machine) checkNode(c Call) error {
	i, known := m.find(c.Node)
	if !known {
		return fault(lockstep.ErrUnknown, step, "Node", errtext.Quote(string(c.Node)), "has not joined, or has left")
	}
	ofRound := c.Kind == Fail || (c.Kind == Leave && c.Round != 0)
	if ofRound && (m.state != Running || c.Round != m.number || !m.nodes[i].member) {
		return fault(lockstep.ErrStale, step, "Round", strconv.FormatUint(c.Round, 10), "is not the running round of that node")
	}
	return nil
}
