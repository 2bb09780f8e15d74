// Package otel puts measurements and decisions of a scheduler on OpenTelemetry.
//
// # Model
//
// A Recorder is a lockstep.Recorder on the metric API: it makes one instrument
// for each descriptor of a table (Metrics), of a provider that the host passes in,
// and holds no global. Instrument says what each is called. Invariants: a metric
// has at most Config.Series sets of attributes, an attribute at most Config.Values
// values, beside "other"; what no descriptor fits is dropped and counted.
//
// A Tracer stands in front of a scheduler and makes spans of what goes in and
// comes out:
//
//   - gpusched.event: one event, with job, kind, node, reason, and the error where
//     it was refused;
//   - gpusched.decision: one Step; below it
//   - gpusched.action: one for each action, with job, outcome, reason, attempt,
//     members, devices, level, and of an eviction for whom and at what cost; it
//     links to the submission of its job;
//   - gpusched.wait: from when a job begins to wait until it starts, in the trace
//     of its submission. It has an event for each action about the job and for
//     each change of why it waits, with reason, requested and available, and the
//     trace and span of the decision.
//
// So from the trace of a request that submitted a job one reads why it waited,
// and goes to each decision about it; and from a decision to whoever asked for the
// jobs. A job that is evicted or fails and waits again does so in the same trace.
//
// # Usage
//
//	recorder, err := lockotel.NewRecorder(lockotel.Config{MeterProvider: meters})
//	tracer, err := lockotel.NewTracer(lockotel.TracerConfig{TracerProvider: tracers})
//	lockotel.Carry(ctx, g) // the trace survives a restart, in a label of g
//	err = tracer.Apply(ctx, s, lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: g})
//	actions, err := tracer.Step(ctx, s, now)
//
// # Order of decision
//
// None is made here. Spans and events follow the calls; waiting jobs are asked
// why in turns, in the order in which they began to wait.
//
// # Errors
//
// NewRecorder and NewTracer return lockstep.ErrInvalid, and ErrDuplicate for metrics
// that would have one name. Apply and Step return what the scheduler does, and
// nothing of their own: what a provider or an exporter fails at is the provider's to
// say.
//
// # Concurrency
//
// A Recorder is safe for concurrent use. A Tracer is not: its calls are serialized
// with those of the scheduler. Neither starts a goroutine.
//
// # Cost
//
// A measurement of a known series allocates nothing, in the SDK neither
// (TestKnownSeriesAllocateNothing, BenchmarkRecord). A Tracer that is off is a
// comparison; one that is on costs about 3.5 µs a span that is sampled and 1.5 µs one
// that is not, most of it the SDK's (BenchmarkDecision): O(actions) a decision,
// beside TracerConfig.Waiting jobs that are asked, and about 300 bytes a job.
//
// # Limits
//
// The scheduler tells no stages of a decision, so the spans below it are its
// actions. Spans of events and decisions have the provider's clock unless
// TracerConfig.Clock is set; those of waits have the times of events and actions,
// which in a simulation lie elsewhere. Extensions of terms are spans too: sample
// where there are many. Why a job waits is its last try; a pass that is cut short
// tries nobody. No logs, no baggage, no exemplars.
package otel
