package hpo

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests of this file are named after complaints about other libraries, by a number of our own; each says where it
// came from. Complaint 40 (microsoft/mup 1, 56, 73) is about scaling: see hpo/scaling.

// ended is what became of a trial.
type ended struct {
	step   uint64 // it reached
	action Action // the last about it
	pauses int
}

// play runs a search to its end on some places, a step of everybody at a time. score gives the metric of a trial at a step.
func play(t testing.TB, s *Scheduler, places int, score func(id TrialID, step uint64) float64) map[TrialID]*ended {
	t.Helper()
	type proc struct {
		Start
		step uint64
	}
	var on []*proc
	out := map[TrialID]*ended{}
	obey := func(decisions []Decision) {
		for _, d := range decisions {
			x := out[d.Trial]
			x.action = d.Action
			switch d.Action {
			case Pause:
				x.pauses++
				fallthrough
			case Stop:
				on = slices.DeleteFunc(on, func(p *proc) bool { return p.Trial == d.Trial })
			case Copy:
				for _, p := range on {
					if p.Trial == d.Trial {
						p.Attempt, p.step = d.Attempt, d.Level
					}
				}
			default:
			}
		}
	}
	for range 100_000 {
		starts, decisions := s.Next(places - len(on))
		for _, x := range starts {
			on = append(on, &proc{x, x.From})
			if out[x.Trial] == nil {
				out[x.Trial] = &ended{}
			}
		}
		obey(decisions)
		if s.Quiescent() {
			require.Empty(t, on)
			return out
		}
		require.NotEmpty(t, on, "nothing runs and the search is not over")
		for _, p := range slices.Clone(on) {
			if !slices.Contains(on, p) {
				continue
			}
			p.step++
			out[p.Trial].step = max(out[p.Trial].step, p.step)
			got, err := s.Report(Report{Trial: p.Trial, Attempt: p.Attempt, Step: p.step, Value: score(p.Trial, p.step)})
			require.NoError(t, err)
			obey(got)
		}
	}
	require.Fail(t, "the search does not end")
	return nil
}

// search returns a scheduler with n trials, t0 to t(n-1).
func search(t testing.TB, cfg Config, n int) *Scheduler {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	for _, id := range names(n) {
		require.NoError(t, s.Add(id))
	}
	return s
}

// number returns n of "tn".
func number(id TrialID) float64 {
	var n int
	if _, err := fmt.Sscanf(string(id), "t%d", &n); err != nil {
		return -1
	}
	return float64(n)
}

func byNumber(id TrialID, _ uint64) float64 { return number(id) }

func complete(all map[TrialID]*ended, step uint64) int {
	n := 0
	for _, x := range all { // a sum: order cannot matter
		if x.step >= step {
			n++
		}
	}
	return n
}

// ray-project/ray 6659: after one NaN nothing was ever stopped.
func TestComplaint01NaNDoesNotEndStopping(t *testing.T) {
	for _, v := range []Variant{Stopping, Ray, Optuna} { // the other variants do with NaN what their models do
		got := letters(t, Config{Mode: Maximize, ASHA: &ASHA{Variant: v, Eta: 2}}, []float64{.5, .6, nan, .1, .05, .9})
		require.Equal(t, "SS", got[3:5], v)
		require.Equal(t, "C", got[5:], v)
	}
}

// ray 65008, 65918: a metric of None crashed.
func TestComplaint02MissingMetricIsDecided(t *testing.T) {
	for _, cfg := range configs() {
		for _, policy := range []NaNPolicy{NaNWorst, NaNStop, NaNIgnore} {
			cfg.NaN = policy
			s := begin(t, cfg, "a", "b")
			for step := uint64(1); step < 4; step++ {
				require.NotEmpty(t, report(t, s, "a", step, nan)[0].Action)
			}
		}
	}
}

// ray 24809, 65957: one NaN, or one trial with nothing in the window, stopped all the others.
func TestComplaint03MedianSurvivesGaps(t *testing.T) {
	for _, other := range []float64{nan, 0} {
		s := begin(t, Config{Mode: Maximize, Median: &Median{Grace: 2, Min: 3}}, "sparse", "x", "y", "z", "own")
		report(t, s, "sparse", 1, other) // nothing from step 2 on until step 9
		for step := uint64(1); step <= 3; step++ {
			for _, id := range []TrialID{"x", "y", "z"} {
				report(t, s, id, step, 0)
			}
			require.Equal(t, Continue, report(t, s, "own", step, 100)[0].Action)
		}
		report(t, s, "sparse", 9, other)
		require.Equal(t, Continue, report(t, s, "own", 4, 100)[0].Action)
	}
}

