package nvml

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/nvml"
	"github.com/lockstep-gpu/lockstep/topology"
)

// The kinds of error, beside those of package lockstep.
var (
	// ErrUnavailable is the kind where there is no usable library, or no driver
	// behind it, or no support for it in this build.
	ErrUnavailable = nvml.ErrUnavailable

	// ErrLost is the kind where a GPU does not answer until it is reset, if then.
	ErrLost = nvml.ErrLost

	// ErrFailed is the kind where a call failed, or answered what cannot be.
	ErrFailed = nvml.ErrFailed
)

// Config says which library to ask. The zero Config is the driver's.
type Config struct {
	Library string // Library is a path, or a name that the dynamic linker finds; "" means libnvidia-ml.so.1.
}

// Read asks the library about this host. The library is loaded for the life of the
// process, and initialised for the call.
func Read(cfg Config) (*Host, error) {
	lib, err := nvml.Open(nvml.Config{Library: cfg.Library})
	if err != nil {
		return nil, at("", err)
	}
	r := reader{lib: lib, unknown: make(map[string]bool)}
	h, err := r.host()
	if err := errors.Join(err, at("", lib.Close())); err != nil {
		return nil, err
	}
	return h, nil
}

// at says which GPU an error is about.
func at(place string, err error) error {
	var e *lockstep.Error
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	c.Op = "nvml: read"
	if place != "" {
		c.Field = place + ": " + e.Field
	}
	return &c
}

// reader asks a library.
type reader struct {
	lib     *nvml.Library
	devices []*nvml.Device
	unknown map[string]bool // functions that are not supported
	errs    []error
}

// host asks all there is to ask. It returns all errors joined.
func (r *reader) host() (*Host, error) {
	h := &Host{}
	if v, ok := ask(r, "", r.lib.Version); ok {
		h.Driver, h.Library, h.CUDA = v.Driver, v.NVML, v.CUDA
	}
	n, _ := ask(r, "", r.lib.Count)
	if n < 0 || n > lockstep.MaxDevicesPerNode {
		r.fail("", "nvmlDeviceGetCount_v2", strconv.Itoa(n), "want at most "+strconv.Itoa(lockstep.MaxDevicesPerNode)+" GPUs")
		n = 0
	}
	for i := range n {
		d, err := r.lib.Device(i)
		if err != nil {
			r.errs = append(r.errs, at(gpu(i), err)) // also where it is not supported: there is no GPU without
			continue
		}
		r.devices = append(r.devices, d)
		h.GPUs = append(h.GPUs, r.gpu(gpu(i), d))
	}
	if len(r.errs) == 0 {
		r.pairs(h)
	}
	h.Unknown = slices.Sorted(maps.Keys(r.unknown))
	if len(r.errs) == 0 {
		if err := h.validate(); err != nil { // what a library says is not taken on trust
			r.fail("", "", "", "the library contradicts itself: "+err.Error())
		}
	}
	if err := errors.Join(r.errs...); err != nil {
		return nil, err
	}
	return h, nil
}

func gpu(i int) string { return "GPUs[" + strconv.Itoa(i) + "]" }

func (r *reader) fail(place, function, value, reason string) {
	r.errs = append(r.errs, at(place, &lockstep.Error{Kind: ErrFailed, Field: function, Value: value, Reason: reason}))
}

// ask makes a call; ok is false where it is not supported, which is noted, or
// fails.
func ask[T any](r *reader, place string, call func() (T, error)) (v T, ok bool) {
	v, err := call()
	var e *lockstep.Error
	switch {
	case err == nil:
		return v, true
	case errors.Is(err, nvml.ErrUnsupported) && errors.As(err, &e):
		r.unknown[e.Field] = true
	default:
		r.errs = append(r.errs, at(place, err))
	}
	var zero T
	return zero, false
}

// gpu asks about one GPU.
func (r *reader) gpu(place string, d *nvml.Device) GPU {
	g := GPU{Minor: -1, Own: -1}
	uuid, ok := ask(r, place, d.UUID)
	if !ok && len(r.errs) == 0 {
		r.fail(place, "nvmlDeviceGetUUID", "", "a GPU needs a name")
	}
	g.UUID = lockstep.DeviceID(uuid)
	g.Name, _ = ask(r, place, d.Name)
	g.Bus, _ = ask(r, place, d.Bus)
	g.Capability, _ = ask(r, place, d.Capability)
	g.Memory, _ = ask(r, place, d.Memory)
	g.CPUs, _ = ask(r, place, d.CPUs)
	g.NUMA, _ = ask(r, place, d.NUMA)
	if minor, ok := ask(r, place, d.Minor); ok {
		g.Minor = minor
	}
	if own, ok := ask(r, place, d.Own); ok {
		g.Own = own
	}
	if p, ok := ask(r, place, d.PCIe); ok {
		g.PCIe = pcieRate(p.Generation, p.Lanes)
	}
	links, _ := ask(r, place, d.NVLinks)
	for _, l := range links {
		g.NVLinks = append(g.NVLinks, NVLink{Number: l.Number, Up: l.Up, Remote: remote(l.Remote), Bus: l.Bus, Rate: l.Rate})
	}
	if f, ok := ask(r, place, d.Fabric); ok {
		g.Fabric = fabric(f)
	}
	if m, ok := ask(r, place, d.MIG); ok {
		g.MIG = mig(m)
	}
	return g
}

