package dag

import "math/bits"

// set is a set of places of steps, a bit for each: a list would be moved whenever its first leaves, which takes
// seconds where many steps are ready.
type set []uint64

func newSet(n int) set { return make(set, (n+63)/64) }

func (s set) add(i int)    { s[i/64] |= 1 << (i % 64) }
func (s set) remove(i int) { s[i/64] &^= 1 << (i % 64) }

// all yields the places, rising.
func (s set) all(yield func(int) bool) {
	for k, word := range s {
		for ; word != 0; word &= word - 1 {
			if !yield(64*k + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}
