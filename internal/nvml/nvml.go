package nvml

import (
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// The kinds of error.
var (
	// ErrUnavailable: there is no usable library, or no driver behind it.
	ErrUnavailable = errors.New("NVML is not available")

	// ErrUnsupported: this version of the library, or this device, does not do it.
	ErrUnsupported = errors.New("not supported")

	// ErrLost: the device does not answer until it is reset, if then.
	ErrLost = errors.New("device lost")

	// ErrFailed: a call failed.
	ErrFailed = errors.New("call failed")
)

// Config says which library to load. The zero Config is the driver's.
type Config struct {
	Library string // Library is a path, or a name that the dynamic linker finds; "" means libnvidia-ml.so.1.
}

// Version is what the driver and library call themselves.
type Version struct {
	Driver string // Driver is the kernel driver's, such as "570.86.15".
	NVML   string // NVML is the library's.
	CUDA   int    // CUDA is the greatest that the driver serves, 1000 times major plus 10 times minor; 0 where it does not say.
}

// PCIe is a device's slot at its best.
type PCIe struct {
	Generation int // Generation is 1 to 7 so far.
	Lanes      int // Lanes is 1 to 32.
}

// Remote says what is at the other end of an NVLink.
type Remote int

// The remotes, numbered as the library does.
const (
	RemoteGPU     Remote = 0   // RemoteGPU: a GPU of this host.
	RemoteCPU     Remote = 1   // RemoteCPU: a processor with NVLink.
	RemoteSwitch  Remote = 2   // RemoteSwitch: an NVSwitch.
	RemoteUnknown Remote = 255 // RemoteUnknown: the library does not say.
)

// NVLink is one NVLink of a device.
type NVLink struct {
	Number int                     // Number is from 0.
	Up     bool                    // Up says that it carries data.
	Remote Remote                  // Remote says what is at the other end of one that is up.
	Bus    string                  // Bus is the PCI address of what is there, "" where the library does not say.
	Rate   lockstep.BytesPerSecond // Rate is of one direction, 0 where the library does not say.
}

// Ancestor is how far up two devices have something in common, numbered as the
// library does.
type Ancestor int

// The ancestors, nearest first.
const (
	AncestorInternal   Ancestor = 0  // AncestorInternal: one board.
	AncestorSingle     Ancestor = 10 // AncestorSingle: one PCIe switch.
	AncestorMultiple   Ancestor = 20 // AncestorMultiple: several PCIe switches, no host bridge.
	AncestorHostBridge Ancestor = 30 // AncestorHostBridge: one host bridge.
	AncestorNode       Ancestor = 40 // AncestorNode: one NUMA node.
	AncestorSystem     Ancestor = 50 // AncestorSystem: only the host.
)

// Access is a kind of access of one device to another, numbered as the library
// does.
type Access int

// The kinds of access.
const (
	AccessRead    Access = 0 // AccessRead: reads.
	AccessWrite   Access = 1 // AccessWrite: writes.
	AccessNVLink  Access = 2 // AccessNVLink: over NVLink.
	AccessAtomics Access = 3 // AccessAtomics: atomic operations.
)

// FabricState is how far a device has got to join its NVLink fabric.
type FabricState int

// The states, numbered as the library does.
const (
	FabricNone       FabricState = 0 // FabricNone: the device is in no fabric.
	FabricNotStarted FabricState = 1 // FabricNotStarted: it has not begun to join.
	FabricInProgress FabricState = 2 // FabricInProgress: it is joining.
	FabricDone       FabricState = 3 // FabricDone: it is done, with or without error.
)

// Fabric is a device's place in an NVLink fabric that may join hosts.
type Fabric struct {
	State   FabricState // State says how far it has got; the rest holds only where it is done.
	Failed  string      // Failed is the library's word for why it could not join, "" where it could.
	Cluster [16]byte    // Cluster is the UUID of the NVLink domain; zeros mean one that does not leave the host.
	Clique  uint32      // Clique is the part of the domain in which devices reach each other.
	Health  uint32      // Health is the library's mask, 0 where it gives none.
}

// MIG is how a device is cut up.
type MIG struct {
	On        bool       // On says that it is cut up now.
	Pending   bool       // Pending says whether it will be after the next reset.
	Instances []Instance // Instances are those there are, by the library's numbers; nil unless On.
}

// Instance is a MIG device.
type Instance struct {
	UUID    string         // UUID is its own name, "MIG-…".
	GPU     int            // GPU is the number of its GPU instance.
	Compute int            // Compute is the number of its compute instance in it.
	Memory  lockstep.Bytes // Memory is what it has.
	Slices  int            // Slices is how many compute slices it has.
	Start   int            // Start is the first memory slice of its GPU instance, -1 where the library does not say.
	Size    int            // Size is how many memory slices its GPU instance has, 0 where the library does not say.
}

// ECC is a device's count of memory errors.
type ECC struct {
	On          bool   // On says that errors are corrected and counted; else all counts are 0.
	Corrected   uint64 // Corrected is how many were since the driver was loaded.
	Uncorrected uint64 // Uncorrected is how many were not since then.
	Lifetime    uint64 // Lifetime is how many were not in the device's life.
}

// Rows is a device's count of memory rows that others stand in for.
type Rows struct {
	Corrected   int  // Corrected is how many were replaced after errors that were corrected.
	Uncorrected int  // Uncorrected is how many were replaced after errors that were not.
	Pending     bool // Pending says that more will be at the next reset.
	Failed      bool // Failed says that one could not be.
}

// Clocks is how fast a device runs.
type Clocks struct {
	SM        int    // SM is now, in MHz.
	MaxSM     int    // MaxSM is the most, in MHz.
	Memory    int    // Memory is now, in MHz.
	MaxMemory int    // MaxMemory is the most, in MHz.
	Reasons   uint64 // Reasons is the library's mask of what holds the clocks down, NVML_CLOCKS_EVENT_REASON_….
}

// EventKind is a kind of event, a bit as the library has it.
type EventKind uint64

// The kinds of events.
const (
	EventSingleBit EventKind = 1 // EventSingleBit: a memory error was corrected.
	EventDoubleBit EventKind = 2 // EventDoubleBit: a memory error was not.
	EventXID       EventKind = 8 // EventXID: the driver reported an error.
)

// Event is something that happened to a device.
type Event struct {
	Device int       // Device is its number, -1 where it is none of those asked about.
	Kind   EventKind // Kind says what happened.
	Data   uint64    // Data is the number of the XID of an EventXID.
	GPU    int       // GPU is the number of the GPU instance that it happened to, -1 for none.
}

// longestWait is the longest that the library counts, in milliseconds.
const longestWait = time.Duration(1<<32-1) * time.Millisecond

// Code is what a function of the library returns.
type Code int

// codes are the library's words. The table is immutable.
var codes = [...]string{
	"SUCCESS", "ERROR_UNINITIALIZED", "ERROR_INVALID_ARGUMENT", "ERROR_NOT_SUPPORTED", "ERROR_NO_PERMISSION",
	"ERROR_ALREADY_INITIALIZED", "ERROR_NOT_FOUND", "ERROR_INSUFFICIENT_SIZE", "ERROR_INSUFFICIENT_POWER",
	"ERROR_DRIVER_NOT_LOADED", "ERROR_TIMEOUT", "ERROR_IRQ_ISSUE", "ERROR_LIBRARY_NOT_FOUND",
	"ERROR_FUNCTION_NOT_FOUND", "ERROR_CORRUPTED_INFOROM", "ERROR_GPU_IS_LOST", "ERROR_RESET_REQUIRED",
	"ERROR_OPERATING_SYSTEM", "ERROR_LIB_RM_VERSION_MISMATCH", "ERROR_IN_USE", "ERROR_MEMORY", "ERROR_NO_DATA",
	"ERROR_VGPU_ECC_NOT_SUPPORTED", "ERROR_INSUFFICIENT_RESOURCES", "ERROR_FREQ_NOT_SUPPORTED",
	"ERROR_ARGUMENT_VERSION_MISMATCH", "ERROR_DEPRECATED", "ERROR_NOT_READY", "ERROR_GPU_NOT_FOUND",
	"ERROR_INVALID_STATE", "ERROR_RESET_TYPE_NOT_SUPPORTED",
}

// The codes that decide something.
const (
	success          Code = 0
	uninitialized    Code = 1
	invalidArgument  Code = 2
	notSupported     Code = 3
	notFound         Code = 6
	driverNotLoaded  Code = 9
	timeout          Code = 10
	libraryNotFound  Code = 12
	functionNotFound Code = 13
	gpuIsLost        Code = 15
	resetRequired    Code = 16
	libRMMismatch    Code = 18
	argumentMismatch Code = 25
	deprecated       Code = 26
)

// String returns the library's word, "NVML_ERROR_UNKNOWN" and the number for others.
func (c Code) String() string {
	if c >= 0 && int(c) < len(codes) {
		return "NVML_" + codes[c]
	}
	return "NVML_ERROR_UNKNOWN " + strconv.Itoa(int(c))
}

// kind returns the kind of error that a code other than success is.
func (c Code) kind() error {
	switch c {
	case notSupported, functionNotFound, argumentMismatch, deprecated:
		return ErrUnsupported
	case uninitialized, driverNotLoaded, libraryNotFound, libRMMismatch:
		return ErrUnavailable
	case gpuIsLost, resetRequired:
		return ErrLost
	}
	return ErrFailed
}

// failure returns the error for a code that a function returned.
func failure(function string, c Code) error {
	if c == success {
		return nil
	}
	return &lockstep.Error{Kind: c.kind(), Op: "nvml: call", Field: function, Value: c.String(), Reason: c.kind().Error()}
}

// unavailable returns the error for a library that cannot be used.
func unavailable(field, value, reason string) error {
	return &lockstep.Error{Kind: ErrUnavailable, Op: "nvml: open", Field: field, Value: value, Reason: reason}
}
