package placement

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sharing"
	"github.com/lockstep-gpu/lockstep/topology"
)

// checkNodes reports every fault of nodes, joined, and otherwise returns their
// places by ID.
func checkNodes(call string, tree *topology.Tree, nodes []Node, layouts map[string]sharing.GeometryConfig) (map[lockstep.NodeID]int, error) {
	var errs []error
	byID := make(map[lockstep.NodeID]int, len(nodes))
	for i := range nodes {
		n, field := &nodes[i], at("Nodes", i)
		if _, ok := byID[n.ID]; ok {
			errs = append(errs, fault(lockstep.ErrDuplicate, call, field+".ID", strconv.Quote(string(n.ID)), "named twice"))
		}
		byID[n.ID] = i
		if _, ok := tree.Slot(n.ID); !ok {
			errs = append(errs, fault(lockstep.ErrUnknown, call, field+".ID", strconv.Quote(string(n.ID)), "not in the tree"))
		}
		for _, a := range [...]struct {
			name            string
			value, min, max int64
		}{
			{"CPU", int64(n.CPU), None, 1 << 50},
			{"Memory", int64(n.Memory), None, 1 << 58},
			{"RDMA", int64(n.RDMA), None, 1 << 24},
			{"Slots", int64(n.Slots), None, MaxSlots},
			{"GPUMemory", int64(n.GPUMemory), 0, 1 << 58},
			{"Overcommit", int64(n.Overcommit), 0, 9000},
		} {
			if a.value < a.min || a.value > a.max {
				errs = append(errs, fault(lockstep.ErrInvalid, call, field+"."+a.name, fmt.Sprint(a.value), fmt.Sprint("want ", a.min, " to ", a.max)))
			}
		}
		if !knowsLayout(n.MIG, layouts) {
			errs = append(errs, fault(lockstep.ErrUnknown, call, field+".MIG", strconv.Quote(n.MIG), "neither in Config.Layouts nor in sharing.Models"))
		}
		if n.MIG == "" && n.Partitioned != 0 {
			errs = append(errs, fault(lockstep.ErrInvalid, call, field+".Partitioned", strconv.Quote(n.Partitioned.String()), "needs MIG"))
		}
		errs = append(errs, checkNames(call, field, n)...)
	}
	return byID, errors.Join(errs...)
}

// checkNames returns the faults of what a node is called and labelled with; the
// rules are those of a gang, which asks for them.
func checkNames(call, field string, n *Node) (errs []error) {
	bad := func(part, value string) {
		errs = append(errs, fault(lockstep.ErrInvalid, call, field+"."+part, strconv.Quote(value), "want what lockstep.Gang.Validate lets a gang ask for"))
	}
	if !plainOrEmpty(string(n.Class)) && n.Class.Validate() != nil {
		bad("Class", string(n.Class))
	}
	if !plainLabels(n.Labels) {
		for _, k := range slices.Sorted(maps.Keys(n.Labels)) {
			if v := n.Labels[k]; !labelOK(k, v) {
				bad("Labels", k+"="+v)
			}
		}
	}
	for i, t := range n.Taints {
		if !labelOK(t.Key, t.Value) {
			bad(at("Taints", i), t.Key+"="+t.Value)
		}
	}
	return errs
}

// labelOK reports whether a gang could name a label or a taint.
func labelOK(key, value string) bool {
	if plainName(key) && plainText(value) {
		return true
	}
	g := lockstep.Gang{ID: "x", Labels: map[string]string{key: value}, Roles: []lockstep.Role{{Min: 1}}}
	return g.Validate() == nil
}

func cloneNode(n Node) Node {
	n.Labels, n.Taints = maps.Clone(n.Labels), slices.Clone(n.Taints)
	return n
}

// Status is how one node stands.
type Status struct {
	Node    Node               // Node is what it offers; its labels and taints must not be changed.
	Free    lockstep.DeviceSet // Free are the devices that no member has any part of.
	Parts   []Part             // Parts are the devices that members have parts of, by index.
	All     lockstep.DeviceSet // All are the devices it has.
	Members int                // Members is how many members sit there.
	Open    bool               // Open says that it is not cordoned.
	Healthy bool               // Healthy says that it was not reported unhealthy.
	Penalty int32              // Penalty is what SetPenalty set; 0 means none.
}

// Part is what is left of a device that members have shares of, or instances on.
type Part struct {
	Device int               // Device is its index.
	Share  lockstep.MilliGPU // Share is what is left of it for shares; 0 where it has instances.
	Memory lockstep.Bytes    // Memory is what is left of its memory for shares; 0 where it has instances.
	Held   sharing.Occupancy // Held are the slices that instances hold; 0 where there are none.
}

