package otel

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// The names of the spans.
const (
	SpanEvent    = "gpusched.event"    // SpanEvent is one event that a host reports, in the trace of its context.
	SpanDecision = "gpusched.decision" // SpanDecision is one step, in the trace of its context.
	SpanAction   = "gpusched.action"   // SpanAction is one action of a step, below SpanDecision.
	SpanWait     = "gpusched.wait"     // SpanWait is from when a job begins to wait until it starts or leaves, in the trace of its submission.
)

// LabelTraceparent is the label of a gang that holds the context of its
// submission, as the header traceparent of W3C Trace Context has it. See Carry.
const LabelTraceparent = "traceparent"

// The defaults of TracerConfig, and none.
const (
	DefaultJobs    = 1 << 16 // DefaultJobs is TracerConfig.Jobs where that is 0.
	DefaultWaiting = 16      // DefaultWaiting is TracerConfig.Waiting where that is 0.
	NoWaiting      = -1      // NoWaiting, as TracerConfig.Waiting, asks about nobody.
)

// TracerConfig configures a Tracer. The zero value is valid: a Tracer that is off.
type TracerConfig struct {
	Policy  string `json:"policy,omitempty"`  // Policy is the attribute lockstep.policy of decisions; "" means none.
	Jobs    int    `json:"jobs,omitempty"`    // Jobs is how many jobs are followed at once, the earliest being let go of; 0 means DefaultJobs.
	Waiting int    `json:"waiting,omitempty"` // Waiting is about how many waiting jobs a decision asks why, in turns; 0 means DefaultWaiting, NoWaiting none.

	TracerProvider trace.TracerProvider `json:"-"` // TracerProvider makes the spans; nil means that the Tracer is off.
	Clock          lockstep.Clock       `json:"-"` // Clock gives spans of events and decisions their times; nil means the provider's own. Spans of waits have the times of events and actions.
}

// Validate reports every fault of c, joined.
func (c TracerConfig) Validate() error {
	var errs []error
	if c.Jobs < 0 {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Jobs", strconv.Itoa(c.Jobs), "must not be negative"))
	}
	if c.Waiting < NoWaiting {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", "Waiting", strconv.Itoa(c.Waiting), "want NoWaiting, 0 or more"))
	}
	return errors.Join(errs...)
}

// Scheduler is what a Tracer stands in front of; *scheduler.Scheduler is one.
type Scheduler interface {
	// Apply takes note of an event.
	Apply(e lockstep.Event) error
	// Step decides, and returns what is to be done.
	Step(now time.Time) ([]lockstep.Action, error)
}

// Source is what a Scheduler can also do: say where a job stands. Without it
// nobody is asked why he waits.
type Source interface {
	// Status returns where job stands; false means that it is not known.
	Status(job lockstep.JobID) (scheduler.Status, bool)
}

// Tracer makes spans of events and decisions. Make one with NewTracer. Apply and
// Step of one that is off, and of nil, are the scheduler's and nothing else. Not
// safe for concurrent use; the caller serializes calls with those of the
// scheduler.
type Tracer struct {
	cfg    TracerConfig
	tracer trace.Tracer // nil where it is off
	jobs   map[lockstep.JobID]*job
	queue  []*job // in the order in which they were taken up; who has gone is left out now and then
	head   int    // all before it in queue have gone
	dead   int    // how many in queue have gone

	waiting []*job // who may wait, to be asked why
	turn    int    // whose turn it is
}

// job is one that is followed.
type job struct {
	id     lockstep.JobID
	tenant lockstep.TenantID
	lane   lockstep.QueueID
	origin trace.SpanContext // of the submission
	wait   trace.Span        // nil while it does not wait
	told   lockstep.Verdict  // why it waits, as was last said
	listed bool              // it is in Tracer.waiting
	shrink bool              // it was told to go on with fewer members
	gone   bool
}

