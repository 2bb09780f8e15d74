package rendezvous_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/reconfig/rendezvous"
)

// A job that runs on 2 to 3 nodes loses one, goes on with the others, and grows again.
func Example() {
	m, err := rendezvous.New(rendezvous.Config{Min: 2, Max: 3, Silence: rendezvous.Never})
	if err != nil {
		panic(err)
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	step := func(at time.Duration, c rendezvous.Call) {
		events, err := m.Step(nil, start.Add(at), c)
		if err != nil {
			fmt.Println(err)
		}
		for _, e := range events {
			fmt.Print(e.Time.Sub(start), " ", e.Kind, " ", e.Number, " ", e.Cause, e.Node)
			if e.Round != nil {
				for rank, n := range e.Round.Members {
					fmt.Print(" ", rank, "=", n.Node)
				}
			}
			fmt.Println()
		}
	}
	join := func(at time.Duration, node lockstep.NodeID) {
		step(at, rendezvous.Call{Kind: rendezvous.Join, Node: node, Slots: 8})
	}
	join(0, "a")
	join(time.Second, "b")
	join(2*time.Second, "c") // Max: no need to wait for more
	step(time.Hour, rendezvous.Call{Kind: rendezvous.Leave, Node: "a"})
	step(time.Hour+time.Second, rendezvous.Call{Kind: rendezvous.Retry}) // the scheduler pays for a restart
	step(time.Hour+time.Minute, rendezvous.Call{})                       // the last call ended on the way
	join(2*time.Hour, "d")
	// Output:
	// 2s formed 1  0=a 1=b 2=c
	// 1h0m0s stopped 1 lefta
	// 1h0m31s formed 2  0=c 1=b
	// 2h0m0s stopped 2 grow
	// 2h0m0s formed 3  0=c 1=b 2=d
}
