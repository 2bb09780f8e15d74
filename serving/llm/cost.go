package llm

import (
	"errors"
	"math"
	"math/bits"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

// Load is what an iteration computes.
type Load struct {
	Prefill int   // tokens of prompts, and of outputs that are computed anew
	Decodes int   // requests that go on by one token
	Pairs   int64 // pairs of a token of a prompt and one before it or itself
	Context int64 // tokens whose keys and values are read: those of decodes, and what chunks find computed
	Swapped int   // blocks that move to host memory or back, or come from another replica, before it
}

// Cost says how long an iteration takes. It does not fall when a field of the load grows, and is the same for the same
// load: the scheduler asks it what an iteration would take, and a simulation how long it took.
type Cost interface {
	// Iteration returns the time of an iteration, from 0 to 100 h; what is outside is held there.
	Iteration(Load) time.Duration
}

// Roofline is a Cost of arithmetic and memory that overlap: Overhead + max(Token × tokens + Pair × pairs, Weights + KV ×
// context) + Block × blocks (Williams et al., "Roofline", CACM 2009). None is negative.
type Roofline struct {
	Overhead time.Duration `json:"overhead,omitempty"` // of an iteration: launches, sampling, the host
	Weights  time.Duration `json:"weights,omitempty"`  // to read the weights once
	Token    time.Duration `json:"token,omitempty"`    // arithmetic of a million tokens, without attention
	Pair     time.Duration `json:"pair,omitempty"`     // arithmetic of a million pairs in attention
	KV       time.Duration `json:"kv,omitempty"`       // to read the keys and values of a million tokens
	Block    time.Duration `json:"block,omitempty"`    // to move a block to host memory or back, or from another replica
}

// Iteration returns the time of an iteration; parts of a nanosecond round up.
func (r Roofline) Iteration(l Load) time.Duration {
	overhead, weights := min(max(r.Overhead, 0), maxSpan), min(max(r.Weights, 0), maxSpan)
	arithmetic := min(perMillion(r.Token, addHeld(l.Prefill, l.Decodes)), maxSpan) + min(perMillion(r.Pair, l.Pairs), maxSpan)
	memory := weights + min(perMillion(r.KV, l.Context), maxSpan)
	moves := perMillion(r.Block, mulHeld(l.Swapped, 1_000_000))
	return min(overhead+max(arithmetic, memory)+moves, maxSpan)
}

// Validate reports all faults of r, joined.
func (r Roofline) Validate() error {
	return errors.Join(
		checkSpan("config", "Cost.Overhead", r.Overhead),
		checkSpan("config", "Cost.Weights", r.Weights),
		checkSpan("config", "Cost.Token", r.Token),
		checkSpan("config", "Cost.Pair", r.Pair),
		checkSpan("config", "Cost.KV", r.KV),
		checkSpan("config", "Cost.Block", r.Block),
	)
}

// addHeld returns a + b, held at the end of int64; what is below 0 counts as 0.
func addHeld(a, b int) int64 {
	a, b = max(a, 0), max(b, 0)
	if int64(a) > math.MaxInt64-int64(b) {
		return math.MaxInt64
	}
	return int64(a) + int64(b)
}

// mulHeld returns a × b, held at the end of int64; a below 0 counts as 0.
func mulHeld(a int, b int64) int64 {
	hi, lo := bits.Mul64(uint64(max(a, 0)), uint64(b))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// perMillion returns n times d over a million, rounded up and held at maxSpan.
func perMillion(d time.Duration, n int64) time.Duration {
	const million = 1_000_000
	return min(time.Duration(int128.MulDivUp(int64(d), n, million)), maxSpan)
}

// NewRoofline returns what iterations of m take, divided over tp devices, each of which computes at rate and reads memory
// at bandwidth, with element bytes for a weight, a key or a value. Overhead, the time of collectives and Block are left
// to the caller. It leaves out what devices exchange, and takes all experts as read.
func NewRoofline(m perfmodel.Model, tp, element int, rate perfmodel.Rate, bandwidth lockstep.BytesPerSecond) (Roofline, error) {
	if err := errors.Join(m.Validate(), checkInt("roofline", "tp", tp, 1, 1<<16), checkInt("roofline", "element", element, 1, 8)); err != nil {
		return Roofline{}, err
	}
	if bandwidth <= 0 {
		return Roofline{}, invalid("roofline", "bandwidth", strconv.FormatInt(int64(bandwidth), 10), "must be above 0")
	}
	if !(rate.Linear > 0) {
		return Roofline{}, invalid("roofline", "rate.Linear", formatFloat(float64(rate.Linear)), "must be above 0")
	}
	kv, err := m.KVCache(m.Whole(), tp, element, 1_000_000)
	if err != nil {
		return Roofline{}, err
	}
	token := m.Work(m.Whole(), perfmodel.Batch{Tokens: 1_000_000}).Forward
	pair := m.Work(m.Whole(), perfmodel.Batch{Pairs: 1_000_000}).Forward
	read := func(bytes float64) time.Duration { return span(bytes / float64(bandwidth)) }
	return Roofline{
		Weights: read(float64(m.Parameters(m.Whole())) * float64(element) / float64(tp)),
		Token:   token.Time(rate) / time.Duration(tp),
		Pair:    pair.Time(rate) / time.Duration(tp),
		KV:      read(float64(kv)),
	}, nil
}

// span turns seconds, which are not negative, into a Duration up to maxSpan.
func span(seconds float64) time.Duration {
	return time.Duration(math.Round(min(seconds*1e9, float64(maxSpan))))
}
