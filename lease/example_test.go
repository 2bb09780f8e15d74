package lease_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/lease"
)

func Example() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	table, err := lease.New(lease.Config{Term: time.Hour})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, job := range []lockstep.JobID{"a", "b"} {
		if _, err := table.Grant(now, job, 4*lockstep.WholeGPU, 0); err != nil {
			fmt.Println(err)
			return
		}
	}
	now, _ = table.NextWake(now)
	for _, l := range table.AppendDue(nil, now) {
		// Here the admission pass decides; say that a may stay and b may not.
		if l.Job == "a" {
			l, err = table.Extend(now, l.Job)
		} else {
			l, err = table.Yield(now, l.Job, now.Add(time.Minute), "fair-share")
		}
		fmt.Println(l.Job, l.Token, l.State, l.Boundary.Format(time.TimeOnly), err)
	}
	charge, err := table.Release(now.Add(30*time.Second), "b", 2)
	fmt.Println(charge.Job, charge.To.Sub(charge.From), charge.Reason, err)
	_, err = table.Renew(now.Add(31*time.Second), "b", 2)
	fmt.Println(err)
	// Output:
	// a 1 held 14:00:00 <nil>
	// b 2 yielding 13:00:00 <nil>
	// b 1h0m30s fair-share <nil>
	// lease: renew: token = 2: b holds no lease any more
}

func ExampleConfig_TermFor() {
	cfg := lease.Config{Term: 10 * time.Minute, Loss: 20_000}
	fmt.Println(cfg.TermFor(25*time.Second), cfg.TermFor(5*time.Second))
	// Output: 20m50s 10m0s
}

func ExampleTable_Save() {
	ctx, store := context.Background(), &lease.Memory{}
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	table, _ := lease.New(lease.Config{})
	_, _ = table.Grant(now, "a", lockstep.WholeGPU, 0)
	rev, err := table.Save(ctx, store, "leases", 0)
	fmt.Println(rev, err)

	after, rev, err := lease.Load(ctx, store, "leases")
	l, ok := after.Get("a")
	fmt.Println(l.Token, ok, rev, err)
	// Output:
	// 1 <nil>
	// 1 true 1 <nil>
}

func ExampleTable_Recall() {
	now := time.Date(2026, 1, 1, 22, 0, 0, 0, time.UTC)
	table, err := lease.New(lease.Config{})
	if err != nil {
		panic(err)
	}
	// At night inference expects to need 10 of its 20 devices, and wants a fifth more.
	spare := lease.Loanable(20*lockstep.WholeGPU, 10*lockstep.WholeGPU, 200_000)
	if _, err := table.Lend(now, "night", "inference", spare, 2*time.Minute); err != nil {
		panic(err)
	}
	if _, err := table.Borrow(now, "train", "night", 6*lockstep.WholeGPU, 0, time.Minute); err != nil {
		panic(err)
	}

	now = now.Add(8 * time.Hour)
	loan, err := table.Recall(now, "night", 4*lockstep.WholeGPU, now.Add(5*time.Minute))
	if err != nil {
		panic(err)
	}
	fmt.Println("lent", loan.Amount, "short of", loan.Short)
	for _, l := range table.AppendDue(nil, now) {
		if _, err := table.Shrink(now, l.Job, l.Amount-loan.Short, loan.Deadline, lease.ReasonRecalled); err != nil {
			panic(err)
		}
	}
	if _, _, err := table.Resize(now.Add(time.Minute), "train", 4*lockstep.WholeGPU); err != nil {
		panic(err)
	}
	loan, _ = table.Loan("night")
	fmt.Println("lent", loan.Amount, "short of", loan.Short)
	// Output:
	// lent 6 short of 2
	// lent 4 short of 0
}
