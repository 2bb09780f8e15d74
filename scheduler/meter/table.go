package meter

import "github.com/lockstep-gpu/lockstep"

// row is a metric of the table and who records it.
type row struct {
	lockstep.MetricDescriptor
	feeder string
}

// Who records what.
const (
	feederMeter   = "scheduler/meter"
	feederAdapter = "the adapter"
)

// The units.
const (
	seconds = "seconds"
	gpus    = "gpus"
	ratio   = "ratio"
)

// Metrics returns the whole table, those of the host's other packages included,
// for adapters. The slice is the caller's.
func Metrics() []lockstep.MetricDescriptor {
	rows := table()
	out := make([]lockstep.MetricDescriptor, len(rows))
	for i := range rows {
		out[i] = rows[i].MetricDescriptor
	}
	return out
}

// Feeder says who records a metric of the table: "scheduler/meter", "the
// adapter", or the package of which the host records what it says; "" for a
// metric that is not in the table.
func Feeder(m lockstep.Metric) string {
	for _, r := range table() {
		if r.Name == m {
			return r.feeder
		}
	}
	return ""
}

// table is the table, in the order in which it is shown.
func table() []row {
	var rows []row
	rows = appendJobs(rows)
	rows = appendDevices(rows)
	rows = appendChanges(rows)
	rows = appendSharing(rows)
	rows = appendServing(rows)
	rows = appendDetection(rows)
	self := func(name lockstep.Metric, help string, labels ...lockstep.MetricLabel) row {
		return row{lockstep.MetricDescriptor{Name: name, Kind: lockstep.MetricCounter, Help: help, Labels: labels}, feederAdapter}
	}
	return append(rows,
		self(Folded, "Measurements whose labels were folded into one series, since there were too many", label(lockstep.FieldKind, "metric")),
		self(Dropped, "Measurements dropped since no descriptor fits them"),
	)
}

func label(f lockstep.MetricField, name string) lockstep.MetricLabel {
	return lockstep.MetricLabel{Field: f, Name: name}
}

func field(f lockstep.MetricField) lockstep.MetricLabel { return lockstep.MetricLabel{Field: f} }

func counter(feeder string, name lockstep.Metric, help string, labels ...lockstep.MetricLabel) row {
	return row{lockstep.MetricDescriptor{Name: name, Kind: lockstep.MetricCounter, Help: help, Labels: labels}, feeder}
}

func gauge(feeder string, name lockstep.Metric, unit, help string, labels ...lockstep.MetricLabel) row {
	return row{lockstep.MetricDescriptor{Name: name, Kind: lockstep.MetricGauge, Unit: unit, Help: help, Labels: labels}, feeder}
}

func histogram(feeder string, name lockstep.Metric, unit, help string, buckets []float64, labels ...lockstep.MetricLabel) row {
	return row{lockstep.MetricDescriptor{Name: name, Kind: lockstep.MetricHistogram, Unit: unit, Help: help, Labels: labels, Buckets: buckets}, feeder}
}

// The buckets, fresh for each metric. Waits go from a second to a week, decisions
// from 10 µs to 10 s.
func waits() []float64 {
	return []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600, 168 * 3600}
}

func latencies() []float64 {
	return []float64{0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800}
}

func decisions() []float64 {
	return []float64{0.00001, 0.00003, 0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10}
}

func counts() []float64 { return []float64{1, 2, 4, 8, 16, 32, 64, 128, 256} }

func errorRatios() []float64 { return []float64{0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.33, 2, 4, 10} }

func appendJobs(rows []row) []row {
	queue, policy := field(lockstep.FieldQueue), label(lockstep.FieldKind, "policy")
	return append(rows,
		gauge(feederMeter, Jobs, "", "Jobs that have not ended", queue, field(lockstep.FieldState)),
		counter(feederMeter, JobsEnded, "Jobs that reached an end", queue, field(lockstep.FieldResult)),
		histogram(feederMeter, StateDuration, seconds, "Time that jobs stayed in a state, when they left it", waits(), queue, field(lockstep.FieldState)),
		histogram(feederMeter, AdmissionWait, seconds, "Time from when a job began to wait until it was granted room", waits(), queue),
		histogram(feederMeter, StartLatency, seconds, "Time from the grant of room to the start", latencies(), queue),
		counter(feederMeter, Decisions, "Tries to place a waiting job", policy, field(lockstep.FieldResult)),
		histogram(feederMeter, DecisionDuration, seconds, "Time that a decision step took", decisions(), policy),
		gauge(feederMeter, PendingReason, "", "Jobs that wait, by the first limit that binds", queue, field(lockstep.FieldReason)),
	)
}

