package view

import (
	"strconv"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/lockstep-gpu/lockstep"
)

// maxMessage is how many bytes of a message a condition gets; the server takes 32 KiB
// and people read less.
const maxMessage = 1024

// Message returns why a gang waits, in one line for an event: the same text as long
// as the cause is the same, whatever is free meanwhile, so that events deduplicate.
func Message(e *lockstep.Explanation) string {
	v := &e.Verdict
	var b strings.Builder
	b.WriteString("the gang needs " + strconv.Itoa(v.Want) + " members at once")
	if v.Feasible {
		b.WriteString(", and there is room; it waits for its turn")
		return b.String()
	}
	b.WriteString("; " + why(v.Reason))
	if v.Resource != "" {
		b.WriteString(", " + string(v.Resource) + " asked " + amount(v.Resource, v.Requested))
	}
	if v.Reason == lockstep.ReasonFragmented && v.Level != "" {
		b.WriteString(", in one domain of level " + string(v.Level))
	}
	for _, n := range e.Notes {
		if n.Reason != v.Reason && n.Reason != "" {
			b.WriteString("; " + n.Stage + ": " + string(n.Reason))
		}
	}
	return b.String()
}

// why says a reason in words; other packages' reasons are words themselves.
func why(r lockstep.Reason) string {
	switch r {
	case lockstep.ReasonCapacity:
		return "the cluster has too little, so waiting will not help"
	case lockstep.ReasonBusy:
		return "too little is free"
	case lockstep.ReasonFragmented:
		return "enough is free, but not close enough together"
	case lockstep.ReasonConstraint:
		return "too few nodes match its selectors, tolerations and affinity"
	case lockstep.ReasonUnhealthy:
		return "too few nodes are ready and open"
	case lockstep.ReasonQuota:
		return "its queue or tenant may not use so much now"
	case lockstep.ReasonReserved:
		return "what is free is kept for others"
	case lockstep.ReasonUnsupported:
		return "it asks for something that is not placed here"
	case "":
		return "it waits for its turn"
	}
	return string(r)
}

// amount writes an amount of a resource with its unit.
func amount(name lockstep.ResourceName, v int64) string {
	text := lockstep.Resources{name: v}.String()
	return text[strings.LastIndexByte(text, '=')+1:]
}

// Condition returns the condition of pods that wait because of e, or because of s
// itself where e is nil: PodScheduled is False, with the reason Unschedulable, or
// SchedulerError for a gang at fault, so that no autoscaler adds nodes for it. The
// message says more than Message does, and so changes more often: write it when the
// event changes, not whenever it does. Times are not set.
func Condition(s *State, e *lockstep.Explanation) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}
	switch {
	case s.Phase == Faulty:
		c.Reason, c.Message = corev1.PodReasonSchedulerError, s.Detail
	case e != nil:
		c.Message = Message(e) + "\n" + e.String()
	default:
		c.Message = s.Detail
	}
	c.Message = cut(c.Message)
	return c
}

// cut shortens text to maxMessage, between two runes.
func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	n := maxMessage - len("...")
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "..."
}
