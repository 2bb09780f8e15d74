package lockstep

import (
	"math/big"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// GPUTime is devices over time, exactly: MilliGPU times nanoseconds, held in 128
// bits. Sums are held at the ends of that, which is out of reach: what fits is
// all the devices that MilliGPU can say, for 580 years. The zero GPUTime is none;
// == compares. Its text is that product in decimal, so an hour of one device is
// "3600000000000000".
type GPUTime int128.Int

// GPUTimeOf returns amount held for d, exactly. Either may be negative.
func GPUTimeOf(amount MilliGPU, d time.Duration) GPUTime {
	return GPUTime(int128.Product(int64(amount), int64(d)))
}

// Add returns a+b, held at the ends of 128 bits.
func (a GPUTime) Add(b GPUTime) GPUTime { return GPUTime(int128.Int(a).AddSat(int128.Int(b))) }

// Sub returns a-b, held at the ends of 128 bits.
func (a GPUTime) Sub(b GPUTime) GPUTime { return GPUTime(int128.Int(a).SubSat(int128.Int(b))) }

// Cmp returns -1, 0 or 1 as a is less than, equal to or greater than b.
func (a GPUTime) Cmp(b GPUTime) int { return int128.Int(a).Cmp(int128.Int(b)) }

// Sign returns -1, 0 or 1 as a is less than, equal to or greater than none.
func (a GPUTime) Sign() int { return int128.Int(a).Sign() }

// GPUSeconds returns a in seconds of one whole device, rounded, for reports.
func (a GPUTime) GPUSeconds() float64 {
	return int128.Int(a).Float64() / (float64(WholeGPU) * float64(time.Second))
}

// Big returns a in MilliGPU-nanoseconds, as a number of the caller's own.
func (a GPUTime) Big() *big.Int { return int128.Int(a).Big() }

// String returns a in MilliGPU-nanoseconds.
func (a GPUTime) String() string { return int128.Int(a).String() }

// MarshalText writes the form of String.
func (a GPUTime) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what ParseGPUTime reads.
func (a *GPUTime) UnmarshalText(text []byte) error { return unmarshal(a, text, ParseGPUTime) }

// UnmarshalJSON reads the text form, quoted, or a plain number of MilliGPU-nanoseconds.
func (a *GPUTime) UnmarshalJSON(data []byte) error { return unmarshalJSON(a, data, ParseGPUTime) }

// ParseGPUTime reads a whole number of MilliGPU-nanoseconds that fits 128 bits. A
// minus sign may lead; there are no spaces, exponents, suffixes or plus signs.
func ParseGPUTime(s string) (GPUTime, error) {
	v, ok := int128.Parse(s)
	if !ok {
		return GPUTime{}, invalid("parse", "GPUTime", errtext.Quote(s), "want a whole number of 128 bits")
	}
	return GPUTime(v), nil
}
