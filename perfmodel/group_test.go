package perfmodel

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestAllReduceOfFourteenGigabytes(t *testing.T) {
	for n, want := range map[int]lockstep.Bytes{ // the order does not matter: each case stands alone
		1: 0, 2: 14 * gb, 4: 21 * gb, 8: 24_500_000_000, 64: 27_562_500_000, 1 << 20: 28*gb - 26702,
	} {
		require.Equal(t, want, AllReduce.Wire(n, 14*gb), "n = %d", n)
	}
	require.Equal(t, 28*gb, AllReduce.Wire(math.MaxInt32, 14*gb).Add(13), "the limit is twice the message")

	at := func(bandwidth lockstep.BytesPerSecond) time.Duration {
		d, ok := GroupShape{{Ranks: 8, Link: Link{Bandwidth: bandwidth}}}.Time(AllReduce, Ring, 14*gb)
		require.True(t, ok)
		return d
	}
	require.Equal(t, 54444444*time.Nanosecond, at(450e9))
	require.Equal(t, 490*time.Millisecond, at(50e9))
}

func TestWireIsRoundedUpInWholeNumbers(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 5000 {
		n, size := 2+r.IntN(1<<r.IntN(21)), r.Int64N(math.MaxInt64>>r.IntN(63))
		for op, times := range [...]int64{2, 1, 1, 1} {
			want := new(big.Int).Mul(big.NewInt(times*int64(n-1)), big.NewInt(size))
			want.Add(want, big.NewInt(int64(n-1))).Div(want, big.NewInt(int64(n)))
			got := Collective(op).Wire(n, lockstep.Bytes(size))
			if want.IsInt64() {
				require.Equal(t, want.Int64(), int64(got), "%v of %d by %d", Collective(op), size, n)
			} else {
				require.Equal(t, lockstep.Bytes(math.MaxInt64), got)
			}
		}
		require.Equal(t, lockstep.Bytes(size), PointToPoint.Wire(n, lockstep.Bytes(size)))
	}
	require.Equal(t, lockstep.Bytes(math.MaxInt64), AllReduce.Wire(4, 6148914691236517205), "2^63 once it is rounded up")
	require.Equal(t, lockstep.Bytes(math.MaxInt64), AllReduce.Wire(2, math.MaxInt64))
	require.Equal(t, lockstep.Bytes(math.MaxInt64), AllReduce.Wire(3, math.MaxInt64))
	require.Equal(t, lockstep.Bytes(math.MaxInt64)/2+1, AllGather.Wire(2, math.MaxInt64))
	require.Zero(t, AllReduce.Wire(0, 5)+AllReduce.Wire(-3, 5)+PointToPoint.Wire(1, 5)+AllGather.Wire(4, -5))
}

// formula is section by section what the textbook says, in seconds.
func formula(g GroupShape, c Collective, a Algorithm, size float64) (float64, bool) {
	n, alpha, beta := 1.0, 0.0, 0.0
	for _, level := range g {
		n *= float64(level.Ranks)
		if level.Ranks > 1 {
			alpha = max(alpha, level.Link.Latency.Seconds())
			beta = max(beta, 1/float64(level.Link.Bandwidth))
		}
	}
	pass := (n-1)*alpha + (n-1)/n*size*beta
	stepwise, left := 0.0, size
	for _, level := range g {
		k := float64(level.Ranks)
		stepwise += (k-1)*level.Link.Latency.Seconds() + (k-1)/k*left/float64(level.Link.Bandwidth)
		left /= k
	}
	switch {
	case n == 1:
		return 0, a == Ring
	case c == AllReduce:
		return [...]float64{2 * pass, 2*math.Ceil(math.Log2(n))*alpha + 2*size*beta, 2 * stepwise}[a], true
	case c == PointToPoint:
		return alpha + size*beta, a == Ring
	case a == Ring:
		return pass, true
	}
	return stepwise, a == Hierarchical && c != AllToAll
}

