package placement

import (
	"maps"
	"math/bits"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// wide is how many children a domain may have before they are searched by
// index rather than one by one.
const wide = 128

// kind is what makes two roles ask for the same: a view serves one kind.
type kind struct {
	gpus, rdma  int32
	cpu, memory int64
	size        int32 // of inner groups, at least 1
	inner       int8  // level of inner groups; that of nodes where size is 1
	penalty     uint8 // the worst class of penalty that is allowed
	mode        mode
	share       int16 // thousandths of each device, where shares are taken
	memoryEach  int64 // memory of each device, where shares are taken
	profile     lockstep.Profile
}

// view is the index of one kind of demand: for each domain how many members of
// it fit there now, in order. It follows the state by the ring of changed slots.
//
// Members are counted in units: whole inner groups at the level of inner groups
// and coarser, single members at finer levels.
type view struct {
	kind  kind
	class *class
	terms []limit

	bound    int32                                 // units that a node can have at the most
	per      [lockstep.MaxDevicesPerNode + 1]uint8 // members by free devices
	units    []uint16                              // by slot: units that fit there
	mood     []uint8                               // by slot that may be used: free devices, and idleBit where units fit and no member sits; 0 in a ranked view
	marks    []mark                                // by slot, in a ranked view
	free     int64                                 // sum of what is free: devices of mood, or milli
	sums     [][]int32                             // by level above nodes, by domain; members at the inner level, else units
	sets     []ordset                              // by level between cluster and nodes: domains by units
	open     []opening                             // by units of an idle node, in no order
	nodes    ordset                                // nodes by units, mood; idle ones only where a lowest domain is wide; in a ranked view see rankKey
	all      bool                                  // nodes holds idle ones too
	doms     []uint                                // by level: bits of a domain's index
	flips    uint64                                // flipCount when built
	cursor   uint64                                // in State.changed
	ranked   bool                                  // nodes are chosen by rank
	rankBits uint                                  // ranks are below 2^rankBits
	priced   uint64                                // State.markets when built
	dear     []int64                               // by model: see market.pressure
	lines    []uint16                              // by model: its row in market.mix
	profiles []int8                                // by layout: the profile's index, or -1
	totals   []totals                              // by level
	memo     memo
	lack     lack

	id    uint64 // never given to another
	hash  uint64
	chain *view // of the same hash
	used  uint64
	run   run
}

// run gathers changes of neighbouring slots, so that each domain of a gang is
// moved in its index once.
type run struct {
	at   [maxLevels]int32 // by level: domain, or -1
	by   [maxLevels]int32 // by level: change of sums
	idle bool             // whether an opening of the lowest domain changed
}

// opening lists the lowest domains with an idle node of so many units, by their
// sums. The kinds of node are few, so there are few openings at a time.
type opening struct {
	units  uint16
	counts []int32 // by lowest domain: such nodes
	listed []bool  // by lowest domain: whether set has it
	size   int32   // nodes counted and domains listed; at 0 it may serve other units
	set    ordset
}

// Bounds on the tree: maxSlots keeps counts of members inside int32.
const (
	maxLevels = 18
	maxSlots  = 1<<21 - 1
)

const (
	idleBit  = 1 << 7
	moodBits = 8
)

// views holds the views in use, the least recently used going first.
type views struct {
	list   []*view
	byHash map[uint64]*view
	clock  uint64
	last   *view
}

func (v *views) clear() {
	v.list, v.last = nil, nil
	clear(v.byHash)
}

// viewFor returns the view of a role, up to date. It allocates only for a kind
// that has no view.
func (s *State) viewFor(g *lockstep.Gang, r *lockstep.Role, inner int, penalty uint8) *view {
	d := &r.Demand
	k := kind{
		gpus: int32(d.GPUs), rdma: int32(d.RDMA), cpu: int64(d.CPU), memory: int64(d.Memory),
		size: int32(max(1, r.Inner.Size)), inner: int8(inner), penalty: penalty, mode: modeOf(d),
	}
	switch k.mode {
	case takesShare:
		k.share, k.memoryEach = int16(d.Share), int64(d.GPUMemory)
	case takesSlice:
		k.profile = d.Profile
	}
	s.views.clock++
	v := s.views.last
	if v == nil || !s.serves(v, &k, g, r) {
		h := hashKind(&k, g, r)
		for v = s.views.byHash[h]; v != nil && !s.serves(v, &k, g, r); v = v.chain {
		}
		if v == nil {
			v = s.newView(k, h, g, r)
		}
		s.views.last = v
	}
	v.used = s.views.clock
	s.sync(v)
	return v
}

func (s *State) serves(v *view, k *kind, g *lockstep.Gang, r *lockstep.Role) bool {
	if v.kind != *k || !v.class.equal(&g.Constraints, &r.Constraints, &r.Demand) {
		return false
	}
	if len(v.terms) != len(g.Constraints.Affinity)+len(r.Constraints.Affinity) {
		return false
	}
	for i := range v.terms {
		a, l := affinity(g, r, i), &v.terms[i]
		if l.anti != a.Anti || l.self != (!a.Anti && matches(a.Match, g.Labels)) ||
			s.affinityLevel(a) != l.term.level || !maps.Equal(l.term.match, a.Match) {
			return false
		}
	}
	return true
}

// affinity returns the i-th affinity of a role, the gang's first.
func affinity(g *lockstep.Gang, r *lockstep.Role, i int) *lockstep.Affinity {
	if n := len(g.Constraints.Affinity); i >= n {
		return &r.Constraints.Affinity[i-n]
	}
	return &g.Constraints.Affinity[i]
}

// affinityLevel returns the level of an affinity, which Fit has checked.
func (s *State) affinityLevel(a *lockstep.Affinity) int {
	if a.Level == "" {
		return s.depth - 1
	}
	l, _ := s.tree.LevelIndex(a.Level)
	return l
}

func (s *State) newView(k kind, hash uint64, g *lockstep.Gang, r *lockstep.Role) *view {
	if len(s.views.list) >= s.cfg.Views {
		s.dropView()
	}
	v := &view{kind: k, class: s.classFor(g, r), id: s.views.clock, hash: hash, ranked: k.mode != takesWhole || s.cfg.RankAll}
	v.class.refs++
	for i := range len(g.Constraints.Affinity) + len(r.Constraints.Affinity) {
		a := affinity(g, r, i)
		t := s.termFor(a.Match, s.affinityLevel(a))
		t.refs++
		v.terms = append(v.terms, limit{term: t, anti: a.Anti, self: !a.Anti && matches(a.Match, g.Labels)})
	}
	for f := range v.per {
		v.per[f] = uint8(f)
		if k.gpus > 0 {
			v.per[f] = uint8(f / int(k.gpus))
		}
	}
	v.bound = MaxSlots
	if k.gpus > 0 && k.mode == takesWhole {
		v.bound = int32(v.per[lockstep.MaxDevicesPerNode])
	}
	s.build(v)
	v.chain = s.views.byHash[hash]
	s.views.byHash[hash] = v
	s.views.list = append(s.views.list, v)
	return v
}

// dropView forgets the view used least recently, with what only it needed. The
// clock never repeats, so there are no ties.
func (s *State) dropView() {
	worst := 0
	for i, v := range s.views.list {
		if v.used < s.views.list[worst].used {
			worst = i
		}
	}
	v := s.views.list[worst]
	s.views.list = slices.Delete(s.views.list, worst, worst+1)
	if s.views.last == v {
		s.views.last = nil
	}
	if head := s.views.byHash[v.hash]; head == v {
		if v.chain == nil {
			delete(s.views.byHash, v.hash)
		} else {
			s.views.byHash[v.hash] = v.chain
		}
	} else {
		for head.chain != v {
			head = head.chain
		}
		head.chain = v.chain
	}
	v.class.refs--
	s.classes = slices.DeleteFunc(s.classes, func(c *class) bool { return c.refs == 0 })
	for i := range v.terms {
		v.terms[i].term.refs--
	}
	s.terms = slices.DeleteFunc(s.terms, func(t *term) bool { return t.refs == 0 })
}

// measure returns what a slot is worth to v now.
func (v *view) measure(s *State, x int32) (units uint16, mood uint8) {
	if !v.allows(s, x) {
		return 0, 0
	}
	c := &s.slots[x]
	n := s.room(v, x, c)
	if v.kind.size > 1 && int(v.kind.inner) == s.depth-1 {
		n /= v.kind.size
	}
	n = max(n, 0)
	if v.ranked {
		return uint16(n), 0
	}
	mood = uint8(bits.OnesCount64(uint64(s.wholes(x, c))))
	if c.members == 0 && n > 0 {
		mood |= idleBit
	}
	return uint16(n), mood
}

// allows reports whether the members of v may use a slot.
func (v *view) allows(s *State, x int32) bool {
	c := &s.slots[x]
	return c.flags == 0 && c.class <= v.kind.penalty && v.wishes(s, x)
}

// wishes reports whether a slot meets the constraints of v.
func (v *view) wishes(s *State, x int32) bool {
	if !v.class.has(x) {
		return false
	}
	for i := range v.terms {
		if l := &v.terms[i]; !l.ok(s.tree.DomainOf(l.term.level, x)) {
			return false
		}
	}
	return true
}

// room returns how many members of v fit into c, which is slot x as it is or might
// be, whoever may use it.
func (s *State) room(v *view, x int32, c *slot) int32 {
	n := c.slots
	k := &v.kind
	if k.gpus > 0 {
		if k.mode == takesWhole && c.mig == 0 { // deviceRoom, without the calls
			n = min(n, int32(v.per[bits.OnesCount64(uint64(c.free))]))
		} else {
			n = min(n, s.deviceRoom(v, x, c))
		}
	}
	if k.cpu > 0 {
		n = int32(min(int64(n), c.cpu/k.cpu))
	}
	if k.memory > 0 {
		n = int32(min(int64(n), c.memory/k.memory))
	}
	if k.rdma > 0 {
		n = min(n, c.rdma/k.rdma)
	}
	return n
}

// deviceRoom is room, of the devices alone.
func (s *State) deviceRoom(v *view, x int32, c *slot) int32 {
	switch v.kind.mode {
	case takesShare:
		return s.shareRoom(&v.kind, x, c)
	case takesSlice:
		return s.sliceRoom(v, x, c)
	}
	return int32(v.per[bits.OnesCount64(uint64(s.wholes(x, c)))])
}

// freeMilli returns what is free for members of v on all nodes that they may use, in
// thousandths of devices.
func (v *view) freeMilli() int64 {
	if v.ranked {
		return v.free
	}
	return v.free * int64(lockstep.WholeGPU)
}

// flipCount returns how often a gang that matches its own affinity may have come to
// be, or ceased to be, the first that does.
func (v *view) flipCount() (n uint64) {
	for i := range v.terms {
		if v.terms[i].self {
			n += v.terms[i].term.flips
		}
	}
	return n
}

// hashKind hashes what serves compares; labels of maps are summed, so that their
// order does not matter.
func hashKind(k *kind, g *lockstep.Gang, r *lockstep.Role) uint64 {
	h := hasher(14695981039346656037)
	h.word(uint64(k.gpus)<<32 | uint64(uint32(k.rdma)))
	h.word(uint64(k.cpu))
	h.word(uint64(k.memory))
	h.word(uint64(k.size)<<32 | uint64(uint8(k.inner))<<8 | uint64(k.penalty))
	h.word(uint64(r.Demand.GPUMemory))
	h.word(uint64(r.Demand.Share))
	h.text(string(r.Demand.Profile))
	for _, c := range r.Demand.Classes {
		h.text(string(c))
	}
	h.wishes(&g.Constraints)
	h.wishes(&r.Constraints)
	return uint64(h)
}

type hasher uint64

func (h *hasher) word(v uint64) {
	x := (uint64(*h) ^ v) * 0x9e3779b97f4a7c15
	*h = hasher(x ^ x>>29)
}

func (h *hasher) text(s string) {
	for i := range len(s) {
		*h = hasher((uint64(*h) ^ uint64(s[i])) * 1099511628211)
	}
	h.word(uint64(len(s)))
}

func (h *hasher) wishes(c *lockstep.Constraints) {
	for i := range c.Selector {
		q := &c.Selector[i]
		h.text(q.Key)
		h.text(string(q.Operator))
		for _, v := range q.Values {
			h.text(v)
		}
	}
	for _, t := range c.Tolerations {
		h.text(t.Key)
		h.text(t.Value)
	}
	for i := range c.Affinity {
		a := &c.Affinity[i]
		var sum uint64
		for k, v := range a.Match { // summed, so the order does not matter
			e := hasher(1)
			e.text(k)
			e.text(v)
			sum += uint64(e)
		}
		h.word(sum)
		h.text(string(a.Level))
	}
	h.word(uint64(len(c.Selector))<<32 | uint64(len(c.Affinity)))
}
