package topology

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// LevelCluster is the name of level 0, the whole cluster.
const LevelCluster lockstep.Level = "cluster"

// Bounds on the size of a tree.
const (
	maxLevels = 16      // between the cluster and the nodes
	maxSlots  = 1 << 24 // so that counts of devices fit int32 on every platform
)

// Level describes a kind of domain.
type Level struct {
	Name      lockstep.Level          `json:"name"`                // Name is unique in the tree and valid by lockstep.Level.Validate.
	Bandwidth lockstep.BytesPerSecond `json:"bandwidth,omitempty"` // Bandwidth is between two devices whose closest common domain is of this level; 0 means unknown.
	Latency   time.Duration           `json:"latency,omitempty"`   // Latency is of a message between two such devices; 0 means unknown.

	// Rails says that in a domain of this level a leaf switch joins the devices of
	// each rail, as on a rail-optimised fabric: the level of the units of such a
	// fabric, and every finer level that only groups nodes, such as racks. A level
	// that brings nodes nearer by itself, such as an NVLink domain, has none.
	// Levels with rails are next to each other, and nodes are none.
	Rails bool `json:"rails,omitempty"`
}

// Node describes a node and where it belongs. Its ID, the elements of its Path,
// its Address and its Devices follow the rule of lockstep.NodeID.Validate.
type Node struct {
	ID lockstep.NodeID `json:"id"` // ID is unique in the tree.

	// Path names the domains that hold the node, one for each level between the
	// cluster and the nodes, coarsest first. Domains with one name and different
	// parents are different. An empty element is a domain that holds just the
	// next named one below it, or the node, for trees of uneven depth.
	Path []string `json:"path,omitempty"`

	Shape   *Shape              `json:"shape,omitempty"`   // Shape is its devices; nil means none. Nodes of a kind share one Shape.
	Address string              `json:"address,omitempty"` // Address is where its processes are reached; "" means unknown.
	Devices []lockstep.DeviceID `json:"devices,omitempty"` // Devices are the devices' own names, "" where unknown; nil means all unknown. The tree keeps a copy.
}

// record returns what a slot is to hold. The names are copied, since a tree never
// changes, and none is nil, so that equal nodes have equal records.
func (n *Node) record() record {
	return record{id: n.ID, shape: n.Shape, address: n.Address, devices: append([]lockstep.DeviceID(nil), n.Devices...)}
}

// validate checks n by itself, for a path of depth elements.
func (n *Node) validate(f *faults, at string, depth int) {
	f.name(at+".ID", string(n.ID))
	if len(n.Path) != depth {
		f.invalid(at+".Path", strconv.Itoa(len(n.Path))+" elements", "want one a level between the cluster and the nodes, "+strconv.Itoa(depth))
	}
	for i, name := range n.Path {
		if name != "" {
			f.name(at+".Path["+strconv.Itoa(i)+"]", name)
		}
	}
	if n.Address != "" {
		f.name(at+".Address", n.Address)
	}
	n.validateDevices(f, at+".Devices")
}

func (n *Node) validateDevices(f *faults, at string) {
	if n.Devices == nil {
		return
	}
	if len(n.Devices) != n.Shape.Devices() {
		f.invalid(at, strconv.Itoa(len(n.Devices))+" names", "want one a device of the shape, "+strconv.Itoa(n.Shape.Devices()))
		return
	}
	for i, id := range n.Devices {
		if id == "" {
			continue
		}
		field := at + "[" + strconv.Itoa(i) + "]"
		f.name(field, string(id))
		for _, other := range n.Devices[:i] { // at most 64
			if other == id {
				f.add(lockstep.ErrDuplicate, field, quote(string(id)), "names two devices of the node")
				break
			}
		}
	}
}

// completeLevels checks levels, which the field of that name gave, and adds the
// two ends where they are not given.
func completeLevels(f *faults, field string, levels []Level) []Level {
	if len(levels) > maxLevels+2 { // here, since the search for doubles is quadratic
		f.invalid(field, strconv.Itoa(len(levels)), "at most "+strconv.Itoa(maxLevels)+" between the cluster and the nodes")
		return make([]Level, len(levels)+2) // of the right depth for the paths
	}
	all := make([]Level, 0, len(levels)+2)
	if len(levels) == 0 || levels[0].Name != LevelCluster {
		all = append(all, Level{Name: LevelCluster})
	}
	for i := range levels {
		l := &levels[i]
		at := field + "[" + strconv.Itoa(i) + "]"
		l.validate(f, at)
		if slices.ContainsFunc(all, func(o Level) bool { return o.Name == l.Name }) {
			f.add(lockstep.ErrDuplicate, at+".Name", quote(string(l.Name)), "names two levels; the cluster comes first")
		}
		if l.Name == lockstep.LevelNode && i < len(levels)-1 {
			f.invalid(at+".Name", quote(string(l.Name)), "nodes are the last level")
		}
		all = append(all, *l)
	}
	if all[len(all)-1].Name != lockstep.LevelNode {
		all = append(all, Level{Name: lockstep.LevelNode})
	}
	for i := 2; i < len(all); i++ {
		if all[i].Rails && !all[i-1].Rails && slices.ContainsFunc(all[:i], func(o Level) bool { return o.Rails }) {
			f.invalid(field, quote(string(all[i].Name)), "levels with rails must be next to each other")
		}
	}
	if n := len(all) - 2; n > maxLevels {
		f.invalid(field, strconv.Itoa(n), "at most "+strconv.Itoa(maxLevels)+" between the cluster and the nodes")
	}
	return all
}

