package main

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/reconfig"
	"github.com/stretchr/testify/require"
)

func testJob(tp, dp, pp, layers, micros int) (reconfig.Job, []reconfig.Device) {
	job := reconfig.Job{
		Model:  perfmodel.Model{Layers: layers, Hidden: 1024, Heads: 64, FFN: 4096, Vocab: 32000},
		Layout: perfmodel.Layout{TP: tp, DP: dp, PP: pp},
		Micros: micros,
		Costs:  reconfig.Costs{Layer: reconfig.Cost{Forward: time.Millisecond, Backward: time.Millisecond, Weight: time.Millisecond}},
	}
	devs := make([]reconfig.Device, tp*dp*pp)
	for i := range devs {
		devs[i] = reconfig.Device{
			ID: lockstep.DeviceID(fmt.Sprintf("gpu-%05d", i)), Node: lockstep.NodeID(fmt.Sprintf("node-%04d", i/tp)),
			Leaf: fmt.Sprintf("leaf-%03d", i/tp/16), Speed: 1,
		}
	}
	return job, devs
}

// Throughput of healthy, as exhaustive search over splits had it for the same rules.
func TestBaselinesAreAsStrongAsTheirRulesAllow(t *testing.T) {
	for _, c := range []struct {
		name  string
		dp    int
		lay   int
		at    []int
		speed float64
		want  map[string]float64
	}{
		{"1 dead", 2, 40, []int{4}, 0, map[string]float64{"no action": 0, "drop replica": .579, "greedy uniform (ResiHP)": .859}},
		{"1 at half", 2, 40, []int{4}, .5, map[string]float64{"no action": .623, "drop replica": .805, "greedy uniform (ResiHP)": .859}},
		{"1 at three quarters", 2, 40, []int{4}, .75, map[string]float64{"no action": .846, "greedy uniform (ResiHP)": .922}},
		{"2 dead, same stage", 2, 40, []int{4, 20}, 0, map[string]float64{"drop replica": 0, "greedy uniform (ResiHP)": .859}},
		{"2 dead, other stages", 2, 40, []int{4, 24}, 0, map[string]float64{"drop replica": 0, "greedy uniform (ResiHP)": .759}},
		{"1 dead of four replicas", 4, 32, []int{4}, 0, map[string]float64{"drop replica": .786, "greedy uniform (ResiHP)": .846}},
	} {
		job, devs := testJob(4, c.dp, 4, c.lay, 8*c.dp)
		l := layout{}
		for r := range c.dp {
			var groups [][]lockstep.DeviceID
			var layers []int
			for st := range 4 {
				var g []lockstep.DeviceID
				for k := range 4 {
					g = append(g, devs[r*16+st*4+k].ID)
				}
				groups, layers = append(groups, g), append(layers, c.lay/4)
			}
			l.numbers, l.groups, l.layers = append(l.numbers, r), append(l.groups, groups), append(l.layers, layers)
		}
		prev, ok := l.plan(job.Micros)
		require.True(t, ok)
		whole, err := reconfig.Evaluate(job, devs, prev)
		require.NoError(t, err)
		prev.Estimate, prev.Digest = whole, prev.Sum()
		for _, i := range c.at {
			devs[i].Speed = c.speed
		}
		s := situation{job, devs, prev}
		best := 0.0
		for _, b := range baselines() {
			got := 0.0
			if p, ok := b.plan(s); ok {
				e, err := reconfig.Evaluate(job, devs, p)
				require.NoError(t, err, b.name)
				got = float64(whole.Iteration) / float64(e.Iteration)
			}
			best = max(best, got)
			if want, ok := c.want[b.name]; ok {
				require.GreaterOrEqual(t, got, want-.0055, "%s: %s is no straw man", c.name, b.name)
			}
			t.Logf("%-24s %-24s %.3f", c.name, b.name, got)
		}
		p, err := reconfig.Replan(job, devs, prev, reconfig.Options{})
		require.NoError(t, err)
		ours := float64(whole.Iteration) / float64(p.Estimate.Iteration)
		t.Logf("%-24s %-24s %.3f", c.name, "ours", ours)
		require.GreaterOrEqual(t, ours, best-1e-9, c.name)
	}
}

func TestNeverBelowAnyBaseline(t *testing.T) {
	sizes := [][3]int{{4, 2, 2}, {4, 4, 4}, {8, 4, 8}}
	if !testing.Short() {
		sizes = append(sizes, [3]int{8, 8, 16}, [3]int{8, 32, 16})
	}
	for _, size := range sizes {
		job, devs := testJob(size[0], size[1], size[2], 80, size[1]*32)
		prev, err := reconfig.Replan(job, devs, nil, reconfig.Options{})
		require.NoError(t, err)
		for seed := range 10 {
			r := rand.New(rand.NewPCG(uint64(seed), uint64(len(devs))))
			hurt := append([]reconfig.Device(nil), devs...)
			for range max(1, len(devs)*[]int{1, 10, 50}[seed%3]/1000) {
				hurt[r.IntN(len(hurt))].Speed = []float64{0, 0, 0, .3, .5, .75}[r.IntN(6)]
			}
			s := situation{job, hurt, prev}
			p, err := reconfig.Replan(job, hurt, prev, reconfig.Options{})
			require.NoError(t, err)
			require.NoError(t, reconfig.Verify(job, hurt, p))
			line := fmt.Sprintf("%d devices, seed %d: ours %.4f", len(devs), seed, float64(prev.Estimate.Iteration)/float64(p.Estimate.Iteration))
			for _, b := range baselines() {
				q, ok := b.plan(s)
				if !ok {
					continue
				}
				e, err := reconfig.Evaluate(job, hurt, q)
				require.NoError(t, err)
				line += fmt.Sprintf(", %s %.4f", b.name, float64(prev.Estimate.Iteration)/float64(e.Iteration))
				if e.Iteration < p.Estimate.Iteration {
					t.Errorf("%s is better", b.name)
				}
			}
			t.Log(line)
		}
	}
}

func TestMigratingIsNeverBehindGreedyAndOutlivesADeadGroup(t *testing.T) {
	job, devs := testJob(4, 2, 4, 40, 16)
	healthy, err := reconfig.Replan(job, devs, nil, reconfig.Options{})
	require.NoError(t, err)
	for _, at := range [][]int{{4}, {4, 20}, {0, 9, 21}, {4, 5, 6, 7}} {
		s := situation{job: job, devs: slowed(devs, 0, at...), prev: healthy}
		greedy, got := s.step(greedyUniform), s.step(migrating)
		require.Positive(t, got, "%v", at)
		require.True(t, greedy == 0 || got <= greedy, "%v: %v, greedy %v", at, got, greedy)
	}
	s := situation{job: job, devs: slowed(devs, 0, 4, 5, 6, 7), prev: healthy}
	p, ok := migrating(s)
	require.True(t, ok)
	for _, m := range p.Migrations {
		require.Equal(t, 1, p.Migrations[0].Host)
		require.NotEqual(t, m.Owner, m.Host)
	}
}

func TestLeveledEvensOutOneStage(t *testing.T) {
	out := leveled([]int{8, 8}, []float64{2, 4}, 3)
	require.Len(t, out, 3, "5 on the slow one take 2.5, 11 on the fast one 2.75; with one less 3")
	require.Equal(t, reconfig.Migration{Stage: 3, Owner: 0, Host: 1, Micro: 1}, out[0])
	require.Len(t, leveled([]int{3, 5}, []float64{0, 1}, 0), 3, "all of a dead one")
	require.Empty(t, leveled([]int{4, 4}, []float64{1, 1}, 0))
}
