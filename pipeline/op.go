package pipeline

import "strconv"

// Kind says which part of the work on a micro-batch an op does.
type Kind uint8

// The kinds of ops.
const (
	Forward  Kind = iota // the forward pass
	Backward             // the gradient of the input; the whole backward pass where weights are not split off
	Weight               // the gradient of the weights, where the schedule splits it off
)

const kinds = 3

// String returns "F", "B" or "W".
func (k Kind) String() string {
	switch k {
	case Forward:
		return "F"
	case Backward:
		return "B"
	case Weight:
		return "W"
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// MarshalText writes the form of String; a kind that is none is ErrInvalid.
func (k Kind) MarshalText() ([]byte, error) {
	if k > Weight {
		return nil, invalid("text", "Kind", strconv.Itoa(int(k)), "is not a kind")
	}
	return []byte(k.String()), nil
}

// UnmarshalText reads what MarshalText writes.
func (k *Kind) UnmarshalText(text []byte) error {
	for _, known := range [...]Kind{Forward, Backward, Weight} {
		if string(text) == known.String() {
			*k = known
			return nil
		}
	}
	return invalid("text", "Kind", strconv.Quote(string(text)), "must be F, B or W")
}

// Op is one op of a stage: a part of the work on one micro-batch in one of the model chunks that the stage holds.
type Op struct {
	Kind  Kind  // which part of the work
	Chunk int32 // the chunk on its stage, from 0; always 0 unless the stage holds several
	Micro int32 // the micro-batch, from 0
}

// String returns the kind and the micro-batch, such as "B3", and the chunk where it is not the first, such as "B3.1".
func (o Op) String() string {
	s := o.Kind.String() + strconv.Itoa(int(o.Micro))
	if o.Chunk != 0 {
		s += "." + strconv.Itoa(int(o.Chunk))
	}
	return s
}

// Schedule names a published order of ops.
type Schedule uint8

// The schedules. They differ in what a stage does while it waits, and so in bubbles and in activations held.
const (
	OneFOneB    Schedule = iota // one forward, one backward, after as few forwards as keep the stages busy
	GPipe                       // all forwards, then all backwards
	Interleaved                 // one forward, one backward over several chunks a stage; Stages must divide the micro-batches of each replica
	ZBH1                        // weights split off and put off by as many as keep memory as with OneFOneB
	ZBH2                        // weights put off twice as far: no bubbles between ops, twice the activations
)

// String returns the name of s.
func (s Schedule) String() string {
	switch s {
	case OneFOneB:
		return "1F1B"
	case GPipe:
		return "GPipe"
	case Interleaved:
		return "interleaved"
	case ZBH1:
		return "ZB-H1"
	case ZBH2:
		return "ZB-H2"
	}
	return "Schedule(" + strconv.Itoa(int(s)) + ")"
}

// MarshalText writes the form of String; a schedule that is none is ErrInvalid.
func (s Schedule) MarshalText() ([]byte, error) {
	if s > ZBH2 {
		return nil, invalid("text", "Schedule", strconv.Itoa(int(s)), "is not a schedule")
	}
	return []byte(s.String()), nil
}

// UnmarshalText reads what MarshalText writes.
func (s *Schedule) UnmarshalText(text []byte) error {
	for known := OneFOneB; known <= ZBH2; known++ {
		if string(text) == known.String() {
			*s = known
			return nil
		}
	}
	return invalid("text", "Schedule", strconv.Quote(string(text)), "must be 1F1B, GPipe, interleaved, ZB-H1 or ZB-H2")
}

// Splits says whether s has ops of kind Weight.
func (s Schedule) Splits() bool { return s == ZBH1 || s == ZBH2 }