// ray 37605: 8 trials on 4 places, the first four ran to the end and the others paused for ever; so did overstepping.
func TestComplaint04HyperbandDoesNotHang(t *testing.T) {
	for _, stride := range []uint64{1, 3, 5} {
		s := search(t, Config{Mode: Maximize, Hyperband: &Hyperband{Max: 8, Eta: 2}}, 8)
		got := play(t, s, 4, byNumber)
		require.Len(t, got, 8)
		for id, x := range got { // a claim about each: order cannot matter
			require.Equal(t, Stop, x.action, id)
		}

		s = search(t, Config{Hyperband: &Hyperband{Max: 8, Eta: 2}}, 8)
		at := map[TrialID]uint64{}
		for !s.Quiescent() {
			s.Next(4)
			for _, x := range s.Running() {
				at[x.Trial] += stride
				report(t, s, x.Trial, at[x.Trial], 0)
			}
		}
		require.Zero(t, s.counts[paused])
	}
}

// ray 6780: some pairs of the maximum and eta paused for ever.
func TestComplaint05EveryBracketEnds(t *testing.T) {
	for most := uint64(1); most <= 28; most += 3 {
		for eta := uint32(2); eta <= 5; eta++ {
			for _, n := range []int{1, 7, 23} {
				s := search(t, Config{Hyperband: &Hyperband{Max: most, Eta: eta}}, n)
				require.Len(t, play(t, s, 3, byNumber), n)
				require.Equal(t, n, s.counts[done])
			}
		}
	}
}

// ray 14500: under BOHB all trials were paused.
func TestComplaint06LargestFirstDoesNotPauseAll(t *testing.T) {
	for n := 1; n < 30; n += 4 {
		s := search(t, Config{Hyperband: &Hyperband{Max: 9, Eta: 3, LargestFirst: true}}, n)
		require.Len(t, play(t, s, 2, byNumber), n)
		require.Zero(t, s.counts[paused])
	}
	s := begin(t, Config{Hyperband: &Hyperband{Max: 9, Eta: 3, LargestFirst: true}}, names(10)...)
	require.Equal(t, 2, s.Running()[0].Bracket)
	require.Equal(t, 1, s.Running()[9].Bracket, "the tenth is the first of the next bracket")
}

// ray 7011: an assertion failed when a trial was restored to an earlier step.
func TestComplaint07StepsMayGoBack(t *testing.T) {
	for _, cfg := range configs() {
		s := begin(t, cfg, "a", "b", "c")
		for _, step := range []uint64{2, 1, 3, 1, 2, 4, 1} {
			_, err := s.Report(Report{Trial: "a", Step: step, Value: 1})
			require.NoError(t, err)
		}
	}
}

// ray 7576: the size and the milestones of a bracket changed while it ran.
func TestComplaint08RungsDoNotChange(t *testing.T) {
	s := search(t, Config{Hyperband: &Hyperband{Max: 9, Eta: 3}}, 17)
	var want [][2]uint64
	for _, g := range s.Rungs() {
		want = append(want, [2]uint64{uint64(g.Bracket), g.Level})
	}
	require.Equal(t, [][2]uint64{{0, 9}, {1, 3}, {1, 9}, {2, 1}, {2, 3}, {2, 9}}, want)
	play(t, s, 4, func(id TrialID, step uint64) float64 {
		for i, g := range s.Rungs() {
			require.Equal(t, want[i], [2]uint64{uint64(g.Bracket), g.Level})
		}
		return byNumber(id, step)
	})
}

// ray 44256, 32634, 4401: on one device "ASHA" ran one trial after the other to its end, and the first always survived.
func TestComplaint09PromotionWorksOnOneDevice(t *testing.T) {
	s := search(t, Config{Mode: Maximize, ASHA: &ASHA{Max: 9, Eta: 3}}, 9)
	got := play(t, s, 1, byNumber)
	require.Equal(t, uint64(1), got["t0"].step)
	require.Equal(t, Pause, got["t0"].action)
	require.Equal(t, uint64(9), got["t8"].step)
	require.Less(t, complete(got, 9), 9)
}

