//go:build cgo && linux

package nvml

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"strings"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/lockstep-gpu/lockstep"
)

// Device is a GPU.
type Device struct {
	lib   *Library
	dev   gonvml.Device
	index int
}

// Index returns the library's number of the device.
func (d *Device) Index() int { return d.index }

// UUID returns the device's own name: nvmlDeviceGetUUID.
func (d *Device) UUID() (string, error) { return call(d.lib, "nvmlDeviceGetUUID", d.dev.GetUUID) }

// Name returns the product's name: nvmlDeviceGetName.
func (d *Device) Name() (string, error) { return call(d.lib, "nvmlDeviceGetName", d.dev.GetName) }

// Minor returns the number of the device file: nvmlDeviceGetMinorNumber.
func (d *Device) Minor() (int, error) {
	return call(d.lib, "nvmlDeviceGetMinorNumber", d.dev.GetMinorNumber)
}

// Bus returns the PCI address, in lower case and with a domain of at least four
// digits: nvmlDeviceGetPciInfo_v3.
func (d *Device) Bus() (string, error) {
	info, err := call(d.lib, "nvmlDeviceGetPciInfo_v3", d.dev.GetPciInfo)
	return bus(info), err
}

// bus returns the address in info, "" where it has none.
func bus(info gonvml.PciInfo) string {
	var b strings.Builder
	for _, c := range info.BusId {
		if c == 0 {
			break
		}
		b.WriteByte(byte(c))
	}
	domain, rest, ok := strings.Cut(strings.ToLower(b.String()), ":")
	if !ok {
		return domain
	}
	domain = strings.TrimLeft(domain, "0")
	return strings.Repeat("0", max(0, 4-len(domain))) + domain + ":" + rest
}

// Memory returns how much memory the device has: nvmlDeviceGetMemoryInfo.
func (d *Device) Memory() (lockstep.Bytes, error) {
	m, err := call(d.lib, "nvmlDeviceGetMemoryInfo", d.dev.GetMemoryInfo)
	return lockstep.Bytes(min(m.Total, 1<<62)), err
}

// Capability returns the compute capability times 10:
// nvmlDeviceGetCudaComputeCapability.
func (d *Device) Capability() (int, error) {
	return call(d.lib, "nvmlDeviceGetCudaComputeCapability", func() (int, gonvml.Return) {
		major, minor, ret := d.dev.GetCudaComputeCapability()
		return 10*major + minor, ret
	})
}

// PCIe returns what the device's slot can do: nvmlDeviceGetMaxPcieLinkGeneration
// and nvmlDeviceGetMaxPcieLinkWidth.
func (d *Device) PCIe() (p PCIe, err error) {
	if p.Generation, err = call(d.lib, "nvmlDeviceGetMaxPcieLinkGeneration", d.dev.GetMaxPcieLinkGeneration); err != nil {
		return PCIe{}, err
	}
	if p.Lanes, err = call(d.lib, "nvmlDeviceGetMaxPcieLinkWidth", d.dev.GetMaxPcieLinkWidth); err != nil {
		return PCIe{}, err
	}
	return p, nil
}

// maxCPUs is as many as Linux counts.
const maxCPUs = 8192

// CPUs returns the CPUs near the device, in order: nvmlDeviceGetCpuAffinity.
func (d *Device) CPUs() ([]int, error) {
	set, err := call(d.lib, "nvmlDeviceGetCpuAffinity", func() ([]uint, gonvml.Return) { return d.dev.GetCpuAffinity(maxCPUs / 8) })
	return members(set), err
}

// NUMA returns the NUMA nodes near the device, in order:
// nvmlDeviceGetMemoryAffinity.
func (d *Device) NUMA() ([]int, error) {
	set, err := call(d.lib, "nvmlDeviceGetMemoryAffinity", func() ([]uint, gonvml.Return) {
		return d.dev.GetMemoryAffinity(128, gonvml.AFFINITY_SCOPE_NODE)
	})
	return members(set), err
}

