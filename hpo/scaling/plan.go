package scaling

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Role says which axes of a parameter are widths.
type Role string

// The roles.
const (
	Input  Role = "input"  // from outside to a width: embedding, first layer; In stays, Out is a width
	Vector Role = "vector" // a bias or a gain of a norm: Out is a width, In is 0
	Hidden Role = "hidden" // from width to width
	Output Role = "output" // from a width to outside: readout, head; In is a width, Out stays
	Scalar Role = "scalar" // no axis is a width
)

// maxAxis bounds axes and ratios.
const maxAxis = 1 << 40

// Param is one parameter of the target.
type Param struct {
	Name   string `json:"name"`             // unique
	Role   Role   `json:"role"`             // what its axes are
	In     int64  `json:"in,omitempty"`     // fan-in of the target, of a convolution all input channels; 0 for a Vector and where there is none
	Out    int64  `json:"out,omitempty"`    // fan-out of the target, of a convolution all output channels
	Groups int64  `json:"groups,omitempty"` // groups of a convolution, which must divide the scaled widths; 0 means 1
	Heads  int64  `json:"heads,omitempty"`  // heads that a width is cut into, which keep their number; 0 means 1
	Widths int    `json:"widths,omitempty"` // how many of its axes are widths, if given; refused when it is not what Role says
	Tied   bool   `json:"tied,omitempty"`   // one tensor is input and output at once; refused, since no rule suits both
}

// Multipliers are factors for one family of optimizers.
type Multipliers struct {
	LR        float64 `json:"lr"`        // of the learning rate
	Coupled   float64 `json:"coupled"`   // of a weight decay that is multiplied by the learning rate
	Decoupled float64 `json:"decoupled"` // of one that is not; always 1
}

// Rule says what to do with one parameter of the surrogate.
type Rule struct {
	Param                       // the target's
	SurrogateIn     int64       `json:"surrogateIn,omitempty"`     // fan-in of the surrogate
	SurrogateOut    int64       `json:"surrogateOut,omitempty"`    // fan-out of the surrogate
	SurrogateGroups int64       `json:"surrogateGroups,omitempty"` // groups of the surrogate
	InitStd         float64     `json:"initStd"`                   // factor of the target's standard deviation at the start
	InitZero        bool        `json:"initZero"`                  // better: start at zero
	Forward         float64     `json:"forward"`                   // factor of what the layer puts out
	Adam            Multipliers `json:"adam"`                      // for Adam, AdamW and their like, whose step does not depend on the gradient's size
	SGD             Multipliers `json:"sgd"`                       // for SGD with or without momentum
}

// Plan says how to make the surrogate of a model.
type Plan struct {
	Ratio int64  `json:"ratio"` // target width over surrogate width
	Rules []Rule `json:"rules"` // one for each parameter, in their order
}

// Compat says whose rules to follow where they differ.
type Compat string

// The compatibilities.
const (
	CompatNone  Compat = ""      // maximal update parametrization as published
	CompatHydro Compat = "hydro" // as Hydro's code of 2023, for comparison with it only
)

// Options are choices of a plan. The zero value is valid.
type Options struct {
	MinWidth int64  // no width of the surrogate is below; 0 means 32; at least 2
	Multiple int64  // surrogate widths are multiples of this, as matrix units like it; 0 means 1
	Compat   Compat // whose rules to follow
}

// New returns the plan for a surrogate whose widths are the target's divided by ratio.
func New(params []Param, ratio int64, o Options) (Plan, error) {
	o = o.withDefaults()
	if err := o.validate("new"); err != nil {
		return Plan{}, err
	}
	if ratio < 1 || ratio > maxAxis {
		return Plan{}, fault(lockstep.ErrInvalid, "new", "ratio", strconv.FormatInt(ratio, 10), "must lie between 1 and 2^40")
	}
	plan := Plan{Ratio: ratio, Rules: make([]Rule, len(params))}
	seen := make(map[string]bool, len(params))
	var errs []error
	for i, p := range params {
		field := "params[" + strconv.Itoa(i) + "]"
		if seen[p.Name] {
			errs = append(errs, fault(lockstep.ErrDuplicate, "new", field+".Name", errtext.Quote(p.Name), "stands twice"))
		}
		seen[p.Name] = true
		rule, err := ruleFor(field, p, ratio, o)
		errs = append(errs, err)
		plan.Rules[i] = rule
	}
	if err := errors.Join(errs...); err != nil {
		return Plan{}, err
	}
	return plan, nil
}

