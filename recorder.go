package lockstep

// Metric names a measured quantity; each package declares its own, in the form
// "package_what_unit", such as "gang_wait_seconds". A [MetricDescriptor] says
// what is behind a name.
type Metric string

// MetricLabels tell the series of one metric apart. It is a plain value so that
// recording allocates nothing; fields that do not apply stay empty. None of them
// is a job: the number of series stays bounded while jobs come and go.
type MetricLabels struct {
	Tenant TenantID    // Tenant is whose.
	Queue  QueueID     // Queue is where it waits or waited.
	Level  Level       // Level is the level of the topology it is about.
	Reason Reason      // Reason is the cause or outcome.
	Class  DeviceClass // Class is the kind of the devices it is about.
	Model  string      // Model is the served, or the predicting, model it is about.
	State  string      // State is the state that what is counted is in.
	Result string      // Result is how it came out.
	Kind   string      // Kind tells apart what none of the others does; each metric says what.
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