func TestTimesAreThoseOfTheFormulasAndBestIsTheLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	seen := map[Algorithm]int{}
	for range 3000 {
		g := make(GroupShape, r.IntN(4))
		for i := range g {
			g[i] = GroupLevel{1 + r.IntN(12), Link{time.Duration(r.IntN(30000)), lockstep.BytesPerSecond(1e8 + r.Int64N(9e11))}}
		}
		size := lockstep.Bytes(r.Int64N(1 << r.IntN(40)))
		for c := AllReduce; c <= PointToPoint; c++ {
			least, first := time.Duration(math.MaxInt64), Algorithm(99)
			for a := Ring; a <= Hierarchical; a++ {
				want, does := formula(g, c, a, float64(size))
				got, ok := g.Time(c, a, size)
				require.Equal(t, does, ok, "%v %v %v", g, c, a)
				if !ok {
					continue
				}
				require.InDelta(t, want*1e9, float64(got), 1+want*1e-3, "%v %v %v", g, c, a)
				if got < least {
					least, first = got, a
				}
			}
			a, d, ok := g.Best(c, size)
			require.True(t, ok)
			require.Equal(t, first, a)
			require.Equal(t, least, d)
			if c == AllReduce {
				seen[a]++
			}
		}
	}
	require.Len(t, seen, 3, "each algorithm is the best of some group: %v", seen)
}

func TestBestNamesTheAlgorithm(t *testing.T) {
	nvlink := Link{Latency: 2 * time.Microsecond, Bandwidth: 450e9}
	fabric := Link{Latency: 8 * time.Microsecond, Bandwidth: 50e9}
	g := GroupShape{{8, nvlink}, {4, fabric}}
	for _, c := range []struct {
		g    GroupShape
		size lockstep.Bytes
		want Algorithm
	}{
		{g, 14 * gb, Hierarchical},
		{g, 1, Hierarchical},
		{GroupShape{{64, fabric}}, 1 << 10, Tree},
		{GroupShape{{64, fabric}}, 14 * gb, Ring}, // Hierarchical takes as long, and comes after
		{GroupShape{}, 14 * gb, Ring},
	} {
		a, _, ok := c.g.Best(AllReduce, c.size)
		require.True(t, ok)
		require.Equal(t, c.want, a, "%v of %d", c.g, c.size)
	}
	// By hand, in ns: twice 7 steps of 2000 and 7/8 of 8 GB at 450 GB/s, and twice 3 steps of 8000 and 3/4 of 1 GB at 50 GB/s.
	d, ok := g.Time(AllReduce, Hierarchical, 8*gb)
	require.True(t, ok)
	require.Equal(t, 61_187_111*time.Nanosecond, d)
}

func TestALevelOfOneRankDoesNotMatter(t *testing.T) {
	two := GroupShape{{8, Link{2 * time.Microsecond, 450e9}}, {4, Link{8 * time.Microsecond, 50e9}}}
	for at := range 3 {
		for _, link := range []Link{{}, {-1, -1}, {math.MaxInt64, 1}, {0, math.MaxInt64}} {
			g := slices.Insert(slices.Clone(two), at, GroupLevel{1, link})
			require.NoError(t, g.Validate())
			require.Equal(t, 32, g.Ranks())
			for c := AllReduce; c <= PointToPoint; c++ {
				for a := Ring; a <= Hierarchical; a++ {
					want, does := two.Time(c, a, gb)
					got, ok := g.Time(c, a, gb)
					require.Equal(t, does, ok)
					require.Equal(t, want, got)
				}
			}
		}
	}
	a, d, ok := GroupShape{{1, Link{}}, {1, Link{}}}.Best(AllReduce, gb)
	require.True(t, ok)
	require.Equal(t, Ring, a)
	require.Zero(t, d)
}

