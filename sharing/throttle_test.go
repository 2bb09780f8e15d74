package sharing

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The worked example O16 of the field: a batch of b takes 5 + 1.5b ms and has 20 ms.
func TestThrottleFindsTheKneeAndStaysThere(t *testing.T) {
	th := Throttle{Tolerance: 250, Raise: 4, Cut: 900}
	rate, got := int64(1), []int64(nil)
	for range 9 {
		got = append(got, rate)
		step := 5*time.Millisecond + time.Duration(rate)*1500*time.Microsecond
		var err error
		rate, err = th.Next(rate, 16*time.Millisecond, step) // 16 ms and a quarter are 20
		require.NoError(t, err)
	}
	require.Equal(t, []int64{1, 5, 9, 13, 11, 9, 13, 11, 9}, got)
}

func TestThrottleByTheNumbers(t *testing.T) {
	tests := map[string]struct {
		throttle    Throttle
		rate        int64
		alone, step time.Duration
		want        int64
	}{
		"in time":                {Throttle{}, 100, 1000, 1000, 150},
		"just in time":           {Throttle{}, 100, 1000, 1050, 150},
		"just late":              {Throttle{}, 100, 1000, 1051, 50},
		"from nothing":           {Throttle{}, 0, 1000, 900, 50},
		"to nothing":             {Throttle{}, 1, 1000, 9000, 0},
		"not below the least":    {Throttle{Least: 30}, 40, 1000, 9000, 30},
		"not above the most":     {Throttle{Most: 120}, 100, 1000, 1000, 120},
		"from above the most":    {Throttle{Most: 120}, 900, 1000, 9000, 120},
		"all":                    {Throttle{}, 1000, 1000, 1000, 1000},
		"long steps stay exact":  {Throttle{Tolerance: 1}, 100, math.MaxInt64 - 1e16, math.MaxInt64, 50},
		"long steps in time":     {Throttle{Tolerance: 1}, 100, math.MaxInt64 - 1e15, math.MaxInt64, 150},
		"late by one nanosecond": {Throttle{Tolerance: 1}, 100, 1e15, 1e15 + 1e12 + 1, 50},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := tt.throttle.Next(tt.rate, tt.alone, tt.step)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestLateIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 12))
	for range 5000 {
		alone := 1 + rng.Int64N(1<<rng.IntN(63))
		tolerance := 1 + rng.Int64N(1e6)
		step := 1 + rng.Int64N(1<<rng.IntN(63))
		if rng.IntN(2) == 0 && alone < math.MaxInt64/1_100_000 {
			step = max(1, alone*(1000+tolerance)/1000+rng.Int64N(3)-1) // close
		}
		left := new(big.Int).Mul(big.NewInt(step), big.NewInt(1000))
		right := new(big.Int).Mul(big.NewInt(alone), big.NewInt(1000+tolerance))
		require.Equal(t, left.Cmp(right) > 0, late(time.Duration(alone), time.Duration(step), tolerance))
	}
}

// Against a device on which the guaranteed tenant slows down in proportion, it is late for a few steps in a row at most,
// and the opportunistic ones get most of what they could have.
func TestThrottleConverges(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 13))
	for range 60 {
		slope := 1 + rng.Int64N(2000) // thousandths by which full rate slows the guaranteed one
		th := Throttle{Tolerance: 50, Raise: 1 + rng.Int64N(60), Cut: 500 + rng.Int64N(400)}
		knee := min(1000, 50*1000/slope)
		rate, row, sum := int64(1000), 0, int64(0)
		const steps, settle = 4000, 200
		for i := range steps {
			alone := time.Second
			step := alone + alone*time.Duration(rate*slope)/1e6
			next, err := th.Next(rate, alone, step)
			require.NoError(t, err)
			if next < rate {
				row++
			} else {
				row = 0
			}
			if i >= settle {
				require.LessOrEqual(t, row, 2+int(th.Raise/max(knee/10, 1)), "knee %d %+v", knee, th)
				require.LessOrEqual(t, rate, knee+th.Raise)
				sum += rate
			}
			rate = next
		}
		if knee > 4*th.Raise {
			require.Greater(t, sum/(steps-settle), knee*th.Cut/1000*8/10)
		}
	}
}

func TestThrottleRefusesBadInput(t *testing.T) {
	_, err := Throttle{}.Next(-1, 0, -5)
	requireFields(t, err, "rate", "alone", "step")
	_, err = Throttle{}.Next(1001, 1, 1)
	requireFields(t, err, "rate")
	bad := Throttle{Tolerance: -1, Raise: 1001, Cut: 1000, Least: -1, Most: 1001}
	requireFields(t, bad.Validate(), "Tolerance", "Raise", "Cut", "Most", "Least")
	_, err = bad.Next(1, 1, 1)
	requireFields(t, err, "Tolerance", "Raise", "Cut", "Most", "Least")
	requireFields(t, Throttle{Least: 11, Most: 10}.Validate(), "Least")
	require.NoError(t, Throttle{}.Validate())
	require.NoError(t, Throttle{Least: 1000}.Validate())
}
