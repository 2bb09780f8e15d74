package dag_test

import (
	"fmt"

	"github.com/lockstep-gpu/lockstep/lifecycle/dag"
)

func Example() {
	run, err := dag.New(dag.Config{Steps: []dag.Step{
		{ID: "prepare"},
		{ID: "environment"},
		{ID: "train", After: []dag.Edge{{Step: "prepare"}, {Step: "environment"}}, Retries: 1},
		{ID: "evaluate", After: []dag.Edge{{Step: "train"}}},
		{ID: "save", After: []dag.Edge{{Step: "evaluate"}}},
		{ID: "notify", After: []dag.Edge{{Step: "save", When: dag.Always}, {Step: "train", When: dag.Always}}},
	}})
	if err != nil {
		panic(err)
	}
	// The host runs each step as a job. Here the first attempt to train fails.
	tries := 0
	for ready := run.AppendReady(nil); len(ready) > 0; ready = run.AppendReady(nil) {
		id := ready[0]
		inputs, _ := run.AppendInputs(nil, id)
		attempt, err := run.Start(id)
		if err != nil {
			panic(err)
		}
		end, out := dag.Success, []dag.Output{{Name: "path", Value: "/out/" + string(id)}}
		if tries++; id == "train" && tries == 3 {
			end, out = dag.Failure, nil
		}
		answer, err := run.Finish(id, attempt, end, out)
		if err != nil {
			panic(err)
		}
		fmt.Println(id, end, answer, "from", inputs)
	}
	fmt.Println(run.Result())
	// Output:
	// prepare success ended from []
	// environment success ended from []
	// train failure again from [{prepare path /out/prepare} {environment path /out/environment}]
	// train success ended from [{prepare path /out/prepare} {environment path /out/environment}]
	// evaluate success ended from [{train path /out/train}]
	// save success ended from [{evaluate path /out/evaluate}]
	// notify success ended from [{save path /out/save} {train path /out/train}]
	// succeeded true
}
