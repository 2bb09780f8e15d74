package topology

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestLinksAreInOrderOfDistance(t *testing.T) {
	order := []Link{Self}
	for n := MaxNVLinks; n > 0; n-- {
		require.Equal(t, n, NVLink(n).NVLinks())
		order = append(order, NVLink(n))
	}
	order = append(order, PIX, PXB, PHB, NODE, SYS)
	for i, l := range order {
		require.Equal(t, Link(i), l)
		text, err := l.MarshalText()
		require.NoError(t, err)
		var read Link
		require.NoError(t, read.UnmarshalText(text))
		require.Equal(t, l, read)
		if i > 0 {
			require.Greater(t, l.cost(), order[i-1].cost(), "%v", l)
			require.GreaterOrEqual(t, l.latency(), order[i-1].latency(), "%v", l)
		}
	}
	require.Equal(t, NVLink(1), NVLink(0))
	require.Equal(t, NVLink(MaxNVLinks), NVLink(1000))
	for _, s := range []string{"", "NV", "NV0", "NV64", "NVB", "NV01", "NV+1", "NV-1", "nv4", "pix", "XX", "NV999999999999999999999"} {
		var l Link
		require.ErrorIs(t, l.UnmarshalText([]byte(s)), lockstep.ErrInvalid, s)
	}
	_, err := (SYS + 1).MarshalText()
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestNilShapeHasNoDevices(t *testing.T) {
	var s *Shape
	require.Zero(t, s.Devices())
	require.Zero(t, s.All())
	require.Equal(t, -1, s.NUMA(0))
	require.Empty(t, s.NIC(0))
	require.Equal(t, Self, s.Link(0, 0))
	require.Zero(t, s.Closest(1, 1))
	require.Empty(t, s.AppendOrder(nil, 3))
	empty, err := NewShape(ShapeConfig{})
	require.NoError(t, err)
	require.True(t, s.Equal(empty))
	require.True(t, empty.Equal(s))
	require.False(t, s.Equal(PCIe8()))
}

func TestShapeKeepsItsOwnCopy(t *testing.T) {
	cfg := ShapeConfig{Links: matrix(2, func(int, int) Link { return PIX }), NUMA: []int{0, 1}, NICs: []string{"mlx5_0", ""}}
	s, err := NewShape(cfg)
	require.NoError(t, err)
	cfg.Links[0][1], cfg.NUMA[0], cfg.NICs[0] = SYS, 9, "x"
	require.Equal(t, PIX, s.Link(0, 1))
	require.Equal(t, 0, s.NUMA(0))
	require.Equal(t, "mlx5_0", s.NIC(0))
	require.Equal(t, SYS, s.Link(0, 2), "a device it lacks is the host")
	require.Equal(t, SYS, s.Link(-1, 0))
	require.Equal(t, Self, s.Link(-1, 2))
	full, err := UniformShape(64, SYS)
	require.NoError(t, err)
	require.Equal(t, ^lockstep.DeviceSet(0), full.All())
}

// randomShape returns a symmetric shape of few kinds of link, so that ties are
// many, or of all kinds.
func randomShape(r *rand.Rand, n int) *Shape {
	few := [...]Link{NVLink(2), NVLink(1), PIX, SYS}
	kinds := 1 + r.IntN(len(few))
	group := 1 + r.IntN(4)
	m := matrix(n, func(i, j int) Link { return SYS })
	mode := r.IntN(3)
	for i := range n {
		for j := range i {
			l := few[r.IntN(kinds)]
			switch {
			case mode == 1:
				l = 1 + Link(r.IntN(int(SYS)))
			case mode == 2 && i/group == j/group:
				l = PIX
			case mode == 2:
				l = SYS
			}
			m[i][j], m[j][i] = l, l
		}
	}
	s, err := NewShape(ShapeConfig{Links: m})
	if err != nil {
		panic(err)
	}
	return s
}

// pairs sums up the costs of the pairs of set.
func pairs(s *Shape, set lockstep.DeviceSet) (sum int64) {
	for i := range set.All {
		for j := range set.All {
			if i < j {
				sum += int64(s.Link(i, j).cost())
			}
		}
	}
	return sum
}

// bruteClosest tries every set in the order that ties are broken by.
func bruteClosest(s *Shape, free lockstep.DeviceSet, k int) (best lockstep.DeviceSet) {
	in, rest := int64(math.MaxInt64), int64(0)
	for set := free; ; set = (set - 1) & free {
		if set.Len() == k && k > 0 {
			a, b := pairs(s, set), pairs(s, free&^set)
			lower := bits.TrailingZeros64(uint64(set&^best)) < bits.TrailingZeros64(uint64(best&^set))
			if a < in || a == in && (b < rest || b == rest && lower) {
				best, in, rest = set, a, b
			}
		}
		if set == 0 {
			return best
		}
	}
}

func TestClosestEqualsBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	shapes := []*Shape{PCIe8(), NVSwitch8()}
	for range 120 {
		shapes = append(shapes, randomShape(r, 1+r.IntN(13)))
	}
	for range 6 {
		shapes = append(shapes, randomShape(r, 17+r.IntN(48)))
	}
	for _, s := range shapes {
		for range 12 {
			free := lockstep.DeviceSet(r.Uint64()) & s.All()
			for free.Len() > 11 {
				free &= lockstep.DeviceSet(r.Uint64())
			}
			k := r.IntN(free.Len() + 2)
			got := s.Closest(free, k)
			require.Equal(t, bruteClosest(s, free, k), got, "%v of %v: %v", k, free, s.Config().Links)
		}
	}
}

