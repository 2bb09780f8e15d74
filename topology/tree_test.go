package topology

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// randomLevels returns up to three levels between the cluster and the nodes.
func randomLevels(r *rand.Rand) []Level {
	levels := []Level{{Name: "zone", Bandwidth: 10e9}, {Name: "block", Bandwidth: 25e9, Latency: 5000}, {Name: "rack", Bandwidth: 50e9}}
	return levels[:r.IntN(len(levels)+1)]
}

var testShapes = [...]*Shape{nil, NVSwitch8(), PCIe8()} // immutable

// randomNode returns a node with a path of depth elements out of few names, so
// that domains are shared, some of them unnamed.
func randomNode(r *rand.Rand, id string, depth int) Node {
	n := Node{ID: lockstep.NodeID(id), Shape: testShapes[r.IntN(len(testShapes))]}
	for range depth {
		name := ""
		if r.IntN(5) > 0 {
			name = "d" + strconv.Itoa(r.IntN(3))
		}
		n.Path = append(n.Path, name)
	}
	if r.IntN(3) == 0 {
		n.Address = "10.0.0." + strconv.Itoa(r.IntN(256))
	}
	if d := n.Shape.Devices(); r.IntN(3) == 0 && d > 0 {
		n.Devices = make([]lockstep.DeviceID, d)
		for i := range n.Devices {
			n.Devices[i] = lockstep.DeviceID("GPU-" + id + "-" + strconv.Itoa(i))
		}
	}
	return n
}

func randomTree(t *testing.T, r *rand.Rand, most int) (*Tree, []Level, []Node) {
	levels := randomLevels(r)
	nodes := make([]Node, r.IntN(most+1))
	for i := range nodes {
		nodes[i] = randomNode(r, "n"+strconv.Itoa(i), len(levels))
	}
	tree, err := New(levels, nodes)
	require.NoError(t, err)
	return tree, levels, nodes
}

// checkTree holds a tree to the invariants that its documentation states.
func checkTree(t *testing.T, tree *Tree) {
	t.Helper()
	last := tree.Levels() - 1
	require.Equal(t, LevelCluster, tree.LevelAt(0).Name)
	require.Equal(t, lockstep.LevelNode, tree.LevelAt(last).Name)
	require.Equal(t, 1, tree.Domains(0))
	require.Equal(t, tree.Slots(), tree.Domains(last))
	for level := range tree.Levels() {
		next, nextChild := int32(0), int32(0)
		for d := range int32(tree.Domains(level)) {
			first, end := tree.Range(level, d)
			require.Equal(t, next, first, "domains of a level partition the slots")
			if tree.Slots() > 0 {
				require.Less(t, first, end, "no domain is empty")
			}
			next = end
			for slot := first; slot < end; slot++ {
				require.Equal(t, d, tree.DomainOf(level, slot))
			}
			if level == last {
				require.Equal(t, d, first)
				continue
			}
			c, cEnd := tree.Children(level, d)
			require.Equal(t, nextChild, c, "children partition the next level")
			nextChild = cEnd
			for ; c < cEnd; c++ {
				require.Equal(t, d, tree.Parent(level+1, c), "parent and child agree")
				f, e := tree.Range(level+1, c)
				require.True(t, first <= f && e <= end, "ranges nest")
			}
		}
		require.Equal(t, int32(tree.Slots()), next)
		if level < last {
			require.Equal(t, int32(tree.Domains(level+1)), nextChild)
		}
	}
	checkNames(t, tree)
}

// checkNames holds the slots to the index of names.
func checkNames(t *testing.T, tree *Tree) {
	t.Helper()
	occupied := 0
	for slot := range int32(tree.Slots()) {
		id, ok := tree.NodeAt(slot)
		if vacant := *tree.vacant.at(slot >> 6)>>(slot&63)&1 != 0; vacant == ok {
			require.Equal(t, !ok, vacant)
		}
		if !ok {
			require.Equal(t, record{}, *tree.records.at(slot))
			continue
		}
		occupied++
		if found, ok := tree.Slot(id); !ok || found != slot {
			require.Equal(t, slot, found)
		}
		if name := tree.DomainName(tree.Levels()-1, slot); name != string(id) {
			require.Equal(t, string(id), name)
		}
	}
	require.Equal(t, occupied, tree.Nodes())
}

// ancestors returns the domain of each level by climbing parents.
func ancestors(tree *Tree, slot int32) []int32 {
	out := make([]int32, tree.Levels())
	d := slot
	for level := tree.Levels() - 1; level > 0; level-- {
		out[level] = d
		d = tree.Parent(level, d)
	}
	out[0] = d
	return out
}

func TestDomainsAreNestedRanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 300 {
		tree, levels, nodes := randomTree(t, r, 60)
		checkTree(t, tree)
		require.Equal(t, len(nodes), tree.Nodes())
		require.Equal(t, len(nodes), tree.Slots())
		require.Equal(t, len(levels)+2, tree.Levels())
		for i := range nodes {
			slot, ok := tree.Slot(nodes[i].ID)
			require.True(t, ok)
			got, ok := tree.Node(slot)
			require.True(t, ok)
			require.Equal(t, nodes[i], got)
		}
	}
}

func TestLCAIsTheFinestCommonAncestor(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for range 100 {
		tree, _, _ := randomTree(t, r, 40)
		for a := range int32(tree.Slots()) {
			for b := range int32(tree.Slots()) {
				x, y := ancestors(tree, a), ancestors(tree, b)
				want := 0
				for level := range x {
					if x[level] == y[level] {
						want = level
					}
				}
				require.Equal(t, want, tree.LCA(a, b))
			}
		}
	}
}

func TestNodesShareDomainsExactlyWherePathsSaySo(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 200 {
		tree, levels, nodes := randomTree(t, r, 25)
		for i := range nodes {
			for j := range nodes {
				a, _ := tree.Slot(nodes[i].ID)
				b, _ := tree.Slot(nodes[j].ID)
				// The deepest level up to which the paths agree; where they agree on "" it
				// counts only if the next named element is the same at the same place.
				want := 0
				for level := 1; level <= len(levels); level++ {
					p, q := nodes[i].Path, nodes[j].Path
					to := level
					for to < len(levels) && p[to-1] == "" {
						to++
					}
					if !slices.Equal(p[:to], q[:to]) || p[to-1] == "" && i != j {
						break
					}
					want = level
				}
				if i == j {
					want = len(levels) + 1
				}
				require.Equal(t, want, tree.LCA(a, b), "%q %q", nodes[i].Path, nodes[j].Path)
			}
		}
	}
}

func TestDomainsStandWhereTheirFirstNodeDoes(t *testing.T) {
	tree, err := New([]Level{{Name: "rack"}}, []Node{
		{ID: "a", Path: []string{"z"}},
		{ID: "b", Path: []string{"y"}},
		{ID: "c", Path: []string{"z"}},
		{ID: "d", Path: []string{""}},
		{ID: "e", Path: []string{"y"}},
	})
	require.NoError(t, err)
	var got []string
	for slot := range int32(tree.Slots()) {
		id, _ := tree.NodeAt(slot)
		got = append(got, tree.DomainName(1, tree.DomainOf(1, slot))+"/"+string(id))
	}
	require.Equal(t, []string{"z/a", "z/c", "y/b", "y/e", "d/d"}, got)
	require.Equal(t, "cluster", tree.DomainName(0, 0))
}

func TestUnevenDepth(t *testing.T) {
	// A Slurm tree in which leaf s3 hangs off the root: its nodes share it although
	// they have no spine.
	tree, err := New([]Level{{Name: "spine"}, {Name: "leaf"}}, []Node{
		{ID: "a", Path: []string{"s1", "s2"}},
		{ID: "b", Path: []string{"", "s3"}},
		{ID: "c", Path: []string{"", "s3"}},
		{ID: "d", Path: []string{"", ""}},
		{ID: "e", Path: []string{"", ""}},
		{ID: "f", Path: []string{"s1", ""}},
	})
	require.NoError(t, err)
	checkTree(t, tree)
	at := func(id lockstep.NodeID) int32 {
		slot, ok := tree.Slot(id)
		require.True(t, ok)
		return slot
	}
	require.Equal(t, 2, tree.LCA(at("b"), at("c")))
	require.Equal(t, 0, tree.LCA(at("d"), at("e")))
	require.Equal(t, 1, tree.LCA(at("a"), at("f")))
	require.Equal(t, "s3", tree.DomainName(1, tree.DomainOf(1, at("b"))))
	require.Equal(t, "d", tree.DomainName(1, tree.DomainOf(1, at("d"))))
}

func TestSmallTrees(t *testing.T) {
	for _, levels := range [][]Level{nil, {{Name: "rack"}}, {{Name: LevelCluster, Bandwidth: 1}, {Name: "rack"}, {Name: lockstep.LevelNode}}} {
		tree, err := New(levels, nil)
		require.NoError(t, err)
		checkTree(t, tree)
		require.Zero(t, tree.Slots())
		_, ok := tree.Slot("a")
		require.False(t, ok)

		path := make([]string, tree.Levels()-2)
		tree, err = New(levels, []Node{{ID: "a", Path: path}})
		require.NoError(t, err)
		checkTree(t, tree)
		require.Equal(t, tree.Levels()-1, tree.LCA(0, 0))
		require.Zero(t, tree.DeviceCount(0))
	}
}

