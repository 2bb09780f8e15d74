package moves

import (
	"slices"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// TieGroup is the kind of a communicator between the first and the last stage of a
// replica, which sum the gradient of a tied embedding: one for each slice of it.
const TieGroup reconfig.GroupKind = "tie"

// Regrouping says what becomes of communicators. Every member goes through the lists
// in their order, so that collective calls meet.
type Regrouping struct {
	Destroy []reconfig.Group `json:"destroy,omitempty"` // Destroy are those of the old plan that are given up, in the order of the old plan.
	Keep    []reconfig.Group `json:"keep,omitempty"`    // Keep are those of the new plan that have the members of an old one of their kind, in its rank order, and go on with it.
	Build   []reconfig.Group `json:"build,omitempty"`   // Build are the others of the new plan, in the order of the new plan.
}

// Regroup compares the communicators of two plans, with those of a tied embedding. A
// plan that is nil has none. A communicator is its kind and its members in rank order: what
// layers and slices it is used for may change without building it anew.
func Regroup(job reconfig.Job, old, to *reconfig.Plan) Regrouping {
	var out Regrouping
	before := allGroups(job, old)
	left := make(map[string][]int, len(before)) // indices of before that are not taken yet
	for i, g := range before {
		k := key(g)
		left[k] = append(left[k], i)
	}
	kept := make([]bool, len(before))
	for _, g := range allGroups(job, to) {
		k := key(g)
		if free := left[k]; len(free) > 0 {
			kept[free[0]] = true
			left[k] = free[1:]
			out.Keep = append(out.Keep, g)
			continue
		}
		out.Build = append(out.Build, g)
	}
	for i, g := range before {
		if !kept[i] {
			out.Destroy = append(out.Destroy, g)
		}
	}
	return out
}

// allGroups returns the groups of a plan and those of a tied embedding behind them.
func allGroups(job reconfig.Job, p *reconfig.Plan) []reconfig.Group {
	if p == nil {
		return nil
	}
	out := slices.Clone(p.Groups)
	if !job.Model.Tied {
		return out
	}
	for _, r := range p.Replicas {
		if len(r.Stages) < 2 {
			continue
		}
		first, last := r.Stages[0].Devices, r.Stages[len(r.Stages)-1].Devices
		if len(first) == 0 || len(last) == 0 {
			continue
		}
		n := len(first) / gcd(len(first), len(last)) * len(last)
		for i := range n {
			out = append(out, reconfig.Group{
				Kind: TieGroup, Slice: i, Slices: n,
				Devices: []lockstep.DeviceID{first[i*len(first)/n], last[i*len(last)/n]},
			})
		}
	}
	return out
}

// key returns what two groups have in common if one can serve for the other.
func key(g reconfig.Group) string {
	var e encoder
	e.str(string(g.Kind))
	for _, id := range g.Devices {
		e.str(string(id))
	}
	return string(e.buf)
}

// gcd returns the greatest common divisor of numbers above 0.
func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
