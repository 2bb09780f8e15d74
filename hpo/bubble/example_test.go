package bubble_test

import (
	"fmt"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/bubble"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

const ms = time.Millisecond

// config is a pipeline of two stages whose bubbles are to be filled.
func config() (bubble.Config, error) {
	cfg := bubble.Config{
		Bundles: []bubble.Bundle{{ID: "resnet-18", Points: []fusion.Point{
			{Fused: 1, Step: 28500 * time.Microsecond, Memory: 1581 * lockstep.MiB},
			{Fused: 10, Step: 47900 * time.Microsecond, Memory: 2513 * lockstep.MiB},
			{Fused: 25, Step: 93500 * time.Microsecond, Memory: 4065 * lockstep.MiB},
		}}},
		Devices: []bubble.Device{
			{Memory: 80 * lockstep.GiB, Peak: 77 * lockstep.GiB},
			{Memory: 80 * lockstep.GiB, Peak: 70 * lockstep.GiB},
		},
		Quanta: 4, Resume: 10 * ms, Pause: 10 * ms,
	}
	line, err := pipeline.New(pipeline.Config{Stages: 2, Micros: 4})
	if err != nil {
		return cfg, err
	}
	costs := line.Uniform(150*ms, 300*ms, 0)
	var r pipeline.Result
	if err := line.Run(&costs, &r); err != nil {
		return cfg, err
	}
	for stage := range line.Stages() {
		for _, w := range r.AppendWindows(nil, stage) {
			cfg.Windows = append(cfg.Windows, bubble.Window{Stage: stage, Start: w.Start, End: w.End, Kind: w.Kind})
		}
	}
	return cfg, nil
}

func Example() {
	cfg, err := config()
	if err != nil {
		panic(err)
	}
	p, err := bubble.New(cfg)
	if err != nil {
		panic(err)
	}
	var windows, steps []bubble.Sample // as they were observed
	for i := range 4000 {
		off := time.Duration(i%41-20) * ms / 10
		windows = append(windows, bubble.Sample{Predicted: 300 * ms, Actual: 300*ms + 4*off})
		steps = append(steps, bubble.Sample{Predicted: 100 * ms, Actual: 100*ms + off})
	}
	if err := p.Calibrate(windows, steps); err != nil {
		panic(err)
	}
	for _, r := range p.Residents(0) {
		fmt.Println("load on stage 0:", r.Bundle, r.Fused)
	}

	w := 0 // the first window of stage 0
	start := cfg.Windows[w].Start
	fill, err := p.Begin(start, w)
	fmt.Printf("fill %v: %.1f trial-steps, chance of an overrun %.5f, %v\n", fill.Feasible, fill.Expected, fill.Miss, err)
	now := start + cfg.Resume
	for {
		q, why, err := p.MayStartQuantum(now, 0)
		if why != "" || err != nil {
			fmt.Println("pause after", now-start, "of", cfg.Windows[w].End-start, why, err)
			break
		}
		now += q.Expected // here the host runs it
	}
	found, err := p.Observe(bubble.Observation{Window: w, Start: start, End: cfg.Windows[w].End})
	fmt.Printf("%q %v %.1f\n", found, err, p.View().Steps)
	// Output:
	// load on stage 0: resnet-18 10
	// fill true: 55.0 trial-steps, chance of an overrun 0.00025, <nil>
	// pause after 273.45ms of 300ms short <nil>
	// "" <nil> 55.0
}

func ExampleBound() {
	cfg, err := config()
	if err != nil {
		panic(err)
	}
	lp, err := bubble.Bound(cfg, 0)
	fmt.Printf("%.1f %v\n", lp, err)
	best, err := bubble.Knapsack(cfg)
	fmt.Printf("%.1f %v\n", best, err)
	// Output:
	// 195.2 <nil>
	// 187.8 <nil>
}
