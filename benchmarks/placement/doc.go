// Command placement measures how fast a placement.State decides, on one core.
//
//	go -C benchmarks run ./placement            every figure, about a minute
//	go -C benchmarks run ./placement -quick     the same with smaller rounds, within 30 seconds
//	go -C benchmarks run ./placement -check     leaves with status 1 when a target is missed
//
// # Churn
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
// Growth compares 100,000 nodes with 10,000.
//
// # Large gangs
//
// A gang of 1,024 whole nodes, in groups of 8 that share a rack each, is placed
// in the churned cluster of 10,000 nodes and leaves again, with some churn in
// between.
//
// # Peers
//
// The inputs of the published runs of HiveD and KAI are rebuilt as far as they
// go: HiveD's shape of cluster, sizes in turn and oldest release on 4,096 and
// 10,240 nodes; KAI's 100 gangs of four one-device members on 50 empty nodes,
// once on a state that lives on and once on one that is built for every cycle,
// as KAI builds its session. What still differs is printed with the figures.
package main
