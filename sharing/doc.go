// Package sharing decides whether tenants may live on one device: how MIG divides it, what shares and memory it can still
// give, who gives memory back, and who should run beside whom.
//
// # Model
//
//   - [Geometry]: where MIG instances fit on a device model. An [Occupancy] is a device, in one word; a profile is named by
//     its index. Invariant: instances share no memory slice, and however many there are, they take no more compute slices
//     and media engines than the device has.
//   - [Limits] and [Device]: shares and memory of a device without MIG, alone, in turns or under MPS. Invariant: what is
//     claimed and what is free add up, in whole MiB, to what the device has without its reserve.
//   - [Ledger]: tenants that ask for more memory than there is. Invariant: the hard caps come to at most the capacity, the
//     requests to at most Factor times that, and each tenant could use its request beside the hard caps of the others.
//     Memory is never taken from an active tenant below its hard cap, nor twice for one report.
//   - [Lanes]: iterations that take turns in the memory of a lane. Invariant: what sessions keep and the largest iteration
//     of each lane fit together, and in each lane at most one iteration runs.
//   - [Pairs]: which kinds of jobs gain from sharing; [Throttle]: how fast opportunistic ones may run beside a guaranteed one.
//
// Everything is an integer; rates and margins are thousandths.
//
// # Usage
//
//	cfg, ok := sharing.ModelConfig("h100-80gb")
//	g, err := sharing.NewGeometry(cfg)
//	p, ok := g.Lookup("3g.40gb")
//	start, ok := g.BestStart(occupancy, p)
//	occupancy, ok = g.Take(occupancy, p, start)
//
//	l := sharing.Limits{Mode: sharing.MPS, Memory: 80 * lockstep.GiB}
//	device, verdict := l.Admit(l.Empty(), sharing.Claim{Share: 500, Memory: 30 * lockstep.GiB})
//
// # Order of decision
//
// BestStart: most [Geometry.Room], then the lowest start. Repartition: least cost, fewest drained, fewest idle destroyed,
// fewest created, most room, lowest instances destroyed, lowest starts. Ledger.Relieve: idle, opportunistic, lower
// priority, more memory, ID. Lanes.Join: a new lane, the smallest that is large enough, the largest; then fewest sessions
// and lowest number. Lanes.Next: guaranteed, higher priority, least time run, ID. Pairs.Best: known, greatest sum, first.
//
// # Sources
//
// Profiles, slices and starts are NVIDIA's (Multi-Instance GPU User Guide v580, sections Supported MIG Profiles and Getting
// Started; go-nvml v0.13.4-1 has the same table for the A100). By them an A100 without the profiles "+me" and 1g with two
// memory slices can be divided in 19 ways, and in 18 without 4g beside 3g, which drivers before R510 refuse (section
// Concepts). MPS: Multi-Process Service documentation, releases 575 and 615, section When to Use MPS. Lanes: Yu and
// Chowdhury, "Salus", MLSys 2020. Guaranteed and opportunistic tenants, and memory moved to the host first: Xiao et al.,
// "AntMan", OSDI 2020; how strongly to hold back is additive increase and multiplicative decrease. Packing that is tried,
// measured and undone: Xiao et al., "Gandiva", OSDI 2018; rates by pair: Narayanan et al., "Gavel", OSDI 2020, section 3.1.
//
// # Errors
//
// All are *lockstep.Error, or what a reader or a writer returned, wrapped. ErrInvalid: a field, amount, rate or time out of
// range, instances that overlap, a broken snapshot. ErrDuplicate: a tenant, session or profile named twice. ErrUnknown: a
// tenant or session that is not in. ErrConflict: one more than there may be, or a session in another phase. ErrPast: a time
// before one already seen. That something does not fit is a verdict or a false ok. After any error nothing has changed.
//
// # Concurrency
//
// A Geometry, Limits and a Throttle are read only. Ledger, Lanes and Pairs are not safe for concurrent use; the caller
// serializes calls.
//
// # Cost
//
// A Geometry is about 22 KiB, made in about a millisecond; BestStart, Take, Give, Room, Count, Starts and Limits.Admit are O(1) and
// allocate nothing. Pack is a search over at most eight instances, Repartition one for each of at most 256 sets of them.
// With n tenants or sessions: Admit and Join O(n), Relieve O(n log n), Next O(n); a measurement of a pair O(1).
//
// # Limits
//
// It decides and never touches a device: the host creates instances, sets environments, moves memory and stops processes,
// and reports. Compute instances inside a MIG instance, graphics profiles and MPS inside MIG are not modelled. Packing looks
// at two jobs at a time.
package sharing
