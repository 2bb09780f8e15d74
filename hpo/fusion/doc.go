// Package fusion says which trials of a search to train as one fused model, how many at once, and when to fuse anew.
//
// # Model
//
// Trials whose models have the same shapes and take the same batches can be trained as one model whose operators carry
// all of them (horizontal fusion: Wang et al., "HFTA", MLSys 2021). A [Key] names what may be fused together: batch size
// and whatever else has to be equal, including how far the trials are, for the members of a bundle see the same batches.
// A [Bundle] is the trials of one key that run together on one device.
//
// A [Profile] is what was measured: for some numbers of fused trials the time of a step and the memory. Between points
// nothing is assumed but that both do not fall; a number that was not measured costs what the next larger one does.
// Real profiles are neither affine nor concave.
//
// Invariants of [Plan]: every trial is in exactly one bundle; a bundle has one key and at most its limit of members;
// bundles of a key differ by one member at most; keys without trials take no device; where devices do not set the size,
// there are as few bundles as the limit allows. Of [Refuse]: after the moves each key has as few bundles among those
// at a safe point as its limit allows, and no other way there moves fewer trials.
//
// # Usage
//
//	p, err := fusion.NewProfile(points)
//	limit, ok := p.Knee(memory, 0.05)
//	bundles, err := fusion.Plan(trials, func(fusion.Key) int { return limit }, devices, fusion.RuleEven)
//	moves, err := fusion.Refuse(live, waiting, limitOf) // after a rung has stopped some
//	best, err := fusion.SelectTransfers(results, 3)     // to train at full size
//
// # Order of decision
//
// Keys count by number of trials, most first, then by name; trials keep the order in which they are given. Refuse keeps
// the fullest bundles, the first given among equals. SelectTransfers takes the best of each key first, then the best
// of the rest; ties go to the trial's ID.
//
// # Errors
//
// All are *lockstep.Error: ErrInvalid for a point, limit, count or rule out of range, a profile without the point for
// one trial, a trial or bundle without ID; ErrDuplicate for a trial or bundle given twice. A trial that fits nowhere is
// no error: Knee and Most say false. The empty key is a key like others.
//
// # Concurrency
//
// Functions and values; safe for concurrent use.
//
// # Cost
//
// Plan and SelectTransfers are O(n log n) in trials, Refuse also O(b²) in the bundles of a key; a look-up in a profile
// is O(log points), a knee O(points).
//
// # Limits
//
// It does not fuse models; it says which. [RuleHydro] groups as the published code of Hydro does (Hu et al., OSDI
// 2023, branch master), except that keys without trials are passed over. SelectTransfers is stratified since batch
// size and rank interact: in the 50 configurations of Hydro's artifact the best surrogate is 12th on the target.
package fusion