// ray 14235: the best should be able to run past the maximum.
func TestComplaint10TheBestRunOn(t *testing.T) {
	s := begin(t, Config{Mode: Maximize, ASHA: &ASHA{Variant: Stopping, Max: 4, Eta: 2, RunOn: 1}}, "a", "b", "c")
	require.Equal(t, Continue, report(t, s, "a", 4, 1)[0].Action)
	require.Equal(t, Continue, report(t, s, "a", 5, 0)[0].Action)
	require.Equal(t, ReasonComplete, report(t, s, "b", 4, .5)[0].Reason)
	got := report(t, s, "c", 4, 2)
	require.Equal(t, Continue, got[0].Action)
	require.Equal(t, Decision{Trial: "a", Attempt: 1, Action: Stop, Level: 4, Reason: ReasonComplete}, got[1], "c is better where they were compared")
	require.Equal(t, Continue, report(t, s, "c", 1000, 0)[0].Action)
}

func population(sync bool) Config {
	return Config{Mode: Maximize, PBT: &PBT{Interval: 2, BurnIn: 4, Max: 8, Sync: sync, Params: []Param{{Name: "lr", Low: 1, High: 9}}}}
}

// ray 23424, 23472: with a burn-in, or one trial over, synchronous PBT left the others paused.
func TestComplaint11BurnInAndEndedTrials(t *testing.T) {
	s := search(t, population(true), 4)
	for _, x := range play(t, s, 2, byNumber) { // a claim about each: order cannot matter
		require.Equal(t, uint64(8), x.step)
	}
	s = begin(t, population(true), names(4)...)
	require.Equal(t, uint64(4), s.Running()[0].Until)
	for _, id := range names(3) {
		report(t, s, id, 4, number(id))
	}
	got, err := s.Failed("t3", 0, Ended)
	require.NoError(t, err)
	require.Equal(t, Decision{Trial: "t3", Attempt: 1, Action: Stop, Reason: ReasonFailed}, got[0])
	require.Equal(t, Copy, got[1].Action)
	starts, _ := s.Next(9)
	require.Len(t, starts, 3)
}

// ray 48616: after a restore the next point of synchronous PBT was 0, and all were paused after a step.
func TestComplaint12PointsSurviveRestore(t *testing.T) {
	s := begin(t, population(true), names(2)...)
	report(t, s, "t0", 3, 0)
	s, err := Restore(population(true), bytes.NewReader(image(t, s)))
	require.NoError(t, err)
	require.Equal(t, Continue, report(t, s, "t1", 3, 0)[0].Action)
	require.Equal(t, Pause, report(t, s, "t0", 4, 0)[0].Action)
}

// ray 12122: one crashed trial blocked the population.
func TestComplaint13CrashDoesNotBlock(t *testing.T) {
	s := begin(t, population(true), names(3)...)
	report(t, s, "t0", 4, 0)
	report(t, s, "t1", 4, 1)
	got, err := s.Failed("t2", 0, Crashed)
	require.NoError(t, err)
	require.Equal(t, ReasonFailed, got[0].Reason)
	starts, _ := s.Next(9)
	require.Len(t, starts, 2)
}

// ray 9036, 9470: a trial was told to copy one whose checkpoint was gone.
func TestComplaint14SourcesAreAlive(t *testing.T) {
	for seed := range uint64(50) {
		cfg := population(false)
		cfg.PBT.Seed = seed
		s := begin(t, cfg, names(5)...)
		for _, id := range names(5) {
			report(t, s, id, 4, number(id))
		}
		_, err := s.Failed("t4", 0, Ended)
		require.NoError(t, err)
		report(t, s, "t3", 8, 9) // complete
		d := report(t, s, "t0", 6, 0)[0]
		require.Equal(t, Copy, d.Action)
		require.Equal(t, TrialID("t2"), d.Source)
		require.Equal(t, uint64(4), d.Level, "the step of the score by which it was chosen")
	}
}

