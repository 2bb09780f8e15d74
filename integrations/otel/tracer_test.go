package otel_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/otel"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// From the trace of whoever submitted a job one reads why it waited, and who
// decided that it starts.
func TestWhyIsFollowedFromSubmitToStart(t *testing.T) {
	clock := &ticker{now: epoch}
	tracer, exporter, provider := traced(t, otel.TracerConfig{Policy: "ltgf", Clock: clock})
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), Term: scheduler.NoTerm})
	ctx := t.Context()

	// The API server's own span, in whose trace b is submitted.
	request, apiSpan := provider.Tracer("api").Start(ctx, "POST /jobs")
	require.NoError(t, tracer.Apply(ctx, s, lockstep.Event{Kind: lockstep.EventSubmit, Time: at(0), Gang: gangOf("a", 6)}))
	require.NoError(t, tracer.Apply(request, s, lockstep.Event{Kind: lockstep.EventSubmit, Time: at(0), Gang: gangOf("b", 6)}))
	apiSpan.End()
	origin, ok := tracer.Context("b")
	require.True(t, ok)
	require.Equal(t, apiSpan.SpanContext().TraceID(), origin.TraceID())

	actions, err := tracer.Step(ctx, s, at(10))
	require.NoError(t, err)
	require.Len(t, actions, 1)
	require.NoError(t, tracer.Apply(ctx, s, lockstep.Event{Kind: lockstep.EventConfirm, Time: at(11), Job: "a", Attempt: actions[0].Attempt}))
	_, err = tracer.Step(ctx, s, at(11))
	require.NoError(t, err)
	require.NoError(t, tracer.Apply(ctx, s, lockstep.Event{Kind: lockstep.EventFinish, Time: at(60), Job: "a"}))
	actions, err = tracer.Step(ctx, s, at(60))
	require.NoError(t, err)
	require.Len(t, actions, 1)
	require.NoError(t, tracer.Apply(ctx, s, lockstep.Event{Kind: lockstep.EventConfirm, Time: at(62), Job: "b", Attempt: actions[0].Attempt}))
	_, err = tracer.Step(ctx, s, at(62))
	require.NoError(t, err)

	// One span a decision, and one for each action below it.
	decisions, all := named(exporter, otel.SpanDecision), named(exporter, otel.SpanAction)
	require.Len(t, decisions, 4)
	require.Len(t, all, 4)
	require.Equal(t, "ltgf", attr(decisions[0].Attributes, "lockstep.policy"))
	require.Equal(t, "1", attr(decisions[0].Attributes, "lockstep.actions"))
	require.Equal(t, decisions[0].SpanContext.SpanID(), all[0].Parent.SpanID())
	require.True(t, decisions[0].EndTime.After(decisions[0].StartTime))

	// The wait of b, in the trace of the request.
	waits := named(exporter, otel.SpanWait)
	require.Len(t, waits, 2)
	wait := waits[1]
	require.Equal(t, "b", attr(wait.Attributes, "lockstep.job"))
	require.Equal(t, apiSpan.SpanContext().TraceID(), wait.SpanContext.TraceID())
	require.Equal(t, at(0), wait.StartTime)
	require.Equal(t, at(62), wait.EndTime)
	require.Equal(t, "started", attr(wait.Attributes, "lockstep.outcome"))
	var told []string
	for _, e := range wait.Events {
		told = append(told, e.Name+" "+attr(e.Attributes, "lockstep.reason"))
	}
	require.Equal(t, []string{"deferred busy", "reserved ", "started "}, told)
	require.Equal(t, "6000", attr(wait.Events[0].Attributes, "lockstep.requested"))
	require.Equal(t, "2000", attr(wait.Events[0].Attributes, "lockstep.available"))

	// Each event names the span that decided, which is there, and which links back.
	started := wait.Events[2]
	var decided *tracetest.SpanStub
	for i := range all {
		if all[i].SpanContext.SpanID().String() == attr(started.Attributes, "lockstep.decision_span") {
			decided = &all[i]
		}
	}
	require.NotNil(t, decided)
	require.Equal(t, attr(started.Attributes, "lockstep.decision_trace"), decided.SpanContext.TraceID().String())
	require.Equal(t, "started", attr(decided.Attributes, "lockstep.outcome"))
	require.Equal(t, "6", attr(decided.Attributes, "lockstep.gpus"))
	require.Len(t, decided.Links, 1)
	require.Equal(t, origin, decided.Links[0].SpanContext)
}

