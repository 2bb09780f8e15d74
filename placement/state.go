package placement

import (
	"errors"
	"math/bits"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sharing"
	"github.com/lockstep-gpu/lockstep/topology"
)

// Bounds of this package.
const (
	MaxSlots = 1024 // MaxSlots is how many members one node may hold, and what a Node without Slots gets.
	None     = -1   // None, as an amount of a Node, means that it has nothing of that resource, where zero means that it is not counted.
)

// Node is what a node offers beside its place and its devices, which the tree
// knows. The zero amounts mean "not counted": any demand is met.
type Node struct {
	ID          lockstep.NodeID      `json:"id"`                    // ID is the node's name in the tree.
	Class       lockstep.DeviceClass `json:"class,omitempty"`       // Class is the kind of its devices; empty is a kind that no demand can name.
	GPUMemory   lockstep.Bytes       `json:"gpuMemory,omitempty"`   // GPUMemory is the memory of each device; 0 (not None) means unknown, which meets only demands for none.
	Overcommit  int                  `json:"overcommit,omitempty"`  // Overcommit is by how many thousandths the memory that shares of one device ask for together may exceed GPUMemory, up to 9000; 0 means not at all. No member asks for more than GPUMemory; that none uses more than there is, is for the host to see to.
	MIG         string               `json:"mig,omitempty"`         // MIG names how its devices divide into instances: one of Config.Layouts, or of sharing.Models; empty means that they do not.
	Partitioned lockstep.DeviceSet   `json:"partitioned,omitempty"` // Partitioned are the devices set aside for instances, which nobody gets wholly or in shares; none means that every free one may be divided. It needs MIG.
	CPU         lockstep.MilliCPU    `json:"cpu,omitempty"`         // CPU is its processor time; 0 means not counted, None means none.
	Memory      lockstep.Bytes       `json:"memory,omitempty"`      // Memory is its host memory; 0 means not counted, None means none.
	RDMA        int                  `json:"rdma,omitempty"`        // RDMA is how many network endpoints it has; 0 means not counted, None means none.
	Slots       int                  `json:"slots,omitempty"`       // Slots is how many members it may hold; 0 means MaxSlots, None means none.
	Labels      map[string]string    `json:"labels,omitempty"`      // Labels are what selectors look at; New copies them.
	Taints      []lockstep.Taint     `json:"taints,omitempty"`      // Taints keep members off that do not tolerate them; New copies them.
}

// Config configures a State. The zero value is valid.
type Config struct {
	Nodes   []Node                            // Nodes are in any order; a node of the tree without an entry gets Node{ID: id}. New copies them.
	Layouts map[string]sharing.GeometryConfig // Layouts are how devices divide into MIG instances, by the name in Node.MIG, beside sharing.Models; nil means those alone. New copies them.
	Mix     []Shape                           // Mix is the workload that places for shares are chosen for; nil means that it is learned, see Arrived. New copies it.
	Rule    Rule                              // Rule is how members that take shares choose places; zero is RulePrices.
	RankAll bool                              // RankAll has all members choose nodes as those with shares do: for workloads of many small gangs.
	Views   int                               // Views bounds how many kinds of demand stay indexed; 0 means 64. The kind asked for least recently makes room, so it is to be no less than the kinds in use; each class of penalty that nodes have makes one more of each.
	Journal int                               // Journal bounds the changes kept for Rollback; 0 means 65,536. Beyond it every open mark goes stale.

	wide int32 // above how many children a domain is searched by index; 0 means 128; tests lower it
}

// What a node that does not count a resource is given of it: more than
// MaxSlots members can ask for, and far from overflow.
const (
	uncounted     = 1 << 60
	uncountedRDMA = 1 << 28
)

// ref points at a seat: seats[idx] of jobs[rec]. rec is -1 in the end of a list.
type ref struct{ rec, idx int32 }

// nowhere ends a list of seats.
func nowhere() ref { return ref{rec: -1} }

