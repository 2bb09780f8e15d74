package lockstep

import (
	"encoding/json"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// MilliGPU is an amount of devices in thousandths: 1000 is one whole device.
// Sums saturate at both ends of int64.
type MilliGPU int64

// WholeGPU is one whole device.
const WholeGPU MilliGPU = 1000

// MilliCPU is an amount of processor in thousandths of a core.
// Sums saturate at both ends of int64.
type MilliCPU int64

// WholeCPU is one whole core.
const WholeCPU MilliCPU = 1000

// Bytes is an amount of memory or data. Sums saturate at both ends of int64.
type Bytes int64

// Binary multiples of a byte.
const (
	KiB Bytes = 1 << (10 * (iota + 1)) // KiB is 1024 bytes.
	MiB                                // MiB is 1024 KiB.
	GiB                                // GiB is 1024 MiB.
	TiB                                // TiB is 1024 GiB.
)

// BytesPerSecond is a bandwidth, of one direction of a link.
type BytesPerSecond int64

// FLOPs is a count of floating-point operations. It is a model's figure, never
// an account, and so the one unit here that is a float.
type FLOPs float64

// Add returns a+b, held at the ends of int64.
func (a MilliGPU) Add(b MilliGPU) MilliGPU { return MilliGPU(addSat(int64(a), int64(b))) }

// Sub returns a-b, held at the ends of int64.
func (a MilliGPU) Sub(b MilliGPU) MilliGPU { return MilliGPU(subSat(int64(a), int64(b))) }

// Mul returns a×n, held at the ends of int64.
func (a MilliGPU) Mul(n int64) MilliGPU { return MilliGPU(mulSat(int64(a), n)) }

// String returns "8" for whole devices and "1500m" otherwise.
func (a MilliGPU) String() string { return formatMilli(int64(a)) }

// MarshalText writes the form of String.
func (a MilliGPU) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what ParseMilliGPU reads.
func (a *MilliGPU) UnmarshalText(text []byte) error { return unmarshal(a, text, ParseMilliGPU) }

// UnmarshalJSON reads the text form, quoted, or a plain number of devices.
func (a *MilliGPU) UnmarshalJSON(data []byte) error { return unmarshalJSON(a, data, ParseMilliGPU) }

// ParseMilliGPU reads "8", "0.5" (whole thousandths only) or "500m". A minus
// sign may lead; there are no spaces, exponents or plus signs.
func ParseMilliGPU(s string) (MilliGPU, error) {
	v, reason := parseMilli(s)
	if reason != "" {
		return 0, invalid("parse", "MilliGPU", errtext.Quote(s), reason)
	}
	return MilliGPU(v), nil
}

// Add returns a+b, held at the ends of int64.
func (a MilliCPU) Add(b MilliCPU) MilliCPU { return MilliCPU(addSat(int64(a), int64(b))) }

// Sub returns a-b, held at the ends of int64.
func (a MilliCPU) Sub(b MilliCPU) MilliCPU { return MilliCPU(subSat(int64(a), int64(b))) }

// Mul returns a×n, held at the ends of int64.
func (a MilliCPU) Mul(n int64) MilliCPU { return MilliCPU(mulSat(int64(a), n)) }

// String returns "8" for whole cores and "1500m" otherwise.
func (a MilliCPU) String() string { return formatMilli(int64(a)) }

// MarshalText writes the form of String.
func (a MilliCPU) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what ParseMilliCPU reads.
func (a *MilliCPU) UnmarshalText(text []byte) error { return unmarshal(a, text, ParseMilliCPU) }

// UnmarshalJSON reads the text form, quoted, or a plain number of cores.
func (a *MilliCPU) UnmarshalJSON(data []byte) error { return unmarshalJSON(a, data, ParseMilliCPU) }

// ParseMilliCPU reads "8", "0.5" (whole thousandths only) or "500m", as
// ParseMilliGPU does.
func ParseMilliCPU(s string) (MilliCPU, error) {
	v, reason := parseMilli(s)
	if reason != "" {
		return 0, invalid("parse", "MilliCPU", errtext.Quote(s), reason)
	}
	return MilliCPU(v), nil
}

// Add returns a+b, held at the ends of int64.
func (a Bytes) Add(b Bytes) Bytes { return Bytes(addSat(int64(a), int64(b))) }

// Sub returns a-b, held at the ends of int64.
func (a Bytes) Sub(b Bytes) Bytes { return Bytes(subSat(int64(a), int64(b))) }

// Mul returns a×n, held at the ends of int64.
func (a Bytes) Mul(n int64) Bytes { return Bytes(mulSat(int64(a), n)) }

// String returns a with the largest binary suffix that keeps it whole: "80Gi", "1536Mi", "7".
func (a Bytes) String() string {
	if a == 0 {
		return "0"
	}
	const suffixes = "KMGTPE"
	// Six steps of ten bits reach Ei, the last that int64 holds.
	step := min(bits.TrailingZeros64(uint64(a))/10, len(suffixes))
	if step == 0 {
		return strconv.FormatInt(int64(a), 10)
	}
	return strconv.FormatInt(int64(a)>>(10*step), 10) + suffixes[step-1:step] + "i"
}

// MarshalText writes the form of String.
func (a Bytes) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what ParseBytes reads.
func (a *Bytes) UnmarshalText(text []byte) error { return unmarshal(a, text, ParseBytes) }

// UnmarshalJSON reads the text form, quoted, or a plain number of bytes.
func (a *Bytes) UnmarshalJSON(data []byte) error { return unmarshalJSON(a, data, ParseBytes) }

// ParseBytes reads a number of bytes with an optional suffix: Ki Mi Gi Ti Pi Ei
// (powers of 1024) or k M G T P E (powers of 1000), with an optional B behind
// it; k may be written K. Decimals are allowed where the number has at most 19
// digits and the result is a whole number of bytes: "80Gi", "1.5GiB", "900MB".
// A minus sign may lead; there are no spaces, exponents or plus signs.
func ParseBytes(s string) (Bytes, error) {
	v, reason := parseBytes(s)
	if reason != "" {
		return 0, invalid("parse", "Bytes", errtext.Quote(s), reason)
	}
	return Bytes(v), nil
}

// String returns a with the largest decimal suffix that keeps it whole, as
// links are sold, and "/s" behind it: "50G/s", "53687091200/s".
func (a BytesPerSecond) String() string {
	const suffixes = "kMGTPE"
	v, step := int64(a), 0
	for v != 0 && v%1000 == 0 && step < len(suffixes) {
		v /= 1000
		step++
	}
	if step == 0 {
		return strconv.FormatInt(v, 10) + "/s"
	}
	return strconv.FormatInt(v, 10) + suffixes[step-1:step] + "/s"
}

// MarshalText writes the form of String.
func (a BytesPerSecond) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what ParseBandwidth reads.
func (a *BytesPerSecond) UnmarshalText(text []byte) error { return unmarshal(a, text, ParseBandwidth) }

// UnmarshalJSON reads the text form, quoted, or a plain number of bytes a second.
func (a *BytesPerSecond) UnmarshalJSON(data []byte) error {
	return unmarshalJSON(a, data, ParseBandwidth)
}

// ParseBandwidth reads what ParseBytes reads, with an optional "/s" behind it.
// It counts bytes, not bits.
func ParseBandwidth(s string) (BytesPerSecond, error) {
	v, reason := parseBytes(strings.TrimSuffix(s, "/s"))
	if reason != "" {
		return 0, invalid("parse", "BytesPerSecond", errtext.Quote(s), reason)
	}
	return BytesPerSecond(v), nil
}

func unmarshal[T any](dst *T, text []byte, parse func(string) (T, error)) error {
	v, err := parse(string(text))
	if err != nil {
		return err
	}
	*dst = v
	return nil
}

func unmarshalJSON[T any](dst *T, data []byte, parse func(string) (T, error)) error {
	s := string(data)
	if s == "null" { // as encoding/json does for plain values
		return nil
	}
	if len(s) >= 2 && s[0] == '"' {
		// Other writers may escape what need not be, such as the slash of "50G\/s".
		var text string
		if json.Unmarshal(data, &text) == nil {
			s = text
		}
	}
	return unmarshal(dst, []byte(s), parse)
}

func formatMilli(v int64) string {
	if v%1000 == 0 {
		return strconv.FormatInt(v/1000, 10)
	}
	return strconv.FormatInt(v, 10) + "m"
}

func parseMilli(s string) (v int64, reason string) {
	if milli, ok := strings.CutSuffix(s, "m"); ok {
		return parseDecimal(milli, 1)
	}
	return parseDecimal(s, 1000)
}

func parseBytes(s string) (v int64, reason string) {
	s = strings.TrimSuffix(s, "B")
	unit := int64(1)
	base := int64(1000)
	if t, ok := strings.CutSuffix(s, "i"); ok {
		s, base = t, 1024
	}
	if s != "" {
		last := s[len(s)-1]
		if last == 'K' {
			last = 'k'
		}
		if n := strings.IndexByte("kMGTPE", last); n >= 0 {
			s = s[:len(s)-1]
			for range n + 1 {
				unit *= base
			}
		}
	}
	if base == 1024 && unit == 1 {
		return 0, "want a number with an optional suffix such as Ki, Gi or G"
	}
	return parseDecimal(s, unit)
}

// parseDecimal reads a decimal number and multiplies it by unit exactly: a
// result that is not whole, or outside int64, is refused rather than rounded.
func parseDecimal(s string, unit int64) (v int64, reason string) {
	digits, negative := strings.CutPrefix(s, "-")
	whole, fraction, dotted := strings.Cut(digits, ".")
	if whole == "" || dotted && fraction == "" || !allDigits(whole) || !allDigits(fraction) {
		return 0, "want a number with an optional suffix"
	}
	fraction = strings.TrimRight(fraction, "0")
	// Value = (whole·10^d + fraction)·unit / 10^d, held in 128 bits.
	const tooLarge = "too large for 64 bits"
	mantissa, scale := uint64(0), uint64(1)
	for _, c := range []byte(whole) {
		hi, lo := bits.Mul64(mantissa, 10)
		sum, carry := bits.Add64(lo, uint64(c-'0'), 0)
		if hi != 0 || carry != 0 {
			return 0, tooLarge
		}
		mantissa = sum
	}
	for _, c := range []byte(fraction) {
		hi, lo := bits.Mul64(mantissa, 10)
		sum, carry := bits.Add64(lo, uint64(c-'0'), 0)
		if hi != 0 || carry != 0 || scale > math.MaxUint64/10 {
			return 0, "more digits than 64 bits hold"
		}
		mantissa, scale = sum, scale*10
	}
	hi, lo := bits.Mul64(mantissa, uint64(unit))
	if hi >= scale {
		return 0, tooLarge
	}
	quo, rem := bits.Div64(hi, lo, scale)
	switch {
	case rem != 0:
		return 0, "not a whole number of the base unit"
	case negative && quo <= 1<<63:
		return -int64(quo), "" // -(1<<63) wraps onto itself, which is right
	case quo > math.MaxInt64:
		return 0, tooLarge
	}
	return int64(quo), ""
}

func allDigits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return true
}