// A job that is evicted waits again, in the trace that it had from the beginning.
func TestAnEvictedJobWaitsInItsTrace(t *testing.T) {
	tracer, exporter, _ := traced(t, otel.TracerConfig{})
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true})
	ctx := t.Context()
	apply := func(e lockstep.Event) {
		t.Helper()
		require.NoError(t, tracer.Apply(ctx, s, e))
	}
	apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: at(0), Gang: gangOf("a", 8)})
	_, err := tracer.Step(ctx, s, at(0))
	require.NoError(t, err)
	apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: at(60), Gang: gangOf("b", 8)})
	_, err = tracer.Step(ctx, s, at(60))
	require.NoError(t, err)
	wake, ok := s.NextWake(at(60))
	require.True(t, ok)
	actions, err := tracer.Step(ctx, s, wake)
	require.NoError(t, err)
	require.Equal(t, lockstep.ActionEvict, actions[0].Kind)
	apply(lockstep.Event{Kind: lockstep.EventEvicted, Time: wake.Add(5 * time.Second), Job: "a"})
	_, err = tracer.Step(ctx, s, wake.Add(5*time.Second))
	require.NoError(t, err)
	apply(lockstep.Event{Kind: lockstep.EventFinish, Time: wake.Add(time.Hour), Job: "b"})
	_, err = tracer.Step(ctx, s, wake.Add(time.Hour))
	require.NoError(t, err)

	var evicted *tracetest.SpanStub
	all := named(exporter, otel.SpanAction)
	for i := range all {
		if attr(all[i].Attributes, "lockstep.action") == "evict" {
			evicted = &all[i]
		}
	}
	require.NotNil(t, evicted)
	require.Equal(t, "b", attr(evicted.Attributes, "lockstep.preemptor"), "whom it made room for")
	require.Equal(t, "term", attr(evicted.Attributes, "lockstep.reason"))
	var mine []tracetest.SpanStub
	for _, w := range named(exporter, otel.SpanWait) {
		if attr(w.Attributes, "lockstep.job") == "a" {
			mine = append(mine, w)
		}
	}
	require.Len(t, mine, 2)
	require.Equal(t, mine[0].SpanContext.TraceID(), mine[1].SpanContext.TraceID())
	require.Equal(t, wake.Add(5*time.Second), mine[1].StartTime)
	require.Equal(t, wake.Add(time.Hour), mine[1].EndTime)
}

