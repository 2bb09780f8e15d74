package topology

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// railTree returns a random tree of units, racks and NVLink domains in which
// rails are cabled by a few patterns, and which of its levels have rails.
func railTree(t *testing.T, r *rand.Rand) *Tree {
	t.Helper()
	levels := []Level{{Name: "pod"}, {Name: "unit"}, {Name: "rack"}, {Name: "nvl"}}
	first := r.IntN(5) - 1 // -1 is the cluster
	n := 1 + r.IntN(4-max(first, 0))
	for i := max(first, 0); i < first+n; i++ {
		levels[i].Rails = true
	}
	if first < 0 {
		levels = append([]Level{{Name: LevelCluster, Rails: true}}, levels...)
	}
	shapes := []*Shape{nil}
	for _, rails := range [][]int{nil, {0, 1, 2, 3, 4, 5, 6, 7}, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 1, 3, 2, -1, 5, 6, 7}} {
		s, err := NVSwitch8().WithRails(rails)
		require.NoError(t, err)
		shapes = append(shapes, s)
	}
	nodes := make([]Node, 12)
	for i := range nodes {
		nodes[i] = randomNode(r, string(rune('a'+i)), 4)
		nodes[i].Shape, nodes[i].Devices = shapes[r.IntN(len(shapes))], nil
	}
	tree, err := New(levels, nodes)
	require.NoError(t, err)
	return tree
}

// railRank is the documented order in words: what is nearer at all, then levels.
func railRank(tree *Tree, a, b Device) (class, up int) {
	up = -tree.LCA(a.Slot, b.Slot)
	level := tree.LevelAt(-up)
	unit, ok := tree.RailLevel()
	x, y := tree.Shape(a.Slot).Rail(a.Index), tree.Shape(b.Slot).Rail(b.Index)
	switch {
	case a.Slot == b.Slot:
		return 0, int(tree.Shape(a.Slot).Link(a.Index, b.Index))
	case !ok || -up > unit && !level.Rails: // an NVLink domain, or no rails anywhere
		return 1, up
	case level.Rails && x >= 0 && x == y:
		return 2, up
	case level.Rails:
		return 3, up
	}
	return 4, up
}

func TestRailsOrderDistances(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 2))
	for range 100 {
		tree := railTree(t, r)
		pick := func() Device { return Device{r.Int32N(int32(tree.Slots())), r.IntN(10) - 1} }
		unit, ok := tree.RailLevel()
		require.True(t, ok)
		for range 300 {
			a, b, c, d := pick(), pick(), pick(), pick()
			ab := tree.Distance(a, b)
			require.Equal(t, ab, tree.Distance(b, a))
			class1, up1 := railRank(tree, a, b)
			class2, up2 := railRank(tree, c, d)
			require.Equal(t, cmp.Or(cmp.Compare(class1, class2), cmp.Compare(up1, up2)), cmp.Compare(ab, tree.Distance(c, d)), "%v %v, %v %v", a, b, c, d)
			rail := tree.Shape(a.Slot).Rail(a.Index)
			same := rail >= 0 && rail == tree.Shape(b.Slot).Rail(b.Index) && tree.DomainOf(unit, a.Slot) == tree.DomainOf(unit, b.Slot)
			require.Equal(t, same, tree.SameRail(a, b))
		}
	}
}

func TestDistancesAreDenseAndUltrametricAtOneRailLevel(t *testing.T) {
	shape, err := NVSwitch8().WithRails([]int{0, 1, 2, 3, 4, 5, 6, 7})
	require.NoError(t, err)
	tree, err := Uniform(UniformConfig{Levels: []Level{{Name: "unit", Rails: true}}, Fanout: []int{2, 3}, Shape: shape})
	require.NoError(t, err)
	require.Equal(t, Distance(SYS)+1, tree.Distance(Device{0, 3}, Device{1, 3}), "one hop")
	require.Equal(t, Distance(SYS)+2, tree.Distance(Device{0, 3}, Device{1, 4}), "NVLink, then one hop")
	require.Equal(t, Distance(SYS)+3, tree.Distance(Device{0, 3}, Device{3, 3}), "spine")
	require.Equal(t, Distance(SYS)+3, tree.Distance(Device{0, 3}, Device{3, 4}), "spine")
	r := rand.New(rand.NewPCG(5, 3))
	for range 2_000 {
		p := r.Perm(6)
		at := func(i int) Device { return Device{int32(p[i]), r.IntN(9) - 1} }
		a, b, c := at(0), at(1), at(2)
		require.LessOrEqual(t, tree.Distance(a, c), max(tree.Distance(a, b), tree.Distance(b, c)))
	}
	allocs := testing.AllocsPerRun(100, func() {
		tree.Distance(Device{0, 3}, Device{1, 4})
		tree.SameRail(Device{0, 3}, Device{1, 4})
		tree.Estimate(Device{0, 3}, Device{1, 4})
		shape.OnRail(3)
	})
	require.Zero(t, allocs)
}

