package llm

// Stats counts what an Engine did since New.
type Stats struct {
	Iterations int64 // Steps that computed something
	Computed   int64 // tokens of prompts, and of outputs anew, whose iteration ended
	Reused     int64 // tokens of prompts that were found in the prefix cache
	Tokens     int64 // tokens of outputs
	Recomputed int64 // preemptions whose tokens were dropped
	Swapped    int64 // preemptions whose tokens moved to host memory
}

// ClassStats counts the requests of a class since New. Accepted = Finished + Cancelled + Late + Lost + those that wait or run.
type ClassStats struct {
	Accepted  int64 // by Submit
	Refused   int64 // by Submit
	Late      int64 // accepted and given back by RefuseLate
	Cancelled int64 // by Cancel
	Lost      int64 // by Reset
	Finished  int64 // with all tokens
	OnTime    int64 // of the finished, with a first token within TTFT
	OnPace    int64 // of the finished, with a mean time between tokens within TPOT
	Attained  int64 // of the finished, with both
}

// Stats returns what the engine did.
func (e *Engine) Stats() Stats { return e.stats }

// Class returns the counts of class k, zero if there is none.
func (e *Engine) Class(k int) ClassStats {
	if k < 0 || k >= len(e.byClass) {
		return ClassStats{}
	}
	return e.byClass[k]
}

// Waiting is how many requests wait, preempted ones among them.
func (e *Engine) Waiting() int { return len(e.waiting) }

// Running is how many requests run.
func (e *Engine) Running() int { return len(e.running) }

// Used is how many blocks are taken by requests that run. Invariant: Used + Unused ≤ Config.Blocks.
func (e *Engine) Used() int { return e.private + e.prefixes.count - e.prefixes.unused }

// Unused is how many blocks keep prefixes that no request uses; they give way when blocks are needed.
func (e *Engine) Unused() int { return e.prefixes.unused }

// Backlog is how many tokens have to be computed before each request that is there has its next one: what is left of
// prompts, and one for each that goes on by a token. It goes through all requests.
func (e *Engine) Backlog() int64 {
	sum := int64(0)
	for _, list := range [2][]int32{e.running, e.waiting} {
		for _, i := range list {
			sum += int64(e.sequences[i].left())
		}
	}
	return sum
}
