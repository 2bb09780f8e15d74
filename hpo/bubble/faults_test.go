package bubble

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/hpo/fusion"
)

func TestTheZeroConfigWorks(t *testing.T) {
	p, err := New(Config{})
	require.NoError(t, err)
	require.Equal(t, View{Reason: ReasonSamples}, p.View())
	require.Empty(t, p.Residents(0))
	lp, err := Bound(Config{}, 0)
	require.NoError(t, err)
	require.Zero(t, lp)
	most, err := Knapsack(Config{})
	require.NoError(t, err)
	require.Zero(t, most)
}

func TestBadConfigsAreRefused(t *testing.T) {
	for name, c := range map[string]struct { // in any order: each is alone
		change func(c *Config)
		kind   error
		field  string
	}{
		"miss 1":             {func(c *Config) { c.MissFraction = 1 }, lockstep.ErrInvalid, "MissFraction"},
		"miss below 0":       {func(c *Config) { c.MissFraction = -1 }, lockstep.ErrInvalid, "MissFraction"},
		"miss too small":     {func(c *Config) { c.MissFraction = 1e-9 }, lockstep.ErrInvalid, "MissFraction"},
		"miss no number":     {func(c *Config) { c.MissFraction = math.NaN() }, lockstep.ErrInvalid, "MissFraction"},
		"quanta":             {func(c *Config) { c.Quanta = -1 }, lockstep.ErrInvalid, "Quanta"},
		"many quanta":        {func(c *Config) { c.Quanta = 1 << 20 }, lockstep.ErrInvalid, "Quanta"},
		"samples too few":    {func(c *Config) { c.Samples = 998 }, lockstep.ErrInvalid, "Samples"},
		"steady":             {func(c *Config) { c.Steady = 1 }, lockstep.ErrInvalid, "Steady"},
		"resume":             {func(c *Config) { c.Resume = -1 }, lockstep.ErrInvalid, "Resume"},
		"pause":              {func(c *Config) { c.Pause = math.MaxInt64 }, lockstep.ErrInvalid, "Pause"},
		"residency":          {func(c *Config) { c.Residency = 7 }, lockstep.ErrInvalid, "Residency"},
		"memory":             {func(c *Config) { c.Devices[0].Memory = -1 }, lockstep.ErrInvalid, "Devices[0]"},
		"no ID":              {func(c *Config) { c.Bundles[0].ID = "" }, lockstep.ErrInvalid, "Bundles[0].ID"},
		"same ID":            {func(c *Config) { c.Bundles = append(c.Bundles, c.Bundles[0]) }, lockstep.ErrDuplicate, "Bundles[1].ID"},
		"members":            {func(c *Config) { c.Bundles[0].Members = -1 }, lockstep.ErrInvalid, "Bundles[0].Members"},
		"steps":              {func(c *Config) { c.Bundles[0].Steps = math.MaxInt64 }, lockstep.ErrInvalid, "Bundles[0].Steps"},
		"weight":             {func(c *Config) { c.Bundles[0].Weight = -1 }, lockstep.ErrInvalid, "Bundles[0].Weight"},
		"no single trial":    {func(c *Config) { c.Bundles[0].Points = c.Bundles[0].Points[1:] }, lockstep.ErrInvalid, "points"},
		"no points":          {func(c *Config) { c.Bundles[0].Points = nil }, lockstep.ErrInvalid, "points"},
		"zero step":          {func(c *Config) { c.Bundles[0].Points[0].Step = 0 }, lockstep.ErrInvalid, "points[Fused=1].Step"},
		"long step":          {func(c *Config) { c.Bundles[0].Points[1].Step = math.MaxInt64 }, lockstep.ErrInvalid, "Bundles[0].Points"},
		"point twice":        {func(c *Config) { c.Bundles[0].Points[1].Fused = 1 }, lockstep.ErrDuplicate, "points[Fused=1]"},
		"stage":              {func(c *Config) { c.Windows[0].Stage = 2 }, lockstep.ErrInvalid, "Windows[0].Stage"},
		"stage below 0":      {func(c *Config) { c.Windows[0].Stage = -1 }, lockstep.ErrInvalid, "Windows[0].Stage"},
		"kind":               {func(c *Config) { c.Windows[0].Kind = 9 }, lockstep.ErrInvalid, "Windows[0].Kind"},
		"share":              {func(c *Config) { c.Windows[0].ShareFraction = 1.5 }, lockstep.ErrInvalid, "Windows[0].ShareFraction"},
		"share no number":    {func(c *Config) { c.Windows[0].ShareFraction = math.NaN() }, lockstep.ErrInvalid, "Windows[0].ShareFraction"},
		"empty window":       {func(c *Config) { c.Windows[0].End = 0 }, lockstep.ErrInvalid, "Windows[0].End"},
		"window backwards":   {func(c *Config) { c.Windows[1].End = 0 }, lockstep.ErrInvalid, "Windows[1].End"},
		"windows overlap":    {func(c *Config) { c.Windows[1].Start = 399 * ms }, lockstep.ErrInvalid, "Windows[1].Start"},
		"windows in no time": {func(c *Config) { c.Windows[1].Start = -1 }, lockstep.ErrInvalid, "Windows[1].Start"},
		"too long":           {func(c *Config) { c.Windows[1].End = math.MaxInt64 }, lockstep.ErrInvalid, "Windows[1].End"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := small()
			c.change(&cfg)
			_, err := New(cfg)
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.field)
			_, err = Bound(cfg, 0)
			require.Error(t, err)
			_, err = Knapsack(cfg)
			require.Error(t, err)
		})
	}
	cfg := small()
	cfg.Quanta, cfg.Steady, cfg.Windows[0].Stage = -1, -1, 9
	err := cfg.Validate()
	for _, field := range []string{"Quanta", "Steady", "Windows[0].Stage"} {
		require.ErrorContains(t, err, field)
	}
	for range maxChoices {
		cfg.Bundles[0].Points = append(cfg.Bundles[0].Points, cfg.Bundles[0].Points[0])
	}
	require.ErrorContains(t, cfg.Validate(), "at most 64")
	_, err = Bound(small(), -1)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Bound(small(), math.NaN())
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// Odd profiles that can be true are taken.
func TestOddProfilesAreTaken(t *testing.T) {
	cfg := small()
	cfg.Bundles[0].Points = []fusion.Point{{Fused: 4, Step: 30 * ms, Memory: 5}, {Fused: 1, Step: 40 * ms, Memory: 5}, {Fused: 8, Step: time.Nanosecond, Memory: 1 << 62}}
	w := newWorld(cfg, 1, 0.01, 0.01)
	p := armed(t, w, 1000)
	w.run(t, p, 30)
	require.Positive(t, p.View().Steps)
	require.Len(t, p.Residents(0), 2, "the third one fits no device")
}

