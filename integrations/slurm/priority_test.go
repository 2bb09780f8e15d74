package slurm

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// fewest is the least number of changes, by trying which stay.
func fewest(have []uint32, low, high uint32) int {
	n := len(have)
	best := n + 1
	for set := range 1 << n {
		last, between, changes, ok := int64(high)+1, int64(0), 0, true
		for i := 0; i < n && ok; i++ {
			if set>>i&1 == 0 {
				changes++
				between++
				continue
			}
			v := int64(have[i])
			ok = v >= int64(low) && v <= int64(high) && last-v-1 >= between
			last, between = v, 0
		}
		if ok && last-int64(low) >= between {
			best = min(best, changes)
		}
	}
	return best
}

func TestRelabelChangesAsFewAsPossible(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 4000 {
		n := r.IntN(8)
		low := uint32(r.IntN(5))
		high := low + uint32(r.IntN(14))
		have := make([]uint32, n)
		for i := range have {
			have[i] = uint32(r.IntN(20))
		}
		got, ok := relabel(have, low, high)
		if !ok {
			require.Greater(t, n, int(high-low)+1)
			continue
		}
		require.Len(t, got, n)
		changes := 0
		for i, v := range got {
			require.GreaterOrEqual(t, v, low)
			require.LessOrEqual(t, v, high)
			if i > 0 {
				require.Less(t, v, got[i-1], "%v in %d..%d: %v", have, low, high, got)
			}
			if v != have[i] {
				changes++
			}
		}
		require.Equal(t, fewest(have, low, high), changes, "%v in %d..%d: %v", have, low, high, got)
	}
}

func TestRelabelLeavesRoomWhereThereIsSome(t *testing.T) {
	got, ok := relabel(make([]uint32, 1000), 1_000_000_000, 3_000_000_000)
	require.True(t, ok)
	require.Equal(t, uint32(spacing), got[0]-got[1])
	require.Greater(t, got[0], uint32(2_000_000_000))
	require.Less(t, got[999], uint32(2_000_000_000))
	got, ok = relabel([]uint32{5, 5, 5}, 1, maxPriority)
	require.True(t, ok)
	require.Contains(t, got, uint32(5), "one stays where the others find room")
	got, ok = relabel([]uint32{0, maxPriority, 0}, maxPriority-2, maxPriority)
	require.True(t, ok)
	require.Equal(t, []uint32{maxPriority, maxPriority - 1, maxPriority - 2}, got)
}
