// Package reconfig decides how a training job is laid out over the devices that are left: which tensor-parallel groups,
// in which pipelines, with which layers and how many micro-batches each, and how it gets there.
//
// # Model
//
//   - [Device]: a GPU with its node, leaf, memory and speed. Speeds count in whole millionths of a healthy device.
//   - [Job]: the model, its healthy layout, the schedule, what a layer costs, and what its runtime can do ([Constraints]).
//   - [Plan]: replicas of stages; a [Stage] is a group of devices and its layers. Replicas may differ in everything.
//     Invariants, which [Verify] checks without the planner: each replica has every layer once and in order; the
//     micro-batches add up; no device has two roles, none without speed has one; a group is on one node, and its degree
//     divides heads, feed-forward width and vocabulary; no device needs more memory than it has.
//   - [Estimate]: the slowest replica, by the critical path of its schedule (package pipeline), and then the exchange of
//     gradients. There is one evaluator, [Evaluate]. Fluid is a bound: all work spread over all live devices by speed.
//   - [Migration]: one stage of a micro-batch, computed by the same stage of a peer.
//
// Package reconfig/moves says which state goes from whom to whom to follow a plan, package reconfig/resize what a change of
// size means to batch and data, package reconfig/rendezvous who takes part.
//
// # Usage
//
//	plan, err := reconfig.Replan(job, devices, nil, reconfig.Options{})      // the first plan
//	next, err := reconfig.Replan(job, devicesNow, plan, reconfig.Options{})  // after devices failed, slowed or came back
//	if reconfig.ShouldReplan(now, next.Estimate, cost, horizon, 0) { ... }   // now: Evaluate(job, devicesNow, plan)
//
// # Order of decision
//
// Neither job nor devices changed: the plan before, itself, if it passes Verify. No plan before and all devices healthy:
// Job.Layout, if that can be. Else candidates compete by Estimate.Iteration: the plan as it is; its replicas mended, the
// others with their devices and layers; the same without the replicas that were hurt; and plans that change other replicas
// as well or owe it nothing, which must gain [Options].Disturb. Replicas that must be uniform change together. Ties: the
// plan as it is, fewer devices, fewer parameters to move, the candidate found first. Candidates are improved by single
// moves until none helps or Options.Budget is spent, which counts work and not time: to regroup, remove, insert, replace,
// reorder, swap, hand over or trade devices of stages. A move is good if the replicas could then do more micro-batches in
// less than the slowest one takes now. Up to 64 devices the best uniform plan competes as well.
//
// Inside a candidate: a group takes the fastest devices of a node (speed, memory, ID), of several degrees as fast the
// least; ranks stay in order. Layers are divided so that the slowest stage takes least, then the sum, then the first in
// lexical order; the even division, one by one to the stage that then takes least, and those of the plan before compete, and single layers move while simulation says
// so. A micro-batch goes where it ends first, then to the first replica. Devices are ordered by leaf, node and ID.
//
// # Errors
//
// *lockstep.Error of kind ErrInvalid or ErrDuplicate for bad input, all faults joined, and for a plan before that is of
// another job; ErrUnknown for a plan with a device that is not there. *[Infeasible], which wraps [ErrInfeasible], if there
// is no plan, or from Verify if one is broken: it names level, reason and evidence. Nothing is changed in any case.
//
// # Concurrency
//
// Functions on values; calls share nothing. Plans are never changed after they are returned.
//
// # Cost
//
// Replan simulates about 1000 schedule operations for each device, at least 300 thousand, up to 64 devices 2 million and
// up to 16 devices 4 million, of which each takes some nanoseconds (BenchmarkReplan has sizes up to 16,384 devices).
// Besides that it is O(devices · log devices + groups). Replicas of equal shape share simulations.
//
// # Limits
//
// Every micro-batch is the typical one. Exchange of gradients is not overlapped. Migrations need 1F1B or GPipe without
// chunks and are chosen after the layout. With expert parallelism replicas come in multiples of EP and are uniform.
// Chunks of an interleaved stage are as even as can be, and replicas then all have as many stages. Optimality is not
// proved; the package's tests compare with brute force up to 16 devices and 12 layers, which shares the evaluator and
// does not know migrations. Where layers were lost with all their holders, Plan.Restore says so.
//
// # Sources
//
// Levels and the rule degree × slowest device: ResiHP, arXiv 2605.06374v2 (2026), scheduler section. Pipelines of unequal
// stages for any number of nodes, and gradients exchanged layer by layer: Jang et al., "Oobleck", SOSP 2023. Work done by
// peers of the same stage: Gandhi et al., "ReCycle", SOSP 2024. Non-uniform devices, groups and layers together: Li et
// al., "Malleus" (arXiv 2410.13333, 2024); degrees that are no power of two: arXiv 2504.06095 (2025). To replan only
// where that breaks even: Wu et al., "FALCON" (ATC 2025), mitigation section (ski rental).
package reconfig
