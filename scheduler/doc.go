// Package scheduler is the reference composition: it puts placement, gang
// admission, a policy, quota, leases and lifecycle together into one scheduler,
// which decides and leaves all doing to its host. The simulator, the examples and
// integrations share it; a host with other needs copies it and changes
// scheduler.go, which is the wiring, in about 150 lines.
//
// # Model
//
// What the host observes goes in as events, what it is to do comes out as
// actions. Each event is put to gang admission first, which accepts or refuses
// it; then lifecycle, the policy and the lease table are told. In a Step
//
//   - the holders whose term is over are put up for decision, together on a grid
//     of times (Config.Round), so that wide gangs see much room at once;
//   - one admission pass walks along the policy's order: who waits is granted
//     room, also where less deserving holders sit; holders stay, or must go;
//   - each decision is recorded: a lease is granted, extended in place, or to be
//     given back, and lifecycle makes the move that the action stands for.
//
// A Rule is a ready made policy. Under LTGF (long-term GPU-time fairness, after
// Ye et al., "ASTRAEA", IEEE TPDS 2022) the next tenant is the one that is owed
// most by an exact ledger, and the next job is Config.Inside's first of that tenant.
//
// Invariants: no device has two holders; admission, lifecycle, leases and policy
// agree about every job; a job that stays when its term ends pays nothing; a
// tenant's account is charged from when devices are reserved until they are
// clean; like inputs lead to like decisions, across a restart as well.
//
// # Usage
//
//	s, err := scheduler.New(scheduler.Config{Tree: tree, Weights: weights})
//	err = s.Apply(lockstep.Event{Kind: lockstep.EventSubmit, Time: now, Gang: g})
//	actions, err := s.Step(now) // and again when s.NextWake says so
//
// Scheduler.Run is a driver that does this for a channel of events.
//
// # Order of decision
//
// LTGF: tenants with a weight before those without; more lag first, as it would
// stand after Config.Horizon; then tenant ID. Inside a tenant shortest remaining
// time, then submission, then job ID. FIFO, SRTF and LAS as policy/order says.
// Static: by submission, then job ID, over the tenants that have quota for their
// foremost job; one that has none lets nobody of its tenant pass. Who of the
// holders goes, and who may pass a blocked job, gang says.
//
// With Config.Floor, LTGF looks at each job's expected index: its service over what it
// deserves (an equal part of its tenant's quota, or what it wants), if it ran on for a
// quantum, or for what its walltime leaves. Jobs that wait and expect less than the
// floor go first, the least first, and only they displace: holders whose first term is
// over and that expect more, also when that is cut by the hysteresis, the widest first.
// What is free goes to the others by what their tenants are owed, within a band, and of
// those the job that expects least. A job's index at its end is at least what it expected
// at its start if it runs for the quantum, so little is gained by displacing sooner.
//
// A pass ends early where no device is free, no holder competes and neither
// Config.Preempt nor Config.Forecasts is on. Then nothing could be granted, and nobody
// has a reservation until something is free.
//
// # Lag
//
// Without a floor, and where the job of the tenant that is owed most finds room once
// terms have ended, no tenant's lag exceeds n·C·(Horizon + 3·(Term + Round + Save)) + W,
// for n tenants on C devices and W the device-time that was wanted and not held. Within
// T = Term + Round + Save of a grant, its holder is decided anew or has left. So whoever
// holds devices while p waits was granted them when it was owed, over the horizon, no
// less than p, up to C·Horizon; since then its lag fell by C·T at most, p's rose by C·T at
// most, and a wide gang may wait one more round of terms. Hence while a lag exceeds
// K = C·(Horizon + 3·T) all who hold anything are owed something; then the sum of all
// positive lags cannot grow, but by waste; and before it was n·K at the most. A property
// test of package sim holds runs to it; there the greatest lag is about 0.4 K.
//
// # Errors
//
// All are *lockstep.Error. An event is refused, and nothing has changed, with
// ErrInvalid (malformed), ErrDuplicate (a job that has not left), ErrUnknown (a
// tenant without a weight, a job or node that is not there), ErrStale and
// ErrConflict (it does not suit the job's state) and ErrPast (time went backwards;
// Run takes such an event as of now). Any other error is a fault of a part or of a
// Policy: the actions returned with it stand.
//
// # Restart
//
// Snapshot saves all parts; Config.Log is given each input to store. Restore and
// Replay of the inputs behind the snapshot lead to the same decisions, bit for bit.
//
// # Live platforms
//
// A scheduler that comes to a cluster in use is told what runs with Adopt, and
// what others own with Occupy, before its first Step; so is one that was restarted
// without its snapshot. Nodes that join, leave or change come in with Rebase. All
// of these are in the log.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls. Only Run reads a
// clock, and it starts no goroutine.
//
// # Cost
//
// An event costs O(log jobs) in each part. A Step costs what its pass proposes:
// the waiting jobs, while devices are free, and the holders whose terms are over.
// LTGF adds O(tenants) a pass. About 2.5 KiB a job; jobs that have left are
// forgotten beyond Config.Retain.
//
// # Limits
//
// An adopted job's use before it was adopted is charged to nobody. A failed job
// comes back by lifecycle's rules, with its place in the order lost. Before their terms end
// holders go for Config.Preempt, and by EventDue, only.
package scheduler
