package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/bubble"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// points are the profile of ResNet-18 on CIFAR-10, batch 256, at an eighth of its width, on a device of 24 GiB, as
// published with Hydro (Hu et al., OSDI 2023, artifact, Apache-2.0); steps in units of 100 us.
var points = []struct{ fused, step, memory int }{
	{1, 285, 1581}, {10, 479, 2513}, {20, 778, 3515}, {25, 935, 4065}, {100, 1952, 11603}, {150, 2863, 16795}, {220, 4135, 23921},
}

// memories are what trials may hold on the devices of stages 0 to 3, in units of 1000 MiB. B is what FreeRide found
// beside a model of 1.3 B parameters on devices of 48 GB (arXiv 2409.06941).
var memories = map[string][]int{"A": {3, 9, 16, 24}, "B": {5, 12, 21, 32}}

// period is how far iterations of the simulated main job are apart.
const period = 10 * time.Second

// scenario is bubblepack-v1 with one of the memories.
func scenario(memory string, quanta int, residency bubble.Residency) (bubble.Config, error) {
	cfg := bubble.Config{
		Quanta: quanta, Residency: residency,
		Resume: 10 * time.Millisecond, Pause: 10 * time.Millisecond,
	}
	b := bubble.Bundle{ID: "resnet-18"}
	for _, p := range points {
		b.Points = append(b.Points, fusion.Point{
			Fused: p.fused, Step: time.Duration(p.step) * 100 * time.Microsecond, Memory: lockstep.Bytes(p.memory) * lockstep.MiB,
		})
	}
	cfg.Bundles = []bubble.Bundle{b}
	for _, m := range memories[memory] {
		cfg.Devices = append(cfg.Devices, bubble.Device{Memory: lockstep.Bytes(m) * 1000 * lockstep.MiB})
	}
	line, err := pipeline.New(pipeline.Config{Stages: 4, Micros: 8})
	if err != nil {
		return bubble.Config{}, err
	}
	costs := line.Uniform(150*time.Millisecond, 300*time.Millisecond, 0)
	var result pipeline.Result
	if err := line.Run(&costs, &result); err != nil {
		return bubble.Config{}, err
	}
	for stage := range cfg.Devices {
		for _, w := range result.AppendWindows(nil, stage) {
			cfg.Windows = append(cfg.Windows, bubble.Window{Stage: stage, Start: w.Start, End: w.End, Kind: w.Kind})
		}
	}
	slices.SortStableFunc(cfg.Windows, func(a, b bubble.Window) int { return int(a.Start - b.Start) })
	if len(cfg.Windows) != 15 {
		return bubble.Config{}, fmt.Errorf("%d windows, want 15", len(cfg.Windows))
	}
	return cfg, nil
}
