// Command imagestore measures package checkpoint/imagestore beside tar and zstd,
// restic, borg and casync on the same images of ranks.
//
//	go -C benchmarks run ./imagestore            # three minutes on two busy cores
//	go -C benchmarks run ./imagestore -quick     # a small image and no peers
//	go -C benchmarks run ./imagestore -check     # status 1 if a target is missed
//
// # Input
//
// Four ranks, each with its share of -mib: replicated bfloat16 parameters (6 parts
// of 10; the last rank has them 4 KiB further on), its own float32 optimizer state
// (3 parts) and zeros (1 part). Numbers are normal with deviation 0.02. In the
// second epoch one run of 64 KiB in twenty is new, in parameters and optimizer
// state alike.
//
// # What is measured
//
// Every tool runs as a process of its own, ours too, with the same cores
// (taskset, and GOMAXPROCS for programs in Go), from warm files in the same folder
// (/dev/shm where there is room). Save and restore are wall time; CPU is user and
// system time of the process and its children; memory is the largest resident set
// of one of them. Figures are medians over the rounds; per core means divided by
// the cores that the tool may use. Stored is what the folder holds after both
// epochs.
//
// restic and borg encrypt, and nothing of that is turned off; so ours runs with
// AES-256-GCM as its Sealer as well. restic and borg also take a fixed time, of the
// order of half a second, to derive a key on each run.
//
// # Targets
//
// For each peer at each of its levels there is one named level of ours that saves
// both epochs in no more wall time and no more processor time, and stores no more
// bytes.
package main
