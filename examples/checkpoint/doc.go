// Command checkpoint saves, ends and resumes a real job of four processes, all ranks or none.
//
// Usage:
//
//	go run ./checkpoint            # save, go on, save again, preempt (which saves once more), verify, resume, compare with a run that nobody stopped
//	go run ./checkpoint -fault     # a rank dies in the middle of a checkpoint: the epoch is void, the one before is whole
//	go run ./checkpoint -keep DIR  # leave the store in DIR; a later run goes on in it
//
// The job stands in for training: each rank has parameters that all ranks hold alike and a shard of its own, and every
// step sums a number over all ranks, so that a rank that stops alone holds up the others. The ranks call
// cooperative.Hook before each step. A leader (checkpoint.Local) stops all of them before the same step, has each save,
// commits the epoch in an image store, which keeps what is the same once, and lets them go on or leave. The job's
// processes are ended by checkpoint/process within their grace, and a contract says beforehand whether that is long
// enough (checkpoint/interval).
//
// No process outlives the program, however that ends; if it is killed outright its temporary folder stays.
//
// # Limits
//
// Ranks save through a file that is then put into the store, as a framework's own save does. Linux only. Where a GPU
// and the CUDA driver are present, a line says what checkpoint/cuda can do there; the job itself uses no GPU, and its
// pause is that of a process that cooperates.
package main
