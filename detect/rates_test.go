package detect

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/detect/internal/num"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// splitRates returns rates with the gradient of weights apart, of which the first and the last stage differ.
func splitRates(stages int) Rates {
	r := ratesFor(stages)
	for range stages {
		r.Weight = append(r.Weight, fit.Coeff{Alpha: 2000})
	}
	for k := range 2 {
		cs := r.kind(pipeline.Kind(k))
		cs[0].Alpha *= 1.1
		cs[stages-1].Alpha *= 1.5
	}
	r.Send, r.Return = nil, nil
	return r
}

// timed makes iterations of which every chunk is timed.
func timed(t testing.TB, j *job, r Rates, n int, sums bool) []Iteration {
	t.Helper()
	out := make([]Iteration, n)
	for i := range out {
		it := Iteration{Number: uint64(i)}
		for d := range j.replicas {
			var micros []perfmodel.Batch
			for range j.shape.Micros {
				micros = append(micros, packed(t, j.r, j.tokens))
			}
			it.Batches = append(it.Batches, micros)
			for k := pipeline.Forward; k <= pipeline.Weight; k++ {
				for v, c := range r.kind(k) {
					for m, b := range micros {
						took := num.Duration(float64(c.Time(b)) * math.Exp(0.01*j.r.NormFloat64()))
						it.Chunks = append(it.Chunks, Chunk{Replica: d, Stage: v % j.shape.Stages, Part: v / j.shape.Stages, Kind: k, Micro: m, Took: took})
					}
				}
			}
		}
		if sums {
			it.Chunks = summed(it.Chunks)
		}
		out[i] = it
	}
	return out
}

func TestFitRatesFindsEachKindAndStage(t *testing.T) {
	for _, sums := range []bool{false, true} {
		for _, classes := range []bool{false, true} {
			j := newJob(t, 51)
			want := splitRates(4)
			its := timed(t, j, want, 30, sums)
			its = append(its, Iteration{Phase: Saving}, Iteration{Took: time.Second}) // passed over
			got, reports, err := FitRates(its, j.shape, fit.Options{Classes: classes})
			require.NoError(t, err)
			fits := 12
			if classes {
				fits = 9
				require.Equal(t, got.Forward[1], got.Forward[2])
			}
			require.Len(t, reports, fits)
			for k := pipeline.Forward; k <= pipeline.Weight; k++ {
				for v, c := range want.kind(k) {
					b := perfmodel.Batch{Tokens: 32768, Pairs: 1e8}
					require.InEpsilon(t, float64(c.Time(b)), float64(got.kind(k)[v].Time(b)), 0.02)
				}
			}
			for _, c := range got.Weight {
				require.Zero(t, c.Beta, "the gradient of weights has no pairs")
			}
		}
	}
}

