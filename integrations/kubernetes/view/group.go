package view

import (
	"maps"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lockstep-gpu/lockstep"
)

// Group is what an object that stands for a gang says. What it says wins over what
// the gang's pods say.
type Group struct {
	Namespace   string            // Namespace is its namespace.
	Name        string            // Name is its name, which is the gang's.
	UID         types.UID         // UID is its UID.
	Annotations map[string]string // Annotations are its own; ours among them win over the fields below. They are read and not kept.
	Labels      map[string]string // Labels are its own. They are read and not kept.
	Min         int               // Min is the least members that it asks for; 0 means that it does not say.
	Roles       map[string]int    // Roles are the least members of each role; nil means that it does not say.
	Queue       string            // Queue is its queue; "" means that it does not say.
	Priority    *int32            // Priority is its priority; nil means that it does not say.
	Preemption  string            // Preemption is "lower" or "never"; "" means that it does not say.
	Required    string            // Required is a level or node label of which one domain must hold it; "" means that it does not say.
	Preferred   string            // Preferred is a level or node label of which one domain should hold it; "" means that it does not say.
}

// PodGroup returns what a PodGroup of Kubernetes says. One with the basic policy asks
// for one member: its pods start as they come. It shares the maps of g.
func PodGroup(g *schedulingv1beta1.PodGroup) Group {
	out := Group{
		Namespace: g.Namespace, Name: g.Name, UID: g.UID, Annotations: g.Annotations, Labels: g.Labels,
		Min: 1, Priority: g.Spec.Priority,
	}
	if gang := g.Spec.SchedulingPolicy.Gang; gang != nil {
		out.Min = int(gang.MinCount)
	}
	if p := g.Spec.PreemptionPolicy; p != nil && *p == schedulingv1beta1.PreemptNever {
		out.Preemption = string(lockstep.PreemptNever)
	}
	if c := g.Spec.SchedulingConstraints; c != nil {
		for i := range c.Topology {
			out.Required = c.Topology[i].Key
		}
	}
	return out
}

// group reads what g says.
func (c *Config) group(g Group) *group {
	out := &group{object: object{"PodGroup", g.Namespace, g.Name, g.UID}, roles: maps.Clone(g.Roles)}
	w := words{g.Annotations, g.Labels}
	for k := range keys {
		if rules[k].scope != ScopeGang {
			continue
		}
		v, f := c.say(out.object, w, k)
		if f != nil {
			out.fault = f
			return out
		}
		out.values[k] = v
	}
	out.fault = c.fields(out, g)
	return out
}

// fields reads the fields of g, where no annotation said it already.
func (c *Config) fields(out *group, g Group) *Fault {
	if g.Min != 0 {
		out.otherwise(keyMinMember, value{set: true, n: int64(g.Min)})
	}
	if g.Priority != nil {
		out.otherwise(keyPriority, value{set: true, n: int64(*g.Priority)})
	}
	for _, said := range [...]struct {
		key  key
		text string
	}{{keyQueue, g.Queue}, {keyPreemption, g.Preemption}, {keyRequired, g.Required}, {keyPreferred, g.Preferred}} {
		if said.text == "" {
			continue
		}
		v, reason := c.read(rules[said.key].form, said.text)
		if reason != "" {
			kind := lockstep.ErrInvalid
			if rules[said.key].form == formLevel {
				kind = lockstep.ErrUnknown
			}
			return out.object.fault(kind, "spec."+rules[said.key].name, said.text, reason)
		}
		out.otherwise(said.key, v)
	}
	return nil
}

func (g *group) otherwise(k key, v value) {
	if !g.values[k].set {
		g.values[k] = v
	}
}

func (g *group) err() error {
	if g.fault == nil {
		return nil
	}
	return g.fault
}

func (g *group) equal(o *group) bool {
	return g.object == o.object && g.values == o.values && maps.Equal(g.roles, o.roles) &&
		(g.fault == nil) == (o.fault == nil) && (g.fault == nil || *g.fault.Err == *o.fault.Err)
}
