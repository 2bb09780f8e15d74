package topology

import (
	"cmp"
	"slices"
	"sort"
)

// layout is what stays the same while nodes only fill and leave slots. It is
// shared by all trees that keep it.
type layout struct {
	stamp  *stamp  // equal exactly for trees of one layout
	levels []Level // the cluster first, nodes last
	width  int     // len(levels)
	slots  int
	rails  railLevels

	// of holds width domain indices a slot, one a level: what contains a slot is
	// one cache line, which is also all that LCA reads of it.
	of []int32

	// The domains of a level partition the slots and the domains of the next
	// level, both in order; so one more entry than domains says both ends.
	first [][]int32 // by level: first slot of each domain
	child [][]int32 // by level, nodes excepted: first child of each domain

	names  [][]string // by level, nodes excepted; "" where paths left it unnamed
	byName [][]int32  // by level from 1, nodes excepted: each parent's children sorted by compareKey
}

// stamp is an identity; it has a size so that no two share an address.
type stamp struct{ _ byte }

// domainKey tells the domains of one level apart. A path element "" stands for a
// domain that holds just the next named thing below it, and goes by that
// thing's name and level: a finer domain's, or the node's.
type domainKey struct {
	level, at int32 // at == level for a named domain, else the level of name
	parent    int32
	name      string
}

// builder arranges seats into domains in order of first appearance.
type builder struct {
	levels  []Level
	index   map[domainKey]int32
	parent  [][]int32  // by level: the parent of each domain, numbered as they appeared
	names   [][]string // by level
	seats   []int32    // lowest domain of each seat, as they were added
	path    []string   // of the last seat
	domains []int32    // of the last seat, by level
	named   bool       // the last seat's path ends in a name, so that an equal path shares its lowest domain
}

func newBuilder(levels []Level, seats int) *builder {
	n := len(levels) - 1 // the levels above the nodes
	b := &builder{
		levels: levels, index: make(map[domainKey]int32),
		parent: make([][]int32, n), names: make([][]string, n),
		seats: make([]int32, 0, seats), domains: make([]int32, n),
	}
	b.parent[0], b.names[0] = []int32{-1}, []string{string(levels[0].Name)}
	return b
}

// seat adds a seat with a path of the right length. The key stands for the node
// where the path ends unnamed. It returns the lowest domain.
func (b *builder) seat(path []string, key string) int32 {
	last := len(path)
	if !b.named || !slices.Equal(path, b.path) {
		d := int32(0)
		for level := 1; level <= last; level++ {
			at := level
			for at <= last && path[at-1] == "" {
				at++
			}
			name := key
			if at <= last {
				name = path[at-1]
			}
			d = b.domain(domainKey{level: int32(level), at: int32(at), parent: d, name: name}, path[level-1])
			b.domains[level] = d
		}
		b.path, b.named = path, last == 0 || path[last-1] != ""
	}
	b.seats = append(b.seats, b.domains[last])
	return b.domains[last]
}

func (b *builder) domain(key domainKey, name string) int32 {
	d, ok := b.index[key]
	if !ok {
		d = int32(len(b.names[key.level]))
		b.index[key] = d
		b.parent[key.level] = append(b.parent[key.level], key.parent)
		b.names[key.level] = append(b.names[key.level], name)
	}
	return d
}

// finish returns the layout and, by slot, which seat each slot is.
func (b *builder) finish() (l layout, seatOf []int32) {
	n := len(b.names)
	l = layout{
		stamp: new(stamp), levels: b.levels, width: n + 1, slots: len(b.seats), rails: newRailLevels(b.levels),
		of:    make([]int32, len(b.seats)*(n+1)),
		first: make([][]int32, n+1), child: make([][]int32, n),
		names: make([][]string, n), byName: make([][]int32, n),
	}
	l.names[0] = b.names[0]
	place := []int32{0} // by domain as it appeared: its index in depth-first order
	for level := 1; level < n; level++ {
		var order []int32
		l.child[level-1], order = group(b.parent[level], place)
		l.names[level] = make([]string, len(order))
		place = make([]int32, len(order))
		for i, d := range order {
			l.names[level][i] = b.names[level][d]
			place[d] = int32(i)
		}
	}
	l.child[n-1], seatOf = group(b.seats, place)
	l.ranges()
	l.sortNames()
	return l, seatOf
}

