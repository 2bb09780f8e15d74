package cuda

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// The helper's protocol, version 1. Each message is a length in four bytes, the most
// significant first, and so many bytes of JSON, at most longestMessage. The host
// writes questions; the first is "hello". The helper answers each, in any order, with
// the question's ID.

// longestMessage is far above what 64 pairs take.
const longestMessage = 1 << 20

// wireVersion has to be the same on both sides.
const wireVersion = 1

// question is what the host asks. "bye" says that it is done; it has no answer.
type question struct {
	ID      uint64   `json:"id"`
	Do      string   `json:"do"` // "hello", "find", "read", "bye", or a verb's action
	PID     int      `json:"pid,omitempty"`
	Start   uint64   `json:"start,omitempty"`
	MS      uint32   `json:"ms,omitempty"`
	Pairs   []pair   `json:"pairs,omitempty"`
	Version int      `json:"version,omitempty"` // of hello
	Library string   `json:"library,omitempty"` // of hello
	Roots   []string `json:"roots,omitempty"`   // of hello
	Undo    bool     `json:"undo,omitempty"`    // of hello: HelperConfig.UndoOnLoss
}

// answer is what the helper says.
type answer struct {
	ID    uint64 `json:"id"`
	State int    `json:"state,omitempty"` // of read
	Found *found `json:"found,omitempty"` // of find
	Fault *fault `json:"fault,omitempty"` // nil of success
}

// fault is a failure on the wire.
type fault struct {
	Call string `json:"call,omitempty"`
	Code int    `json:"code,omitempty"`
	Kind string `json:"kind,omitempty"` // of a failure without a code: "unsupported", else the driver failed
	Text string `json:"text,omitempty"`
}

// pack turns a failure into what can be sent.
func pack(f *failure) *fault {
	if f == nil {
		return nil
	}
	out := &fault{Call: f.call, Code: int(f.code)}
	if errors.Is(f.kind, checkpoint.ErrUnsupported) {
		out.Kind = "unsupported"
	}
	if f.err != nil {
		out.Text = f.err.Error()
	}
	return out
}

// unpack is pack's inverse.
func unpack(f *fault) *failure {
	if f == nil {
		return nil
	}
	out := &failure{kind: checkpoint.ErrDriver, call: f.Call, code: code(f.Code)}
	switch {
	case f.Code != 0:
		out.kind = describe(out.code).kind
	case f.Kind == "unsupported":
		out.kind = checkpoint.ErrUnsupported
	}
	if f.Text != "" {
		out.err = errText(f.Text)
	}
	return out
}

// send writes a message, in one piece.
func send(w io.Writer, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > longestMessage {
		return errText("message too long")
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

// receive reads a message. io.EOF says that there are no more.
func receive(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > longestMessage {
		return errText("message too long")
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return errors.Join(io.ErrUnexpectedEOF, err)
	}
	return json.Unmarshal(body, v)
}
