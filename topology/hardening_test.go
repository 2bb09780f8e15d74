package topology

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestUniformNamesAreValid(t *testing.T) {
	level := func(n int) []Level { return []Level{{Name: lockstep.Level(strings.Repeat("x", n))}} }
	for n := lockstep.MaxIDLength - 4; n <= lockstep.MaxIDLength+1; n++ {
		tree, err := Uniform(UniformConfig{Levels: level(n), Fanout: []int{20, 1}})
		if err != nil {
			require.Equal(t, "Levels[0].Name", flat(err)[0].Field)
			require.Len(t, flat(err), 1)
			continue
		}
		require.LessOrEqual(t, n+len("-19"), lockstep.MaxIDLength)
		roundTrip(t, tree)
	}
	tree, err := Uniform(UniformConfig{Levels: level(lockstep.MaxIDLength)})
	require.NoError(t, err, "no domain to name")
	roundTrip(t, tree)
}

func TestTooManyLevelsAreOneFault(t *testing.T) {
	levels := make([]Level, 1_000_000) // a search for doubles would take an hour
	_, err := New(levels, []Node{{ID: "a", Path: make([]string, len(levels))}})
	require.Len(t, flat(err), 1)
	require.Equal(t, "1000000", flat(err)[0].Value)
	levels = nil
	for i := range maxLevels {
		levels = append(levels, Level{Name: lockstep.Level("l" + strconv.Itoa(i))})
	}
	tree, err := New(slices.Concat([]Level{{Name: LevelCluster}}, levels, []Level{{Name: lockstep.LevelNode}}), nil)
	require.NoError(t, err)
	require.Equal(t, maxLevels+2, tree.Levels())
}

func TestBandwidthSaturates(t *testing.T) {
	for _, each := range []lockstep.BytesPerSecond{1, math.MaxInt64 / 3, math.MaxInt64/2 + 1, math.MaxInt64} {
		s, err := NewShape(ShapeConfig{Links: matrix(2, func(int, int) Link { return NVLink(2) }), NVLinkBandwidth: each, PCIeBandwidth: each})
		require.NoError(t, err)
		tree, err := New(nil, []Node{{ID: "a", Shape: s}})
		require.NoError(t, err)
		got, _ := tree.Estimate(Device{0, 0}, Device{0, 1})
		require.Equal(t, min(each, math.MaxInt64/2)*2, got&^1)
		got, _ = tree.Estimate(Device{0, 0}, Device{0, 2})
		require.Equal(t, each/2, got)
	}
}

func TestTreeKeepsItsOwnCopy(t *testing.T) {
	s, err := UniformShape(2, PIX)
	require.NoError(t, err)
	node := func(id lockstep.NodeID) Node {
		return Node{ID: id, Path: []string{"r"}, Shape: s, Devices: []lockstep.DeviceID{"GPU-0", "GPU-1"}}
	}
	levels, nodes := []Level{{Name: "rack"}}, []Node{node("a"), node("b")}
	tree, err := New(levels, nodes)
	require.NoError(t, err)
	changes := []Change{{Recable, node("b")}, {Join, node("c")}}
	next, err := tree.With(changes...)
	require.NoError(t, err)
	before := text(t, tree) + text(t, next)
	levels[0].Name = "x"
	for _, n := range []*Node{&nodes[0], &nodes[1], &changes[0].Node, &changes[1].Node} {
		n.ID, n.Path[0], n.Devices[0] = "x", "x", "x"
	}
	got, _ := next.Node(0)
	got.Path[0] = "x"
	require.Equal(t, before, text(t, tree)+text(t, next))
}

func TestNoNamesAreNil(t *testing.T) {
	tree, err := New(nil, []Node{{ID: "a"}})
	require.NoError(t, err)
	next, err := tree.With(Change{Recable, Node{ID: "a", Devices: []lockstep.DeviceID{}}})
	require.NoError(t, err)
	slots, ok := next.Changes(tree)
	require.True(t, ok)
	require.Empty(t, slots)
	require.Equal(t, text(t, tree), text(t, next), "equal trees give equal bytes")
}

