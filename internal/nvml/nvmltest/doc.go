// Package nvmltest compiles a library that answers as NVML does, for the tests of
// packages that read it.
//
// # Model
//
// The library's source is internal/nvml/testdata/fake.c; the variable FAKE_NVML of
// the environment names what it says, and flags of the compiler what it lacks. A
// process can load one library only, so a test runs itself anew for each, by
// [Child].
//
// # Usage
//
//	func TestMain(m *testing.M) { nvmltest.Main(m) }
//
//	if nvmltest.Child(t, nvmltest.Build(t, "-DOLD"), "nvswitch8") {
//		return // the child has done it
//	}
//	lib, err := nvml.Open(nvml.Config{Library: nvmltest.Library()})
//
// # Errors
//
// Where there is no compiler of C, or this build has no cgo, tests are skipped and
// say so.
package nvmltest