// NewTracer returns a Tracer that follows nobody, or the faults of cfg.
func NewTracer(cfg TracerConfig) (*Tracer, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Jobs == 0 {
		cfg.Jobs = DefaultJobs
	}
	if cfg.Waiting == 0 {
		cfg.Waiting = DefaultWaiting
	}
	t := &Tracer{cfg: cfg, jobs: make(map[lockstep.JobID]*job)}
	if cfg.TracerProvider != nil {
		t.tracer = cfg.TracerProvider.Tracer(Scope)
	}
	return t, nil
}

// On reports whether t makes spans.
func (t *Tracer) On() bool { return t != nil && t.tracer != nil }

// Carry writes the context of ctx's span into a label of g, so that the trace is
// kept wherever g is: in a log of events, in a snapshot of the host's. Call it
// before g is submitted. It does nothing where ctx has no span, or g a context
// already.
func Carry(ctx context.Context, g *lockstep.Gang) {
	if g == nil || g.Labels[LabelTraceparent] != "" {
		return
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	if header := carrier.Get("traceparent"); header != "" {
		if g.Labels == nil {
			g.Labels = make(map[string]string)
		}
		g.Labels[LabelTraceparent] = header
	}
}

// carried returns ctx with the span that g carries, or ctx as it is.
func carried(ctx context.Context, g *lockstep.Gang) context.Context {
	if header := g.Labels[LabelTraceparent]; header != "" {
		return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": header})
	}
	return ctx
}

// Context returns the span context of a job's submission, to be handed to whoever
// starts the job; false means that the job is not followed.
func (t *Tracer) Context(id lockstep.JobID) (trace.SpanContext, bool) {
	if !t.On() || t.jobs[id] == nil {
		return trace.SpanContext{}, false
	}
	return t.jobs[id].origin, true
}

// Apply puts an event to s in a span of its own. A submission is in the trace of
// ctx, or of the gang's label where ctx has none; its job is followed from there.
// The error is that of s.
func (t *Tracer) Apply(ctx context.Context, s Scheduler, e lockstep.Event) error {
	if !t.On() {
		return s.Apply(e)
	}
	if e.Gang != nil && !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = carried(ctx, e.Gang)
	}
	id := e.Job
	if e.Gang != nil {
		id = e.Gang.ID
	}
	options := []trace.SpanStartOption{trace.WithAttributes(eventAttributes(&e, id)...)}
	if j := t.jobs[id]; j != nil && j.origin.IsValid() && j.origin.TraceID() != trace.SpanContextFromContext(ctx).TraceID() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: j.origin}))
	}
	_, span := t.tracer.Start(ctx, SpanEvent, append(options, t.starts()...)...)
	err := s.Apply(e)
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, "refused")
	} else {
		t.follow(s, &e, span)
	}
	span.End(t.ends()...)
	return err
}

// follow notes what an event that was taken means for the jobs that are followed.
func (t *Tracer) follow(s Scheduler, e *lockstep.Event, span trace.Span) {
	switch e.Kind {
	case lockstep.EventSubmit:
		if e.Gang != nil {
			t.take(e.Time, e.Gang, span.SpanContext())
		}
	case lockstep.EventEvicted, lockstep.EventFail, lockstep.EventFinish, lockstep.EventCancel:
		if j := t.jobs[e.Job]; j != nil {
			t.settle(s, e, j)
		}
	}
}

// settle notes whether a job waits again or has left.
func (t *Tracer) settle(s Scheduler, e *lockstep.Event, j *job) {
	left := e.Kind == lockstep.EventFinish || e.Kind == lockstep.EventCancel
	if source, ok := s.(Source); ok {
		st, known := source.Status(j.id)
		left = !known || st.Life.State.Terminal()
	}
	shrunk := j.shrink && e.Kind == lockstep.EventEvicted
	j.shrink = false
	if left {
		t.drop(e.Time, j, string(e.Kind), e.Reason)
	} else if j.wait == nil && !shrunk && (e.Kind == lockstep.EventEvicted || e.Kind == lockstep.EventFail) {
		t.wait(e.Time, j, e.Attempt)
	}
}

