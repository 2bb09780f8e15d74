// Package elastic says how many GPUs each job gets, where jobs can run with several numbers of them: by what the next
// GPU saves (Optimus, ElasticFlow), or by the fitness of whole allocations (Pollux).
//
// # Model
//
// An [Allocator] gives out a number of GPUs. Each job has sizes it can run with, how long a unit of work takes in each,
// and how much work is left. Everyone gets its least size, in the order of rank, as far as GPUs last; then GPUs go,
// size by size, to where each of them saves most: time until the job ends (Finish), or GPU time (Service, which may be
// a loss; the least one is taken).
//
// A [Search] gives out the GPUs of nodes: who runs on which, with how many. It looks for the greatest harmonic mean of
// the jobs' speed-ups, each over that of an equal part of the cluster, in which a job that would be restarted counts
// for the part of its time that it would have kept for work (goodput.RestartFactor). On each node there is at most one
// part of a job that spans nodes, so that no two exchanges share a link, but for jobs that run so already and must not be moved.
//
// Invariants of both: no more is given than there is, to growing jobs as to new ones; a job is resized, moved or stopped
// only if its Capabilities bear it; a job is not touched within Dwell, unless others must have
// what it holds or its nodes are gone; a job that runs outside its least and most is brought back, if it may be moved; the same input gives the same answer, in
// whatever order it comes. The Allocator lets a job grow only if that brings more than the resize costs: with t now, u
// then and a horizon H, if (1 - u/t) × H > Save + Restore. The Search has the restart factor for that.
//
// # Usage
//
//	a, err := elastic.New(elastic.Config{Horizon: time.Hour})
//	shares, err = a.Append(shares[:0], gpus, jobs)
//
//	s, err := elastic.NewSearch(elastic.SearchConfig{Seed: 1})
//	placed, err = s.Append(placed[:0], nodes, candidates)
//
// Deadlines: package deadline finds the minimum shares, which are then the least sizes here. Without Dwell each job gets its
// least if all of them fit together; within Dwell a job keeps what it holds at the cost of others' least. Placement: the Search's
// nodes are a proposal; the Allocator's counts go through the same admission as any start.
//
// # Order of decision
//
// Allocator: least sizes to running jobs that cannot be stopped, then by Rank, then ID. What is kept is what is held,
// at that turn, if there is room, else the least size. Growth by the exact gain for each GPU, in 128 bits, ties
// by the same order; a step that does not fit is passed over. Growth that does not pay is pinned and all given out
// again, at most three times.
//
// Search: jobs stay where they run, those that cannot move first, by ID. Those that wait get their least, in an order
// drawn from the seed, then the free GPUs go where the cost (the reciprocal of the speed-up) falls most for each, ties
// by ID. Then single jobs change their count, pairs change together, one growing where the other moves or shrinks, and
// the nodes of a job and one other node are cleared and filled anew, each as long as the sum of costs falls. A job goes
// where it was, or on the one node where it was, or on the one that it fills best, or over the nodes with the most room; ties by the index of the
// node. Costs are integers, from speed-ups in millionths.
//
// # Errors
//
// ErrInvalid for what is out of range, ErrDuplicate for a job or node that occurs twice, each naming the field; all
// faults at once, and nothing is appended. A model that answers nonsense counts as one that cannot run.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls. Each keeps buffers and nothing else from call to call.
//
// # Cost
//
// Allocator.Append: O((jobs + GPUs) log jobs) with steps of one GPU, and O(sizes) to check them; it allocates nothing once
// its buffers have grown. 10,000 GPUs and 5,000 jobs take 8 ms (BenchmarkAllocate). Search.Append: the first fill is O((jobs
// + GPUs) (log jobs + nodes/64)), then at most Effort changes are tried; 64 GPUs and 50 jobs take 2 ms, 10,000 GPUs and
// 5,000 jobs 60 ms (BenchmarkSearch).
//
// # Limits
//
// Where a job's gains rise and fall, giving GPUs one by one may stop before a gain that comes later; where they only
// fall and sizes are 1, 2, 3.., it is best. The Search finds a local optimum: on clusters small enough to try every
// allocation it was the best in 96 % of cases, and 8 % above the least cost at worst. What shrinking costs a job is
// not weighed by the Allocator. All GPUs are of one kind.
//
// # Sources
//
// Peng et al., "Optimus", EuroSys 2018, section 4.1. Gu et al., "ElasticFlow", ASPLOS 2023, section 4. Qiao et al., "Pollux",
// OSDI 2021, section 4.2, and, for the exponent, the restart factor and the fair share, the authors' code (petuum/adaptdl,
// branch osdi21-artifact); there a genetic search of 100 generations draws from unseeded randomness.
package elastic
