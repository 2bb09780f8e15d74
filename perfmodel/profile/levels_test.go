package profile

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// tree has the levels of most tests, the coarsest first.
func tree() []lockstep.Level { return []lockstep.Level{"cluster", "block", "rack", lockstep.LevelNode} }

func store(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	return s
}

// run observes iterations of those milliseconds.
func run(t *testing.T, s *Store, k Kind, level lockstep.Level, ms ...float64) {
	t.Helper()
	for _, m := range ms {
		require.NoError(t, s.ObserveLevel(k, level, time.Duration(m*float64(time.Millisecond))))
	}
}

func TestSlowdownIsThatOfTheMedian(t *testing.T) {
	s := store(t, Config{Levels: tree()})
	run(t, s, "k", lockstep.LevelNode, 100, 101, 99, 100, 5000) // one of them saved a checkpoint
	run(t, s, "k", "block", 150, 149, 151, 150, 150)
	require.Equal(t, Estimate{Value: 1, Low: 1, High: 1, Samples: 5, Source: Measured}, s.Slowdown("k", lockstep.LevelNode))
	block := s.Slowdown("k", "block")
	require.Equal(t, Measured, block.Source)
	require.InDelta(t, 1.5, block.Value, 1e-9)
	require.True(t, block.Low > 1.4 && block.High < 1.6, "%+v", block)

	rack := s.Slowdown("k", "rack")
	require.Equal(t, Inferred, rack.Source)
	require.Equal(t, 1., rack.Low, "it is not below that of the node")
	require.Equal(t, block.High, rack.High, "nor above that of the block")
	require.InDelta(t, math.Sqrt(1.5), rack.Value, 1e-9)

	cluster := s.Slowdown("k", "cluster")
	require.Equal(t, Estimate{Value: block.Value, Low: block.Low}, cluster, "unknown, but at least as slow")

	require.Zero(t, s.Slowdown("k", "row"))
	require.Zero(t, s.Slowdown("unknown", "rack"))
	far := store(t, Config{Levels: tree()})
	run(t, far, "k", "rack", 100)
	require.Zero(t, far.Slowdown("k", lockstep.LevelNode), "finer than all that was measured")
	require.Equal(t, Measured, far.Slowdown("k", "rack").Source)
}

func TestNeedIsOnlyWhatIsSure(t *testing.T) {
	s := store(t, Config{Levels: tree()})
	run(t, s, "needs", lockstep.LevelNode, 100, 100, 100, 100, 100, 100)
	run(t, s, "needs", "cluster", 200, 200, 200, 200, 200, 200)
	run(t, s, "seems", lockstep.LevelNode, 100)
	run(t, s, "seems", "cluster", 103)
	run(t, s, "doesnot", lockstep.LevelNode, 100, 101, 102, 103)
	run(t, s, "doesnot", "cluster", 101, 100, 100, 103)
	sure := s.Need("needs", lockstep.LevelNode, "cluster")
	require.Greater(t, sure, int64(850))
	require.LessOrEqual(t, sure, int64(1000))
	for _, k := range []Kind{"seems", "doesnot", "unknown"} {
		require.Zero(t, s.Need(k, lockstep.LevelNode, "cluster"), k)
	}
	require.Zero(t, s.Need("needs", "cluster", lockstep.LevelNode), "closer is never slower")
	require.Zero(t, s.Need("needs", "cluster", "cluster"))
	require.Zero(t, s.Need("needs", "rack", "cluster"), "the rack may be as slow as the cluster")
	require.Zero(t, s.Need("needs", lockstep.LevelNode, "rack"), "or as fast as the node")
	require.Zero(t, s.Need("needs", "row", "cluster"))
	require.Zero(t, s.Need("needs", lockstep.LevelNode, "row"))

	claims := []Claim{{"a", 5, 0}, {"c", 7, 10}, {"b", 7, 10}, {"d", 7, 900}, {"e", 8, 1}}
	slices.SortFunc(claims, Claim.Compare)
	require.Equal(t, []Claim{{"e", 8, 1}, {"d", 7, 900}, {"b", 7, 10}, {"c", 7, 10}, {"a", 5, 0}}, claims)
}

func TestSlowdownNeverFallsWithDistance(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		s := store(t, Config{Levels: tree(), Keep: 1 + rng.IntN(64)})
		for _, l := range tree() {
			for range rng.IntN(8) {
				run(t, s, "k", l, math.Exp(rng.NormFloat64()*float64(rng.IntN(3)))*100)
			}
		}
		was := 0.
		levels := tree()
		slices.Reverse(levels)
		for i, l := range levels {
			e := s.Slowdown("k", l)
			if e == (Estimate{}) {
				continue
			}
			require.GreaterOrEqual(t, e.Value, was-1e-9)
			require.GreaterOrEqual(t, e.Value, 1-1e-9)
			require.LessOrEqual(t, e.Low, e.Value*(1+1e-9))
			if e.High != 0 {
				require.GreaterOrEqual(t, e.High*(1+1e-9), e.Value)
			}
			was = e.Value
			for _, near := range levels[:i] {
				need := s.Need("k", near, l)
				require.GreaterOrEqual(t, need, int64(0))
				if e.Source == Unknown {
					require.Zero(t, need)
				}
			}
		}
	}
}

