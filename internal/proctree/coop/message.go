package coop

import (
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
)

// The bounds of a message.
const (
	Version = 1   // Version is that of the protocol.
	MaxLine = 256 // MaxLine is the length of a line in bytes with its newline.
	MaxArgs = 8   // MaxArgs is how many arguments a message has.
)

// Message is one line.
type Message struct {
	Verb string   // Verb is what it says, in lower-case letters.
	Args []string // Args are words of printable ASCII, none of them empty.
}

// Parse reads a line without its newline, or says why it is no message. No message has
// two texts.
func Parse(line string) (Message, error) {
	bad := func(reason string) (Message, error) {
		return Message{}, &lockstep.Error{Kind: ErrProtocol, Op: "coop: parse", Field: "line", Value: strconv.QuoteToASCII(line[:min(len(line), 40)]), Reason: reason}
	}
	if len(line) >= MaxLine {
		return bad("is too long")
	}
	words := strings.Split(line, " ")
	if len(words) > MaxArgs+1 {
		return bad("has too many words")
	}
	for i, w := range words {
		if w == "" {
			return bad("has an empty word")
		}
		for _, b := range []byte(w) {
			if b <= ' ' || b > '~' || i == 0 && (b < 'a' || b > 'z') {
				return bad("has a byte that may not be there")
			}
		}
	}
	return Message{Verb: words[0], Args: words[1:]}, nil
}

// Line returns the message as a line with its newline, or says why it is none.
func (m Message) Line() (string, error) {
	line := strings.Join(append([]string{m.Verb}, m.Args...), " ")
	back, err := Parse(line)
	if err != nil {
		return "", err
	}
	if len(back.Args) != len(m.Args) {
		return "", &lockstep.Error{Kind: ErrProtocol, Op: "coop: line", Field: "Args", Reason: "hold a space"}
	}
	return line + "\n", nil
}

// Uints reads the first n arguments as numbers without sign. ok is false unless all of
// them are there and numbers; there may be more.
func (m Message) Uints(n int) (list []uint64, ok bool) {
	if len(m.Args) < n {
		return nil, false
	}
	list = make([]uint64, n)
	for i := range list {
		v, err := strconv.ParseUint(m.Args[i], 10, 63)
		if err != nil {
			return nil, false
		}
		list[i] = v
	}
	return list, true
}

// Numbers returns a message whose arguments are numbers.
func Numbers(verb string, list ...uint64) Message {
	m := Message{Verb: verb}
	for _, v := range list {
		m.Args = append(m.Args, strconv.FormatUint(v, 10))
	}
	return m
}
