package llm

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/serving"
)

// at is a time of the tests.
func at(d time.Duration) time.Time { return lockstep.FromNanos(int64(1_800_000_000*time.Second + d)) }

// slow is a cost of round numbers: 1 ms, 10 µs a token, 1 µs a thousand tokens of context.
var slow = Roofline{Overhead: time.Millisecond, Token: 10 * time.Second, KV: time.Millisecond, Block: 10 * time.Microsecond}

// client follows one request from outside.
type client struct {
	request  Request
	ticket   serving.Ticket
	made     int // tokens whose iteration ended
	last     time.Time
	gap      time.Duration // longest between two tokens
	over     bool
	seen     bool // whether it started
	paced    bool // whether it finished on pace
	computed int  // tokens whose iteration ended since it last lost them
}

// world drives an engine and checks after every call what must hold.
type world struct {
	t         testing.TB
	e         *Engine
	step      Step
	busy      bool
	now       time.Time
	clients   map[serving.RequestID]*client
	emitting  []serving.RequestID // of the running iteration
	iteration map[serving.RequestID]int
	started   []serving.RequestID // in order of their first chunk
	next      serving.RequestID
}

func newWorld(t testing.TB, c Config) *world {
	e, err := New(c)
	require.NoError(t, err)
	return &world{t: t, e: e, now: at(0), clients: make(map[serving.RequestID]*client), iteration: make(map[serving.RequestID]int)}
}

// submit sends a request and returns whether it was accepted.
func (w *world) submit(r Request) bool {
	w.next++
	r.ID = w.next
	ticket, reason, err := w.e.Submit(w.now, r)
	require.NoError(w.t, err)
	require.Equal(w.t, reason == "", ticket != 0)
	if ticket != 0 {
		c := &client{request: r, ticket: ticket, made: r.Made, last: r.First, seen: r.Made > 0}
		if r.Moved {
			c.computed = r.Prompt + r.Made - 1
		}
		w.clients[r.ID] = c
	}
	return ticket != 0
}

// run ends the iteration and starts the next.
func (w *world) run() {
	if w.busy {
		w.now = w.step.Until
	}
	ended, iteration := w.emitting, w.iteration
	require.NoError(w.t, w.e.Step(w.now, &w.step))
	for id, n := range iteration { // order does not matter: each stands alone
		w.clients[id].computed += n
	}
	for _, id := range ended {
		c := w.clients[id]
		if c.made++; c.made > c.request.Made+1 { // the first one's gap began elsewhere, or there is none
			c.gap = max(c.gap, w.now.Sub(c.last))
		}
		c.last = w.now
	}
	for _, f := range w.step.Finished {
		c := w.clients[f.ID]
		require.Equal(w.t, c.request.Output, c.made, "request %d has all of its tokens", f.ID)
		require.Equal(w.t, f.Tokens, c.made)
		require.Equal(w.t, c.last, f.Last)
		require.False(w.t, c.over)
		c.over, c.paced = true, f.OnPace
	}
	for _, r := range w.step.Refused {
		c := w.clients[r.ID]
		require.False(w.t, c.over)
		require.Zero(w.t, c.made, "none is given back once it has a token")
		c.over = true
	}
	w.read()
	w.check()
}

