package autoscale

import (
	"math"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/int128"
	"github.com/lockstep-gpu/lockstep/serving"
)

// Traffic is requests that are to be served, and the tokens that they bring and are expected to make.
type Traffic struct {
	Requests int64 `json:"requests"` // Requests is how many; at least 0.
	Prompt   int64 `json:"prompt"`   // Prompt is the tokens of their prompts, together.
	Output   int64 `json:"output"`   // Output is the tokens that they are expected to generate, together; 0 means unknown.
}

// Capacity says how much of a replica traffic takes.
type Capacity interface {
	// Busy returns how long one replica is busy with t when it works as hard as it may while it keeps its objective. It
	// grows with t, is never negative, and is the same for equal t.
	Busy(t Traffic) time.Duration
}

// maxBatch is the largest batch that is looked for.
const maxBatch = 1 << 16

// Batched is the Capacity of a replica that serves requests in batches: the largest batch of which two fit the
// objective, one that forms while the other runs (Shen et al., Nexus, SOSP 2019, section 6.1).
type Batched struct {
	Latency   serving.Latency `json:"-"`                  // Latency is how long a batch takes; it does not fall as the batch grows.
	Objective time.Duration   `json:"objective"`          // Objective is within what a request is to be answered; more than 0.
	MaxBatch  int             `json:"maxBatch,omitempty"` // MaxBatch is the largest batch, at most 65536; 0 means 65536.
}

// Validate reports every fault of b, joined; an objective that no batch meets is one.
func (b Batched) Validate() error {
	f := faults{op: "batched"}
	f.count("MaxBatch", int64(b.MaxBatch), 0, maxBatch)
	f.span("Objective", b.Objective, 1, time.Hour)
	if b.Latency == nil {
		f.bad("Latency", "nil", "is needed")
	}
	if err := f.err(); err != nil {
		return err
	}
	switch d := b.Latency.Batch(1); {
	case d <= 0:
		f.bad("Latency", d.String(), "want more than 0 for a batch of 1")
	case d > b.Objective/2:
		f.bad("Objective", b.Objective.String(), "is less than twice the latency of one, "+d.String())
	}
	return f.err()
}

// Batch returns the batch that b is about and how long it takes; 0 if none keeps the objective.
func (b Batched) Batch() (n int, took time.Duration) {
	if b.Latency == nil {
		return 0, 0
	}
	n = serving.Largest(b.Latency, max(b.Objective, 0)/2, or(min(max(b.MaxBatch, 0), maxBatch), maxBatch))
	if n == 0 {
		return 0, 0
	}
	return n, max(b.Latency.Batch(n), 1)
}

// Busy returns Requests × latency / batch; the same for each request alone where the objective cannot be kept.
func (b Batched) Busy(t Traffic) time.Duration {
	n, took := b.Batch()
	if n == 0 {
		n, took = 1, b.Objective
	}
	return time.Duration(int128.MulDivUp(t.Requests, int64(took), int64(n)))
}

// Tokens is the Capacity of a replica of a language model with continuous batching. A step of b sequences takes
// Step + b × Sequence + PromptToken for each token of prompts that is worked off beside them. As many prompts begin as
// sequences end; so with prompts of P and outputs of O tokens a step takes Step + b × (Sequence + PromptToken × P/O),
// which is to be at most PerToken, and sequences hold P + O/2 tokens at a time, which are to fit Cache.
type Tokens struct {
	Step         time.Duration `json:"step"`                   // Step is the part of a step that does not depend on the batch; at least 0.
	Sequence     time.Duration `json:"sequence"`               // Sequence is what every sequence in the batch adds; at least 0.
	PromptToken  time.Duration `json:"promptToken"`            // PromptToken is what every token of a prompt adds once; at least 0.
	PerToken     time.Duration `json:"perToken"`               // PerToken is the objective for the time between two tokens of a request; more than 0.
	MaxSequences int           `json:"maxSequences,omitempty"` // MaxSequences is the most sequences at once, at most 65536; 0 means 256.
	Cache        int64         `json:"cache,omitempty"`        // Cache is how many tokens the key-value cache of a replica holds; 0 means no limit.
	Output       int64         `json:"output,omitempty"`       // Output is how many tokens a request generates as long as nothing is known of that; 0 means 128.
}

// Validate reports every fault of k, joined; an objective that no step meets is one.
func (k Tokens) Validate() error {
	f := faults{op: "tokens"}
	f.span("Step", k.Step, 0, time.Hour)
	f.span("Sequence", k.Sequence, 0, time.Hour)
	f.span("PromptToken", k.PromptToken, 0, time.Hour)
	f.span("PerToken", k.PerToken, 1, time.Hour)
	f.count("MaxSequences", int64(k.MaxSequences), 0, maxBatch)
	f.count("Cache", k.Cache, 0, maxTokens)
	f.count("Output", k.Output, 0, maxCount)
	if err := f.err(); err != nil {
		return err
	}
	if d := k.Step + k.Sequence; d > k.PerToken {
		f.bad("PerToken", k.PerToken.String(), "is less than a step of one sequence, "+d.String())
	}
	if k.Step+k.Sequence+k.PromptToken == 0 {
		f.bad("Step", "0s", "nothing takes any time")
	}
	return f.err()
}

// Batch returns how many sequences at once keep the objective and fit the cache, at least 1.
func (k Tokens) Batch(t Traffic) int {
	t = k.expected(t)
	most := int64(or(min(max(k.MaxSequences, 0), maxBatch), 256))
	if t.Requests <= 0 {
		return int(most)
	}
	if each := add(int64(k.Sequence), int128.MulDivUp(int64(k.PromptToken), t.Prompt, t.Output)); each > 0 {
		most = min(most, max(int64(k.PerToken-k.Step), 0)/each)
	}
	if held := add(t.Prompt, t.Output/2); k.Cache > 0 && held > 0 {
		most = min(most, int128.MulDiv(k.Cache, t.Requests, held))
	}
	return int(max(most, 1))
}

// expected fills in what is not known.
func (k Tokens) expected(t Traffic) Traffic {
	t.Requests, t.Prompt = max(t.Requests, 0), max(t.Prompt, 0)
	if t.Output <= 0 {
		t.Output = int128.MulDiv(t.Requests, or(max(k.Output, 0), 128), 1)
	}
	return t
}

// Busy returns Output × (Step / batch + Sequence) + Prompt × PromptToken.
func (k Tokens) Busy(t Traffic) time.Duration {
	batch := int64(k.Batch(t))
	t = k.expected(t)
	d := int128.MulDivUp(t.Output, int64(max(k.Step, 0)), batch)
	d = add(d, int128.MulDiv(t.Output, int64(k.Sequence), 1))
	return time.Duration(add(d, int128.MulDiv(t.Prompt, int64(k.PromptToken), 1)))
}

// add adds two that are not negative, held at the end of int64.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
