// Package gang decides which gangs hold which devices now: all members of a gang,
// or none.
//
// # Model
//
// An Admission keeps jobs, each asking for one gang, and drives three collaborators:
// an Orderer says whose turn it is, a Placer finds room, a Quota says how much a
// tenant may use. The host reports events; Admission.Step answers with actions. A
// job goes
//
//	queued → (awaiting →) held → running → (resizing | moving | leaving) → gone
//
// as Phase says. An evicted job is queued again in its old place, with its full
// estimate; one that finished, failed or was cancelled is gone. These hold whenever no
// call is running:
//
//   - The placer has room applied for a job exactly if the job is awaiting, held, running,
//     resizing or moving, or leaving since it was cancelled or lost a node; its counts
//     lie between the roles' Min and Limit, but for a trial (below). The quota has a charge for
//     those counts exactly then.
//   - A reserve or start never names devices that another job was told to use and has
//     not been reported to have left.
//   - After a Step at t nothing is held with a deadline at t or before. A hold takes its
//     whole room at once, so two gangs never hold halves.
//   - Only jobs that are Preemptible are stopped, moved or shrunk, except by Cancel and
//     Down; only Resizable ones change their size.
//   - While estimates are true and the placer finds room wherever there is some, no job
//     that is behind a reservation in the order delays its start.
//   - With nobody new, all running jobs ending and all evictions reported, every gang
//     that fits alone starts (a placer without WhatIf must say
//     lockstep.ReasonCapacity of those that never will). With EASY and more, so does the
//     job at the head of a steady order that has quota, whoever keeps arriving behind it.
//   - With nobody new and nobody ending, preemption comes to an end: see Preempt.
//
// A gang with a Canary is tried first: a reserve names its first members alone, in
// whole inner groups, and when they have confirmed a second one names all. If others
// would have to leave for the whole, only the first members' room is taken from them
// for the trial, and the rest is set apart; a node that fails costs nobody else anything.
//
// # Usage
//
//	a, err := gang.New(gang.Config{Placer: state})
//	err = a.Submit(now, g)                            // or a.Apply(event) for any event
//	actions, err := a.Step(now)                       // reserve: preflight and confirm each rank
//	err = a.Confirm(now, g.ID, actions[0].Attempt, 0) // the last one starts it
//	wake, ok := a.NextWake(now)                       // call Step again then, or after an event
//
// # Order of decision
//
// Step first ends holds whose deadline has come, by time, then ID; then gives holds and
// gangs that lost or refused a node other room, by ID; then, if anything changed,
// makes one pass: it makes room for the whole of gangs whose trial went well, by ID,
// and goes along the order: higher priority, earlier submission, ID, or as the Orderer
// says. For each waiting job:
//
//  1. Quota. Without quota for its Min the job is passed over, unless 4 gets it some: nobody
//     waits behind it and nothing is kept. With quota for its Min but not for its Max it asks for its Min.
//  2. Room now, clear of windows and of what it refused, near where it was promised room.
//     If there are reservations that its stay would meet, it must fit beside their
//     room; else, exactly: with it placed, and all estimates true, does each reserved
//     gang still fit at its start? Then it may pass.
//  3. Room of due holders, beside all reservations: Admission.Due says whose.
//  4. Room and quota of running jobs, beside all reservations: Preempt says whose.
//  5. A reservation, if it would fit an otherwise empty cluster at all: Backfill says how
//     many there are and of when. A gang that can never fit (lockstep.ReasonCapacity)
//     blocks nobody.
//
// A holder whose term is over is decided at its turn; those not proposed come last, by
// ID, then those from whom room was taken, in the order in which it was. The pass ends when neither a
// waiting job can have room, since each like it was tried in vain, nor a holder is undecided: an
// orderer is not asked for the rest, and their verdicts are that of their like. It also
// ends after 100 proposals and two for each job that in a row named nobody who has a turn.
//
// # Errors
//
// New: every fault of the Config (ErrInvalid). Every call with a time: ErrPast if it
// goes back, ErrInvalid if int64 cannot hold a later one. Events: ErrUnknown for a job
// that is not there, ErrStale for another attempt or a confirm after the deadline, ErrConflict
// for a phase that does not suit; Submit and Adopt: ErrDuplicate. Repeating an event that has
// had its effect is no error. After an error nothing has changed, the time included. Restore:
// ErrInvalid. Step returns the first error of a collaborator; the actions returned with it
// stand. One of Fit, Victims or Charge concerns one gang: the pass goes on, and the next Step
// tries it again. Others end the pass. A gang for which Fit returns ErrInvalid or ErrUnknown is rejected.
//
// # Concurrency and cost
//
// Not safe for concurrent use; the caller serializes calls. Plans in actions and in Status are
// never written to again and may be shared. With Q queued, S shapes (all that decides whether a gang
// fits) among them, R holders: an event costs O(log Q + log R) and moving pointers in sorted lists,
// but Down reads all plans and Up and Open all jobs; NextWake O(reservations). A pass looks at one job of
// each shape until that fails, none that failed since room was last freed, so it is
// O(S log S + S·Fit) (BenchmarkStepAfterAnEnd); with an orderer of its own also O(1) for each proposal. EASY
// adds one search of O(R) releases and O(log R) fits a pass in which room was freed, and at most one replay of
// the holders that end before the start for each shape that outlasts it; Conservative O(Q) a pass, and
// Q·(Q+R) fits where jobs end early or late. Affinities, windows and refusals make failures a job's own:
// then O(Q·Fit). Due holders that stay cost O(1) each. PreemptOn adds, for each shape and tenant that waits below
// nobody, one listing of O(R) and one Victims until something changes (BenchmarkReclaim). Memory is O(jobs).
//
// # Limits
//
// Holds are not taken from: they have deadlines. Who waits for others to leave has none: every eviction
// must be reported. It keeps no quota for anybody: an orderer that proposes nobody of a tenant behind one
// that lacks quota does. Victims for want of quota alone are few, not fewest. Growth happens at boundaries only.
// In reservations a MIG instance keeps its whole device free. With shares of devices, promises beyond the first
// (Backfill above 1) may slip.
//
// Reservations for the first blocked job: Lifka, The ANL/IBM SP Scheduling System, JSSPP 1995
// (EASY); for all: Mu'alem and Feitelson, IEEE TPDS 2001, section 2. Give-back of victims that are not
// needed: kube-scheduler and Kueue reprieve them too; here none is left that is not.
package gang
