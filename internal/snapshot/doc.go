// Package snapshot frames the bytes in which a core saves itself, so that a
// reader knows what it holds before it looks inside.
//
// # Model
//
// A snapshot is one header line and a body. The header is the format, such as
// "lockstep/lease", the version of that format in decimal, and the SHA-256 of the
// body in lower-case hex, with one space between:
//
//	lockstep/lease 1 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//	{"config":...}
//
// Invariants: equal arguments of Write give equal bytes; Read returns a body only if
// every byte of the header and of the body is one that Write wrote, with nothing
// missing and nothing behind. The checksum finds damage, not forgery: whoever
// decodes the body still checks it; CheckJSON does, for a body of JSON, as far as
// it can be done by writing again what was read.
//
// # Usage
//
//	err := snapshot.Write(w, "lockstep/lease", 1, body)
//	body, err := snapshot.Read(r, "lease: restore", "lockstep/lease", 1)
//
// or, for a body of JSON,
//
//	err := snapshot.WriteJSON(w, "lease: snapshot", "lockstep/lease", 1, table.image())
//	body, err := snapshot.ReadJSON(r, "lease: restore", "lockstep/lease", 1, &img)
//	err = snapshot.CheckJSON("lease: restore", body, restored.image())
//
// # Errors
//
// A reader's are *lockstep.Error of kind ErrInvalid under the op that it was given, with
// Field "snapshot" for a header that is none, a body that is cut short, changed or not
// in the form that is written, and one of more than MaxBody bytes; with Field "r" or
// "w" for nil; with Field "format" for the snapshot of another package, and "version"
// for another version. What the reader or the writer returned is passed on, wrapped.
//
// # Concurrency
//
// Functions only; safe for concurrent use.
//
// # Cost
//
// One pass over the body for the checksum. Write copies nothing; Read allocates
// the body, and refuses a foreign header before it reads on.
package snapshot
