// Package llm schedules the requests of a large language model on its replicas, iteration by iteration.
//
// # Model
//
//   - An [Engine] is the scheduler of one replica. A [Request] has a prompt and makes tokens of output, one in an iteration
//     once the prompt is computed. Its keys and values are kept in blocks of KV memory, of which there are [Config].Blocks.
//   - A [Step] is an iteration: which requests go on by a token, which [Chunk] of which prompts are computed beside them, and
//     who leaves the memory for them. Its time is that of its [Load] by a [Cost], such as a [Roofline].
//   - Full blocks of prompts are kept for other requests with the same prefix, by [BlockHash], and give way to what runs, the
//     one unused the longest first.
//   - A [Router] sends requests to replicas by what it takes to be cached there and what waits there.
//
// Invariants: blocks in use are never more than there are, after every call; every request that was accepted gets its tokens exactly
// once, in order, whatever is preempted, or is given back as late, cancelled or lost; a block is shared only once it is
// computed; an iteration has at most TokenBudget tokens, but for a whole prompt above it, which is the only one then.
//
// With GuardTPOT, ReserveOutput and a Cost that tells the true time, no request takes longer than its TPOT between any two tokens
// made here: an iteration that would is not planned.
//
// # Usage
//
//	e, err := llm.New(llm.Config{Blocks: 8192, Classes: []llm.Class{{TTFT: time.Second, TPOT: 50 * time.Millisecond}}, Cost: cost})
//	ticket, refused, err := e.Submit(now, llm.Request{ID: 1, Prompt: 900, Output: 130})
//	err = e.Step(now, &step)        // compute step.Decode and step.Prefill
//	err = e.Step(step.Until, &step) // they are computed: step.Finished, and the next iteration
//
// A simulation submits what arrives up to Until and then calls Step at Until; while Step says that it is not Busy it goes to the
// next arrival. A host calls Step when the device has answered.
//
// # Order of decision
//
// Requests go by priority of their class, under EDF by when their first token is due, by arrival. A step takes, in this order:
// each running request with a token, one token; each other running one, a chunk of what is left of the budget; then those that
// wait, as long as the first of them fits: MaxSequences, GuardTPOT, then blocks for all tokens that it has (and WatermarkFraction
// to spare if others run), then a chunk. None passes the first, and none starts while a running prompt gets no chunk. If a running request needs a block and none is free or
// unused, the last of the running ones in order makes room, itself if need be, and nobody starts in that step; it keeps its place in
// the order. So the first in order always goes on, and under FIFO in one class a request waits at most for those that came before.
//
// GuardTPOT lets a request start if an iteration with all running ones and it, each at its last token, is no longer than the
// strictest TPOT of their classes, and shortens chunks so that the iteration is no longer than the strictest TPOT of those that
// have a token. RefuseLate gives a request back on arrival, or when it is the first that waits.
//
// The Router takes the replica with the fewest tokens to compute until the prompt is done: those of prompts on their way to it, less
// what it had cached, DecodeTokens for each request that has started, and those of the prompt that it has not cached; then the
// fewest requests, then the lowest ID. One with (1 + ImbalanceFraction) times the mean number of requests, rounded up, gets
// no more.
//
// # Sources
//
// Iterations: Yu et al., "Orca", OSDI 2022, section 3. Blocks, preemption of the last that came, recompute and swap: Kwon et
// al., "PagedAttention" (vLLM), SOSP 2023, section 4; the watermark of 0.01 and blocks of 16 are vLLM's. Chunks beside
// decodes: Agrawal et al., "Sarathi-Serve", OSDI 2024, section 4. Prefix trees and least recently used leaves: Zheng et al.,
// "SGLang", NeurIPS 2024, section 3. Bounded loads: Mirrokni et al., SODA 2018. Cache against load in one sum of tokens is ours; Preble
// (Srivatsa et al., ICLR 2025) has one of times.
//
// # Errors
//
// All are *lockstep.Error. ErrInvalid: a configuration (all faults, joined), a request or time out of range. ErrUnknown: a class
// or replica that is not there. ErrDuplicate: a replica that is. ErrPast: a time before one already seen. That a request
// is refused is no error. After an error nothing has changed, but a Step is empty.
//
// # Concurrency
//
// Not safe for concurrent use, except Roofline; the caller serializes calls.
//
// # Cost
//
// Submit is O(log waiting + blocks of the prompt under RefuseLate); Step is O(running + log waiting for each that starts + blocks
// that it shares), and O(log budget) calls of Cost for a chunk under GuardTPOT. Route is O(replicas × log blocks + blocks).
// They allocate nothing once as many requests were there at once and the cache is full. A request takes 144 bytes, a cached block some 40.
//
// # Limits
//
// One replica is one engine. Where decodes have replicas of their own, the host moves requests: Output 1 on the first engine, then
// Made, Moved and First on the second; the engine prices the move and does not overlap it. There is no speculative decoding, and
// there are no adapters. A request that waits preempts none that runs, whatever its priority. The router knows only what it sent; it does not hear what replicas
// evict. There is no snapshot: after a restart the host submits anew.
package llm
