package topology

import (
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// Pages are what two trees share and an edit copies. With 256 entries a page of
// records is 16 KiB, and a million slots need a table of 3,907 pages.
const (
	pageBits = 8
	pageSize = 1 << pageBits
)

// paged is an array that a later version shares page by page.
type paged[T any] struct{ pages []*[pageSize]T }

func newPaged[T any](n int) paged[T] {
	p := paged[T]{pages: make([]*[pageSize]T, (n+pageSize-1)>>pageBits)}
	for i := range p.pages {
		p.pages[i] = new([pageSize]T)
	}
	return p
}

func (p *paged[T]) at(i int32) *T { return &p.pages[i>>pageBits][i&(pageSize-1)] }

// draft is a paged array being edited: pages are copied when first written.
type draft[T any] struct {
	paged[T]
	base []*[pageSize]T // what it started from; never written
}

func (p paged[T]) edit() draft[T] {
	return draft[T]{paged: paged[T]{pages: slices.Clone(p.pages)}, base: p.pages}
}

// own returns entry i for writing.
func (d *draft[T]) own(i int32) *T {
	page := i >> pageBits
	if d.base != nil && d.pages[page] == d.base[page] {
		c := *d.base[page]
		d.pages[page] = &c
	}
	return d.at(i)
}

// index finds slots by node ID: a hash table with linear probing in pages, so
// that a join copies one page instead of the table. The hash has no seed, so
// that equal input takes equal steps.
type index struct {
	table paged[entry]
	shift uint // 64 - log2 of the table's size
	used  int  // entries that are not empty, removed ones included
}

// entry is one place of the table: empty where slot is 0, removed where it is
// negative, else the slot plus 1.
type entry struct {
	tag  uint32 // other bits of the hash than those that chose the place
	slot int32
}

const removed = -1

// newIndex returns an empty index with room for n nodes and half as many again.
func newIndex(n int) index {
	size := max(pageSize, 1<<bits.Len(uint(2*n)))
	return index{table: newPaged[entry](size), shift: uint(64 - bits.Len(uint(size-1)))}
}

// hash returns where to look for id first and its tag.
func (x *index) hash(id lockstep.NodeID) (place int32, tag uint32) {
	h := uint64(14695981039346656037) // FNV-1a
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 1099511628211
	}
	h = (h ^ h>>32) * 0x9E3779B97F4A7C15 // spread to the high bits, which choose the place
	return int32(h >> x.shift), uint32(h)
}

func (x *index) next(place int32) int32 { return (place + 1) & int32(1<<(64-x.shift)-1) }

// find returns the slot of id among records.
func (x *index) find(id lockstep.NodeID, records *paged[record]) (slot int32, ok bool) {
	if len(x.table.pages) == 0 || id == "" {
		return 0, false
	}
	place, tag := x.hash(id)
	for {
		e := *x.table.at(place)
		if e.slot == 0 {
			return 0, false
		}
		if e.tag == tag && e.slot > 0 && records.at(e.slot-1).id == id {
			return e.slot - 1, true
		}
		place = x.next(place)
	}
}

// full reports whether n more entries would make probing slow.
func (x *index) full(n int) bool { return (x.used+n)*4 > 3<<(64-x.shift) }

// indexDraft is an index being edited.
type indexDraft struct {
	index
	draft draft[entry]
}

func (x index) edit() indexDraft { return indexDraft{index: x, draft: x.table.edit()} }

// done returns the edited index.
func (x *indexDraft) done() index {
	x.table = x.draft.paged
	return x.index
}

// add enters id, which must not be in the index.
func (x *indexDraft) add(id lockstep.NodeID, slot int32) {
	place, tag := x.hash(id)
	for x.draft.at(place).slot > 0 {
		place = x.next(place)
	}
	e := x.draft.own(place)
	if e.slot == 0 {
		x.used++
	}
	*e = entry{tag: tag, slot: slot + 1}
}

// remove takes out id, which must be in the index at slot.
func (x *indexDraft) remove(id lockstep.NodeID, slot int32) {
	place, _ := x.hash(id)
	for x.draft.at(place).slot != slot+1 {
		place = x.next(place)
	}
	x.draft.own(place).slot = removed
}
