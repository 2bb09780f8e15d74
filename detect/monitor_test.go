package detect

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect/change"
	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// config is that of a Monitor of j.
func (j *job) config() Config {
	return Config{Pipeline: j.shape, Replicas: j.replicas, Rates: j.rates}
}

// timesOnly drops chunk times.
func timesOnly(next func() *Iteration) func() *Iteration {
	return func() *Iteration {
		it := next()
		it.Chunks = nil
		return it
	}
}

func TestMonitorFindsASlowStageFromChunkTimes(t *testing.T) {
	for seed := range uint64(5) {
		j := newJob(t, seed)
		j.factor = stepAt(101, 1, 2, 1.1)
		vs := watch(t, newMonitor(t, j.config()), 200, j.next)
		at := alarms(vs)
		require.Len(t, at, 1)
		require.GreaterOrEqual(t, at[0], 100)
		require.LessOrEqual(t, at[0], 110)
		v := vs[at[0]]
		require.Equal(t, Slow, v.State)
		require.Equal(t, Hardware, v.Cause)
		require.InDelta(t, 101, float64(v.Onset), 4)
		require.Equal(t, 1, v.Suspects[0].Replica)
		require.Equal(t, 2, v.Suspects[0].Stage)
		require.Empty(t, v.Probes)
		last := vs[len(vs)-1]
		require.Equal(t, Slow, last.State)
		require.Equal(t, v.Onset, last.Onset)
		require.InDelta(t, 1.1, last.Suspects[0].Factor, 0.04)
		require.Greater(t, v.MinDetectable, 1.0)
		require.Less(t, v.MinDetectable, 1.1)
	}
}

func TestMonitorFindsASlowStageFromIterationTimes(t *testing.T) {
	found, first := 0, 0
	for seed := range uint64(10) {
		j := newJob(t, seed)
		j.factor = stepAt(101, 1, 2, 1.4)
		vs := watch(t, newMonitor(t, j.config()), 200, timesOnly(j.next))
		for _, i := range alarms(vs) {
			if i < 100 || vs[i].State != Slow {
				continue
			}
			found++
			last := vs[len(vs)-1]
			require.NotEmpty(t, last.Probes, "iteration times alone prove no place")
			if len(last.Suspects) > 0 && last.Suspects[0].Replica == 1 {
				first++
			}
			break
		}
	}
	require.GreaterOrEqual(t, found, 9)
	require.GreaterOrEqual(t, first, 9, "the replica is right")
}

func TestMonitorFitsItsRates(t *testing.T) {
	j := newJob(t, 1)
	j.factor = stepAt(101, 0, 1, 1.15)
	cfg := j.config()
	cfg.Rates = Rates{Send: j.rates.Send, Return: j.rates.Return, Rest: j.rates.Rest}
	for _, refit := range []bool{false, true} {
		cfg.Refit = refit
		j.number = 0
		m := newMonitor(t, cfg)
		vs := watch(t, m, 160, j.next)
		at := alarms(vs)
		require.Len(t, at, 1)
		require.GreaterOrEqual(t, at[0], 100)
		require.LessOrEqual(t, at[0], 112)
		require.Equal(t, Suspect{Replica: 0, Stage: 1, Rank: Everywhere}, Suspect{Replica: vs[at[0]].Suspects[0].Replica, Stage: vs[at[0]].Suspects[0].Stage, Rank: vs[at[0]].Suspects[0].Rank})
		r, ok := m.Rates()
		require.True(t, ok)
		require.InEpsilon(t, j.rates.Forward[0].Alpha, r.Forward[0].Alpha, 0.05)
		require.InEpsilon(t, j.rates.Backward[3].Beta, r.Backward[3].Beta, 0.1)
	}
}

func TestSumsOfChunksDoAsWell(t *testing.T) {
	j := newJob(t, 2)
	j.sums = true
	j.factor = stepAt(101, 1, 0, 1.1)
	vs := watch(t, newMonitor(t, j.config()), 150, j.next)
	at := alarms(vs)
	require.Len(t, at, 1)
	require.Equal(t, 0, vs[at[0]].Suspects[0].Stage)
	require.Equal(t, 1, vs[at[0]].Suspects[0].Replica)
}

