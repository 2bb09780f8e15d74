package health

import (
	"cmp"
	"slices"

	"github.com/lockstep-gpu/lockstep"
)

// incident is all that is known about one code of one target.
type incident struct {
	code  Code
	entry *Entry

	bursts  []burst // the latest occurrences, at most most of them, in the order in which they came
	reboots []int64 // when it came back in spite of a reboot, in order
	at      int64   // when it was last evidence; never if it was not
	active  bool    // it stands against the target
	action  Action  // what it asks for while active
	sticky  bool    // it asks for that because it was repeated, which no Clear undoes
	owed    bool    // a probe has to pass later than at before it is forgiven

	held   int64  // since when it waits for what explains it; never if it does not
	source string // who reported it then

	reporters []reporter // of the last Hold, where it takes a quorum

	// Of signals.
	valued bool   // there is a value
	value  int64  // the latest
	read   int64  // when it was read
	boot   string // in which boot
	level  int64  // growth that has not leaked away
	filled int64  // as of when
	above  int64  // since when it is beyond its limit; never if it is not
	lasts  bool   // it is, for long enough
}

// burst is one occurrence of a code: reports with no long silence between them.
type burst struct {
	first, last int64 // by the observers' clocks
	at          int64 // when it was decided about first
	boot        string
	job         lockstep.JobID
	nothing     bool // something explains it
}

// reporter is who reported a code when.
type reporter struct {
	source string
	at     int64
}

// maxIncidents is how many codes of one target are remembered.
const maxIncidents = 256

// incident returns the incident of a code, which it makes where there is none.
func (t *target) incident(m *Machine, c Code) *incident {
	i, ok := t.search(c)
	if ok {
		return &t.incidents[i]
	}
	if len(t.incidents) >= maxIncidents {
		t.incidents = slices.Delete(t.incidents, t.least(), t.least()+1)
		i, _ = t.search(c)
	}
	t.incidents = slices.Insert(t.incidents, i, incident{code: c, entry: m.entry(c), at: never, held: never, above: never})
	return &t.incidents[i]
}

func (t *target) search(c Code) (int, bool) {
	return slices.BinarySearchFunc(t.incidents, c, func(i incident, c Code) int { return cmp.Compare(i.code, c) })
}

// least returns the index of the incident that is missed least: what stands comes
// last, then the graver, then the later.
func (t *target) least() int {
	weight := func(i *incident) int {
		if i.active || i.owed || i.held != never {
			return 1 + i.action.rank()
		}
		return -1
	}
	best := 0
	for k := range t.incidents {
		a, b := &t.incidents[k], &t.incidents[best]
		if cmp.Or(cmp.Compare(weight(a), weight(b)), cmp.Compare(a.at, b.at)) < 0 {
			best = k
		}
	}
	return best
}

// What a report is.
const (
	stale     = iota // known
	continued        // the present occurrence goes on
	fresh            // an occurrence begins
)

// note puts a report into a burst.
func (i *incident) note(cfg *Config, e *Event, of, at int64) int {
	oldest := 0
	for k := len(i.bursts) - 1; k >= 0; k-- {
		b := &i.bursts[k]
		if b.first < i.bursts[oldest].first {
			oldest = k
		}
		if b.boot != "" && e.Boot != "" && b.boot != e.Boot {
			continue
		}
		gap := int64(cfg.Coalesce)
		if b.nothing {
			gap = int64(cfg.Hold)
		}
		switch {
		case of >= b.first && of <= b.last:
			return stale
		case of > b.last && of-b.last < gap && (!b.nothing || of-b.first < int64(cfg.Coalesce)): // what was nothing is looked at anew
			b.last, b.boot = of, cmp.Or(b.boot, e.Boot)
			if b.nothing {
				return stale
			}
			return continued
		case of < b.first && b.first-of < gap:
			b.first = of
			return stale
		}
	}
	if len(i.bursts) == most {
		if of < i.bursts[oldest].first {
			return stale
		}
		i.bursts = slices.Delete(i.bursts, oldest, oldest+1)
	}
	i.bursts = append(i.bursts, burst{first: of, last: of, at: at, boot: e.Boot, job: e.Job})
	return fresh
}

