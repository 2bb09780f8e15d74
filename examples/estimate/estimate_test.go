package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// show runs the command and returns what it prints.
func show(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, run(args, &out))
	return out.String()
}

// printed is what -json prints, read back.
type printed struct {
	Model   perfmodel.Model
	Device  lockstep.Bytes
	Reserve lockstep.Bytes
	Best    *plan
	Nearest *plan
	Wider   []wider
}

func ask(t *testing.T, args ...string) (p printed) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(show(t, append(args, "-json")...)), &p))
	return p
}

func TestSevenBillionNeedTwoDevices(t *testing.T) {
	text := show(t)
	for _, want := range []string{
		"llama2-7b: 6,738,415,616 parameters",
		"alone on a device 107.81 GB",
		"2 GPUs as TP 2 x PP 1 x DP 1, ZeRO 1",
		"optimizer  25.10",
		"fewer: 1 GPU as TP 1 x PP 1 x DP 1, ZeRO 1: stage 0 needs 125.72 GiB",
		"time: compute",
	} {
		require.Contains(t, text, want)
	}
	require.Equal(t, text, show(t), "the same input gives the same text")
}

// cases are the flags that the tests below try.
func cases() [][]string {
	return [][]string{
		{},
		{"-zero", "3", "-batch", "96"},
		{"-model", "llama2-13b", "-schedule", "zb-h1", "-recompute", "selective", "-flash=false"},
		{"-model", "llama2-70b", "-headroom", "0.2", "-micro", "2"},
		{"-model", "llama3-8b", "-schedule", "gpipe", "-pp", "4", "-seq", "2048", "-batch", "64"},
		{"-model", "llama3-8b", "-schedule", "interleaved", "-chunks", "2", "-gpus", "64", "-pp", "4"},
		{"-model", "mixtral-8x7b", "-memory", "141GB"},
		{"-model", "gpt3-175b", "-seq", "2048", "-precision", "bf16-fp32-grad", "-tp", "8"},
		{"-layers", "12", "-hidden", "768", "-heads", "12", "-ffn", "3072", "-precision", "fp32", "-memory", "16GiB"},
	}
}

func TestAccountsAddUp(t *testing.T) {
	for _, args := range cases() {
		p := ask(t, args...)
		require.NotNil(t, p.Best, args)
		require.Equal(t, int64(p.Best.GPUs), p.Best.Layout.Ranks(), args)
		require.Len(t, p.Best.Stages, p.Best.Layout.PP)
		layers := 0
		for _, s := range p.Best.Stages {
			var sum lockstep.Bytes
			for _, line := range s.Memory.Lines() {
				sum += line
			}
			require.Equal(t, sum, s.Total)
			require.LessOrEqual(t, s.Total, p.Device)
			require.Equal(t, p.Reserve, s.Memory.Reserve)
			layers += s.Layers
		}
		require.Equal(t, p.Model.Layers, layers, args)
		s := p.Best.Step
		require.Equal(t, s.Total, s.Compute+s.Exchange+s.Bubble+s.Sync, args)
		for _, x := range s.Wire {
			require.Equal(t, x.Wire(), x.Sent)
		}
		if p.Nearest != nil {
			_, most := p.Nearest.fullest()
			require.Greater(t, most, p.Device)
			require.Less(t, p.Nearest.GPUs, p.Best.GPUs)
		}
	}
}

