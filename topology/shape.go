package topology

import (
	"math"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
)

// ShapeConfig describes the devices of a kind of node. The zero ShapeConfig is a
// node without devices.
type ShapeConfig struct {
	Links           [][]Link                `json:"links"`                     // Links is square and symmetric, at most 64 wide, with Self on the diagonal and only there.
	NUMA            []int                   `json:"numa,omitempty"`            // NUMA is the NUMA node of each device, -1 where unknown; nil means all unknown.
	NICs            []string                `json:"nics,omitempty"`            // NICs is the nearest network card of each device, such as "mlx5_0", "" where unknown; nil means all unknown.
	Rails           []int                   `json:"rails,omitempty"`           // Rails is the rail of each device's network card, which is which leaf of its unit it is on, -1 where unknown; nil means all unknown.
	NVLinkBandwidth lockstep.BytesPerSecond `json:"nvlinkBandwidth,omitempty"` // NVLinkBandwidth is of one direction of one NVLink; 0 means 25G/s, as of NVLink 2 to 4.
	PCIeBandwidth   lockstep.BytesPerSecond `json:"pcieBandwidth,omitempty"`   // PCIeBandwidth is of one direction of a device's slot; 0 means 32G/s, as of 16 lanes of PCIe 4.
}

// The figures that a zero stands for, by the standards and not as measured: an
// NVLink of generations 2 to 4 carries 25 GB/s each way (NVIDIA's H100 has 18 of
// them, 900 GB/s both ways), 16 lanes of PCIe 4 at 16 GT/s carry 32.
const (
	defaultNVLink lockstep.BytesPerSecond = 25e9
	defaultPCIe   lockstep.BytesPerSecond = 32e9
)

// Shape is how the devices of a node are joined: one value for all nodes of a
// kind. It is immutable and safe for concurrent use. The nil *Shape is the shape
// without devices.
type Shape struct {
	config  ShapeConfig // its slices are never written
	n       int
	links   []Link  // n×n
	costs   []int32 // n×n, of links
	uniform bool    // all pairs are joined alike
	near    *near   // answers for small shapes; nil for others
}

// NewShape returns the shape that cfg describes, which it copies. All faults are
// reported, joined: ErrInvalid.
func NewShape(cfg ShapeConfig) (*Shape, error) {
	f := faults{op: "topology: shape"}
	cfg.validate(&f)
	if err := f.err(); err != nil {
		return nil, err
	}
	n := len(cfg.Links)
	s := &Shape{config: cfg, n: n, links: make([]Link, 0, n*n), costs: make([]int32, 0, n*n), uniform: true}
	s.config.Links = make([][]Link, n)
	for i, row := range cfg.Links {
		s.links = append(s.links, row...)
		s.config.Links[i] = s.links[i*n : (i+1)*n : (i+1)*n]
		for j, l := range row {
			s.costs = append(s.costs, l.cost())
			s.uniform = s.uniform && (i == j || l == cfg.Links[0][1])
		}
	}
	s.config.NUMA, s.config.NICs, s.config.Rails = slices.Clone(cfg.NUMA), slices.Clone(cfg.NICs), slices.Clone(cfg.Rails)
	if !s.uniform && n <= nearDevices {
		s.near = newNear(s)
	}
	return s, nil
}

func (cfg ShapeConfig) validate(f *faults) {
	n := len(cfg.Links)
	if n > lockstep.MaxDevicesPerNode {
		f.invalid("Links", strconv.Itoa(n), "at most "+strconv.Itoa(lockstep.MaxDevicesPerNode)+" devices")
		return
	}
	cfg.validateLinks(f)
	if cfg.NUMA != nil && len(cfg.NUMA) != n {
		f.invalid("NUMA", strconv.Itoa(len(cfg.NUMA))+" entries", "want one a device, "+strconv.Itoa(n))
	}
	for i, node := range cfg.NUMA {
		if node < -1 || node > maxNUMA {
			f.invalid("NUMA["+strconv.Itoa(i)+"]", strconv.Itoa(node), "want -1 to "+strconv.Itoa(maxNUMA))
		}
	}
	if cfg.NICs != nil && len(cfg.NICs) != n {
		f.invalid("NICs", strconv.Itoa(len(cfg.NICs))+" entries", "want one a device, "+strconv.Itoa(n))
	}
	for i, nic := range cfg.NICs {
		if nic != "" {
			f.name("NICs["+strconv.Itoa(i)+"]", nic)
		}
	}
	validateRails(f, cfg.Rails, n)
	if cfg.NVLinkBandwidth < 0 {
		f.invalid("NVLinkBandwidth", cfg.NVLinkBandwidth.String(), "must not be negative")
	}
	if cfg.PCIeBandwidth < 0 {
		f.invalid("PCIeBandwidth", cfg.PCIeBandwidth.String(), "must not be negative")
	}
}

func (cfg ShapeConfig) validateLinks(f *faults) {
	n := len(cfg.Links)
	for i, row := range cfg.Links {
		field := "Links[" + strconv.Itoa(i) + "]"
		if len(row) != n {
			f.invalid(field, strconv.Itoa(len(row))+" entries", "want a square matrix, "+strconv.Itoa(n)+" entries")
			continue
		}
		for j, l := range row {
			field := field + "[" + strconv.Itoa(j) + "]"
			switch {
			case l > SYS:
				f.invalid(field, l.String(), "want NVLink(n), PIX, PXB, PHB, NODE or SYS")
			case (l == Self) != (i == j):
				f.invalid(field, l.String(), "want Self on the diagonal and only there")
			case j < i && len(cfg.Links[j]) == n && cfg.Links[j][i] != l:
				f.invalid(field, l.String(), "want a symmetric matrix, the other way is "+cfg.Links[j][i].String())
			}
		}
	}
}