// read follows what the step plans.
func (w *world) read() {
	w.emitting, w.iteration, w.busy = nil, make(map[serving.RequestID]int), w.step.Busy
	for _, m := range w.step.Preempt {
		if !m.Swapped {
			w.clients[m.ID].computed = 0
		}
	}
	load := Load{Swapped: w.step.Load.Swapped}
	for _, id := range w.step.Decode {
		c := w.clients[id]
		require.False(w.t, c.over)
		require.Equal(w.t, c.request.Prompt+c.made-1, c.computed, "all tokens of %d but the last are computed", id)
		w.iteration[id]++
		w.emitting = append(w.emitting, id)
		load.Decodes++
		load.Context += int64(c.computed) + 1
	}
	for _, p := range w.step.Prefill {
		c := w.clients[p.ID]
		require.False(w.t, c.over)
		if c.computed == 0 {
			c.computed = p.From // what was found in the cache
			if c.made == 0 && !c.seen {
				c.seen = true
				w.started = append(w.started, p.ID)
			}
		}
		require.Equal(w.t, c.computed, p.From, "chunks of %d follow each other", p.ID)
		require.Equal(w.t, p.From+p.Tokens == c.request.Prompt+c.made, p.Emits)
		require.NotContains(w.t, w.iteration, p.ID)
		require.Positive(w.t, p.Tokens)
		w.iteration[p.ID] = p.Tokens
		if p.Emits {
			w.emitting = append(w.emitting, p.ID)
		}
		load.prefill(int64(p.From), int64(p.Tokens))
	}
	require.Equal(w.t, load, w.step.Load)
	if tokens := load.Prefill + load.Decodes; tokens > w.e.config.TokenBudget {
		require.True(w.t, w.e.config.WholePrompts && len(w.step.Prefill) == 1, "%d tokens", tokens)
	}
}

// cancel takes a request away.
func (w *world) cancel(id serving.RequestID) {
	c := w.clients[id]
	require.Equal(w.t, !c.over, w.e.Cancel(c.ticket))
	require.False(w.t, w.e.Cancel(c.ticket), "only once")
	c.over = true
	w.drop(id)
	w.check()
}

// drop forgets what the running iteration does for a request.
func (w *world) drop(id serving.RequestID) {
	delete(w.iteration, id)
	for k, x := range w.emitting {
		if x == id {
			w.emitting = append(w.emitting[:k:k], w.emitting[k+1:]...)
			return
		}
	}
}

// die loses the replica: everyone gets their prompt and tokens back, and tries again.
func (w *world) die() {
	lost, err := w.e.Reset(w.now, nil)
	require.NoError(w.t, err)
	open := 0
	for _, c := range w.clients { // order does not matter: a count
		if !c.over {
			open++
		}
	}
	require.Len(w.t, lost, open)
	w.busy, w.emitting, w.iteration = false, nil, nil
	for _, l := range lost {
		c := w.clients[l.ID]
		require.False(w.t, c.over)
		require.Equal(w.t, c.made, l.Tokens)
		c.over = true
		r := c.request
		require.Equal(w.t, l.Tokens == 0, l.First.IsZero())
		r.Made, r.First, r.Moved = l.Tokens, l.First, false
		w.submit(r)
	}
	w.check()
}

// check compares the engine with itself, told and counted.
func (w *world) check() {
	e := w.e
	require.LessOrEqual(w.t, e.Used()+e.Unused(), e.config.Blocks, "blocks")
	require.LessOrEqual(w.t, e.swapped, e.config.SwapBlocks)
	private, refs, swapped := 0, make(map[int32]int32), 0
	whole := int64(0)
	for k, i := range e.running {
		s := &e.sequences[i]
		private += int(s.private)
		whole += s.whole()
		require.GreaterOrEqual(w.t, s.private, int32(0))
		require.LessOrEqual(w.t, int(s.ctx+s.chunk), int(s.cached+s.private)*e.config.BlockTokens, "tokens have room")
		n := int32(0)
		for b := s.tail; b != root; b = e.prefixes.blocks[b].parent {
			refs[b]++
			n++
		}
		require.Equal(w.t, s.cached, n)
		require.True(w.t, k == 0 || e.before(e.running[k-1], i), "running is in order")
	}
	for k, i := range e.waiting {
		s := &e.sequences[i]
		if !s.remote {
			swapped += int(s.swapped)
		}
		require.Equal(w.t, int32(k), s.at)
		require.True(w.t, k == 0 || e.before(e.waiting[(k-1)/2], i))
		require.Zero(w.t, s.private+s.cached)
	}
	left := int64(0)
	for id, c := range w.clients { // order does not matter: a sum
		if i, ok := e.find(c.ticket); ok {
			require.Equal(w.t, id, e.sequences[i].id)
			left += int64(c.request.Prompt + c.made - c.computed)
		}
	}
	require.Equal(w.t, left, e.Backlog())
	require.Equal(w.t, private, e.private)
	require.Equal(w.t, swapped, e.swapped)
	require.Equal(w.t, whole, e.whole)
	unused := 0
	for _, b := range e.prefixes.index { // order does not matter: each stands alone
		require.Equal(w.t, refs[b], e.prefixes.blocks[b].refs)
		if refs[b] == 0 {
			unused++
		}
	}
	require.Equal(w.t, unused, e.prefixes.unused)
	require.Len(w.t, e.prefixes.index, e.prefixes.count)
	c := ClassStats{}
	for k := range e.config.Classes {
		x := e.Class(k)
		c.Accepted += x.Accepted
		c.Finished += x.Finished + x.Cancelled + x.Late + x.Lost
	}
	require.Equal(w.t, c.Accepted, c.Finished+int64(len(e.running)+len(e.waiting)), "none is lost")
}