// TestNoFewerDevicesFit tries every layout on fewer GPUs with the closed form of what one forward, one backward holds.
func TestNoFewerDevicesFit(t *testing.T) {
	for _, args := range [][]string{{}, {"-model", "llama2-70b"}, {"-model", "mixtral-8x7b"}, {"-model", "llama2-13b", "-recompute", "full", "-batch", "48"}} {
		p := ask(t, args...)
		o, err := parseFlags(args, &bytes.Buffer{})
		require.NoError(t, err)
		fits := func(l perfmodel.Layout) bool {
			micros := o.batch / l.DP
			stages, err := p.Model.Split(l.PP, perfmodel.Stage{Flash: true, Recompute: o.recompute})
			require.NoError(t, err)
			for i, s := range stages {
				m, err := p.Model.Memory(l, s, perfmodel.Load{
					Tokens: 4096, InFlight: min(micros, l.PP-i), Context: lockstep.GiB, Reserve: p.Reserve,
				})
				if err != nil || m.Total() > p.Device {
					return false
				}
			}
			return true
		}
		for n := 1; n <= p.Best.GPUs; n++ {
			found := false
			for tp := 1; tp <= 8; tp *= 2 {
				for pp := 1; pp <= min(n, p.Model.Layers); pp++ {
					dp := n / tp / pp
					if tp*pp*dp != n || o.batch%dp != 0 {
						continue
					}
					for ep := 1; ep <= dp; ep++ {
						l := perfmodel.Layout{TP: tp, PP: pp, DP: dp, EP: ep, ZeRO: 1, SequenceParallel: true}
						found = found || p.Model.Check(l) == nil && fits(l)
					}
				}
			}
			if n < 8 || n%8 == 0 { // others are not whole nodes
				require.Equal(t, n == p.Best.GPUs, found, "%v on %d", args, n)
			}
		}
	}
}

func TestLongSchedulesHoldNoMoreThanShortOnes(t *testing.T) {
	for _, schedule := range []string{"1f1b", "gpipe", "zb-h1", "interleaved"} {
		for stages := 1; stages <= 6; stages++ {
			for micros := stages; micros <= 8*stages; micros += stages {
				chunks := 1
				if schedule == "interleaved" {
					chunks = 3
				}
				kind, err := parseSchedule(schedule)
				require.NoError(t, err)
				j := &job{options: options{schedule: kind, chunks: chunks}, model: perfmodel.Model{Layers: 23}}
				s := searcher{job: j, peaks: map[peakKey]peak{}}
				got, err := s.peak(stages, micros)
				require.NoError(t, err)
				line, err := pipeline.New(pipeline.Config{Schedule: kind, Stages: stages, Micros: micros, Chunks: chunks})
				require.NoError(t, err)
				parts, err := j.parts(stages)
				require.NoError(t, err)
				want, err := replay(line, parts, stages)
				require.NoError(t, err)
				require.Equal(t, want, got, "%s %d %d", schedule, stages, micros)
			}
		}
	}
}

// What is in flight, counted by hand for some schedules.
func TestWhatIsHeldIsCountedByLayers(t *testing.T) {
	for _, c := range []struct {
		schedule                       string
		stages, micros, chunks, layers int
		want                           peak
	}{
		{"1f1b", 4, 8, 1, 32, peak{[]int{4, 3, 2, 1}, 1}},
		{"1f1b", 4, 8, 1, 30, peak{[]int{4, 3, 2, 1}, 1}}, // eight layers on the first two, seven on the others
		{"gpipe", 2, 8, 1, 32, peak{[]int{8, 8}, 8}},
		{"zb-h1", 3, 6, 1, 32, peak{[]int{3, 3, 3}, 3}}, // a head waits for its weight op like any other layer
		{"interleaved", 2, 8, 2, 8, peak{[]int{5, 3}, 1}},
		{"interleaved", 2, 2, 2, 8, peak{[]int{4, 4}, 2}}, // all forwards first
		// Layers 2 and 1 on both stages. Stage 0 begins F0 F1 F0.1 F1.1 F2: three with two layers, two with one, of a mean of 1.5.
		{"interleaved", 2, 8, 2, 6, peak{[]int{6, 4}, 1}},
	} {
		kind, err := parseSchedule(c.schedule)
		require.NoError(t, err)
		j := &job{options: options{schedule: kind, chunks: c.chunks}, model: perfmodel.Model{Layers: c.layers}}
		s := searcher{job: j, peaks: map[peakKey]peak{}}
		got, err := s.peak(c.stages, c.micros)
		require.NoError(t, err)
		require.Equal(t, c.want, got, "%+v", c)
	}
}

