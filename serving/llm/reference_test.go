package llm

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/serving"
)

// plainBlock is a cached block of the reference.
type plainBlock struct {
	hash   BlockHash
	parent *plainBlock
	users  int
	used   int // when it was last let go
}

// plainSequence is a request of the reference.
type plainSequence struct {
	Request
	arrived   time.Time
	number    int
	done, ctx int
	chunk     int
	path      []*plainBlock
	private   int
	swapped   int
	remote    bool
	pushed    int
}

func (s *plainSequence) left() int { return s.Prompt + s.done - s.ctx }

// plain is an engine written down as the documentation has it: lists, sorted and summed anew whenever something is asked.
type plain struct {
	c       Config
	now     time.Time
	number  int
	running []*plainSequence
	waiting []*plainSequence
	cache   []*plainBlock
	stamp   int
	open    bool
	joined  int
}

func (p *plain) class(s *plainSequence) Class { return p.c.Classes[s.Class] }

func (p *plain) compare(a, b *plainSequence) int {
	due := func(s *plainSequence) int64 {
		if p.c.Order == serving.FIFO {
			return 0
		}
		if s.Made > 0 {
			return s.First.Sub(at(0)).Nanoseconds()
		}
		if p.class(s).TTFT == 0 {
			return 1 << 62
		}
		return s.arrived.Add(p.class(s).TTFT).Sub(at(0)).Nanoseconds()
	}
	return cmp.Or(-cmp.Compare(p.class(a).Priority, p.class(b).Priority), cmp.Compare(due(a), due(b)), cmp.Compare(a.number, b.number))
}

func (p *plain) sort() {
	slices.SortFunc(p.running, p.compare)
	slices.SortFunc(p.waiting, p.compare)
}

func (p *plain) blocks(tokens int) int { return (tokens + p.c.BlockTokens - 1) / p.c.BlockTokens }

func (p *plain) available() int {
	n := p.c.Blocks
	for _, s := range p.running {
		n -= s.private
	}
	for _, b := range p.cache {
		if b.users > 0 {
			n--
		}
	}
	return n
}

// shrink evicts until all blocks have room.
func (p *plain) shrink() {
	for {
		n, oldest := p.c.Blocks-len(p.cache), -1
		for _, s := range p.running {
			n -= s.private
		}
		if n >= 0 {
			return
		}
		for k, b := range p.cache {
			if b.users == 0 && (oldest < 0 || b.used < p.cache[oldest].used) {
				oldest = k
			}
		}
		p.cache = slices.Delete(p.cache, oldest, oldest+1)
	}
}

func (p *plain) lookup(h BlockHash) *plainBlock {
	for _, b := range p.cache {
		if b.hash == h {
			return b
		}
	}
	return nil
}

func (p *plain) match(s *plainSequence) []*plainBlock {
	var out []*plainBlock
	var parent *plainBlock
	for k := 0; k < len(s.Blocks) && (k+1)*p.c.BlockTokens < s.Prompt+s.done; k++ {
		b := p.lookup(s.Blocks[k])
		if b == nil || b.parent != parent {
			break
		}
		out = append(out, b)
		parent = b
	}
	return out
}

func (p *plain) letGo(s *plainSequence) {
	for _, b := range slices.Backward(s.path) {
		if b.users--; b.users == 0 {
			p.stamp++
			b.used = p.stamp
		}
	}
	s.path, s.private, s.chunk = nil, 0, 0
}

func (p *plain) end(out *Step) {
	for _, s := range slices.Clone(p.running) {
		if s.chunk == 0 && s.done < s.Output {
			continue
		}
		emits := s.chunk > 0 && s.chunk == s.left()
		s.ctx += s.chunk
		s.chunk = 0
		for len(s.path) < len(s.Blocks) && (len(s.path)+1)*p.c.BlockTokens <= s.ctx {
			var parent *plainBlock
			if len(s.path) > 0 {
				parent = s.path[len(s.path)-1]
			}
			h := s.Blocks[len(s.path)]
			b := p.lookup(h)
			if b != nil && b.parent != parent {
				s.Blocks = nil
				break
			}
			if b == nil {
				b = &plainBlock{hash: h, parent: parent}
				p.cache = append(p.cache, b)
			}
			b.users++
			s.private--
			s.path = append(s.path, b)
		}
		if emits {
			s.done++
		}
		if s.done == s.Output {
			out.Finished = append(out.Finished, Finished{ID: s.ID, Tokens: s.done, Preempted: s.pushed})
			p.letGo(s)
			p.running = slices.DeleteFunc(p.running, func(x *plainSequence) bool { return x == s })
		}
	}
}

