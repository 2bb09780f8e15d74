package topology

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// cluster returns nodes in blocks of 20 racks of 25 nodes.
func cluster(tb testing.TB, nodes int) *Tree {
	tb.Helper()
	tree, err := Uniform(UniformConfig{
		Levels: []Level{{Name: "block"}, {Name: "rack"}},
		Fanout: []int{nodes / 500, 20, 25}, Shape: NVSwitch8(),
	})
	require.NoError(tb, err)
	return tree
}

func TestMillionNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("half a second and 300 MB")
	}
	tree := cluster(t, 1_000_000)
	require.Equal(t, "cluster=1 block=2000 rack=40000 node=1000000 vacant=0", tree.String())
	slot, ok := tree.Slot("n987654")
	require.True(t, ok)
	require.Equal(t, int32(987654), slot)
	first, end := tree.Range(2, tree.DomainOf(2, slot))
	require.Equal(t, []int32{987650, 987675}, []int32{first, end})
	next, err := tree.With(leave("n987654"))
	require.NoError(t, err)
	slots, ok := next.Changes(tree)
	require.True(t, ok)
	require.Equal(t, []int32{987654}, slots)
}

func TestAccessorsAllocateNothing(t *testing.T) {
	tree := rackTree(t)
	other, err := tree.With(leave("n0"))
	require.NoError(t, err)
	big := randomShape(rand.New(rand.NewPCG(1, 5)), 16)
	half := lockstep.DeviceSet(0b0110_1101_1011_0110)
	order := make([]int, 0, 64)
	devices := []Device{{4, 1}, {0, 7}, {0, 1}, {0, -1}, {4, 0}}
	ranks := make([]Device, 0, len(devices))
	for name, call := range map[string]func(){ // in any order
		"counts": func() { _ = tree.Slots() + tree.Nodes() + tree.Levels() + tree.Domains(1) },
		"slot":   func() { tree.Slot("n5"); tree.NodeAt(5); tree.Shape(5); tree.DeviceCount(5) },
		"level":  func() { tree.LevelAt(1); tree.LevelIndex("rack") },
		"domain": func() {
			tree.DomainOf(1, 5)
			tree.Range(1, 1)
			tree.Parent(1, 1)
			tree.Children(1, 1)
			tree.DomainName(1, 1)
		},
		"distance": func() {
			tree.LCA(1, 5)
			tree.Distance(Device{0, 1}, Device{5, 1})
			tree.Estimate(Device{0, 1}, Device{0, 2})
		},
		"names":   func() { tree.Address("n5"); tree.Device("n5", 1) },
		"changes": func() { tree.Changes(tree) },
		"closest": func() {
			PCIe8 := tree.Shape(0)
			PCIe8.Closest(0b11101, 2)
			big.Closest(half, 4)
			big.Closest(^lockstep.DeviceSet(0), 9)
		},
		"order": func() {
			order = tree.Shape(0).AppendOrder(order[:0], 0b11101)
			order = big.AppendOrder(order[:0], half)
		},
		"ranks": func() { ranks = tree.AppendRankOrder(ranks[:0], devices) },
	} {
		require.Zero(t, testing.AllocsPerRun(100, call), name)
	}
	require.NotNil(t, other)
}

var sizes = [...]int{1_000, 10_000, 100_000, 1_000_000} // immutable

func each(b *testing.B, run func(b *testing.B, nodes int)) {
	for _, nodes := range sizes {
		if nodes > 100_000 && testing.Short() {
			continue
		}
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			b.ReportAllocs()
			run(b, nodes)
		})
	}
}

