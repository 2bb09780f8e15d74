package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
)

// searching returns a searcher for some flags.
func searching(t *testing.T, args string) *searcher {
	t.Helper()
	o, err := parseFlags(strings.Fields(args), &bytes.Buffer{})
	require.NoError(t, err)
	j, err := o.job()
	require.NoError(t, err)
	return &searcher{job: j, peaks: map[peakKey]peak{}}
}

// TestLayoutsAreAllThatComeOut counts them the other way round: from degrees to numbers of GPUs.
func TestLayoutsAreAllThatComeOut(t *testing.T) {
	for _, args := range []string{"", "-model mixtral-8x7b", "-model mixtral-8x7b -batch 24 -micro 2", "-node 6 -heads 30 -hidden 3840 -ffn 11520 -batch 60", "-tp 2", "-pp 3 -batch 24"} {
		s := searching(t, args)
		want := map[int]map[string]bool{}
		experts := max(1, s.model.Experts)
		for tp := 1; tp <= s.node; tp++ {
			for pp := 1; pp <= s.model.Layers; pp++ {
				for dp := 1; dp <= 64; dp++ {
					for ep := 1; ep <= experts; ep++ {
						n := tp * pp * dp
						whole := s.node%tp == 0 || n == tp // fills nodes, or the job is less than a node
						shares := (s.batch/s.micro)%dp == 0 && dp%ep == 0 && experts%ep == 0
						fixed := (s.tp == 0 || s.tp == tp) && (s.pp == 0 || s.pp == pp)
						divides := s.model.Heads%tp == 0 && s.model.FFN%tp == 0 && (s.model.KVHeads%tp == 0 || tp%s.model.KVHeads == 0)
						if n > 64 || !whole || !shares || !fixed || !divides {
							continue
						}
						if want[n] == nil {
							want[n] = map[string]bool{}
						}
						want[n][fmt.Sprint(tp, pp, dp, ep)] = true
					}
				}
			}
		}
		for n := 1; n <= 64; n++ {
			got := map[string]bool{}
			for _, l := range s.layouts(n) {
				got[fmt.Sprint(l.TP, l.PP, l.DP, l.EP)] = true
			}
			if len(got) > 0 || len(want[n]) > 0 {
				require.Equal(t, want[n], got, "%q on %d", args, n)
			}
		}
	}
}

// TestTheBestStepIsTheShortest asks for each degree by itself: none is shorter than what is found without.
func TestTheBestStepIsTheShortest(t *testing.T) {
	for _, args := range []string{"-gpus 16 -model llama2-13b -batch 64", "-gpus 32 -model mixtral-8x7b -memory 141GB -batch 64", "-gpus 64 -model llama2-70b -batch 64"} {
		best := ask(t, strings.Fields(args)...).Best
		shortest := time.Duration(1 << 62)
		for tp := 1; tp <= 8; tp *= 2 {
			for pp := 1; tp*pp <= best.GPUs; pp *= 2 {
				var out bytes.Buffer
				err := run(append(strings.Fields(args), "-json", "-tp", fmt.Sprint(tp), "-pp", fmt.Sprint(pp)), &out)
				if errors.Is(err, errNoFit) {
					continue
				}
				require.NoError(t, err)
				one := ask(t, append(strings.Fields(args), "-tp", fmt.Sprint(tp), "-pp", fmt.Sprint(pp))...).Best
				shortest = min(shortest, one.Step.Total)
			}
		}
		require.Equal(t, shortest, best.Step.Total, args)
	}
}

func TestWhatFitsToTheByteFits(t *testing.T) {
	p := ask(t, "-headroom", "0", "-gpus", "2", "-tp", "2", "-pp", "1")
	_, most := p.Best.fullest()
	for _, c := range []struct {
		memory lockstep.Bytes
		fits   bool
	}{{most, true}, {most - 1, false}} {
		args := []string{"-headroom", "0", "-gpus", "2", "-tp", "2", "-pp", "1", "-memory", fmt.Sprint(int64(c.memory))}
		err := run(args, &bytes.Buffer{})
		if c.fits {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, errNoFit)
		}
	}
}

