package llm_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/serving/llm"
)

// Two requests on one replica: the prompt of the second is computed beside the output of the first.
func Example() {
	e, err := llm.New(llm.Config{
		Blocks: 100, MaxSequences: 8, TokenBudget: 300,
		Classes: []llm.Class{{TTFT: 50 * time.Millisecond, TPOT: 10 * time.Millisecond}},
		Cost:    llm.Roofline{Overhead: 2 * time.Millisecond, Token: 10 * time.Second},
	})
	if err != nil {
		panic(err)
	}
	start := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	var step llm.Step
	for _, r := range []llm.Request{{ID: 1, Prompt: 400, Output: 3}, {ID: 2, Prompt: 499, Output: 3}} {
		if _, _, err := e.Submit(now, r); err != nil {
			panic(err)
		}
	}
	for {
		if err := e.Step(now, &step); err != nil {
			panic(err)
		}
		for _, f := range step.Finished {
			fmt.Printf("request %d: first token after %v, last after %v, in time %v\n", f.ID, f.First.Sub(start), f.Last.Sub(start), f.OnTime && f.OnPace)
		}
		if !step.Busy {
			break
		}
		fmt.Println(step.Decode, step.Prefill, step.Until.Sub(now))
		now = step.Until
	}
	// Output:
	// [] [{1 0 300 false}] 5ms
	// [] [{1 300 100 true} {2 0 200 false}] 5ms
	// [1] [{2 200 299 true}] 5ms
	// [1 2] [] 2.02ms
	// request 1: first token after 10ms, last after 17.02ms, in time true
	// [2] [] 2.01ms
	// request 2: first token after 15ms, last after 19.03ms, in time true
}

// A router sends a prompt to where most of it is cached, unless too much waits there.
func ExampleRouter() {
	r, err := llm.NewRouter(llm.RouterConfig{BlockTokens: 4})
	if err != nil {
		panic(err)
	}
	for _, id := range []llm.ReplicaID{"east", "west"} {
		if err := r.Add(id); err != nil {
			panic(err)
		}
	}
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	poem, essay := make([]int32, 200), []int32{7, 7, 7, 7, 7}
	for _, prompt := range [][]int32{poem, essay, poem[:150]} {
		route, ok, err := r.Route(now, len(prompt), llm.AppendHashes(nil, 1, prompt, 4))
		if err != nil || !ok {
			panic(err)
		}
		fmt.Println(route.Replica, route.Reused)
		if _, err := r.Done(now, route.Ticket); err != nil {
			panic(err)
		}
	}
	// Output:
	// east 0
	// east 0
	// east 148
}