// More bytes, slower links and more ranks never take less. More ranks on an inner level may, level by level: each brings a link
// of its own to the levels outside it.
func TestMoreToDoNeverTakesLess(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 18))
	for range 2000 {
		g := make(GroupShape, 1+r.IntN(3))
		for i := range g {
			g[i] = GroupLevel{1 + r.IntN(16), Link{time.Duration(r.IntN(30000)), lockstep.BytesPerSecond(1e8 + r.Int64N(9e11))}}
		}
		size := lockstep.Bytes(r.Int64N(1 << r.IntN(45)))
		at := r.IntN(len(g))
		more, slower, later := slices.Clone(g), slices.Clone(g), slices.Clone(g)
		more[at].Ranks += 1 + r.IntN(9)
		slower[at].Link.Bandwidth -= slower[at].Link.Bandwidth / 3
		later[at].Link.Latency += time.Microsecond
		for c := AllReduce; c <= PointToPoint; c++ {
			for a := Ring; a <= Hierarchical; a++ {
				d, ok := g.Time(c, a, size)
				if !ok {
					continue
				}
				least := func(g GroupShape, size lockstep.Bytes, what string) {
					longer, does := g.Time(c, a, size)
					require.True(t, does)
					require.LessOrEqual(t, d, longer+1, "%v %v %v: %s", g, c, a, what) // a nanosecond for rounding
				}
				least(g, size+1+lockstep.Bytes(r.Int64N(1<<20)), "more bytes")
				least(slower, size, "less bandwidth")
				least(later, size, "more latency")
				if a != Hierarchical || at == len(g)-1 {
					least(more, size, "more ranks")
				}
			}
			require.LessOrEqual(t, c.Wire(g.Ranks(), size), c.Wire(more.Ranks(), size))
			require.LessOrEqual(t, c.Wire(g.Ranks(), size), c.Wire(g.Ranks(), size+1))
		}
	}
}

func TestBadGroupsAreNamed(t *testing.T) {
	good := Link{time.Microsecond, 1e9}
	for _, c := range []struct {
		g            GroupShape
		field, value string
	}{
		{GroupShape{{0, good}}, "[0].Ranks", "0"},
		{GroupShape{{2, good}, {-1, good}}, "[1].Ranks", "-1"},
		{GroupShape{{2, Link{-1, 1}}}, "[0].Link.Latency", "-1ns"},
		{GroupShape{{2, Link{0, 0}}}, "[0].Link.Bandwidth", "0/s"},
		{GroupShape{{1, Link{}}, {2, Link{0, -5}}}, "[1].Link.Bandwidth", "-5/s"},
		{GroupShape{{math.MaxInt32, good}, {math.MaxInt32, good}}, "[0].Ranks", "2147483647"},
		{GroupShape{{1 << 20, good}, {2, good}}, "[1].Ranks", "2"},
		{GroupShape{{1 << 20, good}, {1 << 20, good}, {1 << 20, good}, {1 << 20, good}}, "[1].Ranks", "1048576"},
	} {
		requireFault(t, c.g.Validate(), lockstep.ErrInvalid, c.field, c.value)
		_, ok := c.g.Time(AllReduce, Ring, 1)
		require.False(t, ok)
		_, _, ok = c.g.Best(AllReduce, 1)
		require.False(t, ok)
	}
	g := GroupShape{{8, good}}
	for _, bad := range []struct {
		c    Collective
		a    Algorithm
		size lockstep.Bytes
	}{{5, Ring, 1}, {AllReduce, 3, 1}, {AllReduce, Ring, -1}, {AllToAll, Hierarchical, 1}, {AllGather, Tree, 1}} {
		_, ok := g.Time(bad.c, bad.a, bad.size)
		require.False(t, ok)
	}
	_, _, ok := g.Best(AllReduce, -1)
	require.False(t, ok)
	_, _, ok = g.Best(5, 1)
	require.False(t, ok)
	d, ok := GroupShape{{2, Link{math.MaxInt64, 1}}}.Time(AllReduce, Ring, math.MaxInt64)
	require.True(t, ok)
	require.Equal(t, time.Duration(math.MaxInt64), d)
}
