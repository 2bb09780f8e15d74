package hpo

import (
	"math"
	"slices"
)

// synchronous is SHA and Hyperband: in each band all who are at a rung report before the best of them go on.
type synchronous struct {
	b     *book
	specs []Bracket // in the order in which they are filled
	ids   []int     // which bracket each spec is
	eta   uint32
	seen  [][]Rung // by spec
	bands []band   // from the oldest that is not over
	first int32    // number of bands[0]
	gone  int      // bands at the beginning that are over; at most half of them, and not the last
	due   []int32  // numbers of bands whose rung is to be closed; empty between calls
}

// band is one filling of a bracket.
type band struct {
	spec    int
	rung    int
	joined  int     // trials that began in it
	entered int     // trials that came to this rung
	left    int     // of those, neither arrived nor gone
	full    bool    // nobody can join any more
	over    bool    // nobody is left
	arrived []entry // who reported at this rung; void if no longer paused
}

func newSHA(b *book, cfg *SHA) (*synchronous, error) {
	levels, err := Levels(cfg.Min, cfg.Max, cfg.Eta)
	if err != nil {
		return nil, err
	}
	trials := cfg.Trials
	if trials == 0 {
		trials = math.MaxInt
	}
	return newSynchronous(b, []Bracket{{Trials: trials, Levels: levels}}, []int{0}, cfg.Eta), nil
}

func newHyperband(b *book, cfg *Hyperband) (*synchronous, error) {
	specs, err := Brackets(cfg.Min, cfg.Max, cfg.Eta)
	if err != nil {
		return nil, err
	}
	ids := make([]int, len(specs))
	for i := range ids {
		ids[i] = i
	}
	if cfg.LargestFirst {
		slices.Reverse(specs)
		slices.Reverse(ids)
	}
	return newSynchronous(b, specs, ids, cfg.Eta), nil
}

func newSynchronous(b *book, specs []Bracket, ids []int, eta uint32) *synchronous {
	h := &synchronous{b: b, specs: specs, ids: ids, eta: eta, seen: make([][]Rung, len(specs))}
	for i, spec := range specs {
		for _, level := range spec.Levels {
			h.seen[i] = append(h.seen[i], Rung{Bracket: ids[i], Level: level})
		}
	}
	return h
}

func (h *synchronous) finite() bool { return true }

// band returns that of a trial that is not done.
func (h *synchronous) band(slot int32) *band { return &h.bands[h.b.trials[slot].bracket-h.first] }

// join puts a trial into the newest band, or a new one if that is full.
func (h *synchronous) join(slot int32) {
	if n := len(h.bands); n == 0 || h.bands[n-1].full {
		spec := 0
		if n > 0 {
			spec = (h.bands[n-1].spec + 1) % len(h.specs)
		}
		h.bands = append(h.bands, band{spec: spec})
	}
	x := &h.bands[len(h.bands)-1]
	h.b.trials[slot].bracket = h.first + int32(len(h.bands)-1)
	x.joined++
	x.entered++
	x.left++
	x.full = x.joined == h.specs[x.spec].Trials
}

func (h *synchronous) levels(x *band) []uint64 { return h.specs[x.spec].Levels }

func (h *synchronous) note(slot int32, r *Report, key float64) {
	x := h.band(slot)
	levels := h.levels(x)
	if r.Step < levels[x.rung] {
		return
	}
	h.seen[x.spec][x.rung].Recorded++
	e := h.b.record(slot, key)
	if r.Step < levels[len(levels)-1] {
		x.arrived = append(x.arrived, e)
	}
}

func (h *synchronous) decide(slot int32, r *Report) (Decision, bool) {
	x := h.band(slot)
	levels := h.levels(x)
	level := levels[x.rung]
	switch {
	case r.Step >= levels[len(levels)-1]:
		h.leave(slot)
		h.b.move(slot, done)
		return Decision{Action: Stop, Level: level, Reason: ReasonComplete}, false
	case r.Step >= level:
		h.leave(slot)
		h.b.move(slot, paused)
		return Decision{Action: Pause, Level: level, Reason: ReasonRung}, false
	}
	return Decision{Action: Continue, Reason: ReasonBetween}, false
}

