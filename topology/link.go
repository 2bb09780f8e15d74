package topology

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Link is how two devices of one node are joined, in the order of distance:
// Self, then NVLinks, more of them nearer, then PIX to SYS. The words are those
// of nvidia-smi topo -m.
type Link uint8

// The links other than NVLinks.
const (
	Self Link = 0                 // Self is a device and itself.
	PIX  Link = MaxNVLinks + iota // PIX passes at most one PCIe bridge.
	PXB                           // PXB passes several PCIe bridges but no host bridge.
	PHB                           // PHB passes a PCIe host bridge, mostly the CPU.
	NODE                          // NODE passes between host bridges of one NUMA node.
	SYS                           // SYS passes between NUMA nodes.
)

// MaxNVLinks is the most NVLinks between two devices.
const MaxNVLinks = 63

// NVLink returns the link of n bonded NVLinks, 1 to MaxNVLinks; n outside is
// held at the nearer end.
func NVLink(n int) Link { return Link(MaxNVLinks + 1 - min(max(n, 1), MaxNVLinks)) }

// NVLinks returns how many NVLinks l is, 0 where it is another link.
func (l Link) NVLinks() int {
	if l == Self || l > MaxNVLinks {
		return 0
	}
	return MaxNVLinks + 1 - int(l)
}

// String returns "X" for Self, "NV18", "PIX", "PXB", "PHB", "NODE" or "SYS".
func (l Link) String() string {
	switch l {
	case Self:
		return "X"
	case PIX:
		return "PIX"
	case PXB:
		return "PXB"
	case PHB:
		return "PHB"
	case NODE:
		return "NODE"
	case SYS:
		return "SYS"
	}
	if n := l.NVLinks(); n > 0 {
		return "NV" + strconv.Itoa(n)
	}
	return "Link(" + strconv.Itoa(int(l)) + ")"
}

// MarshalText writes the form of String; a link that is none is ErrInvalid.
func (l Link) MarshalText() ([]byte, error) {
	if l > SYS {
		return nil, linkError(l.String())
	}
	return []byte(l.String()), nil
}

// UnmarshalText reads the form of String.
func (l *Link) UnmarshalText(text []byte) error {
	v, ok := parseLink(string(text))
	if !ok {
		return linkError(string(text))
	}
	*l = v
	return nil
}

func linkError(text string) error {
	return &lockstep.Error{
		Kind: lockstep.ErrInvalid, Op: "topology: link", Field: "Link", Value: quote(text),
		Reason: "want X, NV1 to NV63, PIX, PXB, PHB, NODE or SYS",
	}
}

func parseLink(s string) (Link, bool) {
	for _, l := range [...]Link{Self, PIX, PXB, PHB, NODE, SYS} {
		if s == l.String() {
			return l, true
		}
	}
	if len(s) < 3 || len(s) > 4 || s[:2] != "NV" || s[2] == '0' || s[2] == '+' {
		return 0, false
	}
	n, err := strconv.Atoi(s[2:])
	if err != nil || n < 1 || n > MaxNVLinks {
		return 0, false
	}
	return NVLink(n), true
}

// cost weighs a link for sums over sets of devices: about the inverse of its
// bandwidth, 100,000 being one NVLink, and rising with l. The figures are chosen,
// not measured, and part of the order of decision. A sum over the 2,016 pairs of a
// node stays below 2^31.
func (l Link) cost() int32 {
	switch l {
	case Self:
		return 0
	case PIX:
		return 120_000
	case PXB:
		return 130_000
	case PHB:
		return 160_000
	case NODE:
		return 200_000
	case SYS:
		return 400_000
	}
	return 100_000 / int32(l.NVLinks())
}

// latency is an estimate: NCCL's model counts 0.6 µs for a hop over NVLink and
// 1 µs for one over PCIe (src/graph/tuning.cc, hwLat, protocol LL). What bridges
// and sockets add to that is a guess.
func (l Link) latency() time.Duration {
	switch l {
	case Self:
		return 0
	case PIX:
		return 1000 * time.Nanosecond
	case PXB:
		return 1200 * time.Nanosecond
	case PHB:
		return 1500 * time.Nanosecond
	case NODE:
		return 1800 * time.Nanosecond
	case SYS:
		return 2500 * time.Nanosecond
	}
	return 600 * time.Nanosecond
}
