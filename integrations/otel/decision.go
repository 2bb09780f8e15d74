package otel

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
)

// The attributes of spans.
const (
	keyJob       = attribute.Key("lockstep.job")
	keyTenant    = attribute.Key("lockstep.tenant")
	keyQueue     = attribute.Key("lockstep.queue")
	keyAttempt   = attribute.Key("lockstep.attempt")
	keyPolicy    = attribute.Key("lockstep.policy")
	keyEvent     = attribute.Key("lockstep.event")
	keyNode      = attribute.Key("lockstep.node")
	keyAction    = attribute.Key("lockstep.action")
	keyActions   = attribute.Key("lockstep.actions")
	keyOutcome   = attribute.Key("lockstep.outcome")
	keyReason    = attribute.Key("lockstep.reason")
	keyMembers   = attribute.Key("lockstep.members")
	keyGPUs      = attribute.Key("lockstep.gpus")
	keyLevel     = attribute.Key("lockstep.level")
	keyFor       = attribute.Key("lockstep.preemptor")
	keyCost      = attribute.Key("lockstep.eviction_cost_gpu_seconds")
	keyResource  = attribute.Key("lockstep.resource")
	keyRequested = attribute.Key("lockstep.requested")
	keyAvailable = attribute.Key("lockstep.available")
	keyDomain    = attribute.Key("lockstep.domain")
	keyDecision  = attribute.Key("lockstep.decision_span")
	keyTrace     = attribute.Key("lockstep.decision_trace")
)

// Outcomes of actions, as the attribute lockstep.outcome has them.
const (
	outcomeReserved = "reserved"
	outcomeStarted  = "started"
	outcomeReleased = "released"
	outcomeExtended = "extended"
	outcomeEvicted  = "evicted"
	outcomeResized  = "resized"
	outcomeMoved    = "moved"
	outcomeRejected = "rejected"
	outcomeDeferred = "deferred"
)

// outcomeOf returns the word for what an action does to its job.
func outcomeOf(kind lockstep.ActionKind) string {
	switch kind {
	case lockstep.ActionReserve:
		return outcomeReserved
	case lockstep.ActionStart:
		return outcomeStarted
	case lockstep.ActionRelease:
		return outcomeReleased
	case lockstep.ActionExtend:
		return outcomeExtended
	case lockstep.ActionEvict:
		return outcomeEvicted
	case lockstep.ActionResize:
		return outcomeResized
	case lockstep.ActionMove:
		return outcomeMoved
	case lockstep.ActionReject:
		return outcomeRejected
	}
	return string(kind)
}

// Step has s decide in a span of its own, in the trace of ctx, with a span for
// each action below it that links to the submission of its job. The span of a job
// that waits gets an event for each action about it, and where why it waits has
// changed; it ends when the job starts or is rejected. What is returned is what s
// did.
func (t *Tracer) Step(ctx context.Context, s Scheduler, now time.Time) ([]lockstep.Action, error) {
	if !t.On() {
		return s.Step(now)
	}
	ctx, span := t.tracer.Start(ctx, SpanDecision, t.starts()...)
	defer func() { span.End(t.ends()...) }()
	actions, err := s.Step(now)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "step failed")
	}
	for i := range actions {
		t.act(ctx, &actions[i])
	}
	if span.IsRecording() {
		span.SetAttributes(keyActions.Int(len(actions)))
		if t.cfg.Policy != "" {
			span.SetAttributes(keyPolicy.String(t.cfg.Policy))
		}
	}
	if source, ok := s.(Source); ok {
		t.ask(source, now, span)
	}
	return actions, err
}

// act makes the span of an action, and tells the job's own span of it.
func (t *Tracer) act(ctx context.Context, a *lockstep.Action) {
	j := t.jobs[a.Job]
	options := t.starts()
	if j != nil && j.origin.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: j.origin}))
	}
	_, span := t.tracer.Start(ctx, SpanAction, options...)
	outcome := outcomeOf(a.Kind)
	if span.IsRecording() {
		span.SetAttributes(actionAttributes(a, outcome)...)
	}
	span.End(t.ends()...)
	if j == nil {
		return
	}
	if j.wait != nil && j.wait.IsRecording() {
		j.wait.AddEvent(outcome, trace.WithTimestamp(a.Time), trace.WithAttributes(append(actionAttributes(a, outcome), where(span)...)...))
	}
	switch a.Kind {
	case lockstep.ActionStart:
		j.done(a.Time, outcome, a.Reason)
	case lockstep.ActionResize:
		j.shrink = a.Eviction != nil
	case lockstep.ActionReject:
		t.drop(a.Time, j, outcome, a.Reason)
	}
}