// The context of a submission outlives a restart in the label of its gang.
func TestTheTraceOutlivesARestart(t *testing.T) {
	before, _, provider := traced(t, otel.TracerConfig{})
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true})
	ctx, span := provider.Tracer("api").Start(t.Context(), "submit")
	g := gangOf("a", 8)
	otel.Carry(ctx, g)
	carried := g.Labels[otel.LabelTraceparent]
	require.Contains(t, carried, span.SpanContext().TraceID().String())
	otel.Carry(context.Background(), g)
	require.Equal(t, carried, g.Labels[otel.LabelTraceparent])
	require.NoError(t, g.Validate())
	// Its scheduler has it from a log, where there is no span around it.
	require.NoError(t, before.Apply(t.Context(), s, lockstep.Event{Kind: lockstep.EventSubmit, Time: at(0), Gang: g}))
	origin, _ := before.Context("a")
	require.Equal(t, span.SpanContext().TraceID(), origin.TraceID())

	after, exporter, _ := traced(t, otel.TracerConfig{})
	after.Resume(at(100), g)
	after.Resume(at(200), g)
	after.Resume(at(200), nil)
	_, err := after.Step(t.Context(), s, at(110))
	require.NoError(t, err)
	waits := named(exporter, otel.SpanWait)
	require.Len(t, waits, 1)
	require.Equal(t, span.SpanContext().TraceID(), waits[0].SpanContext.TraceID())
	require.Equal(t, at(100), waits[0].StartTime)

	nowhere := gangOf("n", 1)
	after.Resume(at(115), nowhere)
	origin, ok := after.Context("n")
	require.True(t, ok)
	require.True(t, origin.IsValid(), "it has a trace of its own from now on")

	plain := gangOf("b", 1)
	otel.Carry(context.Background(), plain)
	require.Nil(t, plain.Labels)
	plain.Labels = map[string]string{otel.LabelTraceparent: "garbage"}
	require.NoError(t, after.Apply(t.Context(), s, lockstep.Event{Kind: lockstep.EventSubmit, Time: at(120), Gang: plain}), "what is no context is none")
}

// failing is a scheduler that refuses everything.
type failing struct{ err error }

func (f failing) Apply(lockstep.Event) error                { return f.err }
func (f failing) Step(time.Time) ([]lockstep.Action, error) { return nil, f.err }

func TestErrorsAreTheSchedulersOwn(t *testing.T) {
	tracer, exporter, _ := traced(t, otel.TracerConfig{})
	bad := errors.New("no")
	require.Equal(t, bad, tracer.Apply(t.Context(), failing{bad}, lockstep.Event{Kind: lockstep.EventDown, Node: "n0", Reason: "power"}))
	_, err := tracer.Step(t.Context(), failing{bad}, at(0))
	require.Equal(t, bad, err)
	for _, s := range exporter.GetSpans() {
		require.Equal(t, codes.Error, s.Status.Code)
	}
	events := named(exporter, otel.SpanEvent)
	require.Equal(t, "n0", attr(events[0].Attributes, "lockstep.node"))
	require.Equal(t, "power", attr(events[0].Attributes, "lockstep.reason"))
}

// However many jobs come, few are followed, and none of their spans is left open.
func TestWhoIsFollowedIsBounded(t *testing.T) {
	tracer, exporter, _ := traced(t, otel.TracerConfig{Jobs: 10})
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true, Rule: scheduler.FIFO})
	const n = 5000
	for i := range n {
		id := "j" + strconv.Itoa(i)
		require.NoError(t, tracer.Apply(t.Context(), s, lockstep.Event{Kind: lockstep.EventSubmit, Time: at(i), Gang: gangOf(id, 8)}))
		if i%7 == 0 {
			require.NoError(t, tracer.Apply(t.Context(), s, lockstep.Event{Kind: lockstep.EventCancel, Time: at(i), Job: lockstep.JobID(id)}))
		}
	}
	_, ok := tracer.Context("j0")
	require.False(t, ok)
	_, ok = tracer.Context("j4999")
	require.True(t, ok)
	require.GreaterOrEqual(t, len(named(exporter, otel.SpanWait)), n-10)
	tracer.Close(at(n))
	waits := named(exporter, otel.SpanWait)
	require.Len(t, waits, n, "each wait has ended, once")
	outcomes := map[string]int{}
	for _, w := range waits {
		outcomes[attr(w.Attributes, "lockstep.outcome")]++
	}
	require.Equal(t, 10, outcomes["closed"])
	require.Equal(t, (n+6)/7, outcomes["cancel"])
	require.Equal(t, n-10-(n+6)/7, outcomes["untracked"])
}

