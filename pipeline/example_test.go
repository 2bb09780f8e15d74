package pipeline_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// The bubbles of four stages, with backwards that take twice as long as forwards.
func Example() {
	line, err := pipeline.New(pipeline.Config{Stages: 4, Micros: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	costs := line.Uniform(1*time.Second, 2*time.Second, 0)
	var r pipeline.Result
	if err := line.Run(&costs, &r); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("makespan", r.Makespan)
	for stage := range line.Stages() {
		fmt.Println(line.Order(stage), "idle", r.Idle(stage), r.AppendWindows(nil, stage))
	}
	// Output:
	// makespan 21s
	// [F0 F1 F2 F3 B0 B1 B2 B3] idle 9s [[4s,10s) [12s,13s) [15s,16s) [18s,19s)]
	// [F0 F1 F2 B0 F3 B1 B2 B3] idle 9s [[0s,1s) [4s,8s) [13s,14s) [16s,17s) [19s,21s)]
	// [F0 F1 B0 F2 B1 F3 B2 B3] idle 9s [[0s,2s) [4s,6s) [14s,15s) [17s,21s)]
	// [F0 B0 F1 B1 F2 B2 F3 B3] idle 9s [[0s,3s) [15s,21s)]
}

// What schedules save, and what they hold for it.
func ExampleSchedule() {
	for _, cfg := range []pipeline.Config{
		{Schedule: pipeline.GPipe, Stages: 4, Micros: 8},
		{Schedule: pipeline.OneFOneB, Stages: 4, Micros: 8},
		{Schedule: pipeline.ZBH1, Stages: 4, Micros: 8},
		{Schedule: pipeline.ZBH2, Stages: 4, Micros: 8},
	} {
		line, _ := pipeline.New(cfg)
		costs := line.Uniform(1*time.Second, 1*time.Second, 1*time.Second)
		var r pipeline.Result
		if err := line.Run(&costs, &r); err != nil {
			fmt.Println(err)
		}
		fmt.Printf("%-5v idle %v, in flight %d, weights put off %d\n", cfg.Schedule, r.Idle(0), line.Peak(0), line.PeakWeights(3))
	}
	// Output:
	// GPipe idle 9s, in flight 8, weights put off 0
	// 1F1B  idle 9s, in flight 4, weights put off 0
	// ZB-H1 idle 3s, in flight 4, weights put off 4
	// ZB-H2 idle 3s, in flight 7, weights put off 7
}

// A wait that only a transfer causes is of another kind.
func ExampleResult_AppendWindows() {
	line, _ := pipeline.New(pipeline.Config{Stages: 2, Micros: 3})
	costs := line.Uniform(2*time.Second, 4*time.Second, 0)
	costs.Send, costs.Return = []time.Duration{time.Second}, []time.Duration{time.Second}
	var r pipeline.Result
	if err := line.Run(&costs, &r); err != nil {
		fmt.Println(err)
	}
	for _, w := range r.AppendWindows(nil, 1) {
		fmt.Println(w, "of which for transfers", w.Transfer, "before op", w.Next)
	}
	// Output:
	// [0s,3s) of which for transfers 1s before op 0
	// [15s,17s) of which for transfers 1s before op 4
	// [23s,28s) of which for transfers 0s before op 6
}

// Why an iteration takes as long as it does: the longest path, and how much room an op beside it has.
func ExampleResult_AppendChain() {
	line, _ := pipeline.New(pipeline.Config{Stages: 3, Micros: 2})
	costs := pipeline.Costs{
		Forward:  []time.Duration{1 * time.Second, 3 * time.Second, 1 * time.Second},
		Backward: []time.Duration{2 * time.Second, 6 * time.Second, 2 * time.Second},
	}
	var r pipeline.Result
	if err := line.Run(&costs, &r); err != nil {
		fmt.Println(err)
	}
	for _, step := range r.AppendChain(nil) {
		fmt.Printf("%d:%v ", step.Stage, step.Op)
	}
	fmt.Println(r.Makespan, "; F1 of stage 0 may end later by", r.Slack(0, 1))
	// Output:
	// 0:F0 1:F0 1:F1 1:B0 1:B1 0:B1 21s ; F1 of stage 0 may end later by 2s
}

// What the iteration would take if one stage were slower: far less than the factor, unless the stage is the bottleneck.
func ExampleResult_AppendSlowed() {
	line, _ := pipeline.New(pipeline.Config{Stages: 4, Micros: 8})
	costs := line.Uniform(10*time.Millisecond, 20*time.Millisecond, 0)
	costs.Forward[3], costs.Backward[3] = 15*time.Millisecond, 30*time.Millisecond // the loss is there
	var r pipeline.Result
	if err := line.Run(&costs, &r); err != nil {
		fmt.Println(err)
	}
	for _, stage := range []int{1, 3} {
		spans, err := r.AppendSlowed(nil, stage, pipeline.Same, 1100, 1300, 2000)
		fmt.Println(stage, spans, err)
	}
	// Output:
	// 1 [450ms 453ms 459ms 545ms] <nil>
	// 3 [450ms 486ms 558ms 810ms] <nil>
}

// Stage 1 of replica 0 is lost: the other replica runs that stage for all micro-batches.
func ExampleResult_Moved() {
	line, _ := pipeline.New(pipeline.Config{Stages: 2, Micros: 4, Replicas: 2})
	costs := line.Uniform(1*time.Second, 2*time.Second, 0)
	costs.Across = 500 * time.Millisecond
	var r pipeline.Result
	if err := line.Run(&costs, &r); err != nil {
		fmt.Println(err)
	}
	fmt.Println(r.Makespan)
	cfg, _ := r.Moved(pipeline.Move{Stage: 1, Micro: 0, Replica: 1}, pipeline.Move{Stage: 1, Micro: 1, Replica: 1})
	moved, err := pipeline.New(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := moved.Run(&costs, &r); err != nil {
		fmt.Println(err)
	}
	for stage := range moved.Stages() {
		fmt.Println(stage, moved.Order(stage))
	}
	fmt.Println(r.Makespan)
	// Output:
	// 9s
	// 0 [F0 F1 B0 B1]
	// 1 []
	// 2 [F2 F3 B2 B3]
	// 3 [F0 F2 B0 B2 F1 F3 B1 B3]
	// 15.5s
}

// Orders that can never end are refused, with the ops that wait for each other.
func ExampleDeadlockError() {
	f := func(micro int32) pipeline.Op { return pipeline.Op{Kind: pipeline.Forward, Micro: micro} }
	b := func(micro int32) pipeline.Op { return pipeline.Op{Kind: pipeline.Backward, Micro: micro} }
	_, err := pipeline.New(pipeline.Config{Micros: 2, Orders: [][]pipeline.Op{
		{f(0), b(0), f(1), b(1)},
		{f(1), f(0), b(0), b(1)},
	}})
	var deadlock *pipeline.DeadlockError
	if errors.As(err, &deadlock) {
		for _, w := range deadlock.Cycle {
			fmt.Println(w.Blocked, "waits for", w.For)
		}
	}
	// Output:
	// stage 0 op 1 (B0) waits for stage 1 op 2 (B0)
	// stage 1 op 0 (F1) waits for stage 0 op 2 (F1)
}

// A zero-bubble schedule holds a part of each activation until the weight op.
func ExampleLine_PeakBytes() {
	line, _ := pipeline.New(pipeline.Config{Schedule: pipeline.ZBH1, Stages: 4, Micros: 8})
	activations := []lockstep.Bytes{3 * lockstep.GiB, 3 * lockstep.GiB, 3 * lockstep.GiB, 3 * lockstep.GiB}
	weights := []lockstep.Bytes{lockstep.GiB, lockstep.GiB, lockstep.GiB, lockstep.GiB}
	for stage := range line.Stages() {
		peak, err := line.PeakBytes(stage, activations, weights)
		fmt.Println(stage, peak, err)
	}
	// Output:
	// 0 16Gi <nil>
	// 1 13Gi <nil>
	// 2 10Gi <nil>
	// 3 7Gi <nil>
}
