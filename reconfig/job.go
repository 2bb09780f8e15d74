package reconfig

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// State says whether a device may be used.
type State uint8

// The states of a device.
const (
	Up       State = iota // Up: it works, at its Speed.
	Down                  // Down: it does not answer; what it held is lost.
	Cordoned              // Cordoned: it may be given no role, but what it holds can still be read.
)

// String returns "up", "down" or "cordoned".
func (s State) String() string {
	switch s {
	case Up:
		return "up"
	case Down:
		return "down"
	case Cordoned:
		return "cordoned"
	}
	return "State(" + text(int(s)) + ")"
}

// Device is one GPU that the job has.
type Device struct {
	ID     lockstep.DeviceID `json:"id"`               // ID names it.
	Node   lockstep.NodeID   `json:"node"`             // Node is its host.
	Leaf   string            `json:"leaf,omitempty"`   // Leaf names what its node shares a switch with; empty is a leaf like any other.
	Speed  float64           `json:"speed"`            // Speed is how fast it is, 0 to 1, where 1 is a healthy one; it counts in whole millionths. 0 is a device that is Down.
	Memory lockstep.Bytes    `json:"memory,omitempty"` // Memory is how much it has; 0 means that memory does not limit it.
	State  State             `json:"state,omitempty"`  // State says whether it may be used; zero is Up.
}

// Job is what is to be laid out.
type Job struct {
	Model     perfmodel.Model     `json:"model"`               // Model is the shape of the transformer.
	Layout    perfmodel.Layout    `json:"layout"`              // Layout is the healthy layout: degrees, ZeRO, recomputation, precision. TP, PP and DP are what a first plan keeps to where that is possible, and where the search begins; no group is larger than TP.
	Micros    int                 `json:"micros"`              // Micros is how many micro-batches a step has, over all replicas.
	Batch     perfmodel.Batch     `json:"batch"`               // Batch is a typical micro-batch; with no Tokens it is 1 token, and memory counts no activations to speak of.
	Flash     bool                `json:"flash,omitempty"`     // Flash says that attention never stores its scores.
	Recompute perfmodel.Recompute `json:"recompute,omitempty"` // Recompute is what the backward pass makes again; zero is nothing.
	Schedule  pipeline.Schedule   `json:"schedule,omitempty"`  // Schedule is the order of work in a stage; zero is 1F1B.
	Chunks    int                 `json:"chunks,omitempty"`    // Chunks is how many model chunks a stage has, for pipeline.Interleaved; 0 means 1.
	Reserve   lockstep.Bytes      `json:"reserve,omitempty"`   // Reserve is what the planner leaves free on each device, for context, workspace and fragmentation.
	Rate      perfmodel.Rate      `json:"rate,omitzero"`       // Rate is how fast one healthy device works, where Costs is zero.
	Costs     Costs               `json:"costs,omitzero"`      // Costs are measured times; zero means to derive them from Model, Batch and Rate.
	Allow     Constraints         `json:"allow,omitzero"`      // Allow is what the job's runtime can do; zero is the least.
}

// Cost is what a piece of the model takes for one micro-batch on one healthy
// device alone. A group of k devices takes the k-th part of it.
type Cost struct {
	Forward  time.Duration `json:"forward,omitempty"`  // Forward is the forward pass.
	Backward time.Duration `json:"backward,omitempty"` // Backward is the gradient of the input.
	Weight   time.Duration `json:"weight,omitempty"`   // Weight is the gradient of the weights, which a schedule may do later.
}

// Costs are the times that a plan is judged by.
type Costs struct {
	Layer  Cost   `json:"layer,omitzero"`   // Layer is that of each layer, where Layers is nil.
	Layers []Cost `json:"layers,omitempty"` // Layers are those of each layer; nil means that all are alike.
	Embed  Cost   `json:"embed,omitzero"`   // Embed is added to the first stage.
	Head   Cost   `json:"head,omitzero"`    // Head is added to the last stage: language-model head and loss.

	Collective []time.Duration `json:"collective,omitempty"` // Collective has at k what the collectives of one layer's forward pass take among k devices of a node, the backward pass the same again; it does not scale with speed. Beyond its end the last entry holds; nil means 0.
	Across     []time.Duration `json:"across,omitempty"`     // Across is the same for a group over several nodes; nil means Collective.

	Hop      Hops          `json:"hop,omitzero"`       // Hop is what handing an activation to the next stage takes, or a gradient back.
	Exchange time.Duration `json:"exchange,omitempty"` // Exchange is what it takes to send the gradients of one whole layer out of one device; n replicas of degree k take 2(n-1)/n of it, divided by k. Nothing hides it.
}

// Hops are the times of one transfer between stages, by how far apart they are.
type Hops struct {
	Node   time.Duration `json:"node,omitempty"`   // Node is inside a node.
	Leaf   time.Duration `json:"leaf,omitempty"`   // Leaf is between nodes of one leaf.
	Fabric time.Duration `json:"fabric,omitempty"` // Fabric is between leaves.
}

// Constraints say what a plan may do beyond the least. The zero value allows
// tensor-parallel groups of a power of two inside a node, pipelines of unequal
// stages and replicas of unequal layout.
type Constraints struct {
	Uniform          bool `json:"uniform,omitempty"`          // Uniform asks that all replicas have the same layers in the same stages.
	FixedStages      bool `json:"fixedStages,omitempty"`      // FixedStages asks that every replica has Layout.PP stages.
	AllowOddTP       bool `json:"allowOddTP,omitempty"`       // AllowOddTP allows any degree that divides heads, feed-forward width and vocabulary.
	AllowCrossNodeTP bool `json:"allowCrossNodeTP,omitempty"` // AllowCrossNodeTP allows a group over several nodes of one leaf.
	AllowMigration   bool `json:"allowMigration,omitempty"`   // AllowMigration allows Plan.Migrations.
	MinTP            int  `json:"minTP,omitempty"`            // MinTP is the least degree; 0 means 1.
	MaxStages        int  `json:"maxStages,omitempty"`        // MaxStages is the longest pipeline; 0 means twice Layout.PP.
	MinReplicas      int  `json:"minReplicas,omitempty"`      // MinReplicas is how many replicas there must be; 0 means 1.
	MaxReplicas      int  `json:"maxReplicas,omitempty"`      // MaxReplicas is how many there may be, as when shorter pipelines make room for more; 0 means Layout.DP.
}

// Options tune Replan. The zero value works.
type Options struct {
	Disturb      float64 `json:"disturb,omitempty"`      // Disturb is the part of the iteration that must be gained before replicas change that lost nothing; 0 means 0.02, and AnyGain any gain at all, for a first plan also over Job.Layout.
	Budget       int64   `json:"budget,omitempty"`       // Budget is how many schedule operations the search may simulate; 0 means 1000 for each device, at least 300 thousand; up to 64 devices 2 million, and up to 16 devices 4 million. Where less finds no plan, so many are spent after all.
	Gap          int     `json:"gap,omitempty"`          // Gap is by how many micro-batches a replica must be behind its peer before a stage of one migrates (with AllowMigration); 0 means 1.
	NoCheckpoint bool    `json:"noCheckpoint,omitempty"` // NoCheckpoint refuses plans with Plan.Restore.
}

// AnyGain stands for an Options.Disturb of 0.
const AnyGain = -1.0
