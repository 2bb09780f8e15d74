package fairness

import (
	"math/big"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// GPUTime is an exact amount of service: MilliGPU times nanoseconds, held in
// 128 bits. The zero GPUTime is none; == compares. Its text is that product in
// decimal, so an hour of one device is "3600000000000000".
type GPUTime struct{ v int128.Int }

// Add returns a+b, held at the ends of 128 bits, which no ledger reaches.
func (a GPUTime) Add(b GPUTime) GPUTime { return GPUTime{a.v.AddSat(b.v)} }

// Sub returns a-b, held at the ends of 128 bits.
func (a GPUTime) Sub(b GPUTime) GPUTime { return GPUTime{a.v.SubSat(b.v)} }

// Cmp returns -1, 0 or 1 as a is less than, equal to or greater than b.
func (a GPUTime) Cmp(b GPUTime) int { return a.v.Cmp(b.v) }

// Sign returns -1, 0 or 1.
func (a GPUTime) Sign() int { return a.v.Sign() }

// GPUSeconds returns a in seconds of one whole device, rounded, for reports.
func (a GPUTime) GPUSeconds() float64 { return a.v.Float64() / 1e12 }

// Big returns a in MilliGPU-nanoseconds, as a number of the caller's own.
func (a GPUTime) Big() *big.Int { return a.v.Big() }

// String returns a in MilliGPU-nanoseconds.
func (a GPUTime) String() string { return a.v.String() }

// MarshalText writes the form of String.
func (a GPUTime) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what String writes.
func (a *GPUTime) UnmarshalText(text []byte) error {
	v, ok := int128.Parse(string(text))
	if !ok {
		return fault(lockstep.ErrInvalid, "parse", "GPUTime", quote(string(text)), "want an integer of 128 bits")
	}
	a.v = v
	return nil
}

// gpuTime returns v as what callers read. This and ratio are all that knows what
// a GPUTime is made of.
func gpuTime(v int128.Int) GPUTime { return GPUTime{v} }

// ratio returns a/b, and false where that is no number.
func ratio(a, b GPUTime) (float64, bool) {
	if b.Sign() <= 0 {
		return 0, false
	}
	return a.v.Float64() / b.v.Float64(), true
}

// rated returns the service at rate over nanos.
func rated(rate lockstep.MilliGPU, nanos uint64) int128.Int {
	return int128.Mul(uint64(rate), nanos)
}

// fault returns the error of this package's calls.
func fault(kind error, call, field, value, reason string) error {
	return &lockstep.Error{Kind: kind, Op: "fairness: " + call, Field: field, Value: value, Reason: reason}
}

// quote returns s for an error text, at most 40 bytes of it.
func quote[T ~string](s T) string {
	if len(s) > 40 {
		return strconv.Quote(string(s[:40]) + "...")
	}
	return strconv.Quote(string(s))
}
