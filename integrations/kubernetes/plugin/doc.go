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
//     profile (volumes, ports, claims) have their say about that one;
//   - Reserve and Permit let pods wait until all of the batch have come through, then
//     let them bind together;
//   - Bind writes the binding with rank, world size and plan as annotations;
//   - Unreserve and PostFilter end the batch for all that are not bound yet when one
//     of it fails, and the gang is decided anew.
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
// # Leadership
//
// The framework elects one of several kube-schedulers, and runs scheduling cycles in
// that one only. So the plugin begins to decide with the first cycle that it sees;
// until then a few pods pass PreEnqueue unpinned to bring that about, and wait again.
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
// Safe for concurrent use, as the framework demands. New starts one goroutine when the
// first cycle runs; it ends with the context that New was given.
//
// # Cost
//
// Each extension point is O(1), Permit of a batch's last pod O(batch). What deciding
// costs, package standalone says. Pods and nodes are watched once more than the
// framework does, since that one does not see pods that have ended.
//
// # Limits
//
// A profile has this plugin for all of its pods or not at all. Gangs are told by
// annotations, or by PodGroups while the framework's own gang scheduling (feature
// GenericWorkload) is off, since that would put members into its queue as one. A node
// that another plugin refuses for causes which package view does not see is tried
// again, after a time that grows.
package plugin
