// Package int128 holds the wide integers that exact accounts need: Int, signed
// with 128 bits, and Fixed, which has 64 more bits behind the point.
//
// # Model
//
// An amount of service is a product of two 64-bit integers (a rate and a time),
// so sums of them take 128 bits. A share of such an amount is a quotient, which
// Divide gives as a Fixed together with its remainder, so that nothing is lost:
// quotient × divisor + remainder is the dividend, bit for bit.
//
// # Usage
//
//	share, rest := int128.Divide(int128.Mul(rate, nanos), carried, weights)
//	owed := share.Mul(weight)
//
// # Order of decision
//
// Cmp is the order of the numbers.
//
// # Errors
//
// Parse reports malformed text. MulDiv and MulDivUp are held at the end of int64. Sums and products wrap around at the ends, as
// Go's own integers do, but for AddSat and SubSat: the caller bounds its inputs. Divide and QuoRem panic
// when asked to divide by zero.
//
// # Concurrency
//
// Values; every method is safe to call from many goroutines.
//
// # Cost
//
// A few machine instructions each; only Big, String and Parse allocate.
//
// # Limits
//
// Only the operations that accounts use are here: there is no division of one
// Int by another.
package int128
