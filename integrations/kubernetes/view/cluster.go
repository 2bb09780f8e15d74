package view

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/sharing"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/labels"
)

// Cluster is what the nodes come to. It shares no memory with them.
type Cluster struct {
	Tree    *topology.Tree                    // Tree has the nodes by name; never nil.
	Nodes   []placement.Node                  // Nodes are what they offer, by name.
	Layouts map[string]sharing.GeometryConfig // Layouts are those that Nodes name as their MIG, for placement.Config; nil where there is none.
	Closed  []Closed                          // Closed are the nodes that take no members now, by name; they are in Tree.
	Faults  []*Fault                          // Faults are what is wrong with nodes, by name.
}

// Closed is a node that takes no members.
type Closed struct {
	Node   lockstep.NodeID // Node is its name.
	Lost   bool            // Lost says that it is not ready, and what runs there may be gone; else it is cordoned.
	Reason string          // Reason is why, for people.
}

// Inputs are what a Cluster is made of.
type Inputs struct {
	Nodes   []*corev1.Node              // Nodes are in any order, and not changed; of two of one name the first counts.
	Foreign map[lockstep.NodeID]Usage   // Foreign is what others take of each node, see Assembler.Foreign; nil means nothing.
	Devices map[lockstep.NodeID]Devices // Devices are those that drivers publish for claims, beside the ones that nodes count; nil means none.
}

// Usage is what pods take of a node.
type Usage struct {
	CPU    lockstep.MilliCPU // CPU is processor time.
	Memory lockstep.Bytes    // Memory is host memory.
	Pods   int               // Pods is how many they are.
}

// Devices are the named devices of one node. They stand before those that the node
// counts, which have no names.
type Devices struct {
	IDs    []lockstep.DeviceID    // IDs are their names, by index; "" for one that is only there to be divided.
	Class  lockstep.DeviceClass   // Class is their kind; "" means unknown.
	Memory lockstep.Bytes         // Memory is that of each; 0 means unknown.
	MIG    string                 // MIG names Layout; "" means that they are not divided.
	Layout sharing.GeometryConfig // Layout is how they are divided.
	Parts  lockstep.DeviceSet     // Parts are those set aside for instances; none means that every free one may be divided.
}

// Cluster makes the topology and the offers of nodes. A node without a place in the
// topology, or with more devices than a node may have, is left out; of what else is
// wrong with it (a label that is no number, MIG resources that no layout can tell) it
// goes without. Both are in Cluster.Faults, and nobody else is harmed. The error is
// for c alone. O(nodes·(keys + labels)).
func (c Config) Cluster(in Inputs) (Cluster, error) {
	if err := c.Validate(); err != nil {
		return Cluster{}, err
	}
	nodes := slices.Clone(in.Nodes)
	slices.SortStableFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	nodes = slices.CompactFunc(nodes, func(a, b *corev1.Node) bool { return a.Name == b.Name })
	b := builder{cfg: &c, in: &in, shapes: make(map[int]*topology.Shape)}
	levels, placed := b.places(nodes)
	tree := make([]topology.Node, 0, len(nodes))
	for i, n := range nodes {
		if placed[i] == nil {
			continue
		}
		if t, ok := b.node(n, *placed[i]); ok {
			tree = append(tree, t)
		}
	}
	var err error
	if b.out.Tree, err = topology.New(levels, tree); err != nil {
		return Cluster{}, err
	}
	slices.SortStableFunc(b.out.Faults, func(a, b *Fault) int { return cmp.Compare(a.Name, b.Name) })
	return b.out, nil
}

// Open reports whether n takes members: ready, and not cordoned. Otherwise closed
// says why.
func (c Config) Open(n *corev1.Node) (closed Closed, open bool) {
	closed.Node = lockstep.NodeID(n.Name)
	closed.Lost, closed.Reason = true, "it does not say that it is ready"
	for i := range n.Status.Conditions {
		if cond := &n.Status.Conditions[i]; cond.Type == corev1.NodeReady {
			if closed.Lost = cond.Status != corev1.ConditionTrue; closed.Lost {
				closed.Reason = "it is not ready: " + cmp.Or(cond.Reason, string(cond.Status))
			}
			break
		}
	}
	if closed.Lost {
		return closed, false
	}
	if n.Spec.Unschedulable {
		closed.Reason = "it is cordoned"
		return closed, false
	}
	return Closed{}, true
}

// builder makes a Cluster.
type builder struct {
	cfg    *Config
	in     *Inputs
	shapes map[int]*topology.Shape
	out    Cluster
}