// AttentionScale returns what to multiply attention logits by on the surrogate, instead of one over the root of its
// head dimension.
func AttentionScale(targetHead, surrogateHead int64) (float64, error) {
	for _, f := range []struct {
		field string
		value int64
	}{{"targetHead", targetHead}, {"surrogateHead", surrogateHead}} {
		if f.value < 1 || f.value > maxAxis {
			return 0, fault(lockstep.ErrInvalid, "attention scale", f.field, strconv.FormatInt(f.value, 10), "must be at least 1")
		}
	}
	return math.Sqrt(float64(targetHead)) / float64(surrogateHead), nil
}

// Between returns the rule for one parameter whose surrogate has a shape of its own, as when widths have different
// ratios. Axes that are no widths must be equal.
func Between(p Param, surrogateIn, surrogateOut int64, compat Compat) (Rule, error) {
	const op = "between"
	if err := p.validate(op, "p"); err != nil {
		return Rule{}, err
	}
	if err := compat.validate(op); err != nil {
		return Rule{}, err
	}
	in, out := p.Role.widths()
	for _, f := range []struct {
		field             string
		width             bool
		target, surrogate int64
	}{{"surrogateIn", in, p.In, surrogateIn}, {"surrogateOut", out, p.Out, surrogateOut}} {
		switch {
		case !f.width && f.target != f.surrogate:
			return Rule{}, fault(lockstep.ErrInvalid, op, f.field, strconv.FormatInt(f.surrogate, 10), "is no width and must be as on the target")
		case f.width && (f.surrogate < 1 || f.surrogate > maxAxis):
			return Rule{}, fault(lockstep.ErrInvalid, op, f.field, strconv.FormatInt(f.surrogate, 10), "must be at least 1")
		}
	}
	return p.rule(surrogateIn, surrogateOut, p.Groups, compat), nil
}

