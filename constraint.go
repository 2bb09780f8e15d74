package lockstep

import (
	"fmt"
	"slices"
	"strconv"
)

// Constraints say on which nodes members may sit. All of them must hold. The
// zero Constraints allow every healthy, untainted node.
type Constraints struct {
	Selector    []Requirement `json:"selector,omitempty"`    // Selector must hold of a node's labels.
	Tolerations []Toleration  `json:"tolerations,omitempty"` // Tolerations cancel taints.
	Affinity    []Affinity    `json:"affinity,omitempty"`    // Affinity must hold of the gangs placed so far.
}

// Operator is how a Requirement compares.
type Operator string

// The operators of label requirements, as Kubernetes names them.
const (
	In           Operator = "In"           // In: the label is there and its value is one of Values.
	NotIn        Operator = "NotIn"        // NotIn: the label is absent or its value is none of Values.
	Exists       Operator = "Exists"       // Exists: the label is there.
	DoesNotExist Operator = "DoesNotExist" // DoesNotExist: the label is absent.
)

// Requirement is a condition on one label of a node.
type Requirement struct {
	Key      string   `json:"key"`              // Key is the label.
	Operator Operator `json:"operator"`         // Operator is how to compare.
	Values   []string `json:"values,omitempty"` // Values are for In and NotIn, at least one; none for the others.
}

// Matches reports whether r holds of labels.
func (r *Requirement) Matches(labels map[string]string) bool {
	value, ok := labels[r.Key]
	switch r.Operator {
	case In:
		return ok && slices.Contains(r.Values, value)
	case NotIn:
		return !ok || !slices.Contains(r.Values, value)
	case Exists:
		return ok
	case DoesNotExist:
		return !ok
	}
	return false
}

// Taint keeps off a node every member that does not tolerate it.
type Taint struct {
	Key   string `json:"key"`             // Key names the taint.
	Value string `json:"value,omitempty"` // Value tells taints of one key apart; it may be empty.
}

// Toleration cancels the taints it matches.
type Toleration struct {
	Key   string `json:"key,omitempty"`   // Key is the taint's; empty matches every taint.
	Value string `json:"value,omitempty"` // Value is the taint's; empty matches every value of Key.
}

// Tolerates reports whether t cancels taint.
func (t Toleration) Tolerates(taint Taint) bool {
	return t.Key == "" || t.Key == taint.Key && (t.Value == "" || t.Value == taint.Value)
}

// Affinity relates a gang to the gangs already placed whose labels match: its
// members must sit in the same domain of Level as one of them, or, with Anti,
// in none that holds one. A required affinity that no placed gang matches is
// unsatisfied, except that a gang which matches its own affinity may be first.
type Affinity struct {
	Match map[string]string `json:"match"`           // Match must all be among the other gang's Labels; at least one entry.
	Level Level             `json:"level,omitempty"` // Level is the domain compared; empty means LevelNode.
	Anti  bool              `json:"anti,omitempty"`  // Anti keeps apart rather than together.
}

// Clone returns a copy of c that shares no slice with it; the Match maps are
// shared, since nothing writes to them.
func (c Constraints) Clone() Constraints {
	c.Selector = slices.Clone(c.Selector)
	for i := range c.Selector {
		c.Selector[i].Values = slices.Clone(c.Selector[i].Values)
	}
	c.Tolerations = slices.Clone(c.Tolerations)
	c.Affinity = slices.Clone(c.Affinity)
	return c
}

func (c *Constraints) validate(errs *[]error, at string) {
	bad := func(field string, value any, reason string) {
		*errs = append(*errs, invalid("gang", at+"."+field, fmt.Sprint(value), reason))
	}
	for i := range c.Selector {
		r, field := &c.Selector[i], "Selector["+strconv.Itoa(i)+"]"
		if r.Key == "" {
			bad(field+".Key", quote(""), "must not be empty")
		}
		switch r.Operator {
		case In, NotIn:
			if len(r.Values) == 0 {
				bad(field+".Values", "[]", "want at least one")
			}
		case Exists, DoesNotExist:
			if len(r.Values) != 0 {
				bad(field+".Values", r.Values, "want none")
			}
		default:
			bad(field+".Operator", quote(string(r.Operator)), "want In, NotIn, Exists or DoesNotExist")
		}
	}
	for i, t := range c.Tolerations {
		if t.Key == "" && t.Value != "" {
			bad("Tolerations["+strconv.Itoa(i)+"].Key", quote(""), "a value needs a key")
		}
	}
	for i := range c.Affinity {
		if len(c.Affinity[i].Match) == 0 {
			bad("Affinity["+strconv.Itoa(i)+"].Match", "{}", "want at least one label")
		}
	}
}
