package fairness_test

import (
	"bytes"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
)

func Example() {
	now := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	check := func(err error) {
		if err != nil {
			fmt.Println(err)
		}
	}
	l, err := fairness.New(fairness.Config{Capacity: 8 * lockstep.WholeGPU})
	check(err)
	check(l.Join(now, "vision", 3))
	check(l.Join(now, "speech", 1))
	for _, j := range []lockstep.JobID{"s1", "s2", "v1", "v2"} {
		tenant := lockstep.TenantID("vision")
		if j[0] == 's' {
			tenant = "speech"
		}
		check(l.Submit(now, j, tenant, 4*lockstep.WholeGPU))
	}

	// A pass: 8 devices, 4 for each job.
	pass := func() {
		free := 8
		l.Begin(now)
		for {
			job, ok := l.Next()
			if !ok {
				return
			}
			if free < 4 {
				l.Outcome(job, lockstep.Blocked)
				continue
			}
			free -= 4
			l.Outcome(job, lockstep.Granted)
			check(l.Start(now, job, 4*lockstep.WholeGPU))
			fmt.Println("start", job)
		}
	}
	pass()
	now = now.Add(time.Hour)
	for _, id := range []lockstep.TenantID{"speech", "vision"} {
		s, err := l.Statement(now, id)
		check(err)
		lag := s.Lag()
		fmt.Printf("%s: entitled to %.0f GPU-s, got %.0f, is owed %.0f\n",
			id, s.Entitlement.GPUSeconds(), s.Service.GPUSeconds(), lag.GPUSeconds())
	}
	// Output:
	// start v1
	// start s1
	// speech: entitled to 7200 GPU-s, got 14400, is owed -7200
	// vision: entitled to 21600 GPU-s, got 14400, is owed 7200
}

// A ledger is saved now and then; the events since are in the log.
func ExampleRestore() {
	now := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	var log []fairness.Event
	cfg := fairness.Config{
		Capacity: 8 * lockstep.WholeGPU, DefaultWeight: 1,
		Log: func(e fairness.Event) { log = append(log, e) },
	}
	l, _ := fairness.New(cfg)
	_ = l.Submit(now, "j", "team", 4*lockstep.WholeGPU)
	var saved bytes.Buffer
	_ = l.Snapshot(&saved)
	_ = l.Start(now.Add(time.Minute), "j", 4*lockstep.WholeGPU)

	cfg.Log = nil
	r, err := fairness.Restore(cfg, &saved)
	for _, e := range log {
		if e.Seq > r.Seq() {
			err = r.Apply(e)
		}
	}
	fmt.Println(r.Seq(), err)
	s, _ := r.JobStatement(now.Add(2*time.Minute), "j")
	fmt.Println(s.Running, s.Held, s.Service.GPUSeconds())
	// Output:
	// 3 <nil>
	// true 4 240
}

func ExampleLedger_AppendReclaim() {
	l, err := fairness.New(fairness.Config{
		Capacity: 8 * lockstep.WholeGPU,
		Memory:   fairness.Memory{HalfLife: 24 * time.Hour}, // what was long ago matters little
		Payer:    fairness.PayReclaimer,
	})
	if err != nil {
		panic(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	check(l.Join(now, "vision", 1))
	check(l.Join(now, "speech", 1))
	for _, job := range []lockstep.JobID{"v1", "v2"} {
		check(l.Submit(now, job, "vision", 4*lockstep.WholeGPU))
		check(l.Start(now, job, 4*lockstep.WholeGPU))
	}

	now = now.Add(time.Hour)
	check(l.Submit(now, "s1", "speech", 4*lockstep.WholeGPU))
	victims, err := l.AppendReclaim(nil, now, "s1", 4*lockstep.WholeGPU)
	check(err)
	fmt.Println(victims)
	for _, job := range victims {
		check(l.Stop(now, job))
		check(l.Overhead(now, job, lockstep.GPUTimeOf(4*lockstep.WholeGPU, 30*time.Second), "speech"))
	}
	check(l.Start(now, "s1", 4*lockstep.WholeGPU))
	victims, err = l.AppendReclaim(nil, now, "v2", 4*lockstep.WholeGPU)
	fmt.Println(victims, err) // nobody takes back
	s, err := l.Statement(now, "speech")
	claim := s.Claim()
	fmt.Printf("%.0f %v\n", claim.GPUSeconds(), err)
	// Output:
	// [v2]
	// [] <nil>
	// -120 <nil>
}
