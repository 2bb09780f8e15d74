// Package nvml reads the inside of this host from NVIDIA's management library.
//
// # Model
//
// [Read] asks the driver's library once and returns a [Host], a plain value that
// says what it answered: the GPUs, their NVLinks and what is at the other end,
// access between them, what they have in common over PCIe, NUMA nodes and CPUs near
// them, their place in an NVLink fabric, and MIG. It can be kept as JSON and used
// elsewhere. A Host makes the shape and the node of a topology. Two GPUs are joined
//
//   - by NVLink, where links that are up lead from each to the other, with the
//     lesser count of both sides, or where both have links to switches, with the
//     lesser of their counts; unless the library says that there is no access over
//     NVLink, as where the fabric manager does not run or MIG is on;
//   - else as PCIe says: PIX for one board or one switch, PXB for several, PHB for
//     one host bridge, NODE for one NUMA node, SYS beyond.
//
// # Usage
//
//	host, err := nvml.Read(nvml.Config{})
//	node, err := host.Node("host-1", []string{"rack-1"})
//	tree, err := topology.New([]topology.Level{{Name: "rack"}}, []topology.Node{node})
//
// # Order of decision
//
// Devices are in the library's order, which is that of PCI addresses.
//
// # Errors
//
// Each is a [*lockstep.Error]; Field names the GPU and the function that was called.
// Read returns [ErrUnavailable] where there is no library, one too old to be of use,
// no driver, or no support for it in this build; [ErrLost] where a GPU does not
// answer; [ErrFailed] where a call fails or answers what cannot be; and ErrConflict
// where the process has loaded another library. What a library or device does not
// support is no error: it is unknown, and Host.Unknown lists it. No lack of anything
// ends the process. [Host.Config] and [Host.Node] return ErrInvalid
// for a Host that Read would not return.
//
// # Concurrency
//
// Read is safe for concurrent use; Hosts are plain values.
//
// # Cost
//
// For n GPUs some 30 calls a GPU and 5 a pair, each microseconds to milliseconds.
//
// # Limits
//
// At most 64 GPUs. Built with cgo on Linux; elsewhere Read returns ErrUnavailable. A
// program that has it must not be linked statically or with -z now, and uses one
// library for its life. The library knows no network cards: shapes are without, and those of
// nvidia-smi or NCCL name them (packages smi and nccl). MIG instances are told but
// are no devices of the shape. Nothing of this was seen on hardware; package
// internal/nvml says what it was run against, and what that leaves open.
package nvml