func TestZeroTree(t *testing.T) {
	var tree Tree
	_, ok := tree.Slot("a")
	require.False(t, ok)
	require.Zero(t, tree.Levels()+tree.Slots()+tree.Nodes())
	for _, changes := range [][]Change{nil, {join("a")}, {leave("a")}} {
		_, err := tree.With(changes...)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.Equal(t, "Tree", flat(err)[0].Field)
	}
	require.Panics(t, func() { tree.Domains(0) })
}

// withReference says where With seats nodes while the layout is kept, by trying
// all slots for each; ok is false where the layout must go.
func withReference(tree *Tree, changes []Change) (at []lockstep.NodeID, ok bool) {
	at = make([]lockstep.NodeID, tree.Slots())
	for slot := range at {
		at[slot], _ = tree.NodeAt(int32(slot))
	}
	var order []lockstep.NodeID
	last := make(map[lockstep.NodeID]Change)
	for _, c := range changes {
		if _, seen := last[c.Node.ID]; !seen {
			order = append(order, c.Node.ID)
		}
		last[c.Node.ID] = c
	}
	here := func(slot int32, n Node) bool { return slices.Equal(n.Path, tree.appendPath(nil, slot)) }
	seated := make(map[lockstep.NodeID]bool)
	for _, id := range order {
		slot, was := tree.Slot(id)
		if seated[id] = was && last[id].Kind != Leave && here(slot, last[id].Node); was && !seated[id] {
			at[slot] = ""
		}
	}
	for _, id := range order {
		if last[id].Kind == Leave || seated[id] {
			continue
		}
		slot := 0
		for slot < len(at) && (at[slot] != "" || !here(int32(slot), last[id].Node)) {
			slot++
		}
		if slot == len(at) {
			return nil, false
		}
		at[slot] = id
	}
	return at, true
}

func TestWithEqualsItsReference(t *testing.T) {
	steps := 4_000
	if testing.Short() {
		steps = 600
	}
	r := rand.New(rand.NewPCG(3, 3))
	c := churn{levels: []Level{{Name: "block"}, {Name: "rack"}}}
	var err error
	c.tree, err = New(c.levels, nil)
	require.NoError(t, err)
	kept := 0
	for range steps {
		var changes []Change
		for range r.IntN(8) { // the same node may be named several times
			changes = append(changes, c.change(r))
		}
		before := c.tree
		want, ok := withReference(before, changes)
		c.tree, err = before.With(changes...)
		require.NoError(t, err)
		_, same := c.tree.Changes(before)
		require.Equal(t, ok, same, "the layout is kept exactly where every node finds a slot")
		if !ok {
			require.Empty(t, outOfOrder(before, c.tree, changes), "nodes that no change names keep their order")
			continue
		}
		kept++
		for slot, id := range want {
			got, _ := c.tree.NodeAt(int32(slot))
			require.Equal(t, id, got)
		}
	}
	require.Greater(t, kept, steps/4)
}

// outOfOrder returns the nodes that no change names where the order of the nodes
// of one lowest domain is not what it was.
func outOfOrder(before, after *Tree, changes []Change) (out []lockstep.NodeID) {
	last, slot := int32(-1), int32(-1)
	for old := range int32(before.Slots()) {
		id, ok := before.NodeAt(old)
		if !ok || slices.ContainsFunc(changes, func(c Change) bool { return c.Node.ID == id }) {
			continue
		}
		domain := before.DomainOf(before.Levels()-2, old)
		now, ok := after.Slot(id)
		if !ok || domain == last && now < slot {
			out = append(out, id)
		}
		last, slot = domain, now
	}
	return out
}