// What is called the interval of 95 % holds the truth nearly that often, for spreads from
// a fifth of the usual one to four times as much, with one iteration in twenty far off.
func TestIntervalsHoldTheTruth(t *testing.T) {
	rounds := 4000
	if testing.Short() {
		rounds = 800
	}
	rng := rand.New(rand.NewPCG(2, 2))
	for _, n := range []int{3, 5, 8, 16} {
		for _, spread := range []float64{.01, .05, .2} {
			hits, below := 0, 0
			for range rounds {
				xs := make([]float64, n)
				for i := range xs {
					xs[i] = spread * rng.NormFloat64()
					if rng.IntN(20) == 0 {
						xs[i] += 2
					}
				}
				b := believe(xs, usual)
				if math.Abs(b.mid) <= b.half {
					hits++
				}
				if b.mid-b.half <= 0 {
					below++
				}
			}
			share := float64(hits) / float64(rounds)
			t.Logf("%2d iterations, spread %.2f: %.3f", n, spread, share)
			floor := .94
			if spread > usual {
				floor = .83 // few say little of their spread
			}
			require.Greater(t, share, floor)
		}
	}
}

// Three iterations at each of two levels, which spread by 3 %, tell a job that needs
// locality from one that does not, and rarely claim a need that is none.
func TestFewIterationsTellWhoNeedsLocality(t *testing.T) {
	rounds := 2000
	if testing.Short() {
		rounds = 400
	}
	rng := rand.New(rand.NewPCG(10, 10))
	right, wrong, vain := 0, 0, 0
	for range rounds {
		s := store(t, Config{Levels: tree()})
		for k, slow := range map[Kind]float64{"needs": 1.3, "hardly": 1.03, "not": 1} { // the order does not matter
			for range 3 {
				blur := func() float64 { return 100 * math.Exp(.03*rng.NormFloat64()) }
				run(t, s, k, lockstep.LevelNode, blur())
				run(t, s, k, "rack", slow*blur())
			}
		}
		need := func(k Kind) int64 { return s.Need(k, lockstep.LevelNode, "rack") }
		switch a, b := need("needs"), need("hardly"); {
		case a > b:
			right++
		case a < b:
			wrong++
		}
		if need("not") > 0 {
			vain++
		}
	}
	t.Logf("of %d: right %d, wrong %d, needs that are none %d", rounds, right, wrong, vain)
	require.Greater(t, right, rounds*95/100)
	require.Less(t, wrong, rounds/100)
	require.Less(t, vain, rounds*3/100)
}

// No line that rises and is near is nearer than the one that was found.
func TestRisingIsTheNearestLineThatRises(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 300 {
		n := 1 + rng.IntN(6)
		bs := make([]belief, n)
		for i := range bs {
			bs[i] = belief{mid: rng.NormFloat64(), half: .1 + rng.Float64()}
		}
		given := slices.Clone(bs)
		block := make([]int, n)
		rising(bs, block)
		miss := func(ys []belief) (sum float64) {
			for i := range ys {
				sum += (ys[i].mid - given[i].mid) * (ys[i].mid - given[i].mid) / (given[i].half * given[i].half)
			}
			return sum
		}
		for i := 1; i < n; i++ {
			require.GreaterOrEqual(t, bs[i].mid, bs[i-1].mid)
			require.Equal(t, block[i] == block[i-1], bs[i].mid == bs[i-1].mid)
		}
		for range 300 {
			other := slices.Clone(bs)
			for i := range other {
				other[i].mid += .1 * rng.NormFloat64()
			}
			slices.SortFunc(other, func(a, b belief) int {
				switch {
				case a.mid < b.mid:
					return -1
				case a.mid > b.mid:
					return 1
				}
				return 0
			})
			require.GreaterOrEqual(t, miss(other), miss(bs)-1e-9)
		}
	}
}

func TestReadingLevelsAllocatesNothing(t *testing.T) {
	s := store(t, Config{Levels: tree()})
	run(t, s, "k", lockstep.LevelNode, 100, 101)
	run(t, s, "k", "rack", 120, 121)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		s.Slowdown("k", "rack")
		s.Need("k", lockstep.LevelNode, "rack")
	}))
}

func TestStoreForgetsWhatWasObservedLongestAgo(t *testing.T) {
	s := store(t, Config{Kinds: 3, Partners: 2})
	for _, k := range []Kind{"a", "b", "c"} {
		run(t, s, k, lockstep.LevelNode, 1)
	}
	require.NoError(t, s.ObservePair("a", "b", 900, 800)) // "c" is the oldest now
	run(t, s, "d", lockstep.LevelNode, 1)
	require.Equal(t, 3, s.Len())
	require.Zero(t, s.Slowdown("c", lockstep.LevelNode))
	run(t, s, "e", lockstep.LevelNode, 1) // "a" goes, and with it what "b" does beside it
	require.Equal(t, Unknown, s.Beside("b", "a").Source)
	run(t, s, "a", lockstep.LevelNode, 1)
	require.Equal(t, Unknown, s.Beside("a", "b").Source)
	require.True(t, s.Forget("a"))
	require.False(t, s.Forget("a"))
	require.Equal(t, 2, s.Len())

	many := store(t, Config{Partners: 2})
	for _, k := range []Kind{"x", "y", "z"} {
		require.NoError(t, many.ObservePair("k", k, 900, 800))
	}
	require.NotEqual(t, Measured, many.Beside("k", "x").Source)
	require.NotEqual(t, Measured, many.Beside("x", "k").Source)
	require.Equal(t, Measured, many.Beside("k", "z").Source)
}