// The memory lines that depend on how the pipeline runs.
func TestLoadsAreThoseOfTheSchedule(t *testing.T) {
	last := func(args string) perfmodel.Memory {
		p := ask(t, strings.Fields(args)...)
		return p.Best.Stages[len(p.Best.Stages)-1].Memory
	}
	const same = " -model llama2-7b -gpus 32 -tp 8 -pp 4 -batch 8"
	one := last("-schedule 1f1b" + same)
	require.Equal(t, 8*one.Logits, last("-schedule gpipe"+same).Logits)
	require.Equal(t, 8*one.Activations, last("-schedule gpipe"+same).Activations)
	require.Equal(t, 4*one.Logits, last("-schedule zb-h1"+same).Logits)
	require.Equal(t, 2*last("-flash=false -micro 1"+same).Activations, last("-flash=false -micro 2"+same).Activations, "scores are those of each sequence")
}

// Which links a group has, by hand: ranks are numbered along TP, then DP, then PP, on nodes of eight.
func TestGroupsCrossNodesWhereTheirRanksDo(t *testing.T) {
	for _, c := range []struct {
		tp, pp, dp, ep int
		of             perfmodel.Dimension
		ranks          int
		inside, nodes  int
	}{
		{8, 1, 4, 1, perfmodel.Tensor, 8, 8, 1},
		{2, 1, 4, 1, perfmodel.Data, 4, 4, 1},   // all on one node
		{2, 1, 16, 1, perfmodel.Data, 16, 4, 4}, // four of a group on each node
		{8, 1, 4, 1, perfmodel.Data, 4, 1, 4},
		{4, 1, 3, 1, perfmodel.Data, 3, 1, 3}, // two on one node, one on another: as slow as apart
		{2, 1, 3, 1, perfmodel.Data, 3, 3, 1},
		{2, 4, 1, 1, perfmodel.Pipeline, 2, 2, 1}, // the job is one node
		{2, 8, 1, 1, perfmodel.Pipeline, 2, 1, 2}, // some pair of stages is on two
		{1, 2, 8, 1, perfmodel.Pipeline, 2, 1, 2},
		{2, 1, 16, 8, perfmodel.Expert, 8, 4, 2},
		{2, 1, 16, 4, perfmodel.Expert, 4, 4, 1},
		{2, 1, 16, 2, perfmodel.ExpertData, 8, 2, 4}, // every second replica of the data group
		{2, 1, 16, 4, perfmodel.ExpertData, 4, 1, 4},
		{2, 1, 4, 2, perfmodel.ExpertData, 2, 2, 1},
	} {
		s := searching(t, "")
		p := &plan{GPUs: c.tp * c.pp * c.dp, Layout: perfmodel.Layout{TP: c.tp, PP: c.pp, DP: c.dp, EP: c.ep}}
		got := s.group(p, perfmodel.Transfer{Dimension: c.of, Ranks: c.ranks})
		require.Equal(t, perfmodel.GroupShape{{Ranks: c.inside, Link: s.fast}, {Ranks: c.nodes, Link: s.slow}}, got, "%+v", c)
	}
}

