package lockstep

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
)

// Bounds that Validate holds inputs to, so that every sum and product made of
// them stays far inside int64.
const (
	MaxDevicesPerNode = 64                        // MaxDevicesPerNode is how many devices a node may have: a DeviceSet is one word.
	MaxMembers        = 1 << 20                   // MaxMembers is how many members all roles of a gang may have together.
	MaxRoles          = 64                        // MaxRoles is how many roles a gang may have.
	MaxWalltime       = 10 * 365 * 24 * time.Hour // MaxWalltime bounds estimates and holds.
)

// Demand is what one member of a gang needs, all of it on one node.
type Demand struct {
	GPUs      int           `json:"gpus,omitempty"`      // GPUs is how many devices, 0 to MaxDevicesPerNode.
	Share     MilliGPU      `json:"share,omitempty"`     // Share is how much of each device, 1 to 1000; 0 means all of it.
	GPUMemory Bytes         `json:"gpuMemory,omitempty"` // GPUMemory is the least memory of each device; 0 means any.
	Classes   []DeviceClass `json:"classes,omitempty"`   // Classes are the device kinds that will do; none means any.
	CPU       MilliCPU      `json:"cpu,omitempty"`       // CPU is processor time; 0 means none asked for.
	Memory    Bytes         `json:"memory,omitempty"`    // Memory is host memory; 0 means none asked for.
	RDMA      int           `json:"rdma,omitempty"`      // RDMA is how many network endpoints; 0 means none asked for.
}

// DeviceShare returns how much of each device d takes: Share, or all of it.
func (d Demand) DeviceShare() MilliGPU {
	if d.Share == 0 {
		return WholeGPU
	}
	return d.Share
}

// Resources returns what one member with demand d takes, by name, the slot
// that every member takes included. Devices are counted under ResourceGPU, and
// under their class as well where exactly one class will do.
func (d Demand) Resources() Resources {
	r := Resources{ResourceSlots: 1}
	if d.GPUs != 0 {
		gpu := int64(d.DeviceShare().Mul(int64(d.GPUs)))
		r[ResourceGPU] = gpu
		if len(d.Classes) == 1 {
			r[ResourceGPUClass(d.Classes[0])] = gpu
		}
	}
	if d.CPU != 0 {
		r[ResourceCPU] = int64(d.CPU)
	}
	if d.Memory != 0 {
		r[ResourceMemory] = int64(d.Memory)
	}
	if d.RDMA != 0 {
		r[ResourceRDMA] = int64(d.RDMA)
	}
	return r
}

// Role is a set of like members of a gang.
type Role struct {
	Name        RoleName    `json:"name,omitempty"`       // Name is unique within the gang; it may be empty when the gang has one role.
	Min         int         `json:"min"`                  // Min is how many members must run together, at least 1.
	Max         int         `json:"max,omitempty"`        // Max is how many members may run; 0 means Min.
	Demand      Demand      `json:"demand"`               // Demand is what each member needs.
	Inner       Inner       `json:"inner,omitzero"`       // Inner keeps groups of members close; the zero Inner keeps none.
	Constraints Constraints `json:"constraints,omitzero"` // Constraints hold for the members of this role, beside the gang's.
}

// Limit returns how many members may run: Max, or Min where Max is 0.
func (r *Role) Limit() int {
	if r.Max == 0 {
		return r.Min
	}
	return r.Max
}

// Inner asks that each run of Size members, in rank order within the role, sits
// in one domain of Level, such as a tensor-parallel group in one node. Counts of
// the role move in whole groups.
type Inner struct {
	Size  int   `json:"size,omitempty"`  // Size is the members of one group; 0 or 1 means no groups.
	Level Level `json:"level,omitempty"` // Level is where a group must stay together; empty means LevelNode.
}

// Strategy says which of the places that would do is best.
type Strategy string

// The strategies. The zero Strategy is Pack.
const (
	Pack   Strategy = ""       // Pack fills the fullest domain and node that still fit, and leaves whole ones free.
	Spread Strategy = "spread" // Spread uses as many domains as it can, for members that should fail apart.
)

