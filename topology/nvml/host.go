package nvml

import (
	"encoding/hex"
	"errors"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
)

// Host is what the library says of a host.
type Host struct {
	Driver  string `json:"driver,omitempty"`  // Driver is the version of the kernel driver.
	Library string `json:"library,omitempty"` // Library is the version of the library.
	CUDA    int    `json:"cuda,omitempty"`    // CUDA is the greatest that the driver serves, 1000 times major plus 10 times minor; 0 means unknown.

	GPUs   []GPU             `json:"gpus,omitempty"`   // GPUs are in the library's order.
	PCIe   [][]topology.Link `json:"pcie,omitempty"`   // PCIe are the links over PCIe between GPUs, PIX to SYS, Self on the diagonal; symmetric.
	Access [][]Access        `json:"access,omitempty"` // Access is from each GPU to each other; nil where unknown.

	Unknown []string `json:"unknown,omitempty"` // Unknown are the functions that the library lacks or a device does not support, in order of names.
}

// GPU is one GPU.
type GPU struct {
	UUID       lockstep.DeviceID       `json:"uuid"`                 // UUID is its own name, "GPU-…".
	Name       string                  `json:"name,omitempty"`       // Name is the product's, "" where unknown.
	Bus        string                  `json:"bus,omitempty"`        // Bus is its PCI address, such as "0000:1a:00.0", "" where unknown.
	Minor      int                     `json:"minor"`                // Minor is the number of its device file, -1 where unknown.
	Capability int                     `json:"capability,omitempty"` // Capability is its compute capability times 10, 0 where unknown.
	Memory     lockstep.Bytes          `json:"memory,omitempty"`     // Memory is what it has, 0 where unknown.
	PCIe       lockstep.BytesPerSecond `json:"pcie,omitempty"`       // PCIe is the rate of its slot in one direction, 0 where unknown.
	CPUs       []int                   `json:"cpus,omitempty"`       // CPUs are those near it; nil where unknown.
	NUMA       []int                   `json:"numa,omitempty"`       // NUMA are the NUMA nodes near it; nil where unknown.
	Own        int                     `json:"own"`                  // Own is the NUMA node that is its own memory, -1 where there is none.
	NVLinks    []NVLink                `json:"nvlinks,omitempty"`    // NVLinks are those it can have; nil where it can have none.
	Fabric     *Fabric                 `json:"fabric,omitempty"`     // Fabric is its place in an NVLink fabric; nil where it can be in none.
	MIG        *MIG                    `json:"mig,omitempty"`        // MIG is how it is cut up; nil where it cannot be.
}

// NVLink is one NVLink of a GPU.
type NVLink struct {
	Number int                     `json:"number"`         // Number is the library's.
	Up     bool                    `json:"up,omitempty"`   // Up says that it carries data.
	Remote Remote                  `json:"to,omitempty"`   // Remote says what is at the other end of one that is up.
	Bus    string                  `json:"bus,omitempty"`  // Bus is the PCI address of what is there, "" where unknown.
	Rate   lockstep.BytesPerSecond `json:"rate,omitempty"` // Rate is of one direction, 0 where unknown.
}

// Remote says what is at the other end of an NVLink.
type Remote string

// The remotes.
const (
	RemoteUnknown Remote = ""       // RemoteUnknown: the library does not say.
	RemoteGPU     Remote = "gpu"    // RemoteGPU: a GPU.
	RemoteCPU     Remote = "cpu"    // RemoteCPU: a processor.
	RemoteSwitch  Remote = "switch" // RemoteSwitch: an NVSwitch.
)

// Access says how one GPU reaches another. All are "" for a GPU and itself.
type Access struct {
	Read    Status `json:"read,omitempty"`    // Read is for reads.
	Write   Status `json:"write,omitempty"`   // Write is for writes.
	NVLink  Status `json:"nvlink,omitempty"`  // NVLink is for access over NVLink.
	Atomics Status `json:"atomics,omitempty"` // Atomics is for atomic operations.
}

// Status says whether there is access. The words are those of nvidia-smi topo -p2p.
type Status string

// The statuses.
const (
	OK                   Status = "OK"  // OK: there is.
	ChipsetNotSupported  Status = "CNS" // ChipsetNotSupported: the chipset is in the way.
	GPUNotSupported      Status = "GNS" // GPUNotSupported: one of the GPUs cannot.
	TopologyNotSupported Status = "TNS" // TopologyNotSupported: the way between them does not allow it.
	Disabled             Status = "DR"  // Disabled: it is switched off in the driver's settings.
	NotSupported         Status = "NS"  // NotSupported: there is none, for another reason.
	Unknown              Status = "U"   // Unknown: the library does not say.
)

// State is how far a GPU has got to join its NVLink fabric.
type State string

// The states.
const (
	NotStarted State = "not started" // NotStarted: it has not begun.
	InProgress State = "in progress" // InProgress: it has.
	Done       State = "done"        // Done: it has joined.
	Failed     State = "failed"      // Failed: it could not.
)