func TestMonitorWithoutAModelComparesWithThePast(t *testing.T) {
	j := newJob(t, 3)
	j.tokens = 4096 // short, so that lengths hardly matter
	vs := watch(t, newMonitor(t, Config{}), 200, func() *Iteration {
		it := j.next()
		took := it.Took
		if j.number > 100 {
			took += took / 5
		}
		return &Iteration{Number: it.Number, Took: took}
	})
	at := alarms(vs)
	require.Len(t, at, 1)
	require.GreaterOrEqual(t, at[0], 100)
	require.Equal(t, Unknown, vs[at[0]].Cause)
	require.Empty(t, vs[at[0]].Suspects)
	require.NotEmpty(t, vs[at[0]].Probes)
	require.Equal(t, Probe{Kind: ProbeChunks, Replica: Everywhere, Stage: Everywhere}, vs[at[0]].Probes[0])
	require.InDelta(t, 1.2, vs[at[0]].Ratio, 0.15)
}

func TestMonitorExpectsWhatItComputes(t *testing.T) {
	j := newJob(t, 4)
	j.noise, j.drift, j.pause = 0, 0, 0
	vs := watch(t, newMonitor(t, j.config()), 60, j.next)
	for _, v := range vs {
		require.InDelta(t, 1, v.Ratio, 1e-4)
		require.False(t, v.Alarm)
	}
	p, err := NewPredictor(j.shape, j.rates)
	require.NoError(t, err)
	it := j.next()
	took, err := p.Expect(it.Batches)
	require.NoError(t, err)
	require.InDelta(t, float64(it.Took), float64(took), float64(time.Microsecond))
}

// causes counts the causes of verdicts.
func causes(vs []Verdict) map[Cause]int {
	out := map[Cause]int{}
	for _, v := range vs {
		out[v.Cause]++
	}
	return out
}

func TestLengthsAreToldFromFaults(t *testing.T) {
	for seed := range uint64(5) {
		j := newJob(t, seed)
		j.pause, j.drift = 0, 0.01
		m := newMonitor(t, j.config())
		vs := watch(t, m, 100, j.next)
		require.Empty(t, alarms(vs))
		// Whole iterations of one long document each: as many tokens, twice the pairs and more.
		vs = watch(t, m, 60, func() *Iteration { return j.long() })
		require.Empty(t, alarms(vs), "the work is more, no device is slow")
		require.Greater(t, causes(vs[:10])[Lengths], 7)
		for _, v := range vs {
			require.InDelta(t, 1, v.Ratio, 0.1)
		}
	}
}

// long makes an iteration whose micro-batches are one document each.
func (j *job) long() *Iteration {
	j.single = true
	defer func() { j.single = false }()
	return j.next()
}

func TestTheLossLayerIsToldFromADevice(t *testing.T) {
	j := newJob(t, 1)
	cfg := j.config()
	j.rates = ratesFor(4) // the job has a loss layer that the rates of cfg do not know
	for k := range 2 {
		cs := [][]fit.Coeff{j.rates.Forward, j.rates.Backward}[k]
		cs[3].Alpha *= 1.4
	}
	vs := watch(t, newMonitor(t, cfg), 150, j.next)
	require.Empty(t, alarms(vs))
	require.Greater(t, causes(vs[60:])[LossLayer], 60)
	require.Equal(t, Healthy, vs[149].State)
}

func TestALossLayerThatGrowsIsNoDevice(t *testing.T) {
	j := newJob(t, 2)
	j.factor = func(n uint64, _, stage int) float64 {
		if n > 100 && stage == 3 {
			return 1.3 // in every replica
		}
		return 1
	}
	vs := watch(t, newMonitor(t, j.config()), 200, j.next)
	at := alarms(vs)
	require.NotEmpty(t, at)
	require.GreaterOrEqual(t, at[0], 100)
	last := vs[199]
	require.Equal(t, Slow, last.State)
	require.Equal(t, LossLayer, last.Cause)
	require.Empty(t, last.Suspects)
}

func TestSlowTransfersAreTheNetworks(t *testing.T) {
	j := newJob(t, 3)
	m := newMonitor(t, j.config())
	require.Empty(t, alarms(watch(t, m, 100, j.next)))
	j.network = 40
	vs := watch(t, m, 100, j.next)
	require.NotEmpty(t, alarms(vs))
	last := vs[99]
	require.Equal(t, Slow, last.State)
	require.Equal(t, Network, last.Cause)
	require.Empty(t, last.Suspects)
	require.Contains(t, last.Probes, Probe{Kind: ProbeLink, Replica: Everywhere, Stage: Everywhere})
}

