package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// demo is the cluster and gangs shown when no file is named.
//
//go:embed demo.json
var demo []byte

// input is what a file holds: a cluster and the gangs that want it, in the order
// in which they are placed.
type input struct {
	Cluster clusterSpec      `json:"cluster"`
	Gangs   []*lockstep.Gang `json:"gangs"`
}

// clusterSpec describes a cluster of like nodes, spread evenly over racks, and
// those over blocks. Node "r1n2" is the third of the second rack.
type clusterSpec struct {
	Nodes  int `json:"nodes"`            // in all
	Racks  int `json:"racks,omitempty"`  // 0 means one for every 16 nodes
	Blocks int `json:"blocks,omitempty"` // 0 means 1
	GPUs   int `json:"gpus"`             // of each node

	Class     lockstep.DeviceClass `json:"class,omitempty"`
	GPUMemory lockstep.Bytes       `json:"gpuMemory,omitempty"`
	CPU       lockstep.MilliCPU    `json:"cpu,omitempty"`    // of each node; 0 means not counted
	Memory    lockstep.Bytes       `json:"memory,omitempty"` // of each node; 0 means not counted
	RDMA      int                  `json:"rdma,omitempty"`   // of each node; 0 means not counted

	Labels map[lockstep.NodeID]map[string]string `json:"labels,omitempty"`
	Taints map[lockstep.NodeID][]lockstep.Taint  `json:"taints,omitempty"`
	Cordon []lockstep.NodeID                     `json:"cordon,omitempty"` // nodes that take no members
	Down   []lockstep.NodeID                     `json:"down,omitempty"`   // nodes that are sick
}

// The levels of every cluster here, between the whole of it and the nodes.
const (
	levelBlock lockstep.Level = "block"
	levelRack  lockstep.Level = "rack"
)

// readInputFile reads the named file, or the built-in one where there is no name.
func readInputFile(path string) (input, error) {
	data := demo
	if path != "" {
		var err error
		if data, err = os.ReadFile(path); err != nil {
			return input{}, err
		}
	} else {
		path = "demo.json"
	}
	in, err := readInput(data)
	if err != nil {
		return input{}, fmt.Errorf("%s: %w", path, err)
	}
	return in, nil
}

// readInput reads JSON strictly: unknown fields and text behind it are refused.
func readInput(data []byte) (input, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	var in input
	if err := decoder.Decode(&in); err != nil {
		return input{}, fmt.Errorf("line %d: %w", lineOf(data, decoder, err), err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return input{}, errors.New("there is text behind the closing brace")
	}
	for i, g := range in.Gangs {
		if g == nil {
			return input{}, fmt.Errorf("gangs[%d] is null", i)
		}
		if err := g.Validate(); err != nil {
			return input{}, fmt.Errorf("gangs[%d] %q: %w", i, g.ID, err)
		}
	}
	return in, nil
}

// lineOf returns the line of a fault that decoding met.
func lineOf(data []byte, decoder *json.Decoder, err error) int {
	offset := decoder.InputOffset()
	var syntax *json.SyntaxError
	var mismatch *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &mismatch):
		offset = mismatch.Offset
	}
	return 1 + bytes.Count(data[:min(int(offset), len(data))], []byte("\n"))
}

// parseGang reads a gang from a flag: NAME=MEMBERSxGPUS, with "@LEVEL" behind it
// where one domain of that level must hold it.
func parseGang(s string) (*lockstep.Gang, error) {
	fault := func(why string) error {
		return fmt.Errorf("gang %q: %s: want NAME=MEMBERSxGPUS or NAME=MEMBERSxGPUS@LEVEL, such as train=4x8@rack", s, why)
	}
	name, rest, ok := strings.Cut(s, "=")
	if !ok {
		return nil, fault("no =")
	}
	size, level, _ := strings.Cut(rest, "@")
	members, gpus, ok := strings.Cut(size, "x")
	if !ok {
		return nil, fault("no x")
	}
	m, err1 := strconv.Atoi(members)
	n, err2 := strconv.Atoi(gpus)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fault(err.Error())
	}
	g := &lockstep.Gang{
		ID: lockstep.JobID(name), Required: lockstep.Level(level),
		Roles: []lockstep.Role{{Min: m, Demand: lockstep.Demand{GPUs: n}}},
	}
	if err := g.Validate(); err != nil {
		return nil, fault(err.Error())
	}
	return g, nil
}