// Fabric is a GPU's place in an NVLink fabric.
type Fabric struct {
	State   State  `json:"state"`             // State says how far it has got; the rest holds only where it is Done.
	Reason  string `json:"reason,omitempty"`  // Reason is the library's word for why it Failed.
	Cluster string `json:"cluster,omitempty"` // Cluster is the UUID of the NVLink domain, "" for one that does not leave the host.
	Clique  uint32 `json:"clique,omitempty"`  // Clique is the part of the domain in which GPUs reach each other.
	Health  uint32 `json:"health,omitempty"`  // Health is the library's mask NVML_GPU_FABRIC_HEALTH_MASK_…, 0 where it gives none.
}

// MIG is how a GPU is cut up.
type MIG struct {
	On        bool       `json:"on,omitempty"`        // On says that it is cut up now.
	Pending   bool       `json:"pending,omitempty"`   // Pending says whether it will be after the next reset.
	Instances []Instance `json:"instances,omitempty"` // Instances are those there are; nil unless On.
}

// Instance is a MIG device.
type Instance struct {
	UUID    lockstep.DeviceID `json:"uuid"`             // UUID is its own name, "MIG-…".
	GPU     int               `json:"gpu"`              // GPU is the number of its GPU instance.
	Compute int               `json:"compute"`          // Compute is the number of its compute instance in it.
	Memory  lockstep.Bytes    `json:"memory,omitempty"` // Memory is what it has.
	Slices  int               `json:"slices,omitempty"` // Slices is how many compute slices it has.
	Start   int               `json:"start"`            // Start is the first memory slice of its GPU instance, -1 where unknown.
	Size    int               `json:"size,omitempty"`   // Size is how many memory slices its GPU instance has, 0 where unknown.
}

// Config returns what topology.NewShape makes a shape of. It returns ErrInvalid for
// a Host that Read would not return.
func (h *Host) Config() (topology.ShapeConfig, error) {
	if err := h.validate(); err != nil {
		return topology.ShapeConfig{}, err
	}
	var cfg topology.ShapeConfig
	unknown := false // the rate of some NVLink
	for i := range h.GPUs {
		g := &h.GPUs[i]
		row := make([]topology.Link, len(h.GPUs))
		for j := range row {
			row[j] = h.link(i, j)
		}
		cfg.Links = append(cfg.Links, row)
		node := -1
		if len(g.NUMA) == 1 {
			node = g.NUMA[0]
		}
		cfg.NUMA = append(cfg.NUMA, node)
		if g.PCIe > 0 && (cfg.PCIeBandwidth == 0 || g.PCIe < cfg.PCIeBandwidth) {
			cfg.PCIeBandwidth = g.PCIe
		}
		for _, l := range g.NVLinks {
			if l.Up && l.Rate == 0 {
				unknown = true
			} else if l.Up && (cfg.NVLinkBandwidth == 0 || l.Rate < cfg.NVLinkBandwidth) {
				cfg.NVLinkBandwidth = l.Rate
			}
		}
	}
	if unknown {
		cfg.NVLinkBandwidth = 0
	}
	return cfg, nil
}

// link returns how GPUs i and j are joined.
func (h *Host) link(i, j int) topology.Link {
	if i == j {
		return topology.Self
	}
	if h.Access == nil || over(h.Access[i][j].NVLink) && over(h.Access[j][i].NVLink) {
		if n := min(h.direct(i, j), h.direct(j, i)); n > 0 {
			return topology.NVLink(n)
		}
		if n := min(h.switched(i), h.switched(j)); n > 0 {
			return topology.NVLink(n)
		}
	}
	return h.PCIe[i][j]
}

// over reports whether a status leaves room for access.
func over(s Status) bool { return s == OK || s == Unknown || s == "" }

// direct returns how many NVLinks of GPU i lead to GPU j.
func (h *Host) direct(i, j int) (n int) {
	for _, l := range h.GPUs[i].NVLinks {
		if l.Up && l.Bus != "" && l.Bus == h.GPUs[j].Bus {
			n++
		}
	}
	return n
}

// switched returns how many NVLinks of GPU i lead to switches. What the library
// does not tell is a switch, unless a GPU of the host is there: so it is in virtual
// machines.
func (h *Host) switched(i int) (n int) {
	for _, l := range h.GPUs[i].NVLinks {
		peer := l.Bus != "" && slices.ContainsFunc(h.GPUs, func(g GPU) bool { return g.Bus == l.Bus })
		if l.Up && (l.Remote == RemoteSwitch || l.Remote == RemoteUnknown && !peer) {
			n++
		}
	}
	return n
}

// Node returns the node of a topology that h is: its ID, its place, its shape and
// the UUIDs of its devices. Its Address is the caller's to fill in. It returns
// ErrInvalid for a Host that Read would not return; ID and path are checked by
// topology.New.
func (h *Host) Node(id lockstep.NodeID, path []string) (topology.Node, error) {
	cfg, err := h.Config()
	if err != nil {
		return topology.Node{}, err
	}
	shape, err := topology.NewShape(cfg)
	if err != nil {
		return topology.Node{}, err
	}
	n := topology.Node{ID: id, Path: path, Shape: shape}
	for i := range h.GPUs {
		n.Devices = append(n.Devices, h.GPUs[i].UUID)
	}
	return n, nil
}

