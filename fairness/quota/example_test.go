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

func ExampleQuota_Reclaim() {
	q, err := quota.New(quota.Config{
		Capacity: lockstep.Resources{lockstep.ResourceGPU: 16_000},
		Queues: []quota.Queue{
			{Name: "research", Weight: 1},
			{Name: "alice", Parent: "research", Weight: 1},
			{Name: "bob", Parent: "research", Weight: 1},
			{Name: "serving", Weight: 1, Guarantee: lockstep.Resources{lockstep.ResourceGPU: 4000}},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	gang := func(id lockstep.JobID, queue lockstep.QueueID, members int) *lockstep.Gang {
		return &lockstep.Gang{
			ID: id, Queue: queue, Roles: []lockstep.Role{{Min: members, Demand: lockstep.Demand{GPUs: 1}}},
			Capabilities: lockstep.Capabilities{Preemptible: true},
		}
	}
	// Alice has all but what is guaranteed to serving.
	for _, id := range []lockstep.JobID{"a1", "a2", "a3"} {
		if err := q.Charge(gang(id, "alice", 4), nil); err != nil {
			fmt.Println(err)
		}
	}
	// Serving may have its half: what research borrowed of it is 4.
	serve := gang("serve", "serving", 8)
	fmt.Println(q.Check(serve, nil))
	var c lockstep.Candidates
	q.Reclaim(serve, nil, &c)
	for _, x := range c.Jobs {
		fmt.Println("may take", x.Job, "within", c.Limits[x.Limits[0]], "of research,", c.Limits[x.Limits[1]], "of alice")
	}
	s, _ := q.Statement("research")
	fmt.Println("research: used", s.Used, "borrowed", s.Borrowed)
	// Output:
	// fits, 8 of 8 members
	// may take a3 within gpu=4 of research, gpu=8 of alice
	// may take a2 within gpu=4 of research, gpu=8 of alice
	// may take a1 within gpu=4 of research, gpu=8 of alice
	// research: used gpu=12 borrowed gpu=4
}
