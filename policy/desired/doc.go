// Package desired says how many workers a pool should have, as one pure function of counts and of its own state: the shape
// in which Ray takes an autoscaling policy, and in which a host that keeps its state elsewhere takes any.
//
// # Model
//
// A pool has workers that are alike: nodes, or runners of a queue's jobs. Counts say how much work there is and how many
// workers. Next makes a wish of the work, lets the decorators of package policy steady it, and returns a Decision and the
// State for the next call. Config, Counts and State are values; Next changes none of them.
//
// Invariants: the same arguments give the same results; Desired lies from Min to Max and is legal by
// Config.Bounded, or is what there is, or is what is busy; workers that start are there, so what was asked for is not asked for
// again (ray-project/ray#18925); under work that does not change, Desired comes to rest; unless Config.TakeBusy no
// worker that works is given back.
//
// # Usage
//
//	d, state, err := desired.Next(now, cfg, desired.Counts{Pending: 9, Running: 4, Ready: 3, Starting: 1}, state)
//	saved, err := json.Marshal(state)
//
// # Order of decision
//
// The wish: work over Each, and Spare. Then Hysteresis, Bounded, Delayed, RateLimited, Cooldown and Bounded as
// policy.Steady has them. Then busy workers, which stay. Which of the idle workers go is the host's: for replicas of a
// service, autoscale.CompareVictims of serving/autoscale is the order.
//
// # Errors
//
// All are *lockstep.Error. ErrInvalid: each fault of Config, Counts and State, joined, or a time out of range. ErrPast: a
// time before the state's. The state returned with an error is the one given.
//
// # Concurrency
//
// Nothing is kept; Next may be called from anywhere.
//
// # Cost
//
// O(entries of State), which are at most 64 in each of four windows.
//
// # Limits
//
// It looks at counts of this moment or, with LookBack, at means that the host makes. What serves requests under an objective has
// rules that know latency and look ahead in serving/autoscale, which is where Ray Serve's own rule is too (QueueLength).
package desired
