package quota_test

import (
	"fmt"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness/quota"
)

func Example() {
	q, err := quota.New(quota.Config{
		Capacity: lockstep.Resources{lockstep.ResourceGPU: 64_000},
		Tenants:  []quota.Tenant{{ID: "vision", Weight: 3}, {ID: "speech", Weight: 1}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	gang := func(id lockstep.JobID, tenant lockstep.TenantID, members int) *lockstep.Gang {
		return &lockstep.Gang{ID: id, Tenant: tenant, Roles: []lockstep.Role{{Min: members, Demand: lockstep.Demand{GPUs: 8}}}}
	}
	// Speech may borrow what vision does not use.
	large := gang("large", "speech", 5)
	fmt.Println(q.Check(large, nil))
	if err := q.Charge(large, nil); err != nil {
		fmt.Println(err)
	}
	// No more than there is, except for what is one's own.
	fmt.Println(q.Check(gang("more", "speech", 4), nil))
	fmt.Println(q.Check(gang("own", "vision", 6), nil))
	usage, _ := q.Usage("speech")
	fmt.Println("nominal", usage.Nominal, "used", usage.Used)
	fmt.Println(q.Refund("large"))
	// Output:
	// fits, 5 of 5 members
	// does not fit: quota, 3 of 4 members, gpu asked 32 free 24
	// fits, 6 of 6 members
	// nominal gpu=16 used gpu=40
	// <nil>
}
