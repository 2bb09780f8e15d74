package topology

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func text(t *testing.T, tree *Tree) string {
	t.Helper()
	b, err := tree.MarshalJSON()
	require.NoError(t, err)
	return string(b)
}

// sameUpToSlots holds tree to a fresh build of its nodes: the same nodes, and
// the same nodes together at each level.
func sameUpToSlots(t *testing.T, tree *Tree, levels []Level, nodes []Node) {
	t.Helper()
	checkTree(t, tree)
	fresh, err := New(levels, nodes)
	require.NoError(t, err)
	require.Equal(t, len(nodes), tree.Nodes())
	for i := range nodes {
		a, ok := tree.Slot(nodes[i].ID)
		require.True(t, ok)
		got, _ := tree.Node(a)
		require.Equal(t, nodes[i], got)
		x, _ := fresh.Slot(nodes[i].ID)
		for j := range nodes[:i] {
			b, _ := tree.Slot(nodes[j].ID)
			y, _ := fresh.Slot(nodes[j].ID)
			if fresh.LCA(x, y) != tree.LCA(a, b) {
				require.Equal(t, fresh.LCA(x, y), tree.LCA(a, b), "%v %v", nodes[i], nodes[j])
			}
		}
	}
}

// churn is a tree and what it should be.
type churn struct {
	tree   *Tree
	levels []Level
	nodes  []Node
	born   int
}

// change draws a change and applies it to the list of nodes.
func (c *churn) change(r *rand.Rand) Change {
	kind := r.IntN(3)
	if kind == 0 && len(c.nodes) < 70 || len(c.nodes) == 0 {
		n := randomNode(r, "n"+strconv.Itoa(c.born), len(c.levels))
		c.born++
		c.nodes = append(c.nodes, n)
		return Change{Join, n}
	}
	i := r.IntN(len(c.nodes))
	if kind == 1 {
		n := randomNode(r, string(c.nodes[i].ID), len(c.levels))
		if r.IntN(2) == 0 {
			n.Path = c.nodes[i].Path
		}
		c.nodes[i] = n
		return Change{Recable, n}
	}
	id := c.nodes[i].ID
	c.nodes = slices.Delete(c.nodes, i, i+1)
	return Change{Leave, Node{ID: id}}
}

func TestChurnKeepsTheSlotsOfOthers(t *testing.T) {
	steps := 10_000
	if testing.Short() {
		steps = 1_000
	}
	r := rand.New(rand.NewPCG(1, 3))
	c := churn{levels: []Level{{Name: "block"}, {Name: "rack"}}}
	for range 40 {
		c.nodes = append(c.nodes, randomNode(r, "n"+strconv.Itoa(c.born), 2))
		c.born++
	}
	var err error
	c.tree, err = New(c.levels, c.nodes)
	require.NoError(t, err)
	kept := 0
	for step := range steps {
		before := c.tree
		var changes []Change
		named := make(map[lockstep.NodeID]bool)
		for range 1 + r.IntN(3) {
			change := c.change(r)
			changes = append(changes, change)
			named[change.Node.ID] = true
		}
		beforeText := ""
		if step%100 == 0 {
			beforeText = text(t, before)
		}
		c.tree, err = before.With(changes...)
		require.NoError(t, err)
		if slots, ok := c.tree.Changes(before); ok {
			kept++
			require.True(t, slices.IsSorted(slots))
			require.Equal(t, before.Slots(), c.tree.Slots())
			for slot := range int32(before.Slots()) {
				a, aok := before.Node(slot)
				b, bok := c.tree.Node(slot)
				_, changed := slices.BinarySearch(slots, slot)
				switch { // as require.Equal for each slot of each step would take a minute
				case !changed && (aok != bok || a.ID != b.ID || a.Shape != b.Shape || !slices.Equal(a.Path, b.Path) || a.Address != b.Address || !slices.Equal(a.Devices, b.Devices)):
					require.Equal(t, a, b)
				case changed && !(aok && named[a.ID] || bok && named[b.ID]):
					require.Fail(t, "only nodes of the changes differ")
				}
			}
			back, ok := before.Changes(c.tree)
			require.True(t, ok)
			require.Equal(t, slots, back)
		}
		checkNames(t, c.tree)
		if step%100 == 0 {
			require.Equal(t, beforeText, text(t, before), "With leaves its tree as it was")
			sameUpToSlots(t, c.tree, c.levels, c.nodes)
		}
	}
	require.Greater(t, kept, steps/4, "the layout is kept often enough for the test to mean something")
}

func TestWithEqualsAFreshBuild(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for range 100 {
		tree, levels, nodes := randomTree(t, r, 15)
		c := churn{tree: tree, levels: levels, nodes: nodes, born: len(nodes)}
		for range 10 {
			var changes []Change
			for range r.IntN(6) {
				changes = append(changes, c.change(r))
			}
			next, err := c.tree.With(changes...)
			require.NoError(t, err)
			again, err := c.tree.With(changes...)
			require.NoError(t, err)
			require.Equal(t, text(t, next), text(t, again), "the same changes give the same tree")
			c.tree = next
			sameUpToSlots(t, c.tree, levels, c.nodes)
		}
	}
}

func rackTree(t *testing.T) *Tree {
	t.Helper()
	tree, err := Uniform(UniformConfig{Levels: []Level{{Name: "rack"}}, Fanout: []int{2, 4}, Shape: PCIe8()})
	require.NoError(t, err)
	return tree
}