// members returns the numbers of the bits that are set.
func members(set []uint) (out []int) {
	for i, word := range set {
		for ; word != 0; word &= word - 1 {
			out = append(out, i*bits.UintSize+bits.TrailingZeros(word))
		}
	}
	return out
}

// Own returns the NUMA node that is the device's own memory, and ErrUnsupported
// where it is none: nvmlDeviceGetNumaNodeId.
func (d *Device) Own() (int, error) {
	return call(d.lib, "nvmlDeviceGetNumaNodeId", d.dev.GetNumaNodeId)
}

// Ancestor returns what d and o have in common: nvmlDeviceGetTopologyCommonAncestor.
func (d *Device) Ancestor(o *Device) (Ancestor, error) {
	a, err := call(d.lib, "nvmlDeviceGetTopologyCommonAncestor", func() (gonvml.GpuTopologyLevel, gonvml.Return) {
		return d.dev.GetTopologyCommonAncestor(o.dev)
	})
	return Ancestor(a), err
}

// P2P returns whether d has access of a kind to o: 0 where it has, else what is in
// the way, numbered as the library does, 1 to 6: nvmlDeviceGetP2PStatus.
func (d *Device) P2P(o *Device, a Access) (int, error) {
	s, err := call(d.lib, "nvmlDeviceGetP2PStatus", func() (gonvml.GpuP2PStatus, gonvml.Return) {
		return d.dev.GetP2PStatus(o.dev, gonvml.GpuP2PCapsIndex(a))
	})
	return int(s), err
}

// maxNVLinks is as many as the library knows.
const maxNVLinks = gonvml.NVLINK_MAX_LINKS

// NVLinks returns the NVLinks of the device, and ErrUnsupported where it can have
// none: nvmlDeviceGetNvLinkState for each link and, for those that are up and as
// far as the library has them, nvmlDeviceGetNvLinkRemotePciInfo_v2,
// nvmlDeviceGetNvLinkRemoteDeviceType and nvmlDeviceGetFieldValues.
func (d *Device) NVLinks() (links []NVLink, err error) {
	for i := range maxNVLinks {
		state, err := call(d.lib, "nvmlDeviceGetNvLinkState", func() (gonvml.EnableState, gonvml.Return) { return d.dev.GetNvLinkState(i) })
		switch {
		case err != nil && i > 0 && ended(err):
			return links, nil // a number that the device does not have
		case err != nil:
			return nil, err
		}
		l := NVLink{Number: i, Up: state == gonvml.FEATURE_ENABLED, Remote: RemoteUnknown}
		if l.Up {
			if err := d.remote(&l); err != nil {
				return nil, err
			}
		}
		links = append(links, l)
	}
	return links, nil
}

// ended reports whether a call about a link says that there is no such link.
func ended(err error) bool {
	return errors.Is(err, ErrUnsupported) || value(err) == invalidArgument.String()
}

// remote fills in what is at the other end of a link. That the library does not
// say is no error.
func (d *Device) remote(l *NVLink) error {
	info, err := call(d.lib, "nvmlDeviceGetNvLinkRemotePciInfo_v2", func() (gonvml.PciInfo, gonvml.Return) { return d.dev.GetNvLinkRemotePciInfo(l.Number) })
	if err == nil {
		l.Bus = bus(info)
	} else if !errors.Is(err, ErrUnsupported) {
		return err
	}
	kind, err := call(d.lib, "nvmlDeviceGetNvLinkRemoteDeviceType", func() (gonvml.IntNvLinkDeviceType, gonvml.Return) {
		return d.dev.GetNvLinkRemoteDeviceType(l.Number)
	})
	if err == nil {
		l.Remote = Remote(kind)
	} else if !errors.Is(err, ErrUnsupported) {
		return err
	}
	if speed, err := d.field(gonvml.FI_DEV_NVLINK_GET_SPEED, l.Number); err == nil {
		l.Rate = lockstep.BytesPerSecond(min(speed, 1<<32)) * 1e6 // MB/s
	} else if !errors.Is(err, ErrUnsupported) {
		return err
	}
	return nil
}