// Gang is a set of members that start together or not at all. A Gang given to
// a call belongs to the library until the job has left: do not change it.
type Gang struct {
	ID           JobID             `json:"id"`                    // ID names the job.
	Tenant       TenantID          `json:"tenant,omitempty"`      // Tenant is who is charged; empty is a tenant like any other.
	Queue        QueueID           `json:"queue,omitempty"`       // Queue is where it waits; empty is a queue like any other.
	Priority     Priority          `json:"priority,omitempty"`    // Priority orders it among others: higher first.
	Roles        []Role            `json:"roles"`                 // Roles are its members, in rank order; at least one.
	Required     Level             `json:"required,omitempty"`    // Required is the level of which one domain must hold the whole gang; empty means none.
	Preferred    Level             `json:"preferred,omitempty"`   // Preferred is the level of which one domain should hold the whole gang; empty means the finest that does.
	Strategy     Strategy          `json:"strategy,omitempty"`    // Strategy chooses among places; zero is Pack.
	Walltime     time.Duration     `json:"walltime,omitempty"`    // Walltime is how long it is expected to run once started; 0 means unknown.
	Hold         time.Duration     `json:"hold,omitempty"`        // Hold is how long its room is kept while its members confirm; 0 means the scheduler's default.
	Labels       map[string]string `json:"labels,omitempty"`      // Labels are what other gangs' affinities look for.
	Constraints  Constraints       `json:"constraints,omitzero"`  // Constraints hold for every member.
	Capabilities Capabilities      `json:"capabilities,omitzero"` // Capabilities are what the job agrees to have done to it.
}

// Capabilities are what a job can bear. A policy never proposes an action
// whose flag is absent; the zero Capabilities can bear nothing.
type Capabilities struct {
	Preemptible  bool          `json:"preemptible,omitempty"`  // Preemptible jobs may be stopped and started again.
	Resizable    bool          `json:"resizable,omitempty"`    // Resizable jobs may run with any count between Min and Max.
	Shareable    bool          `json:"shareable,omitempty"`    // Shareable jobs may have other jobs on their devices.
	BatchMutable bool          `json:"batchMutable,omitempty"` // BatchMutable jobs may have their batch size changed.
	Save         time.Duration `json:"save,omitempty"`         // Save is how long a checkpoint takes; 0 means no time.
	Restore      time.Duration `json:"restore,omitempty"`      // Restore is how long a resume takes; 0 means no time.
	Grace        time.Duration `json:"grace,omitempty"`        // Grace is the warning it needs before it is stopped; 0 means none.
}

// MinMembers returns the sum of the roles' Min.
func (g *Gang) MinMembers() int {
	n := 0
	for i := range g.Roles {
		n += g.Roles[i].Min
	}
	return n
}

// MaxMembers returns the sum of the roles' Limit.
func (g *Gang) MaxMembers() int {
	n := 0
	for i := range g.Roles {
		n += g.Roles[i].Limit()
	}
	return n
}

// GPUs returns the devices that counts members of each role take, in MilliGPU.
// A nil counts stands for each role's Min.
func (g *Gang) GPUs(counts []int) MilliGPU {
	var sum MilliGPU
	for i := range g.Roles {
		r := &g.Roles[i]
		n := r.Min
		if counts != nil {
			n = counts[i]
		}
		sum = sum.Add(r.Demand.DeviceShare().Mul(int64(r.Demand.GPUs)).Mul(int64(n)))
	}
	return sum
}

// Clone returns a copy of g that shares no memory with it.
func (g *Gang) Clone() *Gang {
	c := *g
	c.Roles = slices.Clone(g.Roles)
	for i := range c.Roles {
		c.Roles[i].Demand.Classes = slices.Clone(c.Roles[i].Demand.Classes)
		c.Roles[i].Constraints = c.Roles[i].Constraints.Clone()
	}
	c.Labels = maps.Clone(g.Labels)
	c.Constraints = g.Constraints.Clone()
	return &c
}

