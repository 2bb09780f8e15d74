package desired

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy"
)

var t0 = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func next(t *testing.T, now time.Time, cfg Config, c Counts, s State) (Decision, State) {
	t.Helper()
	d, s, err := Next(now, cfg, c, s)
	require.NoError(t, err)
	return d, s
}

func TestTheZeroConfigWantsAWorkerForEachPiece(t *testing.T) {
	d, _ := next(t, t0, Config{}, Counts{Pending: 3, Running: 2, Ready: 2}, State{})
	require.Equal(t, Decision{Wish: 5 * policy.One, Desired: 5}, d)
	d, _ = next(t, t0, Config{}, Counts{Ready: 2, Idle: 2}, State{})
	require.Zero(t, d.Desired)
}

func TestTheWish(t *testing.T) {
	for _, tt := range []struct {
		cfg  Config
		c    Counts
		want policy.Demand
	}{
		{Config{Each: 4}, Counts{Pending: 9}, 2250},
		{Config{Each: 3}, Counts{Pending: 1}, 334},
		{Config{Each: 4, Spare: 2}, Counts{Pending: 8, Running: 4, Ready: 3}, 5000},
		{Config{Spare: policy.MaxCount}, Counts{Pending: policy.MaxCount}, policy.MaxCount * policy.One},
	} {
		d, _ := next(t, t0, tt.cfg, tt.c, State{})
		require.Equal(t, tt.want, d.Wish)
	}
}

func TestWorkersThatStartAreThere(t *testing.T) {
	d, _ := next(t, t0, Config{}, Counts{Pending: 4, Starting: 4}, State{})
	require.Equal(t, 4, d.Desired)
	slow := Config{RateLimited: policy.RateLimited{UpAmount: 1}}
	d, _ = next(t, t0, slow, Counts{Pending: 4, Starting: 1}, State{})
	require.Equal(t, 2, d.Desired)
	require.Equal(t, policy.ByRate, d.Held)
}

func TestBusyWorkersStay(t *testing.T) {
	c := Counts{Running: 2, Ready: 6, Idle: 1} // five have work, of which two pieces are counted
	d, _ := next(t, t0, Config{}, c, State{})
	require.Equal(t, 5, d.Desired)
	require.True(t, d.Busy)
	d, _ = next(t, t0, Config{TakeBusy: true}, c, State{})
	require.Equal(t, 2, d.Desired)
	require.False(t, d.Busy)
}