func TestPausesAreNoFaults(t *testing.T) {
	for _, next := range []func(*job) func() *Iteration{
		func(j *job) func() *Iteration { return j.next },
		func(j *job) func() *Iteration { return timesOnly(j.next) },
	} {
		j := newJob(t, 4)
		j.pause, j.drift = 0, 0.01
		step := next(j)
		vs := watch(t, newMonitor(t, j.config()), 300, func() *Iteration {
			it := step()
			if j.number > 60 && j.number%20 == 0 {
				it.Took += it.Took / 4 // a collector stops the world
			}
			return it
		})
		require.Empty(t, alarms(vs))
		require.GreaterOrEqual(t, causes(vs)[Pause], 11)
		for i, v := range vs {
			if v.Cause == Pause {
				require.Equal(t, Healthy, v.State, "iteration %d", i)
			}
		}
	}
}

func TestACheckpointIsNotJudged(t *testing.T) {
	j := newJob(t, 5)
	m := newMonitor(t, j.config())
	watch(t, m, 100, j.next)
	for i, phase := range []Phase{Saving, Evaluating, Warming, Resizing} {
		it := &Iteration{Number: j.number + uint64(i) + 1, Took: time.Hour, Phase: phase}
		v, err := m.Observe(it)
		require.NoError(t, err)
		require.Equal(t, Healthy, v.State)
		require.Equal(t, Phases, v.Cause)
		require.Equal(t, reasonPhase, v.Reason)
	}
	j.number += 4
	require.Empty(t, alarms(watch(t, m, 50, j.next)))
}

func TestAResizeArmsAnew(t *testing.T) {
	for name, change := range map[string]func(*job, *uint64){ // the order does not matter: each case stands alone
		"micro-batches": func(j *job, _ *uint64) { j.shape.Micros = 4 },
		"replicas":      func(j *job, _ *uint64) { j.replicas = 3 },
		"layout":        func(_ *job, layout *uint64) { *layout = 7 },
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, 6)
			layout := uint64(0)
			next := func() *Iteration {
				it := j.next()
				it.Layout = layout
				return it
			}
			m := newMonitor(t, j.config())
			require.Equal(t, Healthy, watch(t, m, 100, next)[99].State)
			change(j, &layout)
			j.line = nil
			vs := watch(t, m, 100, next)
			require.Empty(t, alarms(vs))
			require.Equal(t, Learning, vs[0].State)
			require.Equal(t, Resize, vs[0].Cause)
			require.Equal(t, reasonRearmed, vs[0].Reason)
			require.Equal(t, Resize, vs[5].Cause)
			require.Equal(t, Healthy, vs[99].State)
			require.NotEqual(t, Resize, vs[99].Cause)
			j.factor = stepAt(j.number+1, 0, 1, 1.2)
			require.Len(t, alarms(watch(t, m, 30, next)), 1, "it detects again")
		})
	}
}

func TestARelayoutIsTold(t *testing.T) {
	j := newJob(t, 7)
	m := newMonitor(t, j.config())
	watch(t, m, 60, j.next)
	j.shape.Stages, j.rates, j.line, j.replicas = 2, ratesFor(2), nil, 1
	require.NoError(t, m.Relayout(1, j.shape, 1, j.rates))
	next := func() *Iteration {
		it := j.next()
		it.Layout = 1
		return it
	}
	vs := watch(t, m, 60, next)
	require.Equal(t, Learning, vs[0].State)
	require.Equal(t, Resize, vs[0].Cause)
	require.Equal(t, Healthy, vs[59].State)
	before, ok := m.Rates()
	require.True(t, ok)
	require.Error(t, m.Relayout(2, j.shape, 1, ratesFor(3)))
	after, _ := m.Rates()
	require.Equal(t, before, after, "after an error nothing has changed")
	require.Empty(t, alarms(watch(t, m, 20, next)))
}

