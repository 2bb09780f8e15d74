package labels

import (
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/internal/source"
)

// Clique is the key of the label that NVIDIA's GPU feature discovery sets to the
// NVLink domain of a node.
const Clique = "nvidia.com/gpu.clique"

// Missing says what becomes of a node that lacks a label.
type Missing string

// The choices.
const (
	Alone  Missing = ""       // Alone: at that level the node, or what is below, is in a domain of its own.
	Refuse Missing = "refuse" // Refuse: it is an error.
)

// Config says which labels make which levels. The zero Config makes none.
type Config struct {
	Keys []Key // Keys are the labels, coarsest first.
}

// Key is a label that makes a level.
type Key struct {
	Label   string         // Label is its key, such as "topology.kubernetes.io/zone".
	Level   topology.Level // Level is the level that it makes; without a name it goes by the key.
	Missing Missing        // Missing says what becomes of nodes without the label or with an empty one.
	Unique  bool           // Unique says that a value names one domain, so that it is an error below two domains of the level above.
}

// Node is a node with its labels.
type Node struct {
	ID      lockstep.NodeID   // ID is its name.
	Labels  map[string]string // Labels are read and not kept.
	Address string            // Address is where it is reached; "" means unknown.
}

// EKS returns the keys that Amazon EKS sets, of which layer 1 is the top.
func EKS() []Key {
	return []Key{
		{Label: "topology.k8s.aws/network-node-layer-1"},
		{Label: "topology.k8s.aws/network-node-layer-2"},
		{Label: "topology.k8s.aws/network-node-layer-3"},
	}
}

// GKE returns the keys that Google GKE sets.
func GKE() []Key {
	return []Key{
		{Label: "cloud.google.com/gce-topology-block", Level: topology.Level{Name: "block"}},
		{Label: "cloud.google.com/gce-topology-subblock", Level: topology.Level{Name: "subblock"}},
		{Label: "cloud.google.com/gce-topology-host", Level: topology.Level{Name: "host"}},
	}
}

// Topograph returns the keys that NVIDIA's topograph sets since version 1 for so
// many tiers of switches, of which 0 is next to the nodes. The domain of
// accelerators, which may span switches, is not among them.
func Topograph(tiers int) (keys []Key) {
	for tier := tiers - 1; tier >= 0; tier-- {
		n := strconv.Itoa(tier)
		keys = append(keys, Key{Label: "fabric.topograph.run/tier-" + n, Level: topology.Level{Name: lockstep.Level("tier-" + n)}})
	}
	return keys
}

// Inputs returns levels and nodes as topology.New takes them, nodes in their order
// and without shapes; the slices are the caller's. It returns ErrInvalid or
// ErrDuplicate for each fault that it finds, joined.
func Inputs(cfg Config, nodes []Node) (levels []topology.Level, placed []topology.Node, err error) {
	f := source.New("labels: inputs", strings.NewReader(""))
	seen := make(map[string]bool, len(cfg.Keys))
	for i, k := range cfg.Keys {
		at := "Keys[" + strconv.Itoa(i) + "]"
		switch {
		case k.Label == "":
			f.FaultIn(lockstep.ErrInvalid, at+".Label", "", "must not be empty")
		case seen[k.Label]:
			f.FaultIn(lockstep.ErrDuplicate, at+".Label", k.Label, "is given twice")
		case k.Missing != Alone && k.Missing != Refuse:
			f.FaultIn(lockstep.ErrInvalid, at+".Missing", string(k.Missing), `want "" or "refuse"`)
		}
		seen[k.Label] = true
		if k.Level.Name == "" {
			k.Level.Name = lockstep.Level(k.Label)
		}
		levels = append(levels, k.Level)
	}
	p := placer{faults: f, keys: cfg.Keys, above: make(map[domain]string)}
	placed = make([]topology.Node, len(nodes))
	for i := range nodes {
		placed[i] = topology.Node{ID: nodes[i].ID, Address: nodes[i].Address, Path: p.path(&nodes[i], "nodes["+strconv.Itoa(i)+"]")}
	}
	if err := f.Err(); err != nil {
		return nil, nil, err
	}
	return levels, placed, nil
}

// domain names a domain that is to be unique.
type domain struct {
	key   int
	value string
}

// placer finds the paths of nodes.
type placer struct {
	faults *source.Text
	keys   []Key
	above  map[domain]string // the path above each domain that is to be unique
}

func (p *placer) path(n *Node, at string) []string {
	path := make([]string, len(p.keys))
	for i, k := range p.keys {
		value, field := n.Labels[k.Label], ""
		fault := func(kind error, reason string) {
			if field == "" { // made only here, since most nodes are right
				field = at + ".Labels[" + k.Label + "]"
			}
			p.faults.FaultIn(kind, field, value, reason)
		}
		if k.Label == Clique && value != "" {
			ok := false
			if value, ok = clique(value); !ok {
				fault(lockstep.ErrInvalid, "want a UUID, a dot and a number")
				continue
			}
		}
		if value == "" {
			if k.Missing == Refuse {
				fault(lockstep.ErrInvalid, "the node needs the label")
			}
			continue
		}
		if reason := source.NameFault(value); reason != "" {
			fault(lockstep.ErrInvalid, reason)
		}
		path[i] = value
		if k.Unique {
			above := strings.Join(path[:i], " ")
			if other, ok := p.above[domain{i, value}]; ok && other != above {
				fault(lockstep.ErrDuplicate, "the domain is below "+strconv.Quote(other)+" already, and here below "+strconv.Quote(above))
			} else if !ok {
				p.above[domain{i, value}] = above
			}
		}
	}
	return path
}

// clique checks the value of the label Clique, and returns "" where it says that
// the node is in none.
func clique(value string) (string, bool) {
	uuid, id, ok := strings.Cut(value, ".")
	if _, err := strconv.ParseUint(id, 10, 32); !ok || err != nil || !isUUID(uuid) {
		return value, false
	}
	if strings.Trim(uuid, "0-") == "" {
		return "", true
	}
	return value, true
}

// isUUID reports whether s is 32 hexadecimal digits with dashes where they belong.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		if dash != (s[i] == '-') || strings.IndexByte("-0123456789abcdefABCDEF", s[i]) < 0 {
			return false
		}
	}
	return true
}
