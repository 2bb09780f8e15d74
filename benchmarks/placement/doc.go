// Command placement measures how fast a placement.State decides, on one core, and
// how good what it proposes is.
//
//	go -C benchmarks run ./placement            every figure, some minutes
//	go -C benchmarks run ./placement -quick     the same with smaller rounds, within 30 seconds
//	go -C benchmarks run ./placement -check     leaves with status 1 when a target is missed
//
// The table of targets has a line for each kind of decision below and each size of
// cluster, 10,000 and 100,000 nodes of 8 devices; growth is the quotient of the medians.
// Under -quick shares on 100,000 nodes, and the second mix of defragmentation, are left out.
//
// # Whole nodes
//
// A cluster of whole 8-device nodes, 16 to a rack and 16 racks to a block, takes
// gangs of 1, 2, 4, 8, 16, 32 or 64 whole nodes, each size as likely as the
// others. A gang of up to 16 nodes must sit in one rack, a larger one in one
// block. Before a gang is placed, gangs leave until it would bring the cluster to
// 70% at most (-fill): any at random, or the oldest first, as -release says. The run
// warms up until ten times the cluster's nodes have been placed, so that the free
// room is as scattered as it stays, and only then measures.
//
// A decision is Fit and Apply, or a Fit that finds no room. Times of single
// decisions hold just that, and twice a reading of the clock, whose cost is
// printed. Rates count everything: the releases that made room, and the drawing
// of gangs. Gangs bear new IDs all the time; nothing else of the input is made
// while the clock runs, so that every allocation counted is the library's.
//
// A gang of 1,024 whole nodes, in groups of 8 that share a rack each, is placed
// in the same churned cluster and leaves again, with some churn in between.
//
// # Shares
//
// Gangs of one member of 35 kinds, in proportions like those of a public cluster
// of shared devices, come and go on nodes of four models at 80%. The state learns
// the mix from arrivals. A decision is Arrived, Fit and Apply of a task that takes part
// of a device; those of the others are not timed. The large cluster begins as ten
// copies of the small one after its turnover, which Adopt seats.
//
// # Victims
//
// A cluster is so full of gangs of mixed size that none of any size fits, and all may
// be evicted. A decision is Victims for a gang of 64 nodes in one block. The
// evictions are then carried out, the gang is seated and leaves, others fill up, and
// all costs are drawn anew, so that no two decisions see the same. Times are of the
// processor, since most decisions as long are interrupted on a busy machine, and none
// is left out. Allocations are those of the median decision; their mean, which has
// the growth of the state's pools in it, is among the results.
//
// # Defragmentation
//
// On clusters at 85% a gang of 64 nodes has to get in by moves of others. The moves
// that Repack asks for are counted against those of a greedy rule, which is printed,
// with the gangs of a block in three orders: the newest first, as other schedulers take
// victims, the smallest, and the largest. The geometric mean is judged against the
// first; against the best of the three, cluster by cluster, it must not be above one.
// On clusters of 12 nodes the moves are compared with exact search over every set, order
// and place. All moves are carried out, so that a wrong one would end the program.
//
// # Peers
//
// The inputs of the published runs of HiveD and KAI are rebuilt as far as they
// go: HiveD's shape of cluster, sizes in turn and oldest release on 4,096 and
// 10,240 nodes; KAI's 100 gangs of four one-device members on 50 empty nodes,
// once on a state that lives on and once on one that is built for every cycle,
// as KAI builds its session; and its reclaim of whole nodes from one-device jobs. What
// still differs is printed with the figures.
package main
