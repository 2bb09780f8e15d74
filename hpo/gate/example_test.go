package gate_test

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/lockstep-gpu/lockstep/hpo/gate"
)

// It has no Output, as it wants a trial to start.
func Example() {
	g, err := gate.New(gate.Config{Name: "trial-7", Command: exec.Command("python3", "trial.py"), Socket: "/run/lockstep/trial-7"})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- g.Run(ctx) }()

	bubble := time.Now().Add(40 * time.Millisecond)
	fmt.Println(g.Open(1, bubble))
	fmt.Println(g.Close(1)) // when the main job is back, or not at all
	fmt.Println(g.Quiesced())

	cancel()
	fmt.Println(<-done)
}

// A trial asks before each step.
func ExampleHook() {
	ctx := context.Background()
	h, err := gate.Dial(ctx, gate.HookConfig{Settle: func() error { return nil /* synchronise the device */ }})
	if err != nil {
		fmt.Println(err)
		return
	}
	for h.Next(ctx, 4*time.Millisecond) == nil {
		fmt.Println("a step of at most 4 ms")
	}
}

// A window is opened for a trial that has a hook, and runs out; the hook does not say that
// it is quiet.
func ExampleMachine() {
	m, err := gate.NewMachine(gate.MachineConfig{Patience: 50 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	at := func(now time.Duration, e gate.Event) {
		actions, err := m.Step(now, e)
		if err != nil {
			fmt.Println(err)
		}
		for _, a := range actions {
			fmt.Println(now, a.Kind)
		}
	}
	at(time.Second, gate.Event{Kind: gate.EventConnected})
	at(2*time.Second, gate.Event{Kind: gate.EventOpen, Epoch: 1, Until: 3 * time.Second})
	for {
		next, ok := m.NextWake()
		if !ok {
			break
		}
		at(next, gate.Event{Kind: gate.EventTick})
	}
	at(4*time.Second, gate.Event{Kind: gate.EventPaused, Op: 1})
	fmt.Println(m.Quiesced())
	// Output:
	// 2s open
	// 3.05s pause
	// true
}
