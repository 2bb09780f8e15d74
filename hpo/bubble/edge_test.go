package bubble

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
)

// A quantum that is longer than any number holds is not taken for a short one.
func TestEndlessQuantaAreNotStarted(t *testing.T) {
	for _, share := range []float64{1e-6, 1e-3, 1} {
		for _, slow := range []time.Duration{1, 2, 3, 2000} {
			cfg := small()
			cfg.Bundles[0].Points = []fusion.Point{{Fused: 1, Step: time.Hour, Memory: 1}}
			cfg.Quanta = 1
			cfg.Windows[0] = Window{End: 10 * ms, ShareFraction: share}
			p, err := New(cfg)
			require.NoError(t, err)
			windows, _ := newWorld(cfg, 1, 0.03, 0).samples(1000)
			steps := make([]Sample, 1000)
			for i := range steps {
				steps[i] = Sample{time.Second, slow*time.Second + time.Duration(i)*time.Microsecond}
			}
			require.NoError(t, p.Calibrate(windows, steps))
			f, err := p.Begin(0, 0)
			require.NoError(t, err)
			require.Equal(t, ReasonShort, f.Reason)
		}
	}
}

// What is summed up stops at the largest number, and can still be saved and read back.
func TestEndlessHarmIsKept(t *testing.T) {
	p, err := New(small())
	require.NoError(t, err)
	_, err = p.Begin(math.MaxInt64-9, 0)
	require.NoError(t, err)
	_, err = p.Observe(Observation{Start: math.MaxInt64 - 9, End: math.MaxInt64 - 5, Overrun: maxStart})
	require.NoError(t, err)
	_, err = p.Begin(math.MaxInt64-1, 1)
	require.ErrorIs(t, err, lockstep.ErrPast)
	p.counts.Harm = math.MaxInt64 - 5
	_, err = p.Observe(Observation{Window: 2, Start: 0, End: ms, Overrun: ms})
	require.NoError(t, err)
	require.Equal(t, time.Duration(math.MaxInt64), p.View().Harm)
	q, err := Restore(strings.NewReader(saved(t, p)))
	require.NoError(t, err)
	require.Equal(t, saved(t, p), saved(t, q))
}

// When filling goes on, what is loaded may change: a window that began before is not filled with it.
func TestOpenWindowsAreNotFilledAfresh(t *testing.T) {
	for _, why := range []lockstep.Reason{ReasonScale, ReasonHarm} {
		cfg := small()
		cfg.Samples = 1000
		w := newWorld(cfg, 9, 0.01, 0.01)
		p := armed(t, w, 1000)
		f, err := p.Begin(0, 2)
		require.NoError(t, err)
		require.True(t, f.Feasible)
		p.trip(why)
		for now := time.Duration(0); !p.armed; now += time.Second {
			_, err := p.Observe(Observation{Start: now, End: now + w.length(0)})
			require.NoError(t, err)
		}
		_, said, err := p.MayStartQuantum(5*ms, 1)
		require.NoError(t, err)
		require.Equal(t, ReasonShort, said)
		require.Zero(t, p.View().Quanta)
	}
}

func TestIDsAreUTF8(t *testing.T) {
	cfg := small()
	cfg.Bundles[0].ID = "\xff"
	require.ErrorIs(t, cfg.Validate(), lockstep.ErrInvalid)
}

// A snapshot of a configuration that New refuses is no snapshot, and neither is one of sums about to run over.
func TestRestoreRefusesWhatCannotBe(t *testing.T) {
	for name, forge := range map[string]func(p *Packer){ // in any order: each stands by itself
		"point twice":  func(p *Packer) { p.cfg.Bundles[0].Points[1].Fused = 1 },
		"counts":       func(p *Packer) { p.counts.Work = 1 << 60 },
		"stake":        func(p *Packer) { p.stakes.Wider = math.MaxInt64 },
		"window stake": func(p *Packer) { p.windows[0].stakes.Shorter = math.MaxInt64 },
		"low stake":    func(p *Packer) { p.windows[1].stakes.Longer = math.MinInt64 },
		"harm":         func(p *Packer) { p.harm = math.MaxInt64 },
		"calm":         func(p *Packer) { p.calm = math.MinInt64 },
		"stage":        func(p *Packer) { p.stages[0].began = p.stages[0].last + 1 },
		"open":         func(p *Packer) { p.stages[0].open = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			p := tinyPacker(t)
			forge(p)
			_, err := Restore(strings.NewReader(saved(t, p)))
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			require.NotErrorIs(t, err, lockstep.ErrDuplicate)
		})
	}
}

