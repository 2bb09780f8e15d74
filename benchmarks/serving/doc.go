// Serving compares rules for how many replicas of a language model there are, on
// the plane of attainment and GPU time, and measures what lending saves.
//
//	go -C benchmarks run ./serving [-quick] [-check] [-only scaling,mixed] [-loads conv,code]
//
// # Scaling
//
// The Azure LLM inference traces of 2023, copies of each on top of each other
// 200 ms apart so that tens of replicas are needed, are replayed on a model of 70
// billion parameters on two devices, with continuous batching, at three
// objectives. Every rule has a sweep of its main knob, its published default among
// it. Figures are those of the second half of a trace. A setting is dominated
// where one of the other side attains as much at no more GPU time, and one of both
// is better; a rule, where each of its settings is, by some setting of ours. The
// rule of ours that is judged is autoscale.HighWater; autoscale.Predictive stands
// beside it and takes no part. Ray's rule stands there twice, with its delay of ten
// minutes before it goes down and with one of a minute.
//
// Foresight is plans by one who knows the trace: dynamic programming over slots,
// in a model in which requests are served in order by replicas that are alike,
// then replayed as all are. A plan is no bound, since the model is not the replay.
// What prompts alone take, of as many requests as the default attains, the shortest
// first, is a bound: nobody needs less.
//
// A full run takes some ten minutes of a processor.
//
// The constants of HighWater and its default were chosen on the first halves of the
// traces, by that model and by replays; see package autoscale.
//
// # Mixed
//
// A day with training on what is lent, and the same day without.
//
// # Limits
//
// Replicas are simulated; networks and gateways take no time. Whether a rule is
// dominated depends on how fine the sweeps are, and near 1 on single requests. The
// code trace is more than 96 replicas carry in its bursts: several rules have all
// of them all of the time there, and share a point. On it three or four of the
// seventeen settings of ours are dominated, by settings of rules that go by
// requests at once or keep head-room, and no rule is dominated at each of its
// settings. On the conversation trace one or two rules are, at each objective; but
// where all requests attain, as they do with the looser two, five settings of ours
// have more replicas than another needs for that. Results on the second halves had been seen for other rules, and for
// HighWater without its account of what waits, when that was added.
package main
