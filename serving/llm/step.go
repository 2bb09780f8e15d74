package llm

import (
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/serving"
)

// Chunk is the part of a request's tokens that an iteration computes at once.
type Chunk struct {
	ID     serving.RequestID // as given
	From   int               // how many tokens come before it
	Tokens int               // how many it has
	Emits  bool              // whether a token of the output comes out after it
}

// Finished is a request that has all of its tokens.
type Finished struct {
	ID        serving.RequestID // as given
	Class     int               // as given
	Tokens    int               // of the output, those made elsewhere among them
	Reused    int               // tokens of the prompt that were cached when it started
	Preempted int               // how often
	Arrived   time.Time         // at Submit
	First     time.Time         // when the first token came, here or elsewhere
	Last      time.Time         // when the last token came
	OnTime    bool              // whether the first token came within TTFT, or elsewhere
	OnPace    bool              // whether the mean time between tokens is within TPOT
}

// Moved is a request whose tokens leave the memory of the device.
type Moved struct {
	ID      serving.RequestID // as given
	Swapped bool              // whether they go to host memory; else they are dropped
}

// Step is an iteration, and what the end of the one before brought. One that is used again keeps its memory: what it said
// before is overwritten.
type Step struct {
	Busy    bool                // whether there is something to compute; else wait for Submit
	Until   time.Time           // when the iteration is over by Cost
	Load    Load                // what it computes
	Decode  []serving.RequestID // which requests go on by a token, each of which comes out
	Prefill []Chunk             // what else is computed
	Restore []serving.RequestID // which requests come back from host memory, or from another replica, before
	Preempt []Moved             // which requests leave the device's memory before, in order
	// What the end of the iteration before brought.
	Finished []Finished
	// What waited and would be late, under RefuseLate.
	Refused []serving.Rejection
}

// Step tells that the iteration that runs is over, if one does, credits its tokens, and says what the next one computes. A
// simulation calls it at Until, a host when the device has answered; when nothing runs, after Submit. p is overwritten.
func (e *Engine) Step(now time.Time, p *Step) error {
	*p = Step{
		Decode: p.Decode[:0], Prefill: p.Prefill[:0], Restore: p.Restore[:0], Preempt: p.Preempt[:0],
		Finished: p.Finished[:0], Refused: p.Refused[:0],
	}
	ns, err := e.clock("step", now)
	if err != nil {
		return err
	}
	e.now = ns
	e.end(p)
	budget := e.config.TokenBudget - e.decode(p)
	bound := e.bound()
	budget = e.prefill(p, budget, bound)
	if len(p.Preempt) == 0 { // who has just made room does not take it
		e.start(p, budget, bound)
	}
	p.Busy = p.Load.Prefill > 0 || p.Load.Decodes > 0
	p.Until = now
	if p.Busy {
		e.stats.Iterations++
		p.Until = lockstep.FromNanos(instant.Add(ns, e.cost(p.Load)))
	}
	return nil
}

// end credits what the iteration computed.
func (e *Engine) end(p *Step) {
	kept := e.running[:0]
	for _, i := range e.running {
		s := &e.sequences[i]
		if s.chunk > 0 {
			emits := s.chunk == s.left()
			if !s.decodes() {
				e.stats.Computed += int64(s.chunk)
			}
			s.ctx += s.chunk
			s.chunk = 0
			if int(s.cached) < len(s.hashes) {
				e.share(s)
			}
			if emits {
				e.emit(s)
			}
		}
		if s.done < s.output {
			kept = append(kept, i)
			continue
		}
		p.Finished = append(p.Finished, e.finish(s))
		e.leave(i)
		e.forget(i)
	}
	e.running = kept
}

// emit counts a token of s.
func (e *Engine) emit(s *sequence) {
	e.stats.Tokens++
	s.done++
	s.last = e.now
	if s.done == 1 {
		s.first = e.now
	}
}

// share gives the full blocks of s that have a hash to the prefix cache.
func (e *Engine) share(s *sequence) {
	for int(s.cached) < len(s.hashes) && int64(s.cached+1)*int64(e.config.BlockTokens) <= int64(s.ctx) {
		i, _, ok := e.prefixes.insert(s.hashes[s.cached], s.tail)
		if !ok {
			s.hashes = nil // not a chain of its own; what is cached stays
			return
		}
		s.tail = i
		s.cached++
		s.private-- // it moved to the cache, or is there already and this copy is free
		e.private--
	}
}

// finish says how s went.
func (e *Engine) finish(s *sequence) Finished {
	c, k := &e.byClass[s.class], &e.config.Classes[s.class]
	f := Finished{
		ID: s.id, Class: int(s.class), Tokens: int(s.done), Reused: int(s.reused), Preempted: int(s.pushed),
		Arrived: lockstep.FromNanos(s.arrived), First: lockstep.FromNanos(s.first), Last: lockstep.FromNanos(s.last),
		OnTime: s.first <= s.due,
		OnPace: k.TPOT == 0 || s.done == 1 || (s.last-s.first)/int64(s.done-1) < int64(k.TPOT) ||
			(s.last-s.first) == int64(k.TPOT)*int64(s.done-1),
	}
	c.Finished++
	if f.OnTime {
		c.OnTime++
	}
	if f.OnPace {
		c.OnPace++
	}
	if f.OnTime && f.OnPace {
		c.Attained++
	}
	return f
}

