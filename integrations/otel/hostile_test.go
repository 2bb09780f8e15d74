package otel

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// mute is a Scheduler that takes everything and cannot be asked.
type mute struct{}

func (mute) Apply(lockstep.Event) error                     { return nil }
func (mute) Step(time.Time) ([]lockstep.Action, error)      { return nil, nil }
func (mute) status(lockstep.JobID) (scheduler.Status, bool) { return scheduler.Status{}, false }

// asked is one that can.
type asked struct{ mute }

func (a asked) Status(id lockstep.JobID) (scheduler.Status, bool) { return a.status(id) }

// TestJobsThatHaveGoneAreForgotten: a Tracer that asks nobody, or has nobody to ask,
// may not keep all jobs that ever waited.
func TestJobsThatHaveGoneAreForgotten(t *testing.T) {
	for name, c := range map[string]struct {
		waiting int
		s       Scheduler
	}{
		"asks nobody": {NoWaiting, asked{}},
		"no source":   {0, mute{}},
		"asks":        {0, asked{}},
	} {
		t.Run(name, func(t *testing.T) {
			tracer, err := NewTracer(TracerConfig{Waiting: c.waiting, TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))})
			require.NoError(t, err)
			now := time.Unix(1, 0)
			for i := range 3000 {
				id := lockstep.JobID(strconv.Itoa(i))
				require.NoError(t, tracer.Apply(t.Context(), c.s, lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: &lockstep.Gang{ID: id}}))
				_, err := tracer.Step(t.Context(), c.s, now)
				require.NoError(t, err)
				require.NoError(t, tracer.Apply(t.Context(), c.s, lockstep.Event{Kind: lockstep.EventFinish, Time: now, Job: id}))
			}
			require.Empty(t, tracer.jobs)
			require.Less(t, len(tracer.waiting), 100)
			require.Less(t, len(tracer.queue), 2100)
		})
	}
}

func TestUnitsAreWords(t *testing.T) {
	_, unit := Instrument(DefaultPrefix, lockstep.MetricDescriptor{Name: "gang_tries_total", Kind: lockstep.MetricCounter})
	require.Equal(t, "{try}", unit)
}

// TestInstrumentsHaveNamesOfTheirOwn: without their units two metrics may be one.
func TestInstrumentsHaveNamesOfTheirOwn(t *testing.T) {
	err := Config{MeterProvider: noop.NewMeterProvider(), Metrics: []lockstep.MetricDescriptor{
		{Name: "wait_seconds", Kind: lockstep.MetricGauge, Unit: "seconds", Help: "A"},
		{Name: "wait", Kind: lockstep.MetricGauge, Help: "B"},
	}}.Validate()
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	require.NoError(t, Config{MeterProvider: noop.NewMeterProvider()}.Validate())
}
