package lockstep

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Bounds that Validate holds inputs to, so that every sum and product made of
// them for one gang stays inside int64.
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
	GPUMemory Bytes         `json:"gpuMemory,omitempty"` // GPUMemory is how much memory each device must have, and with a Share how much of it the member takes; 0 means any, or none.
	Profile   Profile       `json:"profile,omitempty"`   // Profile is a MIG profile, of which the member gets one instance: GPUs is 1, and there is no Share; empty means no MIG.
	Classes   []DeviceClass `json:"classes,omitempty"`   // Classes are the device kinds that will do; none means any.
	CPU       MilliCPU      `json:"cpu,omitempty"`       // CPU is processor time, up to 10⁹ cores; 0 means none asked for.
	Memory    Bytes         `json:"memory,omitempty"`    // Memory is host memory, up to 1Pi and 4Ei for all members; 0 means none asked for.
	RDMA      int           `json:"rdma,omitempty"`      // RDMA is how many network endpoints, up to 1024; 0 means none asked for.
}

// Profile names a MIG profile, such as "1g.10gb" or "3g.40gb+me".
type Profile string

// Validate reports whether p is a usable name; the rule is that of JobID.
func (p Profile) Validate() error { return validateID("Profile", string(p)) }

// DeviceShare returns how much of each device d takes: Share, or all of it. A MIG
// instance counts as the sevenths of a device that the name of its profile begins
// with, rounded up: "3g.40gb" is 429m. (An A30 has quarters; of those it is less
// than the part.) Whatever the name of a profile begins with else is a device.
func (d Demand) DeviceShare() MilliGPU {
	switch {
	case d.Share != 0:
		return d.Share
	case len(d.Profile) > 1 && d.Profile[1] == 'g' && d.Profile[0] >= '1' && d.Profile[0] <= '7':
		return (WholeGPU*MilliGPU(d.Profile[0]-'0') + 6) / 7
	default:
		return WholeGPU
	}
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
	Name        RoleName    `json:"name,omitempty"`       // Name is unique within the gang; it may be empty only where the gang has one role.
	Min         int         `json:"min"`                  // Min is how many members must run together, at least 1.
	Max         int         `json:"max,omitempty"`        // Max is how many members may run; 0 means Min.
	Demand      Demand      `json:"demand"`               // Demand is what each member needs.
	Inner       Inner       `json:"inner,omitzero"`       // Inner keeps groups of members close; the zero Inner keeps none.
	Constraints Constraints `json:"constraints,omitzero"` // Constraints hold for the members of this role, beside the gang's.
	Spares      int         `json:"spares,omitempty"`     // Spares is how many more members' room is kept beside those that run, for when a node fails; 0 means none.
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

// The strategies. The zero Strategy is Pack; its text is "" or "pack".
const (
	Pack   Strategy = ""       // Pack fills the fullest domain and node that still fit, and leaves whole ones free.
	Spread Strategy = "spread" // Spread uses as many domains as it can, for members that should fail apart.
)

// UnmarshalText reads "pack" as Pack and keeps any other text as it is; Validate
// refuses what is no strategy.
func (s *Strategy) UnmarshalText(text []byte) error {
	if *s = Strategy(text); *s == "pack" {
		*s = Pack
	}
	return nil
}

// Gang is a set of members that start together or not at all. A Gang given to
// a call belongs to the library until the job has left: do not change it. In
// JSON amounts are texts ("80Gi", "0.5") or numbers, durations are nanoseconds.
type Gang struct {
	ID           JobID             `json:"id"`                    // ID names the job.
	Tenant       TenantID          `json:"tenant,omitempty"`      // Tenant is who is charged; empty is a tenant like any other.
	Queue        QueueID           `json:"queue,omitempty"`       // Queue is where it waits; empty is a queue like any other.
	Priority     Priority          `json:"priority,omitempty"`    // Priority orders it among others: higher first.
	Roles        []Role            `json:"roles"`                 // Roles are its members, in rank order; at least one.
	Required     Level             `json:"required,omitempty"`    // Required is the level of which one domain must hold the whole gang; empty means none.
	Preferred    Level             `json:"preferred,omitempty"`   // Preferred is the level of which one domain should hold the whole gang; empty means the finest that does.
	Preemption   Preemption        `json:"preemption,omitempty"`  // Preemption says whom it may take room from; zero is PreemptLower.
	Canary       int               `json:"canary,omitempty"`      // Canary is how many members, the first in rank order, are tried first, before room is made for the whole gang; 0 means none.
	Strategy     Strategy          `json:"strategy,omitempty"`    // Strategy chooses among places; zero is Pack.
	Walltime     time.Duration     `json:"walltime,omitempty"`    // Walltime is how long it is expected to run once started, at most MaxWalltime; 0 means unknown.
	Hold         time.Duration     `json:"hold,omitempty"`        // Hold is how long its room is kept while its members confirm; 0 means the scheduler's default.
	Labels       map[string]string `json:"labels,omitempty"`      // Labels are what other gangs' affinities look for.
	Constraints  Constraints       `json:"constraints,omitzero"`  // Constraints hold for every member.
	Capabilities Capabilities      `json:"capabilities,omitzero"` // Capabilities are what the job agrees to have done to it.
}

// Preemption says whether a waiting gang may take the room of running ones.
type Preemption string

// The policies of preemption, as Kubernetes names them. The zero Preemption is
// PreemptLower.
const (
	PreemptLower Preemption = ""      // PreemptLower takes room from those of lower priority, and back from those that borrowed it, where there is no other.
	PreemptNever Preemption = "never" // PreemptNever waits for room, ahead of those of lower priority.
)

// Capabilities are what a job can bear. A policy never proposes an action
// whose flag is absent; the zero Capabilities can bear nothing. In JSON the
// durations are nanoseconds.
type Capabilities struct {
	Preemptible  bool          `json:"preemptible,omitempty"`  // Preemptible jobs may be stopped and started again.
	Resizable    bool          `json:"resizable,omitempty"`    // Resizable jobs may run with any count between Min and Max.
	Shareable    bool          `json:"shareable,omitempty"`    // Shareable jobs may have other jobs on their devices.
	BatchMutable bool          `json:"batchMutable,omitempty"` // BatchMutable jobs may have their batch size changed.
	Replaceable  bool          `json:"replaceable,omitempty"`  // Replaceable jobs go on while members whose node is lost are started anew elsewhere.
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
// A nil counts stands for each role's Min; else it has an entry for each role.
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

// Clone returns a copy of g that shares no memory with it; nil gives nil.
func (g *Gang) Clone() *Gang {
	if g == nil {
		return nil
	}
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

// Validate reports every fault of g that can be seen without a cluster, joined,
// each an *Error whose Field is a path such as "Roles[0].Min"; a name given twice
// is ErrDuplicate, any other fault ErrInvalid. It changes nothing. Names (all of
// ID, Tenant, Queue, role names, levels, device classes and label keys) keep the
// rule of JobID.Validate; label values hold no control characters. Whether levels
// exist is for the tree to say.
func (g *Gang) Validate() error {
	f := faults{op: "gang"}
	if g == nil {
		f.bad("Gang", "nil", "must be given")
		return f.err()
	}
	f.name("ID", string(g.ID))
	f.nameOrEmpty("Tenant", string(g.Tenant))
	f.nameOrEmpty("Queue", string(g.Queue))
	f.nameOrEmpty("Required", string(g.Required))
	f.nameOrEmpty("Preferred", string(g.Preferred))
	if g.Strategy != Pack && g.Strategy != Spread {
		f.bad("Strategy", errtext.Quote(string(g.Strategy)), `want "" or "spread"`)
	}
	if g.Preemption != PreemptLower && g.Preemption != PreemptNever {
		f.bad("Preemption", errtext.Quote(string(g.Preemption)), `want "" or "never"`)
	}
	if g.Canary < 0 || g.Canary > MaxMembers {
		f.bad("Canary", strconv.Itoa(g.Canary), "want 0 to "+strconv.Itoa(MaxMembers))
	}
	f.duration("Walltime", g.Walltime)
	f.duration("Hold", g.Hold)
	f.duration("Capabilities.Save", g.Capabilities.Save)
	f.duration("Capabilities.Restore", g.Capabilities.Restore)
	f.duration("Capabilities.Grace", g.Capabilities.Grace)
	f.labels("Labels", g.Labels)
	g.Constraints.validate(&f, "Constraints")
	g.validateRoles(&f)
	return f.err()
}

func (g *Gang) validateRoles(f *faults) {
	if n := len(g.Roles); n == 0 || n > MaxRoles {
		f.bad("Roles", strconv.Itoa(n), "want 1 to "+strconv.Itoa(MaxRoles)+" roles")
		return
	}
	// In 64 bits, since int may have 32 and each role may claim 1<<31-1 members.
	members, memory := int64(0), Bytes(0)
	seen := make(map[RoleName]bool, len(g.Roles))
	for i := range g.Roles {
		r, at := &g.Roles[i], "Roles["+strconv.Itoa(i)+"]"
		switch {
		case r.Name == "" && len(g.Roles) > 1:
			f.bad(at+".Name", errtext.Quote(""), "must be named, since the gang has several roles")
		case seen[r.Name]:
			f.duplicate(at+".Name", string(r.Name))
		}
		seen[r.Name] = true
		r.validate(f, at)
		n := int64(max(r.Limit(), 0)) + int64(max(r.Spares, 0))
		members = addSat(members, n)
		memory = memory.Add(max(r.Demand.Memory, 0).Mul(n))
	}
	if members > MaxMembers {
		f.bad("Roles", strconv.FormatInt(members, 10), "at most "+strconv.Itoa(MaxMembers)+" members together")
	}
	if memory > maxGangMemory {
		f.bad("Roles", memory.String(), "at most "+maxGangMemory.String()+" of memory together")
	}
}

func (r *Role) validate(f *faults, at string) {
	f.nameOrEmpty(at+".Name", string(r.Name))
	if r.Min < 1 || r.Min > MaxMembers {
		f.bad(at+".Min", strconv.Itoa(r.Min), "want 1 to "+strconv.Itoa(MaxMembers))
	}
	if r.Max != 0 && (r.Max < r.Min || r.Max > MaxMembers) {
		f.bad(at+".Max", strconv.Itoa(r.Max), "want 0, or Min to "+strconv.Itoa(MaxMembers))
	}
	if size := r.Inner.Size; size < 0 || size > MaxMembers {
		f.bad(at+".Inner.Size", strconv.Itoa(size), "want 0 to "+strconv.Itoa(MaxMembers))
	} else if size > 1 && (r.Min%size != 0 || r.Limit()%size != 0) {
		f.bad(at+".Inner.Size", strconv.Itoa(size), "Min and Max must be whole groups")
	}
	f.nameOrEmpty(at+".Inner.Level", string(r.Inner.Level))
	if r.Spares < 0 || r.Spares > MaxMembers {
		f.bad(at+".Spares", strconv.Itoa(r.Spares), "want 0 to "+strconv.Itoa(MaxMembers))
	}
	r.Demand.validate(f, at+".Demand")
	r.Constraints.validate(f, at+".Constraints")
}

func (d *Demand) validate(f *faults, at string) {
	if d.GPUs < 0 || d.GPUs > MaxDevicesPerNode {
		f.bad(at+".GPUs", strconv.Itoa(d.GPUs), "want 0 to "+strconv.Itoa(MaxDevicesPerNode))
	}
	if d.Share < 0 || d.Share > WholeGPU {
		f.bad(at+".Share", d.Share.String(), "want 0 to 1")
	}
	if d.GPUMemory < 0 {
		f.bad(at+".GPUMemory", d.GPUMemory.String(), "must not be negative")
	}
	if d.CPU < 0 || d.CPU > maxCPU {
		f.bad(at+".CPU", d.CPU.String(), "want 0 to "+maxCPU.String())
	}
	if d.Memory < 0 || d.Memory > maxMemory {
		f.bad(at+".Memory", d.Memory.String(), "want 0 to "+maxMemory.String())
	}
	if d.RDMA < 0 || d.RDMA > maxEndpoints {
		f.bad(at+".RDMA", strconv.Itoa(d.RDMA), "want 0 to "+strconv.Itoa(maxEndpoints))
	}
	if d.GPUs == 0 && (d.Share != 0 || d.GPUMemory != 0 || d.Profile != "" || len(d.Classes) != 0) {
		f.bad(at+".GPUs", "0", "Share, GPUMemory, Profile and Classes need a device")
	}
	f.nameOrEmpty(at+".Profile", string(d.Profile))
	if d.Profile != "" && (d.GPUs > 1 || d.Share != 0) {
		f.bad(at+".Profile", errtext.Quote(string(d.Profile)), "is for one device without Share")
	}
	seen := make(map[DeviceClass]bool, len(d.Classes))
	for i, c := range d.Classes {
		path := at + ".Classes[" + strconv.Itoa(i) + "]"
		f.name(path, string(c))
		if seen[c] {
			f.duplicate(path, string(c))
		}
		seen[c] = true
	}
}

// Bounds of one member, such that MaxMembers of them stay inside int64; memory
// is bounded for the gang as well, so that one member may have very much.
const (
	maxCPU        MilliCPU = 1_000_000_000 * WholeCPU
	maxMemory              = 1024 * TiB
	maxGangMemory          = 1 << 22 * TiB
	maxEndpoints           = 1 << 10
)
