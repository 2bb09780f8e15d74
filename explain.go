package lockstep

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Reason is a stable code for why something was or was not done. Each package
// declares its own; the ones below are the words that several share.
type Reason string

// The reasons that more than one package gives.
const (
	ReasonCapacity    Reason = "capacity"    // ReasonCapacity: more than the whole cluster has; waiting will not help.
	ReasonBusy        Reason = "busy"        // ReasonBusy: enough exists, not enough of it is free.
	ReasonFragmented  Reason = "fragmented"  // ReasonFragmented: enough is free, but not in one domain of the level required.
	ReasonConstraint  Reason = "constraint"  // ReasonConstraint: too few nodes satisfy the selectors, taints and affinities.
	ReasonUnhealthy   Reason = "unhealthy"   // ReasonUnhealthy: too few nodes are healthy and open.
	ReasonQuota       Reason = "quota"       // ReasonQuota: the tenant or queue may not use so much now.
	ReasonReserved    Reason = "reserved"    // ReasonReserved: the free room is kept for others or for maintenance.
	ReasonUnsupported Reason = "unsupported" // ReasonUnsupported: the demand has a part that this package does not place.
)

// Explanation answers why a job was decided as it was. It shares no memory with
// the state it came from; its slices are sorted, so like states explain alike.
type Explanation struct {
	Job     JobID         `json:"job"`               // Job is what it is about.
	Verdict Verdict       `json:"verdict"`           // Verdict is the decision with its first binding limit.
	Counts  []ReasonCount `json:"counts,omitempty"`  // Counts say how many nodes fail for which reason first; most nodes first, then by reason and detail.
	Changes []Change      `json:"changes,omitempty"` // Changes are each, alone, enough to let the gang in; least first.
	Notes   []Note        `json:"notes,omitempty"`   // Notes are what other stages add, in the order of the stages.
}

// ReasonCount is how many nodes were passed over for a reason.
type ReasonCount struct {
	Reason Reason `json:"reason"`           // Reason is the first that ruled the nodes out.
	Detail string `json:"detail,omitempty"` // Detail tells causes of one reason apart, such as the taint or the resource.
	Nodes  int    `json:"nodes"`            // Nodes is how many.
}

// Change is something that would let a pending gang in if it were done.
type Change struct {
	Kind     ChangeKind   `json:"kind"`               // Kind is what would be done.
	Level    Level        `json:"level,omitempty"`    // Level is the level to relax to, or of the domain in which to free.
	Domain   string       `json:"domain,omitempty"`   // Domain is where.
	Resource ResourceName `json:"resource,omitempty"` // Resource is what to free or add.
	Amount   int64        `json:"amount,omitempty"`   // Amount is how much, in the resource's unit, or how many members.
	Nodes    []NodeID     `json:"nodes,omitempty"`    // Nodes are the ones to open or to free, sorted.
	Jobs     []JobID      `json:"jobs,omitempty"`     // Jobs are the ones to stop or to move, sorted.
}

// ChangeKind is a kind of Change.
type ChangeKind string

// The kinds of change that would let a gang in.
const (
	ChangeFree     ChangeKind = "free"     // ChangeFree: free Nodes, which others hold.
	ChangeRelax    ChangeKind = "relax"    // ChangeRelax: require Level rather than the level asked for; empty means none.
	ChangeShrink   ChangeKind = "shrink"   // ChangeShrink: ask for Amount members in all.
	ChangeOpen     ChangeKind = "open"     // ChangeOpen: uncordon or heal Nodes.
	ChangeTolerate ChangeKind = "tolerate" // ChangeTolerate: drop the gang's selectors, taints and affinities.
	ChangeAdd      ChangeKind = "add"      // ChangeAdd: add Amount of Resource to Domain.
	ChangeEvict    ChangeKind = "evict"    // ChangeEvict: stop Jobs, which are of lower priority and may be stopped.
	ChangeMove     ChangeKind = "move"     // ChangeMove: move Jobs to other places; nobody has to stop for good.
	ChangeWait     ChangeKind = "wait"     // ChangeWait: wait; room that is enough is already due to be given back.
)

