package ibnet

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// Fabric is an InfiniBand fabric.
type Fabric struct {
	Switches []Switch // Switches are those with a block, and those that others name.
	Trunks   []Trunk  // Trunks are the switches that are joined, each pair once.
	Ports    []Port   // Ports are those of hosts' adapters that are on a switch.
	Others   int      // Others is how many adapters belong to no host.
}

// GUID names a node of a fabric.
type GUID uint64

// String returns 16 hexadecimal digits.
func (g GUID) String() string { return fmt.Sprintf("%016x", uint64(g)) }

// Switch is a switch.
type Switch struct {
	GUID  GUID   // GUID is unique.
	Name  string // Name is its description, "" where the text has none.
	Ports int    // Ports is how many it has, 0 where it has no block.
}

// Trunk is the cables between two switches.
type Trunk struct {
	A      int                     // A is the index of the one that the text has first.
	B      int                     // B is the index of the other.
	Cables int                     // Cables is at least 1.
	Rate   lockstep.BytesPerSecond // Rate is of all of them together in one direction, 0 where unknown.
}

// Port is a port of a host's adapter, with a cable to a switch.
type Port struct {
	Host   lockstep.NodeID         // Host is where it is.
	HCA    string                  // HCA is the adapter's name, such as "mlx5_0", "" where the description has none.
	GUID   GUID                    // GUID is the adapter's.
	Number int                     // Number is the port's.
	Switch int                     // Switch is the index of the switch.
	Rate   lockstep.BytesPerSecond // Rate is of one direction, 0 where unknown.
}

// Parse reads what ibnetdiscover prints, also with -g and -f. It returns
// ErrInvalid or ErrDuplicate for each fault that it finds, joined.
func Parse(r io.Reader) (*Fabric, error) {
	p := parser{text: source.New("ibnet: parse", r), index: make(map[key]int), cables: make(map[end]cable)}
	for p.text.Next() {
		p.line(p.text.Line())
	}
	if !p.text.Faulty() {
		p.check()
	}
	if err := p.text.Err(); err != nil {
		return nil, err
	}
	return p.fabric(), nil
}

// parseHost parts the description of an adapter into host and own name. A name of
// its own has a digit in it.
func parseHost(description string) (host lockstep.NodeID, hca string, ok bool) {
	words := strings.Fields(description)
	if len(words) == 0 || len(words) > 2 || source.NameFault(words[0]) != "" {
		return "", "", false
	}
	if len(words) == 2 {
		if hca = words[1]; !strings.ContainsAny(hca, "0123456789") || source.NameFault(hca) != "" {
			return "", "", false
		}
	}
	return lockstep.NodeID(words[0]), hca, true
}

// parseRate reads width and speed of a link, such as "4xNDR", as bytes a second.
// Up to QDR a byte takes 10 bits; FDR and EDR have 64 of 66.
func parseRate(s string) lockstep.BytesPerSecond {
	lanes, speed, ok := strings.Cut(s, "x")
	n, err := strconv.ParseUint(lanes, 10, 8)
	if !ok || err != nil {
		return 0
	}
	var lane lockstep.BytesPerSecond
	switch speed {
	case "SDR":
		lane = 250e6
	case "DDR":
		lane = 500e6
	case "QDR":
		lane = 1000e6
	case "FDR10":
		lane = 1250e6
	case "FDR":
		lane = 1704e6 // 14.0625 Gbit/s
	case "EDR":
		lane = 3125e6
	case "HDR":
		lane = 6250e6
	case "NDR":
		lane = 12500e6
	case "XDR":
		lane = 25000e6
	}
	return lockstep.BytesPerSecond(n) * lane
}