// ruleFor divides the widths of p by ratio and returns its rule.
func ruleFor(field string, p Param, ratio int64, o Options) (Rule, error) {
	const op = "new"
	if err := p.validate(op, field); err != nil {
		return Rule{}, err
	}
	in, out, groups := p.In, p.Out, p.Groups
	var errs []error
	inWidth, outWidth := p.Role.widths()
	if inWidth {
		in = p.In / ratio
		errs = append(errs, p.narrow(field+".In", p.In, ratio, o))
	}
	if outWidth {
		out = p.Out / ratio
		errs = append(errs, p.narrow(field+".Out", p.Out, ratio, o))
	}
	if groups > 1 && (inWidth || outWidth) {
		groups = p.Groups / ratio
		if p.Groups%ratio != 0 {
			errs = append(errs, fault(lockstep.ErrInvalid, op, field+".Groups", strconv.FormatInt(p.Groups, 10),
				fmt.Sprint("is not a multiple of the ratio ", ratio)))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Rule{}, err
	}
	return p.rule(in, out, groups, o.Compat), nil
}

// narrow says whether a width may be divided by ratio.
func (p *Param) narrow(field string, width, ratio int64, o Options) error {
	bad := func(reason string) error {
		return fault(lockstep.ErrInvalid, "new", field, strconv.FormatInt(width, 10), reason)
	}
	scaled := width / ratio
	switch {
	case ratio == 1:
		return nil
	case width%ratio != 0:
		return bad(fmt.Sprint("is not a multiple of the ratio ", ratio))
	case scaled < o.MinWidth:
		return bad(fmt.Sprint("becomes ", scaled, ", below the least width ", o.MinWidth))
	case p.Heads > 1 && scaled%p.Heads != 0:
		return bad(fmt.Sprint("becomes ", scaled, ", which ", p.Heads, " heads do not divide"))
	case scaled%o.Multiple != 0:
		return bad(fmt.Sprint("becomes ", scaled, ", which is not a multiple of ", o.Multiple))
	}
	return nil
}

// rule returns the rule for p with these fans on the surrogate.
func (p Param) rule(in, out, groups int64, compat Compat) Rule {
	r := Rule{Param: p, SurrogateIn: in, SurrogateOut: out, SurrogateGroups: groups, InitStd: 1, Forward: 1}
	a, b := ratioOf(p.In, in)/ratioOf(p.Groups, groups), ratioOf(p.Out, out)
	adam, sgd := 1.0, 1.0
	switch p.Role {
	case Input:
		sgd = 1 / b
		if compat == CompatHydro {
			r.InitStd = math.Sqrt(b) // embeddings by the fan-in of their transpose
		}
	case Vector:
		sgd = 1 / b
	case Hidden:
		r.InitStd = math.Sqrt(a)
		adam, sgd = a, a/b
		if compat == CompatHydro {
			sgd = ratioOf(p.In, in)
		}
	case Output:
		r.InitZero = true
		r.Forward = a
		sgd = 1 / a
	}
	r.Adam = Multipliers{LR: adam, Coupled: 1 / adam, Decoupled: 1}
	r.SGD = Multipliers{LR: sgd, Coupled: 1 / sgd, Decoupled: 1}
	return r
}

// ratioOf returns target over surrogate, and 1 for an axis that is not there.
func ratioOf(target, surrogate int64) float64 {
	if target == 0 || surrogate == 0 {
		return 1
	}
	return float64(target) / float64(surrogate)
}

// widths says which axes of a role are widths.
func (r Role) widths() (in, out bool) {
	return r == Hidden || r == Output, r == Input || r == Vector || r == Hidden
}

// count returns how many axes of a role are widths.
func (r Role) count() int {
	switch r {
	case Hidden:
		return 2
	case Scalar:
		return 0
	default:
		return 1
	}
}

// validate says whether p is the parameter of some model.
func (p *Param) validate(op, field string) error {
	var errs []error
	bad := func(name, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, op, field+name, value, reason))
	}
	switch p.Role {
	case Input, Vector, Hidden, Output, Scalar:
	default:
		bad(".Role", errtext.Quote(string(p.Role)), "is no role")
		return errors.Join(errs...)
	}
	if p.Name == "" {
		bad(".Name", "", "must be given")
	}
	in, out := p.Role.widths()
	for _, f := range []struct {
		name   string
		value  int64
		needed bool
	}{{".In", p.In, in || p.Role == Input}, {".Out", p.Out, out || p.Role == Output}, {".Groups", p.Groups, false}, {".Heads", p.Heads, false}} {
		if f.value < 0 || f.value > maxAxis || (f.needed && f.value == 0) {
			bad(f.name, strconv.FormatInt(f.value, 10), "must be at least 1")
		}
	}
	if p.Role == Vector && p.In != 0 {
		bad(".In", strconv.FormatInt(p.In, 10), "a vector has no fan-in")
	}
	if count := p.Role.count(); p.Widths != 0 && p.Widths != count {
		bad(".Widths", strconv.Itoa(p.Widths), fmt.Sprint("parameters of role ", p.Role, " have ", count, ", and none has more than 2"))
	}
	if p.Tied {
		bad(".Tied", "true", "a tensor that is input and output has no rule; untie them, or give the output its own multiplier")
	}
	return errors.Join(errs...)
}

// withDefaults returns o with what its zeros mean.
func (o Options) withDefaults() Options {
	if o.MinWidth == 0 {
		o.MinWidth = 32
	}
	if o.Multiple == 0 {
		o.Multiple = 1
	}
	return o
}

// validate says whether o, with its defaults, can be.
func (o Options) validate(op string) error {
	var errs []error
	if o.MinWidth < 2 || o.MinWidth > maxAxis {
		errs = append(errs, fault(lockstep.ErrInvalid, op, "MinWidth", strconv.FormatInt(o.MinWidth, 10), "must be at least 2"))
	}
	if o.Multiple < 1 || o.Multiple > maxAxis {
		errs = append(errs, fault(lockstep.ErrInvalid, op, "Multiple", strconv.FormatInt(o.Multiple, 10), "must be at least 1"))
	}
	return errors.Join(append(errs, o.Compat.validate(op))...)
}

// validate says whether c is known.
func (c Compat) validate(op string) error {
	if c == CompatNone || c == CompatHydro {
		return nil
	}
	return fault(lockstep.ErrInvalid, op, "Compat", errtext.Quote(string(c)), "is not known")
}

// fault builds an error of this package.
func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "scaling: " + op, Field: field, Value: value, Reason: reason}
}
