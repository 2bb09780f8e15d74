package topology

import (
	"math/bits"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// ChangeKind says what happens to a node.
type ChangeKind string

// The kinds of change.
const (
	Join    ChangeKind = "join"    // Join: Node is new.
	Leave   ChangeKind = "leave"   // Leave: the node of Node's ID is gone; its other fields are not read.
	Recable ChangeKind = "recable" // Recable: the node of Node's ID is as Node says from now on, in all fields.
)

// Change is something that happened to one node.
type Change struct {
	Kind ChangeKind `json:"kind"` // Kind says what happened.
	Node Node       `json:"node"` // Node is what there is now.
}

// With returns the tree after changes; t stays as it is. They are read in order,
// so that a node may leave and join again, and take effect together: first the
// slots of nodes that left or moved become vacant, then each node that joined or
// moved, in the order in which the changes first name them, takes the lowest
// vacant slot of its lowest domain. A node that keeps its lowest domain keeps its
// slot.
//
// Where every node finds a slot the layout is kept: all slots, domains and their
// indices mean what they did, and t and the result share what is equal. Otherwise
// the tree is laid out anew in the same order: new domains come last below their
// parent, new nodes last in their domain, with one vacant slot more for every
// four of a domain that grew, so that the next joins find room; and lowest
// domains that hold no node are dropped.
//
// All faults are reported, joined: ErrInvalid as New does, ErrDuplicate for a
// join of a node that is there, ErrUnknown for another change of one that is not.
// O(slots/64 + changes) where the layout is kept, else as New. At most once in
// nodes/2 joins the index of IDs is made anew, in O(slots).
func (t *Tree) With(changes ...Change) (*Tree, error) {
	f := faults{op: "topology: with"}
	if t.width == 0 {
		f.invalid("Tree", "", "the zero Tree is only to read JSON into")
		return nil, f.err()
	}
	touched := t.net(&f, changes)
	if err := f.err(); err != nil {
		return nil, err
	}
	e := t.edit(len(touched))
	for i := range touched {
		c := &touched[i]
		if c.was && (!c.is || !e.stays(c)) {
			e.vacate(c.slot)
		} else if c.was {
			c.seated = true
			*e.records.own(c.slot) = c.node.record()
		}
	}
	var homeless []Node
	for i := range touched {
		if c := &touched[i]; c.is && !c.seated && !e.settle(&c.node) {
			homeless = append(homeless, c.node)
		}
	}
	next := e.done()
	if len(homeless) == 0 {
		return next, nil
	}
	if next.slots+len(homeless) > maxSlots {
		f.invalid("changes", strconv.Itoa(len(changes)), "at most "+strconv.Itoa(maxSlots)+" slots")
		return nil, f.err()
	}
	return next.relayout(homeless), nil
}

// touched is a node that changes are about.
type touched struct {
	node    Node  // as it is after the changes, where it is
	slot    int32 // where it was
	was, is bool
	seated  bool // it has its slot in the new tree
}

// net reads changes in order and returns what they come to, a node once, in the
// order in which nodes are first named.
func (t *Tree) net(f *faults, changes []Change) []touched {
	out := make([]touched, 0, len(changes))
	var seen map[lockstep.NodeID]int
	if len(changes) > 1 {
		seen = make(map[lockstep.NodeID]int, len(changes))
	}
	for i := range changes {
		c := &changes[i]
		at := "changes[" + strconv.Itoa(i) + "]"
		id := c.Node.ID
		k, ok := seen[id]
		if !ok {
			slot, there := t.Slot(id)
			k = len(out)
			out = append(out, touched{slot: slot, was: there, is: there})
			if seen != nil {
				seen[id] = k
			}
		}
		n := &out[k]
		switch {
		case c.Kind != Join && c.Kind != Leave && c.Kind != Recable:
			f.invalid(at+".Kind", quote(string(c.Kind)), "want join, leave or recable")
			continue
		case c.Kind == Join && n.is:
			f.add(lockstep.ErrDuplicate, at+".Node.ID", quote(string(id)), "the tree has a node of that ID")
		case c.Kind != Join && !n.is:
			f.add(lockstep.ErrUnknown, at+".Node.ID", quote(string(id)), "the tree has no node of that ID")
		}
		if n.is = c.Kind != Leave; n.is {
			if n.node = c.Node; !c.Node.plain(t.width - 2) {
				c.Node.validate(f, at+".Node", t.width-2)
			}
		}
	}
	return out
}

// edit is a tree being changed within its layout.
type edit struct {
	tree    *Tree
	records draft[record]
	vacant  draft[uint64]
	index   indexDraft
	nodes   int
	reindex bool // the index has no room for what comes, so it is made anew

	// seen is where to go on looking for a vacant slot. Invariant: below it there
	// is none that would do, since all slots that become vacant do so before the
	// first node is seated. It is nil where at most one node is to be seated.
	seen map[place]int32
}

// place is where a path leads: to a lowest domain, or to those without a name of
// their own right below a domain.
type place struct {
	level   int
	d       int32
	unnamed bool
}

func (t *Tree) edit(changes int) *edit {
	e := &edit{tree: t, records: t.records.edit(), vacant: t.vacant.edit(), nodes: t.nodes}
	if changes > 1 {
		e.seen = make(map[place]int32)
	}
	if e.reindex = t.index.full(changes); !e.reindex {
		e.index = t.index.edit()
	}
	return e
}

// stays reports whether a node that was in the tree has the same lowest domain
// after the changes.
func (e *edit) stays(c *touched) bool {
	for level := 1; level < e.tree.width-1; level++ {
		if e.tree.names[level][e.tree.DomainOf(level, c.slot)] != c.node.Path[level-1] {
			return false
		}
	}
	return true
}

func (e *edit) vacate(slot int32) {
	r := e.records.own(slot)
	if !e.reindex {
		e.index.remove(r.id, slot)
	}
	*r = record{}
	*e.vacant.own(slot >> 6) |= 1 << (slot & 63)
	e.nodes--
}

// settle seats n in its lowest domain and reports whether there was room.
func (e *edit) settle(n *Node) bool {
	slot, ok := e.room(n.Path)
	if !ok {
		return false
	}
	*e.records.own(slot) = n.record()
	*e.vacant.own(slot >> 6) &^= 1 << (slot & 63)
	if !e.reindex {
		e.index.add(n.ID, slot)
	}
	e.nodes++
	return true
}

// room returns the lowest vacant slot for a path.
func (e *edit) room(path []string) (slot int32, ok bool) {
	level, d, unnamed, ok := e.tree.lookup(path)
	if !ok && !unnamed {
		return 0, false
	}
	p := place{level, d, unnamed}
	first, end := e.tree.Range(level, d)
	slot = e.nextVacant(max(first, e.seen[p]), end)
	for unnamed && slot < end {
		// Only a domain without a name of its own, right below d, will do.
		child := e.tree.DomainOf(level+1, slot)
		if at, _ := e.tree.key(level+1, child); at == e.tree.width-1 {
			break
		}
		_, next := e.tree.Range(level+1, child)
		slot = e.nextVacant(next, end)
	}
	if e.seen != nil {
		e.seen[p] = slot
	}
	return slot, slot < end
}

// nextVacant returns the lowest vacant slot in [from, end), or end.
func (e *edit) nextVacant(from, end int32) int32 {
	for from < end {
		if word := *e.vacant.at(from >> 6) >> (from & 63); word != 0 {
			return min(from+int32(bits.TrailingZeros64(word)), end)
		}
		from = (from | 63) + 1
	}
	return end
}

// done returns the edited tree.
func (e *edit) done() *Tree {
	t := &Tree{layout: e.tree.layout, records: e.records.paged, vacant: e.vacant.paged, nodes: e.nodes}
	if e.reindex {
		t.index, _ = newIndexOf(&t.records, t.slots, t.nodes+t.nodes/2)
	} else {
		t.index = e.index.done()
	}
	return t
}

// relayout returns the tree of t's nodes and of more, which found no slot in t.
func (t *Tree) relayout(more []Node) *Tree {
	b := newBuilder(t.levels, t.slots+len(more)+len(more)/4+1)
	last := t.width - 2
	var old []int32 // by seat: the slot it was in t, or -1
	for d := range int32(t.Domains(last)) {
		first, end := t.Range(last, d)
		if t.empty(first, end) {
			continue
		}
		path := t.appendPath(nil, first)
		for slot := first; slot < end; slot++ {
			b.seat(path, string(t.records.at(slot).id))
			old = append(old, slot)
		}
	}
	occupied := len(b.seats)
	grown := make(map[int32]bool)
	var order []int32 // the domains that grew, once each
	for i := range more {
		d := b.seat(more[i].Path, string(more[i].ID))
		if b.named && !grown[d] {
			grown[d] = true
			order = append(order, d)
		}
	}
	b.slack(order)
	l, seatOf := b.finish()
	next, _ := fill(l, func(slot int32) record {
		switch seat := int(seatOf[slot]); {
		case seat < occupied:
			return *t.records.at(old[seat])
		case seat < occupied+len(more):
			return more[seat-occupied].record()
		}
		return record{}
	})
	return next
}

// slack adds vacant seats to lowest domains, one for every four they have.
func (b *builder) slack(domains []int32) {
	count := make([]int32, len(b.names[len(b.names)-1]))
	for _, d := range b.seats {
		count[d]++
	}
	for _, d := range domains {
		for range min((int(count[d])+3)/4, maxSlots-len(b.seats)) {
			b.seats = append(b.seats, d)
		}
	}
}

// empty reports whether no slot of [first, end) holds a node.
func (t *Tree) empty(first, end int32) bool {
	for slot := first; slot < end; slot++ {
		if t.records.at(slot).id != "" {
			return false
		}
	}
	return true
}

// Changes returns the slots that differ between t and from, in increasing order,
// and true where the two have one layout: where either was made from the other,
// or both from a third, by calls of With that kept it. Otherwise ok is false.
// O(slots/256 + changed pages); the caller owns the slice.
func (t *Tree) Changes(from *Tree) (slots []int32, ok bool) {
	if t.stamp != from.stamp {
		return nil, false
	}
	for p := range t.records.pages {
		a, b := t.records.pages[p], from.records.pages[p]
		if a == b {
			continue
		}
		for i := range a {
			if !a[i].equal(&b[i]) {
				slots = append(slots, int32(p<<pageBits+i))
			}
		}
	}
	return slots, true
}

func (r *record) equal(o *record) bool {
	return r.id == o.id && r.address == o.address && r.shape.Equal(o.shape) && slices.Equal(r.devices, o.devices)
}
