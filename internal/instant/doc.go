// Package instant holds what cores do with times: they come in as time.Time, are
// kept in nanoseconds since 1970, may not go backwards, and sums of them are held.
//
// # Model
//
// An instant is an int64 of nanoseconds since 1970, as of lockstep.Nanos. Never is the
// instant of what has no deadline. In is the package for which a time is read, which
// its errors name.
//
// # Usage
//
//	const in instant.In = "lease"
//	ns, err := in.Nanos("grant", "now", now)
//	err = in.NotBefore("grant", "now", now, ns, t.now)
//	deadline := instant.Add(ns, ttl)
//
// # Errors
//
// All are *lockstep.Error: ErrInvalid for a time that cannot be kept, ErrPast for one
// before a time already seen.
//
// # Concurrency
//
// Functions only; safe for concurrent use.
//
// # Cost
//
// Only errors allocate.
package instant
