// Package hpo decides which trials of a hyperparameter search run on, which stop, and which start next.
//
// # Model
//
// A trial is a training run that reports a metric at some of its steps (epochs, iterations). A rung is a step at which
// trials are compared; a bracket is a list of rungs. A [Scheduler] has one rule: [ASHA] (asynchronous successive
// halving, by promotion or by stopping, and as other libraries decide), [SHA] and [Hyperband] (in step), [Median]
// (the median stopping rule) or [PBT] (population based training). Shift moves devices to the best trials of ASHA as a
// deadline comes near.
//
// A trial waits, runs, is paused at a rung, is to be started again, or is over. Each start of it is an attempt. The host
// calls Next for what to run, and Report with what came of it; a fused bundle reports its members in one call.
//
// Invariants: rungs are computed by integers. All of a call is recorded before anything is decided. A report that came
// before, or of an earlier attempt, changes nothing; steps may go back, and a trial may begin anew. A rung records a
// trial once; one that skips rungs has passed them. Under promotion a trial is among the best floor(n/Eta) of the n
// recorded when it is promoted, once from each rung, and was promoted from the one below. A metric that is not
// finite is never promoted, kept or copied, and helps nobody more than the worst number would. While a trial is not
// over, something runs, or Next returns a start or a decision, or the search is Quiescent.
//
// # Usage
//
//	s, err := hpo.New(hpo.Config{ASHA: &hpo.ASHA{Max: 81, Eta: 3}})
//	err = s.Add("lr=0.1")
//	starts, decisions := s.Next(free)
//	decisions, err = s.Report(hpo.Report{Trial: "lr=0.1", Attempt: 1, Step: 1, Value: loss})
//
// # Order of decision
//
// Within a call reports count by Seq, then by the trial's ID; calls by their order. Of equal metrics the earlier is
// better, but a stopping rule lets a trial go on that is as good as the last that may. Next starts trials that are to be
// started again in the order in which they came to be, then promotes from the highest rung (of equal ones, of the
// first bracket) the best, then starts new trials in the order of Add. Trials are given to ASHA's brackets such that
// each has its share ceil(B*Eta^s/(s+1)), s rungs above its first of B, the first bracket first. PBT draws the source
// evenly from the upper quantile, then for each parameter whether to resample, and the draw. Shift ranks by highest
// rung passed, metric there, ID.
//
// # Errors
//
// All are *lockstep.Error: ErrInvalid for a config, name, step, kind or deadline out of range, ErrDuplicate for a name
// in use or twice in a call, ErrUnknown for one that is not there, ErrConflict for a trial that was never started,
// an attempt that is still to come, a trial that is not over and to be forgotten, or a snapshot of another config.
// A report of a trial that is over is none: the decision says so again.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// Report and Next are O(log n) for each report and start, n being what the rung has recorded, or for PBT the population; the
// variant Determined is O(n), and ASHA looks at each of its rungs in Next. Report allocates its result. A rung
// that closes costs O(n log n) for those in it. BenchmarkSearch with a million trials on a shared 2-core machine: 0.7
// to 2 microseconds a report at the median, Next included, most of it to look up the name; 160 to 310 bytes a trial
// beside its name. Forget gives a trial's 100 bytes or so back; what ASHA's rungs and Median's marks recorded stays, 24
// bytes each, since later decisions need it.
//
// # Limits
//
// It knows no hyperparameters but those that PBT changes, and draws no trials: BOHB is Hyperband with LargestFirst and a
// model of the host's. A running trial that never reports holds up those who wait for it until the host says Failed.
// Deciding one at a time promotes more than one in Eta when metrics rise with time (Rung.Promoted says how many), and
// fewer than Eta trials promote nobody. Hyperband's last rung may be below Max, where Eta does not divide it. The
// median rule counts a trial at the judgement that its report comes to, not at those it skipped.
//
// Sources: Jamieson, Talwalkar, "Non-stochastic best arm identification", AISTATS 2016 (SHA); Li et al., "Hyperband",
// JMLR 2018; Li et al., "A system for massively parallel hyperparameter tuning", MLSys 2020, algorithm 2 (ASHA); Falkner et al.,
// "BOHB", ICML 2018; Golovin et al., "Google Vizier", KDD 2017, section 3.2 (median); Jaderberg et al., "Population
// based training", 2017; Liaw et al., "HyperSched", SoCC 2019 (the aim of Shift; its rules are ours). Variants follow the
// decisions at a rung of Ray Tune's ASHA, of Optuna's successive halving and Hyperband, of Syne Tune's ASHA as it is and
// before its legacy schedulers went (#971), and of Determined's ASHA in stopping mode; a trial that skips rungs has
// passed them in all.
package hpo
