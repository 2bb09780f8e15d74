package view

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Fault says what is wrong with one object: Err.Field is the annotation, label or
// field, Err.Value what it says. errors.Is finds Err's kind: lockstep.ErrInvalid
// for what can never be right, ErrUnknown for what names something that is not
// there, ErrDuplicate for a rank that two pods have, ErrConflict for pods of one
// gang that contradict each other.
type Fault struct {
	Kind      string          // Kind is that of the object: "Pod", "PodGroup", "Node" or "ConfigMap".
	Namespace string          // Namespace is the object's; "" for nodes.
	Name      string          // Name is the object's.
	UID       types.UID       // UID is the object's.
	Err       *lockstep.Error // Err says what is wrong; never nil.
}

// Error returns the text of f on one line.
func (f *Fault) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f *Fault) Unwrap() error { return f.Err }

// object is what faults name.
type object struct {
	kind, namespace, name string
	uid                   types.UID
}

func (o object) fault(kind error, key, value, reason string) *Fault {
	op := "view: " + o.kind + " "
	if o.namespace != "" {
		op += o.namespace + "/"
	}
	return &Fault{
		Kind: o.kind, Namespace: o.namespace, Name: o.name, UID: o.uid,
		Err: &lockstep.Error{Kind: kind, Op: op + o.name, Field: key, Value: errtext.Quote(value), Reason: reason},
	}
}
