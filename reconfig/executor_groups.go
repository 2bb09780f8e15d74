package reconfig

import (
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// TieGroup is the kind of a communicator between the first and the last stage of a
// replica, which sum the gradient of a tied embedding: one for each slice of it.
const TieGroup GroupKind = "tie"

// Regrouping says what becomes of communicators. Every member goes through the lists
// in their order, so that collective calls meet.
type Regrouping struct {
	Destroy []Group `json:"destroy,omitempty"` // Destroy are those of the old plan that are given up, in the order of the old plan.
	Keep    []Group `json:"keep,omitempty"`    // Keep are those of the new plan that have the members of an old one of their kind, in its rank order, and go on with it.
	Build   []Group `json:"build,omitempty"`   // Build are the others of the new plan, in the order of the new plan.
}

// Regroup compares the communicators of two plans, with those of a tied embedding. old
// is nil for none. A communicator is its kind and its members in rank order: what
// layers and slices it is used for may change without building it anew.
func Regroup(job Job, old, to *Plan) Regrouping {
	var out Regrouping
	var before []Group
	if old != nil {
		before = allGroups(job, old)
	}
	left := make(map[string][]int, len(before)) // indices of before that are not taken yet
	for i, g := range before {
		k := g.key()
		left[k] = append(left[k], i)
	}
	kept := make([]bool, len(before))
	for _, g := range allGroups(job, to) {
		k := g.key()
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
func allGroups(job Job, p *Plan) []Group {
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
		n := lcm(len(first), len(last))
		for i := range n {
			out = append(out, Group{
				Kind: TieGroup, Slice: i, Slices: n,
				Devices: []lockstep.DeviceID{first[i*len(first)/n], last[i*len(last)/n]},
			})
		}
	}
	return out
}

// key returns what two groups have in common if one can serve for the other.
func (g Group) key() string {
	var e encoder
	e.str(string(g.Kind))
	e.ids(g.Devices)
	return string(e.buf)
}