// leave takes a trial out of those whom its rung waits for. If it had arrived, its entry there becomes void.
func (h *synchronous) leave(slot int32) {
	if h.b.trials[slot].state == paused {
		return
	}
	x := h.band(slot)
	x.left--
	if x.left == 0 && x.full {
		h.due = append(h.due, h.b.trials[slot].bracket)
	}
}

// settle closes the rungs at which all have arrived, those of the oldest bands first.
func (h *synchronous) settle(dst []Decision) []Decision {
	if len(h.due) == 0 {
		return dst
	}
	slices.Sort(h.due)
	for _, n := range h.due {
		dst = h.close(dst, &h.bands[n-h.first])
	}
	h.due = h.due[:0]
	h.prune()
	return dst
}

// prune drops bands that are over. The last one stays, since the next bracket comes after it.
func (h *synchronous) prune() {
	for h.gone < len(h.bands)-1 && h.bands[h.gone].over {
		h.gone++
	}
	if h.gone*2 > len(h.bands) {
		h.bands = slices.Delete(h.bands, 0, h.gone)
		h.first += int32(h.gone)
		h.gone = 0
	}
}

// close lets the best of those that arrived go on, and stops the others.
func (h *synchronous) close(dst []Decision, x *band) []Decision {
	var at []entry
	for _, e := range x.arrived {
		if t := &h.b.trials[e.slot]; t.seq == e.seq && t.state == paused {
			at = append(at, e)
		}
	}
	slices.SortFunc(at, func(a, b entry) int {
		if better(a, b) {
			return -1
		}
		return 1
	})
	keep := int((uint64(x.entered) + uint64(h.eta) - 1) / uint64(h.eta))
	level := h.levels(x)[x.rung]
	on := 0
	for _, e := range at {
		t := &h.b.trials[e.slot]
		if on < keep && e.key != worst {
			on++
			h.b.move(e.slot, again)
			continue
		}
		h.b.move(e.slot, done)
		reason := ReasonBelow
		if e.key == worst {
			reason = ReasonNumber
		}
		dst = append(dst, Decision{Trial: t.id, Attempt: t.attempt, Action: Stop, Level: level, Reason: reason})
	}
	h.seen[x.spec][x.rung].Promoted += uint64(on)
	x.rung++
	x.entered, x.left, x.arrived = on, on, nil
	x.over = on == 0
	return dst
}

func (h *synchronous) pick() (int32, bool) { return 0, false }

// ready says whether unblock would help. Only the newest band can be short of trials.
func (h *synchronous) ready() bool {
	n := len(h.bands)
	return n > 0 && !h.bands[n-1].full && h.b.counts[paused] > 0 && h.bands[n-1].left == 0
}

// unblock ends the filling of the newest band, so that settle closes its rung.
func (h *synchronous) unblock() bool {
	if !h.ready() {
		return false
	}
	n := len(h.bands) - 1
	h.bands[n].full = true
	h.due = append(h.due, h.first+int32(n))
	return true
}

func (h *synchronous) until(slot int32) uint64 {
	x := h.band(slot)
	return h.levels(x)[x.rung]
}

func (h *synchronous) end(slot int32) uint64 {
	levels := h.levels(h.band(slot))
	return levels[len(levels)-1]
}

func (h *synchronous) bracket(slot int32) int { return h.ids[h.band(slot).spec] }

func (h *synchronous) rungs() []Rung {
	var out []Rung
	for i := range h.seen {
		out = append(out, h.seen[i]...)
	}
	slices.SortStableFunc(out, func(a, b Rung) int { return a.Bracket - b.Bracket })
	return out
}
