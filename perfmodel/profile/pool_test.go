package profile

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// at is a time of tests, in seconds.
func at(s float64) time.Time {
	return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(s * float64(time.Second)))
}

func pool(t *testing.T, cfg PoolConfig) *Pool {
	t.Helper()
	p, err := NewPool(cfg)
	require.NoError(t, err)
	return p
}

func submit(t *testing.T, p *Pool, s float64, id lockstep.JobID, gpus int) {
	t.Helper()
	ok, err := p.Submit(at(s), id, gpus)
	require.NoError(t, err)
	require.True(t, ok)
}

func actions(t *testing.T, p *Pool, s float64, want ...PoolAction) {
	t.Helper()
	got, err := p.Step(at(s), nil)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func wakes(t *testing.T, p *Pool, s, want float64) {
	t.Helper()
	next, ok := p.NextWake(at(s))
	require.True(t, ok)
	require.Equal(t, at(want), next)
}

func TestPoolTakesTheSmallestFirstAndStopsThemInTime(t *testing.T) {
	p := pool(t, PoolConfig{})
	_, ok := p.NextWake(at(0))
	require.False(t, ok)
	submit(t, p, 0, "big", 8)
	submit(t, p, 1, "b", 1)
	submit(t, p, 1, "a", 1)
	submit(t, p, 1, "early", 2)
	wakes(t, p, 1, 1)
	actions(t, p, 2, PoolAction{"a", PoolStart}, PoolAction{"b", PoolStart}, PoolAction{"early", PoolStart})
	require.Equal(t, 4, p.Free())
	wakes(t, p, 2, 502)
	require.NoError(t, p.Leave(at(100), "a")) // a short job simply ends there
	actions(t, p, 100)
	actions(t, p, 502, PoolAction{"b", PoolStop}, PoolAction{"early", PoolStop})
	actions(t, p, 502)
	wakes(t, p, 502, 2000) // when the big one has waited long enough
	require.NoError(t, p.Leave(at(503), "b"))
	actions(t, p, 503) // "early" still has its GPUs
	require.NoError(t, p.Leave(at(504), "early"))
	wakes(t, p, 504, 504)
	actions(t, p, 504, PoolAction{"big", PoolStart})
	submit(t, p, 505, "late", 8)
	require.NoError(t, p.Leave(at(505), "late")) // withdrawn
	actions(t, p, 1004, PoolAction{"big", PoolStop})
	_, ok = p.NextWake(at(1004))
	require.False(t, ok)
	waits, held := p.Len()
	require.Equal(t, [2]int{0, 1}, [2]int{waits, held})
}

func TestPoolPassesOnWhoWaitsTooLong(t *testing.T) {
	p := pool(t, PoolConfig{GPUs: 2, Limit: 10 * time.Second, Wait: 15 * time.Second})
	submit(t, p, 0, "two", 2)
	submit(t, p, 0, "one", 1)
	actions(t, p, 0, PoolAction{"one", PoolStart})
	actions(t, p, 10, PoolAction{"one", PoolStop})
	actions(t, p, 15, PoolAction{"two", PoolPass})
	require.ErrorIs(t, p.Leave(at(15), "two"), lockstep.ErrUnknown)
	ok, err := p.Submit(at(16), "three", 3)
	require.NoError(t, err)
	require.False(t, ok)
}

func TestPoolRefusesBadInput(t *testing.T) {
	require.Error(t, PoolConfig{GPUs: -1, Most: -1, Limit: -1, Wait: -1}.Validate())
	require.Error(t, PoolConfig{GPUs: 4, Most: 5}.Validate())
	require.Error(t, PoolConfig{Most: 9}.Validate())
	require.NoError(t, PoolConfig{Most: 8}.Validate())
	_, err := NewPool(PoolConfig{Limit: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	p := pool(t, PoolConfig{Limit: lockstep.MaxWalltime})
	submit(t, p, 5, "a", 1)
	before := state(t, p.Snapshot)
	for _, tt := range []struct {
		kind error
		call func() error
	}{
		{lockstep.ErrInvalid, func() error { _, err := p.Submit(at(6), "", 1); return err }},
		{lockstep.ErrInvalid, func() error { _, err := p.Submit(at(6), "b", 0); return err }},
		{lockstep.ErrInvalid, func() error { _, err := p.Submit(at(6), "b", maxGPUs+1); return err }},
		{lockstep.ErrDuplicate, func() error { _, err := p.Submit(at(6), "a", 1); return err }},
		{lockstep.ErrPast, func() error { _, err := p.Submit(at(4), "b", 1); return err }},
		{lockstep.ErrInvalid, func() error { _, err := p.Submit(time.Time{}, "b", 1); return err }},
		{lockstep.ErrUnknown, func() error { return p.Leave(at(6), "b") }},
		{lockstep.ErrPast, func() error { return p.Leave(at(4), "a") }},
		{lockstep.ErrPast, func() error { _, err := p.Step(at(4), nil); return err }},
		{lockstep.ErrInvalid, func() error { _, err := p.Step(time.Time{}, nil); return err }},
	} {
		require.ErrorIs(t, tt.call(), tt.kind)
		require.Equal(t, before, state(t, p.Snapshot), "after an error nothing has changed")
	}
	_, ok := p.NextWake(time.Time{})
	require.False(t, ok)
}

// Random jobs come, end and dawdle, with a step at every event and at NextWake.
func TestPoolKeepsItsPromises(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	rng := rand.New(rand.NewPCG(9, 9))
	for range rounds {
		cfg := PoolConfig{GPUs: 1 + rng.IntN(12), Limit: time.Duration(1+rng.IntN(50)) * time.Second, Wait: time.Duration(1+rng.IntN(200)) * time.Second}
		p := pool(t, cfg)
		type job struct {
			gpus           int
			came, began    time.Time
			started, ended bool
		}
		jobs := make(map[lockstep.JobID]*job)
		var inside []lockstep.JobID
		now := at(0)
		step := func() {
			acts, err := p.Step(now, nil)
			require.NoError(t, err)
			for _, a := range acts {
				j := jobs[a.Job]
				switch a.Kind {
				case PoolStart:
					require.False(t, j.started)
					require.Less(t, now.Sub(j.came), cfg.Wait)
					j.started, j.began = true, now
				case PoolStop:
					require.True(t, j.started && !j.ended)
					require.Equal(t, cfg.Limit, now.Sub(j.began), "to the instant")
					j.ended = true
				case PoolPass:
					require.False(t, j.started)
					require.Equal(t, cfg.Wait, now.Sub(j.came))
					inside = slices.DeleteFunc(inside, func(id lockstep.JobID) bool { return id == a.Job })
				}
			}
			used, smallest := 0, math.MaxInt
			for _, id := range inside {
				if jobs[id].started {
					used += jobs[id].gpus
				} else {
					smallest = min(smallest, jobs[id].gpus)
				}
			}
			require.LessOrEqual(t, used, cfg.GPUs)
			require.Equal(t, cfg.GPUs-used, p.Free())
			require.Greater(t, smallest, cfg.GPUs-used, "nobody waits who could start")
		}
		for n := range 80 {
			event := now.Add(time.Duration(rng.IntN(20)) * time.Second)
			for {
				wake, ok := p.NextWake(now)
				if !ok || wake.After(event) {
					break
				}
				now = wake
				step()
			}
			now = event
			if rng.IntN(2) == 0 && len(inside) > 0 {
				i := rng.IntN(len(inside))
				require.NoError(t, p.Leave(now, inside[i]))
				inside = slices.Delete(inside, i, i+1)
			} else {
				id := lockstep.JobID(fmt.Sprint("j", n))
				gpus := 1 + rng.IntN(14)
				ok, err := p.Submit(now, id, gpus)
				require.NoError(t, err)
				require.Equal(t, gpus <= cfg.GPUs, ok)
				if ok {
					jobs[id] = &job{gpus: gpus, came: now}
					inside = append(inside, id)
				}
			}
			step()
			if rng.IntN(8) == 0 {
				q, err := RestorePool(bytes.NewReader(state(t, p.Snapshot)))
				require.NoError(t, err)
				require.Equal(t, state(t, p.Snapshot), state(t, q.Snapshot))
				p = q
			}
		}
	}
}
