package llm

import (
	"time"

	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/serving"
)

// blockage remembers why the first request that waits could not start for want of blocks, so that it is not matched with the
// cache again before that can have changed.
type blockage struct {
	seq     uint64 // of the request, from 1; 0 is none
	need    int    // blocks that have to be available
	changed uint64 // what the cache counted by then
}

// start lets requests that wait join the iteration, first come first, as long as they fit. The first that does not holds
// those behind it, so that none is passed for ever.
func (e *Engine) start(p *Step, budget int, bound time.Duration) {
	static := e.config.Batching == Static
	if static && len(e.running) == 0 {
		e.open, e.joined = true, 0
	}
	if static && !e.open {
		return
	}
	for budget > 0 && len(e.waiting) > 0 && len(e.running) < e.config.MaxSequences && (!static || e.joined < e.config.MaxSequences) {
		i := e.waiting[0]
		s := &e.sequences[i]
		if e.late(s) {
			p.Refused = append(p.Refused, serving.Rejection{ID: s.id, Reason: serving.ReasonDeadline})
			e.byClass[s.class].Late++
			e.unheap(i)
			e.forget(i)
			continue
		}
		n := 0
		if e.paces(s) {
			n = e.admit(p, i, budget, bound)
		}
		if n == 0 {
			break
		}
		budget -= n
		e.joined++
	}
	e.open = budget <= 0 // only the budget may have kept others from joining
}

// late says whether s is to be given back as its first token would be late.
func (e *Engine) late(s *sequence) bool {
	if !e.config.RefuseLate || s.done > 0 || s.pushed > 0 || s.due == instant.Never {
		return false
	}
	all := Load{}
	all.prefill(0, int64(s.prompt))
	if instant.Add(e.now, e.cost(all)) <= s.due {
		return false // even without the cache, which takes longer to ask
	}
	return instant.Add(e.now, e.least(int(s.prompt), s.hashes)) > s.due
}

// paces says whether all that run and s keep their TPOT once all of them are at their last token.
func (e *Engine) paces(s *sequence) bool {
	if !e.config.GuardTPOT || len(e.running) == 0 {
		return true
	}
	bound := e.config.Classes[s.class].TPOT
	for k, n := range e.inClass {
		if n > 0 {
			bound = stricter(bound, e.config.Classes[k].TPOT)
		}
	}
	return bound == 0 || e.cost(Load{Decodes: len(e.running) + 1, Context: e.whole + s.whole()}) <= bound
}

// admit gives sequence i, the first that waits, blocks for all tokens that it has, and a chunk of the iteration. It returns
// how many tokens that has, 0 if there is no room and nothing has changed.
func (e *Engine) admit(p *Step, i int32, budget int, bound time.Duration) int {
	s := &e.sequences[i]
	if b := &e.block; b.seq == s.seq && len(e.running) > 0 && e.available() < b.need && e.prefixes.changed == b.changed {
		return 0
	}
	known := int64(s.prompt) + int64(s.done)
	found, tail, unused := 0, root, 0
	if s.swapped == 0 { // what comes from elsewhere is its own
		most := int((known - 1) / int64(e.config.BlockTokens)) // one token at least has to be computed
		found, tail, unused = e.prefixes.match(s.hashes[:min(len(s.hashes), most)])
	}
	if e.config.ReserveOutput {
		known = max(known, s.whole()-1)
	}
	own := int(e.blocksOf(known)) - found
	need := own + unused
	if len(e.running) > 0 {
		need += e.watermark
	}
	if e.available() < need {
		e.block = blockage{s.seq, need, e.prefixes.changed}
		return 0
	}
	ctx := s.ctx
	if s.swapped == 0 {
		s.ctx = int32(found * e.config.BlockTokens)
	}
	p.Load.Swapped += int(s.swapped)
	goes := s.swapped > 0 && s.decodes() // by a token; the host has all others
	n := int32(1)
	if !goes {
		n = e.chunk(p, s, budget, bound)
	} else if bound > 0 && !e.carries(p.Load, s, bound) {
		n = 0
	}
	if n == 0 {
		p.Load.Swapped -= int(s.swapped)
		s.ctx = ctx
		return 0
	}
	e.join(p, i, found, tail, own)
	if goes {
		e.next(p, s)
	} else {
		e.plan(p, s, n)
	}
	return int(n)
}

// carries says whether the iteration keeps to bound with one more token of s.
func (e *Engine) carries(l Load, s *sequence, bound time.Duration) bool {
	l.Decodes++
	l.Context += int64(s.ctx) + 1
	return e.cost(l) <= bound
}

// join moves sequence i from those that wait to those that run.
func (e *Engine) join(p *Step, i int32, found int, tail int32, own int) {
	s := &e.sequences[i]
	e.block = blockage{}
	e.unheap(i)
	e.prefixes.acquire(tail)
	e.take(own) // there are as many, as what was found is no longer unused
	s.state, s.cached, s.tail, s.private = running, int32(found), tail, int32(own)
	if s.swapped > 0 {
		p.Restore = append(p.Restore, s.id)
		e.fetch(s)
	} else {
		reused := found * e.config.BlockTokens
		e.stats.Reused += int64(reused)
		if s.pushed == 0 {
			s.reused = int32(reused)
		}
	}
	e.whole += s.whole()
	e.inClass[s.class]++
	e.insert(i)
}
