package hpo

import (
	"hash/crc32"
	"math"
	"math/bits"
	"strconv"
)

// asha is asynchronous successive halving, in all its variants.
type asha struct {
	b      *book
	cfg    *ASHA
	levels []uint64 // below Max
	lanes  []lane
	added  uint64
	passed []entry // by others among the best at Max; empty between calls
}

// lane is one bracket.
type lane struct {
	rungs  []rung
	last   cut    // who reached Max, where some may run on
	weight uint64 // its share of trials
	joined uint64
}

// rung is what was recorded at one level.
type rung struct {
	level    uint64
	recorded uint64
	promoted uint64
	cut      cut
	open     heap      // of Promotion: recorded and not promoted, but for those that left
	plain    []float64 // of Determined: sorted as it does there; of Syne: by arrival
	poisoned bool      // NaN is among the recorded
	before   float64   // of Ray: the quantile before the batch; NaN for none
	stamp    uint64    // of Ray: the batch
}

func newASHA(b *book, cfg Config) (*asha, error) {
	levels, err := cfg.ASHA.rungs()
	if err != nil {
		return nil, err
	}
	if n := len(levels) - 1; levels[n] == cfg.ASHA.Max {
		levels = levels[:n] // nothing is decided there
	}
	a := &asha{b: b, cfg: cfg.ASHA, levels: levels, lanes: make([]lane, cfg.ASHA.Brackets)}
	for i := range a.lanes {
		l := &a.lanes[i]
		l.last = newCut()
		l.weight = budget(len(a.lanes), len(a.lanes)-1-i, uint64(cfg.ASHA.Eta))
		for _, level := range levels[min(i, len(levels)):] {
			l.rungs = append(l.rungs, rung{level: level, cut: newCut(), open: heap{}})
		}
	}
	return a, nil
}

// budget returns ceil(n*eta^s/(s+1)), the weight of the bracket with s+1 rungs among n, held at 2^32.
func budget(n, s int, eta uint64) uint64 {
	const most = 1 << 32
	v := uint64(n)
	for range s {
		hi, lo := bits.Mul64(v, eta)
		if v = lo; hi > 0 || v > most {
			v = most
		}
	}
	return (v + uint64(s)) / uint64(s+1)
}

func (a *asha) finite() bool {
	return a.cfg.Variant == Promotion || a.cfg.Variant == Stopping
}

// join gives a trial its bracket.
func (a *asha) join(slot int32) {
	t := &a.b.trials[slot]
	t.bracket = int32(a.assign())
	a.lanes[t.bracket].joined++
	a.added++
}

// assign returns the bracket of the next trial: by hash as Optuna does, or else such that each has had its share.
func (a *asha) assign() int {
	total := uint64(0)
	for i := range a.lanes {
		total += a.lanes[i].weight
	}
	if a.cfg.Variant == Optuna {
		n := uint64(crc32.ChecksumIEEE([]byte(a.cfg.Study+"_"+strconv.FormatUint(a.added, 10)))) % total
		i := 0
		for n >= a.lanes[i].weight {
			n -= a.lanes[i].weight
			i++
		}
		return i
	}
	best := 0
	for i := range a.lanes {
		// The one with the fewest trials for its weight, were it to get this one.
		x, y := &a.lanes[i], &a.lanes[best]
		hi1, lo1 := bits.Mul64(x.joined+1, y.weight)
		hi2, lo2 := bits.Mul64(y.joined+1, x.weight)
		if hi1 < hi2 || hi1 == hi2 && lo1 < lo2 {
			best = i
		}
	}
	return best
}

// reached returns the rung at which r counts: the one it runs for, or of Stopping the highest that it has reached.
func (a *asha) reached(t *trial, step uint64) (int32, bool) {
	rungs := a.lanes[t.bracket].rungs
	i := t.rung
	if int(i) >= len(rungs) || step < rungs[i].level || step >= a.cfg.Max {
		return 0, false
	}
	switch a.cfg.Variant {
	case Promotion, Optuna, Determined:
		return i, true
	}
	for int(i)+1 < len(rungs) && step >= rungs[i+1].level {
		i++
	}
	return i, true
}

func (a *asha) note(slot int32, r *Report, key float64) {
	t := &a.b.trials[slot]
	if r.Step >= a.cfg.Max {
		if l := &a.lanes[t.bracket]; a.cfg.RunOn > 0 && !a.past(t) && finite(key) {
			l.last.add(a.b.record(slot, key))
			if len(l.last.top.e) > a.cfg.RunOn {
				a.passed = append(a.passed, l.last.top.e[0])
			}
			l.last.resize(a.cfg.RunOn)
			t.rung = int32(len(l.rungs)) + 1
		}
		return
	}
	i, ok := a.reached(t, r.Step)
	if !ok {
		return
	}
	a.lanes[t.bracket].rungs[i].note(a, slot, key)
}

// past says whether t has run past Max.
func (a *asha) past(t *trial) bool { return int(t.rung) > len(a.lanes[t.bracket].rungs) }

