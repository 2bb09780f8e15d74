// Hpo measures what package hpo/search makes of a search on devices of its own and the bubbles of others.
//
//	go -C benchmarks run ./hpo -check
//
// # Ends
//
// Searches simulated from their first trial to their last on 1 exclusive GPU and N bubble GPUs. Trials are a ResNet-18 at
// an eighth of its width, by the profile published with Hydro, in bundles of up to 16; a bubble GPU has 0.15 of the
// exclusive throughput, as published for bundles of 16, whatever their size, and steadily: how windows are filled is what
// the program bubblepack measures. Metrics are drawn from the seed. A bundle takes a second to launch at exclusive speed, and loses the
// epoch that it is in when it moves. The speed-up is the makespan on the exclusive GPU alone over that with bubbles,
// the bound 1 + 0.15 N. Halving in step (SHA) does the same work wherever it runs; the asynchronous rules promote others when
// trials come in another order, and trial-steps a second stand beside. Both are held against the bound from both sides.
//
// # Replay
//
// The 50 trials that Hydro's authors ran with Ray Tune and with Hydro on 4 GPUs. Trials, bundles and targets take the
// times measured there, none of which is known for bundles of other sizes, and a replay that would need one fails. What
// is compared is the order and the rule for targets. Launches are not in the times; what Hydro's run took more than its
// replay is added to ours.
//
// # Cost
//
// Searches of up to a million trials with random metrics, in processor time a report of one member, that of Report and
// Next and of the host together: the median of stretches of a thousand reports.
package main