func TestSameInputSameTree(t *testing.T) {
	// What is built from a map is the same whatever order the map was filled in,
	// once its keys are sorted, and the tree itself keeps no order of its own.
	r := rand.New(rand.NewPCG(4, 1))
	for range 20 {
		_, levels, nodes := randomTree(t, r, 50)
		var want []byte
		for range 4 {
			byID := make(map[lockstep.NodeID]Node)
			for _, i := range r.Perm(len(nodes)) {
				byID[nodes[i].ID] = nodes[i]
			}
			ids := make([]lockstep.NodeID, 0, len(byID))
			for id := range byID { // in any order: sorted below
				ids = append(ids, id)
			}
			slices.Sort(ids)
			list := make([]Node, 0, len(ids))
			for _, id := range ids {
				list = append(list, byID[id])
			}
			tree, err := New(levels, list)
			require.NoError(t, err)
			got, err := tree.MarshalJSON()
			require.NoError(t, err)
			if want == nil {
				want = got
			}
			require.Equal(t, string(want), string(got))
		}
	}
}

func TestInventory(t *testing.T) {
	shape, err := UniformShape(2, NVLink(4))
	require.NoError(t, err)
	tree, err := New(nil, []Node{
		{ID: "a", Shape: shape, Address: "10.0.0.1", Devices: []lockstep.DeviceID{"GPU-1", ""}},
		{ID: "b", Shape: shape},
	})
	require.NoError(t, err)
	address, ok := tree.Address("a")
	require.True(t, ok)
	require.Equal(t, "10.0.0.1", address)
	address, ok = tree.Address("b")
	require.True(t, ok)
	require.Empty(t, address)
	_, ok = tree.Address("c")
	require.False(t, ok)
	for _, c := range []struct {
		node  lockstep.NodeID
		index int
		id    lockstep.DeviceID
		ok    bool
	}{{"a", 0, "GPU-1", true}, {"a", 1, "", true}, {"a", 2, "", false}, {"a", -1, "", false}, {"b", 0, "", true}, {"c", 0, "", false}} {
		id, ok := tree.Device(c.node, c.index)
		require.Equal(t, c.id, id, "%v", c)
		require.Equal(t, c.ok, ok, "%v", c)
	}
}

func TestDistanceIsASymmetricOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	for range 100 {
		tree, _, _ := randomTree(t, r, 20)
		if tree.Slots() == 0 {
			continue
		}
		pick := func() Device { return Device{r.Int32N(int32(tree.Slots())), r.IntN(9) - 1} }
		for range 200 {
			a, b, c := pick(), pick(), pick()
			ab, bc, ac := tree.Distance(a, b), tree.Distance(b, c), tree.Distance(a, c)
			require.Equal(t, ab, tree.Distance(b, a))
			require.Zero(t, tree.Distance(a, a))
			if a.Slot != b.Slot {
				require.Greater(t, ab, Distance(SYS))
				require.Equal(t, Distance(SYS)+Distance(tree.Levels()-1-tree.LCA(a.Slot, b.Slot)), ab)
			} else {
				require.LessOrEqual(t, ab, Distance(SYS))
			}
			if a.Slot != b.Slot && b.Slot != c.Slot && a.Slot != c.Slot {
				require.LessOrEqual(t, ac, max(ab, bc), "ultrametric across nodes")
			}
		}
	}
}

func TestEstimate(t *testing.T) {
	tree, err := New([]Level{{Name: LevelCluster, Bandwidth: 5, Latency: 50}, {Name: "rack", Bandwidth: 7, Latency: 70}}, []Node{
		{ID: "a", Path: []string{"r"}, Shape: PCIe8()},
		{ID: "b", Path: []string{"r"}, Shape: NVSwitch8()},
		{ID: "c", Path: []string{"s"}},
	})
	require.NoError(t, err)
	for _, c := range []struct {
		a, b      Device
		bandwidth lockstep.BytesPerSecond
		latency   int64
	}{
		{Device{0, 0}, Device{0, 0}, 0, 0},
		{Device{0, 0}, Device{0, 1}, 32e9, 1000},
		{Device{0, 0}, Device{0, 2}, 26_666_666_667, 1800},
		{Device{0, 0}, Device{0, 4}, 16e9, 2500},
		{Device{1, 0}, Device{1, 4}, 450e9, 600},
		{Device{0, 0}, Device{1, 0}, 7, 70},
		{Device{0, 0}, Device{2, 0}, 5, 50},
		{Device{2, 0}, Device{2, 0}, 0, 0},
	} {
		bandwidth, latency := tree.Estimate(c.a, c.b)
		require.Equal(t, c.bandwidth, bandwidth, "%v", c)
		require.Equal(t, c.latency, latency.Nanoseconds(), "%v", c)
	}
}
