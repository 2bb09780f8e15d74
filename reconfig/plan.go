package reconfig

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Plan says which devices compute which layers, in which replica, and how many
// micro-batches each replica takes. Plans are values: nothing that Replan returns
// is changed later, and a plan given to it is only read.
type Plan struct {
	Version    uint64              `json:"version"`              // Version is 1 for a first plan and one more than that of the plan it follows.
	Basis      Digest              `json:"basis"`                // Basis is the digest of the job and the devices it was made for.
	Replicas   []Replica           `json:"replicas"`             // Replicas are the pipelines, by Number.
	Split      []int               `json:"split"`                // Split are the micro-batches of each of Replicas; they sum up to Job.Micros.
	Migrations []Migration         `json:"migrations,omitempty"` // Migrations are the micro-batches of which a stage is computed by another replica.
	Standby    []lockstep.DeviceID `json:"standby,omitempty"`    // Standby are the live devices without a role, sorted.
	Restore    []Span              `json:"restore,omitempty"`    // Restore are the layers of which no live device holds some part, so that they must come from a checkpoint.
	Groups     []Group             `json:"groups,omitempty"`     // Groups are the communicators, in the order in which every member must make them.
	Estimate   Estimate            `json:"estimate"`             // Estimate is what Evaluate says of it.
	Digest     Digest              `json:"digest"`               // Digest is Sum of everything above but Estimate.
}

// Digest is a SHA-256 sum. The zero Digest stands for none.
type Digest [32]byte

// Replica is one copy of the model: a pipeline of stages.
type Replica struct {
	Number int     `json:"number"` // Number is which of the job's replicas it carries on, from 0; no two replicas share one.
	Stages []Stage `json:"stages"` // Stages are in the order of the pipeline; at least one.
}

// Stage is a tensor-parallel group of devices and the layers that it computes.
type Stage struct {
	Devices []lockstep.DeviceID `json:"devices"` // Devices are the group, in rank order: the i-th of k holds the i-th k-th of every tensor.
	Spans   []Span              `json:"spans"`   // Spans are its layers, one span for each model chunk (Job.Chunks, mostly one).
}

// Layers returns how many layers s computes.
func (s Stage) Layers() int {
	n := 0
	for _, span := range s.Spans {
		n += span.Layers
	}
	return n
}

// Span is a run of layers.
type Span struct {
	First  int `json:"first"`  // First is the first layer, from 0.
	Layers int `json:"layers"` // Layers is how many there are.
}

// End returns the layer behind the last one of s.
func (s Span) End() int { return s.First + s.Layers }

// Migration has one stage of a micro-batch computed by a peer: the same stage,
// with the same layers, of another replica. Activation and gradient travel there
// and back.
type Migration struct {
	Stage int `json:"stage"` // Stage is the index of the stage in both replicas.
	Owner int `json:"owner"` // Owner is the index in Plan.Replicas of the replica that the micro-batch belongs to.
	Host  int `json:"host"`  // Host is the index of the replica that computes the stage.
	Micro int `json:"micro"` // Micro is which of the owner's micro-batches, from 0.
}

// GroupKind says what the members of a communicator do with each other.
type GroupKind string

// The kinds of communicator.
const (
	TensorGroup   GroupKind = "tensor"   // TensorGroup: the devices of one stage.
	PipelineGroup GroupKind = "pipeline" // PipelineGroup: the devices of one replica, stage by stage.
	DataGroup     GroupKind = "data"     // DataGroup: who exchanges the gradients of one slice of some layers, one device of each replica.
)

// Group is a communicator.
type Group struct {
	Kind    GroupKind           `json:"kind"`             // Kind is what it is for.
	Span    Span                `json:"span,omitzero"`    // Span are the layers that a DataGroup exchanges.
	Slice   int                 `json:"slice,omitempty"`  // Slice is which of Slices equal parts of them, from 0.
	Slices  int                 `json:"slices,omitempty"` // Slices is in how many parts the tensors of Span are cut: the least that every replica's degree divides.
	Devices []lockstep.DeviceID `json:"devices"`          // Devices are the members, in rank order.
}

// Estimate is what a plan is expected to take. All its times are whole
// nanoseconds, the same on every platform.
type Estimate struct {
	Iteration time.Duration   `json:"iteration"` // Iteration is one step: the slowest replica, then Sync.
	Sync      time.Duration   `json:"sync"`      // Sync is the exchange of gradients.
	Replicas  []time.Duration `json:"replicas"`  // Replicas are the pipelines' own times, in the order of Plan.Replicas.
	Fluid     time.Duration   `json:"fluid"`     // Fluid is a bound that no plan on the live devices can beat: all work spread over them in proportion to their speeds.
	Devices   int             `json:"devices"`   // Devices is how many have a role.
	Memory    lockstep.Bytes  `json:"memory"`    // Memory is the most that one device needs, reserve included; 0 where no device states its memory.
}
