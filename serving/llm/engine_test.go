package llm

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/serving"
)

// TestGuardKeepsThePaceOfAll is the promise of GuardTPOT: no gap between two tokens of whatever was let in is above TPOT.
func TestGuardKeepsThePaceOfAll(t *testing.T) {
	n, held := 25, 0
	if testing.Short() {
		n = 6
	}
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		c := Config{
			Blocks: 60 + r.IntN(200), BlockTokens: 4, MaxSequences: 16, TokenBudget: 16 + r.IntN(400), WholePrompts: r.IntN(3) == 0,
			ReserveOutput: true, GuardTPOT: true, Order: serving.Order(r.IntN(2)),
			Cost:    Roofline{Overhead: time.Millisecond, Token: 10 * time.Second, KV: 5 * time.Second, Block: 10 * us}, // 5 µs for each token of context
			Classes: []Class{{TPOT: 1500 * time.Microsecond}, {TPOT: 3 * time.Millisecond, TTFT: time.Second}, {}},
		}
		w := newWorld(t, c)
		for range 150 {
			for range r.IntN(3) {
				w.submit(randomRequest(r, c))
			}
			w.run()
			if w.e.Waiting() > 0 && w.e.Running() < c.MaxSequences {
				held++
			}
		}
		w.drain(100_000)
		for id, c := range w.clients { // order does not matter: each stands alone
			if k := w.e.config.Classes[c.request.Class]; k.TPOT > 0 {
				require.LessOrEqual(t, c.gap, k.TPOT, "request %d", id)
				require.True(t, c.paced || c.request.Made > 0)
			}
		}
	}
	require.Positive(t, held)
}

func TestGuardRefusesWhatCannotKeepItsPaceAlone(t *testing.T) {
	w := newWorld(t, Config{GuardTPOT: true, Cost: slow, Classes: []Class{{TPOT: time.Millisecond}}})
	_, reason, err := w.e.Submit(at(0), Request{Prompt: 10, Output: 2})
	require.NoError(t, err)
	require.Equal(t, ReasonPace, reason)
	require.True(t, w.submit(Request{Prompt: 10, Output: 1}), "there is no pace of one token")
	w.drain(10)
}

// TestNobodyStarves: under FIFO requests start in the order in which they came, whatever is short, and all of them end.
func TestNobodyStarves(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 15
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 4))
		c := randomConfig(r)
		c.Order, c.RefuseLate = serving.FIFO, false
		c.Classes = []Class{{TTFT: time.Second}, {}, {TPOT: 5 * time.Millisecond}}
		w := newWorld(t, c)
		for range 200 {
			if r.IntN(3) == 0 {
				q := randomRequest(r, c)
				q.Made, q.Moved = 0, false
				w.submit(q)
			}
			w.run()
		}
		w.drain(100_000)
		require.True(t, slices.IsSorted(w.started))
		require.Len(t, w.started, len(w.clients))
	}
}

func TestEDFAndPriorityStartTheUrgentFirst(t *testing.T) {
	c := Config{
		MaxSequences: 1, TokenBudget: 100, Order: serving.EDF, Cost: slow,
		Classes: []Class{{}, {TTFT: time.Second}, {TTFT: time.Millisecond}, {Priority: 1}, {Priority: -1, TTFT: 1}},
	}
	w := newWorld(t, c)
	for k := range 5 {
		w.submit(Request{Class: k, Prompt: 10, Output: 3}) // IDs are from 1
	}
	w.drain(100)
	require.Equal(t, []serving.RequestID{4, 3, 2, 1, 5}, w.started)
}