// where says which span decided, for whoever comes from the job's trace.
func where(span trace.Span) []attribute.KeyValue {
	c := span.SpanContext()
	if !c.IsValid() {
		return nil
	}
	return []attribute.KeyValue{keyTrace.String(c.TraceID().String()), keyDecision.String(c.SpanID().String())}
}

// actionAttributes says what an action is.
func actionAttributes(a *lockstep.Action, outcome string) []attribute.KeyValue {
	out := []attribute.KeyValue{keyJob.String(string(a.Job)), keyAction.String(string(a.Kind)), keyOutcome.String(outcome)}
	if a.Reason != "" {
		out = append(out, keyReason.String(string(a.Reason)))
	}
	if a.Attempt != 0 {
		out = append(out, keyAttempt.Int64(int64(a.Attempt)))
	}
	if p := a.Plan; p != nil {
		out = append(out, keyMembers.Int(len(p.Members)), keyGPUs.Int(devices(p)))
		if p.Level != "" {
			out = append(out, keyLevel.String(string(p.Level)))
		}
	}
	if v := a.Eviction; v != nil {
		if v.For != "" {
			out = append(out, keyFor.String(string(v.For)))
		}
		out = append(out, keyCost.Float64(time.Duration(v.Cost.Total()).Seconds()))
	}
	return out
}

// devices counts the devices of p, those that are shared as one.
func devices(p *lockstep.Plan) int {
	n := 0
	for i := range p.Members {
		n += p.Members[i].Devices.Len()
	}
	return n
}

// eventAttributes says what an event is.
func eventAttributes(e *lockstep.Event, id lockstep.JobID) []attribute.KeyValue {
	out := []attribute.KeyValue{keyEvent.String(string(e.Kind))}
	if id != "" {
		out = append(out, keyJob.String(string(id)))
	}
	if g := e.Gang; g != nil {
		out = append(out, keyTenant.String(string(g.Tenant)), keyQueue.String(string(g.Queue)))
	}
	if e.Node != "" {
		out = append(out, keyNode.String(string(e.Node)))
	}
	if e.Reason != "" {
		out = append(out, keyReason.String(string(e.Reason)))
	}
	if e.Attempt != 0 {
		out = append(out, keyAttempt.Int64(int64(e.Attempt)))
	}
	return out
}

// ask finds out why some jobs wait, in turns, and tells their spans what has changed.
func (t *Tracer) ask(s Source, now time.Time, span trace.Span) {
	if t.cfg.Waiting <= 0 {
		return
	}
	for range min(t.cfg.Waiting, len(t.waiting)) {
		j := t.next()
		if j == nil {
			return
		}
		st, ok := s.Status(j.id)
		if !ok || st.Gang.Phase != gang.Queued || st.Gang.Verdict == j.told || st.Gang.Verdict.Reason == "" {
			continue
		}
		j.told = st.Gang.Verdict
		if j.wait.IsRecording() {
			j.wait.AddEvent(outcomeDeferred, trace.WithTimestamp(now), trace.WithAttributes(append(verdictAttributes(&j.told), where(span)...)...))
		}
	}
}

// next returns who is to be asked next, nil where nobody waits.
func (t *Tracer) next() *job {
	for len(t.waiting) > 0 {
		if t.turn >= len(t.waiting) {
			t.turn = 0
		}
		j := t.waiting[t.turn]
		if !j.gone && j.wait != nil {
			t.turn++
			return j
		}
		j.listed = false
		t.waiting = slices.Delete(t.waiting, t.turn, t.turn+1)
	}
	return nil
}

// verdictAttributes says why a job waits.
func verdictAttributes(v *lockstep.Verdict) []attribute.KeyValue {
	out := []attribute.KeyValue{keyOutcome.String(outcomeDeferred), keyReason.String(string(v.Reason))}
	if v.Resource != "" {
		out = append(out, keyResource.String(string(v.Resource)), keyRequested.Int64(v.Requested), keyAvailable.Int64(v.Available))
	}
	if v.Level != "" {
		out = append(out, keyLevel.String(string(v.Level)))
	}
	if v.Domain != "" {
		out = append(out, keyDomain.String(v.Domain))
	}
	return out
}
