// Package fleet decides which models share which devices: who takes turns on a GPU, which machines and which variants
// of a model pay, who votes, where models reside, and whether two may be neighbours.
//
// # Model
//
// A session is the requests for one model under one objective. [Pack] gives sessions whole GPUs as far as they fill
// them, and lets what is left take turns: in every turn of a GPU each of its sessions has one batch, of what came in
// during a turn. A request that just misses its batch waits for a turn and then for the next batch, so a turn and a
// batch are to fit the objective.
//
// An [Instance] is a type of machine with a price; [Cheapest] mixes them. A [Task] is done by one of its variants;
// [Choose] takes the cheapest for an accuracy, or the most accurate for a budget, over all tasks. A [Member] votes;
// [Vote] takes the cheapest ensemble whose majority is right often enough, and [Resize] changes it by what was measured.
// A [Model] resides on groups of devices; [Place] puts it there, [Residents] makes room on one device. A [Gate] tries
// out two neighbours, and parts them where that goes wrong.
//
// Invariants: every GPU of a Packing has batches that fit its turn, and objectives that hold a turn and a batch; rates
// of parts add up to those of the sessions; Least is at most the number of GPUs; a Mix, Selection or Ensemble that is
// Feasible and Exact is matched by no cheaper one; Residents never hold more than Memory, and what is pinned is never
// evicted; a Gate that went Apart is so for Wait at least.
//
// # Usage
//
//	p, err := fleet.Pack(sessions, memory)             // p.GPUs
//	m, err := fleet.Cheapest(instances, rate, slo)     // m.Counts
//	s, err := fleet.Choose(tasks, fleet.Goal{Budget: 7})
//	e, err := fleet.Vote(models, 900_000)
//	p, err := fleet.Place(models, groups, requests)    // p.Hosts
//	hit, out, err := residents.Use(model, memory, load)
//	phase, err := gate.Consider(now, a, b)             // and gate.Observe for every window
//
// # Order of decision
//
// Pack: sessions go by ID; what is left of them by occupancy, the highest first, then by ID, each to the GPU which then
// has the highest occupancy, of equals the first. Other orders (shortest turn, most memory, busiest) and all ways to
// pack up to 8 count only where they take fewer GPUs. Cheapest: cost, then a single type, then the most of the best
// value, then ID. Choose: cost or accuracy, then cost, then the variants given first, of the last tasks. Vote: cost,
// accuracy, fewer members, ID. Resize: the dearest leaves, then the less accurate, then the greatest ID; who makes the
// majority most accurate joins, then who is more accurate, then the cheapest, then the least ID. Place: requests in time,
// then less memory, then the least IDs of group and model. Residents: least worth, then longest unused.
//
// # Sources
//
// Squishy bin packing is Nexus (Shen et al., SOSP 2019, section 6.1), with its example as a test; break-even rates are
// MArk's question (Zhang et al., USENIX ATC 2019); variants are INFaaS (Romero et al., ATC 2021) and Cocktail
// (Gunasekaran et al., NSDI 2022), as is voting; placement is AlpaServe (Li et al., OSDI 2023, section 4.2); eviction is
// Greedy-Dual-Size-Frequency (Cherkasova, HP Labs 1998). How fast two kinds are beside each other is measured and
// inferred by perfmodel/profile, which also has the scores for packing; in which order lent servers are emptied is
// lease.AppendReclaim.
//
// # Errors
//
// All are *lockstep.Error. ErrInvalid: a value out of range, all faults joined. ErrDuplicate: a name that stands twice.
// ErrUnknown: a request, host or model that names what is not there. ErrConflict: a model that does not fit. That an
// objective or a goal cannot be met is no error: Infeasible and Feasible say so. After an error nothing has changed.
//
// # Concurrency
//
// Functions share nothing and may be called from several goroutines. Residents and Gate are not safe for concurrent
// use; the caller serializes calls.
//
// # Cost
//
// With n sessions that do not fill a GPU: Pack is O(n² · 128 · sessions on a GPU) at most, 0.1 ms for 8, 12 ms for 64
// and 0.4 s for 512 (BenchmarkPack). Cheapest takes 2^20 steps at most. Choose is O(tasks · variants · states · log) with
// at most 65536 states. Vote is O(2^members · members), 6 ms for 16 (BenchmarkVote). Place is
// O(placed · models · groups · requests · groups). Residents.Use is O(n log n); Gate O(1).
//
// # Limits
//
// Pack goes by mean rates: requests that come in bursts find longer queues, which serving's batcher and the replicas of
// serving/autoscale are for. Voters count as independent, which models that learnt from the same data are not: measure,
// and use Resize. Place knows the requests beforehand; give it those of yesterday. It moves nothing. What two tenants do
// to each other has to be told to Gate.
package fleet
