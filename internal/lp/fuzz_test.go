package lp

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever the figures, Solve ends and claims nothing that it does not prove.
func FuzzSolve(f *testing.F) {
	f.Add([]byte{2, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte{3, 4, 255, 0, 128, 7, 1, 1, 1, 1, 200, 100, 50, 25, 12, 6, 3, 1})
	f.Fuzz(func(t *testing.T, text []byte) {
		at := 0
		next := func() byte {
			at++
			if at > len(text) {
				return 0
			}
			return text[at-1]
		}
		value := func() float64 {
			b := next()
			return math.Ldexp(float64(int(b>>3)-16), int(b&7)*5-15)
		}
		n, m := int(next()%8), int(next()%8)
		p := &Problem{Cost: make([]float64, n), Lower: make([]float64, n), Upper: make([]float64, n)}
		for j := range n {
			p.Cost[j], p.Lower[j], p.Upper[j] = value(), value(), value()
			if b := next(); b&1 != 0 {
				p.Upper[j] = math.Inf(1)
			} else if b&2 != 0 {
				p.Lower[j] = math.Inf(-1)
			}
		}
		for range m {
			r := Row{Sense: Sense(next() % 3), RHS: value()}
			for j := range n {
				r.Entries = append(r.Entries, Entry{j, value()})
			}
			p.Rows = append(p.Rows, r)
		}
		s, err := Solve(p)
		require.NoError(t, err)
		if s.Status != Limit {
			require.LessOrEqual(t, p.Verify(s), 1e-6)
		}
	})
}