// The worth of the longest windows of the shortest and dearest steps stops at the largest number.
func TestKnapsackOfTheDearest(t *testing.T) {
	cfg := Config{
		Bundles: []Bundle{{ID: "a", Weight: maxWeight, Points: []fusion.Point{{Fused: 1, Step: 1}, {Fused: maxFused, Step: 1}}}},
		Devices: []Device{{Memory: 1}},
	}
	for i := range 8 {
		cfg.Windows = append(cfg.Windows, Window{Start: time.Duration(i) * time.Hour, End: time.Duration(i+1) * time.Hour})
	}
	most, err := Knapsack(cfg)
	require.NoError(t, err)
	require.InEpsilon(t, float64(math.MaxInt64), most, 1e-9)
	p := armed(t, newWorld(cfg, 1, 0.03, 0.04), 1000)
	f, err := p.Begin(0, 0)
	require.NoError(t, err)
	require.True(t, f.Feasible)
	require.Positive(t, f.Expected)
}

// In a window of tens of thousands of steps, many of which end in one cell of the grid, the best number fused is still
// found, and what can be made of it.
func TestLongWindowsArePlannedWell(t *testing.T) {
	for _, length := range []time.Duration{time.Minute, 10 * time.Minute, time.Hour} {
		cfg := Config{
			Bundles: []Bundle{{ID: "a", Points: []fusion.Point{
				{Fused: 1, Step: 20 * ms, Memory: 1}, {Fused: 10, Step: 50 * ms, Memory: 2}, {Fused: 16, Step: 120 * ms, Memory: 3},
			}}},
			Devices: []Device{{Memory: 10}}, Windows: []Window{{End: length}}, Resume: 10 * ms, Pause: 10 * ms,
		}
		w := newWorld(cfg, 1, 0.01, 0.04)
		p := armed(t, w, 4000)
		bound, err := Bound(cfg, 0)
		require.NoError(t, err)
		f, err := p.Begin(0, 0)
		require.NoError(t, err)
		require.InEpsilon(t, bound, f.Expected, 0.05)
		q, why, err := p.MayStartQuantum(10*ms, 0)
		require.NoError(t, err)
		require.Empty(t, why)
		require.EqualValues(t, 10, q.Fused)
		_, err = p.Observe(Observation{End: length})
		require.NoError(t, err)
		w.now = 2 * length
		w.fill(t, p, 0)
		require.InEpsilon(t, bound, p.View().Steps, 0.08)
		require.Zero(t, p.View().Overruns)
	}
}

// A bundle that is spent by the last quantum of a window is not planned with in the next one.
func TestNextWindowKnowsWhatIsSpent(t *testing.T) {
	cfg := small()
	cfg.Bundles[0].Points, cfg.Bundles[0].Steps = cfg.Bundles[0].Points[:1], 2
	p := armed(t, newWorld(cfg, 1, 0.01, 0.01), 1000)
	_, err := p.Begin(0, 0)
	require.NoError(t, err)
	for i := range 4 {
		_, why, err := p.MayStartQuantum(5*ms+time.Duration(i)*10*ms, 0)
		require.NoError(t, err)
		require.Empty(t, why)
	}
	_, err = p.Observe(Observation{End: 400 * ms})
	require.NoError(t, err)
	f, err := p.Begin(600*ms, 1)
	require.NoError(t, err)
	require.Equal(t, Fill{Reason: ReasonSupply}, f)
}

// A window whose length has not changed after all keeps it, rather than the mean of a few that scatter.
func TestAFalseDriftIsTakenBack(t *testing.T) {
	w := newWorld(small(), 3, 0.03, 0.04)
	p := armed(t, w, 1000)
	p.windows[0].forget()
	_, why := w.run(t, p, 100)
	require.Equal(t, ReasonRearmed, why)
	length, ok := p.Length(0)
	require.True(t, ok)
	require.Equal(t, 400*ms, length)
}
