package int128

import (
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// words gives the numbers at which carries happen, and random ones.
func words(r *rand.Rand) uint64 {
	edge := [...]uint64{0, 1, 2, math.MaxUint64, math.MaxUint64 - 1, 1 << 63, 1<<63 - 1, 1 << 32}
	if r.IntN(2) == 0 {
		return edge[r.IntN(len(edge))]
	}
	return r.Uint64() >> r.IntN(64)
}

var (
	two128 = new(big.Int).Lsh(big.NewInt(1), 128)
	two127 = new(big.Int).Lsh(big.NewInt(1), 127)
	two192 = new(big.Int).Lsh(big.NewInt(1), 192)
)

// wrap brings v into the range of Int, as two's complement does.
func wrap(v *big.Int) *big.Int {
	v = new(big.Int).Mod(v, two128)
	if v.Cmp(two127) >= 0 {
		v.Sub(v, two128)
	}
	return v
}

// hold brings v into the range of Int by the shortest way.
func hold(v *big.Int) *big.Int {
	least, most := new(big.Int).Neg(two127), new(big.Int).Sub(two127, big.NewInt(1))
	switch {
	case v.Cmp(least) < 0:
		return least
	case v.Cmp(most) > 0:
		return most
	}
	return v
}

// steps returns a in steps of 2^-64.
func steps(a Fixed) *big.Int {
	v := new(big.Int).SetUint64(a.hi)
	v.Lsh(v, 64).Add(v, new(big.Int).SetUint64(a.lo))
	return v.Lsh(v, 64).Add(v, new(big.Int).SetUint64(a.frac))
}

func u64(v uint64) *big.Int { return new(big.Int).SetUint64(v) }

func rounds(t *testing.T) int {
	if testing.Short() {
		return 2_000
	}
	return 50_000
}

func TestIntAgreesWithMathBig(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range rounds(t) {
		a, b := FromWords(words(r), words(r)), FromWords(words(r), words(r))
		A, B := a.Big(), b.Big()
		require.Zero(t, wrap(new(big.Int).Add(A, B)).Cmp(a.Add(b).Big()), "%v + %v", a, b)
		require.Zero(t, wrap(new(big.Int).Sub(A, B)).Cmp(a.Sub(b).Big()), "%v - %v", a, b)
		require.Zero(t, hold(new(big.Int).Add(A, B)).Cmp(a.AddSat(b).Big()), "%v + %v", a, b)
		require.Zero(t, hold(new(big.Int).Sub(A, B)).Cmp(a.SubSat(b).Big()), "%v - %v", a, b)
		require.Zero(t, wrap(new(big.Int).Neg(A)).Cmp(a.Neg().Big()), "-%v", a)
		require.Equal(t, A.Cmp(B), a.Cmp(b), "%v ? %v", a, b)
		require.Equal(t, A.Sign(), a.Sign(), "%v", a)
		back, ok := Parse(a.String())
		require.True(t, ok)
		require.Equal(t, a, back)
		f, _ := new(big.Float).SetInt(A).Float64()
		require.InEpsilon(t, f+math.Copysign(1, f), a.Float64()+math.Copysign(1, f), 1e-14)
		hi, lo := a.Words()
		require.Equal(t, a, FromWords(hi, lo))

		x, y := words(r)>>1, words(r)
		require.Zero(t, new(big.Int).Mul(u64(x), u64(y)).Cmp(Mul(x, y).Big()))
		require.Equal(t, Of(int64(x)).Neg(), Of(-int64(x)))
		p, q := int64(words(r)), int64(y)
		require.Zero(t, new(big.Int).Mul(big.NewInt(p), big.NewInt(q)).Cmp(Product(p, q).Big()), "%d × %d", p, q)

		// Cross products, of numbers that are not negative.
		a.hi, b.hi = a.hi>>1, b.hi>>1
		m, n := words(r), words(r)
		require.Equal(t, new(big.Int).Mul(a.Big(), u64(m)).Cmp(new(big.Int).Mul(b.Big(), u64(n))),
			CmpProducts(a, m, b, n), "%v×%d ? %v×%d", a, m, b, n)
	}
}

func TestFixedAgreesWithMathBig(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range rounds(t) {
		a, b := FixedFromWords(words(r), words(r), words(r)), FixedFromWords(words(r), words(r), words(r))
		A, B := steps(a), steps(b)
		require.Zero(t, new(big.Int).Mod(new(big.Int).Add(A, B), two192).Cmp(steps(a.Add(b))))
		require.Zero(t, new(big.Int).Mod(new(big.Int).Sub(A, B), two192).Cmp(steps(a.Sub(b))))
		require.Equal(t, A.Cmp(B), a.Cmp(b))
		n := words(r)
		require.Zero(t, new(big.Int).Mod(new(big.Int).Mul(A, u64(n)), two192).Cmp(steps(a.Mul(n))))
		hi, lo, frac := a.Words()
		require.Equal(t, a, FixedFromWords(hi, lo, frac))
		require.Equal(t, FromWords(hi, lo), a.Floor())

		if n != 0 {
			// a = n×quotient + rest, fraction and all, with rest < n.
			q, rest := a.QuoRem(n)
			require.Equal(t, a, Whole(q).Mul(n).Add(rest))
			require.Negative(t, rest.Cmp(Whole(FromWords(0, n))))

			// The same for a division with a carry.
			carry, whole := words(r), a.Floor()
			quotient, remainder := Divide(whole, carry, n)
			require.Less(t, remainder, n)
			require.Equal(t, FixedFromWords(whole.hi, whole.lo, carry), quotient.Mul(n).Add(FixedFromWords(0, 0, remainder)))
		}
	}
}

func TestNearUndoesRoundingDown(t *testing.T) {
	for _, n := range []uint64{1, 3, 7, 1_000_003} {
		third, _ := Divide(Of(1000), 0, n)
		require.Equal(t, Of(1000), third.Mul(n).Near(), "%d", n)
	}
	require.Equal(t, Of(4), FixedFromWords(0, 4, math.MaxUint64-Nudge).Near())
	require.Equal(t, Of(5), FixedFromWords(0, 4, math.MaxUint64-Nudge+1).Near())
}

func TestParseRefusesWhatDoesNotFit(t *testing.T) {
	for _, s := range []string{"", "x", "1.5", "1_0", "0x1", "+1", "-", " 1", strings.Repeat("0", longest) + "1", two127.String(), "-" + new(big.Int).Add(two127, big.NewInt(1)).String()} {
		_, ok := Parse(s)
		require.False(t, ok, s)
	}
	least, ok := Parse("-" + two127.String())
	require.True(t, ok)
	require.Equal(t, FromWords(1<<63, 0), least)
}

func TestDivisionByZeroPanics(t *testing.T) {
	require.Panics(t, func() { Divide(Of(1), 0, 0) })
	require.Panics(t, func() { Fixed{}.QuoRem(0) })
}
