package prometheus_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/prometheus"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

// traffic is a cluster that is three quarters full, on which jobs end and new ones
// come in their place. It applies what the mode says.
type traffic struct {
	s    *scheduler.Scheduler
	m    *meter.Meter
	on   bool // events and actions go through m
	now  time.Time
	n, i int
	ring []lockstep.Action
}

// The modes.
const (
	modeBare  = "bare"           // no recorder, and nobody calls a meter
	modeNil   = "recorder=nil"   // a meter that is off is called
	modeGang  = "recorder=gang"  // what gang admission records by itself
	modeMeter = "recorder=meter" // that, and a meter
)

func newTraffic(tb testing.TB, mode string, nodes int) *traffic {
	tb.Helper()
	tree := cluster(tb, nodes)
	var rec lockstep.Recorder
	if mode != modeBare && mode != modeNil {
		r, err := prometheus.New(prometheus.Config{})
		require.NoError(tb, err)
		rec = r
	}
	t := &traffic{on: mode != modeBare && mode != modeGang, now: epoch}
	cfg := scheduler.Config{Tree: tree, StartAtOnce: true}
	var err error
	t.m, err = meter.New(meter.Config{Tree: tree, Recorder: rec})
	require.NoError(tb, err)
	if t.on {
		cfg.Recorder = t.m.Tap()
	} else {
		cfg.Recorder = rec
	}
	t.s, err = scheduler.New(cfg)
	require.NoError(tb, err)
	t.ring = make([]lockstep.Action, nodes*8*3/4*10/25) // two and a half devices a job
	for i := range t.ring {
		t.ring[i] = t.next(tb)
	}
	return t
}

func (t *traffic) apply(tb testing.TB, e *lockstep.Event) {
	err := t.s.Apply(*e)
	if t.on {
		t.m.Event(t.s, e, err)
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// next submits a job and starts it.
func (t *traffic) next(tb testing.TB) lockstep.Action {
	t.n++
	g := &lockstep.Gang{
		ID: lockstep.JobID("j" + strconv.Itoa(t.n)), Tenant: tenants[t.n%len(tenants)], Queue: "batch", Walltime: time.Hour,
		Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 1 + t.n%4}}},
	}
	t.apply(tb, &lockstep.Event{Kind: lockstep.EventSubmit, Time: t.now, Gang: g})
	actions, err := t.s.Step(t.now)
	if t.on {
		t.m.Step(t.s, t.now, 50*time.Microsecond, actions)
	}
	if err != nil || len(actions) != 1 {
		tb.Fatal(err, len(actions))
	}
	return actions[0]
}

var tenants = []lockstep.TenantID{"t0", "t1", "t2", "t3", "t4", "t5", "t6"}

// job is one job's life: an end, a submission, a decision.
func (t *traffic) job(tb testing.TB) {
	t.now = t.now.Add(time.Millisecond)
	a := &t.ring[t.i%len(t.ring)]
	t.apply(tb, &lockstep.Event{Kind: lockstep.EventFinish, Time: t.now, Job: a.Job, Attempt: a.Attempt})
	t.ring[t.i%len(t.ring)] = t.next(tb)
	t.i++
}

// BenchmarkDecision is one job's life (an end, a submission, a decision) with
// measurements off and on. All modes take turns, a few jobs each, so that a busy
// machine is as unkind to one as to the others; what is reported is the median of
// a mode's turns. What the recorder costs is the difference to bare.
func BenchmarkDecision(b *testing.B) {
	const turn = 10
	modes := []string{modeBare, modeNil, modeGang, modeMeter}
	all := make([]*traffic, len(modes))
	for i, mode := range modes {
		all[i] = newTraffic(b, mode, 128)
	}
	times := make([][]time.Duration, len(modes))
	for b.Loop() {
		for i := range modes {
			began := time.Now()
			for range turn {
				all[i].job(b)
			}
			times[i] = append(times[i], time.Since(began))
		}
	}
	b.ReportMetric(0, "ns/op") // of all modes together, which means nothing
	for i, mode := range modes {
		slices.Sort(times[i])
		b.ReportMetric(float64(times[i][len(times[i])/2].Nanoseconds())/turn, "ns/decision:"+mode)
	}
}

// BenchmarkSample is what is done before a scrape.
func BenchmarkSample(b *testing.B) {
	t := newTraffic(b, modeMeter, 128)
	b.ReportAllocs()
	for b.Loop() {
		t.m.Sample(t.s, t.now)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(t.ring)), "ns/job")
}

// Off is off: a nil recorder adds no allocation to a decision.
func TestOffAddsNoAllocation(t *testing.T) {
	allocs := func(mode string) float64 {
		w := newTraffic(t, mode, 16)
		for range 500 { // maps and buffers have grown
			w.job(t)
		}
		return testing.AllocsPerRun(500, func() { w.job(t) })
	}
	bare, off := allocs(modeBare), allocs(modeNil)
	require.Equal(t, bare, off)
	require.Positive(t, bare)
	t.Logf("allocations of one job's life: %v without a meter, %v with one that is off, %v with gang's alone, %v with all", bare, off, allocs(modeGang), allocs(modeMeter))
}

// BenchmarkRecord is one measurement.
func BenchmarkRecord(b *testing.B) {
	r, err := prometheus.New(prometheus.Config{Values: 2})
	require.NoError(b, err)
	l := lockstep.MetricLabels{Queue: "batch", State: "running", Reason: "term"}
	more := l
	for _, q := range []lockstep.QueueID{"batch", "other-queue"} {
		more.Queue = q
		r.Observe(meter.AdmissionWait, more, 1)
	}
	more.Queue = "one-too-many"
	for _, c := range []struct {
		name   string
		record func()
	}{
		{"counter", func() { r.Count(meter.Preemptions, l, 1) }},
		{"gauge", func() { r.Gauge(meter.Jobs, l, 1) }},
		{"histogram", func() { r.Observe(meter.AdmissionWait, l, 1) }},
		{"folded", func() { r.Observe(meter.AdmissionWait, more, 1) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.record()
			}
		})
	}
}
