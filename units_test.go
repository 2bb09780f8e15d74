package lockstep_test

import (
	"encoding"
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

// ends are the values at which 64-bit arithmetic goes wrong first.
var ends = []int64{
	math.MinInt64, math.MinInt64 + 1, math.MinInt64 / 2, math.MinInt64/2 - 1, -1 << 53, -1 << 32, -1 << 31, -1001, -1000, -999, -2, -1, 0,
	1, 2, 999, 1000, 1001, 1023, 1024, 1 << 31, 1 << 32, 3037000499, 3037000500, 1 << 53, math.MaxInt64 / 2, math.MaxInt64/2 + 1, math.MaxInt64 - 1, math.MaxInt64,
}

// random returns an int64 whose size, not only its value, is spread evenly.
func random(r *rand.Rand) int64 {
	v := int64(r.Uint64() >> r.IntN(64))
	if r.IntN(2) == 0 {
		v = -v
	}
	if r.IntN(3) == 0 { // often a round number, so that suffixes occur
		v <<= 10 * r.IntN(7)
	}
	if r.IntN(4) == 0 {
		v /= 1_000_000
		v *= 1_000_000
	}
	return v
}

func TestUnitsRoundTripThroughText(t *testing.T) {
	check := func(v int64) {
		gpu, err := lockstep.ParseMilliGPU(lockstep.MilliGPU(v).String())
		require.NoError(t, err)
		require.EqualValues(t, v, gpu)
		cpu, err := lockstep.ParseMilliCPU(lockstep.MilliCPU(v).String())
		require.NoError(t, err)
		require.EqualValues(t, v, cpu)
		b, err := lockstep.ParseBytes(lockstep.Bytes(v).String())
		require.NoError(t, err)
		require.EqualValues(t, v, b)
		bw, err := lockstep.ParseBandwidth(lockstep.BytesPerSecond(v).String())
		require.NoError(t, err)
		require.EqualValues(t, v, bw)
	}
	for _, v := range ends {
		check(v)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 20_000 {
		check(random(r))
	}
}

func TestUnitsRoundTripThroughJSON(t *testing.T) {
	type wire struct {
		GPU lockstep.MilliGPU       `json:"gpu"`
		CPU lockstep.MilliCPU       `json:"cpu"`
		Mem lockstep.Bytes          `json:"mem"`
		Net lockstep.BytesPerSecond `json:"net"`
	}
	r := rand.New(rand.NewPCG(2, 2))
	for i := range 2000 {
		v := random(r)
		if i < len(ends) {
			v = ends[i]
		}
		in := wire{lockstep.MilliGPU(v), lockstep.MilliCPU(v), lockstep.Bytes(v), lockstep.BytesPerSecond(v)}
		data, err := json.Marshal(in)
		require.NoError(t, err)
		var out wire
		require.NoError(t, json.Unmarshal(data, &out), "%s", data)
		require.Equal(t, in, out)
	}
}

func TestUnitText(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{lockstep.MilliGPU(0).String(), "0"},
		{lockstep.MilliGPU(8000).String(), "8"},
		{lockstep.MilliGPU(-1500).String(), "-1500m"},
		{lockstep.MilliCPU(math.MinInt64).String(), "-9223372036854775808m"},
		{lockstep.Bytes(7).String(), "7"},
		{(80 * lockstep.GiB).String(), "80Gi"},
		{lockstep.Bytes(-1536 * 1024).String(), "-1536Ki"},
		{lockstep.Bytes(math.MinInt64).String(), "-8Ei"},
		{lockstep.Bytes(1 << 62).String(), "4Ei"},
		{lockstep.BytesPerSecond(0).String(), "0/s"},
		{lockstep.BytesPerSecond(50e9).String(), "50G/s"},
		{lockstep.BytesPerSecond(-9e18).String(), "-9E/s"},
		{lockstep.BytesPerSecond(1500).String(), "1500/s"},
	} {
		require.Equal(t, c.want, c.got)
	}
}

func TestParseReads(t *testing.T) {
	for in, want := range map[string]int64{ // the order does not matter: each case stands alone
		"0": 0, "-0": 0, "007": 7, "10B": 10, "1k": 1000, "1K": 1000, "1kB": 1000, "1Ki": 1024, "1KiB": 1024,
		"1.5Gi": 3 << 29, "1.50Gi": 3 << 29, "0.5k": 500, "0.001k": 1, "-1.5k": -1500, "1.0": 1, "1.000000000000000000000000000": 1,
		"9223372036854775807": math.MaxInt64, "-9223372036854775808": math.MinInt64, "-8Ei": math.MinInt64, "7.5Ei": 15 << 59,
		"9.223372036854775807E": math.MaxInt64, "-9.223372036854775808E": math.MinInt64, "9E": 9e18,
		"000000000000000000000000000001": 1,
	} {
		got, err := lockstep.ParseBytes(in)
		require.NoError(t, err, in)
		require.EqualValues(t, want, got, in)
		bw, err := lockstep.ParseBandwidth(in + "/s")
		require.NoError(t, err, in)
		require.EqualValues(t, want, bw, in)
	}
	for in, want := range map[string]int64{ // the order does not matter: each case stands alone
		"8": 8000, "0.5": 500, "0.001": 1, "500m": 500, "-500m": -500, "0.500000": 500, "9223372036854775.807": math.MaxInt64,
		"-9223372036854775.808": math.MinInt64, "9223372036854775807m": math.MaxInt64, "1.0m": 1,
	} {
		gpu, err := lockstep.ParseMilliGPU(in)
		require.NoError(t, err, in)
		require.EqualValues(t, want, gpu, in)
		cpu, err := lockstep.ParseMilliCPU(in)
		require.NoError(t, err, in)
		require.EqualValues(t, want, cpu, in)
	}
}

func TestParseRefuses(t *testing.T) {
	both := []string{
		"", "-", ".", "1.", ".5", "-.5", "--1", "1-", "+1", "1e3", "1E3", "0x10", "1_000", " 1", "1 ", "1,5", "1.2.3", "NaN", "Inf", "null", "true",
		"٣", "１", "1\n", "1\x00", "m", "1mm", "\"1\"", "99999999999999999999", "18446744073709551616", "184467440737095516160",
		"1.99999999999999999999999999", strings.Repeat("9", 1000), "1Gb", "1GIB", "1gi",
	}
	onlyBytes := []string{"Gi", "i", "B", "1i", "1iB", "1.5", "1.0000000001Gi", "8Ei", "-8.5Ei", "9.3E", "1GiG", "1Gii", "1BB", "1m", "9223372036854775808", "-9223372036854775809", "1 Gi", "1Zi"}
	onlyMilli := []string{"1Gi", "1k", "0.0005", "1.5m", "1M", "9223372036854775.808", "-9223372036854775.809", "9223372036854775808m"}
	refused := func(err error, field, in string) {
		t.Helper()
		var e *lockstep.Error
		require.ErrorAs(t, err, &e, "%q", in)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		require.Equal(t, field, e.Field)
		require.NotEmpty(t, e.Reason)
		require.LessOrEqual(t, len(err.Error()), 400)
		if len(in) <= 40 {
			require.Equal(t, fmt.Sprintf("%q", in), e.Value)
		}
	}
	for _, in := range append(onlyBytes, both...) {
		got, err := lockstep.ParseBytes(in)
		refused(err, "Bytes", in)
		require.Zero(t, got)
		_, err = lockstep.ParseBandwidth(in)
		refused(err, "BytesPerSecond", in)
	}
	for _, in := range []string{"/s", "1/s/s", "50Gbps", "50Gb/s", "1/m"} {
		_, err := lockstep.ParseBandwidth(in)
		refused(err, "BytesPerSecond", in)
	}
	for _, in := range append(onlyMilli, both...) {
		_, err := lockstep.ParseMilliGPU(in)
		refused(err, "MilliGPU", in)
		_, err = lockstep.ParseMilliCPU(in)
		refused(err, "MilliCPU", in)
	}
}

func TestUnitsReadJSON(t *testing.T) {
	for in, want := range map[string]lockstep.BytesPerSecond{ // the order does not matter: each case stands alone
		`"50G/s"`: 50e9, `"50G\/s"`: 50e9, `"\u0035k"`: 5000, `7`: 7, `1.0`: 1, `null`: 3,
	} {
		got := lockstep.BytesPerSecond(3)
		require.NoError(t, json.Unmarshal([]byte(in), &got), in)
		require.Equal(t, want, got, in)
	}
	for _, in := range []string{`""`, `"null"`, `true`, `[]`, `{}`, `1e3`, `"\"5\""`, `"5`, `"`, `1.5`} {
		got := lockstep.Bytes(3)
		require.Error(t, json.Unmarshal([]byte(in), &got), in)
		require.Error(t, got.UnmarshalJSON([]byte(in)), in)
		require.EqualValues(t, 3, got, "a failed read changes nothing: %s", in)
	}
}

func TestUnitsReadText(t *testing.T) {
	gpu, cpu, mem, net := lockstep.MilliGPU(1), lockstep.MilliCPU(1), lockstep.Bytes(1), lockstep.BytesPerSecond(1)
	for _, u := range []encoding.TextUnmarshaler{&gpu, &cpu, &mem, &net} {
		require.ErrorIs(t, u.UnmarshalText(nil), lockstep.ErrInvalid)
		require.ErrorIs(t, u.UnmarshalText([]byte(`"2"`)), lockstep.ErrInvalid, "quotes belong to JSON")
	}
	require.True(t, gpu == 1 && cpu == 1 && mem == 1 && net == 1, "a failed read changes nothing")
	for _, u := range []encoding.TextUnmarshaler{&gpu, &cpu, &mem, &net} {
		require.NoError(t, u.UnmarshalText([]byte("2")))
	}
	require.True(t, gpu == 2000 && cpu == 2000 && mem == 2 && net == 2)
}

func TestErrorsCutLongValuesBetweenRunes(t *testing.T) {
	_, err := lockstep.ParseBytes("a" + strings.Repeat("任", 100))
	var e *lockstep.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, `"a`+strings.Repeat("任", 13)+`"...`, e.Value)
}

