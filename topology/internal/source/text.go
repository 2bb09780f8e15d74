package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// MaxLine is the longest line in bytes, its end not counted. A list of 100,000
// hosts that nothing shortens takes about 1 MiB.
const MaxLine = 4 << 20

// MaxHosts is the most hosts that a text may name, as many as a list may expand
// to.
const MaxHosts = 1 << 20

// maxFaults is how many faults a text reports; the rest it counts.
const maxFaults = 64

// Pos is a place in a text.
type Pos struct {
	Line   int // Line is 1 for the first; 0 means no place.
	Column int // Column counts bytes, 1 for the first; 0 means the whole line.
}

// String returns "line 12, column 3", less the column where it is 0.
func (p Pos) String() string {
	s := "line " + strconv.Itoa(p.Line)
	if p.Column > 0 {
		s += ", column " + strconv.Itoa(p.Column)
	}
	return s
}

// Text reads a text line by line and collects its faults.
type Text struct {
	op     string
	in     *bufio.Reader
	buf    []byte // of a line that the reader's buffer does not hold
	line   string
	number int
	done   bool
	failed error // of the reader
	errs   []error
	faults int
}

// New returns the text of r. The op begins the errors, "package: call".
func New(op string, r io.Reader) *Text {
	return &Text{op: op, in: bufio.NewReaderSize(r, 64<<10)}
}

// Next goes to the next line and reports whether there is one. After an end of
// line at the end of the text there is none.
func (t *Text) Next() bool {
	if t.done {
		return false
	}
	line, err := t.read()
	t.number++
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		t.done = true
		t.Fault(lockstep.ErrInvalid, MaxLine+1, "", "a line has at most "+strconv.Itoa(MaxLine)+" bytes")
		return false
	case errors.Is(err, io.EOF):
		t.done = true
		if len(line) == 0 {
			t.number--
			return false
		}
	case err != nil:
		t.done, t.failed = true, err
		return false
	}
	if t.number == 1 {
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	t.line = string(bytes.TrimSuffix(line, []byte("\r")))
	return true
}

// read returns a line without its LF, and what ended it unless that is the LF:
// ErrBufferFull where the line is too long.
func (t *Text) read() ([]byte, error) {
	part, err := t.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return bytes.TrimSuffix(part, []byte("\n")), err
	}
	t.buf = append(t.buf[:0], part...)
	for errors.Is(err, bufio.ErrBufferFull) && len(t.buf) <= MaxLine+1 { // a CR may come on top
		part, err = t.in.ReadSlice('\n')
		t.buf = append(t.buf, part...)
	}
	line := bytes.TrimSuffix(t.buf, []byte("\n"))
	if len(bytes.TrimSuffix(line, []byte("\r"))) > MaxLine {
		return nil, bufio.ErrBufferFull
	}
	return line, err
}

// Line returns the line that Next went to, without its end.
func (t *Text) Line() string { return t.line }

// Pos returns a place in the current line.
func (t *Text) Pos(column int) Pos { return Pos{t.number, column} }

// Stop ends the text: Next returns false from now on.
func (t *Text) Stop() { t.done = true }

// Fault notes a fault at a column of the current line. The value is what stands
// there, "" where that does not help, and is cut where it is long.
func (t *Text) Fault(kind error, column int, value, reason string) {
	t.FaultAt(kind, t.Pos(column), value, reason)
}

// FaultAt notes a fault at a place.
func (t *Text) FaultAt(kind error, at Pos, value, reason string) {
	t.FaultIn(kind, at.String(), value, reason)
}

// FaultIn notes a fault of a field, for values that were not read from a text.
func (t *Text) FaultIn(kind error, field, value, reason string) {
	if t.faults++; t.faults > maxFaults {
		return
	}
	if value != "" {
		value = Quote(value)
	}
	t.errs = append(t.errs, &lockstep.Error{Kind: kind, Op: t.op, Field: field, Value: value, Reason: reason})
}

// Faulty reports whether a fault was noted or the reader failed.
func (t *Text) Faulty() bool { return t.faults > 0 || t.failed != nil }

// Err returns all faults joined, nil where there are none.
func (t *Text) Err() error {
	errs := t.errs
	if t.faults > maxFaults {
		errs = append(errs[:maxFaults:maxFaults], &lockstep.Error{
			Kind: lockstep.ErrInvalid, Op: t.op, Reason: strconv.Itoa(t.faults-maxFaults) + " more faults",
		})
	}
	if t.failed != nil {
		errs = append(errs[:len(errs):len(errs)], fmt.Errorf("%s: %s: %w", t.op, Pos{Line: t.number}, t.failed))
	}
	return errors.Join(errs...)
}

// Quote returns s in quotes, cut where it is long.
func Quote(s string) string {
	if len(s) > 40 {
		s = s[:40] + "..."
	}
	return strconv.Quote(s)
}

// NameFault says what keeps s from being the name of a node, a switch, a device
// or a card, by the rule of lockstep.NodeID.Validate; "" where nothing does.
func NameFault(s string) string {
	var e *lockstep.Error
	if errors.As(lockstep.NodeID(s).Validate(), &e) {
		return e.Reason
	}
	return ""
}
