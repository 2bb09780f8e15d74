package astraea_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/sim/astraea"
	"github.com/lockstep-gpu/lockstep/sim/trace"
)

// Two tenants share eight devices. The second job of a lapses its lease twice.
func ExampleRun() {
	r, err := astraea.Run(astraea.Config{
		Shares: []astraea.Share{{Tenant: "a", Weight: 1}, {Tenant: "b", Weight: 1}},
		Nodes:  1, Term: 10 * time.Minute,
	}, []trace.Job{
		{ID: "a1", Tenant: "a", GPUs: 4, Duration: 5 * time.Minute},
		{ID: "a2", Tenant: "a", GPUs: 4, Duration: 25 * time.Minute},
		{ID: "b1", Tenant: "b", GPUs: 4, Submit: 65 * time.Second, Duration: 5 * time.Minute},
		{ID: "b2", Tenant: "b", GPUs: 8, Duration: time.Minute},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, j := range r.Records {
		fmt.Printf("%s ends at %v, ratio %.3f, %d leases lapsed\n", j.Job, j.End, j.Fairness, j.Expiries)
	}
	fmt.Println("dropped:", r.Dropped)
	// Output:
	// a1 ends at 5m0s, ratio 2.000, 0 leases lapsed
	// a2 ends at 25m0s, ratio 1.111, 2 leases lapsed
	// b1 ends at 10m0s, ratio 0.574, 0 leases lapsed
	// dropped: [b2]
}