// Those that wait are asked in turns, a few each time, and what has not changed is
// not said again.
func TestWaitingJobsAreAskedInTurns(t *testing.T) {
	tracer, exporter, _ := traced(t, otel.TracerConfig{Waiting: 2})
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true, Rule: scheduler.FIFO})
	require.NoError(t, tracer.Apply(t.Context(), s, lockstep.Event{Kind: lockstep.EventSubmit, Time: at(0), Gang: gangOf("a", 7)}))
	for i := range 5 {
		require.NoError(t, tracer.Apply(t.Context(), s, lockstep.Event{Kind: lockstep.EventSubmit, Time: at(0), Gang: gangOf("w"+strconv.Itoa(i), 4)}))
	}
	for i := range 10 {
		_, err := tracer.Step(t.Context(), s, at(i))
		require.NoError(t, err)
	}
	tracer.Close(at(10))
	for _, w := range named(exporter, otel.SpanWait) {
		if attr(w.Attributes, "lockstep.job") != "a" {
			require.Len(t, w.Events, 1, attr(w.Attributes, "lockstep.job"))
			require.Equal(t, "deferred", w.Events[0].Name)
		}
	}

	silent, quiet, _ := traced(t, otel.TracerConfig{Waiting: otel.NoWaiting})
	s = newScheduler(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true})
	require.NoError(t, silent.Apply(t.Context(), s, lockstep.Event{Kind: lockstep.EventSubmit, Time: at(0), Gang: gangOf("a", 7)}))
	require.NoError(t, silent.Apply(t.Context(), s, lockstep.Event{Kind: lockstep.EventSubmit, Time: at(0), Gang: gangOf("b", 7)}))
	_, err := silent.Step(t.Context(), s, at(0))
	require.NoError(t, err)
	silent.Close(at(1))
	for _, w := range named(quiet, otel.SpanWait) {
		if attr(w.Attributes, "lockstep.outcome") == "closed" {
			require.Empty(t, w.Events)
		}
	}
}

func TestWhatIsNotSampledIsNotKept(t *testing.T) {
	exporter := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(exporter), sdktrace.WithSampler(sdktrace.NeverSample()))
	tracer, err := otel.NewTracer(otel.TracerConfig{TracerProvider: provider})
	require.NoError(t, err)
	s := newScheduler(t, scheduler.Config{Tree: cluster(t, 1), StartAtOnce: true})
	require.NoError(t, tracer.Apply(t.Context(), s, lockstep.Event{Kind: lockstep.EventSubmit, Time: at(0), Gang: gangOf("a", 8)}))
	actions, err := tracer.Step(t.Context(), s, at(0))
	require.NoError(t, err)
	require.Len(t, actions, 1)
	require.Empty(t, exporter.GetSpans())
}

// idle is a scheduler that does nothing.
type idle struct{}

func (idle) Apply(lockstep.Event) error                { return nil }
func (idle) Step(time.Time) ([]lockstep.Action, error) { return nil, nil }

func TestATracerThatIsOffCostsNothing(t *testing.T) {
	off, err := otel.NewTracer(otel.TracerConfig{})
	require.NoError(t, err)
	e := lockstep.Event{Kind: lockstep.EventDown, Node: "n0"}
	ctx := t.Context()
	var s otel.Scheduler = idle{}
	g := gangOf("a", 1)
	for _, tracer := range []*otel.Tracer{nil, off} {
		require.False(t, tracer.On())
		require.Zero(t, testing.AllocsPerRun(100, func() {
			_ = tracer.Apply(ctx, s, e)
			_, _ = tracer.Step(ctx, s, at(0))
			tracer.Resume(at(0), g)
			tracer.Close(at(0))
		}))
		_, ok := tracer.Context("a")
		require.False(t, ok)
	}
}

func TestTracerConfigIsValidated(t *testing.T) {
	_, err := otel.NewTracer(otel.TracerConfig{Jobs: -1, Waiting: -2})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorContains(t, err, "Jobs")
	require.ErrorContains(t, err, "Waiting")
}
