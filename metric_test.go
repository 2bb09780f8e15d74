package lockstep_test

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func fields() []lockstep.MetricField {
	return []lockstep.MetricField{
		lockstep.FieldTenant, lockstep.FieldQueue, lockstep.FieldLevel, lockstep.FieldReason, lockstep.FieldClass,
		lockstep.FieldModel, lockstep.FieldState, lockstep.FieldResult, lockstep.FieldKind,
	}
}

func TestEachFieldIsItsOwn(t *testing.T) {
	var all lockstep.MetricLabels
	for _, f := range fields() {
		var one lockstep.MetricLabels
		one.SetValue(f, "x")
		require.NotZero(t, one, f)
		for _, other := range fields() {
			want := ""
			if other == f {
				want = "x"
			}
			require.Equal(t, want, one.Value(other), "%s of %s", other, f)
		}
		all.SetValue(f, string(f))
	}
	require.Equal(t, lockstep.MetricLabels{
		Tenant: "tenant", Queue: "queue", Level: "level", Reason: "reason", Class: "gpu_type", Model: "model", State: "state", Result: "result", Kind: "kind",
	}, all)
	before := all
	all.SetValue("job", "never")
	require.Equal(t, before, all)
	require.Empty(t, all.Value("job"))

	d := lockstep.MetricDescriptor{Labels: []lockstep.MetricLabel{{Field: lockstep.FieldQueue}, {Field: lockstep.FieldKind, Name: "shape"}}}
	require.Equal(t, lockstep.MetricLabels{Queue: "queue", Kind: "kind"}, d.Keep(all))
	require.Zero(t, testing.AllocsPerRun(100, func() { before = d.Keep(all) }))
}

func TestMetricDescriptorValidate(t *testing.T) {
	good := func() lockstep.MetricDescriptor {
		return lockstep.MetricDescriptor{Name: "wait_seconds", Kind: lockstep.MetricHistogram, Unit: "seconds", Help: "Wait", Buckets: []float64{1, 2}, Labels: []lockstep.MetricLabel{{Field: lockstep.FieldQueue}}}
	}
	require.NoError(t, good().Validate())
	for name, change := range map[string]func(d *lockstep.MetricDescriptor){ // each by itself: the order cannot matter
		"no name":             func(d *lockstep.MetricDescriptor) { d.Name = "" },
		"capital":             func(d *lockstep.MetricDescriptor) { d.Name = "waitSeconds" },
		"digit first":         func(d *lockstep.MetricDescriptor) { d.Name = "1_wait" },
		"double underscore":   func(d *lockstep.MetricDescriptor) { d.Name = "wait__seconds" },
		"trailing underscore": func(d *lockstep.MetricDescriptor) { d.Name = "wait_" },
		"colon":               func(d *lockstep.MetricDescriptor) { d.Name = "wait:seconds" },
		"kind":                func(d *lockstep.MetricDescriptor) { d.Kind = "summary" },
		"total":               func(d *lockstep.MetricDescriptor) { d.Name = "wait_total" },
		"counter, no total":   func(d *lockstep.MetricDescriptor) { d.Kind, d.Buckets = lockstep.MetricCounter, nil },
		"unit":                func(d *lockstep.MetricDescriptor) { d.Unit = "Milli Seconds" },
		"help":                func(d *lockstep.MetricDescriptor) { d.Help = "" },
		"no buckets":          func(d *lockstep.MetricDescriptor) { d.Buckets = nil },
		"buckets of a gauge":  func(d *lockstep.MetricDescriptor) { d.Kind = lockstep.MetricGauge },
		"buckets fall":        func(d *lockstep.MetricDescriptor) { d.Buckets = []float64{2, 1} },
		"bucket infinite":     func(d *lockstep.MetricDescriptor) { d.Buckets = []float64{1, math.Inf(1)} },
		"bucket NaN":          func(d *lockstep.MetricDescriptor) { d.Buckets = []float64{math.NaN()} },
		"field":               func(d *lockstep.MetricDescriptor) { d.Labels[0].Field = "job" },
		"label le":            func(d *lockstep.MetricDescriptor) { d.Labels[0].Name = "le" },
		"label twice": func(d *lockstep.MetricDescriptor) {
			d.Labels = append(d.Labels, lockstep.MetricLabel{Field: lockstep.FieldKind, Name: "queue"})
		},
		"field twice": func(d *lockstep.MetricDescriptor) {
			d.Labels = append(d.Labels, lockstep.MetricLabel{Field: lockstep.FieldQueue, Name: "line"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := good()
			change(&d)
			err := d.Validate()
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			var e *lockstep.Error
			require.True(t, errors.As(err, &e))
			require.NotEmpty(t, e.Field)
		})
	}
	err := lockstep.ValidateMetrics([]lockstep.MetricDescriptor{good(), {}, good()})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	require.NoError(t, lockstep.ValidateMetrics(nil))

	// A histogram is shown as series that nothing else may be called.
	histogram := lockstep.MetricDescriptor{Name: "wait_seconds", Kind: lockstep.MetricHistogram, Help: "Wait", Buckets: []float64{1}}
	gauge := lockstep.MetricDescriptor{Name: "wait_seconds_sum", Kind: lockstep.MetricGauge, Help: "Sum"}
	require.ErrorIs(t, lockstep.ValidateMetrics([]lockstep.MetricDescriptor{gauge, histogram}), lockstep.ErrDuplicate)
	histogram.Name = "waits_seconds"
	require.NoError(t, lockstep.ValidateMetrics([]lockstep.MetricDescriptor{gauge, histogram}))
}

func ExampleMetricDescriptor() {
	d := lockstep.MetricDescriptor{
		Name: "loaned_gpus", Kind: lockstep.MetricGauge, Unit: "gpus", Help: "Devices on loan",
		Labels: []lockstep.MetricLabel{{Field: lockstep.FieldTenant, Name: "lender"}},
	}
	l := lockstep.MetricLabels{Tenant: "research", Queue: "of no interest here"}
	l = d.Keep(l)
	for _, label := range d.Labels {
		fmt.Printf("%s{%s=%q} %v\n", d.Name, label, l.Value(label.Field), d.Validate())
	}
	// Output:
	// loaned_gpus{lender="research"} <nil>
}