// What one micro-batch costs on the inner one of three stages, by hand.
func TestCostsOfAStageByHand(t *testing.T) {
	for _, c := range []struct {
		recompute     string
		again         float64 // forward passes more in the backward pass
		sums, forward int     // exchanges of a layer, and how many of them are in the forward pass
	}{{"none", 0, 4, 2}, {"full", 1, 6, 2}} {
		s := searching(t, "-layers 30 -batch 8 -recompute "+c.recompute)
		p := &plan{GPUs: 24, Layout: perfmodel.Layout{TP: 8, PP: 3, DP: 1, ZeRO: 1, SequenceParallel: true, Precision: s.layout.Precision}, Micros: 8}
		costs, exchange, err := s.costs(p)
		require.NoError(t, err)
		linear, quadratic := 4096*10*404_750_336.0, 10*4*4096*(4096*4097/2.0)
		ns := func(flops float64) float64 { return flops / (8 * 400e12) * 1e9 }
		sum := 2 * (7*2000 + float64(32<<20)*7/8/450) // gathered and scattered over eight ranks
		require.InEpsilon(t, ns(linear+quadratic)+10*float64(c.forward)*sum, float64(costs.Forward[1]), 1e-5)
		require.InEpsilon(t, ns(linear*(1+c.again)+quadratic*(2.5+c.again))+10*float64(c.sums-c.forward)*sum, float64(costs.Backward[1]), 1e-5)
		require.InEpsilon(t, ns(linear), float64(costs.Weight[1]), 1e-5)
		require.InEpsilon(t, 10*float64(c.sums)*sum, float64(exchange[1]), 1e-5)
		// An eighth of 32 MiB at 50 GB/s and 8 us, each way.
		require.InEpsilon(t, 8000+float64(4<<20)/50, float64(costs.Send[1]), 1e-4)
		require.Equal(t, costs.Send, costs.Return)
	}
}

// The wire is that of the stage that sends the most, and the step waits for the slowest stage's gradients, not for all in turn.
func TestTheStepHasTheWireOfTheBusiestStage(t *testing.T) {
	for _, args := range []string{"-model llama3-8b -gpus 32 -tp 2 -pp 4 -batch 64", "-model gpt3-175b -seq 2048 -gpus 512 -tp 8 -pp 8 -zero 2 -batch 512"} {
		s := searching(t, args)
		p := ask(t, strings.Fields(args)...).Best
		var most lockstep.Bytes
		var slowest time.Duration
		for i, stage := range p.Stages {
			all, err := s.model.Transfers(nil, p.Layout, stage.Stage, s.load(), p.Micros)
			require.NoError(t, err)
			var sent lockstep.Bytes
			var sync time.Duration
			for _, x := range all {
				sent += x.Wire()
				if x.Dimension == perfmodel.Data || x.Op == perfmodel.AllReduce && x.Dimension == perfmodel.Pipeline {
					sync += s.time(p, x)
				}
			}
			most, slowest = max(most, sent), max(slowest, sync)
			if i == p.Step.Stage {
				var shown lockstep.Bytes
				for _, x := range p.Step.Wire {
					shown += x.Sent
				}
				require.Equal(t, sent, shown)
			}
		}
		var shown lockstep.Bytes
		for _, x := range p.Step.Wire {
			shown += x.Sent
		}
		require.Equal(t, most, shown, args)
		require.Equal(t, slowest, p.Step.Sync, args)
		costs, _, err := s.costs(p)
		require.NoError(t, err)
		var busiest time.Duration
		for i := range p.Stages {
			busiest = max(busiest, costs.Forward[i]+costs.Backward[i]+costs.Weight[i])
		}
		require.Equal(t, busiest*time.Duration(p.Micros), p.Step.Compute+p.Step.Exchange)
		require.Greater(t, p.Step.Compute, p.Step.Exchange)
	}
}

func TestThePageShowsTheFullestStage(t *testing.T) {
	p := &plan{}
	for i := range 20 {
		p.Stages = append(p.Stages, stage{Total: lockstep.Bytes(100 + i%7), InFlight: i})
	}
	p.Stages[11].Total = 500
	var shown []int
	for _, c := range p.columns() {
		require.Equal(t, c.from, c.to)
		shown = append(shown, c.from)
	}
	require.Equal(t, []int{0, 1, 2, 3, 11, 16, 17, 18, 19}, shown)
	text := show(t)
	require.Contains(t, text, "total  67.09")
	require.Contains(t, text, "left   7.42")
	require.Contains(t, show(t, "-model", "llama2-70b", "-gpus", "80", "-pp", "10", "-tp", "8", "-batch", "32", "-schedule", "1f1b"), "not shown; -json has all")
}
