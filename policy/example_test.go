package policy_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/policy"
)

// A served model's replicas follow its load: no flapping at the edge, a fall only after ten quiet minutes.
func Example() {
	s := policy.Steady{
		Hysteresis: policy.Hysteresis{DownFraction: 0.1},
		Delayed:    policy.Delayed{Up: 30 * time.Second, Down: 10 * time.Minute, FirstAtOnce: true},
		Bounded:    policy.Bounded{Max: 8},
	}
	now, have := time.Unix(0, 0).UTC(), 0
	for _, load := range []struct {
		after   time.Duration
		ongoing float64
	}{{0, 9}, {10 * time.Second, 9}, {20 * time.Second, 9}, {time.Minute, 4}, {10 * time.Minute, 4}} {
		now = now.Add(load.after)
		want, err := policy.DemandOf(load.ongoing, 4)
		if err != nil {
			fmt.Println(err)
			return
		}
		v, err := s.Step(now, have, want)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s demand %v: %d -> %d (%v)\n", now.Format("15:04:05"), want, have, v.Target, v.Held)
		have = v.Target // what still starts is had
	}
	// Output:
	// 00:00:00 demand 2.25: 0 -> 1 (delayed)
	// 00:00:10 demand 2.25: 1 -> 1 (delayed)
	// 00:00:30 demand 2.25: 1 -> 3 (free)
	// 00:01:30 demand 1: 3 -> 3 (delayed)
	// 00:11:30 demand 1: 3 -> 2 (hysteresis)
}

// The fast path answers at once; the solver's better plan is taken if it is back in time, fits, and nothing has happened since.
func ExampleSeam() {
	const capacity = 8
	fits := func(devices int) error {
		if devices > capacity {
			return errors.New("does not fit")
		}
		return nil
	}
	s, err := policy.NewSeam(policy.SeamConfig[int]{Budget: time.Second, Check: fits})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Unix(0, 0)
	answer := func(after time.Duration, version uint64, devices int) {
		_, _ = s.Fast(now, version, 4, 4)
		ask, _, _ := s.Ask(now, version)
		now = now.Add(after)
		o, err := s.Answer(now, version, policy.Proposal[int]{Ask: ask, Plan: devices, Score: int64(devices)})
		fmt.Println(o, err)
	}
	answer(time.Second, 1, 6)
	answer(time.Second+1, 2, 6)
	answer(0, 3, 9)
	answer(0, 4, 3)
	fmt.Printf("%+v\n", s.State().Counts)
	// Output:
	// adopted <nil>
	// late <nil>
	// infeasible does not fit
	// worse <nil>
	// {Adopted:1 Unasked:0 Late:1 Stale:0 Infeasible:1 Worse:1}
}
