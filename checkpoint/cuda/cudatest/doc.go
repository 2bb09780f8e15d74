// Package cudatest compiles a library that answers as the checkpoint functions of
// libcuda.so.1 are documented to, and processes for it to work on, for the tests of
// packages that pause CUDA jobs.
//
// # Model
//
// A [Fake] is a folder with its own copy of the library, of a program that takes
// the options of cuda-checkpoint, and of a state file that both map, in every
// process that loads them. Targets are real child processes. Faults are planned by
// the number of the call.
//
// # Usage
//
//	f := cudatest.New(t)
//	target := f.Start(t)
//	f.Plan(cudatest.Fault{At: 1, Kind: cudatest.Code, Code: 999})
//	d, err := cuda.New(cuda.Config{Library: f.Library()})
//
// # Errors
//
// Where there is no compiler of C, tests are skipped and say so.
//
// # Concurrency
//
// The library locks; so a Fake may be used while calls run.
//
// # Limits
//
// It is what the functions are documented to do, with what users report of them; it
// has no devices, and drains nothing. The locks of a job are granted once all of
// its ranks ask, which is how collectives behave; real ranks may drain sooner.
package cudatest
