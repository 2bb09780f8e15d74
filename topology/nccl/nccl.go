package nccl

import (
	"io"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// System is what a text describes.
type System struct {
	Hosts []Host // Hosts are one or more.
}

// Host is the inside of a host.
type Host struct {
	Hash string // Hash is its host_hash, "" where the text has none.
	GPUs []GPU  // GPUs are its devices, in their order.
	NICs []NIC  // NICs are its network cards, in the order of the text.

	Links [][]topology.Link // Links are between GPUs, by their order.
	Cards [][]topology.Link // Cards are the links of each GPU to each network card.
}

// GPU is a device.
type GPU struct {
	Bus        string                  // Bus is its PCI address, such as "0000:0f:00.0".
	Number     int                     // Number is the one by which NVML counts it, -1 where unknown.
	NUMA       int                     // NUMA is its NUMA node, -1 where unknown.
	Capability int                     // Capability is its compute capability times 10, 0 where unknown.
	PCIe       lockstep.BytesPerSecond // PCIe is the rate of its slot in one direction, 0 where unknown.
}

// NIC is a port of a network card.
type NIC struct {
	Name  string                  // Name is such as "mlx5_0", or the PCI address where the text has no name.
	Bus   string                  // Bus is its PCI address, "" for one that is right below a NUMA node.
	NUMA  int                     // NUMA is its NUMA node, -1 where unknown.
	Port  int                     // Port is the number of the port, 0 where unknown.
	Speed lockstep.BytesPerSecond // Speed is its rate in one direction, 0 where unknown.
	GUID  string                  // GUID is its own, as it stands in the text, "" where unknown.
	Rail  int                     // Rail is the rail that a network plug-in told, -1 where none did.
}

// Parse reads a topology of NCCL. It returns ErrInvalid or ErrDuplicate for each
// fault that it finds, joined.
func Parse(r io.Reader) (*System, error) {
	p := newParser(r)
	p.document()
	if err := p.err(); err != nil {
		return nil, err
	}
	s := &System{}
	for _, h := range p.hosts {
		s.Hosts = append(s.Hosts, h.finish(p))
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return s, nil
}

// Config returns what topology.NewShape makes a shape of: links, NUMA nodes, the
// nearest network cards, and the rates of NVLinks and of the slowest slot where
// they are known. Rails are not among it.
func (h *Host) Config() topology.ShapeConfig {
	cfg := topology.ShapeConfig{Links: h.Links}
	for i, g := range h.GPUs {
		cfg.NUMA = append(cfg.NUMA, g.NUMA)
		if g.PCIe > 0 && (cfg.PCIeBandwidth == 0 || g.PCIe < cfg.PCIeBandwidth) {
			cfg.PCIeBandwidth = g.PCIe
		}
		if rate := nvlinkRate(g.Capability); i == 0 || rate < cfg.NVLinkBandwidth {
			cfg.NVLinkBandwidth = rate
		}
	}
	if len(h.NICs) > 0 {
		for _, c := range source.Nearest(h.Cards) {
			cfg.NICs = append(cfg.NICs, h.NICs[c].Name)
		}
	}
	return cfg
}

// nvlinkRate returns the rate of an NVLink in one direction by the generation of
// the GPU, 0 for those of which it is the default.
func nvlinkRate(capability int) lockstep.BytesPerSecond {
	switch {
	case capability >= 100:
		return 50e9
	case capability >= 60 && capability < 70:
		return 20e9
	}
	return 0
}