func (p *plain) step(now time.Time) Step {
	var out Step
	p.now = now
	p.end(&out)
	for k := 0; k < len(p.running); k++ {
		s := p.running[k]
		if s.done == 0 || s.left() != 1 {
			continue
		}
		gone := false
		for !gone && s.ctx == (len(s.path)+s.private)*p.c.BlockTokens {
			if p.available() > 0 {
				s.private++
				p.shrink()
				break
			}
			gone = p.pushOut(&out) == s
		}
		if !gone {
			p.decode(&out, s)
		}
	}
	bound := time.Duration(0)
	for _, s := range p.running {
		if s.done > 0 && p.c.GuardTPOT {
			bound = stricter(bound, p.class(s).TPOT)
		}
	}
	budget := p.c.TokenBudget - len(out.Decode)
	for _, s := range p.running {
		if s.chunk > 0 {
			continue
		}
		n := p.chunk(&out, s, budget, bound)
		if n == 0 {
			budget = 0
			break
		}
		p.compute(&out, s, n)
		budget -= n
	}
	if len(out.Preempt) == 0 {
		p.start(&out, budget, bound)
	}
	out.Busy = len(out.Decode)+len(out.Prefill) > 0
	return out
}

func (p *plain) pushOut(out *Step) *plainSequence {
	s := p.running[len(p.running)-1]
	p.running = p.running[:len(p.running)-1]
	p.letGo(s)
	s.pushed++
	n := p.blocks(s.ctx)
	host := n
	for _, x := range p.waiting {
		if !x.remote {
			host += x.swapped
		}
	}
	swap := p.c.Preemption == Swap && n > 0 && host <= p.c.SwapBlocks
	if swap {
		s.swapped = n
		out.Load.Swapped += n
	} else {
		s.ctx = 0
	}
	out.Preempt = append(out.Preempt, Moved{s.ID, swap})
	p.waiting = append(p.waiting, s)
	p.sort()
	return s
}

func (p *plain) decode(out *Step, s *plainSequence) {
	s.chunk = 1
	out.Decode = append(out.Decode, s.ID)
	out.Load.Decodes++
	out.Load.Context += int64(s.ctx + 1)
}

func (p *plain) compute(out *Step, s *plainSequence, n int) {
	s.chunk = n
	out.Prefill = append(out.Prefill, Chunk{s.ID, s.ctx, n, n == s.left()})
	out.Load = p.with(out.Load, s.ctx, n)
}

// with adds a chunk pair by pair.
func (p *plain) with(l Load, ctx, n int) Load {
	l.Prefill += n
	l.Context += int64(ctx)
	for k := range n {
		l.Pairs += int64(ctx + k + 1)
	}
	return l
}

// chunk tries all lengths from the longest.
func (p *plain) chunk(out *Step, s *plainSequence, budget int, bound time.Duration) int {
	for n := s.left(); n > 0; n-- {
		whole := n == s.left()
		switch {
		case p.c.WholePrompts && !whole:
			return 0
		case n > budget && !(p.c.WholePrompts && len(out.Prefill) == 0):
		case bound > 0 && p.c.Cost.Iteration(p.with(out.Load, s.ctx, n)) > bound:
		default:
			return n
		}
	}
	return 0
}

func (p *plain) start(out *Step, budget int, bound time.Duration) {
	if len(p.running) == 0 {
		p.open, p.joined = true, 0
	}
	if p.c.Batching == Static && !p.open {
		return
	}
	for budget > 0 && len(p.waiting) > 0 && len(p.running) < p.c.MaxSequences {
		if p.c.Batching == Static && p.joined == p.c.MaxSequences {
			break
		}
		s := p.waiting[0]
		if k := p.class(s); p.c.RefuseLate && k.TTFT > 0 && s.done == 0 && s.pushed == 0 {
			ctx := len(p.match(s)) * p.c.BlockTokens
			if p.now.Add(p.c.Cost.Iteration(p.with(Load{}, ctx, s.Prompt-ctx))).After(s.arrived.Add(k.TTFT)) {
				p.waiting = p.waiting[1:]
				out.Refused = append(out.Refused, serving.Rejection{ID: s.ID, Reason: serving.ReasonDeadline})
				continue
			}
		}
		n := p.admit(out, s, budget, bound)
		if n == 0 {
			break
		}
		budget -= n
		p.joined++
	}
	p.open = budget <= 0
}

