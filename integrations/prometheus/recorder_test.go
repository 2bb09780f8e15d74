package prometheus_test

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/prometheus"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

func TestEachKindOfMeasurement(t *testing.T) {
	r, reg := recorder(t, prometheus.Config{Prefix: "my_", Labels: map[string]string{"cluster": "east"}})
	r.Count(meter.Preemptions, lockstep.MetricLabels{Reason: "term", Tenant: "is not among its labels"}, 2)
	r.Count(meter.Preemptions, lockstep.MetricLabels{Reason: "term"}, 3)
	r.Gauge(meter.LoanedGPUs, lockstep.MetricLabels{Tenant: "research"}, 4)
	r.Gauge(meter.LoanedGPUs, lockstep.MetricLabels{Tenant: "research"}, 3)
	r.Observe(meter.AdmissionWait, lockstep.MetricLabels{Queue: "prod"}, 20)
	all := families(t, reg)
	require.Equal(t, 5.0, sum(all["my_preemptions_total"], "reason", "term"))
	require.Len(t, all["my_preemptions_total"].GetMetric(), 1)
	require.Equal(t, 3.0, sum(all["my_loaned_gpus"], "lender", "research"))
	h := all["my_admission_wait_seconds"].GetMetric()[0]
	require.EqualValues(t, 1, h.GetHistogram().GetSampleCount())
	require.Equal(t, 20.0, h.GetHistogram().GetSampleSum())
	for _, f := range all { // each by itself: the order cannot matter
		require.Equal(t, "east", labelOf(f.GetMetric()[0].GetLabel(), "cluster"), f.GetName())
	}
	require.Contains(t, all, "my_gang_queued_jobs", "what has no labels is shown as 0 from the start")
}

