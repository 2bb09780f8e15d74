package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
)

// The cluster: nodes of eight devices, leaf switches of four nodes.
const (
	perNode     = 8
	nodesOfLeaf = 4
)

// tokens of a micro-batch, one document.
const tokens = 4096

// flops is how many operations a device does in a second.
const flops = lockstep.FLOPs(400e12)

// Shapes of models. Immutable.
var (
	llama7  = perfmodel.Model{Layers: 32, Hidden: 4096, Heads: 32, FFN: 11008, Vocab: 32000, Gated: true}
	llama13 = perfmodel.Model{Layers: 40, Hidden: 5120, Heads: 40, FFN: 13824, Vocab: 32000, Gated: true}
	llama30 = perfmodel.Model{Layers: 60, Hidden: 6656, Heads: 52, FFN: 17920, Vocab: 32000, Gated: true}
	llama70 = perfmodel.Model{Layers: 80, Hidden: 8192, Heads: 64, KVHeads: 8, FFN: 28672, Vocab: 32000, Gated: true}
)

// size is a job and how many devices it runs on.
type size struct {
	name       string
	model      perfmodel.Model
	tp, pp, dp int
	micros     int // of each replica
}

func (s size) devices() int { return s.tp * s.pp * s.dp }

// sizes returns the jobs of the matrix.
func sizes() []size {
	return []size{
		{"7B", llama7, 2, 2, 2, 8},
		{"7B", llama7, 4, 2, 2, 8},
		{"13B", llama13, 4, 4, 2, 8},
		{"30B", llama30, 4, 8, 2, 16},
		{"70B", llama70, 4, 16, 4, 32},
		{"70B", llama70, 8, 8, 16, 16},
		{"70B", llama70, 8, 16, 32, 32},
		{"70B", llama70, 8, 16, 128, 32},
	}
}

// job returns the job of a size. Its times are those of the model's work at one rate.
func (s size) job() reconfig.Job {
	b := perfmodel.Batch{Tokens: tokens, Pairs: tokens * (tokens + 1) / 2}
	cost := func(st perfmodel.Stage) reconfig.Cost {
		w := s.model.Work(st, b)
		at := perfmodel.Rate{Linear: flops}
		return reconfig.Cost{Forward: w.Forward.Time(at), Backward: w.Input.Time(at), Weight: w.Weight.Time(at)}
	}
	layer := cost(perfmodel.Stage{Layers: 1, Flash: true})
	head := cost(perfmodel.Stage{Layers: 1, Last: true, Flash: true})
	head.Forward -= layer.Forward
	head.Backward -= layer.Backward
	head.Weight -= layer.Weight
	return reconfig.Job{
		Model:  s.model,
		Layout: perfmodel.Layout{TP: s.tp, PP: s.pp, DP: s.dp},
		Micros: s.micros * s.dp,
		Batch:  b,
		Flash:  true,
		Costs:  reconfig.Costs{Layer: layer, Head: head},
	}
}

// fleet returns n healthy devices.
func fleet(n int) []reconfig.Device {
	out := make([]reconfig.Device, n)
	for i := range out {
		node := i / perNode
		out[i] = reconfig.Device{
			ID:    lockstep.DeviceID(fmt.Sprintf("g%05d", i)),
			Node:  lockstep.NodeID(fmt.Sprintf("n%04d", node)),
			Leaf:  fmt.Sprintf("l%03d", node/nodesOfLeaf),
			Speed: 1,
		}
	}
	return out
}

// scenario is a kind of fault.
type scenario struct {
	name string
	// hurt returns the devices with the fault, or false where it does not apply.
	hurt func(rng *rand.Rand, devs []reconfig.Device, healthy *reconfig.Plan) ([]reconfig.Device, bool)
}

// scenarios returns the faults of the matrix.
func scenarios() []scenario {
	speed := func(v float64) func(*rand.Rand, []reconfig.Device, *reconfig.Plan) ([]reconfig.Device, bool) {
		return func(rng *rand.Rand, devs []reconfig.Device, _ *reconfig.Plan) ([]reconfig.Device, bool) {
			return slowed(devs, v, rng.IntN(len(devs))), true
		}
	}
	part := func(share float64) func(*rand.Rand, []reconfig.Device, *reconfig.Plan) ([]reconfig.Device, bool) {
		return func(rng *rand.Rand, devs []reconfig.Device, _ *reconfig.Plan) ([]reconfig.Device, bool) {
			n := int(share * float64(len(devs)))
			return slowed(devs, 0, rng.Perm(len(devs))[:n]...), n > 1
		}
	}
	return []scenario{
		{"1 dead", speed(0)},
		{"1 at .75", speed(.75)},
		{"1 at .5", speed(.5)},
		{"1 at .3", speed(.3)},
		{"0.1% dead", part(.001)},
		{"1% dead", part(.01)},
		{"5% dead", part(.05)},
		{"a node", func(rng *rand.Rand, devs []reconfig.Device, _ *reconfig.Plan) ([]reconfig.Device, bool) {
			return gone(devs, rng.IntN(len(devs)/perNode)*perNode, perNode), len(devs) > perNode
		}},
		{"a leaf", func(rng *rand.Rand, devs []reconfig.Device, _ *reconfig.Plan) ([]reconfig.Device, bool) {
			n := perNode * nodesOfLeaf
			return gone(devs, rng.IntN(max(1, len(devs)/n))*n, n), len(devs) > n
		}},
		{"one stage of all", func(rng *rand.Rand, devs []reconfig.Device, p *reconfig.Plan) ([]reconfig.Device, bool) {
			s := rng.IntN(len(p.Replicas[0].Stages))
			var ids []lockstep.DeviceID
			for _, r := range p.Replicas {
				group := r.Stages[s].Devices
				ids = append(ids, group[rng.IntN(len(group))])
			}
			return named(devs, 0, ids), true
		}},
		{"1 dead, 2 slow", func(rng *rand.Rand, devs []reconfig.Device, _ *reconfig.Plan) ([]reconfig.Device, bool) {
			at := rng.Perm(len(devs))
			return slowed(slowed(slowed(devs, 0, at[0]), .5, at[1]), .8, at[2]), true
		}},
	}
}

// slowed returns devs with some at another speed.
func slowed(devs []reconfig.Device, speed float64, at ...int) []reconfig.Device {
	out := append([]reconfig.Device(nil), devs...)
	for _, i := range at {
		out[i].Speed = speed
	}
	return out
}

// gone returns devs without life in n of them from first on.
func gone(devs []reconfig.Device, first, n int) []reconfig.Device {
	out := append([]reconfig.Device(nil), devs...)
	for i := first; i < min(first+n, len(out)); i++ {
		out[i].Speed = 0
	}
	return out
}

// named returns devs with those of these IDs at another speed.
func named(devs []reconfig.Device, speed float64, ids []lockstep.DeviceID) []reconfig.Device {
	want := map[lockstep.DeviceID]bool{}
	for _, id := range ids {
		want[id] = true
	}
	out := append([]reconfig.Device(nil), devs...)
	for i := range out {
		if want[out[i].ID] {
			out[i].Speed = speed
		}
	}
	return out
}

// left returns the sum of the speeds over the number of devices.
func left(devs []reconfig.Device) float64 {
	sum := 0.0
	for _, d := range devs {
		sum += d.Speed
	}
	return sum / float64(len(devs))
}

// over returns how fast a step is against the healthy one; 0 for a job that stands still.
func over(healthy, step time.Duration) float64 {
	if step <= 0 {
		return 0
	}
	return float64(healthy) / float64(step)
}
