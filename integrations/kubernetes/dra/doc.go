// Package dra turns what drivers publish for dynamic resource allocation into devices
// of nodes, resource claims into demands, and plans into allocations. It decides
// nothing, and knows resource.k8s.io/v1 only.
//
// # Model
//
//   - Inventory: the devices of all ResourceSlices by node, numbered by driver, pool
//     and name, so that a plan's device set means names. Model and memory come from
//     attributes and capacity; a pool counts only when all slices of its newest
//     generation are there.
//   - MIG: instances that share counters with whole devices (partitionable devices)
//     become a layout by the memory slices that they take, so that a placer divides
//     devices as the counters allow; instances that are there as they are get
//     devices made up for them.
//   - claim: its requests, by exact count or all, become a lockstep.Demand; the plan
//     becomes an AllocationResult with device names and a node selector, reserved for
//     the pod.
//
// Invariants: no device is given out that the inventory does not have, or more of it
// than its counters have; what cannot be kept is refused rather than guessed.
//
// # Usage
//
//	inventory := dra.New(dra.Config{}, slices, classes)
//	cfg.Claims = func(p *corev1.Pod) (lockstep.Demand, error) {
//		claims, err := dra.Claims(p, get)
//		if err != nil {
//			return lockstep.Demand{}, err
//		}
//		return inventory.Demand(p, claims)
//	}
//	cluster, err := cfg.Cluster(view.Inputs{Nodes: nodes, Devices: inventory.Devices()})
//	claims, err = inventory.Allocate(pod, claims, plan.Members[binding.Member])
//
// # Order of decision
//
// Devices of a node: by driver, pool, length of the name, name. Devices of a plan go
// to claims in the pod's order, to requests in the claim's, lowest first. Of
// alternatives (firstAvailable) the first counts.
//
// # Errors
//
// All are *lockstep.Error: ErrUnknown for a claim, class or device that is not there
// yet, ErrConflict for a claim that is another's or allocated otherwise, ErrStale for
// a plan of another inventory, ErrInvalid for what is not placed here.
//
// # Concurrency
//
// An Inventory is immutable and safe for concurrent use.
//
// # Cost
//
// New is O(devices·log devices). Demand is O(requests) once a kind of request was
// seen, and O(devices) before; Allocate is O(devices of the pod).
//
// # Limits
//
// CEL is not evaluated: of selectors, equality of device.driver and of attributes to
// texts is read, with && between; classes that say more are to be named in
// Config.Classes. Left out: devices that are on no one node, have taints or binding
// conditions, or are given out in shares. Refused: administrative access, constraints
// between devices, derived attributes, capacities other than memory, claims that pods
// share, several MIG instances or models for one pod. Devices of one node are of one
// model.
package dra