func TestDetectionCanBePausedAndTuned(t *testing.T) {
	j := newJob(t, 8)
	j.noise = 0.1
	m := newMonitor(t, j.config())
	watch(t, m, 100, j.next)
	m.Pause()
	j.factor = stepAt(101, 0, 0, 3)
	for _, v := range watch(t, m, 50, j.next) {
		require.Equal(t, Paused, v.State)
		require.Equal(t, reasonPaused, v.Reason)
		require.False(t, v.Alarm)
	}
	j.factor = nil
	m.Resume()
	vs := watch(t, m, 50, j.next)
	require.Empty(t, alarms(vs))
	require.Equal(t, Healthy, vs[0].State, "nothing of the pause was learned, and nothing was forgotten")

	require.NoError(t, m.Tune(Tuning{ChunkAlarms: 1e-12, Whole: change.Config{Threshold: 1e6}}))
	j.factor = stepAt(j.number+1, 0, 0, 1.06)
	require.Empty(t, alarms(watch(t, m, 6, j.next)))
	require.NoError(t, m.Tune(Tuning{ChunkAlarms: 0.01}))
	require.NotEmpty(t, alarms(watch(t, m, 8, j.next)))
	require.Error(t, m.Tune(Tuning{ChunkAlarms: -1}))
	require.Error(t, m.Tune(Tuning{Whole: change.Config{Method: change.BOCD}}))
}

func TestASecondStallIsToldToo(t *testing.T) {
	j := newJob(t, 9)
	j.factor = func(n uint64, replica, stage int) float64 {
		if replica == 0 && stage == 1 && (n > 100 && n <= 140 || n > 240) {
			return 1.3
		}
		return 1
	}
	vs := watch(t, newMonitor(t, j.config()), 300, j.next)
	at := alarms(vs)
	require.Len(t, at, 2)
	require.GreaterOrEqual(t, at[1], 240)
	seen := map[State]bool{}
	for _, v := range vs[100:240] {
		seen[v.State] = true
	}
	require.True(t, seen[Recovered])
	require.True(t, seen[Healthy])
}

func TestAFaultElsewhereIsToldBesidesOneThatStands(t *testing.T) {
	j := newJob(t, 10)
	j.factor = func(n uint64, replica, stage int) float64 {
		if n > 100 && replica == 0 && stage == 1 || n > 150 && replica == 1 && stage == 3 {
			return 1.2
		}
		return 1
	}
	vs := watch(t, newMonitor(t, j.config()), 200, j.next)
	require.Len(t, alarms(vs), 2)
	last := vs[199].Suspects
	require.Len(t, last, 2)
	require.ElementsMatch(t, []int{1, 3}, []int{last[0].Stage, last[1].Stage})
}

func TestIterationsWithoutBatchesAreTakenForUsualOnes(t *testing.T) {
	j := newJob(t, 18)
	j.tokens = 8192
	j.factor = stepAt(101, 1, 2, 1.3)
	vs := watch(t, newMonitor(t, j.config()), 150, func() *Iteration {
		it := j.next()
		if it.Number%3 != 0 { // never a resize
			it.Batches = nil
		}
		return it
	})
	at := alarms(vs)
	require.Len(t, at, 1)
	require.GreaterOrEqual(t, at[0], 100)
	require.Equal(t, Suspect{Replica: 1, Stage: 2}, Suspect{Replica: vs[at[0]].Suspects[0].Replica, Stage: vs[at[0]].Suspects[0].Stage})
	require.Zero(t, causes(vs)[Resize])
}

func TestIterationsMayBeSkippedRepeatedAndOutOfOrder(t *testing.T) {
	j := newJob(t, 11)
	m, plain := newMonitor(t, j.config()), newMonitor(t, j.config())
	j.factor = stepAt(120, 1, 1, 1.3)
	var old *Iteration
	for i := range 160 {
		it := j.next()
		it.Number *= 3 // two of three are skipped
		v, err := m.Observe(it)
		require.NoError(t, err)
		again, err := m.Observe(it)
		require.NoError(t, err)
		require.Equal(t, reasonRepeated, again.Reason)
		require.Equal(t, v.State, again.State)
		require.False(t, again.Alarm)
		if old != nil {
			late, err := m.Observe(old)
			require.NoError(t, err)
			require.Equal(t, reasonReordered, late.Reason)
			require.Equal(t, v.State, late.State)
			require.Equal(t, v.Onset, late.Onset)
		}
		old = it
		want, err := plain.Observe(it)
		require.NoError(t, err)
		require.Equal(t, want, v, "iteration %d: repeats change nothing", i)
	}
}

