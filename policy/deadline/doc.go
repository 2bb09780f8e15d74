// Package deadline admits jobs that must end by some time, so that every one that is admitted can be kept, and says
// which of them must run now for that.
//
// # Model
//
// A [Table] is for jobs that need a fixed number of devices at once. Time is cut into slots, the leases. A job needs so
// many of them, and has so many before its deadline. It is admitted if there is a plan, some slots for each job, in
// which no slot has more devices than there are; refused at once if not. A plan gives each job its latest slots, so
// that early ones stay free for those who come later, for jobs without a deadline, and for jobs to run ahead.
//
// An [Elastic] is for jobs that run on as many devices as they get. A job's minimum satisfactory share is the fewest
// with which it ends in time, beside the shares of all whose deadlines are earlier; it is admitted if everyone's
// share can be had. Shares may change over time, when those of others end.
//
// Both look at the whole plan and never at sums of device-hours, which admit jobs that do not fit beside each other.
//
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
// # Order of decision
//
// Table: a newcomer gets its latest slots with room. If it has too few, all are planned anew, by least slack, by
// earliest deadline and by most devices, each into latest and into earliest slots; then by a search of
// Config.Search steps, which finds a plan if there is one, or says that there is none (Decision.Exact). Idle
// devices go to jobs at risk by deadline, to jobs without a deadline by remaining time, to admitted jobs by deadline;
// ties end at the ID. Elastic: earliest deadline, then ID; each the fewest devices.
//
// # Sources
//
// Gao et al., "Chronus: A Novel Deadline-aware Scheduler for Deep Learning Training Jobs", SoCC 2021, and its
// authors' code: slots of 20 minutes, need and have in slots, latest slots first. There a mixed integer program
// decides; here rules of thumb and a search that stops. Gu et al., "ElasticFlow", ASPLOS 2023, section 4:
// minimum satisfactory share and progressive filling. There in slots of time, here in stretches that are exact; and
// where progressive filling fails after something changed, the plan before it is kept as long as it holds.
//
// # Errors
//
// All are *lockstep.Error: ErrInvalid for a field out of range, a deadline before 1970 or more than a million slots
// ahead; ErrDuplicate for a job that was admitted; ErrUnknown for one that was not; ErrPast for a time before one
// already seen. After an error nothing has changed. A refusal is no error, and no more is a missed deadline.
//
// # Concurrency
//
// Not safe for concurrent use; the caller serializes calls.
//
// # Cost
//
// Table: with n jobs of which each has h slots, an admission is O(n + h) where the newcomer's slots have room, and
// O(n log n + nh) where they do not, plus the search; Step is O(n log n), and as much as that where the plan broke. Elastic: an
// admission is O(n s p) with s stretches of the whole plan, at most 2n and more where jobs are interrupted, and p
// points of a job.
//
// # Limits
//
// Where devices are is placement's to say: a plan counts them. Slots are given out at their start; what becomes idle in
// the middle is given out by a further Step. An exact search over all jobs is out of reach for more than a dozen
// or two: then a refusal may be wrong (Decision.Exact is false), an admission never is. An Elastic does not keep what
// is not promised to anybody: policy/elastic gives it out.
package deadline
