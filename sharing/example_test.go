package sharing_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/sharing"
)

func Example() {
	cfg, _ := sharing.ModelConfig("h100-80gb")
	g, err := sharing.NewGeometry(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	var device sharing.Occupancy
	for _, name := range []lockstep.Profile{"1g.10gb", "3g.40gb", "2g.20gb", "3g.40gb"} {
		p, _ := g.Lookup(name)
		start, ok := g.BestStart(device, p)
		if !ok {
			fmt.Println(name, "does not fit")
			continue
		}
		device, _ = g.Take(device, p, start)
		fmt.Println(name, "at", start, "leaves", device)
	}
	// Output:
	// 1g.10gb at 6 leaves 00000010
	// 3g.40gb at 0 leaves 11110010
	// 2g.20gb at 4 leaves 11111110
	// 3g.40gb does not fit
}

func ExampleGeometry_Pack() {
	cfg, _ := sharing.ModelConfig("a100-40gb")
	g, err := sharing.NewGeometry(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	one, _ := g.Lookup("1g.5gb")
	three, _ := g.Lookup("3g.20gb")
	four, _ := g.Lookup("4g.20gb")
	fmt.Println(g.Pack(nil, 0, []int{three, four}))
	fmt.Println(g.Pack(nil, 0, []int{three, four, one}))
	// Output:
	// [{4 4} {5 0}] true
	// [] false
}

func ExampleGeometry_Repartition() {
	cfg, _ := sharing.ModelConfig("a100-40gb")
	g, err := sharing.NewGeometry(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	one, _ := g.Lookup("1g.5gb")
	three, _ := g.Lookup("3g.20gb")
	held := []sharing.Held{
		{Instance: sharing.Instance{Profile: one, Start: 1}, Tenant: "notebook", Cost: 5, Return: true},
		{Instance: sharing.Instance{Profile: one, Start: 4}, Tenant: "training", Cost: 900},
		{Instance: sharing.Instance{Profile: one, Start: 5}},
	}
	var plan sharing.Repartition
	verdict, err := g.Repartition(held, []int{three}, &plan)
	fmt.Println(verdict.Feasible, err)
	for _, d := range plan.Drain {
		fmt.Println("drain", d.Tenant, "to", d.To.Start, "for", plan.Cost)
	}
	fmt.Println("destroy", plan.Destroy, "create", plan.Create, "grant", plan.Grants)
	// Output:
	// true <nil>
	// drain notebook to 5 for 5
	// destroy [{0 1}] create [{4 0}] grant [{4 0}]
}

func ExampleLimits_Admit() {
	l := sharing.Limits{Mode: sharing.MPS, Memory: 46068 * lockstep.MiB}
	tenant := sharing.Claim{Share: 40, Memory: 2000 * lockstep.MiB}
	device := l.Empty()
	for {
		after, verdict := l.Admit(device, tenant)
		if !verdict.Feasible {
			fmt.Println(device.Tenants, "tenants;", verdict)
			break
		}
		device = after
	}
	fmt.Println(l.Env(tenant))
	// Output:
	// 23 tenants; does not fit: busy, 0 of 1 members, gpu-memory asked 2000Mi free 68Mi
	// [CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=4 CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=2000M]
}

func ExampleLedger() {
	l, err := sharing.NewLedger(sharing.LedgerConfig{Capacity: 80 * lockstep.GiB})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range []sharing.Tenant{
		{ID: "serving", Request: 50 * lockstep.GiB, HardCap: 40 * lockstep.GiB},
		{ID: "batch", Request: 40 * lockstep.GiB, Opportunistic: true},
	} {
		verdict, err := l.Admit(t)
		fmt.Println(t.ID, verdict.Feasible, err)
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	_ = l.Report(now, "serving", 48*lockstep.GiB, false)
	_ = l.Report(now, "batch", 30*lockstep.GiB, false)
	fmt.Println(l.Relieve(now, nil))
	// Output:
	// serving true <nil>
	// batch true <nil>
	// [{evict batch 30Gi}] 0 <nil>
}

func ExampleLanes() {
	l, err := sharing.NewLanes(sharing.LaneConfig{Capacity: 16 * lockstep.GiB})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, id := range []lockstep.JobID{"a", "b", "c"} {
		verdict, err := l.Join(sharing.Session{ID: id, Persistent: lockstep.GiB, Ephemeral: 6 * lockstep.GiB})
		lane, _ := l.Lane(id)
		fmt.Println(id, verdict.Feasible, "lane", lane, err)
		_ = l.Ready(now, id)
	}
	fmt.Println(l.Next(now, nil))
	now = now.Add(time.Second)
	_ = l.Pause(now, "a") // it loads data: the lane is free
	fmt.Println(l.Next(now, nil))
	// Output:
	// a true lane 0 <nil>
	// b true lane 1 <nil>
	// c true lane 0 <nil>
	// [a b] <nil>
	// [c] <nil>
}

func ExamplePairs() {
	p, err := sharing.NewPairs(sharing.PackConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = p.Set("resnet50", "bert", 700, 550)
	_ = p.Set("resnet50", "gan", 600, 450)
	i, d, ok := p.Best("resnet50", []sharing.Kind{"gan", "bert"})
	fmt.Println(i, d.Rates, ok)
	for range 3 {
		d, _ = p.Observe("resnet50", "bert", 550, 400)
		fmt.Println(d.Pack, d.Bad)
	}
	// Output:
	// 1 [700 550] true
	// true 1
	// true 2
	// false 3
}

func ExampleThrottle() {
	t := sharing.Throttle{}
	rate := int64(200)
	for _, step := range []time.Duration{100, 104, 110, 103} {
		rate, _ = t.Next(rate, 100*time.Millisecond, step*time.Millisecond)
		fmt.Println(rate)
	}
	// Output:
	// 250
	// 300
	// 150
	// 200
}