func addSat(a, b int64) int64 {
	sum := a + b
	if (a^sum)&(b^sum) < 0 { // both operands have the sign that the sum lacks
		if a < 0 {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	return sum
}

func subSat(a, b int64) int64 {
	diff := a - b
	if (a^b)&(a^diff) < 0 {
		if a < 0 {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	return diff
}

func mulSat(a, b int64) int64 {
	negative := (a < 0) != (b < 0)
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	switch {
	case hi != 0 || lo > 1<<63 || lo == 1<<63 && !negative:
		if negative {
			return math.MinInt64
		}
		return math.MaxInt64
	case negative:
		return -int64(lo)
	}
	return int64(lo)
}

// mulDivSat returns a·b/d, rounded towards zero and held at the ends of int64;
// the product is made in 128 bits. It needs d > 0.
func mulDivSat(a, b, d int64) int64 {
	negative := (a < 0) != (b < 0)
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	quo := uint64(math.MaxUint64)
	if hi < uint64(d) {
		quo, _ = bits.Div64(hi, lo, uint64(d))
	}
	switch {
	case negative && quo >= 1<<63:
		return math.MinInt64
	case negative:
		return -int64(quo)
	case quo > math.MaxInt64:
		return math.MaxInt64
	}
	return int64(quo)
}

// magnitude returns |v|, which for the smallest int64 only uint64 can hold.
func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}