func TestChangesBetweenBranchesAreExact(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 3))
	for range 60 {
		base, err := Uniform(UniformConfig{Levels: []Level{{Name: "rack"}}, Fanout: []int{5, 150}, Shape: testShapes[1]})
		require.NoError(t, err)
		base, err = base.With(leave("n3"), leave("n400"), leave("n401"))
		require.NoError(t, err)
		branch := func() *Tree {
			tree := base
			for range r.IntN(5) {
				id := lockstep.NodeID("n" + strconv.Itoa(r.IntN(750)))
				slot, ok := tree.Slot(id)
				if !ok {
					continue
				}
				n, _ := tree.Node(slot)
				switch n.Path = []string{"rack-" + strconv.Itoa(r.IntN(5))}; r.IntN(4) {
				case 0:
					n.Shape = NVSwitch8() // another value of what it was
				case 1:
					n.Address = "10.0.0.1"
				}
				if next, err := tree.With(Change{Recable, n}); err == nil {
					if _, ok := next.Changes(base); ok {
						tree = next
					}
				}
			}
			return tree
		}
		a, b := branch(), branch()
		var want []int32
		for slot := range int32(a.Slots()) {
			if x, y := a.records.at(slot), b.records.at(slot); x.id != y.id || x.address != y.address {
				want = append(want, slot)
			}
		}
		got, ok := a.Changes(b)
		require.True(t, ok)
		require.Equal(t, want, got)
		checkTree(t, a)
		checkTree(t, b)
	}
}

func TestManyJoinsLookAtASlotOnce(t *testing.T) {
	// 2,000 racks, nearly empty, and 2,000 nodes without one, all of which left: were
	// each join to look from the first slot, it would go over 98,000 vacant ones.
	var nodes []Node
	var gone, back []Change
	for i := range 2_000 {
		rack := "r" + strconv.Itoa(i)
		for j := range 50 {
			n := Node{ID: lockstep.NodeID(rack + "-" + strconv.Itoa(j)), Path: []string{rack}}
			if nodes = append(nodes, n); j > 0 {
				gone = append(gone, leave(n.ID))
			}
		}
	}
	for i := range 2_000 {
		id := lockstep.NodeID("u" + strconv.Itoa(i))
		nodes = append(nodes, Node{ID: id, Path: []string{""}})
		gone, back = append(gone, leave(id)), append(back, join("v"+id, ""))
	}
	tree, err := New([]Level{{Name: "rack"}}, nodes)
	require.NoError(t, err)
	tree, err = tree.With(gone...)
	require.NoError(t, err)
	next, err := tree.With(back...)
	require.NoError(t, err)
	slots, ok := next.Changes(tree)
	require.True(t, ok)
	require.Len(t, slots, len(back))
	slot, _ := next.Slot("vu7")
	require.Equal(t, int32(100_007), slot)

	e := tree.edit(len(back))
	for i := range back {
		require.True(t, e.settle(&back[i].Node))
		require.Equal(t, int32(100_000+i), e.seen[place{unnamed: true}])
	}
	require.Len(t, e.seen, 1)
}

func TestNodesAreSeatedInTheOrderOfFirstMention(t *testing.T) {
	tree, err := rackTree(t).With(leave("n4"), leave("n5"))
	require.NoError(t, err)
	tree, err = tree.With(leave("n0"), join("x", "rack-1"), join("n0", "rack-1"))
	require.NoError(t, err)
	first, _ := tree.Slot("n0")
	second, _ := tree.Slot("x")
	require.Equal(t, []int32{4, 5}, []int32{first, second})
}

func TestConcurrentReads(t *testing.T) {
	tree := rackTree(t)
	want := text(t, tree)
	var wait sync.WaitGroup
	for i := range 4 {
		wait.Go(func() {
			next, err := tree.With(leave(lockstep.NodeID("n"+strconv.Itoa(i))), join("x", "rack-0"))
			if err != nil {
				t.Error(err)
				return
			}
			next.Changes(tree)
			tree.AppendRankOrder(nil, []Device{{5, 1}, {0, 3}, {0, 1}})
			tree.Shape(0).Closest(0b1011_0110, 3)
			if got, err := tree.MarshalJSON(); err != nil || string(got) != want {
				t.Error(string(got), err)
			}
		})
	}
	wait.Wait()
}

func TestFiguresOfTheDocumentation(t *testing.T) {
	require.Equal(t, uintptr(3<<10), unsafe.Sizeof(near{}))
	if strconv.IntSize == 64 { // a record is pointers, half as long where these are
		require.Equal(t, uintptr(16<<10), unsafe.Sizeof([pageSize]record{}))
	}
}
