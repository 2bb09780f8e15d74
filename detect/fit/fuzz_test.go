package fit

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

// FuzzSolve feeds any samples to Solve: it does not panic, and what it returns is no worse
// than nothing.
func FuzzSolve(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21}, true, false)
	f.Add(bytes.Repeat([]byte{7, 0, 3, 9}, 40), false, true)
	f.Fuzz(func(t *testing.T, data []byte, fixed, linear bool) {
		var samples []Sample
		for ; len(data) >= 4 && len(samples) < 256; data = data[4:] {
			samples = append(samples, Sample{
				Batch: perfmodel.Batch{Tokens: int64(data[0]) << (data[1] % 40), Pairs: math.Ldexp(float64(data[2]), int(data[1]%90))},
				Took:  time.Duration(data[3]) << (data[1] % 55),
			})
		}
		c, r, err := Solve(samples, Options{Fixed: fixed, Linear: linear})
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		require.NoError(t, c.Validate())
		require.GreaterOrEqual(t, r.MAPE, 0.0)
		require.GreaterOrEqual(t, r.Condition, 1.0)
	})
}