// field returns a field's value, as a whole number that is not negative:
// nvmlDeviceGetFieldValues.
func (d *Device) field(id, scope int) (uint64, error) {
	const function = "nvmlDeviceGetFieldValues"
	v, err := call(d.lib, function, func() (gonvml.FieldValue, gonvml.Return) {
		values := []gonvml.FieldValue{{FieldId: uint32(id), ScopeId: uint32(scope)}}
		ret := d.dev.GetFieldValues(values)
		return values[0], ret
	})
	if err != nil {
		return 0, err
	}
	if err := failure(function, Code(v.NvmlReturn)); err != nil {
		return 0, err
	}
	switch gonvml.ValueType(v.ValueType) {
	case gonvml.VALUE_TYPE_UNSIGNED_INT:
		return uint64(binary.NativeEndian.Uint32(v.Value[:])), nil
	case gonvml.VALUE_TYPE_UNSIGNED_LONG, gonvml.VALUE_TYPE_UNSIGNED_LONG_LONG:
		return binary.NativeEndian.Uint64(v.Value[:]), nil
	case gonvml.VALUE_TYPE_UNSIGNED_SHORT:
		return uint64(binary.NativeEndian.Uint16(v.Value[:])), nil
	}
	return 0, &lockstep.Error{Kind: ErrUnsupported, Op: "nvml: call", Field: function, Reason: "the value is of another type"}
}

// Fabric returns the device's place in an NVLink fabric:
// nvmlDeviceGetGpuFabricInfoV, or nvmlDeviceGetGpuFabricInfo of an older library.
func (d *Device) Fabric() (f Fabric, err error) {
	var status uint32
	if d.lib.need("nvmlDeviceGetGpuFabricInfoV") == nil {
		v, err := call(d.lib, "nvmlDeviceGetGpuFabricInfoV", func() (gonvml.GpuFabricInfo_v2, gonvml.Return) { return d.dev.GetGpuFabricInfoV().V2() })
		if err != nil {
			return Fabric{}, err
		}
		f = Fabric{State: FabricState(v.State), Cluster: v.ClusterUuid, Clique: v.CliqueId, Health: v.HealthMask}
		status = v.Status
	} else {
		v, err := call(d.lib, "nvmlDeviceGetGpuFabricInfo", d.dev.GetGpuFabricInfo)
		if err != nil {
			return Fabric{}, err
		}
		f = Fabric{State: FabricState(v.State), Cluster: v.ClusterUuid, Clique: v.CliqueId}
		status = v.Status
	}
	if f.State != FabricDone {
		return Fabric{State: f.State}, nil
	}
	if Code(status) != success {
		f.Failed = Code(status).String()
	}
	return f, nil
}

// MIG returns how the device is cut up: nvmlDeviceGetMigMode and, where it is,
// nvmlDeviceGetMaxMigDeviceCount, nvmlDeviceGetMigDeviceHandleByIndex, and for
// each instance nvmlDeviceGetUUID, nvmlDeviceGetGpuInstanceId,
// nvmlDeviceGetComputeInstanceId, nvmlDeviceGetAttributes_v2 and, if the library
// has them, nvmlDeviceGetGpuInstanceById and nvmlGpuInstanceGetInfo.
func (d *Device) MIG() (m MIG, err error) {
	m, err = call(d.lib, "nvmlDeviceGetMigMode", func() (MIG, gonvml.Return) {
		current, pending, ret := d.dev.GetMigMode()
		return MIG{On: current == gonvml.DEVICE_MIG_ENABLE, Pending: pending == gonvml.DEVICE_MIG_ENABLE}, ret
	})
	if err != nil || !m.On {
		return m, err
	}
	n, err := call(d.lib, "nvmlDeviceGetMaxMigDeviceCount", d.dev.GetMaxMigDeviceCount)
	if err != nil {
		return MIG{}, err
	}
	for i := range min(n, maxInstances) {
		dev, err := call(d.lib, "nvmlDeviceGetMigDeviceHandleByIndex", func() (gonvml.Device, gonvml.Return) { return d.dev.GetMigDeviceHandleByIndex(i) })
		if value(err) == notFound.String() || value(err) == invalidArgument.String() {
			continue // no instance of that number
		}
		if err != nil {
			return MIG{}, err
		}
		instance, err := d.instance(&Device{lib: d.lib, dev: dev})
		if err != nil {
			return MIG{}, err
		}
		m.Instances = append(m.Instances, instance)
	}
	return m, nil
}