func TestLastComeIsPreemptedFirstAndGoesOnFirst(t *testing.T) {
	for _, how := range []Preemption{Recompute, Swap} {
		t.Run(how.String(), func(t *testing.T) {
			w := newWorld(t, Config{Blocks: 8, BlockTokens: 4, MaxSequences: 4, Preemption: how, SwapBlocks: 8, Cost: slow, DisableCache: true})
			for range 3 {
				w.submit(Request{Prompt: 8, Output: 12}) // 3 × 2 blocks, which grow to 5
			}
			var order []serving.RequestID
			for range 100 {
				w.run()
				for _, m := range w.step.Preempt {
					require.Equal(t, how == Swap, m.Swapped)
					order = append(order, m.ID)
				}
				if !w.busy {
					break
				}
			}
			require.Equal(t, []serving.RequestID{3, 2}, order[:2])
			require.False(t, w.busy)
			require.Equal(t, int64(3), w.e.Class(0).Finished)
			stats := w.e.Stats()
			require.Equal(t, how == Swap, stats.Swapped > 0)
			require.Equal(t, how == Recompute, stats.Computed > 3*8, "recompute costs prompts anew")
			require.Equal(t, int64(3*12), stats.Tokens)
		})
	}
}

func TestChunksRideBesideDecodes(t *testing.T) {
	w := newWorld(t, Config{MaxSequences: 8, TokenBudget: 16, Cost: slow})
	w.submit(Request{Prompt: 10, Output: 9})
	w.run()
	w.submit(Request{Prompt: 40, Output: 2})
	for _, want := range []Chunk{{2, 0, 15, false}, {2, 15, 15, false}, {2, 30, 10, true}} {
		w.run()
		require.Equal(t, []serving.RequestID{1}, w.step.Decode)
		require.Equal(t, []Chunk{want}, w.step.Prefill)
	}
	w.run()
	require.Equal(t, []serving.RequestID{1, 2}, w.step.Decode)
	w.drain(20)
}

func TestPrefixIsComputedOnce(t *testing.T) {
	w := newWorld(t, Config{BlockTokens: 4, Cost: slow})
	tokens := []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	hashes := AppendHashes(nil, 7, tokens, 4)
	require.Len(t, hashes, 3)
	w.submit(Request{Prompt: 13, Output: 2, Blocks: hashes})
	w.drain(10)
	require.Equal(t, 3, w.e.Unused())
	w.submit(Request{Prompt: 13, Output: 2, Blocks: hashes})
	w.run()
	require.Equal(t, []Chunk{{2, 12, 1, true}}, w.step.Prefill)
	require.Equal(t, 4, w.e.Used())
	w.submit(Request{Prompt: 12, Output: 2, Blocks: hashes}) // one token has to be computed to go on from
	w.run()
	require.Equal(t, []Chunk{{3, 8, 4, true}}, w.step.Prefill)
	require.Equal(t, int64(20), w.e.Stats().Reused)
	w.drain(10)
}

func TestTwoWhoComputeOnePrefixShareIt(t *testing.T) {
	w := newWorld(t, Config{BlockTokens: 4, Cost: slow})
	hashes := AppendHashes(nil, 7, make([]int32, 12), 4)
	w.submit(Request{Prompt: 12, Output: 3, Blocks: hashes})
	w.submit(Request{Prompt: 12, Output: 3, Blocks: hashes})
	w.run()
	require.Equal(t, 6, w.e.Used())
	w.run() // the copies are free, each has a block for its output
	require.Equal(t, 3+2, w.e.Used())
	w.drain(10)
}

// TestHashesThatAreNoChain: a host that hashes wrongly gets less sharing, nothing else.
func TestHashesThatAreNoChain(t *testing.T) {
	w := newWorld(t, Config{BlockTokens: 4, Cost: slow})
	for _, hashes := range [][]BlockHash{{1, 2, 3}, {2, 1, 3}, {5, 5, 5}, {3, 2}, {1, 3}} {
		w.submit(Request{Prompt: 13, Output: 5, Blocks: hashes})
		w.run()
	}
	w.drain(100)
}

func TestStopEndsAtTheTokenJustMade(t *testing.T) {
	w := newWorld(t, Config{Cost: slow})
	require.True(t, w.submit(Request{Prompt: 4, Output: 100}))
	ticket := w.clients[1].ticket
	require.False(t, w.e.Stop(ticket), "it waits")
	w.run()
	w.run()
	w.now = w.step.Until
	require.True(t, w.e.Stop(ticket)) // the second token is an end token
	w.clients[1].request.Output = 2
	w.run()
	require.Len(t, w.step.Finished, 1)
	require.Equal(t, 2, w.step.Finished[0].Tokens)
	require.False(t, w.busy)
	require.False(t, w.e.Stop(ticket))
}

