package hpo

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// A host that reports at Until only never runs a trial past Max.
func TestUntilIsNeverPastTheEnd(t *testing.T) {
	for _, cfg := range []Config{
		{Median: &Median{Interval: 10, Max: 15}},
		{Median: &Median{Grace: 7, Interval: math.MaxUint64, Max: 9}},
		{PBT: &PBT{Interval: 10, Max: 15}},
		{PBT: &PBT{Interval: 10, BurnIn: 40, Max: 15}},
		{PBT: &PBT{Interval: 4, Max: 10, Sync: true}},
		{SHA: &SHA{Max: 100}},
		{Hyperband: &Hyperband{Max: 100}},
		{ASHA: &ASHA{Variant: Stopping, Max: 100}},
	} {
		s, err := New(cfg)
		require.NoError(t, err)
		require.NoError(t, s.Add("a"))
		for range 100 {
			starts, _ := s.Next(1)
			require.LessOrEqual(t, len(starts), 1)
			on := s.Running()
			if len(on) == 0 {
				break
			}
			require.LessOrEqual(t, on[0].Until, s.rule.end(0))
			require.Greater(t, on[0].Until, on[0].From)
			_, err := s.Report(Report{Trial: "a", Step: on[0].Until, Value: 1})
			require.NoError(t, err)
		}
		require.True(t, s.Quiescent())
	}
}

// Configurations are told apart by their JSON, in which other texts than UTF-8 look alike.
func TestTextsAreUTF8(t *testing.T) {
	require.ErrorIs(t, Config{ASHA: &ASHA{Study: "\xff"}}.Validate(), lockstep.ErrInvalid)
	require.ErrorIs(t, Config{PBT: &PBT{Params: []Param{{Name: "a\xfe"}}}}.Validate(), lockstep.ErrInvalid)
	s := begin(t, Config{}, "\xff", "\xfe")
	require.Len(t, s.Running(), 2, "trials are not in it")
}

// However many devices there are, a trial's number of them is found at once where the speed is their number.
func TestShiftOverManyDevices(t *testing.T) {
	var ids []TrialID
	for i := range 200 {
		ids = append(ids, names(200)[i])
	}
	s := begin(t, Config{}, ids...)
	d := Deadline{At: epoch(1 << 20), Devices: maxBracket, Step: time.Second, Resize: 1 << 62}
	got, err := s.Shift(epoch(0), d, nil)
	require.NoError(t, err)
	require.Len(t, got.Sizes, 200)
	for _, x := range got.Sizes {
		require.Equal(t, 1, x.Devices, "resizing takes longer than there is")
	}
	d.Resize, d.Most = 0, 1<<20
	got, err = s.Shift(epoch(0), d, nil)
	require.NoError(t, err)
	require.Equal(t, 1<<20, got.Sizes[0].Devices)
	require.Equal(t, 1<<20, got.Sizes[199].Devices)
}

// The extremes of steps and of Eta overflow nothing.
func TestExtremeStepsAndEta(t *testing.T) {
	for _, cfg := range []Config{
		{ASHA: &ASHA{Max: 1 << 63, Eta: 2}},
		{ASHA: &ASHA{Max: math.MaxUint64, Eta: 1 << 31}},
		{ASHA: &ASHA{Variant: Stopping, Max: math.MaxUint64, Eta: math.MaxUint32, Brackets: 2}},
		{SHA: &SHA{Max: math.MaxUint64, Eta: math.MaxUint32}},
		{Hyperband: &Hyperband{Min: math.MaxUint64 / 4, Max: math.MaxUint64, Eta: 2}},
		{Median: &Median{Grace: math.MaxUint64, Interval: math.MaxUint64}},
		{PBT: &PBT{Interval: math.MaxUint64, BurnIn: 1}},
	} {
		s := begin(t, cfg, "a", "b", "c", "d")
		for _, step := range []uint64{1, 2, 1 << 31, 1 << 62, math.MaxUint64} {
			for _, x := range s.Running() {
				_, err := s.Report(Report{Trial: x.Trial, Step: step, Value: math.Copysign(0, -1)})
				require.NoError(t, err)
			}
			s.Next(4)
			image(t, s)
		}
	}
}

// Trials go to the bracket that has the fewest for its share, of equal ones to the first.
func TestEqualBracketsAreFilledFromTheFirst(t *testing.T) {
	s := begin(t, Config{ASHA: &ASHA{Max: 9, Eta: 3, Brackets: 2}}, names(10)...)
	got := make([]int, 10)
	for i, x := range s.Running() {
		got[i] = x.Bracket
	}
	require.Equal(t, []int{0, 1, 0, 0, 1, 0, 1, 0, 0, 1}, got, "three to two")
}

// A body in the right form that tells of what cannot be is refused.
func TestRestoreRefusesWhatCannotBe(t *testing.T) {
	for name, forge := range map[string]func(s *Scheduler){ // in any order: each stands by itself
		"record after the last": func(s *Scheduler) { s.trials[0].seq = s.seq + 1 },
		"added after the last":  func(s *Scheduler) { s.trials[0].order = s.added + 1 },
		"added twice":           func(s *Scheduler) { s.trials[0].order = s.trials[1].order },
		"attempts":              func(s *Scheduler) { s.trials[0].attempt = 1 << 31 },
		"never started":         func(s *Scheduler) { s.trials[0].attempt = 0 },
		"bracket":               func(s *Scheduler) { s.trials[0].bracket = 1 },
		"rung":                  func(s *Scheduler) { s.trials[0].rung = 99 },
		"state":                 func(s *Scheduler) { s.trials[0].state = done + 1 },
		"no name":               func(s *Scheduler) { s.trials[0].id = "" },
		"latest record":         func(s *Scheduler) { s.seq-- },
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t, Config{}, "a", "b")
			report(t, s, "a", 1, 1)
			report(t, s, "b", 1, 2)
			forge(s)
			_, err := Restore(Config{}, bytes.NewReader(image(t, s)))
			require.ErrorIs(t, err, lockstep.ErrInvalid)
		})
	}
}