// decode plans a token for each sequence that goes on by tokens, first come first, and preempts the last ones where
// blocks are short. It returns how many it planned.
func (e *Engine) decode(p *Step) int {
	for k := 0; k < len(e.running); k++ { // running loses its end inside
		s := &e.sequences[e.running[k]]
		if !s.decodes() {
			continue
		}
		for s.state == running && int64(s.ctx) == int64(s.cached+s.private)*int64(e.config.BlockTokens) {
			if e.take(1) {
				s.private++
				break
			}
			e.preempt(p, e.running[len(e.running)-1])
		}
		if s.state == running {
			e.next(p, s)
		}
	}
	return p.Load.Decodes
}

// next adds a token of s to the iteration, which finds all tokens of s but one computed where the host left them.
func (e *Engine) next(p *Step, s *sequence) {
	s.chunk = 1
	p.Decode = append(p.Decode, s.id)
	p.Load.Decodes++
	p.Load.Context += int64(s.ctx) + 1
}

// plan adds a chunk of n tokens of s to the iteration.
func (e *Engine) plan(p *Step, s *sequence, n int32) {
	s.chunk = n
	p.Prefill = append(p.Prefill, Chunk{s.id, int(s.ctx), int(n), n == s.left()})
	p.Load.prefill(int64(s.ctx), int64(n))
}

// take makes n blocks the sequences' own, and evicts what is unused for them; it does nothing if there are not as many.
func (e *Engine) take(n int) bool {
	if e.available() < n {
		return false
	}
	e.private += n
	for e.private+e.prefixes.count > e.config.Blocks {
		e.prefixes.evict()
	}
	return true
}

// available is how many blocks are free or unused.
func (e *Engine) available() int {
	return e.config.Blocks - e.private - e.prefixes.count + e.prefixes.unused
}

// preempt makes the last running sequence, i, wait for its turn again.
func (e *Engine) preempt(p *Step, i int32) {
	s := &e.sequences[i]
	n := int32(e.blocksOf(int64(s.ctx)))
	e.running = e.running[:len(e.running)-1]
	e.leave(i)
	s.pushed++
	swap := e.config.Preemption == Swap && n > 0 && int64(e.swapped)+int64(n) <= int64(e.config.SwapBlocks)
	if swap {
		s.swapped = n
		e.swapped += int(n)
		e.stats.Swapped++
		p.Load.Swapped += int(n)
	} else {
		s.ctx = 0
		e.stats.Recomputed++
	}
	p.Preempt = append(p.Preempt, Moved{s.id, swap})
	e.push(i)
}

// prefill plans chunks for the sequences whose tokens are not all computed, in order, and returns what is left of the
// budget: nothing if one of them has to wait, so that no other passes it.
func (e *Engine) prefill(p *Step, budget int, bound time.Duration) int {
	for _, i := range e.running {
		s := &e.sequences[i]
		if s.chunk > 0 {
			continue
		}
		n := e.chunk(p, s, budget, bound)
		if n == 0 {
			return 0
		}
		e.plan(p, s, n)
		budget -= int(n)
	}
	return budget
}

// chunk is how many tokens of s may join the iteration.
func (e *Engine) chunk(p *Step, s *sequence, budget int, bound time.Duration) int32 {
	left := int(s.left())
	n := max(min(left, budget), 0)
	if e.config.WholePrompts && (p.Load.Prefill == 0 || n == left) {
		n = left
	} else if e.config.WholePrompts {
		return 0
	}
	if bound == 0 || e.within(p.Load, s, n, bound) {
		return int32(n)
	}
	if e.config.WholePrompts {
		return 0
	}
	lo, hi := 0, n // within at lo, or lo is 0; not at hi
	for lo+1 < hi {
		if mid := lo + (hi-lo)/2; e.within(p.Load, s, mid, bound) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return int32(lo)
}

// within says whether the iteration with n more tokens of s keeps to bound.
func (e *Engine) within(l Load, s *sequence, n int, bound time.Duration) bool {
	l.prefill(int64(s.ctx), int64(n))
	return e.cost(l) <= bound
}

// bound is the strictest TPOT of the sequences that have a token and wait for another, 0 if there is none or no guard.
func (e *Engine) bound() time.Duration {
	if !e.config.GuardTPOT {
		return 0
	}
	bound := time.Duration(0)
	for _, i := range e.running {
		if s := &e.sequences[i]; s.done > 0 {
			bound = stricter(bound, e.config.Classes[s.class].TPOT)
		}
	}
	return bound
}

// stricter is the lesser of two objectives of which 0 is none.
func stricter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// insert puts sequence i into what runs, in order: mostly at the end.
func (e *Engine) insert(i int32) {
	k := len(e.running)
	for k > 0 && e.before(i, e.running[k-1]) {
		k--
	}
	e.running = slices.Insert(e.running, k, i)
}
