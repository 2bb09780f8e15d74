package llm

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
	"github.com/lockstep-gpu/lockstep/serving"
)

// Request is a prompt to go on from.
type Request struct {
	ID     serving.RequestID // what it is called in a Step; need not be unique
	Class  int               // index in Config.Classes
	Prompt int               // tokens of the prompt, from 1 to 2^24
	Output int               // tokens to make, from 1 to 2^24; the most of them where the end is not known before, see Stop
	// Blocks are the hashes of the full blocks of the prompt, see AppendHashes, and of the output where a replay knows it.
	// nil means nothing to share. The engine keeps the slice until the request is over and does not write to it.
	Blocks []BlockHash
	// Made is how many tokens of the output another replica has made: one that only computes prompts, or one that is gone. It
	// is below Output. The objective for the first token is not this engine's then.
	Made int
	// Moved says that the keys and values of all tokens but the latest come along, as when decodes have replicas of their own.
	// Their blocks count as Load.Swapped when the request starts. It needs Made.
	Moved bool
	First time.Time // when the first token came, if Made is above 0; not after now
}

// state is what a sequence does.
type state uint8

const (
	absent state = iota
	waiting
	running
)

// sequence is a request in the engine.
//
// Invariant: ctx ≤ prompt + done, and ctx ≤ (cached + private) × BlockTokens; the first cached blocks are in the prefix
// cache, the path to tail, and private ones belong to this sequence alone. While it waits it has neither, but what it
// had in host memory.
type sequence struct {
	id       serving.RequestID
	hashes   []BlockHash // nil once its chain broke
	rank     int64       // when the first token is due under EDF, else 0
	seq      uint64
	arrived  int64
	due      int64 // of the first token; instant.Never without TTFT
	first    int64 // when the first token came
	last     int64 // when the latest came
	priority lockstep.Priority
	gen      uint32
	prompt   int32
	output   int32
	done     int32 // tokens made
	ctx      int32 // tokens whose keys and values are kept
	chunk    int32 // tokens that the running iteration computes
	cached   int32 // blocks
	private  int32 // blocks
	tail     int32
	swapped  int32 // blocks in host memory, or with another replica
	remote   bool  // whether it is another replica
	reused   int32 // tokens that were found cached when it first started
	pushed   int32 // times preempted
	class    int32
	at       int32 // place in the heap of those that wait
	state    state
}

// left is how many tokens have to be computed before the next one comes out.
func (s *sequence) left() int32 { return s.prompt + s.done - s.ctx }

// decodes says whether s goes on by a token at a time.
func (s *sequence) decodes() bool { return s.done > 0 && s.left() == 1 }

// whole is how many tokens s has at its end; the last one's keys and values are never needed.
func (s *sequence) whole() int64 { return int64(s.prompt) + int64(s.output) }

// Engine is the scheduler of one replica of a model. Not safe for concurrent use; the caller serializes calls.
type Engine struct {
	config    Config
	watermark int
	sequences []sequence
	free      []int32
	running   []int32 // in order
	waiting   []int32 // heap in order
	prefixes  prefixes
	private   int // blocks of sequences alone
	swapped   int // blocks in host memory
	whole     int64
	inClass   []int32 // running sequences by class
	stats     Stats
	byClass   []ClassStats
	seq       uint64
	now       int64
	block     blockage
	open      bool // whether others may join a static batch
	joined    int  // how many did
}

// New returns an Engine without requests.
func New(c Config) (*Engine, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	return &Engine{
		config: c, watermark: c.watermark(), prefixes: newPrefixes(),
		sequences: make([]sequence, 1), // place 0 stays empty, so that no ticket is 0
		inClass:   make([]int32, len(c.Classes)), byClass: make([]ClassStats, len(c.Classes)),
	}, nil
}

// clock reads now and refuses to go backwards.
func (e *Engine) clock(op string, now time.Time) (int64, error) {
	ns, err := in.SinceEpoch(op, "now", now)
	if err == nil {
		err = in.NotBefore(op, "now", now, ns, e.now)
	}
	return ns, err
}

// Submit takes a request, which the next Step may start, and returns a ticket; or 0 and why it is refused. It may be
// called while an iteration runs.
func (e *Engine) Submit(now time.Time, r Request) (serving.Ticket, lockstep.Reason, error) {
	ns, err := e.clock("submit", now)
	if err != nil {
		return 0, "", err
	}
	first, err := e.check(ns, r)
	if err != nil {
		return 0, "", err
	}
	e.now = ns
	if reason := e.refuse(r); reason != "" {
		e.byClass[r.Class].Refused++
		return 0, reason, nil
	}
	i := e.place()
	s := &e.sequences[i]
	k := e.config.Classes[r.Class]
	e.seq++
	*s = sequence{
		id: r.ID, hashes: r.Blocks, seq: e.seq, arrived: ns, due: instant.Never, priority: k.Priority, gen: s.gen + 1,
		prompt: int32(r.Prompt), output: int32(r.Output), done: int32(r.Made), first: first, last: first, class: int32(r.Class),
	}
	if e.config.DisableCache {
		s.hashes = nil
	}
	if k.TTFT > 0 && r.Made == 0 {
		s.due = instant.Add(ns, k.TTFT)
	}
	if e.config.Order == serving.EDF {
		s.rank = s.due
		if r.Made > 0 {
			s.rank = first // it was due then, at the latest
		}
	}
	if r.Moved {
		s.ctx = s.prompt + s.done - 1
		s.swapped, s.remote = int32(e.blocksOf(int64(s.ctx))), true
	}
	e.push(i)
	e.byClass[r.Class].Accepted++
	return serving.Ticket(uint64(s.gen)<<32 | uint64(i)), "", nil
}