// ray 8102, 7794: a late result of the old configuration was taken for one of the new.
func TestComplaint15LateResultsAreKnown(t *testing.T) {
	s := begin(t, population(false), "a", "b")
	report(t, s, "a", 4, 1)
	d := report(t, s, "b", 4, 0)[0]
	require.Equal(t, Copy, d.Action)
	require.Equal(t, uint32(2), d.Attempt)
	was := image(t, s)
	got, err := s.Report(Report{Trial: "b", Attempt: 1, Step: 6, Value: 99})
	require.NoError(t, err)
	require.Equal(t, ReasonLate, got[0].Reason)
	require.Equal(t, string(was), string(image(t, s)))
	_, err = s.Report(Report{Trial: "b", Attempt: 3, Step: 6, Value: 99})
	require.ErrorContains(t, err, "the latest is 2")
}

// ray 11936: after a copy steps began again at 1, and values left their range.
func TestComplaint16CopiesKeepStepsAndRanges(t *testing.T) {
	s := begin(t, population(false), "a", "b")
	report(t, s, "a", 6, 1)
	require.Equal(t, uint64(6), report(t, s, "b", 4, 0)[0].Level)
	require.Equal(t, uint64(8), s.Running()[1].Until)
	report(t, s, "b", 1, 0) // it begins again all the same
	require.Equal(t, uint64(4), s.Running()[1].Until)

	for _, p := range []Param{{"x", 10, 1000, false}, {"y", -50, -1, false}, {"z", 0, 3, true}, {"w", 7, 7, false}, {"v", -1 << 63, 1<<63 - 1, false}} {
		for _, v := range []int64{-1 << 63, p.Low, p.Low + 1, p.High, 1<<63 - 1, 0, 100} {
			for _, draw := range []uint64{0, 1, 1 << 63, 1<<64 - 1, 12345678901234567890} {
				for _, resample := range []bool{false, true} {
					got := p.Apply(v, Turn{p.Name, resample, draw})
					require.True(t, got >= p.Low && got <= p.High, "%v %d %d", p, v, got)
				}
			}
		}
	}
}

// ray 28197, 23858: a running trial that never reported froze everything.
func TestComplaint17SilentTrialsHoldNothingElseUp(t *testing.T) {
	s := search(t, Config{ASHA: &ASHA{Max: 4, Eta: 2}}, 9)
	first, _ := s.Next(1)
	silent := first[0].Trial
	for range 100 {
		s.Next(2)
		for _, x := range s.Running() {
			if x.Trial != silent {
				report(t, s, x.Trial, x.Until, number(x.Trial))
			}
		}
	}
	require.False(t, s.Quiescent(), "it runs")
	require.Len(t, s.Running(), 1)
	require.Zero(t, s.counts[waiting])
	_, err := s.Failed(silent, 0, Crashed)
	require.NoError(t, err)
	require.True(t, s.Quiescent())
}

// sisinflab/warprec 126: a restored search had lost its rungs, and trials that began again at 1 reached them late.
func TestComplaint18RestoredRungsAreKnown(t *testing.T) {
	cfg := Config{Mode: Maximize, ASHA: &ASHA{Variant: Stopping, Max: 9, Eta: 3}}
	s := begin(t, cfg, "a", "b", "c")
	report(t, s, "a", 1, 5)
	report(t, s, "b", 1, 6)
	s, err := Restore(cfg, bytes.NewReader(image(t, s)))
	require.NoError(t, err)
	require.Equal(t, ReasonBelow, report(t, s, "c", 1, 4)[0].Reason)
	require.Equal(t, Continue, report(t, s, "b", 1, 0)[0].Action, "it has passed that rung")
	require.Equal(t, uint64(3), s.Running()[1].Until)
	require.Equal(t, uint64(3), report(t, s, "b", 3, 0)[0].Level)
}

// ray 4631: a bound on a loss assumed that metrics rise.
func TestComplaint19SmallerLossesAreBetter(t *testing.T) {
	require.Equal(t, "CCCS", letters(t, Config{ASHA: &ASHA{Variant: Stopping, Eta: 2}}, []float64{4, 3, 2, 5}))
	require.Equal(t, "CSSC", letters(t, Config{Mode: Maximize, ASHA: &ASHA{Variant: Stopping, Eta: 2}}, []float64{4, 3, 2, 5}))
}