// maxNUMA is far above what Linux numbers (1,024 at most by default).
const maxNUMA = 1 << 16

// UniformShape returns a shape of n devices, 0 to 64, each joined to each by link.
func UniformShape(n int, link Link) (*Shape, error) {
	if n < 0 || n > lockstep.MaxDevicesPerNode {
		f := faults{op: "topology: uniform shape"}
		f.invalid("n", strconv.Itoa(n), "want 0 to "+strconv.Itoa(lockstep.MaxDevicesPerNode))
		return nil, f.err()
	}
	return NewShape(ShapeConfig{Links: matrix(n, func(int, int) Link { return link })})
}

// NVSwitch8 returns 8 devices with 18 NVLinks between any two and four of them
// on each of two sockets, as an H100 or H200 board has them.
func NVSwitch8() *Shape {
	return mustShape(ShapeConfig{
		Links:         matrix(8, func(int, int) Link { return NVLink(18) }),
		NUMA:          []int{0, 0, 0, 0, 1, 1, 1, 1},
		PCIeBandwidth: 64e9, // PCIe 5
	})
}

// PCIe8 returns 8 devices without NVLink on two sockets: neighbours 0-1, 2-3 and
// so on share a bridge (PIX), fours share a socket (NODE), the rest is SYS.
func PCIe8() *Shape {
	return mustShape(ShapeConfig{
		Links: matrix(8, func(i, j int) Link {
			switch {
			case i/2 == j/2:
				return PIX
			case i/4 == j/4:
				return NODE
			}
			return SYS
		}),
		NUMA: []int{0, 0, 0, 0, 1, 1, 1, 1},
	})
}

// matrix returns the square matrix with link(i, j) off the diagonal.
func matrix(n int, link func(i, j int) Link) [][]Link {
	m := make([][]Link, n)
	for i := range m {
		m[i] = make([]Link, n)
		for j := range m[i] {
			if i != j {
				m[i][j] = link(i, j)
			}
		}
	}
	return m
}

func mustShape(cfg ShapeConfig) *Shape {
	s, err := NewShape(cfg)
	if err != nil {
		panic(err) // invariant: the shapes that ship are valid
	}
	return s
}

// Config returns what describes s. Its slices must not be changed.
func (s *Shape) Config() ShapeConfig {
	if s == nil {
		return ShapeConfig{}
	}
	return s.config
}

// Devices returns how many devices s has, 0 to 64.
func (s *Shape) Devices() int {
	if s == nil {
		return 0
	}
	return s.n
}

// All returns the set of all devices of s.
func (s *Shape) All() lockstep.DeviceSet {
	return lockstep.DeviceSet(1)<<uint(s.Devices()) - 1 // 1<<64 is 0, and so 64 devices are all bits
}

// Link returns how devices i and j are joined. A device that s does not have
// counts as the host itself: Self to itself, SYS to the devices.
func (s *Shape) Link(i, j int) Link {
	if s != nil && uint(i) < uint(s.n) && uint(j) < uint(s.n) {
		return s.links[i*s.n+j]
	}
	n := uint(s.Devices())
	if uint(i) >= n && uint(j) >= n {
		return Self
	}
	return SYS
}

// NUMA returns the NUMA node of a device, -1 where it is not known.
func (s *Shape) NUMA(device int) int {
	if s == nil || uint(device) >= uint(len(s.config.NUMA)) {
		return -1
	}
	return s.config.NUMA[device]
}

// NIC returns the name of the network card nearest to a device, "" where it is
// not known.
func (s *Shape) NIC(device int) string {
	if s == nil || uint(device) >= uint(len(s.config.NICs)) {
		return ""
	}
	return s.config.NICs[device]
}

// Equal reports whether s and o describe the same devices.
func (s *Shape) Equal(o *Shape) bool {
	if s == o {
		return true
	}
	a, b := s.Config(), o.Config()
	return a.NVLinkBandwidth == b.NVLinkBandwidth && a.PCIeBandwidth == b.PCIeBandwidth &&
		slices.Equal(a.NUMA, b.NUMA) && slices.Equal(a.NICs, b.NICs) && slices.Equal(a.Rails, b.Rails) &&
		slices.EqualFunc(a.Links, b.Links, slices.Equal[[]Link])
}

// bandwidth estimates one direction of a link: NVLinks add up, held at the end of
// int64; PIX and PXB keep the slot's rate; host bridges keep five sixths of it, by
// what NCCL counts as overhead there (src/graph/topo.h, INTEL_P2P_OVERHEAD); and
// the way between sockets half, a guess, as sockets differ by more than that.
func (s *Shape) bandwidth(l Link) lockstep.BytesPerSecond {
	if s == nil {
		return 0
	}
	nvlink, pcie := s.config.NVLinkBandwidth, s.config.PCIeBandwidth
	if nvlink == 0 {
		nvlink = defaultNVLink
	}
	if pcie == 0 {
		pcie = defaultPCIe
	}
	switch l {
	case PIX, PXB:
		return pcie
	case PHB, NODE:
		return pcie - pcie/6
	case SYS:
		return pcie / 2
	}
	n := lockstep.BytesPerSecond(l.NVLinks())
	if n > 0 && nvlink > math.MaxInt64/n {
		return math.MaxInt64
	}
	return n * nvlink // 0 for Self: nothing passes
}
