// Package dag says which steps of a workflow may run: steps wait for others, and for how those ended.
//
// # Model
//
// A [Step] runs once every step that it comes after has ended as its edge asks: in success, in failure, or in any way.
// If one of them has ended otherwise the step is [Skipped], and that is an end too, which edges of kind Always accept.
// A step that fails is ready again while it has retries left.
//
// A [Tracker] holds one run. Every start of a step is an attempt with a number that grows over the whole run; what is
// said of an attempt that is over changes nothing, so that a message may come twice or late. What a step puts out
// when it succeeds is passed to the steps behind it.
//
// Invariants: no step starts before all that it comes after have ended; each ends once; a step is skipped only if one of
// its edges can no longer hold, or the run is being stopped; the run is over when no step is waiting, ready or running.
//
// # Usage
//
//	run, err := dag.New(dag.Config{Steps: []dag.Step{
//		{ID: "train"},
//		{ID: "evaluate", After: []dag.Edge{{Step: "train"}}},
//		{ID: "notify", After: []dag.Edge{{Step: "evaluate", When: dag.Always}}},
//	}})
//	for _, id := range run.AppendReady(nil) {
//		attempt, err := run.Start(id) // submit a job for it
//	}
//	again, err := run.Finish("train", attempt, dag.Success, []dag.Output{{Name: "model", Value: "gs://..."}})
//
// Steps are jobs to package lifecycle, which decides whether an attempt that ended may be tried again by itself; a run
// counts only what it is told of. A step whose job went to back-off is started when it comes back.
//
// # Order of decision
//
// Ready steps are listed in the order of Config.Steps. Under [FailFast] a final failure of a step that is not Optional
// skips all steps that have not started but those with an edge of kind OnFailure or Always, which wait on.
//
// # Errors
//
// All are *lockstep.Error: ErrInvalid for a config with a cycle (which the error spells out), an edge to no step, an
// empty or unknown word, and texts that are not UTF-8; ErrDuplicate for an ID, an edge or the name of an output given
// twice; ErrUnknown for a step that there is not, and for an attempt that the step never had; ErrConflict for a start of
// what is not ready. Nothing changes then. An attempt that is over is no error: Finish answers Stale.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// New is O(steps + edges); a run is that much over all its calls to Start and Finish together, besides outputs.
// AppendReady is O(steps/64 + ready), Result and Cancel O(steps). 100,000 steps take less than a second (BenchmarkWide).
//
// # Limits
//
// No clock: time-outs and back-off are the host's, by package lifecycle. No loops and no steps that come to be
// during the run: make a new run. Outputs are small strings, such as the address of what was written; their sum is
// bounded by MaxOutput for each step.
package dag