// slot is the state of one slot of the tree; vacant slots have nothing. It is a
// cache line.
type slot struct {
	free    lockstep.DeviceSet // devices that no member has any part of
	all     lockstep.DeviceSet // devices there are
	cpu     int64              // what is left; below zero when the node shrank under its members
	memory  int64
	rdma    int32
	slots   int32 // members that may still come
	members int32 // members there
	head    ref   // the seats there, newest first
	flags   uint8
	class   uint8  // of penalty: 0 for none, else bits.Len32
	mig     uint8  // index in State.layouts; 0 where devices do not divide
	model   uint16 // index in State.models
	part    int32  // index in State.blocks of what members have parts of; 0 for none
}

// Flags of a slot. A slot is open to members where none is set.
const (
	vacant   uint8 = 1 << iota // no node here
	cordoned                   // takes no more members
	sick                       // reported unhealthy
	excluded                   // left out of the request at hand
)

// spec is what a slot's node offers when empty.
type spec struct {
	node    Node
	penalty int32
}

// State keeps which member of which gang holds which devices of a cluster, and
// finds room for more. Make one with New. It is not safe for concurrent use.
type State struct {
	tree  *topology.Tree
	cfg   Config
	depth int     // levels of the tree
	roomy []int32 // by level: the most slots of a domain
	broad bool    // some lowest domain has more than wide slots

	slots []slot
	ids   []lockstep.NodeID // by slot, "" where vacant
	specs []spec            // by slot
	ranks []int32           // how many slots have each penalty class

	jobs   []job
	byID   map[lockstep.JobID]int32
	spare  [21][]int32 // freed jobs, by the room they have for seats
	gone   []departed
	unused []int32                   // entries of gone
	away   map[lockstep.NodeID]int32 // index in gone

	version lockstep.Version
	issued  lockstep.Version // the greatest version ever given out
	epoch   uint64           // changes of hardware, health and penalties
	journal journal

	changed []int32 // ring of slots that changed
	end     uint64  // how many were ever written to changed
	seen    uint64  // end when a view last read it
	views   views
	terms   []*term
	classes []*class
	work    scratch

	blocks  []block                                 // the first is unused
	rest    [lockstep.MaxDevicesPerNode + 1][]int32 // unused blocks, by devices
	layouts []layout                                // MIG layouts in use; the first is none
	models  []lockstep.DeviceClass                  // classes of devices that nodes have, or had

	learner learner
	market  *market
	markets uint64 // how many there were
}

// New returns a state in which every node of tree is free, open and healthy.
// It refuses a nil tree, and reports every fault of cfg, joined: a node that the
// tree lacks (lockstep.ErrUnknown), that is named twice (ErrDuplicate), or with
// an amount out of range (ErrInvalid).
func New(tree *topology.Tree, cfg Config) (*State, error) {
	if err := checkTree("new", tree); err != nil {
		return nil, err
	}
	byID, err := checkNodes("new", tree, cfg.Nodes, cfg.Layouts)
	if err := errors.Join(err, checkLayouts(cfg.Layouts), checkShapes("new", cfg.Mix), checkRule(cfg.Rule)); err != nil {
		return nil, err
	}
	if cfg.Views < 0 || cfg.Journal < 0 {
		return nil, fault(lockstep.ErrInvalid, "new", "Config", "", "bounds must not be negative")
	}
	if cfg.Views == 0 {
		cfg.Views = 64
	}
	if cfg.Journal == 0 {
		cfg.Journal = 1 << 16
	}
	if cfg.wide == 0 {
		cfg.wide = wide
	}
	nodes := cfg.Nodes
	cfg.Nodes, cfg.Layouts, cfg.Mix = nil, cloneLayouts(cfg.Layouts), cloneShapes(cfg.Mix)
	s := &State{cfg: cfg, byID: make(map[lockstep.JobID]int32), away: make(map[lockstep.NodeID]int32), version: 1, issued: 1}
	s.views.byHash = make(map[uint64]*view)
	s.layouts = make([]layout, 1)
	s.learner = learner{gap: firstStep, fixed: len(cfg.Mix) > 0}
	s.lay(tree)
	for x := range s.slots {
		id, ok := tree.NodeAt(int32(x))
		if !ok {
			continue
		}
		n := Node{ID: id}
		if i, ok := byID[id]; ok {
			n = nodes[i]
		}
		s.settle(int32(x), n)
	}
	s.learnFrom(cfg.Mix)
	return s, nil
}