func TestFitRatesSaysWhichStageIsNotDetermined(t *testing.T) {
	j := newJob(t, 52)
	its := timed(t, j, ratesFor(4), 5, false)
	for i := range its {
		kept := its[i].Chunks[:0]
		for _, c := range its[i].Chunks {
			if c.Stage != 2 {
				kept = append(kept, c)
			}
		}
		its[i].Chunks = kept
	}
	_, _, err := FitRates(its, j.shape, fit.Options{})
	require.ErrorIs(t, err, fit.ErrUnidentifiable)
	require.ErrorContains(t, err, "Forward[2]")
	_, _, err = FitRates(nil, j.shape, fit.Options{})
	require.ErrorIs(t, err, fit.ErrUnidentifiable)
	_, _, err = FitRates(nil, pipeline.Config{}, fit.Options{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	its[3].Chunks[1].Replica = 7
	_, _, err = FitRates(its, j.shape, fit.Options{})
	require.ErrorContains(t, err, "iterations[3]")
}

func TestRatesReportAllFaults(t *testing.T) {
	r := Rates{
		Forward: []fit.Coeff{{Alpha: -1}, {Beta: math.NaN()}}, Backward: make([]fit.Coeff, 3), Weight: make([]fit.Coeff, 1),
		Send: []time.Duration{-1}, Return: make([]time.Duration, 5), Rest: -1,
	}
	err := r.Validate(2)
	for _, text := range []string{"Forward[0]", "Forward[1]", "Backward", "Weight", "Send[0]", "Return", "Rest"} {
		require.ErrorContains(t, err, text)
	}
	_, err = NewPredictor(pipeline.Config{Stages: 2, Micros: 2}, r)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = NewPredictor(pipeline.Config{Stages: 2, Micros: 2, Replicas: 2}, ratesFor(2))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	p, err := NewPredictor(pipeline.Config{Stages: 2, Micros: 2}, ratesFor(2))
	require.NoError(t, err)
	_, err = p.Expect(nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = p.Expect([][]perfmodel.Batch{{}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	huge := perfmodel.Batch{Tokens: 1 << 48, Pairs: 1e28}
	_, err = p.Expect([][]perfmodel.Batch{{huge, huge}})
	require.ErrorIs(t, err, lockstep.ErrInvalid, "times that no duration holds")
}

// TestReplicasMayHaveDifferentNumbersOfMicroBatches splits 16 micro-batches 7 to 9.
func TestReplicasMayHaveDifferentNumbersOfMicroBatches(t *testing.T) {
	p, err := NewPredictor(pipeline.Config{Stages: 4, Micros: 8}, ratesFor(4))
	require.NoError(t, err)
	b := perfmodel.Batch{Tokens: 32768, Pairs: 1e8}
	took := func(micros ...int) time.Duration {
		var batches [][]perfmodel.Batch
		for _, n := range micros {
			row := make([]perfmodel.Batch, n)
			for i := range row {
				row[i] = b
			}
			batches = append(batches, row)
		}
		d, err := p.Expect(batches)
		require.NoError(t, err)
		return d
	}
	require.Equal(t, took(9), took(7, 9))
	require.Greater(t, took(7, 9), took(8, 8))
	require.Equal(t, took(8), took(8, 8))
}

func TestMonitorOfOtherSchedules(t *testing.T) {
	for name, c := range map[string]struct { // the order does not matter: each case stands alone
		shape pipeline.Config
		rates Rates
	}{
		"interleaved":   {pipeline.Config{Stages: 2, Micros: 8, Schedule: pipeline.Interleaved, Chunks: 2}, ratesFor(4)},
		"weights apart": {pipeline.Config{Stages: 4, Micros: 8, Schedule: pipeline.ZBH1}, splitRates(4)},
	} {
		for _, given := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				j := newJob(t, 53)
				j.shape = c.shape
				cfg := Config{Pipeline: c.shape, Replicas: 2, Fit: fit.Options{Classes: true}}
				if given {
					cfg.Rates = c.rates
				}
				m := newMonitor(t, cfg)
				alarm := 0
				for i, it := range timed(t, j, c.rates, 130, false) {
					for k := range it.Chunks {
						if i >= 100 && it.Chunks[k].Replica == 1 && it.Chunks[k].Stage == 1 {
							it.Chunks[k].Took += it.Chunks[k].Took / 10
						}
					}
					it.Number = uint64(i + 1)
					v, err := m.Observe(&it)
					require.NoError(t, err)
					if v.Alarm {
						alarm++
						require.GreaterOrEqual(t, i, 100)
						require.Equal(t, 1, v.Suspects[0].Stage)
						require.Equal(t, 1, v.Suspects[0].Replica)
					}
				}
				require.Equal(t, 1, alarm)
			})
		}
	}
}

// TestMonitorThatCannotFitGoesOnWithoutAModel has chunks of one stage only, and lengths that never vary.
func TestMonitorThatCannotFitGoesOnWithoutAModel(t *testing.T) {
	run := func(change func(*Iteration)) (m *Monitor, vs []Verdict) {
		j := newJob(t, 54)
		m = newMonitor(t, Config{Pipeline: j.shape, Replicas: 2, FitAfter: 8})
		return m, watch(t, m, 120, func() *Iteration {
			it := j.next()
			change(it)
			if it.Number > 100 {
				it.Took *= 2
				for i := range it.Chunks {
					if it.Chunks[i].Stage == 0 && it.Chunks[i].Replica == 0 {
						it.Chunks[i].Took *= 2
					}
				}
			}
			return it
		})
	}
	m, vs := run(func(it *Iteration) { it.Chunks = it.Chunks[:8] })
	_, ok := m.Rates()
	require.False(t, ok)
	require.Equal(t, Learning, vs[31].State)
	require.NotEmpty(t, alarms(vs))
	require.GreaterOrEqual(t, alarms(vs)[0], 100)
	require.Equal(t, Unknown, vs[119].Cause)

	m, vs = run(func(it *Iteration) {
		for d := range it.Batches {
			for i := range it.Batches[d] {
				it.Batches[d][i] = perfmodel.Batch{Tokens: 32768, Pairs: 1e8}
			}
		}
		for i := range it.Chunks {
			it.Chunks[i].Took = time.Duration(1+it.Chunks[i].Kind)*80*time.Millisecond + time.Duration(it.Number*uint64(i)%997)*time.Microsecond
		}
	})
	r, ok := m.Rates()
	require.True(t, ok, "where lengths do not vary, pairs need not be told from tokens")
	require.Zero(t, r.Forward[0].Beta)
	require.Equal(t, Hardware, vs[119].Cause)
}

func TestNamesOfConstants(t *testing.T) {
	require.Equal(t, "learning healthy suspicious slow recovered paused State(9)", names(Learning, Healthy, Suspicious, Slow, Recovered, Paused, State(9)))
	require.Equal(t, "none unknown hardware network lengths loss layer pause resize phase Cause(99)",
		names(NoCause, Unknown, Hardware, Network, Lengths, LossLayer, Pause, Resize, Phases, Cause(99)))
	require.Equal(t, "training warming saving evaluating resizing Phase(9)", names(Training, Warming, Saving, Evaluating, Resizing, Phase(9)))
	require.Equal(t, "chunks compute link ProbeKind(9)", names(ProbeChunks, ProbeCompute, ProbeLink, ProbeKind(9)))
}

func names[T interface{ String() string }](xs ...T) string {
	s := ""
	for i, x := range xs {
		if i > 0 {
			s += " "
		}
		s += x.String()
	}
	return s
}
