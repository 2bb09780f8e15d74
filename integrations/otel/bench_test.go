package otel_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/otel"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

// traffic is a cluster that is three quarters full, on which jobs end and new ones
// come in their place.
type traffic struct {
	s      *scheduler.Scheduler
	front  otel.Scheduler
	tracer *otel.Tracer
	now    time.Time
	n, i   int
	ring   []lockstep.Action
}

// metered is a scheduler behind a meter, as a host has them.
type metered struct {
	*scheduler.Scheduler
	m *meter.Meter
}

func (h *metered) Apply(e lockstep.Event) error {
	err := h.Scheduler.Apply(e)
	h.m.Event(h.Scheduler, &e, err)
	return err
}

func (h *metered) Step(now time.Time) ([]lockstep.Action, error) {
	actions, err := h.Scheduler.Step(now)
	h.m.Step(h.Scheduler, now, 50*time.Microsecond, actions)
	return actions, err
}

// newTraffic returns traffic with measurements or spans, or neither.
func newTraffic(tb testing.TB, metrics bool, tracer *otel.Tracer) *traffic {
	tb.Helper()
	tree := cluster(tb, 128)
	cfg := scheduler.Config{Tree: tree, StartAtOnce: true}
	t := &traffic{tracer: tracer, now: epoch}
	if metrics {
		r, _ := recorder(tb, otel.Config{})
		m, err := meter.New(meter.Config{Tree: tree, Recorder: r})
		require.NoError(tb, err)
		cfg.Recorder = m.Tap()
		t.s = newScheduler(tb, cfg)
		t.front = &metered{t.s, m}
	} else {
		t.s = newScheduler(tb, cfg)
		t.front = t.s
	}
	t.ring = make([]lockstep.Action, 128*8*3/4*10/25) // two and a half devices a job
	for i := range t.ring {
		t.ring[i] = t.next(tb)
	}
	return t
}

func (t *traffic) next(tb testing.TB) lockstep.Action {
	t.n++
	g := gangOf("j"+strconv.Itoa(t.n), 1+t.n%4)
	g.Walltime = time.Hour
	err := t.tracer.Apply(tb.Context(), t.front, lockstep.Event{Kind: lockstep.EventSubmit, Time: t.now, Gang: g})
	actions, failed := t.tracer.Step(tb.Context(), t.front, t.now)
	if err != nil || failed != nil || len(actions) != 1 {
		tb.Fatal(err, failed, len(actions))
	}
	return actions[0]
}

// job is one job's life: an end, a submission, a decision.
func (t *traffic) job(tb testing.TB) {
	t.now = t.now.Add(time.Millisecond)
	a := &t.ring[t.i%len(t.ring)]
	if err := t.tracer.Apply(tb.Context(), t.front, lockstep.Event{Kind: lockstep.EventFinish, Time: t.now, Job: a.Job, Attempt: a.Attempt}); err != nil {
		tb.Fatal(err)
	}
	t.ring[t.i%len(t.ring)] = t.next(tb)
	t.i++
}

// nowhere is where spans go that have ended. A batcher hands them to a goroutine,
// whose turns on a busy machine would be measured too.
type nowhere struct{}

func (nowhere) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (nowhere) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (nowhere) Shutdown(context.Context) error                  { return nil }
func (nowhere) ForceFlush(context.Context) error                { return nil }

// sampled is a Tracer whose spans go nowhere.
func sampled(tb testing.TB, sampler sdktrace.Sampler) *otel.Tracer {
	tb.Helper()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(nowhere{}), sdktrace.WithSampler(sampler))
	tracer, err := otel.NewTracer(otel.TracerConfig{TracerProvider: provider})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = provider.Shutdown(tb.Context()) })
	return tracer
}

// BenchmarkDecision is one job's life with all off, with measurements, and with
// spans that are sampled or not. The modes take turns, a few jobs each; what is
// reported is the median of a mode's turns.
func BenchmarkDecision(b *testing.B) {
	const turn = 10
	modes := []struct {
		name string
		t    *traffic
	}{
		{"off", newTraffic(b, false, nil)},
		{"metrics", newTraffic(b, true, nil)},
		{"spans", newTraffic(b, false, sampled(b, sdktrace.AlwaysSample()))},
		{"spans/unsampled", newTraffic(b, false, sampled(b, sdktrace.NeverSample()))},
	}
	times := make([][]time.Duration, len(modes))
	for b.Loop() {
		for i := range modes {
			began := time.Now()
			for range turn {
				modes[i].t.job(b)
			}
			times[i] = append(times[i], time.Since(began))
		}
	}
	b.ReportMetric(0, "ns/op") // of all modes together, which means nothing
	for i := range modes {
		slices.Sort(times[i])
		b.ReportMetric(float64(times[i][len(times[i])/2].Nanoseconds())/turn, "ns/decision:"+modes[i].name)
	}
}
