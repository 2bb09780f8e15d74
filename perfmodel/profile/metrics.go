package profile

import "github.com/lockstep-gpu/lockstep"

// Metrics returns what is behind the names that Durations records, for adapters.
// The slice is the caller's.
func Metrics() []lockstep.MetricDescriptor {
	return []lockstep.MetricDescriptor{{
		Name: MetricErrorRatio, Kind: lockstep.MetricHistogram, Unit: "ratio",
		Help:    "What was expected of a job's duration over what it took, 1 being right",
		Labels:  []lockstep.MetricLabel{{Field: lockstep.FieldTenant}},
		Buckets: []float64{0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.33, 2, 4, 10},
	}}
}
