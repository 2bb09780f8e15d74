package labels

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// maxValue is the most bytes that one node may take.
const maxValue = 4 << 20

// maxRead is the most bytes to read at a time, so that little more than a node is
// kept.
const maxRead = 64 << 10

// nodeText is what is read of a node's JSON.
type nodeText struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Status struct {
		Addresses []struct {
			Type    string `json:"type"`
			Address string `json:"address"`
		} `json:"addresses"`
	} `json:"status"`
}

// Parse reads what kubectl get nodes -o json prints: an object with a list of
// nodes in items. Of a node it takes the name, the labels and the first address
// that is internal, if it can be a name. It returns ErrInvalid or ErrDuplicate for
// each fault that it finds, joined.
func Parse(r io.Reader) ([]Node, error) {
	w := &window{r: r}
	p := parser{faults: source.New("labels: parse", strings.NewReader("")), window: w, decoder: json.NewDecoder(w), seen: make(map[string]bool)}
	w.skipMark()
	p.list()
	if err := p.faults.Err(); err != nil {
		return nil, err
	}
	if p.failed != nil {
		return nil, fmt.Errorf("labels: parse: %w", p.failed)
	}
	return p.nodes, nil
}

// parser reads a list of nodes.
type parser struct {
	faults  *source.Text
	window  *window
	decoder *json.Decoder
	failed  error // of the reader
	nodes   []Node
	seen    map[string]bool
}

// list reads the whole text.
func (p *parser) list() {
	if !p.delim('{', "want an object with the list items") {
		return
	}
	found := false
	for p.decoder.More() {
		at := p.here()
		key, ok := p.token()
		if !ok {
			return
		}
		if key != "items" {
			var skip json.RawMessage
			if !p.value(&skip) {
				return
			}
			continue
		}
		if found {
			p.faults.FaultAt(lockstep.ErrDuplicate, at, "items", "is given twice")
			return
		}
		found = true
		if !p.items() {
			return
		}
	}
	if !p.delim('}', "want the end of the object") {
		return
	}
	switch at := p.here(); {
	case !found:
		p.faults.FaultAt(lockstep.ErrInvalid, at, "", "want a list items")
	default:
		if _, err := p.decoder.Token(); !errors.Is(err, io.EOF) {
			p.fault(at, err, "nothing may come behind the object")
		}
	}
}

// items reads the list of nodes.
func (p *parser) items() bool {
	if !p.delim('[', "want a list of nodes") {
		return false
	}
	for p.decoder.More() {
		at := p.here()
		var n nodeText
		if !p.value(&n) {
			return false
		}
		reason := source.NameFault(n.Metadata.Name)
		switch {
		case n.Kind != "" && n.Kind != "Node":
			p.faults.FaultAt(lockstep.ErrInvalid, at, n.Kind, "want nodes")
		case reason != "":
			p.faults.FaultAt(lockstep.ErrInvalid, at, n.Metadata.Name, "want metadata.name: "+reason)
		case p.seen[n.Metadata.Name]:
			p.faults.FaultAt(lockstep.ErrDuplicate, at, n.Metadata.Name, "names two nodes")
		case len(p.nodes) == source.MaxHosts:
			p.faults.FaultAt(lockstep.ErrInvalid, at, "", "too many nodes")
			return false
		}
		p.seen[n.Metadata.Name] = true
		p.nodes = append(p.nodes, Node{ID: lockstep.NodeID(n.Metadata.Name), Labels: n.Metadata.Labels, Address: n.address()})
	}
	return p.delim(']', "want a comma or the end of the list")
}

func (n *nodeText) address() string {
	for _, a := range n.Status.Addresses {
		if a.Type == "InternalIP" && source.NameFault(a.Address) == "" {
			return a.Address
		}
	}
	return ""
}

// here returns where the next value or delimiter stands, or what is before it.
func (p *parser) here() source.Pos {
	return p.window.pos(p.window.next(p.decoder.InputOffset()))
}

// delim reads a delimiter.
func (p *parser) delim(want rune, reason string) bool {
	at := p.here()
	t, err := p.decoder.Token()
	if err != nil || t != json.Delim(want) {
		p.fault(at, err, reason)
		return false
	}
	return true
}

// token reads a key.
func (p *parser) token() (string, bool) {
	at := p.here()
	t, err := p.decoder.Token()
	s, ok := t.(string)
	if err != nil || !ok {
		p.fault(at, err, "want a key")
		return "", false
	}
	return s, true
}

