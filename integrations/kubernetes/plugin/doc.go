// Package plugin makes a kube-scheduler decide gangs as this library does.
//
// # Model
//
// The plugin holds a standalone.Scheduler that watches nodes and pods and decides,
// for whole gangs and in the order of its policy, but binds nothing itself. What it
// has decided is a batch of pins: this pod goes to that node. The framework then
// carries a batch out, pod by pod:
//
//   - PreEnqueue keeps a pod out of the queue until it is pinned, so a gang that has
//     no room costs no scheduling cycle, however long it waits;
//   - PreFilter and Filter leave the pinned node only, so other plugins of the
//     profile (volumes, ports) have their say about that one;
//   - Permit counts the pods of the batch. Those for which volumes are made, or that
//     an extender binds, wait there until all have come through; the others wait in
//     Bind, since what waits in Permit costs a write of each pod's status;
//   - Bind writes the binding with rank, world size and plan as annotations;
//   - Unreserve and PostFilter end the batch for all that have not been let through
//     when one of it fails, and the gang is decided anew. So do the end of a pod, and
//     a deadline.
//
// Victims of preemption are chosen as gangs, and deleted with their grace, by the
// part that decides; the framework's own preemption must be off. Queue order is
// decided there too: whatever is in the framework's queue has room already, so any
// queue sort plugin will do. As one node is left, there is nothing to score.
//
// Invariants: no pod of the profile is bound without a pin; the pods of a batch are
// bound after all of them passed Permit, or none is, unless the API server refuses
// one of the bindings: then the gang is completed, or undone, as package standalone
// says.
//
// # Usage
//
// The program in the module integrations/kubernetes/cmd is a kube-scheduler with this
// plugin; deploy/plugin has its configuration. To add it to one of your own:
//
//	command := app.NewSchedulerCommand(app.WithPlugin(plugin.Name, plugin.New))
//
// In the configuration, name it under multiPoint, and under preFilter and postFilter as
// well: that puts it before the others there. Else a pod that another plugin refuses
// first may not be told to this one, and its gang waits until the deadline.
//
// # Leadership
//
// The framework elects one of several kube-schedulers, and runs scheduling cycles in
// that one only. So the plugin begins to decide with the first cycle that it sees;
// until then a few pods pass PreEnqueue unpinned to bring that about, and wait again.
// When the framework ends, batches whose pods wait end, and bindings that were let
// through are written.
//
// # Sources
//
// The extension points are those of k8s.io/kube-scheduler v0.37 (framework/interface.go).
//
// # Errors
//
// New returns *lockstep.Error for arguments that are wrong, naming the field. A batch
// that fails says why in the log and, by the gang's pods, in events.
//
// # Concurrency
//
// Safe for concurrent use, as the framework demands. What goroutines the plugin starts,
// from the first cycle on, end with the context that New was given, or with Close, which
// waits for them. A cycle belongs to the pin that it began with: what becomes of an old
// one does not touch the new one of the same pod.
//
// # Cost
//
// Each extension point is O(1), Permit of a batch's last pod O(batch). Args.Parallel
// bindings are written at once, those of the gang that came first before others: with
// one write for each pod at once, as the framework would, an API server is several times
// slower. What deciding costs, package standalone says. Pods and nodes are watched once more than the
// framework does, since that one does not see pods that have ended.
//
// # Limits
//
// A profile has this plugin for all of its pods or not at all. Gangs are told by
// annotations, or by PodGroups while the framework's own gang scheduling (feature
// GenericWorkload) is off, since that would put members into its queue as one. A node
// that another plugin refuses for causes which package view does not see is tried
// again, after a time that grows. Pods with resource claims are held. Two profiles with
// the plugin decide apart: where both choose a node, the framework refuses one, and that
// gang is tried again.
package plugin
