package perfmodel

import (
	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// names are the texts of an enumeration, by value.
type names []string

// of returns the text of value i, or kind(i) if it has none.
func (n names) of(kind string, i uint8) string {
	if int(i) < len(n) {
		return n[i]
	}
	return kind + "(" + text(int(i)) + ")"
}

// marshal returns the text of value i, or an error if it has none.
func (n names) marshal(kind string, i uint8) ([]byte, error) {
	if int(i) < len(n) {
		return []byte(n[i]), nil
	}
	return nil, invalid("perfmodel: marshal", kind, text(int(i)), "has no name")
}

// parse returns the value of a text.
func (n names) parse(kind string, name []byte) (uint8, error) {
	for i, s := range n {
		if s == string(name) {
			return uint8(i), nil
		}
	}
	return 0, &lockstep.Error{
		Kind: lockstep.ErrInvalid, Op: "perfmodel: parse", Field: kind, Value: errtext.Quote(string(name)), Reason: "no such name",
	}
}

func recomputeNames() names { return names{"none", "selective", "full"} }

func dimensionNames() names { return names{"tensor", "pipeline", "data", "expert", "expert-data"} }

func collectiveNames() names {
	return names{"all-reduce", "reduce-scatter", "all-gather", "all-to-all", "point-to-point"}
}

func algorithmNames() names { return names{"ring", "tree", "hierarchical"} }

// String returns "none", "selective" or "full".
func (r Recompute) String() string { return recomputeNames().of("Recompute", uint8(r)) }

// MarshalText writes the form of String; a value without a name is an error.
func (r Recompute) MarshalText() ([]byte, error) {
	return recomputeNames().marshal("Recompute", uint8(r))
}

// UnmarshalText reads the form of String.
func (r *Recompute) UnmarshalText(name []byte) error {
	v, err := recomputeNames().parse("Recompute", name)
	if err == nil {
		*r = Recompute(v)
	}
	return err
}

// String returns the name of d in lower case with hyphens.
func (d Dimension) String() string { return dimensionNames().of("Dimension", uint8(d)) }

// MarshalText writes the form of String; a value without a name is an error.
func (d Dimension) MarshalText() ([]byte, error) {
	return dimensionNames().marshal("Dimension", uint8(d))
}

// UnmarshalText reads the form of String.
func (d *Dimension) UnmarshalText(name []byte) error {
	v, err := dimensionNames().parse("Dimension", name)
	if err == nil {
		*d = Dimension(v)
	}
	return err
}

// String returns the name of c in lower case with hyphens.
func (c Collective) String() string { return collectiveNames().of("Collective", uint8(c)) }

// MarshalText writes the form of String; a value without a name is an error.
func (c Collective) MarshalText() ([]byte, error) {
	return collectiveNames().marshal("Collective", uint8(c))
}

// UnmarshalText reads the form of String.
func (c *Collective) UnmarshalText(name []byte) error {
	v, err := collectiveNames().parse("Collective", name)
	if err == nil {
		*c = Collective(v)
	}
	return err
}

// String returns the name of a in lower case.
func (a Algorithm) String() string { return algorithmNames().of("Algorithm", uint8(a)) }

// MarshalText writes the form of String; a value without a name is an error.
func (a Algorithm) MarshalText() ([]byte, error) {
	return algorithmNames().marshal("Algorithm", uint8(a))
}

// UnmarshalText reads the form of String.
func (a *Algorithm) UnmarshalText(name []byte) error {
	v, err := algorithmNames().parse("Algorithm", name)
	if err == nil {
		*a = Algorithm(v)
	}
	return err
}
