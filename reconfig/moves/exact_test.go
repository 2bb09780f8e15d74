package moves_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/lockstep-gpu/lockstep/reconfig/moves"
)

// cell is one parameter of a part of a block.
type cell struct {
	part  moves.Part
	block moves.Block
	at    int64
}

// cells returns who has each parameter, by index of the device.
func cells(devs []reconfig.Device, holdings []moves.Holding, live bool) map[cell][]int {
	out := map[cell][]int{}
	for _, h := range holdings {
		at := slices.IndexFunc(devs, func(d reconfig.Device) bool { return d.ID == h.Device })
		if live && devs[at].State == reconfig.Down {
			continue
		}
		for _, s := range h.Shards {
			for i := s.First; i < s.End(); i++ {
				c := cell{s.Part, s.Block, i}
				out[c] = append(out[c], at)
			}
		}
	}
	return out
}

// amounts are bytes over the links, from the slowest.
type amounts [4]int64

// least tries every source for every receiver: a holder, the store where there is no
// holder, or another receiver that gets it before.
func least(devs []reconfig.Device, holders, receivers []int) amounts {
	best := amounts{1 << 40}
	source := make([]int, len(receivers)) // index in holders, then in receivers, then -1 for the store
	var try func(i int)
	try = func(i int) {
		if i == len(receivers) {
			if a, ok := price(devs, holders, receivers, source); ok && slices.Compare(a[:], best[:]) < 0 {
				best = a
			}
			return
		}
		if len(holders) == 0 {
			source[i] = -1
			try(i + 1)
		}
		for s := range len(holders) + len(receivers) {
			source[i] = s
			try(i + 1)
		}
	}
	try(0)
	return best
}

// price counts what goes over each link; false if someone waits for himself.
func price(devs []reconfig.Device, holders, receivers, source []int) (amounts, bool) {
	var a amounts
	for i, r := range receivers {
		from := source[i]
		switch {
		case from < 0:
			a[0]++
			continue
		case from < len(holders):
			from = holders[from]
		default:
			steps := 0
			for at := source[i]; at >= len(holders); at = source[at-len(holders)] {
				if steps++; steps > len(receivers) {
					return a, false
				}
			}
			from = receivers[from-len(holders)]
		}
		switch x, y := devs[r], devs[from]; {
		case x.Leaf != y.Leaf:
			a[1]++
		case x.Node != y.Node:
			a[2]++
		default:
			a[3]++
		}
	}
	return a, true
}

func TestMovesAreTheExactMinimum(t *testing.T) {
	n := 160
	if testing.Short() {
		n = 30
	}
	known := map[string]amounts{}
	relayed := 0
	for seed := range uint64(n) {
		rng := rand.New(rand.NewPCG(seed, 2))
		job := tinyJob(rng)
		if seed%5 == 4 {
			job = oddJob(rng)
		}
		x := newTransitionOf(t, rng, job, tinyFleet(3, 2, 2), true)
		have := cells(x.devs, x.have, true)
		if x.moves.Restore {
			have = map[cell][]int{}
		}
		one, err := x.job.Layout.Precision.States(1, 0, 1)
		require.NoError(t, err)
		bytes := map[moves.Part]int64{moves.Parameters: int64(one.Weights), moves.Optimizer: int64(one.Optimizer + one.Master)}
		var want amounts
		kept, missing := int64(0), int64(0)
		for c, users := range cells(x.devs, x.want, false) { // a sum does not depend on order
			var receivers []int
			for _, u := range users {
				if slices.Contains(have[c], u) {
					kept += bytes[c.part]
				} else {
					receivers = append(receivers, u)
					missing += bytes[c.part]
				}
			}
			if len(receivers) == 0 {
				continue
			}
			key := fmt.Sprint(have[c], receivers)
			if _, ok := known[key]; !ok {
				known[key] = least(x.devs, have[c], receivers)
			}
			for i, v := range known[key] {
				want[i] += v * bytes[c.part]
			}
		}
		got := x.moves.Traffic
		require.Equal(t, want, amounts{int64(got.Store), int64(got.Fabric), int64(got.Leaf), int64(got.Node)}, "seed %d", seed)
		require.Equal(t, missing, int64(got.Total()), "seed %d: no byte arrives twice", seed)
		require.Equal(t, kept, int64(x.moves.Kept))
		for _, p := range x.moves.Phases[:min(1, len(x.moves.Phases))] {
			relayed += len(p.Transfers)
		}
	}
	t.Logf("%d transitions, %d different questions", n, len(known))
	require.NotZero(t, relayed)
}

func TestHeldCoversTheModelAndAgreesWithPerfmodel(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 3))
		job, devs := tinyJob(rng), tinyFleet(4, 4, 2)
		if seed%2 == 1 {
			job = oddJob(rng)
		}
		p := randomPlan(rng, job, devs)
		held, err := moves.Held(job, p)
		require.NoError(t, err)
		require.True(t, slices.IsSortedFunc(held, func(a, b moves.Holding) int { return cmp.Compare(a.Device, b.Device) }))
		of := map[lockstep.DeviceID][]moves.Shard{}
		for _, h := range held {
			of[h.Device] = h.Shards
		}
		for i, r := range p.Replicas {
			for j, s := range r.Stages {
				l := job.Layout
				l.TP, l.PP, l.DP = len(s.Devices), 1, len(p.Replicas)
				stage := perfmodel.Stage{Layers: s.Layers(), First: j == 0, Last: j == len(r.Stages)-1}
				m, err := job.Model.Memory(l, stage, perfmodel.Load{Tokens: 1})
				require.NoError(t, err)
				for _, id := range s.Devices {
					states, slack := m.Weights+m.Optimizer+m.Master, lockstep.Bytes(0)
					if job.Layout.ZeRO > 0 && len(p.Replicas) > 1 { // a division rounds in each run of parameters
						slack = lockstep.Bytes(14 * 8 * (s.Layers() + 2) * 5)
					}
					got := sizeOf(job, of[id])
					require.InDelta(t, int64(states), int64(got), float64(slack), "seed %d replica %d stage %d", seed, i, j)
				}
			}
		}
		requireWhole(t, job, p, of, seed)
	}
}

// requireWhole checks that all of a model is there: in every replica where nothing is
// divided among replicas, in all of them together where it is.
func requireWhole(t *testing.T, job reconfig.Job, p *reconfig.Plan, of map[lockstep.DeviceID][]moves.Shard, seed uint64) {
	count := func(part moves.Part, replicas ...reconfig.Replica) int64 {
		seen := map[cell]bool{}
		for _, r := range replicas {
			for _, s := range r.Stages {
				for _, id := range s.Devices {
					for _, sh := range of[id] {
						for i := sh.First; sh.Part == part && i < sh.End(); i++ {
							seen[cell{part, sh.Block, i}] = true
						}
					}
				}
			}
		}
		return int64(len(seen))
	}
	total := job.Model.Parameters(job.Model.Whole())
	require.Equal(t, total, count(moves.Parameters, p.Replicas...), "seed %d", seed)
	require.Equal(t, total, count(moves.Optimizer, p.Replicas...), "seed %d", seed)
	if ep := max(1, job.Layout.EP); job.Layout.ZeRO == 0 {
		for i := 0; i+ep <= len(p.Replicas); i += ep {
			require.Equal(t, total, count(moves.Optimizer, p.Replicas[i:i+ep]...), "seed %d replica %d", seed, i)
		}
	}
}