func BenchmarkNew(b *testing.B) {
	each(b, func(b *testing.B, nodes int) {
		tree := cluster(b, nodes)
		list := make([]Node, 0, nodes)
		for slot := range int32(tree.Slots()) {
			n, _ := tree.Node(slot)
			list = append(list, n)
		}
		levels := []Level{{Name: "block"}, {Name: "rack"}}
		for b.Loop() {
			if _, err := New(levels, list); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWith is a node that joins where there is a vacant slot.
func BenchmarkWith(b *testing.B) {
	each(b, func(b *testing.B, nodes int) {
		tree := cluster(b, nodes)
		tree, err := tree.With(leave("n500"))
		require.NoError(b, err)
		change := join("new", "block-1", "rack-20")
		for b.Loop() {
			if _, err := tree.With(change); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkWithRelayout is a node that joins where there is no vacant slot.
func BenchmarkWithRelayout(b *testing.B) {
	each(b, func(b *testing.B, nodes int) {
		tree := cluster(b, nodes)
		change := join("new", "block-1", "rack-20")
		for b.Loop() {
			if _, err := tree.With(change); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkChanges(b *testing.B) {
	each(b, func(b *testing.B, nodes int) {
		tree := cluster(b, nodes)
		next, err := tree.With(leave("n500"))
		require.NoError(b, err)
		for b.Loop() {
			next.Changes(tree)
		}
	})
}

func BenchmarkSlot(b *testing.B) {
	each(b, func(b *testing.B, nodes int) {
		tree := cluster(b, nodes)
		ids := make([]lockstep.NodeID, 1024)
		r := rand.New(rand.NewPCG(1, 6))
		for i := range ids {
			ids[i], _ = tree.NodeAt(r.Int32N(int32(nodes)))
		}
		i := 0
		for b.Loop() {
			tree.Slot(ids[i&1023])
			i++
		}
	})
}

// randomPairs are pairs of devices all over the tree.
func randomPairs(nodes int) (pairs [1024][2]Device) {
	r := rand.New(rand.NewPCG(1, 7))
	for i := range pairs {
		for j := range pairs[i] {
			pairs[i][j] = Device{r.Int32N(int32(nodes)), r.IntN(8)}
		}
	}
	return pairs
}

func BenchmarkLCA(b *testing.B) {
	each(b, func(b *testing.B, nodes int) {
		tree, pairs, i := cluster(b, nodes), randomPairs(nodes), 0
		for b.Loop() {
			p := &pairs[i&1023]
			tree.LCA(p[0].Slot, p[1].Slot)
			i++
		}
	})
}

func BenchmarkDistance(b *testing.B) {
	each(b, func(b *testing.B, nodes int) {
		tree, pairs, i := cluster(b, nodes), randomPairs(nodes), 0
		for b.Loop() {
			p := &pairs[i&1023]
			tree.Distance(p[0], p[1])
			i++
		}
	})
}

func BenchmarkClosest(b *testing.B) {
	uneven := func(n int) *Shape { return randomShape(rand.New(rand.NewPCG(uint64(n), 8)), n) }
	sockets, err := NewShape(ShapeConfig{Links: matrix(16, func(i, j int) Link {
		switch {
		case i/2 == j/2:
			return PIX
		case i/8 == j/8:
			return NODE
		}
		return SYS
	})})
	require.NoError(b, err)
	for _, c := range []struct {
		name  string
		shape *Shape
		free  lockstep.DeviceSet
		k     int
	}{
		{"nvswitch/devices=8/free=7/k=4", NVSwitch8(), 0x7f, 4},
		{"pcie/devices=8/free=7/k=4", PCIe8(), 0x7f, 4},
		{"pcie/devices=16/free=16/k=8", sockets, 0xffff, 8},
		{"pcie/devices=16/free=15/k=7", sockets, 0x7fff, 7},
		{"random/devices=16/free=16/k=8", uneven(16), 0xffff, 8},
		{"random/devices=64/free=64/k=8", uneven(64), 1<<63 - 1, 8},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.shape.Closest(c.free, c.k)
			}
		})
	}
}

func BenchmarkNewShape(b *testing.B) {
	cfg := PCIe8().Config()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := NewShape(cfg); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendRankOrder(b *testing.B) {
	tree, err := Uniform(UniformConfig{Fanout: []int{1024}, Shape: PCIe8()})
	require.NoError(b, err)
	var devices, dst []Device
	for slot := range int32(1024) {
		for i := range 8 {
			devices = append(devices, Device{slot, i})
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		dst = tree.AppendRankOrder(dst[:0], devices)
	}
}