// validate checks l by itself.
func (l *Level) validate(f *faults, at string) {
	f.name(at+".Name", string(l.Name))
	if l.Name == lockstep.LevelNode && (l.Bandwidth != 0 || l.Latency != 0) {
		f.invalid(at, l.Bandwidth.String()+" "+l.Latency.String(), "want no figures, which inside a node are the shape's")
	}
	if l.Name == lockstep.LevelNode && l.Rails {
		f.invalid(at+".Rails", "true", "want none, rails are between nodes")
	}
	if l.Bandwidth < 0 {
		f.invalid(at+".Bandwidth", l.Bandwidth.String(), "must not be negative")
	}
	if l.Latency < 0 {
		f.invalid(at+".Latency", l.Latency.String(), "must not be negative")
	}
}

// New returns the tree of nodes. The levels are those between the cluster and
// the nodes, coarsest first; the first may also be LevelCluster, to give its
// figures, and the last lockstep.LevelNode. A domain stands where its first node
// does in the list and its nodes are brought together there, in their order.
// Every slot is occupied. All faults are reported, joined: ErrInvalid, and
// ErrDuplicate for a node, level or device named twice. O(nodes × levels).
func New(levels []Level, nodes []Node) (*Tree, error) {
	f := faults{op: "topology: new"}
	levels = completeLevels(&f, "levels", levels)
	if len(nodes) > maxSlots {
		f.invalid("nodes", strconv.Itoa(len(nodes)), "at most "+strconv.Itoa(maxSlots))
		return nil, f.err()
	}
	for i := range nodes {
		if !nodes[i].plain(len(levels) - 2) {
			nodes[i].validate(&f, "nodes["+strconv.Itoa(i)+"]", len(levels)-2)
		}
	}
	if f.count == 0 {
		if t, ok := build(levels, nodes); ok {
			return t, nil
		}
	}
	duplicates(&f, nodes)
	return nil, f.err()
}

// plain reports whether n is faultless, at less cost than validate, which has a
// field to name for each part; false is not yet a fault.
func (n *Node) plain(depth int) bool {
	if len(n.Path) != depth || n.Devices != nil || !plainName(string(n.ID)) || n.Address != "" && !plainName(n.Address) {
		return false
	}
	for _, name := range n.Path {
		if name != "" && !plainName(name) {
			return false
		}
	}
	return true
}

// plainName reports whether s is made of what every name may be made of.
func plainName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '.', c == '-' && i > 0:
		default:
			return false
		}
	}
	return s != "" && len(s) <= lockstep.MaxIDLength
}

// duplicates reports the IDs that several nodes bear.
func duplicates(f *faults, nodes []Node) {
	seen := make(map[lockstep.NodeID]int, len(nodes))
	for i := range nodes {
		if j, ok := seen[nodes[i].ID]; ok {
			f.add(lockstep.ErrDuplicate, "nodes["+strconv.Itoa(i)+"].ID", quote(string(nodes[i].ID)), "already named by nodes["+strconv.Itoa(j)+"]")
			continue
		}
		seen[nodes[i].ID] = i
	}
}

// build makes the tree of faultless nodes; ok is false where two bear one ID.
func build(levels []Level, nodes []Node) (t *Tree, ok bool) {
	b := newBuilder(levels, len(nodes))
	for i := range nodes {
		b.seat(nodes[i].Path, string(nodes[i].ID))
	}
	l, seatOf := b.finish()
	return fill(l, func(slot int32) record { return nodes[seatOf[slot]].record() })
}

// fill makes the tree of a layout with at(slot) in each slot, a zero record
// where it is vacant; ok is false where two bear one ID.
func fill(l layout, at func(slot int32) record) (t *Tree, ok bool) {
	t = &Tree{layout: l, records: newPaged[record](l.slots), vacant: newPaged[uint64]((l.slots + 63) / 64)}
	for slot := range int32(l.slots) {
		r := t.records.at(slot)
		if *r = at(slot); r.id == "" {
			*t.vacant.at(slot >> 6) |= 1 << (slot & 63)
		} else {
			t.nodes++
		}
	}
	t.index, ok = newIndexOf(&t.records, l.slots, t.nodes)
	return t, ok
}

// newIndexOf returns the index of records, with room for so many nodes and half
// as many again; ok is false where two bear one ID.
func newIndexOf(records *paged[record], slots, room int) (x index, ok bool) {
	x = newIndex(room)
	d := indexDraft{index: x, draft: draft[entry]{paged: x.table}}
	for slot := range int32(slots) {
		if id := records.at(slot).id; id != "" {
			if _, dup := x.find(id, records); dup {
				return x, false
			}
			d.add(id, slot)
		}
	}
	return d.done(), true
}
