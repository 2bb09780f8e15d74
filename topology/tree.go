package topology

import (
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
)

// Tree is an immutable tree of domains over the nodes of a cluster. Levels are
// numbered from 0, the whole cluster, to Levels()-1, single nodes. The leaves
// are slots, numbered in depth-first order, so that every domain is a range of
// them; a slot holds a node or is vacant. At the level of nodes each slot is a
// domain, and the domain's index is the slot's.
//
// Methods that take a level, a domain or a slot take one that the tree has; any
// other panics, except that a slot may read as vacant. A Tree is safe for
// concurrent use. The zero Tree is only for UnmarshalJSON: it has no levels, not
// even the cluster. The methods of a nil *Tree panic.
type Tree struct {
	layout

	records paged[record] // by slot; a vacant one is zero
	vacant  paged[uint64] // one bit a slot, set where it is vacant
	index   index         // slots by node ID
	nodes   int           // occupied slots
}

// record is what a slot holds. Invariant: id is empty exactly where the slot is
// vacant, and then all is zero.
type record struct {
	id      lockstep.NodeID
	shape   *Shape
	address string
	devices []lockstep.DeviceID // nil or one a device
}

// Slots returns how many slots t has, vacant ones included.
func (t *Tree) Slots() int { return t.slots }

// Nodes returns how many slots hold a node.
func (t *Tree) Nodes() int { return t.nodes }

// NodeAt returns the node in a slot; ok is false where the slot is vacant.
func (t *Tree) NodeAt(slot int32) (id lockstep.NodeID, ok bool) {
	id = t.records.at(slot).id
	return id, id != ""
}

// Slot returns where a node sits.
func (t *Tree) Slot(id lockstep.NodeID) (slot int32, ok bool) {
	return t.index.find(id, &t.records)
}

// Shape returns the shape of the node in a slot. It is nil, which is the shape
// without devices, where the slot is vacant or its node came without a shape.
func (t *Tree) Shape(slot int32) *Shape { return t.records.at(slot).shape }

// DeviceCount returns how many devices the node in a slot has, 0 where the slot
// is vacant.
func (t *Tree) DeviceCount(slot int32) int { return t.records.at(slot).shape.Devices() }

// Node returns the node in a slot as New or With would take it; its Path is the
// caller's, its Devices must not be changed. ok is false where the slot is
// vacant. Allocates the path.
func (t *Tree) Node(slot int32) (node Node, ok bool) {
	r := t.records.at(slot)
	if r.id == "" {
		return Node{}, false
	}
	return Node{ID: r.id, Path: t.appendPath(nil, slot), Shape: r.shape, Address: r.address, Devices: r.devices}, true
}

// Levels returns how many levels t has, at least 2: the cluster and the nodes.
func (t *Tree) Levels() int { return len(t.levels) }

// LevelAt returns level i, 0 <= i < Levels().
func (t *Tree) LevelAt(i int) Level { return t.levels[i] }

// LevelIndex returns the number of the level of that name.
func (t *Tree) LevelIndex(name lockstep.Level) (level int, ok bool) {
	for i := range t.levels {
		if t.levels[i].Name == name {
			return i, true
		}
	}
	return 0, false
}

// Domains returns how many domains a level has; they are numbered from 0 in
// depth-first order.
func (t *Tree) Domains(level int) int { return len(t.first[level]) - 1 }

// DomainOf returns the domain of a level that holds a slot.
func (t *Tree) DomainOf(level int, slot int32) int32 {
	i := int(slot) * t.width
	return t.of[i : i+t.width][level] // cut, so that no level reads the next slot's
}

// Range returns the slots of a domain: first <= slot < end. It is empty only
// for the cluster of a tree without slots.
func (t *Tree) Range(level int, d int32) (first, end int32) {
	f := t.first[level]
	return f[d], f[d+1]
}

// Parent returns the domain of level-1 that holds domain d of level, which is
// at least 1.
func (t *Tree) Parent(level int, d int32) int32 {
	return t.of[int(t.first[level][d])*t.width+level-1]
}

// Children returns the domains of level+1 that domain d of level holds:
// first <= child < end. The level is less than Levels()-1.
func (t *Tree) Children(level int, d int32) (first, end int32) {
	c := t.child[level]
	return c[d], c[d+1]
}

// LCA returns the finest level at which one domain holds both slots: Levels()-1
// for a slot and itself, 0 for slots that share only the cluster.
func (t *Tree) LCA(a, b int32) (level int) {
	i, j := int(a)*t.width, int(b)*t.width
	for level = 1; level < t.width && t.of[i+level] == t.of[j+level]; level++ {
	}
	return level - 1
}

// DomainName returns the name of a domain: its element of the path, the node's
// ID at the level of nodes, and the level's name for the cluster. A domain that
// paths left unnamed goes by the name of the domain or node that it holds. A
// vacant slot has the name "". Names repeat under different parents.
func (t *Tree) DomainName(level int, d int32) string {
	t.Range(level, d) // for its panic where there is no such domain
	for last := t.width - 1; level < last; level++ {
		if name := t.names[level][d]; name != "" {
			return name
		}
		d, _ = t.Children(level, d)
	}
	return string(t.records.at(d).id)
}

// appendPath appends the path of a slot, unnamed elements as "".
func (t *Tree) appendPath(dst []string, slot int32) []string {
	for level := 1; level < t.width-1; level++ {
		dst = append(dst, t.names[level][t.DomainOf(level, slot)])
	}
	return dst
}

// Address returns the network address of a node; it is empty where none was
// given. It implements lockstep.Inventory.
func (t *Tree) Address(node lockstep.NodeID) (address string, ok bool) {
	slot, ok := t.Slot(node)
	if !ok {
		return "", false
	}
	return t.records.at(slot).address, true
}

// Device returns the own name of a node's device; it is empty where none was
// given, and ok is false where the node has no such device. It implements
// lockstep.Inventory.
func (t *Tree) Device(node lockstep.NodeID, index int) (id lockstep.DeviceID, ok bool) {
	slot, ok := t.Slot(node)
	if !ok || index < 0 || index >= t.DeviceCount(slot) {
		return "", false
	}
	if devices := t.records.at(slot).devices; devices != nil {
		id = devices[index]
	}
	return id, true
}

// String returns the number of domains of each level and of vacant slots, such
// as "cluster=1 rack=4 node=32 vacant=2".
func (t *Tree) String() string {
	var b strings.Builder
	for i := range t.levels {
		b.WriteString(string(t.levels[i].Name) + "=" + strconv.Itoa(t.Domains(i)) + " ")
	}
	b.WriteString("vacant=" + strconv.Itoa(t.slots-t.nodes))
	return b.String()
}

var _ lockstep.Inventory = (*Tree)(nil)
