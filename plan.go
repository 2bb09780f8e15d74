package lockstep

import (
	"hash/fnv"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// DeviceSet is a set of a node's devices, by index 0 to 63; bit i is device i.
type DeviceSet uint64

// Len returns how many devices s holds.
func (s DeviceSet) Len() int { return bits.OnesCount64(uint64(s)) }

// Has reports whether device i is in s.
func (s DeviceSet) Has(i int) bool { return i >= 0 && i < MaxDevicesPerNode && s>>uint(i)&1 != 0 }

// All yields the devices of s in increasing order.
func (s DeviceSet) All(yield func(int) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(bits.TrailingZeros64(uint64(s))) {
			return
		}
	}
}

// String returns "0-3,6", and "" for the empty set.
func (s DeviceSet) String() string {
	var b strings.Builder
	for s != 0 {
		first := bits.TrailingZeros64(uint64(s))
		n := bits.TrailingZeros64(^(uint64(s) >> uint(first)))
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(first))
		if n > 1 {
			b.WriteString("-" + strconv.Itoa(first+n-1))
		}
		if first+n >= MaxDevicesPerNode {
			break
		}
		s &^= 1<<uint(first+n) - 1
	}
	return b.String()
}

// MarshalText writes the form of String.
func (s DeviceSet) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the form of String; order and repetition do not matter.
// Anything else is ErrInvalid and leaves *s alone.
func (s *DeviceSet) UnmarshalText(text []byte) error {
	var out DeviceSet
	if len(text) > 0 {
		for part := range strings.SplitSeq(string(text), ",") {
			first, last, ranged := strings.Cut(part, "-")
			if !ranged {
				last = first
			}
			lo, err1 := strconv.ParseUint(first, 10, 8)
			hi, err2 := strconv.ParseUint(last, 10, 8)
			if err1 != nil || err2 != nil || lo > hi || hi >= MaxDevicesPerNode {
				return invalid("parse", "DeviceSet", errtext.Quote(string(text)), "want a list such as 0-3,6 of devices 0 to 63")
			}
			for i := lo; i <= hi; i++ {
				out |= 1 << i
			}
		}
	}
	*s = out
	return nil
}

// Version identifies a state of what a plan was made from. Versions of one
// state only grow; zero is none.
type Version uint64

// Mark is a place in a journal to which a what-if can be rolled back.
type Mark uint64

// Member is where one member of a gang sits. Its rank is its index in the plan.
type Member struct {
	Role    int32     `json:"role"`            // Role is the index in Gang.Roles.
	Node    NodeID    `json:"node"`            // Node is where it runs.
	Devices DeviceSet `json:"devices"`         // Devices are its own on that node, or those it has a share or a MIG instance of; empty when it needs none.
	Start   int32     `json:"start,omitempty"` // Start is the first memory slice of its MIG instance; 0 where it has none.
}

// Inventory tells the names that a plan's processes need. It is immutable for
// as long as a plan refers to it; *topology.Tree is one.
type Inventory interface {
	// Address returns the network address of a node.
	Address(node NodeID) (address string, ok bool)
	// Device returns the own name of a node's device.
	Device(node NodeID, index int) (id DeviceID, ok bool)
}

// Plan is a decision about one gang: which members run where, in rank order.
// It is made by a Fit into memory that the caller may use again, and holds
// nothing until it is applied. The zero Plan has no members.
type Plan struct {
	Job       JobID     `json:"job"`               // Job is the gang's ID.
	Gang      *Gang     `json:"gang,omitempty"`    // Gang is what it places; Apply needs it.
	Version   Version   `json:"version"`           // Version is the state it was made from; another refuses it as stale.
	Level     Level     `json:"level,omitempty"`   // Level is the finest of which one domain holds all members; empty when none does.
	Members   []Member  `json:"members,omitempty"` // Members are in rank order, role by role.
	Spares    []Member  `json:"spares,omitempty"`  // Spares are the room kept for members whose node fails, role by role; they have no rank.
	Port      int       `json:"port,omitempty"`    // Port is where rank 0 listens, 1 to 65535; 0 means one derived from Job (see MasterPort).
	Inventory Inventory `json:"-"`                 // Inventory names addresses and devices; nil means node IDs and indices.
}

// Reset empties p and keeps its memory.
func (p *Plan) Reset() { *p = Plan{Members: p.Members[:0], Spares: p.Spares[:0]} }

// Clone returns a copy of p with Members and Spares of its own; Gang and Inventory, which
// nothing changes, are shared.
func (p *Plan) Clone() *Plan {
	c := *p
	c.Members = slices.Clone(p.Members)
	c.Spares = slices.Clone(p.Spares)
	return &c
}

// AppendCounts appends to dst how many members each of the first roles roles has
// and returns it. Members of other roles are not counted.
func (p *Plan) AppendCounts(dst []int, roles int) []int {
	start := len(dst)
	for range roles {
		dst = append(dst, 0)
	}
	for i := range p.Members {
		if r := int(p.Members[i].Role); r >= 0 && r < roles {
			dst[start+r]++
		}
	}
	return dst
}

// NodeCount returns how many different nodes p uses.
func (p *Plan) NodeCount() int { return len(p.nodes()) }

// nodes returns the nodes of p in order of their lowest rank.
func (p *Plan) nodes() []NodeID {
	var order []NodeID
	seen := make(map[NodeID]bool)
	for i := range p.Members {
		if id := p.Members[i].Node; !seen[id] {
			seen[id] = true
			order = append(order, id)
		}
	}
	return order
}

