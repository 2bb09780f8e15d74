package checkpoint

import (
	"context"
	"io"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Target is one process whose GPU state is to be paused, saved or moved. It is
// an identity, not only a number: a driver refuses a PID that another process
// has taken over since.
type Target struct {
	PID   int            `json:"pid"`            // PID is the process, as the driver's own PID namespace numbers it; a thread-group leader.
	Start uint64         `json:"start"`          // Start is when it started, in clock ticks since boot: field 22 of /proc/PID/stat.
	Job   lockstep.JobID `json:"job,omitempty"`  // Job is whose process it is; for reports only.
	Rank  int            `json:"rank,omitempty"` // Rank is its rank in the job, from 0; for reports only.
}

// Validate says what is wrong with t, or nil. PID 1 is what a container lives by,
// and a target without a start time may be anybody.
func (t Target) Validate() error {
	switch {
	case t.PID <= 1:
		return fault(lockstep.ErrInvalid, "target", "PID", strconv.Itoa(t.PID), "want more than 1")
	case t.Start == 0:
		return fault(lockstep.ErrInvalid, "target", "Start", "0", "want field 22 of /proc/PID/stat")
	case t.Rank < 0:
		return fault(lockstep.ErrInvalid, "target", "Rank", strconv.Itoa(t.Rank), "want 0 or more")
	}
	return nil
}

// State is where a target is. Numbers that a driver does not know become
// UnknownState, never a state of this list.
type State string

// The states of a target. Running is the only one in which the job makes
// progress.
const (
	Running       State = "running"       // Running: the target uses its devices freely.
	Locked        State = "locked"        // Locked: submitted work has drained, new calls block, memory is still on the device.
	Checkpointed  State = "checkpointed"  // Checkpointed: the device state is in host memory, the devices are free.
	Failed        State = "failed"        // Failed: the driver gave up; only killing the target helps.
	Checkpointing State = "checkpointing" // Checkpointing: between Locked and Checkpointed.
	Restoring     State = "restoring"     // Restoring: between Checkpointed and Locked.
	Gone          State = "gone"          // Gone: the process is not there any more, or another has its PID.
)

// UnknownState is the state of a number that a driver gave and nobody knows. A
// target in it is left alone and reported.
func UnknownState(n int) State { return State("unknown(" + strconv.Itoa(n) + ")") }

// Known reports whether s is one of the states declared here.
func (s State) Known() bool {
	switch s {
	case Running, Locked, Checkpointed, Failed, Checkpointing, Restoring, Gone:
		return true
	}
	return false
}

// Ability is something that a driver may be able to do.
type Ability string

// The abilities.
const (
	CanLock    Ability = "lock"    // CanLock: hold a target where it is (Lock, Unlock).
	CanSuspend Ability = "suspend" // CanSuspend: take its state off the devices and put it back (Suspend, Resume).
	CanRemap   Ability = "remap"   // CanRemap: put it back on other devices.
	CanImage   Ability = "image"   // CanImage: write the target to an image and start it from there.
	CanTree    Ability = "tree"    // CanTree: treat a process and its children as one target.
	CanIPC     Ability = "ipc"     // CanIPC: targets that share device memory by CUDA IPC inside one job.
)

// Unsupported is something that a driver or a target cannot do, and why.
type Unsupported struct {
	What   Ability         `json:"what"`             // What cannot be done.
	Reason lockstep.Reason `json:"reason"`           // Reason is the kind of obstacle, for branching.
	Detail string          `json:"detail,omitempty"` // Detail is one line for people.
}

// Caps is what a driver can do here, as it found by asking, and what it cannot.
type Caps struct {
	Driver    string        `json:"driver"`              // Driver names the driver, such as "cuda".
	Version   string        `json:"version,omitempty"`   // Version is that of what it drives, such as "13.0" for the CUDA driver API.
	Abilities []Ability     `json:"abilities,omitempty"` // Abilities is what can be done, sorted.
	Limits    []Unsupported `json:"limits,omitempty"`    // Limits is what cannot, sorted by What, then Reason.
}

// Can reports whether a is among the abilities.
func (c *Caps) Can(a Ability) bool {
	for _, b := range c.Abilities {
		if a == b {
			return true
		}
	}
	return false
}

// LockOptions say how long a lock may take.
type LockOptions struct {
	Timeout time.Duration // Timeout is how long submitted work may take to drain; positive. A driver that gives up leaves the target Running.
}

// DevicePair says which device takes over from which.
type DevicePair struct {
	Old lockstep.DeviceID `json:"old"` // Old is the device that the target was suspended from.
	New lockstep.DeviceID `json:"new"` // New is the device to resume it on.
}

// ResumeOptions say where a target resumes.
type ResumeOptions struct {
	Map []DevicePair // Map covers every device of the target, each new one once; nil means where it was.
}

// Moved is what a Suspend or Resume did.
type Moved struct {
	Bytes lockstep.Bytes // Bytes is the device state that was moved; 0 if the driver does not tell.
	Took  time.Duration  // Took is how long it took.
}

// Driver pauses one target at a time and gives its devices back. Calls for
// different targets may run at the same time. Each call ends when ctx does; a
// call that cannot be stopped goes on in the background, and until it has ended
// every further call for that target but State is ErrInFlight.
//
// An error of a call that changes something is a *DriverError that carries the
// state read back afterwards. The calls are idempotent: what is already so is
// success. checkpointtest.TestDriver checks an implementation.
type Driver interface {
	// Probe says what can be done here. It changes nothing.
	Probe(ctx context.Context) (Caps, error)

	// State reads where the target is; Gone is a state, not an error.
	State(ctx context.Context, t Target) (State, error)

	// Lock takes a target from Running to Locked. ErrTimeout leaves it Running.
	Lock(ctx context.Context, t Target, o LockOptions) error

	// Suspend takes it from Locked to Checkpointed.
	Suspend(ctx context.Context, t Target) (Moved, error)

	// Resume takes it from Checkpointed to Locked.
	Resume(ctx context.Context, t Target, o ResumeOptions) (Moved, error)

	// Unlock takes it from Locked to Running.
	Unlock(ctx context.Context, t Target) error
}

// Inspector is a Driver that can tell the limits of one target before it is
// touched: MIG, managed memory, IPC, missing rights.
type Inspector interface {
	// Inspect says what cannot be done with the target, sorted by What, then
	// Reason; nothing means that no obstacle is known. It changes nothing.
	Inspect(ctx context.Context, t Target) ([]Unsupported, error)
}

// StreamHint says what a stream of an image is like, so that a store can cut and
// code it well. The zero hint is always right.
type StreamHint struct {
	Region lockstep.Bytes // Region is the alignment at which contents repeat, such as 2 MiB for device memory; 0 if unknown.
	Shifts bool           // Shifts says that contents may move by any number of bytes between saves.
	Width  int            // Width is the size in bytes of the numbers inside: 2 for bf16, 4 for float32; 0 if unknown.
}

// ImageWriter takes the named streams of one rank's image. Streams may be
// written at the same time.
type ImageWriter interface {
	// Create begins a stream. Its name is unique in the image, at most 255
	// bytes, without path separators. Close ends it; a stream that was not
	// closed is not part of the image.
	Create(name string, hint StreamHint) (io.WriteCloser, error)
}

// ImageReader gives the streams of one rank's image back.
type ImageReader interface {
	// Streams returns the names, sorted.
	Streams() []string

	// Open begins to read a stream. What is read is verified; a fault is
	// ErrCorrupt.
	Open(name string) (io.ReadCloser, error)
}

// Imager writes a suspended or locked target to an image and starts one from it.
type Imager interface {
	// Dump writes the target. It leaves the target in the state it found.
	Dump(ctx context.Context, t Target, w ImageWriter) error

	// Load starts a target from an image and returns its new identity, in the
	// state in which it was dumped.
	Load(ctx context.Context, r ImageReader) (Target, error)
}
