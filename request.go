package lockstep

import "time"

// Request asks where a gang could run now. It is read, never kept or changed. It
// stays inside one process and so has no wire form.
type Request struct {
	Gang    *Gang    // Gang is what is to be placed; it must be valid.
	Min     []int    // Min is the least members of each role, one entry a role; nil means the roles' Min.
	Max     []int    // Max is the most members of each role, one entry a role; nil means the roles' Limit.
	Prefer  *Plan    // Prefer is where the gang sits or sat: members stay there where they can; nil means no such place.
	Exclude []NodeID // Exclude are nodes that must not be used, in any order.
	Busy    []Busy   // Busy is room that must be left alone although it is free now, such as a reservation's.

	Speeds []ClassSpeed // Speeds are how fast the gang runs on classes of devices, in any order; classes that are not named come last, and nil means that all are alike.
}

// ClassSpeed is how fast a gang runs on one class of devices.
type ClassSpeed struct {
	Class    DeviceClass // Class is which.
	PerMille int32       // PerMille is its speed there, at least 1, in thousandths of any one measure.
}

// Busy is room on one node that a request must treat as taken. Several entries
// for one node add up; sets of devices to be left alone wholly unite.
type Busy struct {
	Node    NodeID    // Node is where the room is.
	Devices DeviceSet // Devices are the ones to leave alone, wholly where Share is 0.
	CPU     MilliCPU  // CPU is the processor to leave alone.
	Memory  Bytes     // Memory is the host memory to leave alone.
	RDMA    int       // RDMA is how many network endpoints to leave alone.
	Slots   int       // Slots is how many member slots to leave alone.

	Share     MilliGPU // Share is how much of each of Devices to leave alone, where it is not all.
	GPUMemory Bytes    // GPUMemory is how much memory of each of Devices to leave alone, where Share is not 0.
}

// Verdict is the short answer to a request. It is a value without pointers to
// the state it came from, and making one allocates nothing.
type Verdict struct {
	Feasible  bool         `json:"feasible"`            // Feasible says that the request fits.
	Reason    Reason       `json:"reason,omitempty"`    // Reason is the first binding limit; empty when feasible.
	Fit       int          `json:"fit"`                 // Fit is how many members found room: of Want when feasible, else in the best place.
	Want      int          `json:"want"`                // Want is how many members were asked for at the most.
	Resource  ResourceName `json:"resource,omitempty"`  // Resource is what ran out, where the reason is about one.
	Requested int64        `json:"requested,omitempty"` // Requested is how much of Resource was asked for, a plain number in its unit (MilliGPU, MilliCPU, Bytes or a count).
	Available int64        `json:"available,omitempty"` // Available is how much of Resource there was in the best place, in the same unit.
	Level     Level        `json:"level,omitempty"`     // Level is where the limit binds, or the level of the domain that was chosen.
	Domain    string       `json:"domain,omitempty"`    // Domain is the domain chosen, or the best of those that do not fit.
	Score     int64        `json:"score,omitempty"`     // Score is the placer's figure for the plan: lower is better, and only one placer's scores compare.
}

// Outcome is what became of a job that an orderer proposed.
type Outcome string

// The outcomes that an admission pass reports back to its orderer.
const (
	Granted Outcome = "granted" // Granted: the job holds devices now.
	Blocked Outcome = "blocked" // Blocked: no room or quota for it now; it waits on.
	Kept    Outcome = "kept"    // Kept: the job held devices before the pass and holds them still.
	Dropped Outcome = "dropped" // Dropped: the proposal named a job that is not waiting, so it was passed over.
)

// EvictionCost is what stopping a job throws away, for its own devices. No part
// is negative. In JSON the durations are nanoseconds.
type EvictionCost struct {
	Lost    time.Duration `json:"lost,omitempty"`    // Lost is the work since the last durable checkpoint.
	Save    time.Duration `json:"save,omitempty"`    // Save is the time that a checkpoint takes before it stops.
	Restore time.Duration `json:"restore,omitempty"` // Restore is the time that it takes to resume.
	Devices MilliGPU      `json:"devices,omitempty"` // Devices is how much it holds meanwhile.
}

// Total returns (Lost+Save+Restore)·Devices in whole-device nanoseconds, rounded
// towards zero and held at the ends of int64, which is 2.5 million device-hours.
func (c EvictionCost) Total() int64 {
	t := addSat(addSat(int64(c.Lost), int64(c.Save)), int64(c.Restore))
	return mulDivSat(t, int64(c.Devices), int64(WholeGPU))
}

// Eviction is a decision to take devices from a running gang.
type Eviction struct {
	Job    JobID         `json:"job"`             // Job is the victim.
	For    JobID         `json:"for,omitempty"`   // For is the gang that the room is made for; empty when there is none.
	Ranks  []int         `json:"ranks,omitempty"` // Ranks are the members that go, in increasing order; empty means all of them.
	Reason Reason        `json:"reason"`          // Reason is the cause, for the victim to be told.
	Grace  time.Duration `json:"grace,omitempty"` // Grace is the warning it is owed; nanoseconds in JSON.
	Cost   EvictionCost  `json:"cost,omitzero"`   // Cost is what it throws away.
}
