package standalone

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// The metrics that a Scheduler records beside those of the composition.
const (
	MetricBindings  lockstep.Metric = "kube_bindings_total"  // MetricBindings counts pods that were ordered to be bound, by result: "bound", "lost" for those that are gone or that somebody else bound, "failed".
	MetricEvictions lockstep.Metric = "kube_evictions_total" // MetricEvictions counts pods that were ordered to be stopped, by result: "stopped" or "failed".
	MetricStart     lockstep.Metric = "kube_start_seconds"   // MetricStart is a sample of the time from a gang's last pod to the order to bind it.
)

// Metrics returns the descriptors of the metrics of this package. The slice is the
// caller's.
func Metrics() []lockstep.MetricDescriptor {
	result := []lockstep.MetricLabel{{Field: lockstep.FieldResult}}
	return []lockstep.MetricDescriptor{
		{Name: MetricBindings, Kind: lockstep.MetricCounter, Help: "Pods that were ordered to be bound", Labels: result},
		{Name: MetricEvictions, Kind: lockstep.MetricCounter, Help: "Pods that were ordered to be stopped", Labels: result},
		{Name: MetricStart, Kind: lockstep.MetricHistogram, Unit: "seconds", Help: "Time from a gang being whole to the order to bind it"},
	}
}

func (c *Config) count(r result) {
	if c.Recorder == nil {
		return
	}
	metric, outcome := MetricBindings, "bound"
	switch {
	case r.kind == orderStop:
		if metric, outcome = MetricEvictions, "stopped"; r.err != nil {
			outcome = "failed"
		}
	case r.err != nil && (r.err == errGone || isNotFound(r.err)):
		outcome = "lost"
	case r.err != nil:
		outcome = "failed"
	case r.node != lockstep.NodeID(r.binding.Target.Name):
		outcome = "lost"
	}
	c.Recorder.Count(metric, lockstep.MetricLabels{Result: outcome}, 1)
}

func (c *Config) observeWait(j *job, now time.Time) {
	if c.Recorder != nil {
		c.Recorder.Observe(MetricStart, lockstep.MetricLabels{}, now.Sub(j.since).Seconds())
	}
}