// check refuses what can never be right, and returns when the first token came, 0 if none did.
func (e *Engine) check(ns int64, r Request) (first int64, err error) {
	if r.Class < 0 || r.Class >= len(e.config.Classes) {
		return 0, fault(lockstep.ErrUnknown, "submit", "Class", strconv.Itoa(r.Class), "must be below "+strconv.Itoa(len(e.config.Classes)))
	}
	if err := checkInt("submit", "Prompt", r.Prompt, 1, maxTokens); err != nil {
		return 0, err
	}
	if err := checkInt("submit", "Output", r.Output, 1, maxTokens); err != nil {
		return 0, err
	}
	if err := checkInt("submit", "Made", r.Made, 0, r.Output-1); err != nil {
		return 0, err
	}
	switch {
	case r.Made == 0 && r.Moved:
		return 0, invalid("submit", "Moved", "true", "needs Made")
	case r.Made == 0:
		return 0, nil
	}
	if first, err = in.SinceEpoch("submit", "First", r.First); err == nil && first > ns {
		return 0, invalid("submit", "First", r.First.Round(0).UTC().String(), "must not be after now")
	}
	return first, err
}

// refuse says why r can never run, or not now; "" if it can.
func (e *Engine) refuse(r Request) lockstep.Reason {
	k := e.config.Classes[r.Class]
	switch {
	case e.blocksOf(int64(r.Prompt)+int64(r.Output)-1) > int64(e.config.Blocks):
		return ReasonTooLong
	case e.config.GuardTPOT && k.TPOT > 0 && r.Output > 1 && e.cost(Load{Decodes: 1, Context: int64(r.Prompt) + int64(r.Output)}) > k.TPOT:
		return ReasonPace
	case len(e.waiting) >= e.config.Queue:
		return serving.ReasonFull
	case e.config.RefuseLate && k.TTFT > 0 && r.Made == 0 && e.least(r.Prompt, r.Blocks) > k.TTFT:
		return serving.ReasonDeadline
	}
	return ""
}

// least is the shortest time in which the first token of a prompt may come: what is not cached computed in one go.
func (e *Engine) least(prompt int, hashes []BlockHash) time.Duration {
	found := 0
	if !e.config.DisableCache {
		found, _, _ = e.prefixes.match(hashes[:min(len(hashes), (prompt-1)/e.config.BlockTokens)])
	}
	l := Load{}
	l.prefill(int64(found)*int64(e.config.BlockTokens), int64(prompt)-int64(found)*int64(e.config.BlockTokens))
	return e.cost(l)
}

// cost asks for the time of an iteration and holds it in range.
func (e *Engine) cost(l Load) time.Duration {
	return max(0, min(e.config.Cost.Iteration(l), maxSpan))
}

// prefill adds n tokens of a prompt after the first ctx of it.
func (l *Load) prefill(ctx, n int64) {
	l.Prefill += int(n)
	l.Pairs += n*ctx + n*(n+1)/2
	l.Context += ctx
}

// blocksOf is how many blocks n tokens need.
func (e *Engine) blocksOf(n int64) int64 {
	return (n + int64(e.config.BlockTokens) - 1) / int64(e.config.BlockTokens)
}

// place returns an empty place for a sequence.
func (e *Engine) place() int32 {
	if n := len(e.free); n > 0 {
		i := e.free[n-1]
		e.free = e.free[:n-1]
		return i
	}
	e.sequences = append(e.sequences, sequence{})
	return int32(len(e.sequences) - 1)
}

// find returns the place of a ticket's sequence.
func (e *Engine) find(t serving.Ticket) (int32, bool) {
	i := uint64(t) & (1<<32 - 1)
	if i >= uint64(len(e.sequences)) {
		return 0, false
	}
	s := &e.sequences[i]
	return int32(i), s.state != absent && s.gen == uint32(t>>32)
}

