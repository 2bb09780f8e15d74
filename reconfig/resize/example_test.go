package resize_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/reconfig/resize"
)

// A job of 96 samples a step keeps its batch when it shrinks, and its place in the
// data.
func ExampleElastic() {
	e := resize.Elastic{Global: 96, Micro: 4, Replicas: 8}
	fmt.Println("possible:", e.Sizes())
	b, v, err := e.At(6, 0)
	if err != nil || !v.Feasible {
		fmt.Println(v, err)
		return
	}
	fmt.Println("micro-batches of each replica:", b.Split)

	c := resize.Cursor{Epoch: 2, Consumed: 960, Step: 30}
	step, next, _ := c.Take(b.Global, 1000)
	parts, _ := resize.Deal(step, e.Micro, b.Split)
	fmt.Println("replica 2 takes", parts[2])
	fmt.Println("then", next)
	// Output:
	// possible: [1 2 3 4 6 8]
	// micro-batches of each replica: [4 4 4 4 4 4]
	// replica 2 takes [{2 992 8} {3 0 8}]
	// then {3 56 31}
}

// Growing by half costs ten minutes, and the size will last for an hour.
func ExampleGuard() {
	g := resize.Guard{}
	v, _ := g.Allow(resize.Change{
		Old:   resize.Pace{Samples: 512, Step: 3 * time.Second},
		New:   resize.Pace{Samples: 512, Step: 2 * time.Second},
		Pause: 10 * time.Minute,
		Since: 2 * time.Hour,
	})
	fmt.Println(v.Feasible)
	// Output: true
}
