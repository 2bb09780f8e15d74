// Package standalone is a scheduler for Kubernetes on client-go: it binds the pods of
// its scheduler name, whole gangs at a time, as the composition of package scheduler
// decides.
//
// # Model
//
// What pods, PodGroups and nodes say is package view's to read. A gang is submitted
// when its least members exist; when it is given room, all its pods are bound at
// once, with their ranks in the annotations of the bindings, so that nothing is
// written about a pod but its binding. A gang that is stopped, for one that comes
// first, has its pods deleted (or evicted), with its grace; they come back when their
// controller makes them anew, and have their old place then.
//
// These hold, whatever others do and whenever this process is killed:
//
//   - A binding is ordered only where the node is there, open, and has the devices
//     beside those of all pods that are bound or about to be, whoever bound them.
//   - At rest no gang is bound in part: one that is, is gone on with as the plan in
//     the annotation of its bound pods says, or undone: its bound pods are stopped.
//   - Nothing is written once the lease is over by this machine's own clock, which
//     counts from before the last renewal was asked for.
//   - Whatever is wrong with a pod harms its own gang only, and is said in an event
//     and the condition PodScheduled of the pods.
//   - Nothing is kept but in the API server: a new process decides about what it
//     finds there. Devices of pods that others bound are taken.
//
// The loop is one goroutine, which turns whenever something changed: a burst of
// changes is one turn. Writes are made by Config.Parallel others, in order; reports by
// one more, Config.Reports a second, so that none delays a binding.
//
// # Usage
//
//	s, err := standalone.New(standalone.Config{Client: client})
//	err = s.Run(ctx)
//
// The program in lockstep-scheduler does this with flags. The client should speak
// protobuf and have no rate limit of its own.
//
// # Order of decision
//
// That of Config.Rule. Priority, the default: more priority first; of equals, who runs
// before who waits; then the gang whose first pod is oldest; then namespace and name.
// Where one that waits finds no room, those with less priority that may be preempted
// make room: as few as package gang finds. Other rules are those of package scheduler.
// With a tree of queues, Config.Quota or that of the ConfigMap, a gang waits that its
// queue has no quota for, and gangs of queues that borrowed what it is due make room.
//
// # Errors
//
// New returns every fault of its Config, each a *lockstep.Error with ErrInvalid,
// ErrDuplicate or ErrUnknown. Run returns what keeps it from starting: an address that
// is taken, a bad Config.View. What goes wrong later is logged and tried again.
//
// # Concurrency
//
// Run is called once. Handler, Addr and Leading are safe at any time.
//
// # Cost
//
// One write a pod. A turn is O(what changed) and a Step of the composition; nodes that
// changed cost O(nodes + members), at most every Config.Regroup. Memory is that of
// the informers' stores, which keep what is looked at, and of package view.
//
// # Limits
//
// A lease is a promise about clocks: a process that is stopped between the check and
// the write may write once when it goes on. Such a binding names the pod's UID, loses
// against one that was made, and else is found and dealt with as somebody else's.
// Suspending a virtual machine stops the clock that the lease goes by.
//
// A gang of which some pods ended well asks for room for all of them when it comes
// back. One that is asked to shrink or to move is stopped whole.
package standalone
