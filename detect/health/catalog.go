package health

import (
	"cmp"
	"slices"
	"time"
)

// source says where entries are from.
type source struct{ name, version, date string }

// The sources. The table is immutable.
var (
	nvidia = source{"NVIDIA Xid catalog, as mirrored by leptonai/gpud components/accelerator/nvidia/xid/catalog_generated.go", "gpud 73e270e", "2025-10-29"}
	nvml   = source{"NVIDIA nvml.h, as carried by NVIDIA/go-nvml", "v0.13.4-1", "2026-11-30"}
	house  = source{"lockstep", "1", "2026-11-30"}
	plugin = source{"NVIDIA/k8s-device-plugin internal/rm/health.go", "02597b9", "2026-11-30"}
	gpud   = source{"leptonai/gpud components/accelerator/nvidia/xid/threshold.go", "1726a87", "2026-11-30"}
)

// group is a run of XIDs that a source treats alike.
type group struct {
	from, to uint16
	class    Class
	action   Action
	name     string
}

// xids are the XIDs that the catalog gives an immediate resolution, and those that
// explain others. The table is immutable.
var xids = [...]group{
	{8, 8, "application", ActionNone, "GPU stopped processing"},
	{11, 11, "application", ActionNone, "corrupted push buffer"},
	{13, 13, "application", ActionNone, "graphics engine exception"},
	{14, 14, "informational", ActionNone, "unused"},
	{25, 25, "application", ActionNone, "illegal push buffer"},
	{31, 31, "application", ActionNone, "memory page fault"},
	{32, 32, "application", ActionNone, "corrupted push buffer"},
	{37, 38, "informational", ActionNone, "driver firmware error"},
	{39, 41, "application", ActionNone, "copy engine exception"},
	{43, 43, "informational", ActionNone, "GPU stopped processing"},
	{44, 44, "informational", ActionNone, "fault during context switch"},
	{45, 45, "informational", ActionWatch, "preemptive cleanup"},
	{46, 46, "device", ActionReset, "GPU stopped processing"},
	{48, 48, "device", ActionReset, "double bit ECC error"},
	{54, 54, "mechanical", ActionInspect, "auxiliary power is not connected"},
	{60, 60, "application", ActionNone, "video processor exception"},
	{62, 62, "device", ActionReset, "micro-controller halt"},
	{63, 63, "informational", ActionNone, "row remapping recorded"},
	{64, 64, "device", ActionReset, "row remapping failed"},
	{66, 67, "informational", ActionNone, "illegal access by driver"},
	{68, 68, "application", ActionNone, "video decoder exception"},
	{69, 69, "application", ActionNone, "graphics engine class error"},
	{70, 72, "application", ActionNone, "copy engine exception"},
	{74, 74, "link", ActionCordon, "NVLink error"},
	{75, 77, "application", ActionNone, "copy engine exception"},
	{78, 78, "software", ActionCordon, "vGPU start error"},
	{79, 79, "bus", ActionReboot, "fallen off the bus"},
	{80, 80, "application", ActionNone, "corrupted data sent to GPU"},
	{82, 86, "application", ActionNone, "engine exception"},
	{88, 89, "application", ActionNone, "video decoder exception"},
	{92, 92, "informational", ActionWatch, "high rate of corrected memory errors"},
	{93, 93, "informational", ActionNone, "wear limit of the InfoROM"},
	{94, 94, "application", ActionNone, "contained memory error"},
	{95, 95, "device", ActionReset, "uncontained memory error"},
	{96, 105, "application", ActionNone, "video engine exception"},
	{106, 107, "informational", ActionNone, "test message"},
	{108, 108, "informational", ActionNone, "remote translation error"},
	{109, 109, "device", ActionReset, "context switch timeout"},
	{110, 110, "device", ActionReset, "security fault"},
	{119, 120, "device", ActionReset, "GSP error"},
	{121, 121, "informational", ActionNone, "chip to chip link error"},
	{126, 135, "application", ActionNone, "copy engine exception"},
	{136, 136, "device", ActionReset, "link training failed"},
	{137, 137, "informational", ActionNone, "NVLink privilege error"},
	{139, 139, "application", ActionNone, "engine exception"},
	{140, 140, "device", ActionReset, "unrecovered ECC error"},
	{141, 141, "informational", ActionNone, "fast path error"},
	{143, 143, "device", ActionReset, "initialisation error"},
	{144, 150, "link", ActionWatch, "NVLink error, of a severity that its details tell"},
	{151, 151, "software", ActionReboot, "key rotation error: restart the virtual machine"},
	{152, 153, "informational", ActionNone, "deep learning accelerator error"},
	{154, 154, "informational", ActionNone, "recovery action changed"},
	{155, 155, "device", ActionReset, "NVLink software error"},
	{156, 156, "device", ActionReset, "resource retired"},
	{157, 157, "informational", ActionWatch, "resource retirement failed: call support"},
	{158, 158, "device", ActionReset, "fatal timeout"},
	{160, 161, "informational", ActionNone, "channel retirement"},
	{162, 162, "informational", ActionNone, "power smoothing works again"},
	{163, 163, "device", ActionWatch, "power smoothing is off"},
	{171, 172, "informational", ActionNone, "details of a double bit ECC error"},
}