func TestLateAreGivenBack(t *testing.T) {
	w := newWorld(t, Config{MaxSequences: 1, TokenBudget: 100, RefuseLate: true, Cost: slow, Classes: []Class{{TTFT: 5 * time.Millisecond}}})
	_, reason, err := w.e.Submit(at(0), Request{Prompt: 401, Output: 1}) // 1 ms + 401 × 10 µs
	require.NoError(t, err)
	require.Equal(t, serving.ReasonDeadline, reason)
	w.submit(Request{Prompt: 100, Output: 10})
	w.submit(Request{Prompt: 100, Output: 10})
	w.drain(100)
	require.Equal(t, int64(1), w.e.Class(0).Late)
	require.Equal(t, int64(1), w.e.Class(0).Attained)
}

func TestSameCallsSameSteps(t *testing.T) {
	play := func() string {
		r := rand.New(rand.NewPCG(9, 9))
		w := newWorld(t, randomConfig(r))
		var out []Step
		for range 200 {
			if r.IntN(3) == 0 {
				w.submit(randomRequest(r, w.e.config))
			}
			w.run()
			s := w.step
			s.Decode, s.Prefill, s.Finished = slices.Clone(s.Decode), slices.Clone(s.Prefill), slices.Clone(s.Finished)
			out = append(out, s)
		}
		text, err := json.Marshal(out)
		require.NoError(t, err)
		return string(text)
	}
	require.Equal(t, play(), play())
}

