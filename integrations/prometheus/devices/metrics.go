package devices

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockstep-gpu/lockstep/internal/nvml"
)

// Metric is what the Collector exports under one name, for documentation.
type Metric struct {
	Name   string   // Name is without the prefix.
	Kind   string   // Kind is "counter" or "gauge".
	Help   string   // Help is one sentence without a stop.
	Labels []string // Labels are those beside gpu and uuid; nil means none.
	Host   bool     // Host says that it is about the host: it has no labels gpu and uuid.
}

// The metrics that are looked up by name.
const (
	nameUp       = "device_up"
	nameInfo     = "device_info"
	nameSupport  = "device_supported"
	nameUtil     = "device_utilization_ratio"
	nameMemUtil  = "device_memory_active_ratio"
	nameMemTotal = "device_memory_bytes"
	nameMemUsed  = "device_memory_used_bytes"
	nameTemp     = "device_temperature_celsius"
	namePower    = "device_power_watts"
	nameEnergy   = "device_energy_joules_total"
	nameClock    = "device_clock_hertz"
	nameHeld     = "device_clock_held"
	nameECC      = "device_ecc_errors_total"
	nameECCOn    = "device_ecc_enabled"
	nameECCLife  = "device_ecc_lifetime_errors_total"
	nameRows     = "device_remapped_rows"
	nameRowsWait = "device_row_remap_pending"
	nameRowsFail = "device_row_remap_failed"
	nameLinks    = "device_nvlinks"
	nameRecovery = "device_recovery_needed"
	nameXID      = "device_xid_errors_total"
	nameHostUp   = "devices_up"
	nameSampled  = "devices_sampled_timestamp_seconds"
)

// Metrics returns all that a Collector exports. The slice is the caller's.
func Metrics() []Metric {
	const counter, gauge = "counter", "gauge"
	return []Metric{
		{Name: nameHostUp, Kind: gauge, Host: true, Help: "Whether the library and the driver answered in the latest round"},
		{Name: nameSampled, Kind: gauge, Host: true, Help: "When the latest round was, since 1970"},
		{Name: nameUp, Kind: gauge, Help: "Whether the GPU answered in the latest round"},
		{Name: nameInfo, Kind: gauge, Help: "What the GPU and the driver call themselves", Labels: []string{"product", "driver"}},
		{Name: nameSupport, Kind: gauge, Help: "Whether driver and GPU tell what a metric is about", Labels: []string{"metric"}},
		{Name: nameUtil, Kind: gauge, Help: "Part of the time in which some kernel ran"},
		{Name: nameMemUtil, Kind: gauge, Help: "Part of the time in which memory was read or written"},
		{Name: nameMemTotal, Kind: gauge, Help: "Memory of the GPU"},
		{Name: nameMemUsed, Kind: gauge, Help: "Memory in use, with what the driver keeps for itself"},
		{Name: nameTemp, Kind: gauge, Help: "Temperature of the GPU"},
		{Name: namePower, Kind: gauge, Help: "Power draw"},
		{Name: nameEnergy, Kind: counter, Help: "Energy used since the driver was loaded"},
		{Name: nameClock, Kind: gauge, Help: "Clock rate", Labels: []string{"clock"}},
		{Name: nameHeld, Kind: gauge, Help: "Whether something holds the clocks down", Labels: []string{"cause"}},
		{Name: nameECCOn, Kind: gauge, Help: "Whether memory errors are corrected and counted"},
		{Name: nameECC, Kind: counter, Help: "Memory errors since the driver was loaded", Labels: []string{"outcome"}},
		{Name: nameECCLife, Kind: counter, Help: "Memory errors that were not corrected, in the life of the GPU"},
		{Name: nameRows, Kind: gauge, Help: "Memory rows that others stand in for", Labels: []string{"cause"}},
		{Name: nameRowsWait, Kind: gauge, Help: "Whether rows will be replaced at the next reset"},
		{Name: nameRowsFail, Kind: gauge, Help: "Whether a row could not be replaced"},
		{Name: nameLinks, Kind: gauge, Help: "NVLinks", Labels: []string{"state"}},
		{Name: nameRecovery, Kind: gauge, Help: "Whether the driver asks for a recovery", Labels: []string{"action"}},
		{Name: nameXID, Kind: counter, Help: "XID errors that the driver reported since the collector began", Labels: []string{"xid"}},
	}
}

// desc is a metric as the registry wants it.
type desc struct {
	*prometheus.Desc
	kind prometheus.ValueType
}

// describe declares all metrics.
func describe(prefix string) map[string]desc {
	out := make(map[string]desc)
	for _, m := range Metrics() {
		var labels []string
		if !m.Host {
			labels = []string{"gpu", "uuid"}
		}
		kind := prometheus.GaugeValue
		if m.Kind == "counter" {
			kind = prometheus.CounterValue
		}
		out[m.Name] = desc{prometheus.NewDesc(prefix+m.Name, m.Help+".", append(labels, m.Labels...), nil), kind}
	}
	return out
}

// held are the causes in the library's mask of what holds the clocks down.
var held = []struct {
	bit   uint64
	cause string
}{
	{0x1, "idle"},
	{0x2, "application"},
	{0x4, "power_cap"},
	{0x8, "hardware"},
	{0x10, "sync_boost"},
	{0x20, "thermal"},
	{0x40, "hardware_thermal"},
	{0x80, "power_brake"},
	{0x100, "display"},
}

// recovery are the library's words for what the driver asks for, by number; none is 0.
var recovery = []string{"none", "reset", "reboot", "drain", "drain_and_reset"}

// value is one series of a GPU.
type value struct {
	name  string
	v     float64
	label string // of the metric's own labels, "" for none
	more  string // the second one
}

// reading is what one GPU said in one round.
type reading struct {
	values      []value
	unsupported map[string]bool // of the metrics that can be
	failed      error           // the first failure that is not a lack of support
}

func (r *reading) set(name string, v float64, labels ...string) {
	x := value{name: name, v: v}
	if len(labels) > 0 {
		x.label = labels[0]
	}
	if len(labels) > 1 {
		x.more = labels[1]
	}
	r.values = append(r.values, x)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// megahertz is a clock rate as the library has it, in hertz.
func megahertz(n int) float64 { return float64(n) * 1e6 }

// setClocks notes clock rates and what holds them down.
func (r *reading) setClocks(c nvml.Clocks) {
	r.set(nameClock, megahertz(c.SM), "sm")
	r.set(nameClock, megahertz(c.Memory), "memory")
	for _, h := range held {
		r.set(nameHeld, truth(c.Reasons&h.bit != 0), h.cause)
	}
}

// setRecovery notes what the driver asks for; a number that is not known is "other".
func (r *reading) setRecovery(n int) {
	for i, action := range recovery[1:] {
		r.set(nameRecovery, truth(n == i+1), action)
	}
	r.set(nameRecovery, truth(n < 0 || n >= len(recovery)), "other")
}
