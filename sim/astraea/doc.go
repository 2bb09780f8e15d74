// Package astraea is a reference model of the simulator that the authors of
// ASTRAEA (Ye et al., IEEE TPDS 2022) published with their paper, as shipped, for
// comparisons. It is no scheduler: for that see the package scheduler.
//
// # Model
//
// Time goes by ticks, and all that happened since the last one happens at a tick.
// A tenant has a quota: its share of the devices, rounded down. Its account is
// kept in hours; the last 24 that are closed decide between tenants. A job's
// ratio is devices × time run over what it deserved, which grows at each tick by
// the lesser of its width and an equal part of its tenant's quota among that
// tenant's jobs. A lease ends with a release, and the job competes anew.
//
// What is odd about the artifact is odd here:
//
//   - Jobs that end and leases that lapse are taken off the list that is walked
//     along, so that the neighbour is passed over until the next tick, and a job
//     that overruns has the overrun counted as service.
//   - Submissions are seen at the next tick, and demand is sampled.
//   - What is printed of a tenant covers closed hours only: Tenant.Printed.
//     Tenant.Index covers the run.
//   - Jobs wider than their tenant's quota are dropped: Result.Dropped.
//   - Checkpoints and resumes are counted and take no time.
//
// Where the artifact divides by a quota of zero, Validate refuses it. Its modes
// that draw from unseeded randomness are left out.
//
// On the artifact's own sample and on three days of Philly every line that this
// package prints is the artifact's, byte for byte, under every order.
//
// # Usage
//
//	r, err := astraea.Run(astraea.Config{Shares: shares}, jobs)
//
// # Order of decision
//
// A tick: time passes for all jobs; jobs and tenants are rated; jobs that are
// done end, and leases that are over lapse; new jobs are let in; a pass plans how
// much each tenant may hold and then places jobs, tenant by tenant in the order
// of Config.Shares. Inside a tenant jobs that starved come first, by submission,
// then Config.Order. Ties between tenants go to the first in the list; jobs that
// are equal in all that their order looks at stay in the order in which they
// began to wait.
//
// # Errors
//
// ErrInvalid for a malformed Config or job, ErrUnknown for a job of a tenant
// without a share, ErrDuplicate for a job or tenant that occurs twice. Then there
// is no Result.
//
// # Concurrency
//
// Run is a function of its arguments.
//
// # Cost
//
// O(jobs log jobs) a tick, as in the artifact.
//
// # Limits
//
// Decisions are made with floating point numbers, because the artifact's are.
// They are the same on all platforms except where two orders of a class, which
// is taken from a logarithm, would differ in the last bit.
//
// # Sources
//
// The artifact is yzs981130/Astraea_Artifacts, commit 7ab4bac; its placement is
// "consolidate", its quotas are "fair" and "static".
package astraea