// oracle parses as the documentation says, in big rationals.
func oracle(number string, unit int64) (int64, bool) {
	v, ok := new(big.Rat).SetString(number)
	if !ok {
		return 0, false
	}
	v.Mul(v, new(big.Rat).SetInt64(unit))
	if !v.IsInt() || !v.Num().IsInt64() {
		return 0, false
	}
	return v.Num().Int64(), true
}

func TestParseIsExact(t *testing.T) {
	units := map[string]int64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}
	r := rand.New(rand.NewPCG(3, 3))
	digits := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte('0' + r.IntN(10))
		}
		return string(b)
	}
	accepted := 0
	for range 4000 {
		number := digits(1 + r.IntN(12))
		if r.IntN(2) == 0 {
			number += "." + []string{"5", "25", "125", digits(1 + r.IntN(7))}[r.IntN(4)]
		}
		if r.IntN(3) == 0 {
			number = "-" + number
		}
		for suffix, unit := range units { // the order does not matter: each case stands alone
			want, ok := oracle(number, unit)
			got, err := lockstep.ParseBytes(number + suffix)
			require.Equal(t, ok, err == nil, "%s%s: %v", number, suffix, err)
			if ok {
				accepted++
				require.EqualValues(t, want, got, number+suffix)
			}
		}
		want, ok := oracle(number, 1000)
		got, err := lockstep.ParseMilliCPU(number)
		require.Equal(t, ok, err == nil, number)
		if ok {
			require.EqualValues(t, want, got)
		}
	}
	require.Greater(t, accepted, 4000)
}

