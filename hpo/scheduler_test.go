package hpo

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestConfigIsRefusedWithEveryFault(t *testing.T) {
	many := make([]uint64, 65)
	for i := range many {
		many[i] = uint64(i + 1)
	}
	for _, tt := range []struct {
		cfg   Config
		wants []string
	}{
		{Config{Mode: "up", NaN: "best", Retries: -1}, []string{"Mode", "NaN", "Retries"}},
		{Config{ASHA: &ASHA{}, PBT: &PBT{}}, []string{"rules = 2"}},
		{Config{ASHA: &ASHA{Variant: "x", RunOn: -1, Eta: 1}}, []string{"Variant", "RunOn", "Eta"}},
		{Config{ASHA: &ASHA{Min: 9, Max: 8}}, []string{"Min = 9"}},
		{Config{ASHA: &ASHA{Brackets: 6, Max: 81}}, []string{"Brackets = 6"}},
		{Config{ASHA: &ASHA{Brackets: -1}}, []string{"Brackets"}},
		{Config{ASHA: &ASHA{Levels: []uint64{0, 1}}}, []string{"Levels[0]"}},
		{Config{ASHA: &ASHA{Levels: []uint64{3, 3}}}, []string{"Levels[1]"}},
		{Config{ASHA: &ASHA{Levels: []uint64{3, 2}, Max: 9}}, []string{"Levels[1]"}},
		{Config{ASHA: &ASHA{Levels: []uint64{3, 9}, Max: 8}}, []string{"Levels[1]"}},
		{Config{ASHA: &ASHA{Levels: many}}, []string{"Levels = 65"}},
		{Config{SHA: &SHA{Eta: 1, Trials: -1}}, []string{"Eta", "Trials"}},
		{Config{SHA: &SHA{Min: 5, Max: 4}}, []string{"Min"}},
		{Config{Hyperband: &Hyperband{Max: 1 << 63, Eta: 2}}, []string{"2^30"}},
		{Config{Hyperband: &Hyperband{Max: math.MaxUint64, Eta: 2}}, []string{"2^30"}},
		{Config{Hyperband: &Hyperband{Min: 2, Max: 1}}, []string{"Min"}},
		{Config{Median: &Median{Min: -1, Grace: 5, Max: 4}}, []string{"Min", "Max"}},
		{Config{PBT: &PBT{QuantileFraction: 0.6, ResampleFraction: nan}}, []string{"QuantileFraction", "ResampleFraction"}},
		{Config{PBT: &PBT{QuantileFraction: nan, ResampleFraction: -1}}, []string{"QuantileFraction", "ResampleFraction"}},
		{Config{PBT: &PBT{Params: []Param{{Name: "a", Low: 2, High: 1}, {Name: "a"}}}}, []string{"Params[0].Low", "Params[1].Name"}},
	} {
		s, err := New(tt.cfg)
		require.Nil(t, s)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
		for _, want := range tt.wants {
			require.ErrorContains(t, err, want)
		}
	}
	for _, eta := range []uint32{0, 1} {
		_, err := Levels(1, 9, eta)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err := Levels(0, 9, 2)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Brackets(3, 2, 2)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestExtremeConfigsWork(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{ASHA: &ASHA{Min: 1, Max: 1}}, // no rung at all
		{ASHA: &ASHA{Max: 1 << 63, Eta: math.MaxUint32, Brackets: 2}},
		{ASHA: &ASHA{Variant: Optuna, Max: 1 << 63, Eta: 2, Brackets: 64}},
		{ASHA: &ASHA{Variant: Stopping, Max: 1 << 63, Eta: 2, Brackets: 64}},
		{SHA: &SHA{Min: math.MaxUint64, Max: math.MaxUint64}},
		{Hyperband: &Hyperband{Max: 1}},
		{Median: &Median{Grace: math.MaxUint64}},
		{Median: &Median{Interval: math.MaxUint64}},
		{PBT: &PBT{Interval: math.MaxUint64}},
	} {
		s := begin(t, cfg, names(5)...)
		for _, step := range []uint64{1, 2, 1 << 62, 1 << 63, math.MaxUint64} {
			for _, id := range names(5) {
				report(t, s, id, step, 1)
			}
		}
		s.Next(math.MaxInt)
		for _, id := range names(5) {
			_, err := s.Failed(id, 0, Ended)
			require.NoError(t, err)
		}
		require.True(t, s.Quiescent())
	}
}

func TestWrongCallsChangeNothing(t *testing.T) {
	s := begin(t, Config{ASHA: &ASHA{Max: 9}}, "a", "b", "c")
	require.NoError(t, s.Add("waits"))
	report(t, s, "c", 100, 0)
	was := image(t, s)
	for _, tt := range []struct {
		name string
		kind error
		call func() error
	}{
		{"no name", lockstep.ErrInvalid, func() error { return s.Add("") }},
		{"twice", lockstep.ErrDuplicate, func() error { return s.Add("a") }},
		{"unknown", lockstep.ErrUnknown, func() error { _, err := s.Report(Report{Trial: "x", Step: 1}); return err }},
		{"half of a batch", lockstep.ErrUnknown, func() error {
			_, err := s.Report(Report{Trial: "a", Step: 1}, Report{Trial: "x", Step: 1})
			return err
		}},
		{"twice in a batch", lockstep.ErrDuplicate, func() error {
			_, err := s.Report(Report{Trial: "a", Step: 1}, Report{Trial: "a", Step: 2})
			return err
		}},
		{"step 0", lockstep.ErrInvalid, func() error { _, err := s.Report(Report{Trial: "a"}); return err }},
		{"never started", lockstep.ErrConflict, func() error { _, err := s.Report(Report{Trial: "waits", Step: 1}); return err }},
		{"attempt to come", lockstep.ErrConflict, func() error { _, err := s.Report(Report{Trial: "a", Step: 1, Attempt: 2}); return err }},
		{"failed unknown", lockstep.ErrUnknown, func() error { _, err := s.Failed("x", 0, Crashed); return err }},
		{"failed attempt", lockstep.ErrConflict, func() error { _, err := s.Failed("a", 2, Crashed); return err }},
		{"failed how", lockstep.ErrInvalid, func() error { _, err := s.Failed("a", 0, "tired"); return err }},
		{"forget unknown", lockstep.ErrUnknown, func() error { return s.Forget("x") }},
		{"forget running", lockstep.ErrConflict, func() error { return s.Forget("a") }},
		{"forget waiting", lockstep.ErrConflict, func() error { return s.Forget("waits") }},
	} {
		require.ErrorIs(t, tt.call(), tt.kind, tt.name)
		require.Equal(t, string(was), string(image(t, s)), tt.name)
	}
	for _, free := range []int{0, -1, math.MinInt} {
		starts, decisions := s.Next(free)
		require.Empty(t, starts)
		require.Empty(t, decisions)
	}
	got, err := s.Report()
	require.NoError(t, err)
	require.Empty(t, got)
	d := report(t, s, "c", 1, 5)[0]
	require.Equal(t, Decision{Trial: "c", Attempt: 1, Action: Stop, Reason: ReasonOver}, d)
	require.Equal(t, string(was), string(image(t, s)))
}

func TestFailuresRestartOrEnd(t *testing.T) {
	s := begin(t, Config{Retries: 1, ASHA: &ASHA{Max: 9, Min: 3}}, "a", "b")
	report(t, s, "a", 2, 1)
	fail := func(id TrialID, attempt uint32, kind FailKind) []Decision {
		got, err := s.Failed(id, attempt, kind)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, []Decision{{Trial: "a", Attempt: 1, Action: Pause, Reason: ReasonRestart}}, fail("a", 1, Preempted))
	require.Equal(t, Pause, report(t, s, "a", 3, 1)[0].Action, "a late report of what is to be restarted")
	starts, _ := s.Next(2)
	require.Equal(t, []Start{{Trial: "a", Attempt: 2, From: 2, Until: 3}}, starts)
	require.Empty(t, fail("a", 1, Crashed), "of an earlier attempt")
	require.Equal(t, ReasonRestart, fail("a", 0, Crashed)[0].Reason)
	s.Next(1)
	require.Equal(t, Decision{Trial: "a", Attempt: 3, Action: Stop, Reason: ReasonFailed}, fail("a", 0, Crashed)[0])
	require.Empty(t, fail("a", 0, Crashed))
	report(t, s, "b", 3, 1)
	require.Empty(t, fail("b", 0, Crashed), "a paused trial does not run")
	require.Equal(t, ReasonFailed, fail("b", 0, Invalid)[0].Reason)
	require.NoError(t, s.Add("c"))
	require.Empty(t, fail("c", 0, Preempted))
	require.Len(t, fail("c", 0, Ended), 1)
	require.True(t, s.Quiescent())
}

// A bundle reports in one call, is recorded whole, and its free places are filled.
func TestBundleIsOneReport(t *testing.T) {
	s := begin(t, Config{Mode: Maximize, ASHA: &ASHA{Variant: Stopping, Max: 9, Eta: 2}}, names(4)...)
	require.NoError(t, s.Add("next"))
	got, err := s.Report(
		Report{Trial: "t0", Step: 1, Value: 1}, Report{Trial: "t1", Step: 1, Value: 4},
		Report{Trial: "t2", Step: 1, Value: 2}, Report{Trial: "t3", Step: 1, Value: 3},
	)
	require.NoError(t, err)
	require.Equal(t, []Action{Stop, Continue, Stop, Continue}, []Action{got[0].Action, got[1].Action, got[2].Action, got[3].Action})
	starts, _ := s.Next(2)
	require.Len(t, starts, 1)
	require.Equal(t, TrialID("next"), starts[0].Trial)
}

// Ties within a batch go by Seq, and then by name.
func TestTiesWithinABatch(t *testing.T) {
	for _, seq := range []uint64{0, 1} {
		s := begin(t, Config{ASHA: &ASHA{Max: 9, Eta: 2}}, "b", "a")
		_, err := s.Report(Report{Trial: "b", Step: 1, Seq: 1 - seq}, Report{Trial: "a", Step: 1, Seq: 0 + seq})
		require.NoError(t, err)
		starts, _ := s.Next(9)
		require.Len(t, starts, 1)
		require.Equal(t, []TrialID{"a", "b"}[seq], starts[0].Trial)
	}
	for _, order := range [][2]TrialID{{"a", "b"}, {"b", "a"}} {
		s := begin(t, Config{ASHA: &ASHA{Max: 9, Eta: 2}}, "b", "a")
		_, err := s.Report(Report{Trial: order[0], Step: 1, Seq: 7}, Report{Trial: order[1], Step: 1, Seq: 7})
		require.NoError(t, err)
		starts, _ := s.Next(9)
		require.Len(t, starts, 1)
		require.Equal(t, TrialID("a"), starts[0].Trial, "of one Seq the lower ID is the earlier")
	}
}

// A report that jumps over rungs counts at the highest it reached, and the others are passed; it does not count at a low
// rung later with the metric of a high step.
func TestSkippedRungsArePassed(t *testing.T) {
	for _, v := range []Variant{Stopping, Ray, Syne, SyneQuantile} {
		s := begin(t, Config{ASHA: &ASHA{Variant: v, Max: 256, Eta: 4}}, "a")
		require.Equal(t, uint64(4), report(t, s, "a", 5, 1)[0].Level)
		require.Equal(t, ReasonBetween, report(t, s, "a", 6, 1)[0].Reason)
		require.Equal(t, uint64(64), report(t, s, "a", 64, 1)[0].Level)
		require.Zero(t, s.Rungs()[0].Recorded)
		require.Equal(t, uint64(1), s.Rungs()[1].Recorded)
		require.Zero(t, s.Rungs()[2].Recorded)
	}
	for _, v := range []Variant{Optuna, Determined} {
		s := begin(t, Config{ASHA: &ASHA{Variant: v, Max: 256, Eta: 4}}, "a", "b")
		require.Equal(t, uint64(4), report(t, s, "a", 5, 1)[0].Level)
		require.Equal(t, uint64(1), s.Rungs()[0].Recorded)
		require.Equal(t, uint64(1), s.Rungs()[1].Recorded)
		d := report(t, s, "b", 70, 2)[0] // stopped at the first, it is not recorded at the others
		require.Equal(t, uint64(1), d.Level)
		require.Equal(t, uint64(2), s.Rungs()[0].Recorded)
		require.Equal(t, uint64(1), s.Rungs()[1].Recorded)
	}
}

func TestOnlyReportAtTheEnd(t *testing.T) {
	for i, cfg := range configs() {
		if cfg.ASHA != nil && cfg.ASHA.RunOn > 0 || cfg.Median != nil && cfg.Median.Max == 0 {
			continue
		}
		s := search(t, cfg, 6)
		for n := 0; !s.Quiescent(); n++ {
			require.Less(t, n, 100, i)
			s.Next(6)
			for _, x := range s.Running() {
				d := report(t, s, x.Trial, 1000, number(x.Trial))[0]
				require.Equal(t, Stop, d.Action, i)
			}
		}
	}
}

func TestAllEqualAndAllNaN(t *testing.T) {
	for _, cfg := range configs() {
		if cfg.ASHA != nil {
			cfg.ASHA.RunOn = 0
		}
		for i, v := range []float64{0, nan, nan, nan, inf} {
			cfg.NaN = []NaNPolicy{NaNWorst, NaNWorst, NaNStop, NaNIgnore, NaNIgnore}[i]
			play(t, search(t, cfg, 13), 4, func(TrialID, uint64) float64 { return v })
		}
	}
}

// Memory stays flat when what is over is forgotten: slots are used again, and names too.
func TestForgottenTrialsLeaveNothing(t *testing.T) {
	s, err := New(Config{PBT: &PBT{Max: 2}})
	require.NoError(t, err)
	for i := range 2000 {
		id := names(7)[i%7]
		require.NoError(t, s.Add(id))
		starts, _ := s.Next(1)
		require.Len(t, starts, 1)
		require.Equal(t, uint32(1), starts[0].Attempt)
		require.Equal(t, Stop, report(t, s, id, 2, 1)[0].Action)
		require.NoError(t, s.Forget(id))
	}
	require.Len(t, s.trials, 1)
	require.LessOrEqual(t, cap(s.waiting.line), 128)
	require.Empty(t, s.index)

	h, err := New(Config{Hyperband: &Hyperband{Max: 9}})
	require.NoError(t, err)
	for range 300 {
		for _, id := range names(17) {
			require.NoError(t, h.Add(id))
		}
		play(t, h, 5, byNumber)
		for _, id := range names(17) {
			require.NoError(t, h.Forget(id))
		}
	}
	require.Less(t, len(h.rule.(*synchronous).bands), 12)
	require.Len(t, h.trials, 17)
}

// A forgotten trial's slot is used by another that its old entries do not touch.
func TestEntriesOfForgottenTrialsAreVoid(t *testing.T) {
	s := begin(t, Config{Mode: Maximize, ASHA: &ASHA{Max: 9, Eta: 2}}, "a", "b")
	report(t, s, "a", 1, 9)
	_, err := s.Failed("a", 0, Ended)
	require.NoError(t, err)
	require.NoError(t, s.Forget("a"))
	require.NoError(t, s.Add("c"))
	s.Next(1)
	report(t, s, "c", 1, 1)
	report(t, s, "b", 1, 2)
	starts, _ := s.Next(9)
	require.Empty(t, starts, "the best half of three is the one that is gone")
	require.True(t, s.Quiescent())
}

// The slot of a forgotten trial is another's, who is not promoted for what the first one did, nor starts in its turn.
func TestSlotsAreNotMistaken(t *testing.T) {
	s := begin(t, Config{Mode: Maximize, ASHA: &ASHA{Max: 9, Eta: 3}}, "a", "b")
	report(t, s, "b", 1, 9)
	report(t, s, "a", 1, 5)
	forget := func(id TrialID) {
		_, err := s.Failed(id, 0, Ended)
		require.NoError(t, err)
		require.NoError(t, s.Forget(id))
	}
	forget("a")
	for i, id := range []TrialID{"c", "d", "e", "f"} {
		require.NoError(t, s.Add(id))
		s.Next(1)
		if i > 0 { // the place went to b when c had come
			s.Next(1)
		}
		report(t, s, id, 1, float64(i))
	}
	starts, _ := s.Next(9)
	require.Empty(t, starts, "the best two of six are b, and one who is gone")

	for _, id := range []TrialID{"x", "y"} {
		require.NoError(t, s.Add(id))
	}
	forget("x")
	require.NoError(t, s.Add("z"))
	starts, _ = s.Next(9)
	require.Len(t, starts, 2)
	require.Equal(t, TrialID("y"), starts[0].Trial)
}

func TestReportAllocatesItsResult(t *testing.T) {
	s := begin(t, Config{ASHA: &ASHA{Variant: Stopping, Max: 1 << 40, Min: 1 << 30}}, "a")
	step := uint64(0)
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() {
		step++
		if _, err := s.Report(Report{Trial: "a", Step: step, Value: 1}); err != nil {
			t.Fatal(err)
		}
	}), 1.0)
}

