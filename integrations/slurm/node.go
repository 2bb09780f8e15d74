package slurm

import (
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
)

// Node is one node, as sinfo or scontrol told of it.
type Node struct {
	ID         lockstep.NodeID    // ID is its name.
	Open       bool               // Open says that jobs may start on it: it is not down, drained, failing or in maintenance.
	State      string             // State is Slurm's word for how it is, in lower case, its flags joined by +.
	Why        string             // Why is what an operator said when closing it; it may be empty.
	CPUs       int64              // CPUs is how many it has; 0 means unknown.
	Memory     lockstep.Bytes     // Memory is how much it has; 0 means unknown.
	GPUs       int                // GPUs is how many devices it has.
	GPUKind    string             // GPUKind is which; empty means unknown, or several.
	Used       int                // Used is how many devices are in use.
	InUse      lockstep.DeviceSet // InUse are which; empty where Slurm does not say.
	UsedCPUs   int64              // UsedCPUs is how many are in use.
	UsedMemory lockstep.Bytes     // UsedMemory is how much is in use.
	Features   []string           // Features are those that it has now.
	Partitions []string           // Partitions are those that it is in.
	Resv       string             // Resv is the reservation that it is in at present, or AnyResv; empty means none.
}

type rawNode struct {
	Name           json.RawMessage `json:"name"`
	State          json.RawMessage `json:"state"`
	StateFlags     json.RawMessage `json:"state_flags"`
	Reason         json.RawMessage `json:"reason"`
	CPUs           json.RawMessage `json:"cpus"`
	EffectiveCPUs  json.RawMessage `json:"effective_cpus"`
	RealMemory     json.RawMessage `json:"real_memory"`
	GRES           json.RawMessage `json:"gres"`
	GRESUsed       json.RawMessage `json:"gres_used"`
	AllocCPUs      json.RawMessage `json:"alloc_cpus"`
	AllocMemory    json.RawMessage `json:"alloc_memory"`
	Features       json.RawMessage `json:"features"`
	ActiveFeatures json.RawMessage `json:"active_features"`
	Partitions     json.RawMessage `json:"partitions"`
	Reservation    json.RawMessage `json:"reservation"`
}

// rawGroup is an entry of sinfo --json since 23.02, which is a group of like nodes.
type rawGroup struct {
	Node  struct{ State json.RawMessage } `json:"node"`
	Nodes struct{ Nodes json.RawMessage } `json:"nodes"`
	CPUs  struct{ Minimum, Allocated json.RawMessage }
	Mem   struct{ Minimum, Allocated json.RawMessage } `json:"memory"`
	GRES  struct{ Total, Used json.RawMessage }        `json:"gres"`
	Feat  struct{ Total, Active json.RawMessage }      `json:"features"`
	Part  struct{ Name json.RawMessage }               `json:"partition"`
	Resv  json.RawMessage                              `json:"reservation"`
	Why   struct{ Description json.RawMessage }        `json:"reason"`
}

