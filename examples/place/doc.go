// Command place shows what Lockstep decides: where gangs go, why the others
// wait, and how a real trace of jobs fares.
//
// # Gangs on a cluster
//
//	go -C examples run ./place                    a built-in cluster with its gangs
//	go -C examples run ./place -f FILE            those of a JSON file; see place/demo.json
//	go -C examples run ./place -json              the same as JSON: plans and explanations
//	go -C examples run ./place -env pretrain      also what a launcher needs: environment and hostfile
//	go -C examples run ./place -nodes 8 -racks 2 -gang train=4x8@rack -gang eval=2x1
//
// Gangs are placed in the order given, each whole or not at all. The map has a
// line for each rack and a cell for each device: a letter is the gang that holds
// it, '.' is free, '-' is free on a node that takes no more members.
//
// # A trace of jobs
//
//	go -C examples run ./place -trace FILE -nodes 24 -gpus-per-node 8
//
// FILE is CSV, plain or gzip, with the columns job_id, tenant, submit_s,
// duration_s, gpus and state, in any order; others are ignored. Every job is
// submitted at its time to a gang.Admission over a placement.State, first come
// first served, with the backfill that -backfill names (easy, conservative or
// none, or the number of blocked jobs that have reservations; conservative gives
// every blocked job one, which takes long where hundreds wait), and ends its
// duration after it started. A job of more devices than a node has becomes
// members of one whole node each and one for the rest; one that the empty cluster
// could not hold is rejected. -walltime true tells the admission how long each
// job will run, -walltime none does not. -limit replays the first so many jobs only.
//
// It prints how long jobs waited, how full the cluster was over time, how much
// of the free room was scattered, and checks the run against books of its own
// that share nothing with the library: no device is held twice, each job holds
// exactly what it asked for, and the service given is the service asked for. The
// status is 1 when a check fails.
package main
