// Package cudalog keeps what a job asked of CUDA, as far as a new process must ask for it again: the objects that it
// made and still needs, the memory that it holds, and the addresses at which that memory must come back.
//
// # Model
//
// A shim inside the job (examples/cudashim shows one) appends a [Record] for every call that makes, changes or
// destroys something, and gives the job a virtual [Handle] in place of the driver's own. A [Log] checks the records and
// holds them. In a new process [Log.Replay] makes the calls again and tells which real handle now stands behind a
// virtual one.
//
//   - Create makes an object of some Kind, out of others that it Uses. It goes when its Owner goes, as streams go with
//     their context. Memory is an object with an address, a size and a device.
//   - Set changes one attribute, Key, of an object, and may use others. A later Set of the same key replaces it.
//   - Destroy ends an object and all that it owns.
//   - Refuse notes something that cannot be made again, such as managed memory: [Log.Limits] lists these, and a log
//     with any must not be replayed.
//
// [Log.Compact] leaves out what no longer matters. Invariant: after a replay of the compacted log the living objects
// are those that a replay of the whole log would leave, each made from the same arguments, and whatever it used then
// had the same attributes. An object that is gone but was needed to make one that lives is made, and destroyed, again.
//
// [Reserve] plans how the memory comes back at its old addresses with the driver's virtual memory calls: which ranges
// to reserve and what to map into them. [Active] are the parts of memory that hold something, for a store that is to
// save no more than that.
//
// # Usage
//
//	l, whole, err := cudalog.Read(file) // as the shim wrote it; cut the file to whole bytes before appending
//	l.Compact()
//	plan, err := cudalog.Reserve(l.Memory(), cudalog.Granule, taken)
//	err = l.Replay(func(r *cudalog.Record, real func(cudalog.Handle) uint64) (uint64, error) { ... })
//
// # Form
//
// A log is the line "lockstep/cudalog 1\n" and records: a length and a CRC-32C, each four bytes with the least first,
// and so many bytes of the record: op and kind as a byte each; handle, owner, key, address, size and device as
// unsigned varints (encoding/binary); the number of handles used and these; the number of argument bytes and these.
// A record that the writer did not finish is cut off by Read.
//
// # Order of decision
//
// Records keep their order. Limits, Memory and a plan are sorted by address or handle.
//
// # Sources
//
// The idea, to pause CUDA under a lock around every call and to bring memory back at its addresses, is that of cudaw
// (2020), which kept no log of handles, knew addresses in kernel arguments from a table, and restored inside one
// process only. Recording the calls that make handles is from Eiling et al., "Cricket", CCPE 2022, section 3; the
// order of calls that bring memory back at an address is that of the CUDA driver API, "Virtual Memory Management". The
// granule of 2 MiB is what cuMemGetAllocationGranularity gives on devices of today; ask and pass your own.
//
// # Errors
//
// *lockstep.Error: ErrInvalid for a record that cannot be, ErrDuplicate for a new handle that is not greater than all
// before it, ErrUnknown for one that is not there, ErrConflict for memory that overlaps other memory, for a plan that
// cannot be, and for a replay of a log with limits. checkpoint.ErrCorrupt for bytes that are no log. Nothing changes
// then. Replay returns what the host's function returned, wrapped.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// Append is O(log objects) and O(owned) for a Destroy; Compact O(records); Reserve O(n log n). A record takes about
// 120 bytes and its arguments.
//
// # Limits
//
// The log says what to ask for again, not what is in the memory: that is the image's. One that was compacted, written
// and read again knows no handles but those of its records: the shim keeps its own count, and goes on with that. It does not know pointers
// inside memory or kernel arguments, which is why addresses must not change. Captured graphs, IPC handles, managed
// memory and what other libraries keep inside themselves (communicators, workspaces) are for the shim to Refuse. The
// driver's own process checkpoint (package checkpoint/cuda) needs none of this and is to be preferred where it is there.
package cudalog
