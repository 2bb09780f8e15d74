package prometheus_test

import (
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/integrations/prometheus"
	"github.com/lockstep-gpu/lockstep/scheduler/meter"
)

// Whatever tenants call themselves can be scraped.
func FuzzLabels(f *testing.F) {
	f.Add("prod", "term", 1.0, int64(1))
	f.Add("a\xff\x00", "\"{}\n\\", -1.0, int64(-1))
	f.Add("other", "", 1e300, int64(1)<<62)
	r, reg := recorder(f, prometheus.Config{Values: 3})
	f.Fuzz(func(t *testing.T, a, b string, v float64, n int64) {
		l := lockstep.MetricLabels{Queue: lockstep.QueueID(a), Tenant: lockstep.TenantID(b), Reason: lockstep.Reason(b), State: b, Kind: a}
		r.Count(meter.RefusedEvents, l, n)
		r.Gauge(meter.PendingReason, l, v)
		r.Observe(meter.StateDuration, l, v)
		r.Count(lockstep.Metric(a), l, n)
		for _, family := range families(t, reg) { // each by itself: the order cannot matter
			require.LessOrEqual(t, len(family.GetMetric()), 20, family.GetName())
			for _, m := range family.GetMetric() {
				for _, label := range m.GetLabel() {
					require.True(t, utf8.ValidString(label.GetValue()))
					require.LessOrEqual(t, len(label.GetValue()), lockstep.MaxIDLength)
				}
			}
		}
	})
}