// group sorts items by the place of their parent, and else leaves their order.
// It returns where each parent's begin, with one end more, and the order.
func group(parent, place []int32) (first, order []int32) {
	first = make([]int32, len(place)+1)
	for _, p := range parent {
		first[place[p]+1]++
	}
	for i := range place {
		first[i+1] += first[i]
	}
	next := slices.Clone(first)
	order = make([]int32, len(parent))
	for i, p := range parent {
		order[next[place[p]]] = int32(i)
		next[place[p]]++
	}
	return first, order
}

// ranges fills first and of from child.
func (l *layout) ranges() {
	last := l.width - 1
	l.first[last] = make([]int32, l.slots+1)
	for i := range l.first[last] {
		l.first[last][i] = int32(i)
	}
	for level := last - 1; level >= 0; level-- {
		l.first[level] = make([]int32, len(l.child[level]))
		for d, c := range l.child[level] {
			l.first[level][d] = l.first[level+1][c]
		}
	}
	for level := range l.width {
		f := l.first[level]
		for d := range len(f) - 1 {
			for slot := f[d]; slot < f[d+1]; slot++ {
				l.of[int(slot)*l.width+level] = int32(d)
			}
		}
	}
}

// key returns how domain d of a level is told from its siblings: its name, or
// for an unnamed one the level and name of what it holds. An unnamed domain that
// holds one slot has at == width-1 and no name, whatever is in the slot.
func (l *layout) key(level int, d int32) (at int, name string) {
	for at = level; at < l.width-1; at++ {
		if name = l.names[at][d]; name != "" {
			return at, name
		}
		d = l.child[at][d]
	}
	return at, ""
}

func compareKey(at1 int, name1 string, at2 int, name2 string) int {
	return cmp.Or(cmp.Compare(at1, at2), cmp.Compare(name1, name2))
}

func (l *layout) sortNames() {
	for level := 1; level < l.width-1; level++ {
		sorted := make([]int32, len(l.names[level]))
		for i := range sorted {
			sorted[i] = int32(i)
		}
		bounds := l.child[level-1]
		for p := range len(bounds) - 1 {
			slices.SortFunc(sorted[bounds[p]:bounds[p+1]], func(a, b int32) int {
				at1, name1 := l.key(level, a)
				at2, name2 := l.key(level, b)
				return cmp.Or(compareKey(at1, name1, at2, name2), cmp.Compare(a, b))
			})
		}
		l.byName[level] = sorted
	}
}

// lookup returns the lowest domain that path names. Where there is none, level
// and d are the finest that there is; and unnamed says that from there on the
// path has no name, so that any domain below d which holds one slot will do.
func (l *layout) lookup(path []string) (level int, d int32, unnamed, ok bool) {
	for level < len(path) {
		at := level + 1
		for at <= len(path) && path[at-1] == "" {
			at++
		}
		if at > len(path) {
			return level, d, true, false
		}
		first, end := l.child[level][d], l.child[level][d+1]
		siblings := l.byName[level+1][first:end]
		i := sort.Search(len(siblings), func(i int) bool {
			sat, name := l.key(level+1, siblings[i])
			return compareKey(sat, name, at, path[at-1]) >= 0
		})
		if i == len(siblings) {
			return level, d, false, false
		}
		if sat, name := l.key(level+1, siblings[i]); sat != at || name != path[at-1] {
			return level, d, false, false
		}
		level, d = level+1, siblings[i]
	}
	return level, d, false, true
}
