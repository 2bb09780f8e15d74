package hpo

import (
	"math"
	"math/rand/v2"

	"github.com/lockstep-gpu/lockstep"
)

// pbt is population based training.
type pbt struct {
	b        *book
	cfg      *PBT
	quantile uint64 // in millionths
	resample uint64 // in millionths
	pcg      *rand.PCG
	ranks    tree     // scores of trials that are not done
	own      []member // by slot
	copied   []int32  // who became a copy; empty between calls
}

// member is what is known of a trial of the population.
type member struct {
	due   uint64 // step of its next decision
	step  uint64 // of its score
	fresh bool   // nothing was reported since it was started
	judge bool   // the present report came to a decision
	rated bool   // it has a score, which is in the tree
}

func newPBT(b *book, cfg Config) *pbt {
	p := &pbt{b: b, cfg: cfg.PBT, pcg: rand.NewPCG(cfg.PBT.Seed, 0x9e3779b97f4a7c15)}
	p.quantile, p.resample = quantise(cfg.PBT.QuantileFraction), quantise(cfg.PBT.ResampleFraction)
	return p
}

func (p *pbt) finite() bool { return true }

func (p *pbt) join(slot int32) {
	for int(slot) >= len(p.own) {
		p.own = append(p.own, member{})
	}
	p.own[slot] = member{due: p.cfg.BurnIn, fresh: true}
	p.ranks.grow(len(p.own))
}

func (p *pbt) note(slot int32, r *Report, key float64) {
	m := &p.own[slot]
	if m.fresh && r.Step < m.due {
		// An attempt that began further back is not held to the step at which another would have been due.
		m.due = min(m.due, max(p.cfg.BurnIn, addSat(r.Step, p.cfg.Interval)))
	}
	m.fresh = false
	if m.judge = r.Step >= m.due; !m.judge {
		return
	}
	if m.rated {
		p.ranks.remove(slot)
	}
	x := p.b.record(slot, key)
	p.ranks.insert(x)
	m.rated, m.step, m.due = true, r.Step, addSat(r.Step, p.cfg.Interval)
}

func (p *pbt) decide(slot int32, r *Report) (Decision, bool) {
	m := &p.own[slot]
	switch {
	case p.cfg.Max > 0 && r.Step >= p.cfg.Max:
		p.leave(slot)
		p.b.move(slot, done)
		return Decision{Action: Stop, Level: p.cfg.Max, Reason: ReasonComplete}, false
	case !m.judge:
		return Decision{Action: Continue, Reason: ReasonBetween}, false
	case p.cfg.Sync:
		p.b.move(slot, paused)
		return Decision{Action: Pause, Level: r.Step, Reason: ReasonRung}, false
	}
	source, reason := p.exploit(slot)
	if reason != ReasonBelow {
		return Decision{Action: Continue, Level: r.Step, Reason: reason}, false
	}
	return p.copy(slot, source), false
}

// exploit returns whom a trial copies, with ReasonBelow, or why it copies none.
func (p *pbt) exploit(slot int32) (int32, lockstep.Reason) {
	n := p.ranks.len()
	few := count(n, p.quantile)
	if few == 0 {
		return 0, ReasonFew
	}
	if p.ranks.rank(slot) >= few {
		return 0, ReasonWithin
	}
	best := min(few, n-p.ranks.below(math.Inf(-1)))
	if best == 0 {
		return 0, ReasonNumber
	}
	return p.ranks.at(n - 1 - int(p.draw(uint64(best)))), ReasonBelow
}

// copy makes a trial go on as a copy of another: at once, or in step when Next starts it.
func (p *pbt) copy(slot, source int32) Decision {
	t, from := &p.b.trials[slot], &p.own[source]
	attempt := t.attempt + 1
	if !p.cfg.Sync {
		t.attempt = attempt
		p.copied = append(p.copied, slot)
	}
	t.step = from.step
	m := &p.own[slot]
	m.due, m.fresh = addSat(from.step, p.cfg.Interval), true
	d := Decision{
		Trial: t.id, Attempt: attempt, Action: Copy, Level: from.step, Reason: ReasonBelow, Source: p.b.trials[source].id,
	}
	for i := range p.cfg.Params {
		turn := Turn{Param: p.cfg.Params[i].Name, Resample: p.draw(million) < p.resample, Draw: p.pcg.Uint64()}
		d.Turns = append(d.Turns, turn)
	}
	return d
}

// draw returns a number below n.
func (p *pbt) draw(n uint64) uint64 { return rand.New(p.pcg).Uint64N(n) }

// settle takes the scores of new copies out of the population, since they are those of what was there before: nobody
// copies a copy before it has reported. In step, it lets all go on if each has arrived, the worst first.
func (p *pbt) settle(dst []Decision) []Decision {
	for _, slot := range p.copied {
		p.ranks.remove(slot)
		p.own[slot].rated = false
	}
	p.copied = p.copied[:0]
	c := &p.b.counts
	if c[paused] == 0 || c[running] > 0 || c[again] > 0 || c[waiting] > 0 {
		return dst
	}
	order := make([]int32, p.ranks.len())
	for i := range order {
		order[i] = p.ranks.at(i)
	}
	for _, slot := range order {
		if source, reason := p.exploit(slot); reason == ReasonBelow {
			dst = append(dst, p.copy(slot, source))
		}
	}
	for _, slot := range order {
		p.b.move(slot, again)
		p.own[slot].fresh = true
	}
	return dst
}

// leave takes a trial out of the population.
func (p *pbt) leave(slot int32) {
	if p.own[slot].rated {
		p.ranks.remove(slot)
		p.own[slot].rated = false
	}
}

func (p *pbt) pick() (int32, bool)     { return 0, false }
func (p *pbt) ready() bool             { return false }
func (p *pbt) unblock() bool           { return false }
func (p *pbt) bracket(int32) int       { return 0 }
func (p *pbt) until(slot int32) uint64 { return p.own[slot].due }
func (p *pbt) end(int32) uint64        { return p.cfg.Max }
func (p *pbt) rungs() []Rung           { return nil }

// addSat returns a+b, held at the largest number.
func addSat(a, b uint64) uint64 {
	if a > math.MaxUint64-b {
		return math.MaxUint64
	}
	return a + b
}