// The default job by hand: seven billion parameters on two devices, 256 sequences of 4096 tokens at 400 TFLOP/s each.
func TestTheStepOfSevenBillionByHand(t *testing.T) {
	s := ask(t).Best.Step
	const n = 4096.0
	linear := n * (32*404_750_336 + 2*32000*4096) // of a forward pass, with the head
	pairs := n * (n + 1) / 2
	quadratic := 32 * 4 * 4096 * pairs
	forward, input, weight := linear+quadratic, linear+2.5*quadratic, linear // a flash kernel makes its scores again
	require.InEpsilon(t, 256*(forward+input+weight)/800e12*1e9, float64(s.Compute), 1e-8)

	// Tensor parallelism: 4 times 32 layers, and the two ends; gathered and scattered, half of 32 MiB at 450 GB/s and 2 us each.
	const times = 256 * (4*32 + 2)
	require.Len(t, s.Wire, 2)
	for _, x := range s.Wire {
		require.Equal(t, int64(times), x.Times)
		require.Equal(t, 32*lockstep.MiB, x.Size)
		require.Equal(t, times*16*lockstep.MiB, x.Sent)
		require.InEpsilon(t, times*(2000+float64(16<<20)/450), float64(x.Took), 1e-4)
	}
	require.InEpsilon(t, float64(s.Wire[0].Took+s.Wire[1].Took), float64(s.Exchange), 1e-4)
	require.Zero(t, s.Bubble+s.Sync)
}

func TestSettingsThatSaveAreNamed(t *testing.T) {
	p := ask(t, "-model", "llama2-70b", "-batch", "1024")
	require.Contains(t, p.Wider, wider{"-recompute full", 16})
	for _, w := range p.Wider {
		require.Less(t, w.GPUs, p.Best.GPUs)
	}
}

func TestWhatDoesNotFitIsSaidAndFails(t *testing.T) {
	var out bytes.Buffer
	require.ErrorIs(t, run([]string{"-model", "llama2-70b", "-max-gpus", "8"}, &out), errNoFit)
	require.Contains(t, out.String(), "Nothing fits. Nearest, on 8 GPUs")
	require.Contains(t, out.String(), "most of it optimizer")
}

func TestConfigIsReadFromAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28,
		"num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064}`), 0o600))
	require.Contains(t, show(t, "-config", path), "7,615,616,512 parameters")
	require.ErrorContains(t, run([]string{"-config", path + "x"}, &bytes.Buffer{}), "no such file")
	require.NoError(t, os.WriteFile(path, []byte(`{"model_type": "mamba"}`), 0o600))
	require.ErrorIs(t, run([]string{"-config", path}, &bytes.Buffer{}), lockstep.ErrUnknown)
}

func TestShapesAreListed(t *testing.T) {
	text := show(t, "-model", "list")
	for _, s := range shapes() {
		require.NoError(t, s.Model.Validate())
		require.Contains(t, text, s.Name)
	}
	require.Contains(t, text, "68,976,648,192")
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-model nonesuch", "-model list names"},
		{"-layers -1", "Layers = -1"},
		{"-heads 33", "multiple of Heads"},
		{"-seq 8192", "longer than MaxDoc"},
		{"-seq 0", "-seq 0"},
		{"-batch 7 -micro 2", "multiple of -micro"},
		{"-zero 4", "-zero 4"},
		{"-headroom 1", "-headroom 1"},
		{"-headroom NaN", "-headroom NaN"},
		{"-memory 1GiB", "more than its context"},
		{"-memory lots", "memory"},
		{"-precision int1", "-precision"},
		{"-schedule fifo", "want 1f1b"},
		{"-chunks 2", "go together"},
		{"-schedule interleaved", "go together"},
		{"-recompute some", "want none"},
		{"-tflops 0", "-tflops"},
		{"-nvlink 0", "-nvlink"},
		{"-gpus 7 -batch 8 -pp 1 -tp 1", "no layout to try"},
		{"-tp 3 -node 3", "-tp 3: perfmodel: check: Heads"},
		{"-tp 16", "more than the GPUs of a node"},
		{"-pp 33", "want at most 32"},
		{"-schedule interleaved -chunks 17 -pp 2", "want at most 1, so"},
		{"-tflops 1e-300", "a step takes too long"},
		{"-nvlink 1 -network 1", "a step takes too long"},
		{"-config nonesuch.json -model list", "no such file"},
		{"extra", "unexpected argument"},
	} {
		err := run(strings.Fields(c.args), &bytes.Buffer{})
		require.ErrorContains(t, err, c.want, c.args)
	}
	require.ErrorIs(t, run([]string{"-h"}, &bytes.Buffer{}), flag.ErrHelp)
}