// take takes up a job that waits.
func (t *Tracer) take(now time.Time, g *lockstep.Gang, origin trace.SpanContext) {
	if old := t.jobs[g.ID]; old != nil {
		t.drop(now, old, "replaced", "")
	}
	for len(t.jobs) >= t.cfg.Jobs {
		for t.queue[t.head].gone {
			t.head++
		}
		t.drop(now, t.queue[t.head], "untracked", "")
	}
	j := &job{id: g.ID, tenant: g.Tenant, lane: g.Queue, origin: origin}
	t.jobs[g.ID] = j
	t.queue = append(t.queue, j)
	t.wait(now, j, 0)
}

// Resume takes up a job that waits or runs, as after a restart: its trace goes on
// from the context that g carries. It does nothing for a job that is followed.
func (t *Tracer) Resume(now time.Time, g *lockstep.Gang) {
	if !t.On() || g == nil || t.jobs[g.ID] != nil {
		return
	}
	t.take(now, g, trace.SpanContextFromContext(carried(context.Background(), g)))
}

// wait begins a span of a job that waits, in the trace of its submission.
func (t *Tracer) wait(now time.Time, j *job, attempt lockstep.Attempt) {
	attributes := []attribute.KeyValue{keyJob.String(string(j.id)), keyTenant.String(string(j.tenant)), keyQueue.String(string(j.lane))}
	if attempt != 0 {
		attributes = append(attributes, keyAttempt.Int64(int64(attempt)))
	}
	parent := trace.ContextWithRemoteSpanContext(context.Background(), j.origin)
	_, j.wait = t.tracer.Start(parent, SpanWait, trace.WithTimestamp(now), trace.WithAttributes(attributes...))
	if !j.origin.IsValid() {
		j.origin = j.wait.SpanContext() // nobody knows where it came from: what comes later is in one trace all the same
	}
	j.told = lockstep.Verdict{}
	if t.cfg.Waiting > 0 && !j.listed {
		t.weed()
		j.listed = true
		t.waiting = append(t.waiting, j)
	}
}

// weed takes those out of waiting that do not wait any more, once they are most: of
// a scheduler that is no Source nobody asks, and so nobody else does.
func (t *Tracer) weed() {
	if len(t.waiting) < 2*len(t.jobs)+64 {
		return
	}
	t.waiting = slices.DeleteFunc(t.waiting, func(j *job) bool {
		j.listed = !j.gone && j.wait != nil
		return !j.listed
	})
	t.turn = 0
}

// done ends the span of a job that does not wait any more.
func (j *job) done(now time.Time, outcome string, reason lockstep.Reason) {
	if j.wait == nil {
		return
	}
	j.wait.SetAttributes(keyOutcome.String(outcome))
	if reason != "" {
		j.wait.SetAttributes(keyReason.String(string(reason)))
	}
	j.wait.End(trace.WithTimestamp(now))
	j.wait = nil
}

// drop lets go of a job.
func (t *Tracer) drop(now time.Time, j *job, outcome string, reason lockstep.Reason) {
	j.done(now, outcome, reason)
	j.gone = true
	delete(t.jobs, j.id)
	if t.dead++; t.dead > 1024 && t.dead > len(t.queue)/2 {
		t.queue = slices.DeleteFunc(t.queue, func(o *job) bool { return o.gone })
		t.head, t.dead = 0, 0
	}
}

// Close ends the spans of all that wait, at now, so that a provider that is shut
// down next loses none of them. T follows nobody then.
func (t *Tracer) Close(now time.Time) {
	if !t.On() {
		return
	}
	for _, j := range slices.Clone(t.queue) { // dropping may leave some out
		if !j.gone {
			t.drop(now, j, "closed", "")
		}
	}
	t.queue, t.head, t.dead = nil, 0, 0
	t.waiting, t.turn = nil, 0
}

// starts and ends give a span the clock's time, if there is one.
func (t *Tracer) starts() []trace.SpanStartOption {
	if t.cfg.Clock == nil {
		return nil
	}
	return []trace.SpanStartOption{trace.WithTimestamp(t.cfg.Clock.Now())}
}

func (t *Tracer) ends() []trace.SpanEndOption {
	if t.cfg.Clock == nil {
		return nil
	}
	return []trace.SpanEndOption{trace.WithTimestamp(t.cfg.Clock.Now())}
}
