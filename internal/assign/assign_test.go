package assign

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func solve(t *testing.T, p Problem) *Solution {
	t.Helper()
	s, err := Solve(p)
	require.NoError(t, err)
	require.NoError(t, p.Verify(s))
	return s
}

// brute tries all ways to pair rows with columns.
func brute(p Problem) (pairs int, cost int64) {
	pairs = -1
	taken := make([]bool, p.Cols)
	var try func(i, made int, sum int64)
	try = func(i, made int, sum int64) {
		if i == p.Rows {
			if made > pairs || made == pairs && sum < cost {
				pairs, cost = made, sum
			}
			return
		}
		try(i+1, made, sum)
		for j := range p.Cols {
			if c := p.Cost[i*p.Cols+j]; !taken[j] && c != Forbidden {
				taken[j] = true
				try(i+1, made+1, sum+c)
				taken[j] = false
			}
		}
	}
	try(0, 0, 0)
	return pairs, cost
}

func TestAgainstAllWays(t *testing.T) {
	rounds, largest := 1500, 7
	if testing.Short() {
		rounds, largest = 200, 5
	}
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		p := Problem{Rows: rng.IntN(largest), Cols: rng.IntN(largest)}
		if seed%100 == 0 && !testing.Short() {
			p.Rows, p.Cols = 8, 8
		}
		for range p.Rows * p.Cols {
			c := int64(rng.IntN(21) - 10)
			if rng.IntN(5) == 0 {
				c = Forbidden
			}
			p.Cost = append(p.Cost, c)
		}
		s := solve(t, p)
		pairs, cost := brute(p)
		require.Equal(t, pairs, s.Pairs, "seed %d", seed)
		require.Equal(t, cost, s.Cost, "seed %d", seed)
	}
}

func TestLargeOnesProveThemselves(t *testing.T) {
	for _, size := range [][2]int{{1, 100}, {100, 1}, {60, 60}, {40, 150}, {150, 40}} {
		rng := rand.New(rand.NewPCG(uint64(size[0]), 2))
		p := Problem{Rows: size[0], Cols: size[1]}
		for range p.Rows * p.Cols {
			p.Cost = append(p.Cost, rng.Int64N(1<<40)-1<<39)
		}
		require.Equal(t, min(p.Rows, p.Cols), solve(t, p).Pairs)
	}
}

func TestTiesGoToTheFirst(t *testing.T) {
	s := solve(t, Problem{Rows: 3, Cols: 3, Cost: make([]int64, 9)})
	require.Equal(t, []int{0, 1, 2}, s.ColOf)
	s = solve(t, Problem{Rows: 2, Cols: 4, Cost: []int64{5, 5, 5, 5, 5, 5, 5, 5}})
	require.Equal(t, []int{0, 1}, s.ColOf)
	require.Equal(t, []int{0, 1, -1, -1}, s.RowOf)
}

func TestEdges(t *testing.T) {
	require.Zero(t, solve(t, Problem{}).Pairs)
	require.Zero(t, solve(t, Problem{Rows: 3}).Pairs)
	require.Equal(t, []int{-1, -1}, solve(t, Problem{Rows: 2, Cols: 1, Cost: []int64{Forbidden, Forbidden}}).ColOf)
	for _, p := range []Problem{
		{Rows: -1},
		{Rows: 1, Cols: 1},
		{Rows: math.MaxInt, Cols: 2},
		{Rows: 1, Cols: 1, Cost: []int64{math.MinInt64}},
		{Rows: 1, Cols: 1, Cost: []int64{1 << 61}},
		{Rows: 1, Cols: 1, Cost: []int64{math.MaxInt64 - 1}},
		{Rows: 2, Cols: 2, Cost: []int64{1 << 59, 0, 0, 0}},
	} {
		_, err := Solve(p)
		require.ErrorIs(t, err, ErrInvalid)
		require.ErrorIs(t, p.Verify(&Solution{}), ErrInvalid)
	}
	big := int64(1)<<57 - 1
	require.Equal(t, -2*big, solve(t, Problem{Rows: 2, Cols: 2, Cost: []int64{big, -big, -big, big}}).Cost)
}

func TestVerifySeesFaults(t *testing.T) {
	p := Problem{Rows: 2, Cols: 3, Cost: []int64{4, 1, 3, 2, 0, 5}}
	for _, spoil := range []func(s *Solution){
		func(s *Solution) { s.Cost++ },
		func(s *Solution) { s.Pairs-- },
		func(s *Solution) { s.U[0]++ },
		func(s *Solution) { s.U[0]-- },
		func(s *Solution) { s.V[2] = 1; s.U[0]-- },
		func(s *Solution) { s.ColOf[0], s.ColOf[1] = s.ColOf[1], s.ColOf[0] },
		func(s *Solution) { s.RowOf = nil },
	} {
		s := solve(t, p)
		spoil(s)
		require.Error(t, p.Verify(s))
	}
}

func FuzzSolve(f *testing.F) {
	f.Add(2, []byte{1, 2, 3, 4, 0, 255})
	f.Fuzz(func(t *testing.T, cols int, text []byte) {
		if cols < 1 || cols > 12 || len(text) > 144 {
			return
		}
		p := Problem{Rows: len(text) / cols, Cols: cols}
		for _, b := range text[:p.Rows*cols] {
			c := int64(b) - 128
			if b == 255 {
				c = Forbidden
			}
			p.Cost = append(p.Cost, c)
		}
		s, err := Solve(p)
		require.NoError(t, err)
		require.NoError(t, p.Verify(s))
	})
}

func BenchmarkSolve(b *testing.B) {
	for _, n := range []int{32, 256, 1024} {
		b.Run(fmt.Sprintf("rows=%d/cols=%d", n, n), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			p := Problem{Rows: n, Cols: n}
			for range n * n {
				p.Cost = append(p.Cost, rng.Int64N(1e9))
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Solve(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