func TestEstimateOverRails(t *testing.T) {
	mesh := ShapeConfig{Links: [][]Link{{Self, NVLink(1), PIX}, {NVLink(1), Self, SYS}, {PIX, SYS, Self}}, Rails: []int{0, 1, 1}, NVLinkBandwidth: 20}
	full, err := NewShape(mesh)
	require.NoError(t, err)
	single, err := NewShape(ShapeConfig{Links: [][]Link{{Self}}, Rails: []int{0}})
	require.NoError(t, err)
	other, err := single.WithRails([]int{1})
	require.NoError(t, err)
	tree, err := New([]Level{{Name: LevelCluster, Bandwidth: 5, Latency: 9 * time.Microsecond}, {Name: "unit", Bandwidth: 50, Latency: time.Microsecond, Rails: true}}, []Node{
		{ID: "a", Path: []string{"u"}, Shape: full},
		{ID: "b", Path: []string{"u"}, Shape: full},
		{ID: "c", Path: []string{"u"}, Shape: single},
		{ID: "d", Path: []string{"u"}, Shape: other},
		{ID: "e", Path: []string{"v"}, Shape: other},
	})
	require.NoError(t, err)
	for _, c := range []struct {
		name      string
		a, b      Device
		bandwidth lockstep.BytesPerSecond
		latency   time.Duration
	}{
		{"one rail", Device{0, 0}, Device{1, 0}, 50, time.Microsecond},
		{"over the nearer of two on the rail", Device{0, 0}, Device{1, 1}, 20, 1600 * time.Nanosecond},
		{"over a relay on the other node", Device{2, 0}, Device{0, 2}, 50, 2 * time.Microsecond},
		{"the better of both nodes", Device{1, 2}, Device{0, 0}, 20, 1600 * time.Nanosecond},
		{"no relay", Device{2, 0}, Device{3, 0}, 5, 9 * time.Microsecond},
		{"the host has no rail", Device{2, 1}, Device{3, 1}, 5, 9 * time.Microsecond},
		{"the host reaches a rail", Device{0, 0}, Device{1, 3}, 50, 3500 * time.Nanosecond},
		{"other unit", Device{3, 0}, Device{4, 0}, 5, 9 * time.Microsecond},
	} {
		for _, pair := range [][2]Device{{c.a, c.b}, {c.b, c.a}} {
			bandwidth, latency := tree.Estimate(pair[0], pair[1])
			require.Equal(t, c.bandwidth, bandwidth, c.name)
			require.Equal(t, c.latency, latency, c.name)
		}
	}
	slow, err := New([]Level{{Name: LevelCluster, Latency: math.MaxInt64, Rails: true}}, []Node{{ID: "a", Shape: full}, {ID: "b", Shape: full}})
	require.NoError(t, err)
	bandwidth, latency := slow.Estimate(Device{0, 0}, Device{1, 1})
	require.Zero(t, bandwidth, "unknown stays unknown")
	require.Equal(t, time.Duration(math.MaxInt64), latency)
}

