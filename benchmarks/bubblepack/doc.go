// Bubblepack measures how much of a pipeline's bubbles package hpo/bubble fills, and what it does to the main job.
//
//	go -C benchmarks run ./bubblepack -check
//
// # Input
//
// The main job runs one forward, one backward over 4 stages with 8 micro-batches of 150 ms and 300 ms: an iteration of
// 4.95 s with 15 windows, from package pipeline. What fills them are trials of a ResNet-18 at an eighth of its width, by
// the profile published with Hydro. Resume and pause take 10 ms each, and trials are worth one a step. Memory A leaves
// 3, 9, 16 and 24 thousand MiB to trials on the four devices, memory B 5, 12, 21 and 32. In the tables Q is the number
// of safe points of a step and LP the bound of the linear programme over time, in which steps can be cut anywhere and
// everything that fits a device by itself may run on it; "margin LP" has windows shorter by the conformal margin.
// "free" may run whatever fits in each window, "resident" keeps loaded what it runs and has to fit all of it at once.
//
// # Still
//
// Windows and steps as long as predicted. Beside ours stand fixed numbers of fused trials, the best number or set in
// whole steps, and the optimum of the integer knapsack, which ours has to meet.
//
// # Jitter
//
// Lengths of windows scatter normally by 3 % and those of quanta by 4 %, independently of each other; a share of 1e-3 of windows
// may overrun. Harm is the sum of overruns over the time of all iterations, a bound on the slowdown of the main job. Work
// counts in whole quanta, also of a quantum that overran. Others are rebuilt from their descriptions; FreeRide's rule
// (arXiv 2409.06941) starts a step if it is not longer than what is left. Samples for calibration come from another
// stream of random numbers than the windows that are reported; -seed gives runs on other ones.
// Iterations stand 10 s apart, so that a window which runs late does not touch the next.
//
// # Change
//
// After 300 usual windows the jitter doubles, or all windows get longer or shorter; it is counted until filling has
// stopped everywhere. False trips are those of the breaker (scatter or harm) with nothing changed; false drifts, after
// which a window's length is learnt anew, stand beside them. Then the jitter stays doubled until the packer has armed
// itself anew with samples of it, and what it makes from there on is held against the same bound. The packer runs as the host would, its false alarms and
// what they cost included, in all parts.
package main