// lay sizes everything for tree, all slots vacant, and forgets what is indexed by
// slot or domain.
func (s *State) lay(tree *topology.Tree) {
	n := tree.Slots()
	s.tree, s.depth = tree, tree.Levels()
	s.slots, s.ids, s.specs = make([]slot, n), make([]lockstep.NodeID, n), make([]spec, n)
	s.roomy = s.roomy[:0]
	for l := range s.depth {
		most := int32(0)
		for d := range tree.Domains(l) {
			first, end := tree.Range(l, int32(d))
			most = max(most, end-first)
		}
		s.roomy = append(s.roomy, most)
	}
	s.broad = s.roomy[s.depth-2] > s.cfg.wide
	s.ranks = make([]int32, 33)
	for x := range s.slots {
		s.slots[x] = slot{flags: vacant, head: nowhere()}
	}
	s.changed = make([]int32, max(64, 1<<bits.Len(uint(n))))
	s.views.clear()
	s.classes, s.terms = nil, nil
}

// settle puts an empty node into a vacant slot. The devices are the tree's.
func (s *State) settle(x int32, n Node) {
	n = cloneNode(n)
	s.specs[x] = spec{node: n}
	s.slots[x] = slot{all: allDevices(s.tree.DeviceCount(x)), mig: s.layoutOf(n.MIG), model: s.modelOf(n.Class)}
	s.slots[x] = s.empty(x)
	s.ids[x] = n.ID
	s.ranks[0]++
}

func counted(v int64) int64 {
	if v == 0 {
		return uncounted
	}
	return max(0, v)
}

func allDevices(n int) lockstep.DeviceSet {
	if n >= lockstep.MaxDevicesPerNode {
		return ^lockstep.DeviceSet(0)
	}
	return 1<<uint(n) - 1
}

// push tells the views that a slot changed; once where it changes again before any of
// them looks.
func (s *State) push(x int32) {
	mask := uint64(len(s.changed) - 1)
	if s.end > s.seen && s.changed[(s.end-1)&mask] == x {
		return
	}
	s.changed[s.end&mask] = x
	s.end++
}

// advance gives the state a version that no other state ever had.
func (s *State) advance() {
	s.issued++
	s.version = s.issued
}

// Version returns the version of the present state; every change gives a
// greater one, and Rollback returns to that of its mark.
func (s *State) Version() lockstep.Version { return s.version }

// Tree returns the tree the state is over.
func (s *State) Tree() *topology.Tree { return s.tree }

// zeroState is what calls answer that need a tree.
func zeroState(call string) error {
	return fault(lockstep.ErrInvalid, call, "State", "zero", "want one that New or Restore made")
}

// fault builds this package's errors.
func fault(kind error, call, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "placement: " + call, Field: field, Value: value, Reason: reason}
}

func at(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

func checkTree(call string, tree *topology.Tree) error {
	switch {
	case tree == nil || tree.Levels() == 0:
		return fault(lockstep.ErrInvalid, call, "tree", "nil", "must not be nil or zero")
	case tree.Levels() > maxLevels:
		return fault(lockstep.ErrInvalid, call, "tree", strconv.Itoa(tree.Levels()), "want at most "+strconv.Itoa(maxLevels)+" levels")
	case tree.Slots() > maxSlots:
		return fault(lockstep.ErrInvalid, call, "tree", strconv.Itoa(tree.Slots()), "want at most "+strconv.Itoa(maxSlots)+" slots")
	}
	return nil
}
