package llm

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/serving"
)

// arrival is a request of a trace.
type arrival struct {
	at             time.Duration
	prompt, output int
}

// readAzure reads a file of the Azure LLM inference trace of 2023.
func readAzure(tb testing.TB, name string) []arrival {
	tb.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "traces", "azure-llm-2023", "AzureLLMInferenceTrace_"+name+".csv"))
	if os.IsNotExist(err) {
		tb.Skip("without ../shared/traces/azure-llm-2023 the replay of a real request stream is left out")
	}
	require.NoError(tb, err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(tb, err)
	var out []arrival
	var first time.Time
	for _, row := range rows[1:] {
		at, err := time.Parse("2006-01-02 15:04:05.9999999", row[0])
		require.NoError(tb, err)
		prompt, err := strconv.Atoi(row[1])
		require.NoError(tb, err)
		output, err := strconv.Atoi(row[2])
		require.NoError(tb, err)
		if first.IsZero() {
			first = at
		}
		out = append(out, arrival{at.Sub(first), prompt, max(output, 1)})
	}
	return out
}

// llama70B is the shape of Llama 2 70B (Touvron et al., 2023), on eight devices of 80 GB.
func llama70B(tb testing.TB) Config {
	m := perfmodel.Model{
		Layers: 80, Hidden: 8192, Heads: 64, KVHeads: 8, FFN: 28672, Vocab: 32000, Gated: true,
	}
	cost, err := NewRoofline(m, 8, 2, perfmodel.Rate{Linear: 500e12, Quadratic: 300e12}, 2_500_000_000_000)
	require.NoError(tb, err)
	cost.Overhead = 5 * time.Millisecond // 160 collectives and the host
	return Config{
		Blocks: 75_000, MaxSequences: 256, TokenBudget: 1024, Cost: cost,
		Classes: []Class{{TTFT: time.Second, TPOT: 60 * time.Millisecond}},
	}
}

// result is what a replay saw.
type result struct {
	finished   []Finished
	end        time.Duration
	iterations int64 // summed over the requests of each
	most       int   // blocks
}

// replay plays arrivals at a multiple of their rate on an engine.
func replay(tb testing.TB, c Config, arrivals []arrival, rate float64) result {
	e, err := New(c)
	require.NoError(tb, err)
	var out result
	var step Step
	now := at(0)
	for k := 0; k < len(arrivals) || step.Busy; {
		if step.Busy {
			now = step.Until
		} else {
			now = at(time.Duration(float64(arrivals[k].at) / rate))
		}
		for ; k < len(arrivals); k++ {
			when := at(time.Duration(float64(arrivals[k].at) / rate))
			if when.After(now) {
				break
			}
			_, reason, err := e.Submit(when, Request{ID: serving.RequestID(k), Prompt: arrivals[k].prompt, Output: arrivals[k].output})
			require.NoError(tb, err)
			require.Empty(tb, reason)
		}
		require.NoError(tb, e.Step(now, &step))
		out.finished = append(out.finished, step.Finished...)
		out.iterations += int64(len(step.Decode) + len(step.Prefill))
		out.most = max(out.most, e.Used())
	}
	out.end = now.Sub(at(0))
	return out
}

// quantile returns what a share of the values is not above.
func quantile(values []time.Duration, share float64) time.Duration {
	slices.Sort(values)
	return values[min(int(share*float64(len(values))), len(values)-1)]
}

// times returns the times to the first token, and between tokens.
func (r result) times() (ttft, tpot []time.Duration) {
	for _, f := range r.finished {
		ttft = append(ttft, f.First.Sub(f.Arrived))
		if f.Tokens > 1 {
			tpot = append(tpot, f.Last.Sub(f.First)/time.Duration(f.Tokens-1))
		}
	}
	return ttft, tpot
}

func TestAzureTraceOnOneEngine(t *testing.T) {
	for _, name := range []string{"code", "conv"} {
		arrivals := readAzure(t, name)
		if testing.Short() {
			arrivals = arrivals[:2000]
		}
		for _, scarce := range []bool{false, true} {
			c := llama70B(t)
			if scarce {
				c.Blocks = 3000 // so that requests have to make room
			}
			r := replay(t, c, arrivals, 1)
			require.Len(t, r.finished, len(arrivals), "all requests finish")
			require.LessOrEqual(t, r.most, c.Blocks)
			tokens, want, preempted, attained := 0, 0, 0, 0
			for _, f := range r.finished {
				require.Equal(t, arrivals[f.ID].output, f.Tokens)
				tokens += f.Tokens
				preempted += f.Preempted
				if f.OnTime && f.OnPace {
					attained++
				}
			}
			for _, a := range arrivals {
				want += a.output
			}
			require.Equal(t, want, tokens)
			ttft, tpot := r.times()
			t.Logf("%s, %d blocks: TTFT p50 %v p90 %v p99 %v; TPOT p50 %v p90 %v p99 %v; attained %.4f; preempted %d; blocks at most %d; %d request iterations",
				name, c.Blocks, quantile(ttft, .5), quantile(ttft, .9), quantile(ttft, .99), quantile(tpot, .5), quantile(tpot, .9), quantile(tpot, .99),
				float64(attained)/float64(len(arrivals)), preempted, r.most, r.iterations)
			if scarce && name == "conv" { // the outputs of the other are short
				require.Positive(t, preempted, "the case does what it is for")
			}
		}
	}
}

// TestContinuousBatchingServesMore offers all requests at once and compares how long they take.
func TestContinuousBatchingServesMore(t *testing.T) {
	arrivals := readAzure(t, "conv")[:4000]
	c := llama70B(t)
	continuous := replay(t, c, arrivals, 1e9)
	c.Batching = Static
	static := replay(t, c, arrivals, 1e9)
	ratio := float64(static.end) / float64(continuous.end)
	t.Logf("continuous %v, static %v: %.2f times the requests a second", continuous.end, static.end, ratio)
	require.Greater(t, ratio, 1.25)
	a, _ := continuous.times()
	b, _ := static.times()
	require.Less(t, quantile(a, .5), quantile(b, .5))
}

// BenchmarkReplay plays an hour of the trace; the figure is per request and iteration.
func BenchmarkReplay(b *testing.B) {
	for _, name := range []string{"code", "conv"} {
		b.Run("azure="+name, func(b *testing.B) {
			arrivals := readAzure(b, name)
			c := llama70B(b)
			b.ReportAllocs()
			n := int64(0)
			for b.Loop() {
				n += replay(b, c, arrivals, 1).iterations
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "request-iterations/s")
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/trace-hour")
		})
	}
}