func labelOf[L interface {
	GetName() string
	GetValue() string
}](labels []L, name string) string {
	for _, l := range labels {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// What does not fit is dropped and counted, and no panic reaches the scheduler.
func TestWhatDoesNotFitIsDropped(t *testing.T) {
	r, reg := recorder(t, prometheus.Config{})
	none := lockstep.MetricLabels{}
	dropped := []func(){
		func() { r.Count("nobody_knows_total", none, 1) },
		func() { r.Gauge("nobody_knows", none, 1) },
		func() { r.Observe("nobody_knows", none, 1) },
		func() { r.Count(meter.Jobs, none, 1) },
		func() { r.Gauge(meter.AdmissionWait, none, 1) },
		func() { r.Observe(meter.Preemptions, none, 1) },
		func() { r.Count(meter.Preemptions, none, -1) },
		func() { r.Gauge(meter.Jobs, none, math.NaN()) },
		func() { r.Observe(meter.AdmissionWait, none, math.Inf(1)) },
		func() { r.Observe(meter.AdmissionWait, none, math.NaN()) },
	}
	for _, f := range dropped {
		f()
	}
	all := families(t, reg)
	require.Equal(t, float64(len(dropped)), sum(all["gpusched_metrics_dropped_total"], "", ""))
	require.NotContains(t, all, "gpusched_admission_wait_seconds")
	require.NotContains(t, all, "gpusched_jobs")

	bare, _ := recorder(t, prometheus.Config{Metrics: []lockstep.MetricDescriptor{{Name: "a", Kind: lockstep.MetricGauge, Help: "A"}}})
	bare.Count("b_total", none, 1) // nobody counts it, and nothing happens
}

// Names that a tenant chooses do no harm: neither text that is none nor length nor number.
func TestLabelsAreCleanAndFew(t *testing.T) {
	r, reg := recorder(t, prometheus.Config{Values: 5})
	odd := []lockstep.QueueID{"a\xff", lockstep.QueueID(strings.Repeat("x", 10_000)), lockstep.QueueID(strings.Repeat("é", 200)), "{}\"\n", ""}
	for range 3 {
		for _, q := range odd {
			r.Observe(meter.AdmissionWait, lockstep.MetricLabels{Queue: q}, 1)
		}
	}
	for i := range 1000 {
		r.Observe(meter.AdmissionWait, lockstep.MetricLabels{Queue: lockstep.QueueID(strconv.Itoa(i))}, 1)
	}
	all := families(t, reg)
	f := all["gpusched_admission_wait_seconds"]
	require.Len(t, f.GetMetric(), 6)
	for _, m := range f.GetMetric() {
		require.LessOrEqual(t, len(labelOf(m.GetLabel(), "queue")), lockstep.MaxIDLength)
	}
	require.Equal(t, 1000.0, sum(f, "queue", meter.Other))
	require.Equal(t, 1015.0, sum(f, "", ""), "nothing is lost")
	require.Equal(t, 1000.0, sum(all["gpusched_metrics_folded_total"], "metric", string(meter.AdmissionWait)))
}

// The hot path, once a series is known, allocates nothing; nor does one too many.
func TestKnownSeriesAllocateNothing(t *testing.T) {
	r, _ := recorder(t, prometheus.Config{Values: 2})
	known := lockstep.MetricLabels{Queue: "prod", State: "running", Reason: "term", Tenant: "vision", Kind: "productive"}
	more := known
	more.Queue = "one too many"
	record := func() {
		for _, l := range []lockstep.MetricLabels{known, more} {
			r.Count(meter.Preemptions, l, 1)
			r.Count(meter.GPUSeconds, l, 1)
			r.Gauge(meter.Jobs, l, 7)
			r.Observe(meter.AdmissionWait, l, 7)
			r.Count("nobody_knows", l, 1)
		}
	}
	for _, q := range []lockstep.QueueID{"prod", "batch"} {
		l := known
		l.Queue = q
		r.Gauge(meter.Jobs, l, 1)
		r.Observe(meter.AdmissionWait, l, 1)
	}
	record()
	require.Zero(t, testing.AllocsPerRun(200, record))
}

// Many goroutines record while others scrape; no measurement is lost.
func TestConcurrentUse(t *testing.T) {
	r, reg := recorder(t, prometheus.Config{Values: 8})
	const writers, each = 8, 500
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				l := lockstep.MetricLabels{Queue: lockstep.QueueID(strconv.Itoa((i + w) % 20)), Reason: "term", State: "queued"}
				r.Count(meter.Preemptions, l, 1)
				r.Observe(meter.AdmissionWait, l, 1)
				r.Gauge(meter.Jobs, l, float64(i))
			}
		})
	}
	for range 2 {
		wg.Go(func() {
			for range 20 {
				_, err := reg.Gather()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	all := families(t, reg)
	require.Equal(t, float64(writers*each), sum(all["gpusched_preemptions_total"], "", ""))
	require.Equal(t, float64(writers*each), sum(all["gpusched_admission_wait_seconds"], "", ""))
	require.LessOrEqual(t, len(all["gpusched_admission_wait_seconds"].GetMetric()), 9)
}

func TestConfigIsValidated(t *testing.T) {
	five := lockstep.MetricDescriptor{Name: "a", Kind: lockstep.MetricGauge, Help: "A", Labels: []lockstep.MetricLabel{
		{Field: lockstep.FieldQueue}, {Field: lockstep.FieldKind}, {Field: lockstep.FieldState}, {Field: lockstep.FieldResult}, {Field: lockstep.FieldTenant},
	}}
	for name, cfg := range map[string]prometheus.Config{ // each by itself: the order cannot matter
		"prefix":       {Prefix: "GPU"},
		"no end":       {Prefix: "gpu"},
		"values":       {Values: -1},
		"series":       {Series: -1},
		"label taken":  {Labels: map[string]string{"queue": "x"}},
		"label le":     {Labels: map[string]string{"le": "x"}},
		"label spaces": {Labels: map[string]string{"a b": "x"}},
		"five labels":  {Metrics: []lockstep.MetricDescriptor{five}},
		"metric":       {Metrics: []lockstep.MetricDescriptor{{}}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := prometheus.New(cfg)
			require.ErrorIs(t, err, lockstep.ErrInvalid)
		})
	}
}

func TestNamesAreTakenOnceAndGivenBack(t *testing.T) {
	r, reg := recorder(t, prometheus.Config{})
	_, err := prometheus.New(prometheus.Config{Registerer: reg})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	other, err := prometheus.New(prometheus.Config{Registerer: reg, Prefix: "other_"})
	require.NoError(t, err, "two schedulers of one process have their own names")
	require.NoError(t, r.Close())
	require.NoError(t, other.Close())
	r.Count(meter.Preemptions, lockstep.MetricLabels{}, 1) // still no harm
	_, err = prometheus.New(prometheus.Config{Registerer: reg})
	require.NoError(t, err)

	taken := client.NewRegistry()
	taken.MustRegister(client.NewGauge(client.GaugeOpts{Name: "gpusched_jobs", Help: "Another's."}))
	_, err = prometheus.New(prometheus.Config{Registerer: taken})
	require.Error(t, err)

	bare, err := prometheus.New(prometheus.Config{})
	require.NoError(t, err)
	require.NoError(t, bare.Close())
	require.NoError(t, client.NewPedanticRegistry().Register(bare), "a collector like any other")
}

// What is scraped of a simulated day is what the simulator counted.
func TestTheScrapeAgreesWithTheSimulator(t *testing.T) {
	r, reg := recorder(t, prometheus.Config{})
	tree := cluster(t, 8)
	result := simulate(t, host(t, scheduler.Config{Tree: tree}, r), tree, 12*time.Hour)
	all := families(t, reg)
	require.Positive(t, result.Preemptions)
	require.Equal(t, float64(result.Finished), sum(all["gpusched_jobs_ended_total"], "result", "succeeded"))
	require.Equal(t, float64(result.Preemptions), sum(all["gpusched_preemptions_total"], "", ""))
	require.Equal(t, float64(result.Steps), sum(all["gpusched_decision_duration_seconds"], "policy", "ltgf"))
	require.Equal(t, 64.0, sum(all["gpusched_capacity_gpus"], "", ""))
	require.InDelta(t, result.Service.GPUSeconds(), sum(all["gpusched_gpu_seconds_total"], "", ""), 4*8)
	require.Zero(t, sum(all["gpusched_metrics_dropped_total"], "", ""), "all that is recorded is described")
}