// Note is a remark of one stage of the decision.
type Note struct {
	Stage  string `json:"stage"`            // Stage is the package or step, such as "quota".
	Reason Reason `json:"reason"`           // Reason is its code.
	Detail string `json:"detail,omitempty"` // Detail is for people; its text may change.
}

// String returns e in words: one line for the verdict, one for each count,
// change and note.
func (e Explanation) String() string {
	var b strings.Builder
	b.WriteString(string(e.Job) + ": " + e.Verdict.String())
	for _, c := range e.Counts {
		b.WriteString("\n  " + plural(int64(c.Nodes), "node") + ": " + string(c.Reason))
		if c.Detail != "" {
			b.WriteString(" (" + c.Detail + ")")
		}
	}
	for i := range e.Changes {
		b.WriteString("\n  would fit: " + e.Changes[i].String())
	}
	for _, n := range e.Notes {
		b.WriteString("\n  " + n.Stage + ": " + string(n.Reason))
		if n.Detail != "" {
			b.WriteString(" (" + n.Detail + ")")
		}
	}
	return b.String()
}

// String returns v in words.
func (v Verdict) String() string {
	var b strings.Builder
	if v.Feasible {
		b.WriteString("fits")
	} else {
		b.WriteString("does not fit")
		if v.Reason != "" {
			b.WriteString(": " + string(v.Reason))
		}
	}
	b.WriteString(", " + strconv.Itoa(v.Fit) + " of " + strconv.Itoa(v.Want) + " members")
	if v.Domain != "" {
		b.WriteString(" in " + place(v.Level, v.Domain))
	}
	if !v.Feasible && v.Resource != "" {
		b.WriteString(", " + string(v.Resource) + " asked " + formatAmount(v.Resource, v.Requested) + " free " + formatAmount(v.Resource, v.Available))
	}
	return b.String()
}

// String returns c in words.
func (c Change) String() string {
	where := place(c.Level, c.Domain)
	var list strings.Builder
	for _, id := range c.Nodes {
		list.WriteString(" " + string(id))
	}
	for _, id := range c.Jobs {
		list.WriteString(" " + string(id))
	}
	switch c.Kind {
	case ChangeFree:
		return "free" + list.String() + after(" in ", where)
	case ChangeRelax:
		if c.Level == "" {
			return "require no level"
		}
		return "require level " + string(c.Level)
	case ChangeShrink:
		return "ask for " + plural(c.Amount, "member")
	case ChangeOpen:
		return "open" + list.String()
	case ChangeTolerate:
		return "drop the constraints"
	case ChangeAdd:
		return "add " + formatAmount(c.Resource, c.Amount) + " " + string(c.Resource) + after(" to ", where)
	case ChangeEvict:
		return "stop" + list.String()
	case ChangeMove:
		return "move" + list.String() + after(" out of ", where)
	case ChangeWait:
		return "wait for room that is due back"
	}
	return string(c.Kind)
}

// plural returns "1 node", "2 nodes".
func plural(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.FormatInt(n, 10) + " " + noun
}

// after returns text with lead before it, and nothing where text is empty.
func after(lead, text string) string {
	if text == "" {
		return ""
	}
	return lead + text
}

// Sort puts Counts into their documented order, merging entries of one reason
// and detail. It reuses the memory of Counts; Changes and Notes keep the order
// that their maker gave them.
func (e *Explanation) Sort() {
	slices.SortFunc(e.Counts, func(a, b ReasonCount) int {
		if c := strings.Compare(string(a.Reason), string(b.Reason)); c != 0 {
			return c
		}
		return strings.Compare(a.Detail, b.Detail)
	})
	merged := e.Counts[:0]
	for _, c := range e.Counts {
		if n := len(merged); n > 0 && merged[n-1].Reason == c.Reason && merged[n-1].Detail == c.Detail {
			merged[n-1].Nodes += c.Nodes
			continue
		}
		merged = append(merged, c)
	}
	e.Counts = merged
	slices.SortStableFunc(e.Counts, func(a, b ReasonCount) int { return cmp.Compare(b.Nodes, a.Nodes) })
}

// place names a domain with its level before it, unless that says the same, as
// "cluster" does.
func place(level Level, domain string) string {
	if string(level) == domain {
		return domain
	}
	return strings.TrimSpace(string(level) + " " + domain)
}