// Clique returns the name of the NVLink domain that all GPUs of the host have
// joined, the UUID and the number of the clique with a dot between them, as
// Kubernetes nodes are labelled. ok is false where there is none that leaves the
// host, some GPU has not joined, or they differ.
func (h *Host) Clique() (name string, ok bool) {
	for i := range h.GPUs {
		f := h.GPUs[i].Fabric
		if f == nil || f.State != Done || f.Cluster == "" {
			return "", false
		}
		own := f.Cluster + "." + strconv.FormatUint(uint64(f.Clique), 10)
		if i > 0 && own != name {
			return "", false
		}
		name = own
	}
	return name, name != ""
}

// faults collects what is wrong with a Host.
type faults []error

func (f *faults) add(kind error, field, value, reason string) {
	*f = append(*f, &lockstep.Error{Kind: kind, Op: "nvml: host", Field: field, Value: value, Reason: reason})
}

// validate reports what keeps h from being what Read returns, all faults joined.
func (h *Host) validate() error {
	var f faults
	n := len(h.GPUs)
	if n > lockstep.MaxDevicesPerNode {
		f.add(lockstep.ErrInvalid, "GPUs", strconv.Itoa(n), "at most "+strconv.Itoa(lockstep.MaxDevicesPerNode))
		return errors.Join(f...)
	}
	seen := make(map[lockstep.DeviceID]bool, n)
	for i := range h.GPUs {
		g := &h.GPUs[i]
		g.validate(&f, gpu(i))
		if seen[g.UUID] {
			f.add(lockstep.ErrDuplicate, gpu(i)+".UUID", strconv.Quote(string(g.UUID)), "is the name of two GPUs")
		}
		seen[g.UUID] = true
	}
	if h.Access != nil && !square(h.Access, n) {
		f.add(lockstep.ErrInvalid, "Access", "", "want a square matrix of as many GPUs as there are")
	}
	if !square(h.PCIe, n) {
		f.add(lockstep.ErrInvalid, "PCIe", "", "want a square matrix of as many GPUs as there are")
		return errors.Join(f...)
	}
	for i, row := range h.PCIe {
		for j, l := range row {
			if ok := l == topology.Self; (ok || l >= topology.PIX && l <= topology.SYS) && ok == (i == j) && h.PCIe[j][i] == l {
				continue
			}
			f.add(lockstep.ErrInvalid, "PCIe["+strconv.Itoa(i)+"]["+strconv.Itoa(j)+"]", l.String(), "want X on the diagonal, else PIX to SYS, the same both ways")
		}
	}
	return errors.Join(f...)
}

// square reports whether a matrix is n wide and high.
func square[T any](m [][]T, n int) bool {
	return len(m) == n && !slices.ContainsFunc(m, func(row []T) bool { return len(row) != n })
}

// validate checks g by itself.
func (g *GPU) validate(f *faults, at string) {
	if g.UUID.Validate() != nil {
		f.add(lockstep.ErrInvalid, at+".UUID", strconv.Quote(string(g.UUID)), "want a name")
	}
	if g.PCIe < 0 {
		f.add(lockstep.ErrInvalid, at+".PCIe", g.PCIe.String(), "must not be negative")
	}
	if len(g.NUMA) == 1 && (g.NUMA[0] < 0 || g.NUMA[0] > maxNUMA) {
		f.add(lockstep.ErrInvalid, at+".NUMA[0]", strconv.Itoa(g.NUMA[0]), "want 0 to "+strconv.Itoa(maxNUMA))
	}
	if len(g.NVLinks) > topology.MaxNVLinks {
		f.add(lockstep.ErrInvalid, at+".NVLinks", strconv.Itoa(len(g.NVLinks)), "at most "+strconv.Itoa(topology.MaxNVLinks))
	}
	if slices.ContainsFunc(g.NVLinks, func(l NVLink) bool { return l.Rate < 0 }) {
		f.add(lockstep.ErrInvalid, at+".NVLinks", "", "no rate may be negative")
	}
}

// maxNUMA is the greatest NUMA node that topology.NewShape takes.
const maxNUMA = 1 << 16

// uuid writes a UUID, "" for zeros.
func uuid(b [16]byte) string {
	if b == [16]byte{} {
		return ""
	}
	s := hex.EncodeToString(b[:])
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// pcieRate returns the rate of a slot in one direction by its generation and lanes,
// 0 where they are not known. Up to generation 2 a byte takes 10 bits.
func pcieRate(generation, lanes int) lockstep.BytesPerSecond {
	rates := [...]lockstep.BytesPerSecond{250e6, 500e6, 1000e6, 2000e6, 4000e6, 8000e6, 16000e6} // a lane
	if generation < 1 || generation > len(rates) || lanes < 1 || lanes > 32 {
		return 0
	}
	return rates[generation-1] * lockstep.BytesPerSecond(lanes)
}