// maxInstances is far above the 7 that a device has so far.
const maxInstances = 64

func (d *Device) instance(of *Device) (i Instance, err error) {
	if i.UUID, err = of.UUID(); err != nil {
		return Instance{}, err
	}
	if i.GPU, err = call(d.lib, "nvmlDeviceGetGpuInstanceId", of.dev.GetGpuInstanceId); err != nil {
		return Instance{}, err
	}
	if i.Compute, err = call(d.lib, "nvmlDeviceGetComputeInstanceId", of.dev.GetComputeInstanceId); err != nil {
		return Instance{}, err
	}
	a, err := call(d.lib, "nvmlDeviceGetAttributes_v2", of.dev.GetAttributes)
	if err != nil {
		return Instance{}, err
	}
	i.Memory, i.Slices, i.Start = lockstep.Bytes(min(a.MemorySizeMB, 1<<40))<<20, int(a.GpuInstanceSliceCount), -1
	if d.lib.need("nvmlDeviceGetGpuInstanceById", "nvmlGpuInstanceGetInfo") != nil {
		return i, nil
	}
	info, err := call(d.lib, "nvmlGpuInstanceGetInfo", func() (gonvml.GpuInstanceInfo, gonvml.Return) {
		instance, ret := d.dev.GetGpuInstanceById(i.GPU)
		if ret != gonvml.SUCCESS {
			return gonvml.GpuInstanceInfo{}, ret
		}
		return instance.GetInfo()
	})
	if err == nil { // else some of it needs rights that reading the rest does not
		i.Start, i.Size = int(info.Placement.Start), int(info.Placement.Size)
	}
	return i, nil
}

// ECC returns the counts of memory errors: nvmlDeviceGetEccMode and
// nvmlDeviceGetTotalEccErrors.
func (d *Device) ECC() (e ECC, err error) {
	e, err = call(d.lib, "nvmlDeviceGetEccMode", func() (ECC, gonvml.Return) {
		current, _, ret := d.dev.GetEccMode()
		return ECC{On: current == gonvml.FEATURE_ENABLED}, ret
	})
	if err != nil || !e.On {
		return e, err
	}
	for _, c := range [...]struct {
		into    *uint64
		kind    gonvml.MemoryErrorType
		counter gonvml.EccCounterType
	}{
		{&e.Corrected, gonvml.MEMORY_ERROR_TYPE_CORRECTED, gonvml.VOLATILE_ECC},
		{&e.Uncorrected, gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.VOLATILE_ECC},
		{&e.Lifetime, gonvml.MEMORY_ERROR_TYPE_UNCORRECTED, gonvml.AGGREGATE_ECC},
	} {
		if *c.into, err = call(d.lib, "nvmlDeviceGetTotalEccErrors", func() (uint64, gonvml.Return) { return d.dev.GetTotalEccErrors(c.kind, c.counter) }); err != nil {
			return ECC{}, err
		}
	}
	return e, nil
}

// Rows returns the counts of replaced memory rows: nvmlDeviceGetRemappedRows.
func (d *Device) Rows() (Rows, error) {
	return call(d.lib, "nvmlDeviceGetRemappedRows", func() (Rows, gonvml.Return) {
		corrected, uncorrected, pending, failed, ret := d.dev.GetRemappedRows()
		return Rows{corrected, uncorrected, pending, failed}, ret
	})
}

