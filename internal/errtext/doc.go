// Package errtext writes values into error texts.
//
// # Model
//
// What a caller gave is quoted, and cut where it is long, so that an error stays on
// one readable line whatever was given.
//
// # Usage
//
//	e.Value = errtext.Quote(job)
//
// # Concurrency
//
// Functions only; safe for concurrent use.
package errtext