// signals are what is not an XID. The table is immutable.
var signals = [...]Entry{
	{Code: "ecc/corrected", Name: "corrected memory errors", Class: "device", Action: ActionWatch, Signal: signalCounter, Limit: 1000, Window: time.Hour},
	{Code: "ecc/uncorrected", Name: "uncorrected memory errors since the driver was loaded", Class: "device", Action: ActionDrain, Signal: signalCounter},
	{Code: "ecc/lifetime", Name: "uncorrected memory errors of its life", Class: "device", Action: ActionWatch, Signal: signalTotal},
	{Code: "rows/pending", Name: "a memory row is replaced at the next reset", Class: "device", Action: ActionCordon, Signal: signalLevel},
	{Code: "rows/failed", Name: "a memory row cannot be replaced", Class: "device", Action: ActionInspect, Signal: signalLevel, Certain: true},
	{Code: "link/down", Name: "NVLinks that are down", Class: "link", Action: ActionCordon, Signal: signalLevel},
	{Code: "link/errors", Name: "NVLink errors", Class: "link", Action: ActionWatch, Signal: signalCounter, Limit: 1000, Window: time.Hour},
	{Code: "throttle/hardware", Name: "clocks held down by hardware", Class: "thermal", Action: ActionWatch, Signal: signalLevel, For: time.Minute},
	{Code: "throttle/thermal", Name: "clocks held down by temperature", Class: "thermal", Action: ActionWatch, Signal: signalLevel, For: time.Minute},
	{Code: "throttle/brake", Name: "clocks held down by the power supply", Class: "thermal", Action: ActionCordon, Signal: signalLevel, For: time.Minute},
	{Code: "throttle/power", Name: "clocks held at the power limit", Class: "informational", Action: ActionNone, Signal: signalLevel, Repeat: -1},
	{Code: "throttle/idle", Name: "clocks low for want of work", Class: "informational", Action: ActionNone, Signal: signalLevel, Repeat: -1},
	{Code: "temperature", Name: "degrees Celsius", Class: "thermal", Action: ActionWatch, Signal: signalLevel, Limit: 90, For: time.Minute},
	{Code: "nic/down", Name: "network cards that are lost or down", Class: "network", Action: ActionCordon, Signal: signalLevel},
	{Code: "nic/errors", Name: "errors of network cards", Class: "network", Action: ActionWatch, Signal: signalCounter, Limit: 1000, Window: time.Hour},
	{Code: "use/low", Name: "thousandths of the processors in use while a job holds the device", Class: "performance", Action: ActionWatch, Signal: signalLevel, Limit: 50, Below: true, For: 30 * time.Minute},
	{Code: "memory/full", Name: "thousandths of the memory in use", Class: "application", Action: ActionNone, Signal: signalLevel, Limit: 980, For: time.Minute, Repeat: -1},
	{Code: CodeSlow, Name: "slower than its model says", Class: "performance", Action: ActionCordon, Probe: "speed"},
	{Code: codeLost, Name: "its observer no longer sees it", Class: "bus", Action: ActionReboot, Certain: true},
	{Code: codeProbe, Name: "a probe failed", Class: "device", Action: ActionDrain},
	{Code: "peer", Name: "peers say that it does not answer", Class: "network", Action: ActionWatch, Quorum: 2},
	{Code: "recovery/reset", Name: "the driver asks for a reset", Class: "device", Action: ActionReset, Signal: signalLevel, Certain: true},
	{Code: "recovery/reboot", Name: "the driver asks for a reboot", Class: "device", Action: ActionReboot, Signal: signalLevel, Certain: true},
	{Code: "recovery/drain", Name: "the driver asks for its peers to be drained", Class: "link", Action: ActionDrain, Signal: signalLevel, Certain: true},
	{Code: "recovery/drain-reset", Name: "the driver asks for its peers to be drained and a reset", Class: "link", Action: ActionReset, Signal: signalLevel, Certain: true},
	{Code: "recovery/imex", Name: "the driver asks for its NVLink domain to be recovered", Class: "link", Action: ActionDrain, Signal: signalLevel, Certain: true},
	{Code: "recovery/bus-reset", Name: "the driver asks for a reset of its slot", Class: "bus", Action: ActionReset, Signal: signalLevel, Certain: true},
	{Code: "recovery/system-reboot", Name: "the driver asks for a reboot of the system", Class: "bus", Action: ActionReboot, Signal: signalLevel, Certain: true},
}

