package slurm

import (
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// cluster is a view in Lockstep's words: the tree, and what its nodes offer.
type cluster struct {
	view   *View
	cfg    Config
	tree   *topology.Tree
	nodes  []placement.Node // by the order of view.Nodes
	leaf   lockstep.Level   // of leaf switches; empty where there are none
	at     map[lockstep.NodeID]int
	faults []*lockstep.Error

	classes map[string]*class
}

// class is a set of nodes on which jobs that ask for the same may run. Nodes carry its label.
type class struct {
	label string // empty where it holds all nodes
	nodes []int  // indices, rising
	gpus  int    // the most devices on one of them
	cpus  int64  // the most processors on one of them
	mem   lockstep.Bytes
	bad   string // what is wrong with what was asked for
}

func newCluster(v *View, cfg Config) (*cluster, error) {
	c := &cluster{view: v, cfg: cfg, at: make(map[lockstep.NodeID]int, len(v.Nodes)), classes: make(map[string]*class)}
	c.faults = append(c.faults, v.Faults...)
	for i := range v.Nodes {
		n := &v.Nodes[i]
		if _, twice := c.at[n.ID]; twice {
			return nil, fault(lockstep.ErrDuplicate, "plan", "View.Nodes["+strconv.Itoa(i)+"].ID", quote(n.ID), "is there twice")
		}
		if err := n.check(i); err != nil {
			return nil, err
		}
		c.at[n.ID] = i
		c.nodes = append(c.nodes, c.offer(n))
	}
	return c, c.grow()
}

// check refuses numbers that no reader lets through: a View may be made by hand.
func (n *Node) check(i int) error {
	at := "View.Nodes[" + strconv.Itoa(i) + "]."
	if n.ID.Validate() != nil {
		return fault(lockstep.ErrInvalid, "plan", at+"ID", quote(n.ID), "is no name of a node")
	}
	for _, x := range []struct {
		field string
		n, hi int64
	}{
		{"GPUs", int64(n.GPUs), lockstep.MaxDevicesPerNode},
		{"Used", int64(n.Used), lockstep.MaxDevicesPerNode},
		{"CPUs", n.CPUs, maxCount},
		{"UsedCPUs", n.UsedCPUs, maxCount},
		{"Memory", int64(n.Memory), maxMegabyte << 20},
		{"UsedMemory", int64(n.UsedMemory), maxMegabyte << 20},
	} {
		if x.n < 0 || x.n > x.hi {
			return fault(lockstep.ErrInvalid, "plan", at+x.field, strconv.FormatInt(x.n, 10), "want 0 to "+strconv.FormatInt(x.hi, 10))
		}
	}
	return nil
}

// offer says what a node has. A kind that is no name of ours is none.
func (c *cluster) offer(n *Node) placement.Node {
	p := placement.Node{ID: n.ID, Class: lockstep.DeviceClass(n.GPUKind), CPU: lockstep.WholeCPU.Mul(n.CPUs), Memory: n.Memory}
	if n.GPUKind != "" && p.Class.Validate() != nil {
		c.faults = append(c.faults, fault(lockstep.ErrInvalid, "plan", "node "+string(n.ID)+".gres", quote(n.GPUKind), "is no name of a kind of device: it has none then"))
		p.Class = ""
	}
	if c.cfg.IgnoreCPUs {
		p.CPU = 0
	}
	if c.cfg.IgnoreMemory {
		p.Memory = 0
	}
	return p
}

// grow makes the tree: the nodes of the topology first, in its order, then those that it does not name.
func (c *cluster) grow() error {
	var levels []topology.Level
	var nodes []topology.Node
	if t := c.view.Topology; t != nil {
		var err error
		if levels, nodes, err = t.Inputs(); err != nil {
			return err
		}
	}
	if len(levels) > 0 {
		c.leaf = levels[len(levels)-1].Name
	}
	shapes := make(map[int]*topology.Shape)
	shape := func(n int) (*topology.Shape, error) {
		if s, ok := shapes[n]; ok || n == 0 {
			return s, nil
		}
		s, err := topology.UniformShape(n, topology.SYS)
		shapes[n] = s
		return s, err
	}
	kept := make([]topology.Node, 0, len(c.nodes))
	named := make(map[lockstep.NodeID]bool, len(nodes))
	for _, n := range nodes {
		if _, ok := c.at[n.ID]; ok { // a topology.conf may name nodes that sinfo does not show
			kept = append(kept, n)
			named[n.ID] = true
		}
	}
	for i := range c.view.Nodes {
		if id := c.view.Nodes[i].ID; !named[id] {
			kept = append(kept, topology.Node{ID: id, Path: make([]string, len(levels))})
			if len(levels) > 0 {
				c.faults = append(c.faults, fault(lockstep.ErrUnknown, "plan", "node "+string(id), "", "is not in the topology"))
			}
		}
	}
	for i := range kept {
		var err error
		if kept[i].Shape, err = shape(c.view.Nodes[c.at[kept[i].ID]].GPUs); err != nil {
			return err
		}
	}
	var err error
	c.tree, err = topology.New(levels, kept)
	return err
}

// classOf returns the nodes on which j may run.
func (c *cluster) classOf(j *Job) *class {
	key := strings.Join([]string{j.Partition, j.Features, strings.Join(j.Exclude, ","), strings.Join(j.Require, ","), strconv.FormatBool(len(j.Require) >= j.MinNodes), j.Resv}, "\x00")
	if k := c.classes[key]; k != nil {
		return k
	}
	k := &class{}
	c.classes[key] = k
	if _, ok := matches(j.Features, func(string) bool { return true }); !ok {
		k.bad = "features"
		return k
	}
	parts := split(j.Partition)
	reserved := j.Resv != "" && slices.ContainsFunc(c.view.Nodes, func(n Node) bool { return n.Resv == j.Resv })
	for i := range c.view.Nodes {
		n := &c.view.Nodes[i]
		switch {
		case len(parts) > 0 && len(n.Partitions) > 0 && !slices.ContainsFunc(parts, func(p string) bool { return slices.Contains(n.Partitions, p) }):
		case len(j.Require) > 0 && len(j.Require) >= j.MinNodes && !slices.Contains(j.Require, string(n.ID)):
		case slices.Contains(j.Exclude, string(n.ID)):
		case n.Resv == AnyResv && j.Resv == "":
		case n.Resv != j.Resv && n.Resv != "" && n.Resv != AnyResv, reserved && n.Resv != j.Resv:
		case !suits(j.Features, n.Features):
		default:
			k.nodes = append(k.nodes, i)
			k.gpus, k.cpus, k.mem = max(k.gpus, n.GPUs), max(k.cpus, n.CPUs), max(k.mem, n.Memory)
		}
	}
	if len(k.nodes) < len(c.view.Nodes) {
		c.mark(k)
	}
	return k
}

func suits(expr string, features []string) bool {
	yes, _ := matches(expr, func(f string) bool { return slices.Contains(features, f) })
	return yes
}

// mark puts the label of a class on its nodes.
func (c *cluster) mark(k *class) {
	k.label = "eligible-" + strconv.Itoa(len(c.classes))
	for _, i := range k.nodes {
		if c.nodes[i].Labels == nil {
			c.nodes[i].Labels = make(map[string]string)
		}
		c.nodes[i].Labels[k.label] = ""
	}
}

// holds counts how many members of a role the nodes could hold if nobody used them: all nodes, those that suit it, and
// of these those that are open.
func (c *cluster) holds(r *lockstep.Role) (all, suited, open int) {
	d := &r.Demand
	for i := range c.nodes {
		n, kind := &c.view.Nodes[i], len(d.Classes) == 0 || d.Classes[0] == c.nodes[i].Class
		fit := r.Min
		if d.GPUs > 0 {
			fit = min(fit, n.GPUs/d.GPUs)
		}
		if d.CPU > 0 && c.nodes[i].CPU > 0 {
			fit = min(fit, int(c.nodes[i].CPU/d.CPU))
		}
		if d.Memory > 0 && c.nodes[i].Memory > 0 {
			fit = min(fit, int(c.nodes[i].Memory/d.Memory))
		}
		all += fit
		for k := range r.Constraints.Selector {
			kind = kind && r.Constraints.Selector[k].Matches(c.nodes[i].Labels)
		}
		if kind {
			suited += fit
			if n.Open {
				open += fit
			}
		}
	}
	return all, suited, open
}

// tenant says whom j is charged to.
func (c *cluster) tenant(j *Job) lockstep.TenantID {
	switch c.cfg.Tenant {
	case ByUser:
		return clean(j.User)
	case ByQOS:
		return clean(j.QOS)
	case ByPartition:
		return clean(strings.ReplaceAll(j.Partition, ",", "+"))
	}
	return clean(j.Account)
}

// clean makes a name of a tenant of what Slurm calls it, with _ for what no name of ours may hold.
func clean(s string) lockstep.TenantID {
	if id := lockstep.TenantID(s); s == "" || id.Validate() == nil {
		return id
	}
	s = strings.Map(func(r rune) rune {
		if lockstep.TenantID("x"+string(r)).Validate() != nil {
			return '_'
		}
		return r
	}, s)
	if s[0] == '-' {
		s = "_" + s[1:]
	}
	if len(s) > lockstep.MaxIDLength {
		s = strings.ToValidUTF8(s[:lockstep.MaxIDLength], "")
	}
	return lockstep.TenantID(s)
}