func nodeObject(n *corev1.Node) object { return object{"Node", "", n.Name, n.UID} }

func (b *builder) fault(n *corev1.Node, key, value, reason string) {
	b.out.Faults = append(b.out.Faults, nodeObject(n).fault(lockstep.ErrInvalid, key, value, reason))
}

// places finds the path of each node; nil for one that has none.
func (b *builder) places(nodes []*corev1.Node) ([]topology.Level, []*topology.Node) {
	cfg := labels.Config{Keys: slices.Clone(b.cfg.Keys)}
	for i := range cfg.Keys {
		cfg.Keys[i].Unique = false // looked at here, so that only the node at fault is left out
	}
	levels, _, _ := labels.Inputs(cfg, nil) // the keys were looked at by Validate
	out := make([]*topology.Node, len(nodes))
	above := make(map[[2]string]string)
	b.locate(cfg, nodes, out)
	for i, n := range nodes {
		if out[i] == nil {
			continue
		}
		if key, reason := b.unique(above, out[i].Path); reason != "" {
			b.out.Faults = append(b.out.Faults, nodeObject(n).fault(lockstep.ErrDuplicate, key, n.Labels[key], reason))
			out[i] = nil
		}
	}
	return levels, out
}

// locate reads the labels of nodes, all at once, or where one of them is at fault by
// halves, until those that are stand alone.
func (b *builder) locate(cfg labels.Config, nodes []*corev1.Node, out []*topology.Node) {
	if len(nodes) == 0 {
		return
	}
	in := make([]labels.Node, len(nodes))
	for i, n := range nodes {
		in[i] = labels.Node{ID: lockstep.NodeID(n.Name), Labels: n.Labels, Address: address(n)}
	}
	_, placed, err := labels.Inputs(cfg, in)
	switch half := len(nodes) / 2; {
	case err == nil:
		for i := range placed {
			out[i] = &placed[i]
		}
	case half > 0:
		b.locate(cfg, nodes[:half], out[:half])
		b.locate(cfg, nodes[half:], out[half:])
	default:
		n := nodes[0]
		e := &lockstep.Error{Kind: lockstep.ErrInvalid, Reason: err.Error()}
		errors.As(err, &e)
		b.out.Faults = append(b.out.Faults, &Fault{Kind: "Node", Name: n.Name, UID: n.UID, Err: &lockstep.Error{
			Kind: e.Kind, Op: "view: Node " + n.Name, Field: strings.TrimPrefix(e.Field, "nodes[0]."), Value: e.Value, Reason: e.Reason,
		}})
	}
}

// unique looks whether a path has a domain that is elsewhere already and should not
// be; it takes note of the others.
func (b *builder) unique(above map[[2]string]string, path []string) (key, reason string) {
	for i, k := range b.cfg.Keys {
		if !k.Unique || path[i] == "" {
			continue
		}
		parent := strings.Join(path[:i], " ")
		if other, ok := above[[2]string{k.Label, path[i]}]; ok && other != parent {
			return k.Label, "the domain is below " + strconv.Quote(other) + " already, and here below " + strconv.Quote(parent)
		}
	}
	for i, k := range b.cfg.Keys {
		if k.Unique && path[i] != "" {
			above[[2]string{k.Label, path[i]}] = strings.Join(path[:i], " ")
		}
	}
	return "", ""
}

// address returns the first internal address of n, "" where there is none.
func address(n *corev1.Node) string {
	for i := range n.Status.Addresses {
		if a := &n.Status.Addresses[i]; a.Type == corev1.NodeInternalIP && lockstep.NodeID(a.Address).Validate() == nil {
			return a.Address
		}
	}
	return ""
}

// node notes what n offers, and returns where it is; false where it is left out.
func (b *builder) node(n *corev1.Node, at topology.Node) (topology.Node, bool) {
	id := lockstep.NodeID(n.Name)
	named := b.in.Devices[id]
	whole := count(n, b.cfg.gpu())
	if total := int64(len(named.IDs)) + whole; total > lockstep.MaxDevicesPerNode {
		b.fault(n, "status.allocatable", strconv.FormatInt(total, 10), "a node has at most 64 devices")
		return at, false
	}
	p := placement.Node{ID: id, Class: named.Class, GPUMemory: min(named.Memory, maxMemory), Labels: make(map[string]string, len(n.Labels)+1)}
	for k, v := range n.Labels { // copied, but for keys longer than the library takes, which no gang can ask for
		if nameable(k, v) {
			p.Labels[k] = v
		}
	}
	p.Labels[nodeNameLabel] = n.Name
	b.model(n, &p)
	b.amounts(n, &p)
	if !b.taints(n, &p) {
		return at, false
	}
	devices := len(named.IDs) + int(whole)
	switch {
	case named.MIG == "":
	case !b.cfg.Layouts:
		b.fault(n, "ResourceSlices", named.MIG, noLayouts)
	default:
		p.MIG, p.Partitioned = named.MIG, named.Parts
		b.layout(named.MIG, named.Layout)
	}
	devices += b.instances(n, &p, devices)
	at.Shape = b.shape(devices)
	if len(named.IDs) > 0 {
		at.Devices = make([]lockstep.DeviceID, devices)
		copy(at.Devices, named.IDs)
	}
	b.out.Nodes = append(b.out.Nodes, p)
	if closed, open := b.cfg.Open(n); !open {
		b.out.Closed = append(b.out.Closed, closed)
	}
	return at, true
}