// Catalog returns the default policy: NVIDIA's catalog of XIDs, what its driver
// counts and asks for, and what other observers see.
func Catalog() Policy {
	p := Policy{
		Name: "catalog", Version: "1",
		Unknown: Entry{Class: ClassUnknown, Action: ActionCordon, Source: house.name, Version: house.version, Date: house.date},
	}
	for _, g := range xids {
		for n := g.from; n <= g.to; n++ {
			p.Entries = append(p.Entries, xidEntry(n, g))
		}
	}
	for n := uint64(144); n <= 150; n++ { // by the severity that their details have in the catalog's second sheet
		p.Entries = append(p.Entries,
			nvidia.entry(Entry{Code: XID(n) + "/fatal", Name: "fatal NVLink error", Class: "link", Action: ActionReset}),
			nvidia.entry(Entry{Code: XID(n) + "/nonfatal", Name: "NVLink error that is not fatal", Class: "link", Action: ActionNone}))
	}
	for _, e := range signals {
		from := house
		if e.Code.under("recovery") || e.Code.under("throttle") || e.Code.under("rows") || e.Code.under("ecc") {
			from = nvml
		}
		p.Entries = append(p.Entries, from.entry(e))
	}
	slices.SortFunc(p.Entries, func(a, b Entry) int { return cmp.Compare(a.Code, b.Code) })
	return p
}

func (s source) entry(e Entry) Entry {
	e.Source, e.Version, e.Date = s.name, s.version, s.date
	return e
}

// xidEntry returns the entry of XID n of g, with what goes for its class and for it
// alone.
func xidEntry(n uint16, g group) Entry {
	e := nvidia.entry(Entry{Code: XID(uint64(n)), Name: g.name, Class: g.class, Action: g.action})
	switch g.class {
	case "application": // a job that fails again and again is no fault; one that fails wherever it runs is none of the device
		e.PerJob, e.Sympathetic, e.Escalate, e.Reboots = true, true, ActionCordon, -1
	case "informational":
		e.Repeat, e.Reboots = -1, -1
	}
	switch n {
	case 45: // only alone does it mean something: it follows another, or the end of a job
		e.Teardown, e.Sympathetic, e.Alone = true, true, true
	case 48, 54, 62, 64, 79, 95, 140, 143, 158:
		e.Certain = true
	case 162:
		e.Cancels = []Code{XID(163)}
	}
	return e
}

// DevicePlugin returns what NVIDIA's device plugin for Kubernetes does, for
// comparison: it ignores six XIDs, and any other closes the device. That it never
// opens one again is not reproduced.
func DevicePlugin() Policy {
	p := Policy{
		Name: "k8s-device-plugin", Version: plugin.version,
		Unknown: plugin.entry(Entry{Class: ClassUnknown, Action: ActionCordon, Repeat: -1, Reboots: -1}),
	}
	for _, n := range [...]uint64{109, 13, 31, 43, 45, 68} { // in the order of the codes as text
		p.Entries = append(p.Entries, plugin.entry(Entry{Code: XID(n), Class: "application", Action: ActionNone, Repeat: -1, Reboots: -1}))
	}
	return p
}

// GPUd returns what gpud does, for comparison: the catalog, where what asks for a
// reset asks for a reboot, two reboots that do not help ask for inspection, except
// of XID 94, and mere repetition for nothing.
func GPUd() Policy {
	p := Catalog()
	p.Name, p.Version = "gpud", gpud.version
	for i := range p.Entries {
		e := &p.Entries[i]
		e.Repeat = -1
		if !e.Code.under("xid") {
			continue
		}
		if e.Action == ActionReset {
			e.Action = ActionReboot
		}
		if e.Reboots == 0 {
			e.Reboots = 2
		}
		if e.Code == XID(94) {
			e.Reboots = -1 // its threshold of 1000 is never reached
		}
		e.Source, e.Version, e.Date = gpud.name, gpud.version, gpud.date
	}
	return p
}