func TestBadCallsChangeNothing(t *testing.T) {
	w := newWorld(small(), 2, 0.01, 0.01)
	p := armed(t, w, 1000)
	w.run(t, p, 7)
	start := w.now + time.Second
	_, err := p.Begin(start, 0)
	require.NoError(t, err)
	before := saved(t, p)
	for name, c := range map[string]struct { // in any order: none changes anything
		call func() error
		kind error
	}{
		"unknown window":       {func() error { _, err := p.Begin(start, 3); return err }, lockstep.ErrUnknown},
		"window below 0":       {func() error { _, err := p.Begin(start, -1); return err }, lockstep.ErrUnknown},
		"stage is busy":        {func() error { _, err := p.Begin(start, 1); return err }, lockstep.ErrConflict},
		"begins in the past":   {func() error { _, err := p.Begin(0, 2); return err }, lockstep.ErrPast},
		"unknown stage":        {func() error { _, _, err := p.MayStartQuantum(start, 2); return err }, lockstep.ErrUnknown},
		"no window":            {func() error { _, _, err := p.MayStartQuantum(start, 1); return err }, lockstep.ErrConflict},
		"starts in the past":   {func() error { _, _, err := p.MayStartQuantum(start-1, 0); return err }, lockstep.ErrPast},
		"observes none":        {func() error { _, err := p.Observe(Observation{Window: 5}); return err }, lockstep.ErrUnknown},
		"observes another":     {func() error { _, err := p.Observe(Observation{Window: 1, Start: start, End: start + 1}); return err }, lockstep.ErrConflict},
		"began elsewhere":      {func() error { _, err := p.Observe(Observation{Start: start + 1, End: start + 2}); return err }, lockstep.ErrConflict},
		"observes the past":    {func() error { _, err := p.Observe(Observation{Window: 2, Start: 0, End: 1}); return err }, lockstep.ErrPast},
		"ends before it began": {func() error { _, err := p.Observe(Observation{Start: start, End: start}); return err }, lockstep.ErrInvalid},
		"overrun below 0":      {func() error { _, err := p.Observe(Observation{Start: start, End: start + 1, Overrun: -1}); return err }, lockstep.ErrInvalid},
		"calibrates a window":  {func() error { return p.Calibrate(nil, nil) }, lockstep.ErrConflict},
		"zero sample":          {func() error { return p.Calibrate([]Sample{{}}, nil) }, lockstep.ErrInvalid},
		"long sample":          {func() error { return p.Calibrate(nil, []Sample{{ms, math.MaxInt64}}) }, lockstep.ErrInvalid},
		"many samples":         {func() error { return p.Calibrate(make([]Sample, maxSamples+1), nil) }, lockstep.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.call()
			require.ErrorIs(t, err, c.kind)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, before, saved(t, p))
		})
	}
	_, ok := p.Length(3)
	require.False(t, ok)
	require.Nil(t, p.Residents(-1))
}

// New keeps no part of what it is given.
func TestConfigIsCopied(t *testing.T) {
	cfg := small()
	w := newWorld(small(), 2, 0.01, 0.01)
	p, err := New(cfg)
	require.NoError(t, err)
	before := saved(t, p)
	cfg.Bundles[0].Points[0].Step, cfg.Windows[0].Stage, cfg.Devices[0].Memory = 1, 1, 1
	require.Equal(t, before, saved(t, p))
	windows, steps := w.samples(1000)
	require.NoError(t, p.Calibrate(windows, steps))
}

func TestNames(t *testing.T) {
	require.Equal(t, "resident free Residency(2)", ResidentSet.String()+" "+FreeSwitching.String()+" "+Residency(2).String())
}
