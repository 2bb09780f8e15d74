package placement_test

import (
	"fmt"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

func cluster() *placement.State {
	tree, err := topology.Uniform(topology.UniformConfig{
		Levels: []topology.Level{{Name: "rack"}},
		Fanout: []int{2, 4},
		Shape:  topology.NVSwitch8(),
	})
	if err != nil {
		panic(err)
	}
	state, err := placement.New(tree, placement.Config{})
	if err != nil {
		panic(err)
	}
	return state
}

func Example() {
	state := cluster()
	gang := &lockstep.Gang{
		ID:       "train",
		Required: "rack",
		Roles:    []lockstep.Role{{Min: 3, Demand: lockstep.Demand{GPUs: 8}}},
	}
	var plan lockstep.Plan
	verdict, err := state.Fit(&lockstep.Request{Gang: gang}, &plan)
	fmt.Println(verdict, err)
	for rank, m := range plan.Members {
		fmt.Println(rank, m.Node, m.Devices)
	}
	fmt.Println(state.Apply(&plan), state.Jobs())
	fmt.Println(state.Release("train"), state.Jobs())
	// Output:
	// fits, 3 of 3 members in rack rack-0 <nil>
	// 0 n0 0-7
	// 1 n1 0-7
	// 2 n2 0-7
	// <nil> [train]
	// <nil> []
}

// A what-if acts on the state itself and is undone.
func ExampleState_Rollback() {
	state := cluster()
	before := state.Version()
	mark := state.Mark()
	_ = state.Cordon("n0")
	var plan lockstep.Plan
	gang := &lockstep.Gang{ID: "j", Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 8}}}}
	_, _ = state.Fit(&lockstep.Request{Gang: gang}, &plan)
	fmt.Println(plan.Members[0].Node, state.Version() > before)
	fmt.Println(state.Rollback(mark), state.Version() == before)
	// Output:
	// n1 true
	// <nil> true
}

// Explain names changes each of which would let the gang in.
func ExampleState_Explain() {
	state := cluster()
	gang := &lockstep.Gang{ID: "wide", Required: "rack", Roles: []lockstep.Role{{Min: 6, Demand: lockstep.Demand{GPUs: 8}}}}
	e, err := state.Explain(&lockstep.Request{Gang: gang})
	if err != nil {
		panic(err)
	}
	fmt.Println(e.Verdict.Reason, e.Verdict.Fit, "of", e.Verdict.Want)
	for _, c := range e.Changes {
		fmt.Println(c.Kind, c.Level, c.Amount)
	}
	// Output:
	// capacity 4 of 6
	// relax  0
	// shrink  4
	// add rack 16000
}

// Rebase follows nodes that leave and come back; allocations stay by node ID.
func ExampleState_Rebase() {
	state := cluster()
	gang := &lockstep.Gang{ID: "j", Roles: []lockstep.Role{{Min: 2, Demand: lockstep.Demand{GPUs: 8}}}}
	var plan lockstep.Plan
	_, _ = state.Fit(&lockstep.Request{Gang: gang}, &plan)
	_ = state.Apply(&plan)

	with := state.Tree()
	without, err := with.With(topology.Change{Kind: topology.Leave, Node: topology.Node{ID: "n1"}})
	if err != nil {
		panic(err)
	}
	lost, err := state.Rebase(without, nil)
	fmt.Println(lost, err)
	lost, err = state.Rebase(with, nil)
	fmt.Println(lost, err, state.Usage().Free)
	// Output:
	// [{j 1 n1}] <nil>
	// [] <nil> 48
}
