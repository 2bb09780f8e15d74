package drf

import (
	"cmp"
	"math/bits"
	"slices"
	"strings"

	"github.com/google/btree"
	"github.com/lockstep-gpu/lockstep"
)

// tenant is a node of the tree; the root stands for all.
type tenant struct {
	spec     Tenant
	parent   *tenant   // nil for the root
	children []*tenant // by ID
	flat     bool      // no child has children: their shares compare without rounding

	raw    lockstep.Vector // raw is what its jobs use, and those of the tenants below.
	used   lockstep.Vector // used is raw with the priced devices.
	jobs   int             // jobs counts its own, waiting or not.
	queue  *btree.BTreeG[*job]
	cursor *job // cursor is the last job that the pass proposed; nil if none.

	// For a pass:
	live  []*tenant // live are the children that have something to propose, as a heap.
	at    int       // at is its place in the parent's live; -1 while it has nothing to propose.
	share Ratio     // share is the dominant share by weight, of a tenant without tenants below.
	part  [lockstep.VectorWidth]uint64
	top   uint64 // top is the greatest of part.
}

// unit is 1 in the fractions of part, which are rounded down.
const unit = 1 << 62

// most is where parts are held.
const most = 1<<63 - 1

// height returns how many tenants stand one above another from t down.
func (t *tenant) height() int {
	h := 0
	for _, c := range t.children {
		h = max(h, c.height())
	}
	return h + 1
}

// plant makes the tree of the tenants' specs.
func (q *Queue) plant() {
	all := make([]*tenant, 0, len(q.tenants)+1)
	for _, t := range q.tenants { // in any order: sorted below
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b *tenant) int { return strings.Compare(string(a.spec.ID), string(b.spec.ID)) })
	q.root.children = nil
	for _, t := range all {
		if len(t.children) > 0 { // it may be without, from now on
			t.raw, t.used = lockstep.Vector{}, lockstep.Vector{}
		}
		t.children = nil
	}
	for _, t := range all {
		t.parent = q.root
		if t.spec.Parent != "" {
			t.parent = q.tenants[t.spec.Parent]
		}
		t.parent.children = append(t.parent.children, t)
	}
	all = append(all[:0], q.root)
	for i := 0; i < len(all); i++ { // parents first
		all = append(all, all[i].children...)
	}
	q.order = all
	for i := len(all) - 1; i >= 0; i-- {
		t := all[i]
		t.flat = true
		for k, c := range t.children {
			if k == 0 {
				t.raw, t.used = lockstep.Vector{}, lockstep.Vector{}
			}
			t.raw, t.used = t.raw.Add(c.raw), t.used.Add(c.used)
			t.flat = t.flat && len(c.children) == 0
		}
	}
	q.over = true // a pass that was under way has lost its places
}

// before is the order of siblings: those with a weight first, then the least share by
// weight, then by ID.
func (t *tenant) before(u *tenant) bool {
	if a, b := t.spec.Weight > 0, u.spec.Weight > 0; a != b {
		return a
	}
	c := 0
	if t.parent.flat {
		c = t.share.Cmp(u.share)
	} else {
		c = compareProducts(t.top, u.weight(), u.top, t.weight())
	}
	return cmp.Or(c, strings.Compare(string(t.spec.ID), string(u.spec.ID))) < 0
}

// weight returns the weight of t, 1 where it is 0.
func (t *tenant) weight() uint64 { return uint64(max(t.spec.Weight, 1)) }

// compareProducts compares a×b with c×d.
func compareProducts(a, b, c, d uint64) int {
	h1, l1 := bits.Mul64(a, b)
	h2, l2 := bits.Mul64(c, d)
	return cmp.Or(cmp.Compare(h1, h2), cmp.Compare(l1, l2))
}

// measure brings the share of t up to date, which has no tenants below it.
func (q *Queue) measure(t *tenant) {
	_, t.share = Dominant(t.used, q.capacity, int64(t.weight()))
	t.top = 0
	for r := range q.schema.Len() {
		t.part[r] = fraction(t.used[r], q.capacity[r])
		t.top = max(t.top, t.part[r])
	}
}

// fraction returns used/capacity in units, held at most.
func fraction(used, capacity int64) uint64 {
	if used <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(used), unit)
	if capacity <= 0 || hi >= uint64(capacity) {
		return most
	}
	f, _ := bits.Div64(hi, lo, uint64(capacity))
	return min(f, most)
}

// gather works out the share of t from those of its children. Children that have
// something to propose, and use something, are scaled down to the one of them with the least
// share by weight; others count as they are (hierarchical DRF).
func (t *tenant) gather(resources int) {
	var least *tenant
	for _, c := range t.live {
		if c.top > 0 && c.spec.Weight > 0 && (least == nil || compareProducts(c.top, least.weight(), least.top, c.weight()) < 0) {
			least = c
		}
	}
	t.part, t.top = [lockstep.VectorWidth]uint64{}, 0
	for _, c := range t.children {
		scaled := least != nil && c.at >= 0 && c.top > 0 && c.spec.Weight > 0
		for r := range resources {
			p := c.part[r]
			if scaled {
				// p × (least.top / least.weight) / (c.top / c.weight), which is at most p
				p = mulDiv(mulDiv(p, least.top, c.top), c.weight(), least.weight())
			}
			t.part[r] = min(t.part[r]+p, most) // below 2^64, since both are at most
		}
	}
	for r := range resources {
		t.top = max(t.top, t.part[r])
	}
}

// mulDiv returns a×b/c, rounded down, which must be below 2^64.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	q, _ := bits.Div64(hi, lo, c)
	return q
}

// changed brings t, whose use or place has changed, and all above it, up to date.
func (q *Queue) changed(t *tenant) {
	if len(t.children) == 0 {
		q.measure(t)
	}
	for ; t.parent != nil; t = t.parent {
		if len(t.children) > 0 {
			t.gather(q.schema.Len())
			if t.at >= 0 && len(t.live) == 0 {
				t.drop()
			}
		}
		t.fix()
	}
}

// drop takes t out of its parent's live children.
func (t *tenant) drop() {
	heap, last := t.parent.live, len(t.parent.live)-1
	i := t.at
	heap[i], heap[last] = heap[last], nil
	t.parent.live, t.at = heap[:last], -1
	if i < last {
		heap[i].at = i
		heap[i].fix()
	}
}

// fix restores the heap after a change of t.
func (t *tenant) fix() {
	if t.at < 0 {
		return
	}
	heap, i := t.parent.live, t.at
	for i > 0 && t.before(heap[(i-1)/2]) {
		heap[i] = heap[(i-1)/2]
		heap[i].at = i
		i = (i - 1) / 2
	}
	heap[i], t.at = t, i
	t.sink()
}

// sink moves t down in the heap until no child of its place comes before it.
func (t *tenant) sink() {
	heap, i := t.parent.live, t.at
	for {
		c := 2*i + 1
		if c+1 < len(heap) && heap[c+1].before(heap[c]) {
			c++
		}
		if c >= len(heap) || !heap[c].before(t) {
			break
		}
		heap[i] = heap[c]
		heap[i].at = i
		i = c
	}
	heap[i], t.at = t, i
}
