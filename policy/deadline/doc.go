// Package deadline admits jobs that must end by some time, so that every one that is admitted can be kept, and says
// which of them must run now for that.
//
// # Model
//
// A [Table] is for jobs that need a fixed number of devices at once. Time is cut into slots, the leases. A job needs so
// many of them, the last perhaps in part, and has so many before its deadline. It is admitted if there is a plan, some
// slots for each job, in which no slot has more devices than there are; refused at once if not. A plan gives each job its
// latest slots, so that early ones stay free for those who come later, for jobs without a deadline, and for jobs to run ahead.
//
// An [Elastic] is for jobs that run on as many devices as they get. A job's minimum satisfactory share is the fewest
// with which it ends in time, beside the shares of all whose deadlines are earlier; it is admitted if everyone's
// share can be had. Shares may change over time, when those of others end.
//
// Both look at whole plans, never at sums of device-hours, which admit jobs that do not fit beside each other.
// Invariants: in no slot, and at no time, are more devices promised than there are. As long as devices stay, remaining
// times are exact, and the host follows Step or Shares, no admitted job misses its deadline. A refusal changes nothing.
//
// # Usage
//
//	t, err := deadline.New(deadline.Config{GPUs: 64})
//	d, err := t.Admit(now, deadline.Job{ID: "a", GPUs: 8, Remaining: 3 * time.Hour, Deadline: at})
//	if !d.Feasible { /* d.Reason, d.Earliest */ }
//
//	slot, err := t.Step(now) // at the start of each slot: slot.Run, slot.AtRisk
//
// Both are saved by Snapshot, and come back by [Restore] and [RestoreElastic].
//
// # Order of decision
//
// Table: a newcomer gets its latest slots with room. If it has too few, all are planned anew, by least slack, by
// earliest deadline and by most devices, each into latest and into earliest slots; then by a search of
// Config.Search steps, which finds a plan if there is one, or says that there is none (Decision.Exact). Idle
// devices go to jobs at risk by deadline, to jobs without a deadline by remaining time, to admitted jobs by deadline;
// ties end at the ID.
//
// Elastic: a newcomer runs on its fewest devices beside the plans that there are, if it can. If not, it and those with later
// deadlines are planned anew, earliest deadline first, then ID, each on the fewest devices; then all are; then it is
// let in beside the plans that there are on more devices than its fewest. After Ran, Finish and SetGPUs all are planned anew
// before the next answer; where that fails the plans that hold are kept.
//
// # Sources
//
// Gao et al., "Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs", SoCC 2021, and its
// authors' code: there a mixed integer program decides, and the last slot has to be whole; here rules of thumb and a search
// that stops. Gu et al., "ElasticFlow", ASPLOS 2023, section 4: there in slots of time, here in stretches that are exact; and
// where progressive filling fails after something changed, the plan before it is kept as long as it holds. benchmarks/deadline
// replays the traces of both beside what was published.
//
// # Errors
//
// All are *lockstep.Error: ErrInvalid for a field out of range, a deadline before 1970 or more than a million slots
// ahead, and a snapshot that cannot be; ErrDuplicate for a job that was admitted; ErrUnknown for one that was not; ErrPast for a
// time before one already seen. After an error nothing has changed. A refusal is no error, and no more is a missed deadline.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// Table: with n jobs of which each has h slots, an admission is O(n + h) where the newcomer's slots have room, and
// O(n log n + nh) where they do not, plus the search; Step is O(n log n), and as much as that where the plan broke.
//
// Elastic: with n jobs, p points of a job and s entries of what is free over time, at most 2n and more where jobs are
// interrupted, an admission is O(s log p + n) beside the plans that there are, and O(m s log p) where m jobs are planned
// anew. Beside 100, 1,000 and 5,000 jobs, on devices that barely do for them, an admission or a refusal takes 0.06, 1 and 8 ms,
// with 150, 1,400 and 3,400 allocations for an admission (BenchmarkElasticAdmit, BenchmarkElasticShares); plain filling takes
// 0.7, 57 and 1,500 ms (BenchmarkElasticPlain). Where there is room it takes 0.02 ms beside 5,000 (benchmarks/policy).
//
// # Limits
//
// Where devices are is placement's to say: a plan counts them. Slots are given out at their start; what becomes idle in
// the middle is given out by a further Step. An exact search over all jobs is out of reach for more than a dozen
// or two: then a refusal may be wrong (Decision.Exact is false), an admission never is. First come is first promised: where
// far more is asked for than there is, other orders meet more deadlines, of short jobs, by breaking those of large ones.
// Config.Eager admits more, since work that is done early leaves room later, and lets jobs without a deadline wait longer
// for it.
//
// An Elastic does not keep what is not promised to anybody: policy/elastic gives it out, with Dwell 0, since a job that keeps
// what it has keeps others from what they must have. What a resize costs is no part of a plan: a host whose jobs pause for it
// admits them with a deadline that is earlier by what they may lose.
package deadline