// ray 3057: one trial without the metric made the others fail.
func TestComplaint20MissingMetricHurtsNoOther(t *testing.T) {
	s := begin(t, Config{Mode: Maximize, ASHA: &ASHA{Variant: Stopping, Eta: 2}}, "a", "b", "c")
	got, err := s.Report(Report{Trial: "a", Step: 1, Value: 1}, Report{Trial: "b", Step: 1, Value: nan}, Report{Trial: "c", Step: 1, Value: 2})
	require.NoError(t, err)
	require.Equal(t, []Action{Stop, Stop, Continue}, []Action{got[0].Action, got[1].Action, got[2].Action})
}

// ray 1624: the sizes of brackets were not the paper's.
func TestComplaint21SizesOfBrackets(t *testing.T) {
	b, err := Brackets(1, 81, 3)
	require.NoError(t, err)
	for s, x := range b {
		power := 1
		for range s {
			power *= 3
		}
		require.Equal(t, (5*power+s)/(s+1), x.Trials)
		require.Len(t, x.Levels, s+1)
		require.Equal(t, uint64(81), x.Levels[s])
	}
}

// syne-tune 395: a trial that was resumed without its checkpoint reported step 1 after step 3.
func TestComplaint22PromotedTrialsMayBeginAgain(t *testing.T) {
	s := begin(t, Config{Mode: Maximize, ASHA: &ASHA{Max: 9, Eta: 2}}, "a", "b")
	report(t, s, "a", 3, 1)
	report(t, s, "b", 3, 2)
	starts, _ := s.Next(1)
	require.Equal(t, []Start{{Trial: "b", Attempt: 2, From: 3, Until: 2}}, starts)
	require.Equal(t, Continue, report(t, s, "b", 1, 0)[0].Action)
	require.Equal(t, uint64(2), report(t, s, "b", 2, 0)[0].Level)
}

// syne-tune 304: reports between rungs went wrong under promotion.
func TestComplaint23EachRungIsRecordedOnce(t *testing.T) {
	s := begin(t, Config{ASHA: &ASHA{Levels: []uint64{2, 5}, Max: 9, Eta: 2}}, "a")
	require.Equal(t, Continue, report(t, s, "a", 1, 0)[0].Action)
	require.Equal(t, Pause, report(t, s, "a", 2, 0)[0].Action)
	for step := uint64(2); step < 9; step++ {
		require.Equal(t, Pause, report(t, s, "a", step, 0)[0].Action)
	}
	require.Equal(t, uint64(1), s.Rungs()[0].Recorded)
	require.Zero(t, s.Rungs()[1].Recorded)
}

// syne-tune 777: with grace 5 and 4000 epochs no trial reached the top.
func TestComplaint24EnoughTrialsReachTheTop(t *testing.T) {
	s := search(t, Config{Mode: Maximize, ASHA: &ASHA{Min: 5, Max: 4000, Eta: 3}}, 2187)
	top := 0
	for !s.Quiescent() {
		starts, _ := s.Next(5)
		for _, x := range starts {
			if d := report(t, s, x.Trial, x.Until, number(x.Trial))[0]; d.Reason == ReasonComplete {
				top++
			}
		}
	}
	require.Positive(t, top)
	levels := []uint64{}
	for _, g := range s.Rungs() {
		levels = append(levels, g.Level)
	}
	require.Equal(t, []uint64{5, 15, 45, 135, 405, 1215, 3645}, levels)
}

// syne-tune 483: the list of rungs held the maximum or did not, and brackets were miscounted.
func TestComplaint25RungAtTheMaximumIsNone(t *testing.T) {
	a := search(t, Config{ASHA: &ASHA{Max: 27, Eta: 3}}, 9)
	b := search(t, Config{ASHA: &ASHA{Levels: []uint64{1, 3, 9}, Max: 27, Eta: 3}}, 9)
	c := search(t, Config{ASHA: &ASHA{Levels: []uint64{1, 3, 9, 27}, Eta: 3}}, 9)
	require.Equal(t, a.Rungs(), b.Rungs())
	require.Equal(t, a.Rungs(), c.Rungs())
	require.Equal(t, play(t, a, 2, byNumber), play(t, b, 2, byNumber))
}