// racks returns how many racks and blocks there are.
func (c *clusterSpec) racks() (racks, blocks int) {
	racks, blocks = c.Racks, c.Blocks
	if racks == 0 {
		racks = (c.Nodes + 15) / 16
	}
	if blocks == 0 {
		blocks = 1
	}
	return racks, blocks
}

// tree builds the topology of c: the first racks and blocks are one larger where
// the numbers do not divide.
func (c *clusterSpec) tree() (*topology.Tree, error) {
	racks, blocks := c.racks()
	const most = 1 << 20
	if c.Nodes < 1 || c.Nodes > most || racks < 1 || racks > c.Nodes || blocks < 1 || blocks > racks {
		return nil, fmt.Errorf("cluster: %d nodes in %d racks in %d blocks: want at least one of each and none of them empty", c.Nodes, racks, blocks)
	}
	shape, err := topology.UniformShape(c.GPUs, topology.NVLink(18))
	if err != nil {
		return nil, err
	}
	nodes := make([]topology.Node, 0, c.Nodes)
	for b := range blocks {
		for r := part(racks, blocks, b); r < part(racks, blocks, b+1); r++ {
			path := []string{"b" + strconv.Itoa(b), "r" + strconv.Itoa(r)}
			for i := range part(c.Nodes, racks, r+1) - part(c.Nodes, racks, r) {
				id := "r" + strconv.Itoa(r) + "n" + strconv.Itoa(i)
				nodes = append(nodes, topology.Node{ID: lockstep.NodeID(id), Path: path, Shape: shape, Address: id + ".cluster.example"})
			}
		}
	}
	return topology.New([]topology.Level{{Name: levelBlock}, {Name: levelRack}}, nodes)
}

// part returns where the i-th of parts begins when n things are dealt evenly,
// the first parts being the larger ones.
func part(n, parts, i int) int { return i*(n/parts) + min(i, n%parts) }

// state builds the cluster of c with nothing placed on it.
func (c *clusterSpec) state() (*placement.State, error) {
	tree, err := c.tree()
	if err != nil {
		return nil, err
	}
	var cfg placement.Config
	for slot := range int32(tree.Slots()) {
		if id, ok := tree.NodeAt(slot); ok {
			cfg.Nodes = append(cfg.Nodes, placement.Node{
				ID: id, Class: c.Class, GPUMemory: c.GPUMemory, CPU: c.CPU, Memory: c.Memory, RDMA: c.RDMA,
				Labels: c.Labels[id], Taints: c.Taints[id],
			})
		}
	}
	if err := c.checkNames(tree); err != nil {
		return nil, err
	}
	state, err := placement.New(tree, cfg)
	if err != nil {
		return nil, err
	}
	for _, id := range c.Cordon {
		if err := state.Cordon(id); err != nil {
			return nil, err
		}
	}
	for _, id := range c.Down {
		if err := state.SetHealth(id, false); err != nil {
			return nil, err
		}
	}
	return state, nil
}

// checkNames refuses labels and taints of nodes that there are not.
func (c *clusterSpec) checkNames(tree *topology.Tree) error {
	var unknown []string
	for id := range c.Labels { // order: sorted below
		if _, ok := tree.Slot(id); !ok {
			unknown = append(unknown, string(id))
		}
	}
	for id := range c.Taints { // order: sorted below
		if _, ok := tree.Slot(id); !ok {
			unknown = append(unknown, string(id))
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	slices.Sort(unknown)
	return fmt.Errorf("cluster: labels or taints of unknown nodes: %s", strings.Join(slices.Compact(unknown), " "))
}