func TestBadConfigs(t *testing.T) {
	c := Config{
		Blocks: -1, BlockTokens: -1, MaxSequences: 300, TokenBudget: 299, Batching: 9, Order: 9, Preemption: 9, SwapBlocks: -1,
		WatermarkFraction: math.NaN(), Queue: -1, Classes: []Class{{TTFT: -1, TPOT: -1}}, Cost: Roofline{Token: -1, KV: math.MaxInt64},
	}
	_, err := New(c)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, field := range []string{
		"Blocks", "BlockTokens", "TokenBudget = 299", "Batching", "Order", "Preemption", "SwapBlocks",
		"WatermarkFraction = NaN", "Queue", "Classes[0].TTFT", "Classes[0].TPOT", "Cost.Token", "Cost.KV",
	} {
		require.ErrorContains(t, err, field)
	}
	for _, c := range []Config{{Blocks: math.MaxInt}, {WatermarkFraction: 1}, {WatermarkFraction: math.Inf(1)}, {TokenBudget: 1}, {Classes: make([]Class, 2000)}} {
		_, err := New(c)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err = New(Config{})
	require.NoError(t, err)
}

func TestBadCallsChangeNothing(t *testing.T) {
	w := newWorld(t, Config{Cost: slow})
	w.submit(Request{Prompt: 5, Output: 5})
	w.run()
	w.run()
	before := w.e.Stats()
	for _, r := range []Request{
		{Prompt: 0, Output: 1},
		{Prompt: 1},
		{Prompt: -1, Output: 1},
		{Prompt: math.MaxInt, Output: 1},
		{Prompt: 1, Output: math.MaxInt},
		{Prompt: 1, Output: 2, Made: -1},
		{Prompt: 1, Output: 2, Made: 2, First: at(0)},
		{Prompt: 1, Output: 2, Moved: true},
		{Prompt: 1, Output: 2, Made: 1},
		{Prompt: 1, Output: 2, Made: 1, First: at(time.Hour)},
	} {
		_, _, err := w.e.Submit(w.now, r)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, _, err := w.e.Submit(w.now, Request{Class: 1, Prompt: 1, Output: 1})
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	_, _, err = w.e.Submit(at(-1), Request{Prompt: 1, Output: 1})
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, err = w.e.Reset(time.Time{}, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	var step Step
	require.ErrorIs(t, w.e.Step(at(-1), &step), lockstep.ErrPast)
	require.Equal(t, Step{Decode: step.Decode, Prefill: step.Prefill}, step)
	require.False(t, w.e.Cancel(0))
	require.False(t, w.e.Cancel(math.MaxUint64))
	require.False(t, w.e.Stop(math.MaxUint64))
	require.Equal(t, ClassStats{}, w.e.Class(-1))
	require.Equal(t, before, w.e.Stats())
	w.run()
	w.drain(10)
}

// TestNoNewcomerPassesAStuckPrompt: where the guard leaves no room for the next chunk of a prompt that has started, a shorter one
// behind it does not start either.
func TestNoNewcomerPassesAStuckPrompt(t *testing.T) {
	// 1 ms and 1 µs for each pair: once 400 tokens are computed not even one more fits beside a decode with 1.4 ms.
	w := newWorld(t, Config{
		ReserveOutput: true, GuardTPOT: true, Cost: Roofline{Overhead: time.Millisecond, Pair: time.Second},
		Classes: []Class{{}, {TPOT: 1400 * us}},
	})
	w.submit(Request{Class: 1, Prompt: 1, Output: 300})
	w.run()
	w.submit(Request{Prompt: 1000, Output: 1})
	for w.run(); len(w.step.Prefill) > 0; w.run() {
		require.Less(t, w.step.Prefill[0].From, 400)
	}
	require.Equal(t, 2, w.e.Running())
	w.submit(Request{Prompt: 3, Output: 1})
	for w.run(); w.e.Class(1).Finished == 0; w.run() {
		require.Empty(t, w.step.Prefill)
		require.Equal(t, []serving.RequestID{1, 2}, w.started)
	}
	require.Equal(t, []serving.RequestID{1, 2, 3}, w.started)
	w.drain(20)
}

func TestOnTimeToTheNanosecond(t *testing.T) {
	for ttft, want := range map[time.Duration]int64{1100 * us: 1, 1100*us - 1: 0} { // order does not matter
		w := newWorld(t, Config{Cost: slow, Classes: []Class{{TTFT: ttft}}})
		w.submit(Request{Prompt: 10, Output: 2}) // 1 ms + 10 × 10 µs
		w.drain(10)
		require.Equal(t, want, w.e.Class(0).OnTime)
	}
}

const us = time.Microsecond

// TestPrefillAndDecodeOnTwoReplicas: one computes prompts and the first token, the other goes on with what it computed.
func TestPrefillAndDecodeOnTwoReplicas(t *testing.T) {
	c := Config{BlockTokens: 4, Cost: slow, Classes: []Class{{TTFT: 2 * time.Millisecond, TPOT: 3 * time.Millisecond}}}
	prefill, decode := newWorld(t, c), newWorld(t, c)
	prefill.submit(Request{Prompt: 50, Output: 1})
	prefill.run()
	prefill.run()
	f := prefill.step.Finished[0]
	require.True(t, f.OnTime)

	decode.now = prefill.now
	decode.submit(Request{Prompt: 50, Output: 4, Made: 1, Moved: true, First: f.First})
	decode.run()
	require.Equal(t, []serving.RequestID{1}, decode.step.Restore)
	require.Equal(t, []serving.RequestID{1}, decode.step.Decode)
	require.Equal(t, Load{Decodes: 1, Context: 51, Swapped: 13}, decode.step.Load)
	require.Equal(t, 13, decode.e.Used())
	for range 3 {
		decode.run()
	}
	got := decode.step.Finished[0]
	require.Equal(t, []any{4, true, true, f.First}, []any{got.Tokens, got.OnTime, got.OnPace, got.First})
	require.Equal(t, int64(3), decode.e.Stats().Tokens)
}

// TestReplicaDeathLosesNoToken: what a replica had made is not made twice.
func TestReplicaDeathLosesNoToken(t *testing.T) {
	w := newWorld(t, Config{Cost: slow})
	w.submit(Request{Prompt: 50, Output: 10})
	w.submit(Request{Prompt: 50, Output: 10})
	for range 5 {
		w.run()
	}
	w.die()
	require.Equal(t, int64(2), w.e.Class(0).Lost)
	w.run()
	require.Equal(t, []Chunk{{3, 0, 54, true}, {4, 0, 54, true}}, w.step.Prefill)
	w.drain(20)
	require.Equal(t, int64(20), w.e.Stats().Tokens)
}

func TestQueueIsBounded(t *testing.T) {
	w := newWorld(t, Config{Queue: 1, Cost: slow})
	require.True(t, w.submit(Request{Prompt: 5, Output: 5}))
	_, reason, err := w.e.Submit(at(0), Request{Prompt: 5, Output: 5})
	require.NoError(t, err)
	require.Equal(t, serving.ReasonFull, reason)
}

func TestNamesOfEnums(t *testing.T) {
	require.Equal(t, []string{"continuous", "static", "recompute", "swap", "Batching(7)"},
		[]string{Continuous.String(), Static.String(), Recompute.String(), Swap.String(), Batching(7).String()})
}

func TestTooLongIsRefused(t *testing.T) {
	w := newWorld(t, Config{Blocks: 4, BlockTokens: 4, Cost: slow})
	require.True(t, w.submit(Request{Prompt: 10, Output: 7}))
	_, reason, err := w.e.Submit(at(0), Request{Prompt: 10, Output: 8})
	require.NoError(t, err)
	require.Equal(t, ReasonTooLong, reason)
	w.drain(20)
	require.Equal(t, ClassStats{Accepted: 1, Refused: 1, Finished: 1, OnTime: 1, OnPace: 1, Attained: 1}, w.e.Class(0))
}

// wild is a cost that no one should write.
type wild time.Duration

func (w wild) Iteration(Load) time.Duration { return time.Duration(w) }

func TestCostOutOfRangeIsHeld(t *testing.T) {
	for d, want := range map[wild]time.Duration{-5: 0, math.MaxInt64: maxSpan, math.MinInt64: 0} { // order does not matter
		w := newWorld(t, Config{Cost: d})
		w.submit(Request{Prompt: 5, Output: 5})
		w.run()
		require.Equal(t, at(want), w.step.Until)
		w.drain(10)
	}
}

func TestRoofline(t *testing.T) {
	r := Roofline{Overhead: 1000, Weights: 500, Token: 2_000_000, Pair: 1_000_000, KV: 3_000_000, Block: 7}
	require.Equal(t, time.Duration(1000+500), r.Iteration(Load{}))
	require.Equal(t, time.Duration(1000+2*300+100), r.Iteration(Load{Prefill: 200, Decodes: 100, Pairs: 100}))
	require.Equal(t, time.Duration(1000+500+3*100+7*5), r.Iteration(Load{Decodes: 10, Context: 100, Swapped: 5}))
	require.Equal(t, time.Duration(1), Roofline{KV: 1}.Iteration(Load{Context: 1}), "parts round up")
	huge := Load{math.MaxInt, math.MaxInt, math.MaxInt64, math.MaxInt64, math.MaxInt}
	most := Roofline{maxSpan, maxSpan, maxSpan, maxSpan, maxSpan, maxSpan}
	require.Equal(t, maxSpan, most.Iteration(huge))
	require.Equal(t, time.Duration(0), Roofline{-1, -1, -1, -1, -1, -1}.Iteration(Load{-1, -1, -1, -1, -1}))
}

func TestRooflineOfAModel(t *testing.T) {
	m := perfmodel.Model{Layers: 32, Hidden: 4096, Heads: 32, FFN: 11008, Vocab: 32000, Gated: true} // Llama 7B
	r, err := NewRoofline(m, 1, 2, perfmodel.Rate{Linear: 400e12}, 2_000_000_000_000)
	require.NoError(t, err)
	// 6.74 G parameters are 13.5 GB, 6.6 G of them are multiplied for each token; 2 × 32 × 4096 × 2 bytes of keys and values.
	require.InDelta(t, 6.74e6, float64(r.Weights), 0.02e6)
	require.InDelta(t, 33.0e9, float64(r.Token), 0.5e9)
	require.InDelta(t, 262.1e6, float64(r.KV), 0.1e6)
	half, err := NewRoofline(m, 2, 2, perfmodel.Rate{Linear: 400e12}, 2_000_000_000_000)
	require.NoError(t, err)
	require.InDelta(t, float64(r.KV)/2, float64(half.KV), 1)
	require.InDelta(t, float64(r.Token)/2, float64(half.Token), 1)
	for _, bad := range []struct {
		tp, element int
		rate        float64
		bandwidth   lockstep.BytesPerSecond
	}{{0, 2, 1, 1}, {1, 0, 1, 1}, {1, 2, 0, 1}, {1, 2, math.NaN(), 1}, {1, 2, 1, 0}, {5, 2, 1, 1}} {
		_, err := NewRoofline(m, bad.tp, bad.element, perfmodel.Rate{Linear: lockstep.FLOPs(bad.rate)}, bad.bandwidth)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err = NewRoofline(perfmodel.Model{}, 1, 2, perfmodel.Rate{Linear: 1}, 1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestHashesNameWholePrefixes(t *testing.T) {
	tokens := make([]int32, 64)
	for i := range tokens {
		tokens[i] = int32(i * i)
	}
	all := AppendHashes(nil, 1, tokens, 16)
	require.Len(t, all, 4)
	require.Equal(t, all[:2], AppendHashes(nil, 1, tokens[:47], 16), "a prompt that goes on has the same hashes so far")
	require.Equal(t, append([]BlockHash{5}, all...), AppendHashes([]BlockHash{5}, 1, tokens, 16))
	seen := make(map[BlockHash]bool)
	for k := -1; k < len(tokens); k++ { // change one token
		other := slices.Clone(tokens)
		if k >= 0 {
			other[k] ^= 1
		}
		for j, h := range AppendHashes(nil, 1, other, 16) {
			require.Equal(t, k < 0 || k >= (j+1)*16, h == all[j])
			require.True(t, h == all[j] || !seen[h])
			seen[h] = true
		}
	}
	require.NotEqual(t, all[0], AppendHashes(nil, 2, tokens, 16)[0])
	require.NotEqual(t, all[0], AppendHashes(nil, 1, tokens, 8)[0])
	require.Len(t, AppendHashes(nil, 1, tokens, -1), 64)
}

func TestStepAllocatesNothing(t *testing.T) {
	e, err := New(Config{Blocks: 2000, MaxSequences: 64, Cost: slow, GuardTPOT: true, Classes: []Class{{TTFT: time.Second, TPOT: time.Second}}})
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 1))
	var prompts [64][]BlockHash
	for k := range prompts {
		prompts[k] = chain(r, 20)
	}
	var step Step
	now, id := at(0), 0
	cycle := func() {
		for range 20 {
			id++
			if _, _, err := e.Submit(now, Request{ID: serving.RequestID(id), Prompt: 330, Output: 40, Blocks: prompts[id%64]}); err != nil {
				panic(err)
			}
		}
		for range 100 {
			if err := e.Step(now, &step); err != nil {
				panic(err)
			}
			now = step.Until
		}
	}
	for range 200 {
		cycle()
	}
	require.Zero(t, testing.AllocsPerRun(100, cycle))
	require.Positive(t, e.Stats().Reused)
}

// FuzzEngine reads calls from bytes.
func FuzzEngine(f *testing.F) {
	f.Add(uint64(1), []byte{1, 2, 3, 250, 9, 9, 9, 200, 201, 3, 3})
	f.Add(uint64(77), []byte("a text of many calls, none of which is meant"))
	f.Fuzz(func(t *testing.T, seed uint64, calls []byte) {
		r := rand.New(rand.NewPCG(seed, 5))
		w := newWorld(t, randomConfig(r))
		for _, b := range calls[:min(len(calls), 300)] {
			switch {
			case b < 100:
				w.submit(Request{Class: int(b) % 3, Prompt: 1 + int(b)*2, Output: 1 + int(b)%20, Blocks: chain(r, int(b)/4)})
			case b < 110 && w.next > 0:
				if id := 1 + serving.RequestID(b)%w.next; w.clients[id] != nil {
					w.cancel(id)
				}
			case b == 255:
				w.die()
			default:
				w.run()
			}
		}
		w.drain(100_000)
	})
}
