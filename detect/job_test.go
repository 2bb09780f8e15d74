package detect

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/detect/change"
	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// job makes iterations of a synthetic job: packed documents of log-normal lengths, chunk
// times with noise of their own, a bias of each place, an autoregression over
// iterations, and pauses.
type job struct {
	t        testing.TB
	r        *rand.Rand
	shape    pipeline.Config
	replicas int
	tokens   int
	rates    Rates   // as they are
	noise    float64 // of chunks
	drift    float64 // standard deviation of an iteration's autoregression
	pause    float64 // chance of a pause
	factor   func(number uint64, replica, stage int) float64
	network  float64 // factor on transfers; 0 means 1
	single   bool    // micro-batches are one document each
	sums     bool    // chunk times are sums over micro-batches

	line    *pipeline.Line
	u       float64
	number  uint64
	results []pipeline.Result
}

func newJob(t testing.TB, seed uint64) *job {
	j := &job{
		t: t, r: rand.New(rand.NewPCG(seed, 99)), shape: pipeline.Config{Stages: 4, Micros: 8}, replicas: 2, tokens: 32768,
		noise: 0.015, drift: 0.02, pause: 0.01,
	}
	j.rates = ratesFor(4)
	return j
}

// ratesFor returns rates of a model of equal stages.
func ratesFor(stages int) Rates {
	var r Rates
	for range stages {
		r.Forward = append(r.Forward, fit.Coeff{Alpha: 2000, Beta: 0.04})
		r.Backward = append(r.Backward, fit.Coeff{Alpha: 4000, Beta: 0.1})
		r.Send = append(r.Send, 2*time.Millisecond)
	}
	r.Return = r.Send
	r.Rest = 50 * time.Millisecond
	return r
}

// next makes an iteration with all its chunk times.
func (j *job) next() *Iteration {
	if j.line == nil {
		var err error
		j.line, err = pipeline.New(j.shape)
		require.NoError(j.t, err)
		j.results = make([]pipeline.Result, j.replicas)
	}
	j.number++
	it := &Iteration{Number: j.number}
	longest := time.Duration(0)
	n := len(j.rates.Forward) * j.shape.Micros
	for d := range j.replicas {
		micros := make([]perfmodel.Batch, j.shape.Micros)
		for i := range micros {
			micros[i] = packed(j.t, j.r, j.tokens)
			if j.single {
				n := float64(j.tokens)
				micros[i].Pairs = n * (n + 1) / 2
			}
		}
		it.Batches = append(it.Batches, micros)
		c := pipeline.Costs{Forward: make([]time.Duration, n), Backward: make([]time.Duration, n), Send: scaled(j.rates.Send, j.network), Return: scaled(j.rates.Return, j.network)}
		for v := range j.rates.Forward {
			for i := range micros {
				for k, out := range [][]time.Duration{c.Forward, c.Backward} {
					took := j.chunk(pipeline.Kind(k), d, v, micros[i])
					out[v*len(micros)+i] = took
					it.Chunks = append(it.Chunks, Chunk{Replica: d, Stage: v, Kind: pipeline.Kind(k), Micro: i, Took: took})
				}
			}
		}
		require.NoError(j.t, j.line.Run(&c, &j.results[d]))
		longest = max(longest, j.results[d].Makespan)
	}
	j.u = 0.5*j.u + j.drift*math.Sqrt(0.75)*j.r.NormFloat64()
	took := float64(longest+j.rates.Rest) * math.Exp(j.u)
	if j.r.Float64() < j.pause {
		took *= 1.05 + 0.35*j.r.Float64()
	}
	it.Took = time.Duration(took)
	if j.sums {
		it.Chunks = summed(it.Chunks)
	}
	return it
}

func (j *job) chunk(k pipeline.Kind, replica, stage int, b perfmodel.Batch) time.Duration {
	x := float64(j.rates.kind(k)[stage].Time(b)) * math.Exp(j.noise*j.r.NormFloat64())
	if j.factor != nil {
		x *= j.factor(j.number, replica, stage)
	}
	return time.Duration(x)
}

func scaled(ds []time.Duration, by float64) []time.Duration {
	if by == 0 {
		return ds
	}
	out := make([]time.Duration, len(ds))
	for i, d := range ds {
		out[i] = time.Duration(float64(d) * by)
	}
	return out
}

// summed returns the sums over micro-batches.
func summed(chunks []Chunk) []Chunk {
	var out []Chunk
	for _, c := range chunks {
		if c.Micro == 0 {
			c.Micro = AllMicros
			for _, o := range chunks {
				if o.Replica == c.Replica && o.Stage == c.Stage && o.Kind == c.Kind && o.Micro > 0 {
					c.Took += o.Took
				}
			}
			out = append(out, c)
		}
	}
	return out
}

// stepAt is a fault of one place from an iteration on.
func stepAt(from uint64, replica, stage int, factor float64) func(uint64, int, int) float64 {
	return func(n uint64, r, s int) float64 {
		if n >= from && r == replica && s == stage {
			return factor
		}
		return 1
	}
}

func newMonitor(t testing.TB, cfg Config) *Monitor {
	t.Helper()
	m, err := New(cfg)
	require.NoError(t, err)
	return m
}

// watch runs a job for some iterations and returns the verdicts.
func watch(t testing.TB, m *Monitor, iterations int, next func() *Iteration) []Verdict {
	t.Helper()
	out := make([]Verdict, iterations)
	for i := range out {
		v, err := m.Observe(next())
		require.NoError(t, err)
		v.Suspects = append([]Suspect(nil), v.Suspects...)
		v.Probes = append([]Probe(nil), v.Probes...)
		out[i] = v
	}
	return out
}

func alarms(vs []Verdict) (at []int) {
	for i, v := range vs {
		if v.Alarm {
			at = append(at, i)
		}
	}
	return at
}

// state returns the saved form of a Monitor.
func state(t testing.TB, m *Monitor) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, m.Snapshot(&b))
	return b.String()
}

// methods are all there are; immutable.
var methods = []change.Method{change.CUSUM, change.EWMA, change.Raw, change.BOCD, change.Greyhound, change.ResiHP}

// packed returns a micro-batch of exactly n tokens of documents of many lengths.
func packed(t testing.TB, r *rand.Rand, n int) perfmodel.Batch {
	t.Helper()
	var lens []int
	for left := n; left > 0; {
		l := min(left, max(1, int(math.Exp(math.Log(1500)+1.5*r.NormFloat64()))))
		lens = append(lens, l)
		left -= l
	}
	b, err := perfmodel.Mask{}.Batch(lens)
	require.NoError(t, err)
	return b
}
