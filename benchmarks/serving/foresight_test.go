package main

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/sim/serve"
)

// costOf is what a plan costs in replica-slots.
func costOf(all []slot, plan []int, wait time.Duration, price, use float64) float64 {
	sum, before := 0.0, initial
	for i, n := range plan {
		missed := late(all, max(float64(n), 1e-3)*use, wait)[i]
		sum += float64(n) + max(float64(n-before), 0)*float64(loadTime/grain) + price*missed/grain.Seconds()/gpus
		before = n
	}
	return sum
}

// TestNoPlanCostsLess holds plans against constant ones and against changes of themselves.
func TestNoPlanCostsLess(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2))
	for range 5 {
		all := make([]slot, 30)
		for i := range all {
			if n := r.Float64() * 40; r.IntN(3) > 0 {
				all[i] = slot{requests: 10 * n, load: n}
			}
		}
		const price, use = 5, 0.8
		best := plan(all, time.Second, price, use)
		cost := costOf(all, best, time.Second, price, use)
		for n := range servers + 1 {
			constant := make([]int, len(all))
			for i := range constant {
				constant[i] = n
			}
			require.LessOrEqual(t, cost, costOf(all, constant, time.Second, price, use)+1e-6)
		}
		for range 300 {
			other := append([]int(nil), best...)
			from := r.IntN(len(other))
			for i := from; i < min(from+1+r.IntN(10), len(other)); i++ {
				other[i] = min(max(other[i]+r.IntN(7)-3, 0), servers)
			}
			require.LessOrEqual(t, cost, costOf(all, other, time.Second, price, use)+1e-6)
		}
	}
}

// TestLateByHand: a capacity of 2, slots of 2 s, and a second of patience.
func TestLateByHand(t *testing.T) {
	all := []slot{{10, 2}, {10, 4}, {10, 2}, {0, 0}, {10, 2}}
	// The second slot brings twice what is done: its first waits 0, its last a slot, so half of it more than a second;
	// all of the third wait a slot; in the fourth that is done.
	require.Equal(t, []float64{0, 5, 10, 0, 0}, late(all, 2, time.Second))
}

func TestFloorIsOfTheShortestPrompts(t *testing.T) {
	var q []serve.Request
	for i := range 100 {
		q = append(q, serve.Request{At: time.Duration(i) * time.Minute, Prompt: 1000 + i, Output: 1})
	}
	o := objectives[0]
	low, err := floor(o, q, 0.5)
	require.NoError(t, err)
	high, err := floor(o, q, 1)
	require.NoError(t, err)
	require.Less(t, low, high)
	require.Greater(t, high, time.Duration(49*1000*0.14e6)*gpus, "49 prompts of a thousand tokens of 0.14 ms each")
	require.Less(t, high, 50*1100*150*time.Microsecond*gpus)
}
