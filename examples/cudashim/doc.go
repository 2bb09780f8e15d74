// Command cudashim shows the execution log: a job runs under a shim that writes down what it asks of CUDA, the log is
// compacted, and another process makes the same objects again, with the job's memory at the same addresses.
//
// Usage:
//
//	go run ./cudashim          # or: go run ./cudashim -managed, for a job that cannot be restored
//
// It compiles c/shim.c, c/job.c and, as there may be no GPU, c/fakecuda.c in place of libcuda.so.1, with the
// system's C compiler; Linux only. The shim is preloaded (LD_PRELOAD). The replay calls the library by its real
// function names, and reserves and maps memory by the driver's virtual memory calls.
//
// # Limits
//
// The shim knows the dozen calls that job.c makes. A real one must cover every call that takes a handle, and
// cuGetProcAddress and the tables by which the runtime library and cuBLAS reach the driver; calls it does not know get
// a virtual handle, which the driver refuses. It does not stop the job: cuCheckpointProcessLock does that (package
// checkpoint/cuda), or a hook in the framework. What is in the memory is not in the log; an image store has that. Here
// the new process is the example itself, which only shows that everything is back. Not seen on a GPU.
package main
