// Package source is what the readers of tools' output share.
//
// # Model
//
// A [Text] gives the lines of a text one by one, in bounded memory: a byte order
// mark at the beginning and the CR of CRLF ends are taken off, and a line of more
// than [MaxLine] bytes ends the text with a fault. It also collects the faults
// that a reader finds, each with its place. Columns count bytes from 1.
//
// # Usage
//
//	t := source.New("smi: parse", r)
//	for t.Next() {
//		for _, w := range source.Words(t.Line()) { ... t.Fault(lockstep.ErrInvalid, w.Column, w.Text, "want a code") }
//	}
//	return t.Err()
//
// # Order of decision
//
// [Nearest] takes for each device in turn the card that it is nearest to, among
// equals the one that fewest devices before it took, then the lowest index.
//
// # Errors
//
// [Text.Err] joins the faults, at most 64, each a [*lockstep.Error] whose Field
// begins with the place, "line 12, column 3". A reader that fails is wrapped.
//
// # Concurrency
//
// A Text is not safe for concurrent use.
//
// # Cost
//
// O(bytes); a Text keeps a line at a time.
//
// # Limits
//
// It decodes nothing: bytes that are not UTF-8 come as they are.
package source
