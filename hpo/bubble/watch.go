package bubble

import (
	"math/bits"

	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// test is a sequential test of whether what is observed still comes from where the samples came from. Each observation
// is ranked among the samples; p = rank/(n+1) is at most x with a chance of at most x. It bets on small p with
// kappa*p^(kappa-1), which earns nothing on average while that holds (Vovk, Gammerman and Shafer, "Algorithmic Learning
// in a Random World", 2005, section 7.1), and starts over when it is below its stake. It has found a change when the
// stake has grown by e^limit, which without one takes e^limit observations on average at least.
type test struct {
	kappa int64 // in thousandths
	limit int64 // in thousandths of a natural logarithm
}

// The tests. Their constants come from simulations of normal samples: see the benchmark.
func scaleTest() test { return test{kappa: 320, limit: 9300} }
func driftTest() test { return test{kappa: 200, limit: 10300} }

// calmTest bets on a smaller change than scaleTest, and against it: once that has earned e^limit, what looked like a
// change was none. If there was one of that size, it does so with a chance of at most e^-limit.
func calmTest() test { return test{kappa: 500, limit: 7000} }

// quiet is how far in parts per million a window may always be off: less is no sign of anything.
const quiet = 1000

// bet returns the stake after an observation of this rank of n+1, and whether it is past the limit.
func (t test) bet(stake, rank, of int64) (int64, bool) {
	stake = max(stake, 0) + t.gain(rank, of)
	return stake, stake > t.limit
}

// gain returns the logarithm of what the bet is paid, in thousandths, rounded down.
func (t test) gain(rank, of int64) int64 {
	return (1000-t.kappa)*logThousandths(of, rank)/1000 - logThousandths(1000, t.kappa) - 1
}

// against returns the stake of a bet that there was no change, and whether it is past the limit.
func (t test) against(stake, rank, of int64) (int64, bool) {
	stake -= t.gain(rank, of) + 2 // what rounding gained
	return stake, stake > t.limit
}

// harmTest bets ten to one that an overrun is more likely than miss allows.
type harmTest struct{ win, lose int64 } // thousandths of a natural logarithm

func newHarmTest(miss int64) harmTest {
	odds := min(int64(10_000), 500*million/miss) // in thousandths; miss*odds stays below a half
	return harmTest{
		win:  logThousandths(odds, 1000),
		lose: logThousandths(million-miss, million-miss*odds/1000) + 1,
	}
}

func (t harmTest) bet(stake int64, overrun bool) (int64, bool) {
	if stake = max(stake, 0); overrun {
		stake += t.win
	} else {
		stake -= t.lose
	}
	return stake, stake > scaleTest().limit
}

// logThousandths returns the natural logarithm of a/b in thousandths, rounded down, for a >= b >= 1 below 2^40; 0 if a < b.
func logThousandths(a, b int64) int64 {
	if a <= b {
		return 0
	}
	const one = 1 << 30
	whole := int64(bits.Len64(uint64(a/b)) - 1)
	// m is a/b over 2^whole, in [1,2), as a fraction of one.
	m := uint64(int128.MulDiv(a, one, b<<whole))
	fraction := int64(0)
	for range 16 {
		m = m * m / one
		fraction <<= 1
		if m >= 2*one {
			m /= 2
			fraction++
		}
	}
	const ln2 = 693147 // millionths
	return (whole<<16 + fraction) * ln2 / (1 << 16) / 1000
}
