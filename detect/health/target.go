package health

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// target is a device, or a node itself. Times are instants, never where there is
// none.
type target struct {
	node   *node
	device lockstep.DeviceID // "" for the node itself

	state State
	since int64  // when it began
	prior State  // what it was before its observer failed, "" where nobody vouched for it yet
	need  Action // what is to be done to it while it is Draining or Quarantined
	level int    // how many relapses its dwell doubles for
	pin   *pin   // the latest Override, nil before the first

	bad     int64 // when there was evidence last
	seen    int64 // when an observer saw it last
	source  string
	blind   int64 // when its observer failed
	drained int64 // when its work was gone
	asked   int64 // when it was closed for what it is to be drained or repaired for
	fixed   int64 // when it was repaired
	left    int64 // when it recovered last
	booted  int64 // of a node itself: when its boot began
	ends    []int64

	relapses  []relapse
	passes    []pass     // by name
	incidents []incident // by code

	counted  bool // it counts in node.closed
	capped   bool // it is in domain.capped
	deadline int64
	touched  bool
	gravest  int // of settle
}

// pin is an override: who holds a target in a state, "" for nobody any more.
type pin struct {
	state    State
	by, note string
	at       int64
}

// compare orders overrides by time; of two of one time that of the higher state counts.
func (p pin) compare(o pin) int {
	return cmp.Or(cmp.Compare(p.at, o.at), cmp.Compare(p.state.rank(), o.state.rank()), cmp.Compare(p.by, o.by), cmp.Compare(p.note, o.note))
}

// pinned reports whether somebody holds t in its state.
func (t *target) pinned() bool { return t.pin != nil && t.pin.state != "" }

// relapse is a time at which a target that had recovered fell ill again.
type relapse struct {
	at    int64
	code  Code
	grave bool // it asked for a cordon at the least
}

// pass is when a probe passed last.
type pass struct {
	probe Code
	at    int64
}

func newTarget(now int64) *target {
	return &target{
		state: Unknown, since: now, need: ActionNone, deadline: forever,
		bad: never, seen: never, blind: never, drained: never, asked: never, fixed: never, left: never, booted: never,
	}
}

// compare orders targets by name.
func (t *target) compare(o *target) int {
	return cmp.Or(cmp.Compare(t.node.id, o.node.id), cmp.Compare(t.device, o.device))
}

// worst returns the gravest incident that stands, by code where several are, nil
// where none does.
func (t *target) worst() *incident {
	var out *incident
	for k := range t.incidents {
		if i := &t.incidents[k]; i.active && (out == nil || i.action.rank() > out.action.rank()) {
			out = i
		}
	}
	return out
}

// rank returns how grave i is; nil is nothing.
func (i *incident) rank() int {
	if i == nil {
		return 0
	}
	return i.action.rank()
}

// lasts reports whether a level that stands is beyond its limit still.
func (t *target) lasts() bool {
	return slices.ContainsFunc(t.incidents, func(i incident) bool { return i.active && i.lasts })
}

// passed takes in that a probe passed.
func (t *target) passed(probe Code, of int64) {
	k, ok := slices.BinarySearchFunc(t.passes, probe, func(p pass, c Code) int { return cmp.Compare(p.probe, c) })
	if ok {
		t.passes[k].at = max(t.passes[k].at, of)
		return
	}
	t.passes = slices.Insert(t.passes, k, pass{probe, of})
	if len(t.passes) > most { // forget the oldest
		k := 0
		for j := range t.passes {
			if t.passes[j].at < t.passes[k].at {
				k = j
			}
		}
		t.passes = slices.Delete(t.passes, k, k+1)
	}
}

// probe returns the name of the probe that must pass before i is forgiven, "" for
// any.
func (i *incident) probe() Code {
	switch {
	case i.entry.Probe != "":
		return i.entry.Probe
	case i.code != codeProbe && i.code.under(codeProbe):
		return i.code[len(codeProbe)+1:]
	}
	return ""
}

// cleared reports whether all that has to pass passed later than the evidence, and
// something at all no earlier than since.
func (t *target) cleared(since int64) bool {
	for k := range t.incidents {
		i := &t.incidents[k]
		if !i.owed {
			continue
		}
		name := i.probe()
		if !slices.ContainsFunc(t.passes, func(p pass) bool { return (name == "" || p.probe == name) && p.at > i.at }) {
			return false
		}
	}
	return slices.ContainsFunc(t.passes, func(p pass) bool { return p.at > t.bad && p.at >= since })
}

// settleDown lets go of what stands and does not last, and of what was owed where
// all is forgiven.
func (t *target) settleDown(forgive bool) {
	for k := range t.incidents {
		i := &t.incidents[k]
		if i.active && !i.lasts {
			i.active, i.sticky = false, false
		}
		if forgive {
			i.owed = false
		}
	}
}