func appendDevices(rows []row) []row {
	class, tenant := field(lockstep.FieldClass), field(lockstep.FieldTenant)
	return append(rows,
		gauge(feederMeter, CapacityGPUs, gpus, "Devices that there are", class),
		gauge(feederMeter, AllocatedGPUs, gpus, "Devices held by jobs that run or leave", class),
		gauge(feederMeter, ReservedGPUs, gpus, "Devices held for jobs that have not started", class),
		gauge(feederMeter, QuarantinedGPUs, gpus, "Devices on nodes that are down or cordoned", class),
		gauge(feederMeter, QuotaNominal, gpus, "Devices that are a tenant's own part by its weight", tenant),
		gauge(feederMeter, QuotaBorrowed, gpus, "Devices that a tenant holds beyond its own part", tenant),
		gauge(feederMeter, QuotaLent, gpus, "Devices of a tenant's own part that it does not hold", tenant),
		gauge(feederMeter, DominantShare, ratio, "Part of all devices that a tenant holds", tenant),
		gauge(feederMeter, FairShare, ratio, "Service of a tenant over what it was entitled to, 1 being fair", tenant),
		gauge("placement", Fragmentation, ratio, "Part of the idle devices that a shape of demand cannot use", class, label(lockstep.FieldKind, "shape")),
		counter(feederMeter, GPUSeconds, "Device time in whole-device seconds, by what it went into", tenant, field(lockstep.FieldKind)),
		counter(feederMeter, LostGPUSeconds, "Device time that came to nothing, in whole-device seconds", field(lockstep.FieldReason)),
	)
}

func appendChanges(rows []row) []row {
	reason, kind := field(lockstep.FieldReason), field(lockstep.FieldKind)
	direction := label(lockstep.FieldKind, "direction")
	return append(rows,
		counter(feederMeter, Preemptions, "Jobs stopped or cut to make room for others", reason),
		histogram(feederMeter, Victims, "jobs", "Jobs that had to make room for one", counts(), reason),
		counter(feederMeter, Evictions, "Jobs told to leave devices", reason),
		counter(feederMeter, Restarts, "Attempts that ended with the job to be tried again", label(lockstep.FieldReason, "cause"), label(lockstep.FieldKind, "budget")),
		counter("policy/deadline", DeadlineJobs, "Jobs with a deadline, by whether they met it", label(lockstep.FieldResult, "outcome")),
		counter(feederMeter, StaleEvents, "Events that came too late: of an earlier attempt or an earlier time", kind),
		counter(feederMeter, RefusedEvents, "Events that were refused", kind, reason),
		counter("lease", Fenced, "Writes refused since their fencing token is over", kind),
		counter(feederMeter, Resizes, "Changes of size", direction),
		histogram(feederMeter, ResizeStall, seconds, "Time from a change of size until the job goes on with it", latencies(), direction),
	)
}

func appendSharing(rows []row) []row {
	class, lender := field(lockstep.FieldClass), label(lockstep.FieldTenant, "lender")
	return append(rows,
		gauge("sharing", PackPairs, "", "Pairs of jobs that share devices", class),
		histogram("sharing", PackSlowdown, ratio, "Rate of a job alone over its rate beside another", []float64{1, 1.05, 1.1, 1.2, 1.35, 1.5, 2, 3, 5}, class),
		gauge("sharing", Oversubscription, ratio, "What tenants of shared devices may use together over what there is", class),
		counter("sharing", ContentionEvicted, "Jobs that had to leave a device which they shared", class),
		gauge("lease", LoanedGPUs, gpus, "Devices on loan", lender),
		histogram("lease", RecallDuration, seconds, "Time from a recall until the devices were back", latencies(), lender),
		counter("lease", RecallOverdue, "Recalls that were not met in time", lender),
	)
}

func appendServing(rows []row) []row {
	model := field(lockstep.FieldModel)
	return append(rows,
		histogram("serving", ServingBatchSize, "requests", "Requests of a batch", counts(), model),
		histogram("serving", ServingQueue, seconds, "Time that requests waited for their batch", []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10}, model),
		counter("serving", ServingSLORequests, "Requests, by whether they met their objective", model, label(lockstep.FieldResult, "outcome")),
		gauge("serving/autoscale", ServingDesired, "replicas", "Replicas that are wanted", model),
		gauge("serving/autoscale", ServingReady, "replicas", "Replicas that serve", model),
		gauge("serving/autoscale", ServingStarting, "replicas", "Replicas that load", model),
	)
}

func appendDetection(rows []row) []row {
	kind := field(lockstep.FieldKind)
	return append(rows,
		histogram("perfmodel", PredictionError, ratio, "What a model predicted over what came, 1 being right", errorRatios(), field(lockstep.FieldModel)),
		gauge("detect/health", HealthScore, "", "Mean health of devices, 0 to 1", kind),
		gauge("detect", Suspects, "", "Devices under suspicion", kind),
		counter("detect", Verdicts, "What detection found", kind),
	)
}