// clamp returns v held at the ends of int64.
func clamp(v *big.Int) int64 {
	switch {
	case v.IsInt64():
		return v.Int64()
	case v.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// operands calls f with pairs of interesting and of random values.
func operands(f func(a, b int64)) {
	for _, a := range ends {
		for _, b := range ends {
			f(a, b)
		}
	}
	r := rand.New(rand.NewPCG(4, 4))
	for range 10_000 {
		f(random(r), random(r))
	}
}

func TestArithmeticSaturates(t *testing.T) {
	operands(func(a, b int64) {
		x, y := big.NewInt(a), big.NewInt(b)
		sum, diff, product := clamp(new(big.Int).Add(x, y)), clamp(new(big.Int).Sub(x, y)), clamp(new(big.Int).Mul(x, y))
		got := [...]int64{
			int64(lockstep.MilliGPU(a).Add(lockstep.MilliGPU(b))), int64(lockstep.MilliGPU(a).Sub(lockstep.MilliGPU(b))), int64(lockstep.MilliGPU(a).Mul(b)),
			int64(lockstep.MilliCPU(a).Add(lockstep.MilliCPU(b))), int64(lockstep.MilliCPU(a).Sub(lockstep.MilliCPU(b))), int64(lockstep.MilliCPU(a).Mul(b)),
			int64(lockstep.Bytes(a).Add(lockstep.Bytes(b))), int64(lockstep.Bytes(a).Sub(lockstep.Bytes(b))), int64(lockstep.Bytes(a).Mul(b)),
			lockstep.Vector{3: a}.Add(lockstep.Vector{3: b})[3], lockstep.Vector{3: a}.Sub(lockstep.Vector{3: b})[3], lockstep.Vector{3: a}.Mul(b)[3],
		}
		want := [...]int64{sum, diff, product, sum, diff, product, sum, diff, product, sum, diff, product}
		if got != want {
			t.Fatalf("%d, %d: got %v, want %v", a, b, got, want)
		}
	})
}

func TestEvictionCostIsExactInWholeDevices(t *testing.T) {
	operands(func(a, b int64) {
		want := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		want.Quo(want, big.NewInt(1000))
		c := lockstep.EvictionCost{Save: time.Duration(a), Devices: lockstep.MilliGPU(b)}
		if got := c.Total(); got != clamp(want) {
			t.Fatalf("%d × %d: got %d, want %s", a, b, got, want)
		}
	})
	hour := lockstep.EvictionCost{Lost: 30 * time.Minute, Save: 20 * time.Minute, Restore: 10 * time.Minute, Devices: 1_000_000 * lockstep.WholeGPU}
	require.EqualValues(t, 1_000_000*time.Hour, hour.Total(), "a million devices for an hour do not saturate")
	full := lockstep.EvictionCost{Lost: math.MaxInt64, Save: math.MaxInt64, Restore: 1, Devices: 1}
	require.Equal(t, int64(math.MaxInt64/1000), full.Total())
}