// noLayouts is why MIG instances are left out.
const noLayouts = "MIG instances are left out, since the placer is given no layouts; see Config.Layouts"

// taints reads what keeps members off n; false where that cannot be said.
func (b *builder) taints(n *corev1.Node, p *placement.Node) bool {
	for i := range n.Spec.Taints {
		t, ok := taint(&n.Spec.Taints[i])
		if !ok || slices.Contains(b.cfg.IgnoreTaints, n.Spec.Taints[i].Key) {
			continue
		}
		if !nameable(t.Key, t.Value) {
			b.fault(n, "spec.taints", n.Spec.Taints[i].Key, "the key, with the effect, is longer than the library takes")
			return false
		}
		p.Taints = append(p.Taints, t)
	}
	return true
}

// nameable reports whether a gang could ask for a label or a taint.
func nameable(key, value string) bool {
	return lockstep.JobID(key).Validate() == nil && len(value) <= lockstep.MaxIDLength && utf8.ValidString(value) &&
		!strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) })
}

func (b *builder) layout(name string, cfg sharing.GeometryConfig) {
	if b.out.Layouts == nil {
		b.out.Layouts = make(map[string]sharing.GeometryConfig)
	}
	b.out.Layouts[name] = cfg
}

// count returns how much of a whole resource n has.
func count(n *corev1.Node, name corev1.ResourceName) int64 {
	q := n.Status.Allocatable[name]
	return max(q.Value(), 0)
}

// model reads the labels about the devices of n.
func (b *builder) model(n *corev1.Node, p *placement.Node) {
	if text := n.Labels[b.cfg.class()]; text != "" && p.Class == "" {
		if p.Class = lockstep.DeviceClass(text); p.Class.Validate() != nil {
			p.Class = ""
			b.fault(n, b.cfg.class(), text, "want a name of letters, digits and -_.:/@+%")
		}
	}
	if text := n.Labels[b.cfg.memory()]; text != "" && p.GPUMemory == 0 {
		mib, err := strconv.ParseUint(text, 10, 38)
		if err != nil {
			b.fault(n, b.cfg.memory(), text, "want a number of MiB")
			return
		}
		p.GPUMemory = lockstep.Bytes(mib) << 20
	}
}

// amounts reads what n has beside devices, less what others take.
func (b *builder) amounts(n *corev1.Node, p *placement.Node) {
	u := b.in.Foreign[p.ID]
	cpu := n.Status.Allocatable[corev1.ResourceCPU]
	memory := n.Status.Allocatable[corev1.ResourceMemory]
	p.CPU = lockstep.MilliCPU(rest(milli(cpu), int64(u.CPU), maxCPU))
	p.Memory = lockstep.Bytes(rest(memory.Value(), int64(u.Memory), maxMemory))
	p.Slots = int(rest(count(n, corev1.ResourcePods), int64(u.Pods), placement.MaxSlots))
	if b.cfg.RDMAResource != "" {
		p.RDMA = int(rest(count(n, b.cfg.RDMAResource), 0, maxEndpoints))
	}
}

// Bounds of what a placer takes.
const (
	maxCPU       = int64(1_000_000_000 * lockstep.WholeCPU)
	maxMemory    = 1 << 58
	maxEndpoints = 1 << 10
)

// rest returns what is left of have, at most most, or None where that is nothing.
func rest(have, used, most int64) int64 {
	if have <= used {
		return placement.None
	}
	return min(have-used, most)
}

// shape returns n devices about which nothing is known.
func (b *builder) shape(n int) *topology.Shape {
	if n == 0 {
		return nil
	}
	s, ok := b.shapes[n]
	if !ok {
		s, _ = topology.UniformShape(n, topology.SYS) // n was bounded
		b.shapes[n] = s
	}
	return s
}