// MasterPort returns Port, or where that is 0 a port of 20000 to 29999 derived
// from Job, so that gangs on one node seldom meet. The range lies below Linux's
// default ephemeral ports (32768 to 60999), and members find it without talking.
func (p *Plan) MasterPort() int {
	if p.Port != 0 {
		return p.Port
	}
	h := fnv.New32a()
	h.Write([]byte(p.Job)) // never fails
	return 20000 + int(h.Sum32()%10000)
}

// Env returns the environment of the member with the given rank, as
// "NAME=value" in a fixed order: RANK, LOCAL_RANK, WORLD_SIZE,
// LOCAL_WORLD_SIZE, NNODES, NODE_RANK, MASTER_ADDR, MASTER_PORT (the names that
// PyTorch's env:// rendezvous reads), LOCKSTEP_JOB, LOCKSTEP_ROLE (the role's
// name; its index where it has none or p has no Gang), NVIDIA_VISIBLE_DEVICES
// and CUDA_VISIBLE_DEVICES with the member's devices, and CUDA_DEVICE_ORDER,
// without which indices would not mean what nvidia-smi means by them. Nodes are
// numbered by their lowest rank.
//
// A member is one process here. One that starts a process for each of its
// devices passes WORLD_SIZE and RANK to its launcher as the number of launchers
// and its own (torchrun's --nnodes and --node-rank), not NNODES and NODE_RANK,
// since two members may share a node.
//
// Devices go by their own names, or all by index where the Inventory lacks one
// of them. Names hold anywhere. Indices are the node's, so a container that is
// given only those devices, and numbers them anew, must drop
// CUDA_VISIBLE_DEVICES. A member without devices gets "void" and "" as its
// visible devices, so that it sees none.
//
// A rank that p does not have is ErrUnknown. O(members).
func (p *Plan) Env(rank int) ([]string, error) {
	if rank < 0 || rank >= len(p.Members) {
		return nil, &Error{Kind: ErrUnknown, Op: "lockstep: plan env", Field: "rank", Value: strconv.Itoa(rank), Reason: "the plan has " + plural(int64(len(p.Members)), "member") + ", numbered from 0"}
	}
	me := &p.Members[rank]
	local, localWorld := 0, 0
	for i := range p.Members {
		if p.Members[i].Node == me.Node {
			if i < rank {
				local++
			}
			localWorld++
		}
	}
	nodes := p.nodes()
	role := strconv.Itoa(int(me.Role))
	if p.Gang != nil && me.Role >= 0 && int(me.Role) < len(p.Gang.Roles) && p.Gang.Roles[me.Role].Name != "" {
		role = string(p.Gang.Roles[me.Role].Name)
	}
	devices := p.deviceNames(me)
	visible := devices
	if visible == "" {
		visible = "void"
	}
	return []string{
		"RANK=" + strconv.Itoa(rank),
		"LOCAL_RANK=" + strconv.Itoa(local),
		"WORLD_SIZE=" + strconv.Itoa(len(p.Members)),
		"LOCAL_WORLD_SIZE=" + strconv.Itoa(localWorld),
		"NNODES=" + strconv.Itoa(len(nodes)),
		"NODE_RANK=" + strconv.Itoa(slices.Index(nodes, me.Node)),
		"MASTER_ADDR=" + p.address(p.Members[0].Node),
		"MASTER_PORT=" + strconv.Itoa(p.MasterPort()),
		"LOCKSTEP_JOB=" + string(p.Job),
		"LOCKSTEP_ROLE=" + role,
		"NVIDIA_VISIBLE_DEVICES=" + visible,
		"CUDA_VISIBLE_DEVICES=" + devices,
		"CUDA_DEVICE_ORDER=PCI_BUS_ID",
	}, nil
}

// Hostfile returns one line a node, "address slots=members", in order of the
// node's lowest rank, as Open MPI and DeepSpeed read it. They start one process
// a slot, so the slots are right where each member is one process; and they
// number processes node by node, so ranks are the plan's where the members of
// each node follow one another. A plan without members gives "".
func (p *Plan) Hostfile() string {
	slots := make(map[NodeID]int)
	for i := range p.Members {
		slots[p.Members[i].Node]++
	}
	var b strings.Builder
	for _, id := range p.nodes() {
		b.WriteString(p.address(id) + " slots=" + strconv.Itoa(slots[id]) + "\n")
	}
	return b.String()
}

func (p *Plan) address(id NodeID) string {
	if p.Inventory != nil {
		if a, ok := p.Inventory.Address(id); ok && a != "" {
			return a
		}
	}
	return string(id)
}

// deviceNames returns the devices of m as a list: by name where each has one,
// else all by index, since CUDA does not promise to read a mixture.
func (p *Plan) deviceNames(m *Member) string {
	names := make([]string, 0, m.Devices.Len())
	if p.Inventory != nil {
		for i := range m.Devices.All {
			if id, ok := p.Inventory.Device(m.Node, i); ok && id != "" {
				names = append(names, string(id))
			}
		}
	}
	if len(names) != m.Devices.Len() {
		names = names[:0]
		for i := range m.Devices.All {
			names = append(names, strconv.Itoa(i))
		}
	}
	return strings.Join(names, ",")
}
