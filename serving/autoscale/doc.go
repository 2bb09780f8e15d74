// Package autoscale decides how many replicas of a served model there should be, which of them go, and how much of what
// a service owns it can lend meanwhile.
//
// # Model
//
// A [Scaler] is told what sources see of one service: counts of what came and ended, and how many requests there are.
// A [Rule] makes a number of replicas of it; it is a plain value:
//
//   - [KPA]: mean requests at once over a long window, and over a short one in a panic (Knative);
//   - [QueueLength]: requests at once for each replica, approached after a delay (Ray Serve);
//   - [HeadRoom]: enough free for what the load may grow while a replica loads (INFaaS);
//   - [Predictive]: what the load will need once a replica that is started now is ready, by a forecast that knows how
//     far it is off, and what waits;
//   - [HighWater]: the most that the load lately came to over as long as a replica loads, and no more than keeps work
//     within the time that it may wait. It is the one to take, and Predictive where the load is smooth or has a season;
//     the others are there to compare with, and to replay.
//
// A [Capacity] turns traffic into the time that a replica is busy with it at its objective: [Batched] by the latency of
// batches, [Tokens] by steps of continuous batching under a time for each token and a key-value cache. Over a slot that
// is a load in replicas, which a [Forecaster] bounds over horizons. Then policy.Steady has its say: a margin at the edge
// of two numbers, delays, rates, bounds. Replicas that start are there: what was asked for is not asked for again.
//
// Invariants: Want lies within Steady.Bounded, except where more than that already run and a rate lowers them step by
// step; Want = ready + starting + Add - len(Remove), and Add or Remove is 0; nothing is lowered without a sample within
// Expiry; a count is forgotten Expiry after it was told, and counts for exactly that long; with requests there is a
// replica, and without any for Grace the last goes only then; of what is lent and what is needed until it is back, the
// sum is within what is owned, or a recall says how much.
//
// # Usage
//
//	s, err := autoscale.New(autoscale.Config{
//		Rule:   autoscale.HighWater{Load: 40 * time.Second, Wait: time.Second},
//		Demand: autoscale.Demand{Capacity: autoscale.Tokens{Step: step, Sequence: each, PromptToken: prefill, PerToken: objective}},
//	})
//	err = s.Observe(now, sample)        // every few seconds, from every router
//	d, err := s.Decide(now, fleet)      // at s.NextWake at the latest
//	err = fence.Admit(d)                // at whatever starts and drains replicas
//	l, err := s.Loanable(now, owned, lent)
//
// # Forecasts
//
// Six simple forecasts (a level that follows fast, slowly or at once, a damped trend, and with a season the level above
// what is usual for the phase) run side by side, and the one that was off least of late counts. The bound adds to it the
// error that as many of the last ones stayed within as the quantile says, in units of the square root of the load; and
// that share moves against each miss. So bounds hold as often as asked, within .002 to .005 on noise, counts, seasons,
// walks, bursts, heavy tails and growth (TestBoundsHoldAsOftenAsAsked), and not only on loads of one kind.
//
// Predictive.Quantile is the knob between cost and attainment. Demand.Slot is how short a peak matters: a slot that is
// shorter than requests take sees peaks that queues smooth, and pays for them. On a day, set Season.
//
// # Marks
//
// What is over before a replica that it starts is ready cannot be answered by starting; so HighWater goes by the mean over
// one Load, not by peaks. What the load once took it keeps for Hold: bursts come back, and one that finds too few replicas
// makes all late that comes until more are ready. What waits by its account of work and capacity is caught up with
// besides. Use is the knob; Wait says where more is of no use.
//
// Its constants (windows of one Load, Hold of 15, Use 630; 600 of 1000 with Wait, 900 of 1000 and twice Load for what
// waits) were chosen on the first halves of the Azure LLM traces of 2023, conversation and code, with three objectives
// each, in a model of work in order of arrival and in replays: of windows from 10 s to 180 s, holds from 40 s to 20 min,
// quantiles instead of maxima, marks that fade, for a Load of 40 s. They need on average 6 and 8 % more GPU time than
// what of all that was best for each attainment. A load without bursts would do with a Hold of 2 to 4 Loads, and 5 to 8 %
// less. The second halves took no part; what comes of it there benchmarks/serving prints.
//
// # Order of decision
//
// The rule's number; no-samples, which keeps what there is; then Steady: hysteresis, bounds, delays, rates, cooldown,
// bounds; then zero: one for whatever waits, one within the grace, none when idle unless a load is forecast or a mark stands.
// Who goes:
// starting before ready, then the least loaded, the newest, the greatest ID. The forecast that counts is the one with the
// least faded error, of equals the first. HighWater lowers nothing until it has seen samples for a Load.
//
// # Sources
//
// KPA: knative/serving 1.20, pkg/autoscaler. QueueLength: Ray 2.50, serve/autoscaling_policy.py. HeadRoom: Romero et al.,
// "INFaaS", USENIX ATC 2021; here one is given back only if the others keep the head-room, or it would be started again
// at once. Batched: Shen et al., "Nexus", SOSP 2019. Bounds: Papadopoulos et al., ECML 2002, and Gibbs and Candès, NeurIPS
// 2021. Keeping a replica as long as it takes to load is the rent-or-buy rule (Karlin et al., 1988), and many times as
// long where requests are late meanwhile. The capacity that keeps work within Wait: Cruz, "A calculus for network
// delay", IEEE Trans. Information Theory 1991. Loans by a forecast: Li et al., "Lyra", EuroSys 2023.
//
// # Errors
//
// All are *lockstep.Error, or what a reader or writer returned, wrapped. ErrInvalid: a value out of range (all faults of
// a Config, Sample or Fleet, joined), a rule that thrashes, a broken snapshot. ErrDuplicate: a replica that stands twice.
// ErrPast: a time before one already seen. ErrConflict: Loanable without Config.Loan. ErrStale: a decision that a Fence
// refuses, a term that is not later. After an error nothing has changed.
//
// # Concurrency
//
// A Scaler, a Forecaster and a Fence are not safe for concurrent use; the caller serializes calls. Decisions are values.
//
// # Cost
//
// With n replicas and m sources: Observe O(m) and, where a slot is over, O(horizons × (slots × 6 + errors)); Decide
// O(m + n log n), and 256 marks with HighWater. NextWake O(m). See BenchmarkDecide and BenchmarkForecaster. Memory: 1024
// errors and the guesses of one horizon's slots for each of up to 4 horizons, 256 marks of a mean, and 24 bytes a source.
//
// # Limits
//
// One service, of replicas that are alike. It starts and drains nothing. What finished requests were like is what the
// next are taken to be like. A load that was never seen before, or not within Hold, is met when it is seen, not sooner;
// after a burst HighWater keeps for Hold what may never be needed again; bounds hold on
// average over time, and not for each hour. Decisions of one term are ordered, but whether they arrive is the host's.
package autoscale
