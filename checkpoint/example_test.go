package checkpoint_test

import (
	"context"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/checkpointtest"
)

// A job of two ranks is saved and goes on. The driver here is one in memory.
func Example() {
	driver := checkpointtest.NewFake()
	targets := []checkpoint.Target{{PID: 100, Start: 1}, {PID: 101, Start: 1}}
	for _, t := range targets {
		driver.Add(t)
	}
	job, err := checkpoint.NewLocal(checkpoint.LocalConfig{
		Config: checkpoint.Config{Job: "job-1", Term: 1}, Targets: targets,
		Driver: driver, Saver: &saver{}, Ledger: &checkpointtest.Ledger{},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- job.Run(ctx) }()

	report, err := job.Checkpoint(ctx, checkpoint.Request{})
	fmt.Println(report, err)
	for _, r := range report.Manifest.Ranks {
		fmt.Println("rank", r.Rank, r.Bytes)
	}
	cancel()
	fmt.Println(<-ended)
	// Output:
	// epoch 1 committed <nil>
	// rank 0 2Gi
	// rank 1 2Gi
	// <nil>
}

// A Coordinator is told what happens and says what to do: any program can drive
// it from its own loop.
func ExampleCoordinator() {
	c, err := checkpoint.New(checkpoint.Config{Job: "job-1", Ranks: 1, Term: 1})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Unix(1_700_000_000, 0)
	print := func(list []checkpoint.Action, err error) {
		for _, a := range list {
			fmt.Println(a.Kind, a.Message.Kind, err)
		}
	}
	print(c.Step(now, checkpoint.Event{Kind: checkpoint.EventStart}))
	wake, _ := c.NextWake()
	fmt.Println("says it again after", wake.Sub(now))
	print(c.Step(now.Add(time.Minute), checkpoint.Event{}))
	// Output:
	// record  <nil>
	// send prepare <nil>
	// says it again after 6s
	// send abort <nil>
}

// An Agent owes its target the way back, and says so before each call.
func ExampleAgent() {
	a, err := checkpoint.NewAgent(checkpoint.AgentConfig{Job: "job-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Unix(1_700_000_000, 0)
	list, err := a.Step(now, checkpoint.Event{Kind: checkpoint.EventMessage, Message: checkpoint.Message{
		Kind: "prepare", Job: "job-1", Epoch: 1, Term: 1, Plan: checkpoint.Plan{Lock: time.Second, Silence: time.Minute, Pause: time.Hour},
	}})
	fmt.Println(list[0].Kind, list[1].Kind, err)
	list, err = a.Step(now, checkpoint.Event{Kind: checkpoint.EventDone, Op: list[1].Op, Before: checkpoint.Running, State: checkpoint.Locked})
	fmt.Println(list[0].Message.Kind, err)
	wake, _ := a.NextWake()
	list, err = a.Step(wake, checkpoint.Event{}) // no word for a minute
	fmt.Println(list[0].Kind, err)
	// Output:
	// record lock <nil>
	// ready <nil>
	// unlock <nil>
}