// partsOf lists the devices of slot x that members have parts of.
func (s *State) partsOf(x int32) (out []Part) {
	set, portions := s.parts(&s.slots[x])
	for i := range set.All {
		o := Part{Device: i, Held: portions[i].held}
		if o.Held == 0 {
			o.Share = lockstep.WholeGPU - lockstep.MilliGPU(portions[i].milli)
			o.Memory = lockstep.Bytes(s.memoryOf(x) - portions[i].memory)
		}
		out = append(out, o)
	}
	return out
}

// Node returns how a node stands; ok is false where the tree has no such node.
func (s *State) Node(id lockstep.NodeID) (status Status, ok bool) {
	x, ok := s.slotOf(id)
	if !ok {
		return Status{}, false
	}
	c := &s.slots[x]
	return Status{
		Node: s.specs[x].node, Free: c.free, Parts: s.partsOf(x), All: c.all, Members: int(c.members),
		Open: c.flags&cordoned == 0, Healthy: c.flags&sick == 0, Penalty: s.specs[x].penalty,
	}, true
}

// Cordon keeps further members off a node; those on it stay. A node that is
// cordoned already stays so.
func (s *State) Cordon(node lockstep.NodeID) error { return s.mark("cordon", node, cordoned, true) }

// Open ends a cordon. A node that is open already stays so.
func (s *State) Open(node lockstep.NodeID) error { return s.mark("open", node, cordoned, false) }

// SetHealth says whether a node is healthy; an unhealthy one takes no members.
func (s *State) SetHealth(node lockstep.NodeID, healthy bool) error {
	return s.mark("set health", node, sick, !healthy)
}

// Drain cordons a node and returns the jobs with members on it, sorted. They
// stay until they are released.
func (s *State) Drain(node lockstep.NodeID) ([]lockstep.JobID, error) {
	if err := s.mark("drain", node, cordoned, true); err != nil {
		return nil, err
	}
	x, _ := s.tree.Slot(node)
	return s.jobsAt(s.slots[x].head), nil
}

// slotOf returns the slot of a node; a zero State has none.
func (s *State) slotOf(id lockstep.NodeID) (int32, bool) {
	if s.tree == nil {
		return -1, false
	}
	return s.tree.Slot(id)
}

// jobsAt returns the jobs of a list of seats, sorted, each once.
func (s *State) jobsAt(head ref) []lockstep.JobID {
	var out []lockstep.JobID
	for r := head; r.rec >= 0; r = s.jobs[r.rec].seats[r.idx].next {
		out = append(out, s.jobs[r.rec].id)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// SetPenalty makes a node one that is used only where a gang does not fit
// without it, such as a slow one. Penalties of 2^k to 2^(k+1)-1 are alike; 0,
// the least, is none. A negative penalty is refused with lockstep.ErrInvalid.
func (s *State) SetPenalty(node lockstep.NodeID, penalty int32) error {
	x, ok := s.slotOf(node)
	if !ok {
		return unknownNode("set penalty", node)
	}
	if penalty < 0 {
		return fault(lockstep.ErrInvalid, "set penalty", "penalty", strconv.Itoa(int(penalty)), "must not be negative")
	}
	if old := s.specs[x].penalty; old != penalty {
		s.log(entry{kind: wrotePenalty, index: x, old: uint64(old)})
		s.penalize(x, penalty)
		s.advance()
	}
	return nil
}

func (s *State) penalize(x, penalty int32) {
	c := &s.slots[x]
	s.ranks[c.class]--
	c.class = uint8(bits.Len32(uint32(penalty)))
	s.ranks[c.class]++
	s.specs[x].penalty = penalty
	s.epoch++
	s.push(x)
}

// mark sets or clears a flag of a node.
func (s *State) mark(call string, node lockstep.NodeID, flag uint8, set bool) error {
	x, ok := s.slotOf(node)
	if !ok {
		return unknownNode(call, node)
	}
	old := s.slots[x].flags
	now := old &^ flag
	if set {
		now |= flag
	}
	if now != old {
		s.log(entry{kind: wroteFlags, index: x, old: uint64(old)})
		s.flag(x, now)
		s.advance()
	}
	return nil
}

func (s *State) flag(x int32, flags uint8) {
	s.slots[x].flags = flags
	s.epoch++
	s.push(x)
}

func unknownNode(call string, id lockstep.NodeID) error {
	return fault(lockstep.ErrUnknown, call, "node", strconv.Quote(string(id)), "not in the tree")
}
