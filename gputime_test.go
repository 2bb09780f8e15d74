package lockstep_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func ExampleGPUTimeOf() {
	held := lockstep.GPUTimeOf(8*lockstep.WholeGPU, 90*time.Minute)
	lost := lockstep.GPUTimeOf(8*lockstep.WholeGPU, 5*time.Minute)
	useful := held.Sub(lost)
	fmt.Println(useful, useful.GPUSeconds()/3600, useful.Cmp(lost))
	// Output: 40800000000000000 11.333333333333334 1
}

// mostGPUTime and leastGPUTime are the ends.
const (
	mostGPUTime  = "170141183460469231731687303715884105727"
	leastGPUTime = "-170141183460469231731687303715884105728"
)

// wide returns v held at the ends of 128 bits.
func wide(v *big.Int) *big.Int {
	most := new(big.Int).Lsh(big.NewInt(1), 127)
	least := new(big.Int).Neg(most)
	most.Sub(most, big.NewInt(1))
	switch {
	case v.Cmp(most) > 0:
		return most
	case v.Cmp(least) < 0:
		return least
	}
	return v
}

func TestGPUTimeIsExactAndSaturates(t *testing.T) {
	sum, total := lockstep.GPUTime{}, new(big.Int)
	operands(func(a, b int64) {
		g, want := lockstep.GPUTimeOf(lockstep.MilliGPU(a), time.Duration(b)), new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		if g.Big().Cmp(want) != 0 || g.Sign() != want.Sign() || g.String() != want.String() {
			t.Fatalf("%d × %d: got %v, want %v", a, b, g, want)
		}
		if got, want := sum.Cmp(g), total.Cmp(want); got != want {
			t.Fatalf("%v ? %v: got %d, want %d", sum, g, got, want)
		}
		// The signs of all the pairs are mixed, so this passes both ends.
		if want.Sign() < 0 {
			sum, total = sum.Sub(g), wide(total.Sub(total, want))
		} else {
			sum, total = sum.Add(g), wide(total.Add(total, want))
		}
		if sum.Big().Cmp(total) != 0 {
			t.Fatalf("sum: got %v, want %v", sum, total)
		}
	})
	require.Equal(t, mostGPUTime, sum.String())
	least := lockstep.GPUTime{}.Sub(sum).Sub(sum)
	require.Equal(t, leastGPUTime, least.String())
	require.Equal(t, -1, least.Cmp(sum))
	require.InDelta(t, 3600, lockstep.GPUTimeOf(lockstep.WholeGPU, time.Hour).GPUSeconds(), 0)
	require.InDelta(t, -0.5, lockstep.GPUTimeOf(-500, time.Second).GPUSeconds(), 0)
	require.True(t, lockstep.GPUTimeOf(500, 2*time.Hour) == lockstep.GPUTimeOf(1000, time.Hour), "== compares")
	own := sum.Big()
	own.SetInt64(1)
	require.Equal(t, mostGPUTime, sum.String(), "Big is the caller's own")
}

func TestGPUTimeText(t *testing.T) {
	type wire struct {
		G lockstep.GPUTime `json:"g"`
		Z lockstep.GPUTime `json:"z,omitzero"`
	}
	r := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		g := lockstep.GPUTimeOf(lockstep.MilliGPU(random(r)), time.Duration(random(r)))
		back, err := lockstep.ParseGPUTime(g.String())
		require.NoError(t, err)
		require.Equal(t, g, back)
		data, err := json.Marshal(wire{G: g})
		require.NoError(t, err)
		require.Equal(t, `{"g":"`+g.String()+`"}`, string(data))
		var out wire
		require.NoError(t, json.Unmarshal(data, &out))
		require.Equal(t, g, out.G)
	}
	for in, want := range map[string]string{ // the order does not matter: each case stands alone
		"0": "0", "-0": "0", "007": "7", "-5": "-5", mostGPUTime: mostGPUTime, leastGPUTime: leastGPUTime, strings.Repeat("0", 40): "0",
	} {
		got, err := lockstep.ParseGPUTime(in)
		require.NoError(t, err, in)
		require.Equal(t, want, got.String())
	}
	for _, in := range []string{
		"", "-", "+1", " 1", "1 ", "1.5", "1_0", "0x1", "1e3", "1h", "null", "\"1\"", "170141183460469231731687303715884105728",
		"-170141183460469231731687303715884105729", strings.Repeat("0", 41), strings.Repeat("9", 1<<20),
	} {
		_, err := lockstep.ParseGPUTime(in)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e, in)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.Equal(t, "GPUTime", e.Field)
		got := lockstep.GPUTimeOf(3, 1)
		require.ErrorIs(t, got.UnmarshalText([]byte(in)), lockstep.ErrInvalid)
		require.Equal(t, "3", got.String(), "a failed read changes nothing")
	}
	var got lockstep.GPUTime
	require.NoError(t, json.Unmarshal([]byte(leastGPUTime), &got), "a plain number")
	require.Equal(t, leastGPUTime, got.String())
	require.NoError(t, json.Unmarshal([]byte("null"), &got))
	require.Equal(t, leastGPUTime, got.String(), "null changes nothing")
	require.Error(t, json.Unmarshal([]byte("1.5"), &got))
}

func TestGPUTimeAllocatesNothing(t *testing.T) {
	a, b := lockstep.GPUTimeOf(math.MaxInt64, math.MaxInt64), lockstep.GPUTimeOf(7, time.Hour)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if a.Add(b).Sub(b).Cmp(a) != 0 || lockstep.GPUTimeOf(7, time.Hour) != b || b.Sign() < 0 {
			t.Fatal("not exact")
		}
	}))
}

// FuzzParseGPUTime: what is read is the number that math/big reads, and returns as it went.
func FuzzParseGPUTime(f *testing.F) {
	for _, s := range []string{"0", "-5", "+5", "007", "3600000000000000", mostGPUTime, leastGPUTime, "1e3", "1_0", "", "170141183460469231731687303715884105728"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := lockstep.ParseGPUTime(s)
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			require.Zero(t, got)
			return
		}
		want, ok := new(big.Int).SetString(s, 10)
		require.True(t, ok)
		require.Zero(t, want.Cmp(got.Big()))
		back, err := lockstep.ParseGPUTime(got.String())
		require.NoError(t, err)
		require.Equal(t, got, back)
		data, err := json.Marshal(got)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &back))
		require.Equal(t, got, back)
	})
}
