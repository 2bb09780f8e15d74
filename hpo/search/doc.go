// Package search coordinates a hyperparameter search: which trials are trained together as one model, where, and which
// of them at full size.
//
// # Model
//
// A slot is a place for one bundle of trials: an exclusive device, or the bubbles of a device of another job. Slots of one
// [Class] are alike; a class's profiles are what was measured of bundles on it. A trial of package hpo waits with the
// rule, which decides who goes on, until it is drawn; then it is ready, in a group with those that it may be fused with:
// those of its key that are as far and run to the same rung. A bundle is members of one group on one slot. It never gains
// members: when some of them stop, the bundle is over, and the others go on in another, fused anew with what else is
// left and with trials that are ready.
//
// New trials run in bubbles. Promoted ones run on exclusive devices, and in bubbles what these have no room for, the
// longest first. A bundle in a bubble moves to an exclusive device that has nothing to do. The target of a trial, its
// model at full size, runs on an exclusive device.
//
// Invariants: a trial is in one place. A slot has one bundle or target. A bundle has one group and no more members than
// the knee of its profile when it began. A trial is transferred once, and never for a metric that is not finite. While a
// trial is not over, after [Search.Next] something runs, or the search is Quiescent, or no slot in service fits what is
// ready or pending.
//
// # Usage
//
//	s, err := search.New(search.Config{Rule: rule, Classes: classes})
//	err = s.AddSlot("gpu0", "a100")
//	err = s.Add("lr=0.1", "batch=256")
//	actions, decisions := s.Next()       // what to start, stop and move
//	decisions, err = s.Report(search.Report{Bundle: b, Step: 1, Values: losses})
//
// # Order of decision
//
// Next first fuses anew what is left of bundles (fusion.Refuse, of equal classes and groups, those that began first),
// then starts targets, then fills slots, then moves. Slots are served exclusive ones first, then those with the highest
// measured throughput, then by ID. For a slot groups rank by: whether 1000 others were taken since it was; the share of
// a full bundle; step, the highest first, or in a bubble the lowest, unless more full bundles of promoted trials wait
// than there are exclusive slots; throughput here as a share of that on the key's best class; time that a bundle takes
// to its rung, longest first; key, step, rung, bracket. Trials are drawn until there are Ahead; when there are no more,
// a group is divided over the free slots of the class as fusion.Plan does. Of bundles to move it is the furthest, then that
// with the furthest rung, the most members, the first.
//
// Once enough trials were paused at a rung or are over, the best by last report, running or not, of equals the first by
// ID, is transferred if it was not; and so again whenever the best has changed. One that waits for a device gives way to
// a better one. At the end those of fusion.SelectTransfers are that were not. The rule is that of Hydro (Hu et al., OSDI
// 2023, and its code, branch master), with the faults of that left out: here it works for searches of unknown length.
//
// # Errors
//
// All are *lockstep.Error: ErrInvalid for a config, profile, name, step, kind of failure or number of values out of
// range; ErrDuplicate for a name in use or a bundle twice in a call; ErrUnknown for a name that is not there, or a bundle
// that is over, to which late reports come; ErrInvalid for a snapshot that is none. After an error nothing has changed.
// That nothing fits is no error: View says what is Ready and Free.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// Report is that of the rule, and O(log trials) with Transfer. Next is O(slots + picks × groups + slots drawn for),
// groups being keys times rungs at most, where nobody was restarted. A trial takes some 400 bytes with its name and what
// the rule has of it. The program benchmarks/hpo measures both, and how near a search comes to what its slots can do.
//
// # Limits
//
// It moves nothing and measures nothing: profiles are the host's, and Measure replaces them. Population based training is
// not for it, whose trials copy each other. A member that fails takes the bundle apart at what was reported last. Slots of
// bubbles count as steady at their measured throughput: package hpo/bubble fills the windows behind one. A bundle that is
// under way is moved, not split. Trials that are over stay in memory.
package search