// report takes in one report of i's code.
func (m *Machine) report(t *target, i *incident, e *Event, of, at int64) {
	if i.entry.Quorum > 1 && !i.quorum(e.Source, at, int64(m.cfg.Hold)) {
		return
	}
	rebooted := i.rebooted(e)
	what := i.note(&m.cfg, e, of, at)
	if what == stale {
		return
	}
	if what == fresh && rebooted {
		i.reboots = keep(i.reboots, at)
	}
	for _, c := range i.entry.Cancels {
		m.clear(t, c, of)
	}
	switch {
	case i.active, what == continued && i.held == never, !i.entry.waits() && i.code != codeLost:
		m.activate(t, i, at)
	case i.held == never:
		m.wait(i, e, at)
	}
}

// rebooted reports whether e is of another boot than the occurrence before it, of a
// code that a reboot should have helped against.
func (i *incident) rebooted(e *Event) bool {
	if len(i.bursts) == 0 || i.entry.Action.rank() < ActionReset.rank() {
		return false
	}
	before := i.bursts[len(i.bursts)-1].boot
	return before != "" && e.Boot != "" && before != e.Boot
}

// wait begins a hold.
func (m *Machine) wait(i *incident, e *Event, at int64) {
	i.held, i.source = at, e.Source
	key := crowd{i.code, string(e.Job)}
	if i.code == codeLost {
		key.by = e.Source
	}
	m.hits = append(m.hits, hit{at, key})
	m.crowd[key]++
}

// quorum reports whether enough sources reported it of late, this one included.
func (i *incident) quorum(source string, at, hold int64) bool {
	i.reporters = slices.DeleteFunc(i.reporters, func(r reporter) bool { return r.source == source || at-r.at > hold })
	i.reporters = append(i.reporters, reporter{source, at})
	if len(i.reporters) > most {
		i.reporters = slices.Delete(i.reporters, 0, 1)
	}
	return len(i.reporters) >= i.entry.Quorum
}

// activate makes i stand against t, from the instant at on.
func (m *Machine) activate(t *target, i *incident, at int64) {
	i.at = max(i.at, at)
	action, repeated := m.asks(i, i.at)
	if action == ActionNone {
		return
	}
	if i.active {
		action = worse(action, i.action)
	}
	i.active, i.action, i.owed = true, action, true
	i.sticky = i.sticky || repeated
	t.bad = max(t.bad, i.at)
}

// asks returns what i asks for, with its repetitions.
func (m *Machine) asks(i *incident, at int64) (a Action, repeated bool) {
	e := i.entry
	a = e.Action
	if limit := cmp.Or(e.Repeat, m.cfg.Repeat); limit > 0 && i.count(at-int64(m.cfg.RepeatWindow)) >= limit {
		a, repeated = worse(a, cmp.Or(e.Escalate, ActionInspect)), true
	}
	if limit := cmp.Or(e.Reboots, m.cfg.Reboots); limit > 0 {
		n := 0
		for _, r := range i.reboots {
			if r > at-int64(m.cfg.Relapse) {
				n++
			}
		}
		if n >= limit {
			a, repeated = ActionInspect, true
		}
	}
	return a, repeated
}

// count returns how many occurrences after a time were not nothing.
func (i *incident) count(after int64) int {
	n := 0
	for k := range i.bursts {
		b := &i.bursts[k]
		if b.nothing || b.at <= after {
			continue
		}
		if i.entry.PerJob && slices.ContainsFunc(i.bursts[:k], func(o burst) bool { return o.job == b.job && !o.nothing && o.at > after }) {
			continue
		}
		n++
	}
	return n
}