func join(id lockstep.NodeID, path ...string) Change { return Change{Join, Node{ID: id, Path: path}} }

func leave(id lockstep.NodeID) Change { return Change{Leave, Node{ID: id}} }

func recable(id lockstep.NodeID, path ...string) Change {
	return Change{Recable, Node{ID: id, Path: path}}
}

func TestJoinTakesTheLowestVacantSlotOfItsDomain(t *testing.T) {
	tree := rackTree(t)
	tree, err := tree.With(leave("n6"), leave("n1"), leave("n2"))
	require.NoError(t, err)
	next, err := tree.With(join("a", "rack-0"), join("b", "rack-1"), join("c", "rack-0"))
	require.NoError(t, err)
	slots, ok := next.Changes(tree)
	require.True(t, ok)
	require.Equal(t, []int32{1, 2, 6}, slots)
	for id, want := range map[lockstep.NodeID]int32{"a": 1, "c": 2, "b": 6} { // in any order
		slot, ok := next.Slot(id)
		require.True(t, ok)
		require.Equal(t, want, slot)
	}
}

func TestChangesOfOneCallTakeEffectTogether(t *testing.T) {
	tree := rackTree(t)
	// n0 and n4 change places, and n5 leaves and comes back: nobody else moves.
	next, err := tree.With(recable("n0", "rack-1"), recable("n4", "rack-0"), leave("n5"), join("n5", "rack-1"))
	require.NoError(t, err)
	slots, ok := next.Changes(tree)
	require.True(t, ok)
	require.Equal(t, []int32{0, 4, 5}, slots)
	for id, want := range map[lockstep.NodeID]int32{"n4": 0, "n0": 4, "n5": 5, "n7": 7} { // in any order
		slot, _ := next.Slot(id)
		require.Equal(t, want, slot, id)
	}
	same, err := next.With()
	require.NoError(t, err)
	slots, ok = same.Changes(next)
	require.True(t, ok)
	require.Empty(t, slots)
	// A node that joins and leaves in one call was never there.
	same, err = next.With(join("x", "rack-9"), leave("x"))
	require.NoError(t, err)
	require.Equal(t, text(t, next), text(t, same))
}

func TestRelayoutLeavesRoomInWhatGrew(t *testing.T) {
	tree := rackTree(t)
	grown, err := tree.With(join("a", "rack-0"))
	require.NoError(t, err)
	_, ok := grown.Changes(tree)
	require.False(t, ok)
	checkTree(t, grown)
	require.Equal(t, "cluster=1 rack=2 node=11 vacant=2", grown.String())
	first, end := grown.Range(1, 0)
	require.Equal(t, []int32{0, 7}, []int32{first, end})
	slot, _ := grown.Slot("a")
	require.Equal(t, int32(4), slot)
	next, err := grown.With(join("b", "rack-0"), join("c", "rack-0"))
	require.NoError(t, err)
	_, ok = next.Changes(grown)
	require.True(t, ok, "the room was there")

	// A rack whose nodes all left keeps its slots until the next relayout.
	empty, err := next.With(leave("n4"), leave("n5"), leave("n6"), leave("n7"))
	require.NoError(t, err)
	_, ok = empty.Changes(tree)
	require.False(t, ok)
	_, ok = empty.Changes(grown)
	require.True(t, ok, "two calls that both kept the layout")
	require.Equal(t, 2, empty.Domains(1))
	moved, err := empty.With(join("z", "rack-7"))
	require.NoError(t, err)
	require.Equal(t, 2, moved.Domains(1))
	require.Equal(t, "rack-7", moved.DomainName(1, 1))
	checkTree(t, moved)
}

func TestUnnamedDomainsAreReused(t *testing.T) {
	tree, err := New([]Level{{Name: "block"}, {Name: "rack"}}, []Node{
		{ID: "a", Path: []string{"b0", ""}}, {ID: "b", Path: []string{"b0", "r"}}, {ID: "c", Path: []string{"", ""}}, {ID: "d", Path: []string{"b1", ""}},
	})
	require.NoError(t, err)
	tree, err = tree.With(leave("a"), leave("b"), leave("c"), leave("d"))
	require.NoError(t, err)
	next, err := tree.With(join("x", "b1", ""), join("y", "", ""), join("z", "b0", ""))
	require.NoError(t, err)
	slots, ok := next.Changes(tree)
	require.True(t, ok)
	require.Equal(t, []int32{0, 2, 3}, slots)
	require.Equal(t, "z", next.DomainName(1+1, 0))
	require.Equal(t, "y", next.DomainName(1, 1))
}

func TestManyJoinsRebuildTheIndex(t *testing.T) {
	tree, err := Uniform(UniformConfig{Fanout: []int{1000}})
	require.NoError(t, err)
	for i := range 3000 {
		id := lockstep.NodeID("n" + strconv.Itoa(i%1000+i/1000*1000))
		next := lockstep.NodeID("n" + strconv.Itoa(i+1000))
		tree, err = tree.With(leave(id), join(next))
		require.NoError(t, err)
	}
	checkTree(t, tree)
	require.Equal(t, 1000, tree.Slots())
	slot, ok := tree.Slot("n3999")
	require.True(t, ok)
	require.Equal(t, int32(999), slot)
}
