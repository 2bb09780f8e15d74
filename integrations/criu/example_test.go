package criu_test

import (
	"context"
	"fmt"

	"github.com/lockstep-gpu/lockstep/integrations/criu"
)

func ExampleImager_Probe() {
	c, err := criu.New(criu.Config{Path: "/nonexistent/criu"})
	if err != nil {
		panic(err)
	}
	caps, err := c.Probe(context.Background())
	if err != nil {
		panic(err)
	}
	fmt.Println(caps.Abilities, caps.Limits[0].Reason)
	// Output: [] no-criu
}