func TestMonitorRefusesWhatCannotBe(t *testing.T) {
	j := newJob(t, 12)
	m := newMonitor(t, j.config())
	watch(t, m, 60, j.next)
	good := j.next()
	for name, change := range map[string]func(*Iteration){ // the order does not matter: each case stands alone
		"negative time":           func(it *Iteration) { it.Took = -1 },
		"neither time nor chunks": func(it *Iteration) { it.Took, it.Chunks = 0, nil },
		"no replicas":             func(it *Iteration) { it.Batches = [][]perfmodel.Batch{} },
		"no micro-batches":        func(it *Iteration) { it.Batches = [][]perfmodel.Batch{{}, {}} },
		"no tokens":               func(it *Iteration) { it.Batches[0][0].Tokens = 0 },
		"NaN pairs":               func(it *Iteration) { it.Batches[1][2].Pairs = math.NaN() },
		"negative pairs":          func(it *Iteration) { it.Batches[1][2].Pairs = -1 },
		"chunk of no replica":     func(it *Iteration) { it.Chunks[3].Replica = 2 },
		"chunk of no stage":       func(it *Iteration) { it.Chunks[3].Stage = -1 },
		"chunk of no part":        func(it *Iteration) { it.Chunks[3].Part = 1 },
		"chunk of no kind":        func(it *Iteration) { it.Chunks[3].Kind = 9 },
		"chunk of no micro-batch": func(it *Iteration) { it.Chunks[3].Micro = 8 },
		"chunk without time":      func(it *Iteration) { it.Chunks[3].Took = 0 },
		"chunk with negative one": func(it *Iteration) { it.Chunks[3].Took = -5 },
	} {
		t.Run(name, func(t *testing.T) {
			before := state(t, m)
			bad := *good
			bad.Chunks = slices.Clone(good.Chunks)
			bad.Batches = nil
			for _, micros := range good.Batches {
				bad.Batches = append(bad.Batches, slices.Clone(micros))
			}
			change(&bad)
			_, err := m.Observe(&bad)
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			require.Equal(t, before, state(t, m), "after an error nothing has changed")
		})
	}
	_, err := m.Observe(nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = m.Observe(good)
	require.NoError(t, err)
}

func TestConfigReportsAllFaults(t *testing.T) {
	err := Config{
		Replicas: -1, FitAfter: -1, Rates: ratesFor(3), Tracker: fit.TrackerConfig{Window: 1},
		Tuning: Tuning{ChunkAlarms: 2, MatchedAlarms: math.NaN(), Suspicion: 2, Suspects: -1, Whole: change.Config{Clip: 1}},
	}.Validate()
	for _, field := range []string{"Replicas", "FitAfter", "Rates", "Window", "ChunkAlarms", "MatchedAlarms", "Suspicion", "Suspects", "Clip"} {
		require.ErrorContains(t, err, " "+field)
	}
	_, err = New(Config{Pipeline: pipeline.Config{Stages: 4, Micros: 8}, Rates: ratesFor(3)})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = New(Config{Pipeline: pipeline.Config{Stages: 4, Micros: 8, Schedule: pipeline.ZBH1}, Rates: ratesFor(4)})
	require.ErrorContains(t, err, "Weight")
	_, err = New(Config{Pipeline: pipeline.Config{Stages: 4, Micros: 6, Schedule: pipeline.Interleaved, Chunks: 2}})
	require.Error(t, err)
	_, err = New(Config{Tuning: Tuning{Whole: change.Config{Method: change.ResiHP}}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.NoError(t, Config{}.Validate())
}

// TestARestoredMonitorGoesOnAsTheOneThatWasSaved cuts jobs of several kinds at many points.
func TestARestoredMonitorGoesOnAsTheOneThatWasSaved(t *testing.T) {
	type kind struct {
		config func(*job) Config
		times  bool
	}
	for name, k := range map[string]kind{ // the order does not matter: each case stands alone
		"chunks":   {config: (*job).config},
		"times":    {config: (*job).config, times: true},
		"no model": {config: func(*job) Config { return Config{} }, times: true},
		"fitted": {config: func(j *job) Config {
			return Config{Pipeline: j.shape, Replicas: j.replicas, Rates: Rates{Send: j.rates.Send, Return: j.rates.Return, Rest: j.rates.Rest}, Refit: true}
		}},
		"classes": {config: func(j *job) Config {
			return Config{Pipeline: j.shape, Replicas: j.replicas, Refit: true, Fit: fit.Options{Classes: true}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, 13)
			j.factor = func(n uint64, replica, stage int) float64 {
				if replica == 0 && stage == 1 && (n > 70 && n <= 100 || n > 130) {
					return 1.6
				}
				return 1
			}
			var its []*Iteration
			for range 160 {
				it := j.next()
				if k.times {
					it.Chunks = nil
				}
				if it.Number%31 == 0 {
					it.Phase = Saving
				}
				its = append(its, it)
			}
			for cut := 0; cut < len(its); cut += 7 {
				m := newMonitor(t, k.config(j))
				for _, it := range its[:cut] {
					_, err := m.Observe(it)
					require.NoError(t, err)
				}
				image := state(t, m)
				again, err := Restore(strings.NewReader(image))
				require.NoError(t, err, "cut %d", cut)
				require.Equal(t, image, state(t, again))
				for _, it := range its[cut:min(len(its), cut+40)] {
					want, err := m.Observe(it)
					require.NoError(t, err)
					got, err := again.Observe(it)
					require.NoError(t, err)
					require.Equal(t, want, got, "cut %d, iteration %d", cut, it.Number)
				}
				require.Equal(t, state(t, m), state(t, again))
			}
		})
	}
}

func TestAMonitorIsRestoredRightAfterItWasTuned(t *testing.T) {
	for _, times := range []bool{false, true} {
		j := newJob(t, 19)
		j.noise = 0.1
		next := j.next
		if times {
			next = timesOnly(next)
		}
		cfg := j.config()
		cfg.Tuning = Tuning{ChunkAlarms: 1e-12, MatchedAlarms: 1e-12, Whole: change.Config{Threshold: 1e3}}
		m := newMonitor(t, cfg)
		watch(t, m, 80, next)
		j.factor = stepAt(1, 0, 0, 1.5)
		watch(t, m, 20, next)
		require.NoError(t, m.Tune(Tuning{ChunkAlarms: 0.5, MatchedAlarms: 0.5, Whole: change.Config{Threshold: 0.5}}))
		again, err := Restore(strings.NewReader(state(t, m)))
		require.NoError(t, err)
		require.Equal(t, state(t, m), state(t, again))
	}
}

func TestDocumentsMayComeInAnyOrder(t *testing.T) {
	j := newJob(t, 14)
	p, err := NewPredictor(j.shape, j.rates)
	require.NoError(t, err)
	lens := make([]int, 50)
	for i := range lens {
		lens[i] = 1 + j.r.IntN(3000)
	}
	expect := func(lens []int) time.Duration {
		b, err := perfmodel.Mask{}.Batch(lens)
		require.NoError(t, err)
		took, err := p.Expect([][]perfmodel.Batch{slices.Repeat([]perfmodel.Batch{b}, 8)})
		require.NoError(t, err)
		return took
	}
	before := expect(lens)
	j.r.Shuffle(len(lens), func(a, b int) { lens[a], lens[b] = lens[b], lens[a] })
	require.Equal(t, before, expect(lens))
	merged := append([]int{lens[0] + lens[1]}, lens[2:]...)
	require.GreaterOrEqual(t, expect(merged), before, "one document of two never costs less")
}

// TestTheUnitOfTimeDoesNotMatterToAJob runs a job twice, with every time and rate eight times as long.
func TestTheUnitOfTimeDoesNotMatterToAJob(t *testing.T) {
	j := newJob(t, 15)
	j.factor = stepAt(81, 1, 1, 1.15)
	slow := j.config()
	slow.Rates = Rates{Rest: j.rates.Rest * 8, Send: scaled(j.rates.Send, 8), Return: scaled(j.rates.Return, 8)}
	for v := range j.rates.Forward {
		f, b := j.rates.Forward[v], j.rates.Backward[v]
		slow.Rates.Forward = append(slow.Rates.Forward, fit.Coeff{Alpha: f.Alpha * 8, Beta: f.Beta * 8})
		slow.Rates.Backward = append(slow.Rates.Backward, fit.Coeff{Alpha: b.Alpha * 8, Beta: b.Beta * 8})
	}
	a, b := newMonitor(t, j.config()), newMonitor(t, slow)
	for range 120 {
		it := j.next()
		v, err := a.Observe(it)
		require.NoError(t, err)
		long := *it
		long.Took *= 8
		long.Chunks = slices.Clone(it.Chunks)
		for i := range long.Chunks {
			long.Chunks[i].Took *= 8
		}
		w, err := b.Observe(&long)
		require.NoError(t, err)
		require.Equal(t, v.State, w.State)
		require.Equal(t, v.Alarm, w.Alarm)
		require.Equal(t, v.Onset, w.Onset)
		require.Equal(t, v.Cause, w.Cause)
		require.InDelta(t, v.Ratio, w.Ratio, 1e-6)
		require.InDelta(t, v.Score, w.Score, 1e-3)
	}
}

func TestLargerFaultsOfAJobAreFoundNoLater(t *testing.T) {
	for seed := range uint64(3) {
		before := math.MaxInt32
		for _, factor := range []float64{1.05, 1.1, 1.2, 1.5, 3} {
			j := newJob(t, seed)
			j.factor = stepAt(81, 0, 2, factor)
			at := alarms(watch(t, newMonitor(t, j.config()), 140, j.next))
			require.NotEmpty(t, at)
			require.LessOrEqual(t, at[0]-1, before, "factor %v", factor)
			before = at[0]
		}
	}
}

func TestHealthyJobsMakeFewAlarms(t *testing.T) {
	jobs := 40
	if testing.Short() {
		jobs = 10
	}
	count := map[bool]int{}
	for seed := range uint64(jobs) {
		for _, times := range []bool{false, true} {
			j := newJob(t, 100+seed)
			next := j.next
			if times {
				next = timesOnly(next)
			}
			count[times] += len(alarms(watch(t, newMonitor(t, j.config()), 250, next)))
		}
	}
	require.LessOrEqual(t, count[false], jobs/10)
	require.LessOrEqual(t, count[true], jobs/4)
}

func TestNothingIsAllocatedInTheSteadyState(t *testing.T) {
	for _, times := range []bool{false, true} {
		j := newJob(t, 16)
		j.factor = stepAt(180, 0, 0, 1.5)
		m := newMonitor(t, j.config())
		var its []*Iteration
		for range 300 {
			it := j.next()
			if times {
				it.Chunks = nil
			}
			its = append(its, it)
		}
		for _, it := range its[:200] {
			_, err := m.Observe(it)
			require.NoError(t, err)
		}
		i := 200
		require.Zero(t, testing.AllocsPerRun(90, func() {
			if _, err := m.Observe(its[i]); err != nil {
				panic(err)
			}
			i++
		}))
	}
}

// bigJob is a job of 16 stages and 64 micro-batches.
func bigJob(b *testing.B, replicas int) *job {
	j := newJob(b, 17)
	j.shape, j.replicas, j.rates = pipeline.Config{Stages: 16, Micros: 64}, replicas, ratesFor(16)
	return j
}

func BenchmarkExpect(b *testing.B) {
	for _, replicas := range []int{1, 8} {
		b.Run(fmt.Sprintf("stages=16/micros=64/replicas=%d", replicas), func(b *testing.B) {
			j := bigJob(b, replicas)
			p, err := NewPredictor(j.shape, j.rates)
			require.NoError(b, err)
			it := j.next()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Expect(it.Batches); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkMonitor(b *testing.B) {
	for _, kind := range []string{"chunks", "times", "no model"} {
		b.Run(kind+"/stages=16/micros=64/replicas=1", func(b *testing.B) {
			j := bigJob(b, 1)
			cfg := j.config()
			if kind == "no model" {
				cfg = Config{}
			}
			m := newMonitor(b, cfg)
			its := make([]*Iteration, 64)
			for i := range its {
				its[i] = j.next()
				if kind != "chunks" {
					its[i].Chunks = nil
				}
			}
			n := uint64(0)
			step := func() {
				it := its[n%64]
				n++
				it.Number = n
				if _, err := m.Observe(it); err != nil {
					b.Fatal(err)
				}
			}
			for range 100 {
				step()
			}
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}
