// Package num holds the functions of numbers that package detect and its children share.
//
// # Model
//
// Logarithm, exponential and the normal distribution with the same bits on every platform, so that
// what is decided by them is the same everywhere; those of package math may differ in the last bit.
//
// # Usage
//
//	num.Log(float64(observed) / float64(expected))
//
// # Concurrency
//
// Functions only; safe for concurrent use.
package num
