package view

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-gpu/lockstep"
)

// Labels that nodes and gangs get beside their own, so that constraints can name them.
const (
	nodeNameLabel  = Prefix + "node-name"
	namespaceLabel = Prefix + "namespace"
)

// noValue stands for the empty value of a taint: a toleration with an empty value
// would tolerate all of them. No taint has it, since values end in letters or digits.
const noValue = "-"

// taint returns what keeps members off a node, as a key with its effect; false for
// effects that do not.
func taint(t *corev1.Taint) (lockstep.Taint, bool) {
	if t.Effect != corev1.TaintEffectNoSchedule && t.Effect != corev1.TaintEffectNoExecute {
		return lockstep.Taint{}, false
	}
	return lockstep.Taint{Key: t.Key + ":" + string(t.Effect), Value: or(t.Value, noValue)}, true
}

// tolerations returns those of p. One of every key but one effect only, and those that
// compare numbers, are left out: they tolerate nothing here.
func tolerations(p *corev1.Pod) (out []lockstep.Toleration) {
	for i := range p.Spec.Tolerations {
		t := &p.Spec.Tolerations[i]
		var value string
		switch t.Operator {
		case corev1.TolerationOpExists:
		case corev1.TolerationOpEqual, "":
			value = or(t.Value, noValue)
		default:
			continue
		}
		switch {
		case t.Key == "" && t.Effect == "":
			out = append(out, lockstep.Toleration{})
		case t.Key == "":
		case t.Effect == "":
			out = append(out,
				lockstep.Toleration{Key: t.Key + ":" + string(corev1.TaintEffectNoExecute), Value: value},
				lockstep.Toleration{Key: t.Key + ":" + string(corev1.TaintEffectNoSchedule), Value: value})
		case t.Effect == corev1.TaintEffectPreferNoSchedule:
		default:
			out = append(out, lockstep.Toleration{Key: t.Key + ":" + string(t.Effect), Value: value})
		}
	}
	return out
}

// constraints turns what p says about nodes and other pods into the library's terms.
func (c *Config) constraints(o object, p *corev1.Pod, s *spec) *Fault {
	out := &s.constraints
	for key, v := range p.Spec.NodeSelector { // sorted below
		out.Selector = append(out.Selector, lockstep.Requirement{Key: key, Operator: lockstep.In, Values: []string{v}})
	}
	slices.SortFunc(out.Selector, func(a, b lockstep.Requirement) int { return compareText(a.Key, b.Key) })
	out.Tolerations = tolerations(p)
	for i := range p.Spec.TopologySpreadConstraints {
		if t := &p.Spec.TopologySpreadConstraints[i]; t.WhenUnsatisfiable == corev1.DoNotSchedule {
			return o.fault(lockstep.ErrInvalid, "spec.topologySpreadConstraints", t.TopologyKey, "spreading is not enforced; use ScheduleAnyway, or the annotation strategy")
		}
	}
	a := p.Spec.Affinity
	if a == nil {
		return nil
	}
	if a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		reqs, field, reason := nodeTerms(terms)
		if reason != "" {
			return o.fault(lockstep.ErrInvalid, "spec.affinity.nodeAffinity", field, reason)
		}
		out.Selector = append(out.Selector, reqs...)
	}
	if a.PodAffinity != nil {
		if f := c.affinity(o, p, s, a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution, false); f != nil {
			return f
		}
	}
	if a.PodAntiAffinity != nil {
		return c.affinity(o, p, s, a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, true)
	}
	return nil
}