// ReadNodes reads what sinfo --json or scontrol show nodes --json prints, of Slurm 22.05 and newer. Since 23.02 sinfo
// tells of groups of like nodes and not how each is used: prefer scontrol there, or sinfo -N. Nodes that cannot be
// read are left out, and the second result says which and why; the error is for a document that is none.
func ReadNodes(r io.Reader) ([]Node, []*lockstep.Error, error) {
	var doc struct {
		Nodes  *[]json.RawMessage `json:"nodes"`
		SInfo  *[]json.RawMessage `json:"sinfo"`
		Errors json.RawMessage    `json:"errors"`
	}
	if err := document("read nodes", r, &doc); err != nil {
		return nil, nil, err
	}
	var c collector
	switch {
	case doc.Nodes != nil:
		for i, raw := range *doc.Nodes {
			c.node(i, raw)
		}
	case doc.SInfo != nil:
		for i, raw := range *doc.SInfo {
			c.group(i, raw)
		}
	default:
		return nil, nil, fault(lockstep.ErrInvalid, "read nodes", "nodes", "", "is not there: want the output of scontrol show nodes --json or sinfo --json")
	}
	said, err := complaints("read nodes", doc.Errors, len(c.nodes)+len(c.faults))
	if err != nil {
		return nil, nil, err
	}
	c.faults = append(said, c.faults...)
	slices.SortFunc(c.nodes, func(a, b Node) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return c.nodes, c.faults, nil
}

// collector gathers nodes, of which groups may tell several times: once for each partition.
type collector struct {
	nodes  []Node
	faults []*lockstep.Error
	at     map[lockstep.NodeID]int
}

// add takes a node in; one that was there gets more partitions.
func (c *collector) add(r *record, n *Node, merge bool) {
	if err := n.ID.Validate(); err != nil {
		r.fail("name", quote(n.ID), "is no name of a node")
	}
	i, twice := c.at[n.ID]
	if twice && !merge && r.err == nil {
		r.err = fault(lockstep.ErrDuplicate, r.op, r.name+".name", quote(n.ID), "was there before")
	}
	switch {
	case r.err != nil:
		c.faults = append(c.faults, r.err)
	case twice:
		for _, p := range n.Partitions {
			if !slices.Contains(c.nodes[i].Partitions, p) {
				c.nodes[i].Partitions = append(c.nodes[i].Partitions, p)
			}
		}
	default:
		if c.at == nil {
			c.at = make(map[lockstep.NodeID]int)
		}
		c.at[n.ID] = len(c.nodes)
		c.nodes = append(c.nodes, *n)
	}
}

func (c *collector) node(i int, raw json.RawMessage) {
	r := record{op: "read nodes", name: "nodes[" + strconv.Itoa(i) + "]"}
	var w rawNode
	if isNull(raw) || json.Unmarshal(raw, &w) != nil {
		r.fail("name", quote(clip(raw)), "want an object")
		c.faults = append(c.faults, r.err)
		return
	}
	n := Node{ID: lockstep.NodeID(r.text("name", w.Name))}
	if n.ID.Validate() == nil {
		r.name = "node " + string(n.ID)
	}
	n.state(r.list("state", w.State), r.list("state_flags", w.StateFlags))
	n.Why = r.text("reason", w.Reason)
	n.CPUs = r.count("cpus", w.CPUs, maxCount)
	if e := r.count("effective_cpus", w.EffectiveCPUs, maxCount); e > 0 {
		n.CPUs = e // less those that are set aside for the system
	}
	n.Memory = lockstep.MiB.Mul(r.count("real_memory", w.RealMemory, maxMegabyte))
	n.UsedCPUs = r.count("alloc_cpus", w.AllocCPUs, maxCount)
	n.UsedMemory = lockstep.MiB.Mul(r.count("alloc_memory", w.AllocMemory, maxMegabyte))
	n.devices(&r, r.text("gres", w.GRES), r.text("gres_used", w.GRESUsed))
	if n.Features = r.list("active_features", w.ActiveFeatures); len(n.Features) == 0 {
		n.Features = r.list("features", w.Features)
	}
	n.Partitions = r.list("partitions", w.Partitions)
	n.Resv = r.text("reservation", w.Reservation)
	n.reserved()
	c.add(&r, &n, false)
}

func (c *collector) group(i int, raw json.RawMessage) {
	r := record{op: "read nodes", name: "sinfo[" + strconv.Itoa(i) + "]"}
	var w rawGroup
	if isNull(raw) || json.Unmarshal(raw, &w) != nil {
		r.fail("nodes", quote(clip(raw)), "want an object")
		c.faults = append(c.faults, r.err)
		return
	}
	n := Node{
		Why:        r.text("reason.description", w.Why.Description),
		CPUs:       r.count("cpus.minimum", w.CPUs.Minimum, maxCount),
		Memory:     lockstep.MiB.Mul(r.count("memory.minimum", w.Mem.Minimum, maxMegabyte)),
		Partitions: r.list("partition.name", w.Part.Name),
		Resv:       r.text("reservation", w.Resv),
	}
	n.state(r.list("node.state", w.Node.State), nil)
	n.reserved()
	names := r.list("nodes.nodes", w.Nodes.Nodes)
	used := ""
	if len(names) == 1 { // of one node it is that node's
		used = r.text("gres.used", w.GRES.Used)
		n.UsedCPUs = r.count("cpus.allocated", w.CPUs.Allocated, maxCount)
		n.UsedMemory = lockstep.MiB.Mul(r.count("memory.allocated", w.Mem.Allocated, maxMegabyte))
	}
	n.devices(&r, r.text("gres.total", w.GRES.Total), used)
	if n.Features = r.list("features.active", w.Feat.Active); len(n.Features) == 0 {
		n.Features = r.list("features.total", w.Feat.Total)
	}
	for _, name := range names {
		one := n
		one.ID = lockstep.NodeID(name)
		one.Partitions = slices.Clone(n.Partitions)
		each := r
		c.add(&each, &one, true)
	}
	if len(names) == 0 && r.err != nil {
		c.faults = append(c.faults, r.err)
	}
}

// closing are the words of Slurm on which nothing starts on a node.
var closing = []string{
	"DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "UNKNOWN", "FUTURE", "MAINT", "MAINTENANCE", "NOT_RESPONDING",
	"NO_RESPOND", "INVALID_REG", "INVALID", "REBOOT_REQUESTED", "REBOOT_ISSUED", "REBOOT", "BLOCKED", "POWERING_DOWN", "POWER_DOWN",
}

// state puts together what Slurm says of a node: a word and flags or, in newer versions, one list of both.
func (n *Node) state(words, flags []string) {
	n.Open = len(words) > 0
	var all []string
	for _, w := range append(slices.Clone(words), flags...) {
		for part := range strings.SplitSeq(strings.ToUpper(w), "+") {
			part = strings.TrimRight(part, "*~#!%$@^-")
			if part == "" {
				continue
			}
			if slices.Contains(closing, part) {
				n.Open = false
			}
			all = append(all, strings.ToLower(part))
		}
	}
	n.State = strings.Join(all, "+")
}

// AnyResv, as Node.Resv, says that the node is in a reservation whose name Slurm does not tell.
const AnyResv = "*"

func (n *Node) reserved() {
	if n.Resv == "" && slices.Contains(strings.Split(n.State, "+"), "reserved") {
		n.Resv = AnyResv
	}
}

func (n *Node) devices(r *record, total, used string) {
	list, ok := parseGRES(total)
	if !ok {
		r.fail("gres", quote(total), "want name:kind:count with commas between")
	}
	count, kind, _, _ := gpus(list)
	if count > lockstep.MaxDevicesPerNode {
		r.fail("gres", quote(total), "want at most "+strconv.Itoa(lockstep.MaxDevicesPerNode)+" devices")
		return
	}
	n.GPUs, n.GPUKind = int(count), kind
	list, ok = parseGRES(used)
	if !ok {
		r.fail("gres_used", quote(used), "want name:kind:count(IDX:…)")
	}
	count, _, n.InUse, _ = gpus(list)
	n.Used = int(min(count, int64(n.GPUs)))
	if n.GPUs < 64 {
		n.InUse &= 1<<n.GPUs - 1
	}
}
