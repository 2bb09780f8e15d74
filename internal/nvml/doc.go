// Package nvml asks NVIDIA's management library about the GPUs of this host, for
// topology/nvml and detect/nvml. It alone imports go-nvml.
//
// # Model
//
// A [Library] is the shared library, loaded and initialised, a [Device] one of its
// GPUs. Each method makes the calls that its comment names, and first looks up
// whether the library has them: calling one that it lacks would end the process,
// since go-nvml leaves its symbols to the dynamic linker. What a call cannot answer
// comes back as an error of one of four kinds.
//
// # Usage
//
//	lib, err := nvml.Open(nvml.Config{})
//	defer lib.Close()
//	n, err := lib.Count()
//	dev, err := lib.Device(0)
//	uuid, err := dev.UUID()
//
// # Order of decision
//
// Devices go by the library's own numbers, which are in the order of PCI addresses.
//
// # Errors
//
// Each error is a [*lockstep.Error]; its Field is the function that was called, its
// Value the code that came back. The kinds are [ErrUnavailable], where there is no
// library, driver or support in this build, or the library lacks what it has had
// for ten years; [ErrUnsupported], where this library or device does not do it;
// [ErrLost], where the device does not answer; and [ErrFailed]. Open returns
// ErrConflict for a second library beside one that the process has loaded, even one
// that was closed: the linker keeps calling the first.
//
// # Concurrency
//
// Safe for concurrent use, as the library is. Close is to come after all other
// calls have returned.
//
// # Cost
//
// A call into the library takes microseconds to milliseconds. Lookups are kept.
//
// # Limits
//
// It is built with cgo on Linux; elsewhere all calls return ErrUnavailable. A
// program that has it must not be linked statically or with -z now, since the
// linker is to find the library's symbols at their first call. Not seen on hardware: it was run against a library
// made for its tests (testdata/fake.c), built with NVIDIA's header, and against
// go-nvml's mock servers. In particular untried are the order of what a driver
// answers while a device resets, fabric states while the fabric manager starts,
// MIG instances that come and go between two calls, links of confidential VMs,
// and the values of nvmlDeviceGetNvLinkRemoteDeviceType on anything.
package nvml