// nodeTerms returns what one of the terms asks for. Several terms are alternatives,
// which can be said only where each names values of one and the same label.
func nodeTerms(terms []corev1.NodeSelectorTerm) (reqs []lockstep.Requirement, field, reason string) {
	for i := range terms {
		one, field, reason := nodeTerm(&terms[i])
		if reason != "" {
			return nil, field, reason
		}
		switch {
		case i == 0:
			reqs = one
		case len(one) != 1 || len(reqs) != 1 || one[0].Key != reqs[0].Key || one[0].Operator != lockstep.In || reqs[0].Operator != lockstep.In:
			return nil, "nodeSelectorTerms", "alternatives must be values of one label"
		default:
			reqs[0].Values = append(reqs[0].Values, one[0].Values...)
		}
	}
	return reqs, "", ""
}

func nodeTerm(t *corev1.NodeSelectorTerm) (reqs []lockstep.Requirement, field, reason string) {
	for i := range t.MatchExpressions {
		e := &t.MatchExpressions[i]
		switch e.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			reqs = append(reqs, lockstep.Requirement{Key: e.Key, Operator: lockstep.Operator(e.Operator), Values: slices.Clone(e.Values)})
		default:
			return nil, e.Key, "labels are not compared as numbers"
		}
	}
	for i := range t.MatchFields {
		e := &t.MatchFields[i]
		if e.Key != metav1.ObjectNameField || e.Operator != corev1.NodeSelectorOpIn && e.Operator != corev1.NodeSelectorOpNotIn {
			return nil, e.Key, "want metadata.name with In or NotIn"
		}
		reqs = append(reqs, lockstep.Requirement{Key: nodeNameLabel, Operator: lockstep.Operator(e.Operator), Values: slices.Clone(e.Values)})
	}
	if len(reqs) == 0 {
		return nil, "nodeSelectorTerms", "a term without conditions matches no node"
	}
	return reqs, "", ""
}

// affinity turns terms about other pods into affinity to gangs: pods are told by
// labels that all pods of a gang have alike.
func (c *Config) affinity(o object, p *corev1.Pod, s *spec, terms []corev1.PodAffinityTerm, anti bool) *Fault {
	field := "spec.affinity.podAffinity"
	if anti {
		field = "spec.affinity.podAntiAffinity"
	}
	for i := range terms {
		t := &terms[i]
		level, ok := c.Level(t.TopologyKey)
		if !ok {
			return o.fault(lockstep.ErrUnknown, field, t.TopologyKey, "want "+c.levels())
		}
		match, reason := equalLabels(t)
		switch {
		case reason != "":
			return o.fault(lockstep.ErrInvalid, field, t.TopologyKey, reason)
		case anti && matches(p.Labels, match):
			return o.fault(lockstep.ErrInvalid, field, t.TopologyKey, "members of one gang cannot be kept apart; use the annotation strategy")
		}
		namespace := p.Namespace
		if len(t.Namespaces) == 1 {
			namespace = t.Namespaces[0]
		}
		match[namespaceLabel] = namespace
		s.constraints.Affinity = append(s.constraints.Affinity, lockstep.Affinity{Match: match, Level: level, Anti: anti})
	}
	return nil
}

// wantEqual is why other selectors of pods are refused.
const wantEqual = "want labels that are equal, in one namespace"

// equalLabels returns the labels that a term asks to be equal, if it asks for nothing else.
func equalLabels(t *corev1.PodAffinityTerm) (match map[string]string, reason string) {
	if t.LabelSelector == nil || t.NamespaceSelector != nil || len(t.Namespaces) > 1 || len(t.MatchLabelKeys)+len(t.MismatchLabelKeys) > 0 {
		return nil, wantEqual
	}
	match = make(map[string]string, len(t.LabelSelector.MatchLabels)+1)
	for k, v := range t.LabelSelector.MatchLabels { // copied
		match[k] = v
	}
	for i := range t.LabelSelector.MatchExpressions {
		e := &t.LabelSelector.MatchExpressions[i]
		if e.Operator != metav1.LabelSelectorOpIn || len(e.Values) != 1 {
			return nil, wantEqual
		}
		match[e.Key] = e.Values[0]
	}
	return match, ""
}

func matches(labels, match map[string]string) bool {
	for k, v := range match { // all must hold
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}