// Cancel forgets a request, whether it waits or runs, and returns true; tokens that the running iteration makes for it do
// not count. It returns false if the request is over or was never there.
func (e *Engine) Cancel(t serving.Ticket) bool {
	i, ok := e.find(t)
	if !ok {
		return false
	}
	s := &e.sequences[i]
	e.byClass[s.class].Cancelled++
	if s.state == waiting {
		e.unheap(i)
	} else {
		e.leave(i)
		k := slices.Index(e.running, i)
		e.running = slices.Delete(e.running, k, k+1)
	}
	e.forget(i)
	return true
}

// Stop says that the token which the running iteration makes for a request, or else its latest one, is its last, as a
// model says by an end token. Call it between the end of the iteration and Step. It returns false if the request does
// not run or has no token.
func (e *Engine) Stop(t serving.Ticket) bool {
	i, ok := e.find(t)
	if !ok || e.sequences[i].state != running {
		return false
	}
	s := &e.sequences[i]
	made := s.done
	if s.chunk > 0 && s.chunk == s.left() {
		made++
	}
	if made == 0 {
		return false
	}
	e.whole -= int64(s.output - made)
	s.output = made
	return true
}

// Lost is a request that was in an engine that is gone.
type Lost struct {
	ID     serving.RequestID // as given
	Tokens int               // of the output that were made, for Request.Made
	First  time.Time         // when the first of them came, for Request.First; the zero time if none did
}

// Reset tells that the replica is gone, with all memory: it appends the requests that ran and then those that waited,
// each in order, to dst, and leaves the engine empty and ready. Statistics go on.
func (e *Engine) Reset(now time.Time, dst []Lost) ([]Lost, error) {
	ns, err := e.clock("reset", now)
	if err != nil {
		return dst, err
	}
	e.now = ns
	e.prefixes.clear()
	for _, i := range e.running {
		dst = append(dst, e.lose(i))
	}
	for len(e.waiting) > 0 {
		i := e.waiting[0]
		e.unheap(i)
		dst = append(dst, e.lose(i))
	}
	e.running, e.private, e.whole = e.running[:0], 0, 0
	clear(e.inClass)
	return dst, nil
}

// lose empties place i, whose blocks are gone.
func (e *Engine) lose(i int32) Lost {
	s := &e.sequences[i]
	e.byClass[s.class].Lost++
	lost := Lost{ID: s.id, Tokens: int(s.done)}
	if s.done > 0 {
		lost.First = lockstep.FromNanos(s.first)
	}
	e.forget(i)
	return lost
}

// leave takes sequence i out of what runs: its own blocks become free, shared ones are used once less.
func (e *Engine) leave(i int32) {
	s := &e.sequences[i]
	e.prefixes.release(s.tail)
	e.private -= int(s.private)
	e.whole -= s.whole()
	e.inClass[s.class]--
	s.private, s.cached, s.tail, s.chunk = 0, 0, root, 0
}

// fetch frees what s has outside the device's memory.
func (e *Engine) fetch(s *sequence) {
	if !s.remote {
		e.swapped -= int(s.swapped)
	}
	s.swapped, s.remote = 0, false
}

// forget empties place i of a sequence that neither runs nor waits.
func (e *Engine) forget(i int32) {
	s := &e.sequences[i]
	e.fetch(s)
	*s = sequence{gen: s.gen}
	e.free = append(e.free, i)
}

// before is the order of requests: by priority, under EDF by when the first token is due, by arrival.
func (e *Engine) before(a, b int32) bool {
	x, y := &e.sequences[a], &e.sequences[b]
	switch {
	case x.priority != y.priority:
		return x.priority > y.priority
	case x.rank != y.rank:
		return x.rank < y.rank
	}
	return x.seq < y.seq
}

// push puts sequence i among those that wait.
func (e *Engine) push(i int32) {
	e.sequences[i].state = waiting
	e.waiting = append(e.waiting, i)
	e.sequences[i].at = int32(len(e.waiting) - 1)
	e.up(len(e.waiting) - 1)
}

// unheap takes sequence i out of those that wait.
func (e *Engine) unheap(i int32) {
	at, last := int(e.sequences[i].at), len(e.waiting)-1
	e.swap(at, last)
	e.waiting = e.waiting[:last]
	if at < last {
		e.down(at)
		e.up(at)
	}
}

func (e *Engine) swap(a, b int) {
	w := e.waiting
	w[a], w[b] = w[b], w[a]
	e.sequences[w[a]].at, e.sequences[w[b]].at = int32(a), int32(b)
}

func (e *Engine) up(k int) {
	for k > 0 && e.before(e.waiting[k], e.waiting[(k-1)/2]) {
		e.swap(k, (k-1)/2)
		k = (k - 1) / 2
	}
}

func (e *Engine) down(k int) {
	for {
		c := 2*k + 1
		if c+1 < len(e.waiting) && e.before(e.waiting[c+1], e.waiting[c]) {
			c++
		}
		if c >= len(e.waiting) || !e.before(e.waiting[c], e.waiting[k]) {
			return
		}
		e.swap(k, c)
		k = c
	}
}