// drain runs until nothing is left, and fails if it never ends.
func (w *world) drain(most int) {
	for range most {
		if w.run(); !w.busy {
			require.Zero(w.t, w.e.Waiting()+w.e.Running(), "whatever is accepted ends")
			require.Zero(w.t, w.e.Used())
			return
		}
	}
	require.Fail(w.t, "it does not end")
}

// chain returns the hashes of n blocks of one of some families of prompts, which part after a while.
func chain(r *rand.Rand, n int) []BlockHash {
	out := make([]BlockHash, n)
	h := uint64(r.IntN(3))
	for i := range out {
		if r.IntN(4) == 0 {
			h += uint64(r.IntN(2))
		}
		h = mix(h, 0x9e3779b97f4a7c15)
		out[i] = BlockHash(h)
	}
	return out
}

// randomConfig is a small engine that is short of everything.
func randomConfig(r *rand.Rand) Config {
	c := Config{
		Blocks: 8 + r.IntN(40), BlockTokens: 1 + r.IntN(5), MaxSequences: 1 + r.IntN(8),
		Batching: Batching(r.IntN(5) / 4), Order: serving.Order(r.IntN(2)), Preemption: Preemption(r.IntN(2)),
		SwapBlocks: r.IntN(20), ReserveOutput: r.IntN(3) == 0, GuardTPOT: r.IntN(3) == 0, RefuseLate: r.IntN(4) == 0,
		WholePrompts: r.IntN(3) == 0, DisableCache: r.IntN(4) == 0, WatermarkFraction: r.Float64() / 5,
		Classes: []Class{{}, {TTFT: 40 * time.Millisecond, TPOT: 2 * time.Millisecond}, {TTFT: time.Second, Priority: lockstep.Priority(r.IntN(2))}},
		Cost:    slow,
	}
	c.TokenBudget = c.MaxSequences + r.IntN(20)
	return c
}

func randomRequest(r *rand.Rand, c Config) Request {
	prompt := 1 + r.IntN(60)
	q := Request{Class: r.IntN(3), Prompt: prompt, Output: 1 + r.IntN(30), Blocks: chain(r, r.IntN(1+(prompt+10)/c.BlockTokens))}
	if q.Output > 1 && r.IntN(6) == 0 { // from another replica
		q.Made, q.Moved, q.First = 1+r.IntN(q.Output-1), r.IntN(2) == 0, at(-time.Second)
	}
	return q
}

// storm plays random calls.
func storm(t testing.TB, r *rand.Rand, calls int) {
	w := newWorld(t, randomConfig(r))
	for range calls {
		switch k := r.IntN(20); {
		case k < 4:
			w.submit(randomRequest(r, w.e.config))
		case k == 4 && w.next > 0:
			if id := 1 + serving.RequestID(r.IntN(int(w.next))); w.clients[id] != nil {
				w.cancel(id)
			}
		case k == 5 && r.IntN(30) == 0:
			w.die()
		default:
			w.run()
		}
	}
	w.drain(100_000)
}

func TestStorm(t *testing.T) {
	n := 100
	if testing.Short() {
		n = 40
	}
	for seed := range n {
		storm(t, rand.New(rand.NewPCG(uint64(seed), 1)), 200)
	}
}