func remote(r nvml.Remote) Remote {
	switch r {
	case nvml.RemoteGPU:
		return RemoteGPU
	case nvml.RemoteCPU:
		return RemoteCPU
	case nvml.RemoteSwitch:
		return RemoteSwitch
	}
	return RemoteUnknown
}

// fabric returns nil for a GPU that is in none.
func fabric(f nvml.Fabric) *Fabric {
	switch f.State {
	case nvml.FabricNotStarted:
		return &Fabric{State: NotStarted}
	case nvml.FabricInProgress:
		return &Fabric{State: InProgress}
	case nvml.FabricDone:
		if f.Failed != "" {
			return &Fabric{State: Failed, Reason: f.Failed}
		}
		return &Fabric{State: Done, Cluster: uuid(f.Cluster), Clique: f.Clique, Health: f.Health}
	}
	return nil
}

func mig(m nvml.MIG) *MIG {
	out := &MIG{On: m.On, Pending: m.Pending}
	for _, i := range m.Instances {
		out.Instances = append(out.Instances, Instance{
			UUID: lockstep.DeviceID(i.UUID), GPU: i.GPU, Compute: i.Compute,
			Memory: i.Memory, Slices: i.Slices, Start: i.Start, Size: i.Size,
		})
	}
	return out
}

// pairs asks about pairs of GPUs. A library that does not tell what they have in
// common leaves them as far apart as can be.
func (r *reader) pairs(h *Host) {
	n := len(r.devices)
	if n == 0 {
		return
	}
	h.PCIe = make([][]topology.Link, n)
	for i := range n {
		h.PCIe[i] = make([]topology.Link, n)
	}
	access, known := make([][]Access, n), true
	for i, a := range r.devices {
		access[i] = make([]Access, n)
		for j, b := range r.devices {
			place := gpu(i) + " and " + gpu(j)
			if j > i {
				h.PCIe[i][j] = r.ancestor(place, a, b)
				h.PCIe[j][i] = h.PCIe[i][j]
			}
			if j != i && known {
				access[i][j], known = r.access(place, a, b)
			}
		}
	}
	if known && n > 1 {
		h.Access = access
	}
}

// ancestor returns the link over PCIe between two GPUs.
func (r *reader) ancestor(place string, a, b *nvml.Device) topology.Link {
	level, ok := ask(r, place, func() (nvml.Ancestor, error) { return a.Ancestor(b) })
	if !ok {
		return topology.SYS
	}
	switch level {
	case nvml.AncestorInternal, nvml.AncestorSingle:
		return topology.PIX
	case nvml.AncestorMultiple:
		return topology.PXB
	case nvml.AncestorHostBridge:
		return topology.PHB
	case nvml.AncestorNode:
		return topology.NODE
	case nvml.AncestorSystem:
		return topology.SYS
	}
	r.fail(place, "nvmlDeviceGetTopologyCommonAncestor", strconv.Itoa(int(level)), "no such level is known")
	return topology.SYS
}

// access returns how a reaches b; ok is false where the library does not tell.
func (r *reader) access(place string, a, b *nvml.Device) (out Access, ok bool) {
	for _, c := range [...]struct {
		into *Status
		kind nvml.Access
	}{{&out.Read, nvml.AccessRead}, {&out.Write, nvml.AccessWrite}, {&out.NVLink, nvml.AccessNVLink}, {&out.Atomics, nvml.AccessAtomics}} {
		n, ok := ask(r, place, func() (int, error) { return a.P2P(b, c.kind) })
		if !ok {
			return Access{}, false
		}
		*c.into = status(n)
	}
	return out, true
}

func status(n int) Status {
	words := [...]Status{OK, ChipsetNotSupported, GPUNotSupported, TopologyNotSupported, Disabled, NotSupported}
	if n < 0 || n >= len(words) {
		return Unknown
	}
	return words[n]
}
