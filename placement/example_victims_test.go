package placement_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
)

// place lets a gang of so many whole nodes in.
func place(state *placement.State, id lockstep.JobID, nodes, spares int) *lockstep.Gang {
	gang := &lockstep.Gang{ID: id, Required: "rack", Roles: []lockstep.Role{{Min: nodes, Spares: spares, Demand: lockstep.Demand{GPUs: 8}}}}
	var plan lockstep.Plan
	_, _ = state.Fit(&lockstep.Request{Gang: gang}, &plan)
	_ = state.Apply(&plan)
	return gang
}

// Victims says who has to go so that a gang fits, and where it sits then.
func ExampleState_Victims() {
	state := cluster() // two racks of four nodes
	place(state, "old", 3, 0)
	place(state, "new", 3, 0)
	gang := &lockstep.Gang{ID: "urgent", Required: "rack", Roles: []lockstep.Role{{Min: 2, Demand: lockstep.Demand{GPUs: 8}}}}
	request := &lockstep.Request{Gang: gang}
	candidates := &lockstep.Candidates{Jobs: []lockstep.Candidate{
		{Job: "old", Cost: lockstep.EvictionCost{Lost: time.Hour, Devices: 24_000}},
		{Job: "new", Cost: lockstep.EvictionCost{Lost: time.Minute, Devices: 24_000}, Min: []int{2}, Shrink: lockstep.EvictionCost{Lost: time.Second, Devices: 8_000}},
	}}
	var out lockstep.Preempted
	verdict, err := state.Victims(request, candidates, &out)
	fmt.Println(verdict.Feasible, out.Exact, err)
	for i := range out.Evictions {
		fmt.Println(out.Evictions[i].Job, out.Evictions[i].Ranks)
		_ = state.Evict(&out.Evictions[i])
	}
	request.Prefer = &out.Plan
	var plan lockstep.Plan
	verdict, err = state.Fit(request, &plan)
	fmt.Println(verdict, err)
	// Output:
	// true true <nil>
	// new [2]
	// fits, 2 of 2 members in rack rack-1 <nil>
}

// Replace puts spares in the place of members that lost their node.
func ExampleState_Replace() {
	state := cluster()
	gang := place(state, "train", 2, 1)
	_ = state.SetHealth("n1", false)
	var plan lockstep.Plan
	verdict, err := state.Replace(&lockstep.Request{Gang: gang}, &plan)
	fmt.Println(verdict, err)
	for rank, m := range plan.Members {
		fmt.Println(rank, m.Node)
	}
	fmt.Println("spare", plan.Spares[0].Node)
	fmt.Println(state.Exchange(&plan))
	// Output:
	// fits, 2 of 2 members in rack rack-0 <nil>
	// 0 n0
	// 1 n2
	// spare n3
	// <nil>
}

// Repack names moves of running jobs that let a waiting gang in.
func ExampleState_Repack() {
	state := cluster()
	place(state, "a", 2, 0)
	place(state, "b", 1, 0)
	place(state, "c", 3, 0)
	gang := &lockstep.Gang{ID: "wide", Required: "rack", Roles: []lockstep.Role{{Min: 2, Demand: lockstep.Demand{GPUs: 8}}}}
	goal := &placement.Goal{Request: &lockstep.Request{Gang: gang}, Jobs: []placement.Movable{{Job: "a"}, {Job: "b"}, {Job: "c"}}}
	var moves placement.Moves
	verdict, err := state.Repack(goal, &moves)
	fmt.Println(verdict.Feasible, err)
	for i := range moves.Moves {
		fmt.Println(moves.Moves[i].Job, moves.Moves[i].From.Members[0].Node, "to", moves.Moves[i].To.Members[0].Node)
		_ = state.Exchange(&moves.Moves[i].To)
	}
	fmt.Println(state.Adopt(&moves.Plan))
	// Output:
	// true <nil>
	// b n2 to n7
	// <nil>
}
