package gang

import "github.com/lockstep-gpu/lockstep"

// Metrics returns what is behind the names that an Admission records, for
// adapters. The slice is the caller's.
func Metrics() []lockstep.MetricDescriptor {
	tenant := lockstep.MetricLabel{Field: lockstep.FieldTenant}
	queue := lockstep.MetricLabel{Field: lockstep.FieldQueue}
	whose := func(more ...lockstep.MetricLabel) []lockstep.MetricLabel {
		return append([]lockstep.MetricLabel{tenant, queue}, more...)
	}
	return []lockstep.MetricDescriptor{
		{
			Name: MetricWait, Kind: lockstep.MetricHistogram, Unit: "seconds",
			Help:    "Time from submission to start of each gang that started",
			Labels:  whose(),
			Buckets: []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 72 * 3600},
		},
		{
			Name: MetricActions, Kind: lockstep.MetricCounter,
			Help:   "Actions decided, by kind",
			Labels: whose(lockstep.MetricLabel{Field: lockstep.FieldReason, Name: "action"}),
		},
		{Name: MetricQueued, Kind: lockstep.MetricGauge, Unit: "jobs", Help: "Jobs that wait, after the latest step"},
		{Name: MetricFits, Kind: lockstep.MetricCounter, Help: "Waiting jobs that a pass tried to place", Labels: whose()},
		{Name: MetricHunts, Kind: lockstep.MetricCounter, Help: "Searches for running jobs to take room from", Labels: whose()},
	}
}