func TestClosestBeyondTheExactSizes(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 30 {
		s := randomShape(r, 17+r.IntN(48))
		for k := range s.Devices() + 1 {
			got := s.Closest(^lockstep.DeviceSet(0), k)
			require.Equal(t, k, got.Len())
			require.Zero(t, got&^s.All())
		}
	}
	// Eight islands of eight: an island is found whole wherever it is.
	s, err := NewShape(ShapeConfig{Links: matrix(64, func(i, j int) Link {
		if i/8 == j/8 {
			return NVLink(4)
		}
		return SYS
	})})
	require.NoError(t, err)
	require.Equal(t, lockstep.DeviceSet(0xff<<24), s.Closest(0x7f7f7f7fff7f7f7f, 8))
	require.Equal(t, lockstep.DeviceSet(0x7f), s.Closest(0xffffffffff7f, 7), "the broken island serves")
}

func TestClosestLeavesIslandsWhole(t *testing.T) {
	s := PCIe8()
	for _, c := range []struct {
		free, want lockstep.DeviceSet
		k          int
	}{
		{0b11111111, 0b00000001, 1},
		{0b11111110, 0b00000010, 1}, // of the broken pair
		{0b11101111, 0b00100000, 1},
		{0b00111111, 0b00110000, 2}, // of the broken socket
		{0b11110110, 0b00110000, 2}, // a whole pair is closer than a broken one's half with another's
		{0b11111110, 0b00001110, 3}, // all that is left of a socket
		{0b11111110, 0b11110000, 4},
	} {
		require.Equal(t, c.want, s.Closest(c.free, c.k), "%v of %v", c.k, c.free)
	}
}

// brutePath tries every order.
func brutePath(s *Shape, set lockstep.DeviceSet) (best []int) {
	sum, closing := int64(math.MaxInt64), int64(0)
	var path []int
	var try func(rest lockstep.DeviceSet, to int64)
	try = func(rest lockstep.DeviceSet, to int64) {
		if rest == 0 {
			c := int64(s.Link(path[0], path[len(path)-1]).cost())
			if to < sum || to == sum && c < closing { // in increasing order, so the first of equals stays
				best, sum, closing = append([]int(nil), path...), to, c
			}
			return
		}
		for d := range rest.All {
			step := int64(0)
			if len(path) > 0 {
				step = int64(s.Link(path[len(path)-1], d).cost())
			}
			path = append(path, d)
			try(rest&^(1<<d), to+step)
			path = path[:len(path)-1]
		}
	}
	if set != 0 {
		try(set, 0)
	}
	return best
}

func TestOrderEqualsBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 2))
	for range 60 {
		s := randomShape(r, 1+r.IntN(12))
		for range 5 {
			set := lockstep.DeviceSet(r.Uint64()) & s.All()
			for set.Len() > 6 {
				set &= set - 1
			}
			require.Equal(t, brutePath(s, set), s.AppendOrder(nil, set), "%v: %v", set, s.Config().Links)
		}
	}
}

func TestOrderOfManyDevices(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for range 20 {
		s := randomShape(r, 9+r.IntN(56))
		got := s.AppendOrder([]int{-1}, s.All())
		require.Equal(t, -1, got[0])
		require.Len(t, got, s.Devices()+1)
		var set lockstep.DeviceSet
		for _, d := range got[1:] {
			set |= 1 << d
		}
		require.Equal(t, s.All(), set)
		require.Equal(t, got, s.AppendOrder([]int{-1}, s.All()))
	}
}

func TestRankOrderKeepsNeighboursNear(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 2))
	for range 100 {
		tree, _, _ := randomTree(t, r, 20)
		if tree.Slots() == 0 {
			continue
		}
		var devices []Device
		for range r.IntN(40) {
			devices = append(devices, Device{r.Int32N(int32(tree.Slots())), r.IntN(10) - 1})
		}
		got := tree.AppendRankOrder(nil, devices)
		require.ElementsMatch(t, devices, got)
		for i := 1; i < len(got); i++ {
			require.LessOrEqual(t, got[i-1].Slot, got[i].Slot, "nodes in order of slots")
		}
		// The order of what is given does not matter.
		r.Shuffle(len(devices), func(i, j int) { devices[i], devices[j] = devices[j], devices[i] })
		require.Equal(t, got, tree.AppendRankOrder(nil, devices))
		// Every domain is entered once: ranks of a domain are consecutive.
		for level := range tree.Levels() {
			seen := make(map[int32]bool)
			for i := range got {
				d := tree.DomainOf(level, got[i].Slot)
				if i == 0 || d != tree.DomainOf(level, got[i-1].Slot) {
					require.False(t, seen[d])
					seen[d] = true
				}
			}
		}
	}
}
