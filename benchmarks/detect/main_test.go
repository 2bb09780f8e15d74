package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/benchmarks/harness"
)

func TestJobsDoNotDependOnTheCores(t *testing.T) {
	p := defaults()
	p.Iterations = 130
	c := cell{k8, 2, false, step, 1.5}
	one, err := measure(p, entries(), c, 4, 9, 1)
	require.NoError(t, err)
	three, err := measure(p, entries(), c, 4, 9, 3)
	require.NoError(t, err)
	for i := range one.Tallies {
		one.Tallies[i].Nanos, three.Tallies[i].Nanos = 0, 0
	}
	require.Equal(t, one, three)
	other, err := measure(p, entries(), c, 4, 10, 1)
	require.NoError(t, err)
	require.NotEqual(t, one.Effect, other.Effect)
}

func TestEveryKindOfFaultShows(t *testing.T) {
	p := defaults()
	g, err := newGenerator(p)
	require.NoError(t, err)
	for _, kind := range []string{step, ramp, intermittent, recovering, double, link} {
		c := cell{k32, 2, true, kind, 3}
		if kind == link {
			c.Factor = 60
		}
		faulty, err := g.job(&c, 1, 0, true, nil)
		require.NoError(t, err)
		require.Greater(t, faulty.Effect, 1.01, kind)
		first, _ := g.at(&c, &faulty, faulty.Onset-1)
		require.InDelta(t, 1, first, 0, kind)
		healthy, err := g.job(&c, 1, 0, false, nil)
		require.NoError(t, err)
		require.Equal(t, p.Iterations, healthy.Onset)
		require.Zero(t, healthy.Effect)
	}
}

func TestNothingBeforeTheOnsetDependsOnTheFault(t *testing.T) {
	p := defaults()
	g, err := newGenerator(p)
	require.NoError(t, err)
	var before []sample
	c := cell{k16, 3, false, limit, 0}
	decide := func(factor float64) func(*fault, []sample) error {
		return func(f *fault, seen []sample) error {
			f.Factor = factor
			before = append(before[:0], seen...)
			return nil
		}
	}
	_, err = g.job(&c, 3, 0, true, decide(2))
	require.NoError(t, err)
	first, after := before[len(before)-1].took, g.samples[len(before)].took
	f, err := g.job(&c, 3, 0, true, decide(3))
	require.NoError(t, err)
	require.Len(t, before, f.Onset)
	require.Equal(t, first, before[len(before)-1].took)
	require.NotEqual(t, after, g.samples[len(before)].took)
}

func TestMicroBatchesAreFull(t *testing.T) {
	g, err := newGenerator(defaults())
	require.NoError(t, err)
	c := cell{k8, 1, false, step, 1}
	_, err = g.job(&c, 1, 1, false, nil)
	require.NoError(t, err)
	for _, s := range g.samples {
		for i := range s.expected {
			require.Positive(t, s.expected[i])
			require.InDelta(t, 1, float64(s.observed[i])/float64(s.expected[i]), 0.6)
		}
	}
}

func TestAMixtureOfRungsIsComparedWithABaseline(t *testing.T) {
	p := &program{list: []entry{{name: "other"}, {ours: true}, {ours: true}, {ours: true, sees: chunks}}}
	s := &score{Jobs: 100, Faulty: 50, Tallies: []tally{
		{False: 20, Found: 10}, {False: 10, Found: 20}, {False: 30, Found: 40}, {False: 0, Found: 50},
	}}
	require.InDelta(t, 0.6, p.at(s, times, 0.2), 1e-9)
	require.InDelta(t, 0.4, p.at(s, times, 0.1), 1e-9)
	require.InDelta(t, 0.2, p.at(s, times, 0.05), 1e-9, "with none at all it finds none")
	require.InDelta(t, 0.8, p.at(s, times, 3), 1e-9)
	require.InDelta(t, 1, p.at(s, chunks, 0.2), 1e-9)
}

func TestCellsAreChosenByName(t *testing.T) {
	names := map[string]bool{}
	for _, c := range allCells() {
		require.False(t, names[c.name()], c.name())
		names[c.name()] = true
	}
	require.Len(t, choose(allCells(), "step/32K/D2/1.3/"), 1)
	require.Len(t, choose(allCells(), ""), len(allCells()))
	require.Empty(t, choose(allCells(), "nothing"))
	for _, c := range quickCells() {
		require.True(t, names[c.name()], c.name())
	}
}

func TestFlagsThatCannotBeAreRefused(t *testing.T) {
	for _, args := range []string{"-jobs 1", "-cells nothing", "-stages 1", "-iterations 20", "-keep 1", "-cores 0", "-what"} {
		p, code := parse(strings.Fields(args))
		require.Nil(t, p, args)
		require.Equal(t, 2, code, args)
	}
	p, _ := parse([]string{"-jobs", "2", "-cells", "link"})
	require.NotNil(t, p)
	require.Len(t, p.cells, 1)
}

func TestARunPrintsATableAndItsTargets(t *testing.T) {
	var out bytes.Buffer
	b, err := harness.New("detect", []string{"-quick"}, &out, nil)
	require.NoError(t, err)
	p := &program{Bench: b, params: defaults(), list: entries(), jobs: 4, cores: 2, cells: []cell{{k32, 2, false, step, 1.3}, {k32, 2, false, limit, 0}}}
	require.NoError(t, p.run())
	for _, want := range []string{"## step/32K/D2/1.3", "ours-chunks", "resihp-rule", "target step/32K/D2/1.3/chunks/recall", "target limit/32K/D2/found", "/dominated"} {
		require.Contains(t, out.String(), want)
	}
}