func (p *plain) admit(out *Step, s *plainSequence, budget int, bound time.Duration) int {
	if p.c.GuardTPOT && len(p.running) > 0 {
		strict, l := p.class(s).TPOT, Load{Decodes: 1, Context: int64(s.Prompt + s.Output)}
		for _, x := range p.running {
			strict = stricter(strict, p.class(x).TPOT)
			l.Decodes++
			l.Context += int64(x.Prompt + x.Output)
		}
		if strict > 0 && p.c.Cost.Iteration(l) > strict {
			return 0
		}
	}
	var path []*plainBlock
	if s.swapped == 0 {
		path = p.match(s)
	}
	total := s.Prompt + s.done
	if p.c.ReserveOutput {
		total = max(total, s.Prompt+s.Output-1)
	}
	need := p.blocks(total) - len(path)
	for _, b := range path {
		if b.users == 0 {
			need++
		}
	}
	if len(p.running) > 0 {
		need += p.c.watermark()
	}
	if p.available() < need {
		return 0
	}
	ctx, decodes := s.ctx, s.swapped > 0 && s.done > 0 && s.left() == 1
	n, before := 1, out.Load
	out.Load.Swapped += s.swapped
	if decodes {
		l := out.Load
		l.Decodes++
		l.Context += int64(s.ctx + 1)
		if bound > 0 && p.c.Cost.Iteration(l) > bound {
			n = 0
		}
	} else {
		if s.swapped == 0 {
			s.ctx = len(path) * p.c.BlockTokens
		}
		n = p.chunk(out, s, budget, bound)
	}
	if n == 0 {
		s.ctx, out.Load = ctx, before
		return 0
	}
	p.waiting = p.waiting[1:]
	for _, b := range path {
		b.users++
	}
	s.path, s.private = path, p.blocks(total)-len(path)
	p.running = append(p.running, s)
	p.shrink()
	if s.swapped > 0 {
		out.Restore = append(out.Restore, s.ID)
		s.swapped, s.remote = 0, false
	}
	if decodes {
		p.decode(out, s)
	} else {
		p.compute(out, s, n)
	}
	p.sort()
	return n
}

// same compares what both say, as far as the reference says it.
func same(t *testing.T, want, got Step) {
	t.Helper()
	require.Equal(t, want.Busy, got.Busy)
	require.Equal(t, want.Load, got.Load)
	require.Equal(t, append([]serving.RequestID{}, want.Decode...), append([]serving.RequestID{}, got.Decode...))
	require.Equal(t, append([]Chunk{}, want.Prefill...), append([]Chunk{}, got.Prefill...))
	require.Equal(t, append([]serving.RequestID{}, want.Restore...), append([]serving.RequestID{}, got.Restore...))
	require.Equal(t, append([]Moved{}, want.Preempt...), append([]Moved{}, got.Preempt...))
	require.Equal(t, append([]serving.Rejection{}, want.Refused...), append([]serving.Rejection{}, got.Refused...))
	require.Len(t, got.Finished, len(want.Finished))
	for k, f := range want.Finished {
		require.Equal(t, []any{f.ID, f.Tokens, f.Preempted}, []any{got.Finished[k].ID, got.Finished[k].Tokens, got.Finished[k].Preempted})
	}
}

func TestEngineDoesWhatAPlainOneDoes(t *testing.T) {
	n := 700
	if testing.Short() {
		n = 100
	}
	preempted, reused, swapped := int64(0), int64(0), int64(0)
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		c := randomConfig(r)
		if r.IntN(2) == 0 { // at leisure, so that blocks are what is short
			c.RefuseLate, c.GuardTPOT, c.ReserveOutput = false, false, false
		}
		e, err := New(c)
		require.NoError(t, err)
		p := &plain{c: e.config, now: at(0)}
		tickets := make(map[serving.RequestID]serving.Ticket)
		var step Step
		now := at(0)
		for k := range 250 {
			switch op := r.IntN(10); {
			case op < 3:
				q := randomRequest(r, e.config)
				q.ID = serving.RequestID(k)
				ticket, reason, err := e.Submit(now, q)
				require.NoError(t, err)
				if reason != "" {
					break
				}
				tickets[q.ID] = ticket
				if c.DisableCache {
					q.Blocks = nil
				}
				p.number++
				s := &plainSequence{Request: q, arrived: now, number: p.number, done: q.Made}
				if q.Moved {
					s.ctx = q.Prompt + q.Made - 1
					s.swapped, s.remote = p.blocks(s.ctx), true
				}
				p.waiting = append(p.waiting, s)
				p.sort()
			case op == 3:
				p.cancel(e, tickets, serving.RequestID(r.IntN(k+1)))
			default:
				if step.Busy {
					now = step.Until
				}
				require.NoError(t, e.Step(now, &step))
				same(t, p.step(now), step)
				require.Equal(t, e.config.Blocks-p.available(), e.Used())
			}
		}
		preempted += e.Stats().Recomputed
		swapped += e.Stats().Swapped
		reused += e.Stats().Reused
	}
	require.Greater(t, min(preempted, swapped, reused), int64(n/4), "the cases do what they are for")
}

// cancel takes a request out of both.
func (p *plain) cancel(e *Engine, tickets map[serving.RequestID]serving.Ticket, id serving.RequestID) {
	if !e.Cancel(tickets[id]) {
		return
	}
	is := func(s *plainSequence) bool {
		if s.ID == id {
			p.letGo(s)
		}
		return s.ID == id
	}
	p.running, p.waiting = slices.DeleteFunc(p.running, is), slices.DeleteFunc(p.waiting, is)
}