// clear ends what c stands for, as far as it is older than the time of.
func (m *Machine) clear(t *target, c Code, of int64) {
	for k, _ := t.search(c); k < len(t.incidents); k++ {
		i := &t.incidents[k]
		if !i.code.under(c) {
			if len(i.code) >= len(c) && i.code[:len(c)] == c {
				continue // such as xid/13-a, which stands between xid/13 and xid/13/a
			}
			break
		}
		if i.at >= of || i.held >= of {
			continue
		}
		i.held, i.above, i.lasts = never, never, false
		if i.active && !i.sticky {
			i.active = false
			t.bad = max(t.bad, of)
		}
	}
}

// repaired takes in that something was done at the time of against what was there
// before it and asks for no more; not against what is of the boot that began then.
func (m *Machine) repaired(t *target, done Action, boot string, of int64) {
	if t.state != Draining && t.state != Quarantined || of < t.asked || done.rank() < t.need.rank() {
		return
	}
	for k := range t.incidents {
		i := &t.incidents[k]
		since := boot != "" && len(i.bursts) > 0 && i.bursts[len(i.bursts)-1].boot == boot
		if i.active && !i.lasts && i.at < of && i.rank() <= done.rank() && !since {
			i.active, i.sticky = false, false
		}
	}
	t.fixed = max(t.fixed, of)
}

// expire takes in that a deadline of t has come.
func (m *Machine) expire(t *target, at int64) {
	for k := range t.incidents {
		i := &t.incidents[k]
		if i.held != never && at-i.held >= int64(m.cfg.Hold) {
			m.decide(t, i, at)
		}
		if i.above != never && !i.lasts && at-i.above >= int64(i.entry.For) {
			e := Event{Code: i.code, Boot: i.boot}
			m.lasting(t, i, &e, at, at)
		}
	}
	if t.state.Open() && t.seen != never && at-t.seen >= int64(m.cfg.Stale) {
		m.blind(t, at, reasonStale)
	}
}

// decide ends a hold: what was reported is nothing, or evidence of then.
func (m *Machine) decide(t *target, i *incident, at int64) {
	then, e := i.held, i.entry
	i.held = never
	var nothing bool
	if i.code == codeLost {
		n := m.crowd[crowd{codeLost, i.source}]
		nothing = n >= 2 && 2*n >= m.sources[i.source]
	} else {
		b, when := i.burst(then), then
		if b != nil {
			when = b.first // by its observer's clock, as ends are
		}
		nothing = e.Teardown && m.ended(t, when) ||
			e.Sympathetic && b != nil && m.crowd[crowd{i.code, string(b.job)}] >= m.cfg.Crowd ||
			e.Alone && t.others(i, then, int64(m.cfg.Hold))
	}
	if !nothing {
		m.activate(t, i, then)
		return
	}
	if b := i.burst(then); b != nil {
		b.nothing = true
	}
	if i.code == codeLost {
		m.blind(t, at, reasonObserver)
	}
}

// burst returns the latest one that began at an instant, nil where it is forgotten.
func (i *incident) burst(at int64) *burst {
	for k := len(i.bursts) - 1; k >= 0; k-- {
		if i.bursts[k].at == at {
			return &i.bursts[k]
		}
	}
	return nil
}

// ended reports whether a job ended there about a time.
func (m *Machine) ended(t *target, at int64) bool {
	near := func(end int64) bool { return end >= at-int64(m.cfg.Teardown) && end <= at+int64(m.cfg.Hold) }
	return slices.ContainsFunc(t.ends, near) || slices.ContainsFunc(t.node.self.ends, near)
}

// others reports whether t has other codes about an instant.
func (t *target) others(i *incident, at, hold int64) bool {
	for k := range t.incidents {
		if o := &t.incidents[k]; o != i && slices.ContainsFunc(o.bursts, func(b burst) bool { return b.at >= at-hold && b.at <= at+hold }) {
			return true
		}
	}
	return false
}
