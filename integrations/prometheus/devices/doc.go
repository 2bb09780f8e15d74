// Package devices exports what NVIDIA's management library says of the GPUs of
// this host, for Prometheus.
//
// # Model
//
// A Collector reads each GPU once a round and keeps what it was told; a scrape
// shows the latest round and never waits for the driver. What a driver or device
// does not do is not shown as zero: its series are absent, and device_supported
// is 0 for it. A GPU that does not answer has device_up 0 and nothing else but
// its counters of XIDs; where there is no library or driver, devices_up is 0.
//
// GPUs go by the labels gpu, the library's number, and uuid.
//
// # Usage
//
//	c, err := devices.New(devices.Config{Registerer: registry})
//	err = c.Run(ctx) // until ctx ends
//
// # Order of decision
//
// None is made here. GPUs are in the library's order.
//
// # Errors
//
// New returns lockstep.ErrInvalid, or ErrDuplicate for names that the registry
// has. Run returns nil when its context ends; ErrUnavailable at once where this
// build has no library, and lockstep.ErrConflict where the process has loaded
// another, or the Collector runs already. All else is logged, shown by
// devices_up, and tried again after a round.
//
// # Concurrency
//
// Collect and Describe may be called by anybody at any time. Run runs once at a
// time; it starts no goroutine, and when it returns the library was shut down.
//
// # Cost
//
// About 15 calls a GPU and round, each microseconds to milliseconds; a scrape
// costs about 25 series a GPU and no call.
//
// # Limits
//
// Linux with cgo; elsewhere Run returns ErrUnavailable. Usage, power and energy
// are asked of the library by package purego, since internal/nvml does not have
// them. XIDs are counted from when Run began. MIG instances are not told apart:
// on a GPU that is cut up the library gives no utilization. Values of the
// profiling counters of DCGM (tensor and memory pipes) are DCGM's alone. Not
// seen on hardware: it was run against a library made for tests. GPUs are looked for
// when the library is opened; one that comes later is found by the next Run.
package devices
