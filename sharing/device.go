package sharing

import (
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Mode is how the tenants of a device that is not divided by MIG share it.
type Mode string

// The modes of sharing. The zero Mode is Exclusive.
const (
	Exclusive Mode = ""           // Exclusive: one tenant at a time, whatever it asks for.
	TimeSlice Mode = "time-slice" // TimeSlice: the driver lets processes take turns; it neither keeps shares nor holds anyone to its memory.
	MPS       Mode = "mps"        // MPS: the processes run at once, with shares and memory limits of their own; a fault of one may end all.
)

// Most tenants of one device by mode.
const (
	// mpsClients is from the NVIDIA Multi-Process Service documentation, section Client-Server Connection Limits: 48
	// client contexts a device on Volta and later, up to CUDA 13.0. It is 60 from CUDA 13.1 on, and 16 before Volta.
	mpsClients = 48
	// sliceTenants is a bound of this package; the driver has none.
	sliceTenants = 1024
)

// The reasons that only this package gives.
const (
	ReasonIsolation lockstep.Reason = "isolation" // ReasonIsolation: nothing on this device would hold the tenant to its hard cap.
	ReasonTenants   lockstep.Reason = "tenants"   // ReasonTenants: the device has as many tenants as it may have.
)

// Limits say what one device that is not divided by MIG can bear. All memory is
// counted in whole MiB: what a device has is rounded down, what is taken from it is
// rounded up, and nothing is ever a fraction of the device.
type Limits struct {
	Mode    Mode           `json:"mode,omitempty"`    // Mode is how it is shared; zero is Exclusive.
	Memory  lockstep.Bytes `json:"memory"`            // Memory is all it has, at least 1 MiB.
	Reserve lockstep.Bytes `json:"reserve,omitempty"` // Reserve is kept free for the driver and as headroom, less than Memory; 0 means nothing.
	Context lockstep.Bytes `json:"context,omitempty"` // Context is what each tenant takes beyond what it claims, such as its CUDA context; 0 means nothing.
	Tenants int            `json:"tenants,omitempty"` // Tenants is how many it may have, up to 1024; 0 means 48 with MPS, 1024 with TimeSlice. Exclusive is always 1.

	// Enforced says that the host holds processes to their hard caps by means
	// of its own, such as an allocator that it preloads or a cgroup. MPS does
	// so by itself; without either, a claim with a hard cap is refused.
	Enforced bool `json:"enforced,omitempty"`
}

// Claim is what one tenant asks of a device.
type Claim struct {
	Share   lockstep.MilliGPU `json:"share"`             // Share is how much of it, 1 to 1000.
	Memory  lockstep.Bytes    `json:"memory,omitempty"`  // Memory is how much it takes; 0 means none beyond its context.
	HardCap lockstep.Bytes    `json:"hardCap,omitempty"` // HardCap is the most it may ever hold, at least Memory, to which it must be held; 0 means that it is trusted with Memory.
}

// Device is what is left of a device: a plain value, to be kept wherever its owner
// keeps state. It compares with ==.
type Device struct {
	Share   lockstep.MilliGPU `json:"share"`   // Share is how much of it nobody has a share of.
	Memory  lockstep.Bytes    `json:"memory"`  // Memory is what nobody has claimed, in whole MiB.
	Tenants int32             `json:"tenants"` // Tenants is how many it has.
}

// Empty returns a device without tenants.
func (l Limits) Empty() Device {
	return Device{Share: lockstep.WholeGPU, Memory: max(0, down(l.Memory)-up(l.Reserve))}
}

// Admit says whether c may join those on d, and returns d with it. It is refused
// for the first of these that holds, and d comes back as it was: a claim that
// Validate refuses (lockstep.ReasonUnsupported), more memory than the empty device
// has (ReasonCapacity), a hard cap that nothing keeps (ReasonIsolation), as many
// tenants as there may be (ReasonTenants), too little share or memory left
// (ReasonBusy). It allocates nothing.
func (l Limits) Admit(d Device, c Claim) (after Device, v lockstep.Verdict) {
	v.Want = 1
	empty, memory := l.Empty(), l.takes(c)
	switch {
	case !c.sound():
		v.Reason = lockstep.ReasonUnsupported
		return d, v
	case memory > empty.Memory:
		return d, short(v, lockstep.ReasonCapacity, lockstep.ResourceGPUMemory, int64(memory), int64(empty.Memory))
	case c.HardCap != 0 && l.Mode == TimeSlice && !l.Enforced:
		v.Reason = ReasonIsolation
		return d, v
	case int(d.Tenants) >= l.most():
		return d, short(v, ReasonTenants, "", int64(d.Tenants)+1, int64(l.most()))
	case c.Share > d.Share:
		return d, short(v, lockstep.ReasonBusy, lockstep.ResourceGPU, int64(c.Share), int64(d.Share))
	case memory > d.Memory:
		return d, short(v, lockstep.ReasonBusy, lockstep.ResourceGPUMemory, int64(memory), int64(d.Memory))
	}
	v.Feasible, v.Fit = true, 1
	return Device{Share: d.Share - c.Share, Memory: d.Memory - memory, Tenants: d.Tenants + 1}, v
}

// Release returns d without one tenant that was admitted with c. Ok is false, and
// d comes back as it was, when d cannot hold such a tenant.
func (l Limits) Release(d Device, c Claim) (after Device, ok bool) {
	empty, memory := l.Empty(), l.takes(c)
	after = Device{Share: d.Share + c.Share, Memory: d.Memory + memory, Tenants: d.Tenants - 1}
	if !c.sound() || memory > empty.Memory || after.Share > empty.Share || after.Memory > empty.Memory ||
		after.Tenants < 0 || after.Tenants == 0 && after != empty {
		return d, false
	}
	return after, true
}

// Env returns the environment that holds a tenant with claim c to it, as
// "NAME=value", where it sees the device as number 0: with MPS the portion of
// threads, in whole percent rounded up, and the limit of memory, Memory or HardCap.
// It is empty in the other modes, in which nothing of the kind exists.
func (l Limits) Env(c Claim) []string {
	if l.Mode != MPS {
		return nil
	}
	env := []string{"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=" + strconv.FormatInt((int64(c.Share)+9)/10, 10)}
	if most := up(max(c.Memory, c.HardCap)); most > 0 {
		env = append(env, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0="+strconv.FormatInt(int64(most/lockstep.MiB), 10)+"M")
	}
	return env
}

// Validate reports every fault of l, joined, each an *lockstep.Error of kind
// ErrInvalid.
func (l Limits) Validate() error {
	f := faults{op: "sharing: limits"}
	switch l.Mode {
	case Exclusive, TimeSlice, MPS:
	default:
		f.bad("Mode", errtext.Quote(l.Mode), `want "", "time-slice" or "mps"`)
	}
	if l.Memory < lockstep.MiB || l.Memory > maxMemory {
		f.bad("Memory", l.Memory.String(), "want 1Mi to 1Pi")
	}
	if l.Reserve < 0 || up(l.Reserve) >= max(l.Memory, 1) {
		f.bad("Reserve", l.Reserve.String(), "want 0 to less than Memory")
	}
	if l.Context < 0 || l.Context > maxMemory {
		f.bad("Context", l.Context.String(), "want 0 to 1Pi")
	}
	if l.Tenants < 0 || l.Tenants > sliceTenants {
		f.bad("Tenants", strconv.Itoa(l.Tenants), "want 0 to 1024")
	}
	return f.err()
}

// Validate reports every fault of c, joined, each an *lockstep.Error of kind
// ErrInvalid.
func (c Claim) Validate() error {
	f := faults{op: "sharing: claim"}
	if c.Share < 1 || c.Share > lockstep.WholeGPU {
		f.bad("Share", c.Share.String(), "want 1 to 1000 thousandths")
	}
	if c.Memory < 0 {
		f.bad("Memory", c.Memory.String(), "want at least 0")
	}
	if c.HardCap < 0 || c.HardCap > 0 && c.HardCap < c.Memory {
		f.bad("HardCap", c.HardCap.String(), "want 0, or at least Memory")
	}
	return f.err()
}

// sound is Validate for a hot path.
func (c Claim) sound() bool {
	return c.Share >= 1 && c.Share <= lockstep.WholeGPU && c.Memory >= 0 && c.HardCap >= 0 && (c.HardCap == 0 || c.HardCap >= c.Memory)
}

// most returns how many tenants there may be.
func (l Limits) most() int {
	switch {
	case l.Mode != TimeSlice && l.Mode != MPS:
		return 1
	case l.Tenants > 0:
		return min(l.Tenants, sliceTenants)
	case l.Mode == MPS:
		return mpsClients
	}
	return sliceTenants
}

// takes returns the memory that a tenant with claim c takes.
func (l Limits) takes(c Claim) lockstep.Bytes {
	return up(max(c.Memory, c.HardCap)).Add(up(l.Context))
}

// short fills in what a refusal is about.
func short(v lockstep.Verdict, reason lockstep.Reason, resource lockstep.ResourceName, requested, available int64) lockstep.Verdict {
	v.Reason, v.Resource, v.Requested, v.Available = reason, resource, requested, available
	return v
}

// maxMemory is more than any device has, so that sums of a few thousand stay inside int64.
const maxMemory = lockstep.Bytes(1) << 50

// down and up round an amount of memory to whole MiB. Up is held at the last whole MiB of int64.
func down(b lockstep.Bytes) lockstep.Bytes { return b &^ (lockstep.MiB - 1) }

func up(b lockstep.Bytes) lockstep.Bytes { return down(b.Add(lockstep.MiB - 1)) }