// The same calls make the same draws, and another seed others.
func TestDrawsFollowTheSeed(t *testing.T) {
	draws := func(seed uint64) []Decision {
		cfg := population(false)
		cfg.PBT.Seed = seed
		s := begin(t, cfg, names(20)...)
		rng := rand.New(rand.NewPCG(9, 9))
		var out []Decision
		for _, id := range names(20) {
			for _, d := range report(t, s, id, 4, rng.Float64()) {
				if d.Action == Copy {
					out = append(out, d)
				}
			}
		}
		return out
	}
	require.NotEmpty(t, draws(1))
	require.Equal(t, draws(1), draws(1))
	require.NotEqual(t, draws(1), draws(2))
	first := draws(1)[0]
	require.Equal(t, []Turn{{Param: "lr", Resample: first.Turns[0].Resample, Draw: first.Turns[0].Draw}}, first.Turns)
}

func TestParamGoldens(t *testing.T) {
	up, down, fresh := Turn{Draw: 1 << 63}, Turn{Draw: 1<<63 - 1}, Turn{Resample: true, Draw: 1 << 63}
	lr := Param{Name: "lr", Low: 10, High: 1000}
	kind := Param{Name: "kind", Low: 0, High: 3, Choice: true}
	loss := Param{Name: "offset", Low: -1000, High: 10}
	for _, tt := range []struct {
		p    Param
		v    int64
		turn Turn
		want int64
	}{
		{lr, 100, up, 120},
		{lr, 100, down, 80},
		{lr, 12, up, 14},
		{lr, 12, down, 10},
		{lr, 10, down, 10},
		{lr, 900, up, 1000},
		{lr, 5000, down, 800},
		{lr, 100, fresh, 505},
		{kind, 1, up, 2},
		{kind, 1, down, 0},
		{kind, 3, up, 3},
		{kind, 0, down, 0},
		{kind, 0, fresh, 2},
		{loss, -100, up, -120},
		{loss, -100, down, -80},
		{loss, -1000, up, -1000},
		{loss, 1, up, 2},
	} {
		require.Equal(t, tt.want, tt.p.Apply(tt.v, tt.turn), tt)
	}
}