// TestDelaysShorterThanTheLookBackAreRefused (ray-project/ray#26455).
func TestDelaysShorterThanTheLookBackAreRefused(t *testing.T) {
	for _, delays := range []policy.Delayed{{}, {Up: time.Minute}, {Up: 29 * time.Second, Down: time.Minute}} {
		c := Config{LookBack: 30 * time.Second, Delayed: delays}
		require.ErrorIs(t, c.Validate(), lockstep.ErrInvalid)
		_, _, err := Next(t0, c, Counts{}, State{})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	require.NoError(t, Config{LookBack: 30 * time.Second, Delayed: policy.Delayed{Up: 30 * time.Second, Down: time.Minute}}.Validate())
}

// TestConstantWorkComesToRest (ray-project/ray#18925): workers take a minute to start, and there is always the same to do.
func TestConstantWorkComesToRest(t *testing.T) {
	cfg := Config{Each: 4, Spare: 1, Delayed: policy.Delayed{Up: 10 * time.Second, Down: time.Minute}, Bounded: policy.Bounded{Min: 1, Max: 50}}
	var s State
	starting := []time.Time{}
	ready, changes, last := 1, 0, -1
	for i := range 600 {
		now := t0.Add(time.Duration(i) * time.Second)
		for len(starting) > 0 && !now.Before(starting[0]) {
			starting, ready = starting[1:], ready+1
		}
		running := min(17, 4*ready)
		var d Decision
		d, s = next(t, now, cfg, Counts{Pending: 17 - running, Running: running, Ready: ready, Starting: len(starting), Idle: max(ready-5, 0)}, s)
		for d.Desired > ready+len(starting) {
			starting = append(starting, now.Add(time.Minute))
		}
		if d.Desired < ready+len(starting) {
			ready = d.Desired - len(starting)
		}
		if d.Desired != last {
			changes, last = changes+1, d.Desired
		}
	}
	require.Equal(t, 6, last)
	require.Equal(t, 2, changes, "what it began with, and one rise")
}

// TestNextIsPure: the state that was given does not change, the same call again gives the same, and a state that went
// through JSON does too.
func TestNextIsPure(t *testing.T) {
	cfg := Config{
		Each: 3, Hysteresis: policy.Hysteresis{DownFraction: .1}, Delayed: policy.Delayed{Up: 5 * time.Second, Down: 20 * time.Second},
		RateLimited: policy.RateLimited{Interval: time.Minute, UpFactor: 2, DownAmount: 2}, Cooldown: policy.Cooldown{Down: 10 * time.Second}, Bounded: policy.Bounded{Min: 2, Max: 40, Step: 2},
	}
	cfg.RateLimited.UpAmount, cfg.RateLimited.DownAmount = 2, 2
	r := rand.New(rand.NewPCG(1, 1))
	var s State
	have := 2
	for i := range 2000 {
		now := t0.Add(time.Duration(i) * 3 * time.Second)
		starting := r.IntN(have + 1)
		idle := r.IntN(have - starting + 1)
		c := Counts{Pending: r.IntN(60), Running: r.IntN(20), Ready: have - starting, Starting: starting, Idle: idle}
		before, err := json.Marshal(s)
		require.NoError(t, err)
		d1, s1 := next(t, now, cfg, c, s)
		d2, s2 := next(t, now, cfg, c, s)
		require.Equal(t, d1, d2)
		require.Equal(t, s1, s2)
		after, err := json.Marshal(s)
		require.NoError(t, err)
		require.JSONEq(t, string(before), string(after))
		var saved State
		require.NoError(t, json.Unmarshal(before, &saved))
		d3, _ := next(t, now, cfg, c, saved)
		require.Equal(t, d1, d3)

		busy := c.Ready - c.Idle
		require.GreaterOrEqual(t, d1.Desired, busy)
		require.True(t, d1.Busy || d1.Desired >= 2 && d1.Desired <= 40 && d1.Desired%2 == 0 || d1.Desired == have, "%+v", d1)
		if !d1.Wake.IsZero() {
			require.True(t, d1.Wake.After(now))
			if at := d1.Wake.Add(-1); at.After(now) && d1.Desired == have {
				d4, _ := next(t, at, cfg, c, s1)
				require.Equal(t, d1.Desired, d4.Desired, "nothing changes before Wake")
			}
		}
		if r.IntN(3) > 0 {
			have = d1.Desired
		}
		s = s1
	}
}

func TestWhatIsRefusedChangesNothing(t *testing.T) {
	_, s := next(t, t0, Config{Delayed: policy.Delayed{Up: time.Second}}, Counts{Pending: 3}, State{})
	for _, tt := range []struct {
		now  time.Time
		cfg  Config
		c    Counts
		kind error
	}{
		{t0, Config{Each: -1, Spare: policy.MaxCount + 1, LookBack: -1}, Counts{}, lockstep.ErrInvalid},
		{t0, Config{LookBack: 25 * time.Hour}, Counts{}, lockstep.ErrInvalid},
		{t0, Config{Bounded: policy.Bounded{Min: 3, Max: 2}}, Counts{}, lockstep.ErrInvalid},
		{t0, Config{Delayed: policy.Delayed{State: s.Delayed}}, Counts{}, lockstep.ErrInvalid},
		{t0, Config{}, Counts{Pending: -1}, lockstep.ErrInvalid},
		{t0, Config{}, Counts{Idle: 1}, lockstep.ErrInvalid},
		{time.Time{}, Config{}, Counts{}, lockstep.ErrInvalid},
		{t0.Add(-time.Second), Config{}, Counts{}, lockstep.ErrPast},
	} {
		_, got, err := Next(tt.now, tt.cfg, tt.c, s)
		require.ErrorIs(t, err, tt.kind)
		require.Equal(t, s, got)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e)
	}
	_, _, err := Next(t0, Config{Delayed: policy.Delayed{Up: time.Second}}, Counts{}, State{Delayed: policy.DelayedState{Known: true, Have: -5}})
	require.Error(t, err, "a state that was tampered with")
}
