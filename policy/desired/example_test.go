package desired_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/policy"
	"github.com/lockstep-gpu/lockstep/policy/desired"
)

// A pool grows after ten seconds of need and shrinks after a minute without; its state travels with the caller.
func Example() {
	cfg := desired.Config{
		Each:    8,
		Delayed: policy.Delayed{Up: 10 * time.Second, Down: time.Minute},
		Bounded: policy.Bounded{Min: 1, Max: 16},
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	var state desired.State
	for _, c := range []desired.Counts{
		{Pending: 20, Running: 8, Ready: 1},
		{Pending: 20, Running: 8, Ready: 1},
		{Pending: 20, Running: 8, Ready: 1, Starting: 3},
	} {
		d, after, err := desired.Next(now, cfg, c, state)
		if err != nil {
			panic(err)
		}
		fmt.Println(d.Wish, "wished,", d.Desired, "desired,", d.Held)
		state, now = after, now.Add(10*time.Second)
	}
	// Output:
	// 3.5 wished, 1 desired, delayed
	// 3.5 wished, 4 desired, free
	// 3.5 wished, 4 desired, free
}