func (g *rung) note(a *asha, slot int32, key float64) {
	if a.cfg.Variant == Ray && g.stamp != a.b.batch {
		g.stamp, g.before = a.b.batch, g.quantile(a.cfg.Eta)
	}
	g.recorded++
	if math.IsNaN(key) {
		g.poisoned = true
	}
	x := a.b.record(slot, key)
	switch a.cfg.Variant {
	case Determined:
		a.b.trials[slot].place = g.insert(key)
		return
	case Syne:
		if len(g.plain) < shortList {
			g.plain = append(g.plain, key)
		}
	case Promotion:
		g.open.push(x)
	}
	if !math.IsNaN(key) {
		g.cut.add(x)
		g.cut.resize(g.keep(a.cfg))
	}
}

// keep returns how many of the recorded are in the top of the cut.
func (g *rung) keep(cfg *ASHA) int {
	n := g.cut.len()
	share := int(uint64(n) / uint64(cfg.Eta))
	switch cfg.Variant {
	case Promotion:
		return share
	case Syne:
		return int(min(g.recorded/uint64(cfg.Eta), maxBracket)) + 1
	case Ray, SyneQuantile:
		low, _ := position(n, cfg.Eta)
		return n - 1 - low
	}
	return max(1, share)
}

func (a *asha) decide(slot int32, r *Report) (Decision, bool) {
	t := &a.b.trials[slot]
	if r.Step >= a.cfg.Max {
		if l := &a.lanes[t.bracket]; a.past(t) && l.last.holds(entry{t.key, t.seq, slot}) {
			return Decision{Action: Continue, Level: a.cfg.Max, Reason: ReasonWithin}, false
		}
		a.b.move(slot, done)
		return Decision{Action: Stop, Level: a.cfg.Max, Reason: ReasonComplete}, false
	}
	i, ok := a.reached(t, r.Step)
	if !ok {
		return Decision{Action: Continue, Reason: ReasonBetween}, false
	}
	g := &a.lanes[t.bracket].rungs[i]
	t.rung = i + 1
	if a.cfg.Variant == Promotion {
		a.b.move(slot, paused)
		return Decision{Action: Pause, Level: g.level, Reason: ReasonRung}, false
	}
	on := false
	if a.cfg.Variant == Determined {
		on = g.ranked(a.cfg, t.key, t.place)
	} else {
		on = g.continues(a.cfg, r.Value, t.key)
	}
	if on {
		g.promoted++
		_, more := a.reached(t, r.Step)
		return Decision{Action: Continue, Level: g.level, Reason: ReasonWithin}, more
	}
	a.b.move(slot, done)
	d := Decision{Action: Stop, Level: g.level, Reason: ReasonBelow}
	if !finite(r.Value) {
		d.Reason = ReasonNumber
	}
	return d, false
}

func (a *asha) pick() (int32, bool) {
	var best *rung
	for b := range a.lanes {
		rungs := a.lanes[b].rungs
		for i := len(rungs) - 1; i >= 0; i-- {
			if g := &rungs[i]; best != nil && g.level <= best.level {
				break
			} else if g.promotable(a.b) {
				best = g
			}
		}
	}
	if best == nil {
		return 0, false
	}
	best.promoted++
	return best.open.pop().slot, true
}

// promotable says whether the best that is open may go on.
func (g *rung) promotable(b *book) bool {
	for len(g.open.e) > 0 {
		x := g.open.e[0]
		t := &b.trials[x.slot]
		if t.order == 0 || t.state != paused || t.seq != x.seq {
			g.open.pop() // it left
			continue
		}
		return x.key != worst && g.cut.holds(x)
	}
	return false
}

func (a *asha) ready() bool {
	for b := range a.lanes {
		for i := range a.lanes[b].rungs {
			if a.lanes[b].rungs[i].promotable(a.b) {
				return true
			}
		}
	}
	return false
}

func (a *asha) bracket(slot int32) int { return int(a.b.trials[slot].bracket) }
func (a *asha) leave(int32)            {}
func (a *asha) unblock() bool          { return false }

// settle stops those who ran on past Max and are no longer among the best there.
func (a *asha) settle(dst []Decision) []Decision {
	for _, x := range a.passed {
		t := &a.b.trials[x.slot]
		if t.seq == x.seq && t.state != done {
			a.b.move(x.slot, done)
			dst = append(dst, Decision{Trial: t.id, Attempt: t.attempt, Action: Stop, Level: a.cfg.Max, Reason: ReasonComplete})
		}
	}
	a.passed = a.passed[:0]
	return dst
}

func (a *asha) until(slot int32) uint64 {
	t := &a.b.trials[slot]
	rungs := a.lanes[t.bracket].rungs
	switch {
	case int(t.rung) < len(rungs):
		return rungs[t.rung].level
	case a.past(t):
		return 0
	}
	return a.cfg.Max
}

func (a *asha) end(slot int32) uint64 {
	if a.past(&a.b.trials[slot]) {
		return 0
	}
	return a.cfg.Max
}

func (a *asha) rungs() []Rung {
	var out []Rung
	for b := range a.lanes {
		for i := range a.lanes[b].rungs {
			g := &a.lanes[b].rungs[i]
			out = append(out, Rung{Bracket: b, Level: g.level, Recorded: g.recorded, Promoted: g.promoted})
		}
	}
	return out
}
