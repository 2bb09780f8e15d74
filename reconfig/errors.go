package reconfig

import (
	"errors"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// ErrInfeasible is the kind of every *Infeasible: the input is sound, but no plan
// is possible, or the plan breaks a limit.
var ErrInfeasible = errors.New("infeasible")

// Level is the part of a plan that a limit is about.
type Level string

// The levels, from the narrowest.
const (
	TensorLevel   Level = "tensor"   // TensorLevel: the degree of a group and its devices.
	PipelineLevel Level = "pipeline" // PipelineLevel: the stages of a replica and their layers.
	DataLevel     Level = "data"     // DataLevel: replicas and their micro-batches.
	StateLevel    Level = "state"    // StateLevel: where parameters and optimizer state come from.
	SealLevel     Level = "seal"     // SealLevel: what the plan says of itself: version, groups, estimate, digest.
)

// Infeasible says what stands in the way of a plan. It wraps ErrInfeasible.
type Infeasible struct {
	Level   Level           // Level is where.
	Reason  lockstep.Reason // Reason is why.
	Witness Witness         // Witness is the evidence.
}

// The reasons of this package.
const (
	ReasonNoDevices  lockstep.Reason = "no-devices" // ReasonNoDevices: no device is live.
	ReasonTooFew     lockstep.Reason = "too-few"    // ReasonTooFew: the live devices form no pipeline that the constraints allow, or too few of them.
	ReasonMemory     lockstep.Reason = "memory"     // ReasonMemory: a device would need more than it has.
	ReasonDegree     lockstep.Reason = "degree"     // ReasonDegree: a group's size is not allowed, or does not divide heads, feed-forward width and vocabulary.
	ReasonSpread     lockstep.Reason = "spread"     // ReasonSpread: a group is on several nodes.
	ReasonDead       lockstep.Reason = "dead"       // ReasonDead: a device with a role is not live, or not there.
	ReasonTwice      lockstep.Reason = "twice"      // ReasonTwice: a device has two roles.
	ReasonLayers     lockstep.Reason = "layers"     // ReasonLayers: the layers of a replica are not each there once, in order.
	ReasonUniform    lockstep.Reason = "uniform"    // ReasonUniform: replicas differ, and Constraints.Uniform is set.
	ReasonStages     lockstep.Reason = "stages"     // ReasonStages: a replica has more, or other, stages than allowed.
	ReasonSplit      lockstep.Reason = "split"      // ReasonSplit: the micro-batches do not add up, or a schedule cannot take them.
	ReasonMigration  lockstep.Reason = "migration"  // ReasonMigration: a migration names what is not there, or is not allowed.
	ReasonCheckpoint lockstep.Reason = "checkpoint" // ReasonCheckpoint: a layer has no live holder, and NoCheckpoint is set.
	ReasonStandby    lockstep.Reason = "standby"    // ReasonStandby: the standbys are not the live devices without a role.
	ReasonGroups     lockstep.Reason = "groups"     // ReasonGroups: the communicators are not those of the layout.
	ReasonDigest     lockstep.Reason = "digest"     // ReasonDigest: the plan is not the one that its digest is of.
	ReasonEstimate   lockstep.Reason = "estimate"   // ReasonEstimate: the estimate is not what Evaluate says.
)

// Witness is the evidence that something is not possible. Fields that do not apply
// are zero, indices that do not apply -1.
type Witness struct {
	Replica int                 // Replica is an index in Plan.Replicas.
	Stage   int                 // Stage is an index in its Stages.
	Devices []lockstep.DeviceID // Devices are those concerned.
	Layers  Span                // Layers are those concerned.
	Need    int64               // Need is what would be wanted: bytes, devices or micro-batches.
	Have    int64               // Have is what there is of it.
}

// Error returns the text of e on one line; it may change.
func (e *Infeasible) Error() string {
	var b strings.Builder
	b.WriteString("reconfig: " + string(e.Level) + ": " + string(e.Reason))
	w := e.Witness
	if w.Replica >= 0 {
		b.WriteString(": replica " + text(w.Replica))
		if w.Stage >= 0 {
			b.WriteString(" stage " + text(w.Stage))
		}
	}
	if w.Layers.Layers > 0 {
		b.WriteString(": layers " + text(w.Layers.First) + " to " + text(w.Layers.End()-1))
	}
	if len(w.Devices) > 0 {
		b.WriteString(": device " + errtext.Quote(w.Devices[0]))
		if n := len(w.Devices) - 1; n > 0 {
			b.WriteString(" and " + text(n) + " more")
		}
	}
	if w.Need != 0 || w.Have != 0 {
		b.WriteString(": need " + strconv.FormatInt(w.Need, 10) + ", have " + strconv.FormatInt(w.Have, 10))
	}
	return b.String()
}

// Unwrap returns ErrInfeasible.
func (e *Infeasible) Unwrap() error { return ErrInfeasible }

// nowhere is a witness that names no replica and no stage.
func nowhere() Witness { return Witness{Replica: -1, Stage: -1} }

// faults collects what a validator finds, in the order in which it looks.
type faults struct {
	op   string
	errs []error
}

// err returns all faults joined, nil if there are none.
func (f *faults) err() error { return errors.Join(f.errs...) }

// bad notes an invalid field; value is what was given, as it is to be shown.
func (f *faults) bad(field, value, reason string) {
	f.add(lockstep.ErrInvalid, field, value, reason)
}

// add notes a fault of any kind.
func (f *faults) add(kind error, field, value, reason string) {
	f.errs = append(f.errs, &lockstep.Error{Kind: kind, Op: f.op, Field: field, Value: value, Reason: reason})
}

// within notes a number that is not lo to hi.
func (f *faults) within(field string, v, lo, hi int64) {
	if v < lo || v > hi {
		f.bad(field, strconv.FormatInt(v, 10), "want "+strconv.FormatInt(lo, 10)+" to "+strconv.FormatInt(hi, 10))
	}
}

// wrap notes what a validator of another package found, under a field of this one.
func (f *faults) wrap(field string, err error) {
	if err == nil {
		return
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range many.Unwrap() {
			f.wrap(field, one)
		}
		return
	}
	var e *lockstep.Error
	if errors.As(err, &e) {
		name := field
		if e.Field != "" {
			name += "." + e.Field
		}
		f.add(e.Kind, name, e.Value, e.Reason)
		return
	}
	f.errs = append(f.errs, err)
}

func text(n int) string { return strconv.Itoa(n) }