func TestRailsOfAShape(t *testing.T) {
	s := NVSwitch8()
	require.Equal(t, -1, s.Rail(0))
	require.Equal(t, s.All(), s.OnRail(-1))
	rails := []int{0, 1, 0, 1, -1, 2, 2, maxRail}
	w, err := s.WithRails(rails)
	require.NoError(t, err)
	rails[0] = 9
	require.Equal(t, 0, w.Rail(0), "it keeps its own copy")
	require.Equal(t, -1, s.Rail(0), "s stays as it is")
	require.Equal(t, -1, w.Rail(8))
	require.Equal(t, -1, w.Rail(-1))
	require.Equal(t, lockstep.DeviceSet(0b101), w.OnRail(0))
	require.Equal(t, lockstep.DeviceSet(0b10000), w.OnRail(-1))
	require.False(t, s.Equal(w))
	fresh, err := NewShape(w.Config())
	require.NoError(t, err)
	require.True(t, fresh.Equal(w))
	again, err := w.WithRails(fresh.Config().Rails)
	require.NoError(t, err)
	require.Same(t, w, again)
	text, err := json.Marshal(w)
	require.NoError(t, err)
	var read Shape
	require.NoError(t, json.Unmarshal(text, &read))
	require.True(t, w.Equal(&read))
	none, err := w.WithRails(nil)
	require.NoError(t, err)
	require.True(t, none.Equal(s))
	nobody, err := (*Shape)(nil).WithRails(nil)
	require.NoError(t, err)
	require.Nil(t, nobody)
	require.Equal(t, -1, nobody.Rail(0))
	require.Zero(t, nobody.OnRail(-1))
}

func TestRailsGoWithTheTree(t *testing.T) {
	shape, err := NVSwitch8().WithRails([]int{0, 1, 2, 3, 4, 5, 6, 7})
	require.NoError(t, err)
	crossed, err := shape.WithRails([]int{1, 0, 2, 3, 4, 5, 6, 7})
	require.NoError(t, err)
	tree, err := Uniform(UniformConfig{Levels: []Level{{Name: "unit", Rails: true}}, Fanout: []int{2, 3}, Shape: shape})
	require.NoError(t, err)
	next, err := tree.With(Change{Recable, Node{ID: "n1", Path: []string{"unit-0"}, Shape: crossed}})
	require.NoError(t, err)
	slots, ok := next.Changes(tree)
	require.True(t, ok)
	require.Equal(t, []int32{1}, slots)
	require.True(t, next.SameRail(Device{0, 0}, Device{1, 1}))
	require.False(t, next.SameRail(Device{0, 0}, Device{1, 0}))
	next, err = next.With(join("x", "unit-2")) // laid out anew
	require.NoError(t, err)
	level, ok := next.RailLevel()
	require.True(t, ok)
	require.Equal(t, 1, level)
	require.True(t, next.SameRail(Device{0, 0}, Device{1, 1}))
	read := roundTrip(t, next)
	require.True(t, read.SameRail(Device{0, 0}, Device{1, 1}))
	require.True(t, read.LevelAt(1).Rails)
	plain := rackTree(t)
	_, ok = plain.RailLevel()
	require.False(t, ok)
	require.False(t, plain.SameRail(Device{0, 0}, Device{0, 0}))
}

func BenchmarkDistanceOverRails(b *testing.B) {
	shape, err := NVSwitch8().WithRails([]int{0, 1, 2, 3, 4, 5, 6, 7})
	require.NoError(b, err)
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		for _, rails := range []bool{false, true} {
			b.Run(fmt.Sprintf("nodes=%d/rails=%v", nodes, rails), func(b *testing.B) {
				tree, err := Uniform(UniformConfig{
					Levels: []Level{{Name: "block"}, {Name: "unit", Rails: rails}},
					Fanout: []int{nodes / 500, 20, 25}, Shape: shape,
				})
				require.NoError(b, err)
				r := rand.New(rand.NewPCG(1, 9))
				pairs := make([][2]Device, 1024)
				for i := range pairs {
					a := r.Int32N(int32(nodes))
					pairs[i] = [2]Device{{a, r.IntN(8)}, {min(a/25*25+r.Int32N(50), int32(nodes)-1), r.IntN(8)}}
				}
				sum, i := Distance(0), 0
				b.ReportAllocs()
				for b.Loop() {
					p := &pairs[i&1023]
					sum += tree.Distance(p[0], p[1])
					i++
				}
				_ = sum
			})
		}
	}
}
