package main

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWorthIsThatOfTheBestPartners(t *testing.T) {
	var counts [milli]int64
	worth := worths(&counts)
	require.Zero(t, worth[999])
	require.Equal(t, int64(priceOne), worth[milli])

	counts[470] = 100
	worth = worths(&counts)
	require.Zero(t, worth[469])
	require.InDelta(t, 0.5, float64(worth[530])/priceOne, 1e-3)

	// More 810s than 160s: what is left of their devices is worth nothing. More
	// 320s than 650s: three of them make a device, so what a 650 leaves is worth a third.
	counts = [milli]int64{810: 1000, 160: 70, 650: 250, 320: 330}
	worth = worths(&counts)
	require.InDelta(t, 0, float64(worth[190])/priceOne, 1e-3)
	require.InDelta(t, 1, float64(worth[810])/priceOne, 1e-3)
	require.InDelta(t, 1.0/3, float64(worth[350])/priceOne, 1e-3)
	require.InDelta(t, 2.0/3, float64(worth[650])/priceOne, 1e-3)
}

// TestWorthsAreDualPrices compares with the linear program over all patterns, solved
// in floating point.
func TestWorthsAreDualPrices(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 60 {
		var counts [milli]int64
		for range 2 + rng.IntN(6) {
			counts[100+50*rng.IntN(18)] = 1 + rng.Int64N(300)
		}
		var sizes []int
		for m, n := range counts {
			if n > 0 {
				sizes = append(sizes, m)
			}
		}
		worth, ours := worths(&counts), 0.0
		for r := 1; r <= milli; r++ {
			require.GreaterOrEqual(t, worth[r], worth[r-1])
		}
		for _, m := range sizes {
			ours += float64(counts[m]) * float64(worth[m]) / priceOne
		}
		best := leastDevices(&counts, sizes)
		require.InEpsilon(t, best, ours, 2e-3, "%v", counts)
	}
}

// leastDevices returns the most that the counts can pay when no pattern pays more than
// one device, which is the least devices that they can be cut from, in parts.
func leastDevices(counts *[milli]int64, sizes []int) float64 {
	var patterns [][]int
	var grow func(pattern []int, from, left int)
	grow = func(pattern []int, from, left int) {
		full := true
		for i := from; i < len(sizes); i++ {
			if sizes[i] <= left {
				full = false
				next := append([]int{}, pattern...)
				next[i]++
				grow(next, i, left-sizes[i])
			}
		}
		if full {
			patterns = append(patterns, pattern)
		}
	}
	grow(make([]int, len(sizes)), 0, milli)
	ones := make([]float64, len(patterns))
	for i := range ones {
		ones[i] = 1
	}
	s := newSimplex(ones)
	prices := make([]float64, len(patterns))
	for range 10000 {
		s.prices(prices)
		best, column, gain := 1e-9, []entry(nil), 0.0
		for i, m := range sizes {
			profit := float64(counts[m])
			var c []entry
			for p, pattern := range patterns {
				if pattern[i] > 0 {
					c = append(c, entry{p, float64(pattern[i])})
					profit -= prices[p] * float64(pattern[i])
				}
			}
			if profit > best {
				best, column, gain = profit, c, float64(counts[m])
			}
		}
		for p, v := range prices {
			if -v > best {
				best, column, gain = -v, []entry{{p, 1}}, 0
			}
		}
		if column == nil {
			break
		}
		s.enter(column, gain)
	}
	sum := 0.0
	for i, g := range s.gain {
		sum += g * s.level[i]
	}
	return sum
}
