package health

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// reasonDrift is the reason of what Reconcile returns.
const reasonDrift lockstep.Reason = "drift"

// Status returns what is held of a device, or of the node itself for "".
func (m *Machine) Status(id lockstep.NodeID, device lockstep.DeviceID) (Status, bool) {
	n := m.nodes[id]
	if n == nil {
		return Status{}, false
	}
	t := n.find(device)
	if t == nil {
		return Status{}, false
	}
	return m.status(t), true
}

// All yields what is held of everything, by node and device, the node itself first.
func (m *Machine) All(yield func(Status) bool) {
	for _, n := range m.sortedNodes() {
		for _, t := range n.all() {
			if !yield(m.status(t)) {
				return
			}
		}
	}
}

func (m *Machine) status(t *target) Status {
	s := Status{
		Node: t.node.id, Device: t.device, State: t.state, Since: lockstep.FromNanos(t.since),
		Open: t.open(), Action: t.action(), Penalty: m.penalty(t),
	}
	if i := t.worst(); i != nil {
		s.Code = i.code
	}
	if t.state == Suspect || t.state == Cordoned || t.state == Probation {
		s.Dwell = m.dwell(t)
	}
	if t.pinned() {
		s.Manual, s.Note = cmp.Or(t.pin.by, "unknown"), t.pin.note
	}
	return s
}

// open reports whether new work may be placed on t. A node of which only the
// devices are watched does not stand in their way.
func (t *target) open() bool {
	return t.state.Open() && (t.device == "" || !t.node.self.bars())
}

// bars reports whether a node's own state keeps work off its devices.
func (t *target) bars() bool {
	return t.state.closed() || t.state == Retired || t.state == Unknown && (t.pinned() || t.prior != "")
}

// penalty returns what t is worth less, in thousandths: each occurrence weighs by
// what it asks for, and half as much after each Decay.
func (m *Machine) penalty(t *target) int {
	weights := [...]int64{20, 100, 200, 400, 400, 400, 400} // by the rank of the action
	sum := int64(0)
	for k := range t.incidents {
		i := &t.incidents[k]
		w := weights[max(i.entry.Action.rank(), 0)] * thousand
		for _, b := range i.bursts {
			if !b.nothing {
				sum += decayed(w, m.now-b.at, int64(m.cfg.Decay))
			}
		}
	}
	return int(min(sum/thousand, int64(thousand-m.cfg.Floor)))
}

// decayed halves w for each half-life of age, straight between.
func decayed(w, age, half int64) int64 {
	if age <= 0 {
		return w
	}
	n := age / half
	if n > 40 {
		return 0
	}
	w >>= n
	rest := age % half / max(half/thousand, 1) // in thousandths of a half-life, so that nothing overflows
	return w - w*min(rest, thousand)/(2*thousand)
}

// Reconcile compares what somebody applies, such as the cordons of a cluster, with
// what is held, and returns what would bring the two together: From is what was
// observed, To what is held. It changes nothing, so it may be repeated. Two states
// agree where they let the same work in: Healthy and Suspect all, Draining,
// Quarantined and Retired none, the others what runs. Of an observed Status only
// Node, Device and State count; one that is not tracked comes back with an empty
// To, and a device that is held and not observed with an empty From; nodes
// themselves may be left out. Where one is named twice, that is ErrDuplicate; a State that is none is ErrInvalid.
func (m *Machine) Reconcile(observed []Status) ([]Transition, error) {
	const op = "reconcile"
	type key struct {
		node   lockstep.NodeID
		device lockstep.DeviceID
	}
	have := make(map[key]State, len(observed))
	var out []Transition
	drift := func(k key, from, to State, action Action, code Code) {
		out = append(out, Transition{
			Time: lockstep.FromNanos(max(m.now, 0)), Node: k.node, Device: k.device,
			From: from, To: to, Action: action, Reason: reasonDrift, Code: code,
		})
	}
	for _, o := range observed {
		k := key{o.Node, o.Device}
		if _, twice := have[k]; twice {
			return nil, fault(lockstep.ErrDuplicate, op, "observed", errtext.Quote(string(o.Node)+"/"+string(o.Device)), "is named twice")
		}
		if o.State.rank() < 0 {
			return nil, fault(lockstep.ErrInvalid, op, "observed", errtext.Quote(o.State), "is no state")
		}
		have[k] = o.State
		if n := m.nodes[o.Node]; n == nil || n.find(o.Device) == nil {
			drift(k, o.State, "", ActionNone, "")
		}
	}
	for s := range m.All {
		k := key{s.Node, s.Device}
		from, ok := have[k]
		if !ok && s.Device == "" || ok && from.lets() == s.State.lets() {
			continue
		}
		drift(k, from, s.State, s.Action, s.Code)
	}
	slices.SortFunc(out, func(a, b Transition) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Device, b.Device)) })
	return out, nil
}

// lets returns how much work s lets in.
func (s State) lets() int {
	switch s {
	case Healthy, Suspect:
		return 2
	case Unknown, Cordoned, Probation:
		return 1
	}
	return 0
}
