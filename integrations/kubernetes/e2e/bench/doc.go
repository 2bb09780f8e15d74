// Command bench compares schedulers on one real control plane, in one run: how fast
// each binds a backlog of gangs, and what it takes.
//
//	KUBE_ASSETS=… go run ./e2e/bench
//
// The backlog exists before a scheduler is started, and the clock runs from the start
// of its process to the last pod that is bound, as a watch tells it. Some gangs lack a
// pod; none of theirs may be bound. The schedulers take turns, and what is printed is
// the median of the rounds.
//
//	floor       a process that lists, binds, and decides nothing: what the API server allows
//	native      kube-scheduler with its own gangs, from $KUBE_ASSETS/kube-scheduler
//	standalone  lockstep-scheduler
//	plugin      kube-scheduler with the plugin compiled in, where -plugin names it
//
// All read and write the same objects on the same two processes, with as many
// bindings under way as they like, and without client-side limits.
package main
