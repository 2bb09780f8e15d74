// Package serve replays requests for a language model on replicas that come and
// go, one event at a time, so that rules for how many there are can be compared.
//
// # Model
//
// A [Request] goes through an llm.Router to a replica, which takes a server and
// runs an llm.Engine, iteration by iteration. A replica is asked for, waits for a
// server, loads, is ready, drains and is gone; a [Death] takes one that is ready,
// and what it had goes on elsewhere. A [Scaler] is told and asked every
// Config.Interval. What it does not need, a [Lender] lends to each training [Job]
// through a lease.Table, and recalls.
//
// Invariants: every request is finished with all of its tokens, once, or refused;
// servers of replicas and servers that are lent are never more than there are; the
// parts' GPU time is the time that replicas were there; a job has no more work
// done than it has.
//
// # Usage
//
//	requests, err := serve.ReadAzure(file)
//	result, err := serve.Run(serve.Config{Engine: engine, Servers: 64, Load: 30 * time.Second}, requests, scaler)
//	share := result.Parts[0].Attainment()
//
// # Order of decision
//
// Of events at one instant: ends of iterations, replicas that are ready, deaths,
// jobs that left, jobs that are over, jobs that come, requests, deadlines of
// recalls, the Scaler; of one kind, as they were scheduled. Requests that are held
// go to the first replica that is ready. Replicas get servers as they asked. Jobs
// borrow by when they came, then by ID; a recall empties servers in the order of
// lease.AppendReclaim.
//
// # Errors
//
// All are *lockstep.Error, or what a Scaler or the packages below return.
// ErrInvalid: a configuration, a request, a row. ErrConflict: a Scaler that leaves
// requests without an end.
//
// # Concurrency
//
// Run has no state outside; calls may be concurrent if their Scalers and Costs
// may. The result is the caller's.
//
// # Cost
//
// O(log events + requests of the replica) for each iteration; see Result.Steps.
//
// # Limits
//
// A request that a replica has stays there: a new replica helps only those that
// come. There are no prefixes to share. Servers are alike, a replica takes a whole
// one, and a job of training on n servers is n times as fast as on one. An owner
// of less than one server is not modelled. Networks take no time.
package serve