// Validate reports every fault of g that can be seen without a cluster, joined.
// Whether its levels exist is for the tree to say.
func (g *Gang) Validate() error {
	var errs []error
	bad := func(field string, value any, reason string) {
		errs = append(errs, invalid("gang", field, fmt.Sprint(value), reason))
	}
	if err := g.ID.Validate(); err != nil {
		errs = append(errs, err)
	}
	if g.Strategy != Pack && g.Strategy != Spread {
		bad("Strategy", quote(string(g.Strategy)), `want "" or "spread"`)
	}
	checkDuration(&errs, "Walltime", g.Walltime)
	checkDuration(&errs, "Hold", g.Hold)
	checkDuration(&errs, "Capabilities.Save", g.Capabilities.Save)
	checkDuration(&errs, "Capabilities.Restore", g.Capabilities.Restore)
	checkDuration(&errs, "Capabilities.Grace", g.Capabilities.Grace)
	g.Constraints.validate(&errs, "Constraints")
	if n := len(g.Roles); n == 0 || n > MaxRoles {
		bad("Roles", n, "want 1 to "+strconv.Itoa(MaxRoles)+" roles")
		return errors.Join(errs...)
	}
	total := 0
	seen := make(map[RoleName]bool, len(g.Roles))
	for i := range g.Roles {
		r, at := &g.Roles[i], "Roles["+strconv.Itoa(i)+"]"
		if seen[r.Name] {
			errs = append(errs, &Error{Kind: ErrDuplicate, Op: "lockstep: gang", Field: at + ".Name", Value: quote(string(r.Name)), Reason: "named twice"})
		}
		seen[r.Name] = true
		r.validate(&errs, at)
		total = int(addSat(int64(total), int64(max(r.Limit(), 0))))
	}
	if total > MaxMembers {
		bad("Roles", total, "at most "+strconv.Itoa(MaxMembers)+" members together")
	}
	return errors.Join(errs...)
}

func (r *Role) validate(errs *[]error, at string) {
	bad := func(field string, value any, reason string) {
		*errs = append(*errs, invalid("gang", at+"."+field, fmt.Sprint(value), reason))
	}
	if r.Min < 1 || r.Min > MaxMembers {
		bad("Min", r.Min, "want 1 to "+strconv.Itoa(MaxMembers))
	}
	if r.Max != 0 && (r.Max < r.Min || r.Max > MaxMembers) {
		bad("Max", r.Max, "want 0, or Min to "+strconv.Itoa(MaxMembers))
	}
	if size := r.Inner.Size; size < 0 || size > MaxMembers {
		bad("Inner.Size", size, "want 0 to "+strconv.Itoa(MaxMembers))
	} else if size > 1 && (r.Min%size != 0 || r.Limit()%size != 0) {
		bad("Inner.Size", size, "Min and Max must be whole groups")
	}
	r.Demand.validate(errs, at+".Demand")
	r.Constraints.validate(errs, at+".Constraints")
}

func (d *Demand) validate(errs *[]error, at string) {
	bad := func(field string, value any, reason string) {
		*errs = append(*errs, invalid("gang", at+"."+field, fmt.Sprint(value), reason))
	}
	if d.GPUs < 0 || d.GPUs > MaxDevicesPerNode {
		bad("GPUs", d.GPUs, "want 0 to "+strconv.Itoa(MaxDevicesPerNode))
	}
	if d.Share < 0 || d.Share > WholeGPU {
		bad("Share", d.Share, "want 0 to 1")
	}
	if d.GPUMemory < 0 {
		bad("GPUMemory", d.GPUMemory, "must not be negative")
	}
	if d.CPU < 0 || d.CPU > maxAmount {
		bad("CPU", d.CPU, "must not be negative or absurd")
	}
	if d.Memory < 0 || d.Memory > maxAmount {
		bad("Memory", d.Memory, "must not be negative or absurd")
	}
	if d.RDMA < 0 || d.RDMA > maxEndpoints {
		bad("RDMA", d.RDMA, "want 0 to "+strconv.Itoa(maxEndpoints))
	}
	if d.GPUs == 0 && (d.Share != 0 || d.GPUMemory != 0 || len(d.Classes) != 0) {
		bad("GPUs", d.GPUs, "Share, GPUMemory and Classes need a device")
	}
	seen := make(map[DeviceClass]bool, len(d.Classes))
	for i, c := range d.Classes {
		if c == "" || seen[c] {
			bad("Classes["+strconv.Itoa(i)+"]", quote(string(c)), "must be named, once")
		}
		seen[c] = true
	}
}

const (
	maxAmount    = 1 << 42 // of one member, so that MaxMembers of them stay inside int64
	maxEndpoints = 1 << 10
)

func checkDuration(errs *[]error, field string, d time.Duration) {
	if d < 0 || d > MaxWalltime {
		*errs = append(*errs, invalid("gang", field, d.String(), "want 0 to "+MaxWalltime.String()))
	}
}
