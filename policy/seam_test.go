package policy

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

var errRefused = errors.New("refused")

func newSeam(t *testing.T, cfg SeamConfig[int]) *Seam[int] {
	cfg.Check = func(p int) error {
		if p < 0 {
			return errRefused
		}
		return nil
	}
	s, err := NewSeam(cfg)
	require.NoError(t, err)
	return s
}

func TestSeamDropsWithAReason(t *testing.T) {
	for name, c := range map[string]struct { // the order does not matter: each case stands alone
		behind  uint64
		after   time.Duration
		version uint64
		number  uint64
		plan    int
		score   int64
		want    Outcome
	}{
		"adopted":                 {after: time.Second, version: 7, number: 1, score: 5, want: Adopted},
		"late by a nanosecond":    {after: time.Second + 1, version: 7, number: 1, score: 5, want: Late},
		"stale":                   {version: 8, number: 1, score: 5, want: Stale},
		"stale within the limit":  {behind: 1, version: 8, number: 1, score: 5, want: Adopted},
		"stale beyond the limit":  {behind: 1, version: 9, number: 1, score: 5, want: Stale},
		"infeasible":              {version: 7, number: 1, plan: -1, score: 5, want: Infeasible},
		"behind and infeasible":   {behind: 9, version: 9, number: 1, plan: -1, score: 5, want: Infeasible},
		"no better":               {version: 7, number: 1, score: 4, want: Worse},
		"another's":               {version: 7, number: 2, score: 5, want: Unasked},
		"nobody's":                {version: 7, score: 5, want: Unasked},
		"late comes before stale": {after: time.Hour, version: 9, number: 1, plan: -1, want: Late},
	} {
		s := newSeam(t, SeamConfig[int]{MaxBehind: c.behind})
		o, err := s.Fast(at(0), 7, 1, 4)
		require.NoError(t, err)
		require.Equal(t, Adopted, o)
		ask, ok, err := s.Ask(at(0), 7)
		require.NoError(t, err)
		require.True(t, ok)
		ask.Number = c.number
		ask.Version, ask.Deadline = 99, at(time.Hour) // what comes back is not trusted
		o, err = s.Answer(at(c.after), c.version, Proposal[int]{Ask: ask, Plan: c.plan, Score: c.score})
		require.Equal(t, c.want, o, name)
		require.Equal(t, c.want == Infeasible, errors.Is(err, errRefused), name)
		var counts Counts
		counts.add(c.want)
		require.Equal(t, counts, s.State().Counts, name)
	}
}

func TestOneAskIsOut(t *testing.T) {
	s := newSeam(t, SeamConfig[int]{Budget: 10, MinEvery: 30})
	first, ok, err := s.Ask(at(0), 1)
	require.NoError(t, err)
	require.True(t, ok)
	_, ok, err = s.Ask(at(10), 1)
	require.NoError(t, err)
	require.False(t, ok)
	wake, ok := s.NextWake()
	require.True(t, ok)
	require.True(t, at(30).Equal(wake), wake)
	second, ok, err := s.Ask(wake, 1)
	require.NoError(t, err)
	require.True(t, ok)
	require.NotEqual(t, first.Seed, second.Seed)
	require.Equal(t, Counts{Late: 1}, s.State().Counts) // given up
	o, err := s.Answer(wake, 1, Proposal[int]{Ask: first})
	require.NoError(t, err)
	require.Equal(t, Unasked, o)
	o, err = s.Answer(wake, 1, Proposal[int]{Ask: second})
	require.NoError(t, err)
	require.Equal(t, Adopted, o) // no plan of the fast path is in force
	o, err = s.Answer(wake, 1, Proposal[int]{Ask: second})
	require.NoError(t, err)
	require.Equal(t, Unasked, o) // each is answered once
}

func TestFastPathMeetsTheSameCheck(t *testing.T) {
	s := newSeam(t, SeamConfig[int]{})
	o, err := s.Fast(at(0), 1, -1, 5)
	require.ErrorIs(t, err, errRefused)
	require.Equal(t, Infeasible, o)
	require.False(t, s.State().InForce)
}