// Recovery returns what the driver asks for, numbered as the library does: 0 for
// nothing, 1 for a reset, 2 for a reboot, and others. Drivers before 570 do not say:
// nvmlDeviceGetFieldValues.
func (d *Device) Recovery() (int, error) {
	n, err := d.field(gonvml.FI_DEV_GET_GPU_RECOVERY_ACTION, 0)
	return int(min(n, 1<<30)), err
}

// Temperature returns the device's, in degrees Celsius: nvmlDeviceGetTemperature.
func (d *Device) Temperature() (int, error) {
	t, err := call(d.lib, "nvmlDeviceGetTemperature", func() (uint32, gonvml.Return) { return d.dev.GetTemperature(gonvml.TEMPERATURE_GPU) })
	return int(t), err
}

// Clocks returns how fast the device runs: nvmlDeviceGetClockInfo,
// nvmlDeviceGetMaxClockInfo and nvmlDeviceGetCurrentClocksEventReasons, or
// nvmlDeviceGetCurrentClocksThrottleReasons of an older library.
func (d *Device) Clocks() (c Clocks, err error) {
	for _, r := range [...]struct {
		into     *int
		function string
		read     func(gonvml.ClockType) (uint32, gonvml.Return)
		clock    gonvml.ClockType
	}{
		{&c.SM, "nvmlDeviceGetClockInfo", d.dev.GetClockInfo, gonvml.CLOCK_SM},
		{&c.MaxSM, "nvmlDeviceGetMaxClockInfo", d.dev.GetMaxClockInfo, gonvml.CLOCK_SM},
		{&c.Memory, "nvmlDeviceGetClockInfo", d.dev.GetClockInfo, gonvml.CLOCK_MEM},
		{&c.MaxMemory, "nvmlDeviceGetMaxClockInfo", d.dev.GetMaxClockInfo, gonvml.CLOCK_MEM},
	} {
		mhz, err := call(d.lib, r.function, func() (uint32, gonvml.Return) { return r.read(r.clock) })
		if err != nil {
			return Clocks{}, err
		}
		*r.into = int(mhz)
	}
	function, read := "nvmlDeviceGetCurrentClocksEventReasons", d.dev.GetCurrentClocksEventReasons
	if d.lib.need(function) != nil {
		function, read = "nvmlDeviceGetCurrentClocksThrottleReasons", d.dev.GetCurrentClocksThrottleReasons
	}
	if c.Reasons, err = call(d.lib, function, read); err != nil {
		return Clocks{}, err
	}
	return c, nil
}

// Wait waits for an event, as long as the limit says and at most 49 days; ok is
// false where none came: nvmlEventSetWait_v2. It may be called by one goroutine at
// a time.
func (e *Events) Wait(limit time.Duration) (event Event, ok bool, err error) {
	ms := uint32(min(max(limit, 0), longestWait) / time.Millisecond)
	data, err := call(e.lib, "nvmlEventSetWait_v2", func() (gonvml.EventData, gonvml.Return) { return e.set.Wait(ms) })
	switch {
	case value(err) == timeout.String():
		return Event{}, false, nil
	case err != nil:
		return Event{}, false, err
	}
	event = Event{Device: -1, Kind: EventKind(data.EventType), Data: data.EventData, GPU: -1}
	for _, d := range e.devices {
		if d.dev == data.Device {
			event.Device = d.index
		}
	}
	if data.GpuInstanceId != 1<<32-1 {
		event.GPU = int(data.GpuInstanceId)
	}
	return event, true, nil
}

// Close ends the watch: nvmlEventSetFree.
func (e *Events) Close() error {
	_, err := call(e.lib, "nvmlEventSetFree", func() (struct{}, gonvml.Return) { return struct{}{}, e.set.Free() })
	return err
}