// value reads a value into v.
func (p *parser) value(v any) bool {
	p.window.forget(p.decoder.InputOffset())
	before := p.decoder.InputOffset()
	err := p.decoder.Decode(v)
	if err == nil {
		return true
	}
	start := p.window.behind(before)
	at := p.window.pos(p.window.next(before))
	// The decoder does not say where it stopped, but the same text by itself does.
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	switch again := json.NewDecoder(bytes.NewReader(p.window.from(start))).Decode(new(json.RawMessage)); {
	case errors.As(err, &typed):
		at = p.window.pos(start + max(typed.Offset-1, 0))
	case errors.As(again, &syntax) && errors.As(err, new(*json.SyntaxError)):
		at = p.window.pos(start + max(syntax.Offset-1, 0))
	}
	p.fault(at, err, "want a node")
	return false
}

// fault notes what went wrong at a place: an error of the decoder or the reader,
// or if there is none the reason.
func (p *parser) fault(at source.Pos, err error, reason string) {
	var syntax *json.SyntaxError
	var typed *json.UnmarshalTypeError
	switch {
	case errors.Is(err, errLong):
		p.faults.FaultAt(lockstep.ErrInvalid, at, "", "a node takes at most 4 MiB")
	case p.window.err != nil && errors.Is(err, p.window.err) && !errors.Is(err, io.EOF):
		p.failed = err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		p.faults.FaultAt(lockstep.ErrInvalid, at, "", reason+", not the end of the text")
	case errors.As(err, &syntax), errors.As(err, &typed):
		p.faults.FaultAt(lockstep.ErrInvalid, at, "", reason+": "+err.Error())
	default:
		p.faults.FaultAt(lockstep.ErrInvalid, at, "", reason)
	}
}

var errLong = errors.New("too long")

// window passes on what it reads and remembers it from a mark on.
type window struct {
	r    io.Reader
	err  error
	kept []byte     // from offset base on
	base int64      // offset as the decoder counts
	at   source.Pos // of base, both from 0
}

// skipMark drops a byte order mark at the beginning.
func (w *window) skipMark() {
	mark := make([]byte, 3)
	n, err := io.ReadFull(w.r, mark)
	mark = mark[:n]
	if !bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		w.r = io.MultiReader(bytes.NewReader(mark), w.r)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		w.r = io.MultiReader(bytes.NewReader(mark), failing{err})
	}
}

// failing is a reader that failed.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func (w *window) Read(b []byte) (int, error) {
	if len(w.kept) > maxValue {
		return 0, errLong
	}
	n, err := w.r.Read(b[:min(len(b), maxRead)])
	w.kept = append(w.kept, b[:n]...)
	if err != nil {
		w.err = err
	}
	return n, err
}

// forget drops what is before an offset.
func (w *window) forget(offset int64) {
	drop := w.kept[:offset-w.base]
	w.at = w.count(drop)
	w.kept = append(w.kept[:0], w.kept[len(drop):]...)
	w.base = offset
}

// count returns the place behind text that begins at base.
func (w *window) count(text []byte) source.Pos {
	at := w.at
	at.Line += bytes.Count(text, []byte("\n"))
	if i := bytes.LastIndexByte(text, '\n'); i >= 0 {
		at.Column = len(text) - i - 1
	} else {
		at.Column += len(text)
	}
	return at
}

// pos returns the place of an offset that is not forgotten.
func (w *window) pos(offset int64) source.Pos {
	at := w.count(w.kept[:min(offset-w.base, int64(len(w.kept)))])
	return source.Pos{Line: at.Line + 1, Column: at.Column + 1}
}

// next returns the offset of the first byte from an offset on that is more than
// space or a comma, as far as was read.
func (w *window) next(offset int64) int64 {
	for offset-w.base < int64(len(w.kept)) && bytes.IndexByte([]byte(" \t\r\n,:"), w.kept[offset-w.base]) >= 0 {
		offset++
	}
	return offset
}

// behind returns the offset behind the comma or colon that comes from an offset on,
// if there is one before anything else but space, as the decoder counts from there.
func (w *window) behind(offset int64) int64 {
	rest := w.from(offset)
	trimmed := bytes.TrimLeft(rest, " \t\r\n")
	if len(trimmed) > 0 && (trimmed[0] == ',' || trimmed[0] == ':') {
		return offset + int64(len(rest)-len(trimmed)) + 1
	}
	return offset
}

// from returns what was read from an offset on.
func (w *window) from(offset int64) []byte {
	return w.kept[min(offset-w.base, int64(len(w.kept))):]
}