func TestSeamBadInput(t *testing.T) {
	_, err := NewSeam(SeamConfig[int]{Budget: -1, MinEvery: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, field := range []string{"Budget", "MinEvery", "Check"} {
		require.ErrorContains(t, err, field)
	}
	s := newSeam(t, SeamConfig[int]{})
	_, _, err = s.Ask(at(5), 5)
	require.NoError(t, err)
	before := s.State()
	_, _, err = s.Ask(at(4), 5)
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, err = s.Fast(at(5), 4, 1, 1)
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, err = s.Answer(time.Time{}, 5, Proposal[int]{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Equal(t, before, s.State())
	for _, bad := range []SeamState{{Now: -1}, {AskedAt: 1}, {Open: Ask{Number: 1}}, {Open: Ask{Seed: 1}}, {Asked: 1, Open: Ask{Number: 1, Deadline: at(0), Version: 1}}} {
		require.ErrorIs(t, s.Restore(bad), lockstep.ErrInvalid)
	}
	require.Equal(t, before, s.State())
}

// A Seam restored from JSON goes on as the one that was saved, and every answer is counted once.
func TestSeamReplays(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	cfg := SeamConfig[int]{Budget: 20, MinEvery: 5, MaxBehind: 1, Seed: 3}
	s, now, version, answers := newSeam(t, cfg), time.Duration(0), uint64(0), uint64(0)
	var asks []Ask
	for range 2000 {
		now += time.Duration(rng.IntN(6))
		version += uint64(rng.IntN(2))
		text, err := json.Marshal(s.State())
		require.NoError(t, err)
		var saved SeamState
		require.NoError(t, json.Unmarshal(text, &saved))
		other := newSeam(t, cfg)
		require.NoError(t, other.Restore(saved))
		for i, seam := range []*Seam[int]{s, other} {
			switch {
			case now%3 == 0:
				ask, ok, err := seam.Ask(at(now), version)
				require.NoError(t, err)
				if ok && i == 0 {
					asks = append(asks, ask)
				}
			case now%3 == 1 && len(asks) > 0:
				if i == 0 {
					answers++
				}
				_, err := seam.Answer(at(now), version, Proposal[int]{Ask: asks[len(asks)-1], Plan: int(now%5) - 1, Score: int64(now % 7)})
				if err != nil {
					require.ErrorIs(t, err, errRefused)
				}
			default:
				_, err := seam.Fast(at(now), version, 1, 3)
				require.NoError(t, err)
			}
		}
		require.Equal(t, s.State(), other.State())
	}
	c := s.State().Counts
	open := uint64(btoi(s.State().Open.Number != 0))
	require.Equal(t, s.State().Asked, c.Adopted+c.Late+c.Stale+c.Infeasible+c.Worse+open)
	require.GreaterOrEqual(t, c.Adopted+c.Unasked+c.Late+c.Stale+c.Infeasible+c.Worse, answers)
	for _, n := range []uint64{c.Adopted, c.Unasked, c.Late, c.Stale, c.Infeasible, c.Worse} {
		require.Positive(t, n)
	}
}

// After a crash an earlier state is restored, and the number of an ask that is still being worked on is given out again.
// Its answer is for an older state, or too late, and must not pass for that of the new one.
func TestAnAnswerFromBeforeARestoreIsNotAdopted(t *testing.T) {
	s := newSeam(t, SeamConfig[int]{Budget: 10})
	saved := s.State()
	lost, ok, err := s.Ask(at(0), 7)
	require.NoError(t, err)
	require.True(t, ok)
	for version, want := range map[uint64]Outcome{7: Late, 8: Late} { // the order does not matter
		require.NoError(t, s.Restore(saved))
		again, ok, err := s.Ask(at(20), version)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, lost.Number, again.Number)
		o, err := s.Answer(at(21), version, Proposal[int]{Ask: lost, Plan: 1, Score: 9})
		require.NoError(t, err)
		require.Equal(t, want, o)
	}
	// Of the same instant, the state tells them apart.
	require.NoError(t, s.Restore(saved))
	_, ok, err = s.Ask(at(0), 8)
	require.NoError(t, err)
	require.True(t, ok)
	o, err := s.Answer(at(1), 8, Proposal[int]{Ask: lost, Plan: 1, Score: 9})
	require.NoError(t, err)
	require.Equal(t, Stale, o)
}

// A saved state whose open ask is not the last one, or has more time than the budget, would let a late answer in.
func TestRestoreRefusesAskOutOfBudget(t *testing.T) {
	s := newSeam(t, SeamConfig[int]{Budget: 10})
	_, _, err := s.Ask(at(0), 7)
	require.NoError(t, err)
	good := s.State()
	require.NoError(t, s.Restore(good))
	for _, spoil := range []func(*SeamState){
		func(st *SeamState) { st.Open.Deadline = at(11) },
		func(st *SeamState) { st.Asked++ },
	} {
		bad := good
		spoil(&bad)
		require.ErrorIs(t, s.Restore(bad), lockstep.ErrInvalid)
		require.Equal(t, good, s.State())
	}
}