// syne-tune 600: checkpoints of paused trials were never removed.
func TestComplaint26PausedTrialsEnd(t *testing.T) {
	for _, cfg := range []Config{{SHA: &SHA{Max: 9}}, {Hyperband: &Hyperband{Max: 9}}, population(true)} {
		for id, x := range play(t, search(t, cfg, 14), 3, byNumber) { // a claim about each: order cannot matter
			require.Equal(t, Stop, x.action, id)
		}
	}
	// Under asynchronous promotion a paused trial may go on as long as others come. When the search is over none does.
	s := search(t, Config{ASHA: &ASHA{Max: 9}}, 14)
	play(t, s, 3, byNumber)
	require.True(t, s.Quiescent())
	require.Positive(t, s.counts[paused])
	for _, id := range names(14) {
		_, err := s.Failed(id, 0, Ended)
		require.NoError(t, err)
		require.NoError(t, s.Forget(id))
	}
	require.Empty(t, s.index)
}

// optuna 3088: the maximum was found out late; the first trials were not judged, and then at their last epoch. Here
// the levels are known from the start.
func TestComplaint27FirstTrialsAreJudgedAtTheSameRungs(t *testing.T) {
	s := begin(t, Config{ASHA: &ASHA{Variant: Optuna, Max: 27, Eta: 3, Brackets: 2, Study: "s"}}, names(20)...)
	for _, id := range names(20) {
		require.Equal(t, uint64(3), report(t, s, id, 3, 0)[0].Level, "in both brackets")
	}
}

// optuna 5750: rungs were at 11, 41, 161 instead of 10, 40, 160.
func TestComplaint28StepsCountFromOne(t *testing.T) {
	s := begin(t, Config{ASHA: &ASHA{Variant: Stopping, Min: 10, Max: 640, Eta: 4}}, "a")
	for step := uint64(1); step < 640; step++ {
		want := uint64(0)
		if step == 10 || step == 40 || step == 160 {
			want = step
		}
		require.Equal(t, want, report(t, s, "a", step, 0)[0].Level)
	}
	_, err := s.Report(Report{Trial: "a"})
	require.ErrorContains(t, err, "counts from 1")
}

// optuna 3330: a bootstrap count stopped every early trial. There is none; the first goes on.
func TestComplaint29FirstTrialIsNotStopped(t *testing.T) {
	for _, v := range []Variant{Stopping, Ray, Optuna, Syne, SyneQuantile, Determined} {
		require.Equal(t, "C", letters(t, Config{ASHA: &ASHA{Variant: v}}, []float64{1e9}))
	}
}

// optuna 6835: a bracket too few for 243/3 and 1000/10.
func TestComplaint30CountOfBrackets(t *testing.T) {
	for most, want := range map[uint64]int{243: 6, 81: 5} { // each stands alone: order cannot matter
		b, err := Brackets(1, most, 3)
		require.NoError(t, err)
		require.Len(t, b, want)
	}
	b, err := Brackets(1, 1000, 10)
	require.NoError(t, err)
	require.Len(t, b, 4)
}

// optuna 1608: a step beyond any that was seen took the percentile of nothing.
func TestComplaint31StepsThatNobodyElseReached(t *testing.T) {
	s := begin(t, Config{Median: &Median{Min: 1}}, "a", "b")
	report(t, s, "b", 1, 0)
	require.Equal(t, ReasonFew, report(t, s, "a", 1<<40, 9)[0].Reason)
	require.Equal(t, Continue, report(t, s, "a", 1<<63, 9)[0].Action)
	require.Equal(t, Continue, report(t, s, "a", 1<<64-1, 9)[0].Action)
}

// optuna 2556: trials (4, 2), (3), (4, 3): the third was stopped at step 2 against a single value.
func TestComplaint32OneValueIsTooFew(t *testing.T) {
	s := begin(t, Config{Median: &Median{Grace: 2, Min: 2}}, "a", "b", "c")
	report(t, s, "a", 1, 4)
	report(t, s, "a", 2, 2)
	report(t, s, "b", 1, 3)
	require.Equal(t, ReasonBetween, report(t, s, "c", 1, 4)[0].Reason)
	require.Equal(t, ReasonFew, report(t, s, "c", 2, 3)[0].Reason)
}

