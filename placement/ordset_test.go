package placement

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOrdsetEqualsSortedSlice compares every operation with a plain set.
func TestOrdsetEqualsSortedSlice(t *testing.T) {
	for _, width := range []int{1, 5, 6, 7, 12, 13, 30} {
		rng := rand.New(rand.NewPCG(uint64(width), 1))
		s := newOrdset(width)
		plain := map[uint64]bool{}
		draw := func() uint64 {
			if rng.IntN(2) == 0 {
				return rng.Uint64N(1<<min(width, 5)) << max(0, width-5)
			}
			return rng.Uint64N(1 << width)
		}
		for range 3000 {
			k := draw()
			switch rng.IntN(3) {
			case 0:
				s.remove(k)
				delete(plain, k)
			default:
				s.insert(k)
				plain[k] = true
			}
			if len(plain) > 60 {
				for k := range plain { // any order: all go
					s.remove(k)
				}
				clear(plain)
			}
			var sorted []uint64
			for k := range plain { // sorted below, so order cannot matter
				sorted = append(sorted, k)
			}
			slices.Sort(sorted)
			q := draw()
			i, _ := slices.BinarySearch(sorted, q)
			got, ok := s.next(q)
			require.Equal(t, i < len(sorted), ok)
			if ok {
				require.Equal(t, sorted[i], got)
			}
			j, found := slices.BinarySearch(sorted, q)
			if !found {
				j--
			}
			got, ok = s.prev(q)
			require.Equal(t, j >= 0, ok)
			if ok {
				require.Equal(t, sorted[j], got)
			}
		}
		require.Less(t, s.words(), 40_000)
	}
}
