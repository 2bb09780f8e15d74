// Package gang decides which gangs hold which devices now: all members of a
// gang, or none.
//
// # Model
//
// An [Admission] keeps jobs, each asking for one gang, and drives three
// collaborators: an [Orderer] says whose turn it is, a [Placer] finds room, a
// [Quota] says how much a tenant may use. The host reports events; [Admission.Step]
// answers with actions. A job goes
//
//	queued → (awaiting →) held → running → (resizing | moving | leaving) → gone
//
// Awaiting owns its room while others are still leaving it. Held has clean room
// and until its deadline for every member to confirm. An evicted job is queued
// again in its old place, with its full estimate; one that finished, failed or
// was cancelled is gone. These hold whenever no call is running:
//
//   - The placer has room applied for a job exactly if the job is awaiting, held,
//     running, resizing or moving, or leaving since it was cancelled or lost a
//     node; its counts lie between the roles' Min and Limit. The quota has a charge
//     for those counts exactly then.
//   - A reserve or start never names devices that another job was told to use and
//     has not been reported to have left.
//   - After a Step at t nothing is held with a deadline at t or before. A hold
//     takes its whole room at once, so two gangs never hold halves.
//   - Only jobs that are Preemptible are stopped, moved or shrunk, except by Cancel
//     and Down; only Resizable ones change their size.
//   - While estimates are true and the placer finds room wherever there is some,
//     no job that is behind a reservation in the order delays its start.
//   - With nobody new, all running jobs ending and all evictions reported, every
//     gang that fits alone starts (a placer without [WhatIf] must say
//     [lockstep.ReasonCapacity] of those that never will). With [EASY] and more, so does the job at the
//     head of a steady order, whoever keeps arriving behind it.
//
// # Usage
//
//	a, err := gang.New(gang.Config{Placer: state})
//	err = a.Submit(now, g)                            // or a.Apply(event) for any event
//	actions, err := a.Step(now)                       // reserve: preflight and confirm each rank
//	err = a.Confirm(now, g.ID, actions[0].Attempt, 0) // the last one starts it
//	wake, ok := a.NextWake(now)                       // call Step again then, or after an event
//
// An attempt numbers the holds of all jobs; events repeat it, so that late ones
// are told apart ([lockstep.ErrStale]). 0 means whichever is present.
//
// # Order of decision
//
// Step first ends holds whose deadline has come, by time, then ID; then finds
// other room for holds that lost or refused a node, by ID, within their
// deadline; then, if anything changed, makes one pass along the order. The
// default order is higher priority, earlier submission, ID. For each waiting job:
//
//  1. Quota. Without quota for its Min the job is passed over: nobody waits
//     behind it and nothing is kept. With quota for its Min but not for its Max it
//     asks for its Min.
//  2. Room now, clear of maintenance windows and of what it refused, near where it
//     was promised room. If there are reservations that its stay would meet, it must
//     fit beside their room; else, exactly: with it placed, and all estimates
//     true, does each reserved gang still fit at its start? Then it may pass.
//  3. Room of due holders (below), beside all reservations.
//  4. A reservation, if it would fit an otherwise empty cluster at all, and fewer
//     than Backfill are given out. Its start is the earliest known end, of a
//     holder, window or reservation, after which it fits. A gang that can never
//     fit ([lockstep.ReasonCapacity]) blocks nobody.
//
// A stay lasts from now to hold plus estimate from now; without an estimate, or
// while the room is being left by others, for ever. A holder past its estimate
// is expected any moment: nothing may get in the way of that start. Where known ends
// do not suffice the reservation has no time: holders without estimates are
// taken to leave, latest started first, until the gang fits; that room is kept
// from everybody and stays the same while the placer can (its Prefer), so that it
// can only drain. This is what keeps a stream of small jobs without estimates
// from starving a gang; if one of the holders in that room never ends, call
// it due or cancel it. Reservations are made anew in each pass, in order, so a
// higher claim takes them; with Backfill above 1 a job moves forward only past
// nobody's promise. With [Strict], or a placer that is no [WhatIf], nothing
// passes a blocked gang.
//
// The boundary: a job called [Admission.Due] is decided by the next pass. Until
// its turn in the order it is soft if it is Preemptible: a job proposed ahead of
// it that has no other room may take its room. If it is enough that Resizable
// holders shrink, nobody is stopped. Else as few as possible stop, from the
// least deserving on: lower priority, later start, later ID; and none of them
// that could stay. At its turn a holder in place is extended, a shrunk one
// resized, a displaced one moved if there is room elsewhere and else evicted;
// for quota it competes as well. Holders not proposed come last, by ID. At the
// end, if nobody was blocked, extended Resizable holders grow in place. A job
// waits for who leaves a node of its room, also when they leave other devices
// of it, and its hold begins when all have.
//
// A hold that lapses is tried again after Backoff, doubled for each lapse in a
// row. To preempt at any other time, call the eligible victims due.
//
// # Errors
//
// New: every fault of the Config (ErrInvalid). Every call with a time: ErrPast
// if it goes back, ErrInvalid if int64 cannot hold it. Events: ErrUnknown for a
// job that is not there, ErrStale for another attempt or a confirm after the
// deadline, ErrConflict for a phase that does not suit; Submit and Adopt: ErrDuplicate.
// Repeating an event that has had its effect is no error. After an error nothing has
// changed, the time included. Step returns errors of collaborators; the actions
// returned with one stand, and the next Step goes on. A gang for which the
// placer's Fit returns ErrInvalid or ErrUnknown is rejected. Restore: ErrInvalid. Kinds are those of package
// lockstep.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls. Plans in actions and
// in [Status] are never written to again and may be shared.
//
// # Cost
//
// With Q queued, S shapes among them, R holders: an event costs O(log R) and
// moving pointers in a sorted list, but Down reads all plans and Up and Open all
// jobs; NextWake O(reservations). A pass looks at each
// queued job once, but tries one of each shape only, and none that failed since
// room was last freed: O(Q + S·Fit). EASY adds one search of O(R) releases and
// O(log R) fits a pass in which room was freed, and at most one replay of the holders
// that end before the start for each job that outlasts it; [Conservative] up to
// Q·R fits. Maintenance windows and refusals make failures a job's own, not its shape's.
// Memory is O(jobs), with Retain of those that left.
//
// # Limits
//
// It prices no victims (placement and policy do) and evicts nobody of its own
// accord before its term. Shares of devices keep whole devices free in
// reservations. Growth happens at boundaries only. The holds of gangs that wait for
// others to leave have no deadline of their own: every eviction must be reported.
//
// Reservations for the first blocked job: Lifka, The ANL/IBM SP Scheduling System, JSSPP
// 1995 (EASY); for all: Mu'alem and Feitelson, IEEE TPDS 2001, section 2.
package gang
