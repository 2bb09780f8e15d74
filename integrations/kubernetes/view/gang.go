package view

import (
	"cmp"
	"maps"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// gang makes what is to be submitted, of which nothing is missing.
func (d *draft) gang() *lockstep.Gang {
	v := &d.values
	g := &lockstep.Gang{
		ID: d.team.id, Tenant: lockstep.TenantID(cmp.Or(v[keyTenant].text, d.team.space)), Queue: lockstep.QueueID(v[keyQueue].text),
		Required: lockstep.Level(v[keyRequired].text), Preferred: lockstep.Level(v[keyPreferred].text),
		Preemption: lockstep.Preemption(v[keyPreemption].text), Strategy: lockstep.Strategy(v[keyStrategy].text), Canary: int(v[keyCanary].n),
		Walltime: time.Duration(v[keyWalltime].n), Hold: time.Duration(v[keyHold].n), Labels: d.labels(),
		Priority: lockstep.Priority(v[keyPriority].n),
	}
	g.Capabilities = lockstep.Capabilities{
		Preemptible: !v[keyPreemptible].set || v[keyPreemptible].n != 0,
		Resizable:   v[keyResizable].n != 0, Replaceable: v[keyReplaceable].n != 0,
		Save: time.Duration(v[keySave].n), Restore: time.Duration(v[keyRestore].n), Grace: time.Duration(v[keyGrace].n),
	}
	d.defaults(g)
	for _, r := range d.roles {
		out := lockstep.Role{
			Name: r.name, Min: r.least, Demand: r.spec.demand, Constraints: r.spec.constraints, Spares: int(r.values[keySpares].n),
			Inner: lockstep.Inner{Size: int(r.values[keyInnerSize].n), Level: lockstep.Level(r.values[keyInnerLevel].text)},
		}
		most := int(r.values[keyRoleMax].n)
		if most == 0 && len(d.roles) == 1 {
			most = int(v[keyMaxMember].n)
		}
		out.Max = len(r.pods)
		if most != 0 {
			out.Max = min(out.Max, most)
		}
		if out.Inner.Size > 1 {
			out.Max -= out.Max % out.Inner.Size
		}
		if out.Max = max(out.Max, out.Min); most != 0 && most < out.Min {
			out.Max = most // for the library to refuse
		}
		g.Roles = append(g.Roles, out)
	}
	return g
}

// defaults fills in what the pods say in fields of their own, where no annotation
// said it: the highest priority, the longest warning, the longest time.
func (d *draft) defaults(g *lockstep.Gang) {
	first, never := true, true
	for _, r := range d.roles {
		for _, p := range r.pods {
			s := p.spec
			if !d.values[keyPriority].set && (first || lockstep.Priority(s.priority) > g.Priority) {
				g.Priority = lockstep.Priority(s.priority)
			}
			if !d.values[keyGrace].set {
				g.Capabilities.Grace = max(g.Capabilities.Grace, time.Duration(s.grace))
			}
			if !d.values[keyWalltime].set {
				g.Walltime = max(g.Walltime, time.Duration(s.walltime))
			}
			never = never && s.never
			first = false
		}
	}
	switch {
	case d.values[keyPreemption].set && g.Preemption == "lower":
		g.Preemption = lockstep.PreemptLower
	case !d.values[keyPreemption].set && never:
		g.Preemption = lockstep.PreemptNever
	}
	if g.Strategy == "pack" {
		g.Strategy = lockstep.Pack
	}
}

// labels returns those that all pods have alike, and the namespace.
func (d *draft) labels() map[string]string {
	var out map[string]string
	var last *spec
	for _, r := range d.roles {
		for _, p := range r.pods {
			switch {
			case p.spec == last:
			case out == nil:
				out = maps.Clone(p.spec.labels)
				if out == nil {
					out = make(map[string]string, 1)
				}
			default:
				maps.DeleteFunc(out, func(k, v string) bool { w, ok := p.spec.labels[k]; return !ok || w != v })
			}
			last = p.spec
		}
	}
	if out == nil {
		out = make(map[string]string, 1)
	}
	out[namespaceLabel] = d.team.space
	return out
}
