package lockstep

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep/internal/errtext"
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

// Matches reports whether r holds of labels. An operator that is none of the
// four holds of nothing. O(Values).
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

// Taint keeps off a node every member that does not tolerate it, as one with the
// effect NoSchedule does in Kubernetes; members already there stay.
type Taint struct {
	Key   string `json:"key"`             // Key names the taint.
	Value string `json:"value,omitempty"` // Value tells taints of one key apart; it may be empty.
}

// Toleration cancels the taints it matches. With an empty Value it is what
// Kubernetes calls the operator Exists, else what it calls Equal.
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

// IsZero reports whether c constrains nothing, which is when it is left out of
// JSON.
func (c Constraints) IsZero() bool {
	return len(c.Selector) == 0 && len(c.Tolerations) == 0 && len(c.Affinity) == 0
}

// Clone returns a copy of c that shares no memory with it.
func (c Constraints) Clone() Constraints {
	c.Selector = slices.Clone(c.Selector)
	for i := range c.Selector {
		c.Selector[i].Values = slices.Clone(c.Selector[i].Values)
	}
	c.Tolerations = slices.Clone(c.Tolerations)
	c.Affinity = slices.Clone(c.Affinity)
	for i := range c.Affinity {
		c.Affinity[i].Match = maps.Clone(c.Affinity[i].Match)
	}
	return c
}

// validate reports the faults of c, which is found at the path at.
func (c *Constraints) validate(f *faults, at string) {
	for i := range c.Selector {
		r, path := &c.Selector[i], at+".Selector["+strconv.Itoa(i)+"]"
		f.name(path+".Key", r.Key)
		switch r.Operator {
		case In, NotIn:
			if len(r.Values) == 0 {
				f.bad(path+".Values", "[]", "want at least one")
			}
			for j, v := range r.Values {
				f.labelValue(path+".Values["+strconv.Itoa(j)+"]", v)
			}
		case Exists, DoesNotExist:
			if len(r.Values) != 0 {
				f.bad(path+".Values", fmt.Sprintf("%q", r.Values), "want none")
			}
		default:
			f.bad(path+".Operator", errtext.Quote(string(r.Operator)), "want In, NotIn, Exists or DoesNotExist")
		}
	}
	for i, t := range c.Tolerations {
		path := at + ".Tolerations[" + strconv.Itoa(i) + "]"
		if t.Key == "" && t.Value != "" {
			f.bad(path+".Key", errtext.Quote(""), "a value needs a key")
		}
		f.nameOrEmpty(path+".Key", t.Key)
		f.labelValue(path+".Value", t.Value)
	}
	for i := range c.Affinity {
		a, path := &c.Affinity[i], at+".Affinity["+strconv.Itoa(i)+"]"
		if len(a.Match) == 0 {
			f.bad(path+".Match", "{}", "want at least one label")
		}
		f.labels(path+".Match", a.Match)
		f.nameOrEmpty(path+".Level", string(a.Level))
	}
}
