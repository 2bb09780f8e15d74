package policy

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever a saved Steady says, Step refuses it or goes on with it for good.
func FuzzSteadyFromJSON(f *testing.F) {
	s := Steady{Delayed: Delayed{Up: 10, Down: 20}, RateLimited: RateLimited{Interval: 30, UpFactor: 2}, Cooldown: Cooldown{Up: 5}, Bounded: Bounded{Max: 8, PowersOfTwo: true}}
	for i := range 5 {
		text, err := json.Marshal(s)
		require.NoError(f, err)
		f.Add(text, int64(i), 3, int64(5000))
		_, err = s.Step(at(time.Duration(i)), i, Demand(1000*i))
		require.NoError(f, err)
	}
	f.Fuzz(func(t *testing.T, text []byte, now int64, have int, want int64) {
		var s Steady
		if json.Unmarshal(text, &s) != nil {
			return
		}
		when := time.Unix(0, now)
		v, err := s.Step(when, have, Demand(want))
		if err != nil {
			return
		}
		require.NoError(t, s.Validate())
		require.GreaterOrEqual(t, v.Target, s.Bounded.Min)
		if wake, ok := s.NextWake(); ok {
			require.True(t, wake.After(when))
		}
	})
}