// optuna 2575, 3542, 3168: a stopped trial was judged by its last value instead of its best.
func TestComplaint33TheBestValueCounts(t *testing.T) {
	s := begin(t, Config{Mode: Maximize, Median: &Median{Min: 1}}, "a", "b")
	report(t, s, "a", 1, 5)
	report(t, s, "a", 2, 5)
	require.Equal(t, Continue, report(t, s, "b", 1, 9)[0].Action)
	require.Equal(t, Continue, report(t, s, "b", 2, 0)[0].Action)
}

// optuna 388: the first trial was always kept, and then too many stopped if it was good. Promotion waits for others.
func TestComplaint34TheFirstIsNotPromotedAlone(t *testing.T) {
	s := begin(t, Config{Mode: Maximize, ASHA: &ASHA{Eta: 3}}, "a", "b", "c")
	for i, id := range []TrialID{"a", "b"} {
		report(t, s, id, 1, float64(9-i))
		starts, _ := s.Next(3)
		require.Empty(t, starts)
	}
	report(t, s, "c", 1, 10)
	starts, _ := s.Next(3)
	require.Len(t, starts, 1)
	require.Equal(t, TrialID("c"), starts[0].Trial)
}

// kubeflow/katib 557, 690, 1366: Hyperband never left its first bracket.
func TestComplaint35AllBracketsAreRun(t *testing.T) {
	for _, largest := range []bool{false, true} {
		s := search(t, Config{Mode: Maximize, Hyperband: &Hyperband{Max: 9, Eta: 3, LargestFirst: largest}}, 17)
		got := play(t, s, 5, byNumber)
		for _, g := range s.Rungs() {
			require.Positive(t, g.Recorded, g)
		}
		require.Equal(t, 3+2+1, complete(got, 9))
	}
}

// automl/HpBandSter 113: the floor of a floor instead of the ceiling.
func TestComplaint36CeilingOfTheWhole(t *testing.T) {
	b, err := Brackets(1, 8, 2)
	require.NoError(t, err)
	require.Equal(t, 6, b[2].Trials, "4/3*4 rounded up")
}

// baggepinnen/Hyperopt.jl 77, mlr-org/mlr3hyperband 32: one bracket too few at powers of eta.
func TestComplaint37PowersOfEta(t *testing.T) {
	for _, k := range []int{5, 10, 13} {
		most := uint64(1)
		for range k {
			most *= 3
		}
		b, err := Brackets(1, most, 3)
		require.NoError(t, err)
		require.Len(t, b, k+1)
	}
	b, err := Brackets(1, 81, 3) // 8.1/0.1, in tenths
	require.NoError(t, err)
	require.Len(t, b, 5)
}

// wandb/sweeps 23: an eta of 1 was taken, and nothing was ever removed.
func TestComplaint38EtaOfOneIsRefused(t *testing.T) {
	for _, cfg := range []Config{{ASHA: &ASHA{Eta: 1}}, {ASHA: &ASHA{Eta: 1, Levels: []uint64{1}}}, {SHA: &SHA{Eta: 1}}, {Hyperband: &Hyperband{Eta: 1}}} {
		_, err := New(cfg)
		require.ErrorContains(t, err, "at least 2")
	}
}

// c-bata/goptuna 120: the pruners had never worked, since nobody had run one to the end.
func TestComplaint39EveryKindRunsToItsEnd(t *testing.T) {
	for i, cfg := range configs() {
		if cfg.ASHA != nil && cfg.ASHA.RunOn > 0 {
			cfg.ASHA.RunOn = 0
		}
		falling := func(id TrialID, _ uint64) float64 { // but for the last, which is the best
			score := -number(id)
			if id == "t26" {
				score = 1
			}
			if cfg.Mode == Maximize {
				return score
			}
			return -score
		}
		got := play(t, search(t, cfg, 27), 4, falling)
		require.Len(t, got, 27, i)
		most := uint64(0)
		for _, x := range got { // a maximum: order cannot matter
			most = max(most, x.step)
		}
		require.Equal(t, most, got["t26"].step, "config %d: the best is among those that run longest", i)
		if cfg.PBT == nil {
			require.Less(t, complete(got, most), 27, i)
		}
	}
}
