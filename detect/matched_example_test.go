package detect_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep/detect"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// Iteration times alone name the stage that became slower, since every iteration has
// other micro-batches and so says something else about each place.
func ExampleMatchedTest() {
	line, err := pipeline.New(pipeline.Config{Stages: 2, Micros: 4})
	if err != nil {
		fmt.Println(err)
		return
	}
	test, err := detect.NewMatched(detect.MatchedConfig{Replicas: 2, Stages: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	costs := make([]pipeline.Costs, 2)
	for r := range costs {
		costs[r] = pipeline.Costs{Forward: make([]time.Duration, 8), Backward: make([]time.Duration, 8)}
	}
	var expect detect.Expectation
	var result pipeline.Result
	for i := range 200 {
		slowest := time.Duration(0)
		for r := range costs {
			for j := range 8 { // micro-batches of different lengths, and stage 1 a little larger
				size := time.Duration(100 + (i*7+r*13+j%4*29)%60 + j/4*10)
				costs[r].Forward[j], costs[r].Backward[j] = size*time.Millisecond, 2*size*time.Millisecond
			}
		}
		if err := expect.Evaluate([]*pipeline.Line{line}, costs, nil); err != nil {
			fmt.Println(err)
			return
		}
		for r := range costs {
			if i >= 150 && r == 1 { // stage 0 of replica 1 is slow from here on
				for j := range 4 {
					costs[r].Forward[j] = costs[r].Forward[j] * 5 / 4
					costs[r].Backward[j] = costs[r].Backward[j] * 5 / 4
				}
			}
			if err := line.Run(&costs[r], &result); err != nil {
				fmt.Println(err)
				return
			}
			slowest = max(slowest, result.Makespan)
		}
		took := slowest + slowest*time.Duration(i*31%11-5)/400 // noise
		decision, err := test.Observe(took, &expect)
		if err != nil {
			fmt.Println(err)
			return
		}
		if decision.Alarm {
			fmt.Println("alarm in iteration", i)
		}
	}
	for _, s := range test.AppendSuspects(nil, 1) {
		fmt.Printf("replica %d stage %d takes %.2f times as long\n", s.Replica, s.Stage, s.Factor)
	}
	// Output:
	// alarm in iteration 152
	// replica 1 stage 0 takes 1.25 times as long
}

func ExampleChunkTest() {
	test, err := detect.NewChunks(detect.ChunkConfig{Replicas: 2, Stages: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	observed, expected := make([]time.Duration, 4), make([]time.Duration, 4)
	for i := range 100 {
		for p := range expected {
			expected[p] = time.Duration(900+(i*17+p*29)%200) * time.Millisecond
			observed[p] = expected[p] + expected[p]*time.Duration((i*37+p*11)%13-6)/500
		}
		if i >= 80 {
			observed[3] += observed[3] / 20 // stage 1 of replica 1, by 5 %
		}
		decision, err := test.Observe(observed, expected)
		if err != nil {
			fmt.Println(err)
			return
		}
		if decision.Alarm {
			fmt.Println("alarm in iteration", i)
			for _, s := range test.AppendSuspects(nil, 1) {
				fmt.Println("replica", s.Replica, "stage", s.Stage)
			}
		}
	}
	// Output:
	// alarm in iteration 82
	// replica 1 stage 1
}

// What cannot be told from iteration times is measured, cheapest first.
func ExampleAppendProbes() {
	suspects := []detect.Suspect{{Replica: 1, Stage: 2}}
	for _, p := range detect.AppendProbes(nil, suspects, 3, 4, detect.KnownTimes) {
		fmt.Println(p.Kind, p.Replica, p.Stage, p.Round)
	}
	// Output:
	// chunks -1 -1 0
	// compute 1 2 0
	// link -1 2 0
	// link -1 2 1
	// link -1 2 2
	// link 1 -1 0
	// link 1 -1 1
}
