package lockstep

// Metric names a measured quantity; each package declares its own, in the form
// "package_what_unit", such as "gang_wait_seconds".
type Metric string

// MetricLabels tell the series of one metric apart. It is a plain value so that
// recording allocates nothing; fields that do not apply stay empty.
type MetricLabels struct {
	Tenant TenantID // Tenant is whose.
	Queue  QueueID  // Queue is where it waits or waited.
	Level  Level    // Level is the level of the topology it is about.
	Reason Reason   // Reason is the cause or outcome.
}

// Recorder takes measurements. A nil Recorder is off. Its methods are called
// synchronously from decisions: they must not block and must not call back.
type Recorder interface {
	// Count adds n, at least 0, to a counter.
	Count(m Metric, l MetricLabels, n int64)
	// Gauge sets a level that goes up and down.
	Gauge(m Metric, l MetricLabels, v float64)
	// Observe adds one sample to a distribution.
	Observe(m Metric, l MetricLabels, v float64)
}
