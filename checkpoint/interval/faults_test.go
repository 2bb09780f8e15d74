package interval

import (
	"bytes"
	"io"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

func TestBadInputIsNamed(t *testing.T) {
	const long = time.Duration(math.MaxInt64)
	samples := make([]Sample, 16)
	for i := range samples {
		samples[i] = Sample{At: time.Duration(i) * time.Second}
	}
	for name, c := range map[string]struct { // each is checked by itself
		call func() error
		want string
	}{
		"stall":     {func() error { _, err := Young(-1, 1); return err }, "interval: young: stall = -1ns"},
		"between":   {func() error { _, err := Daly(1, 0); return err }, "interval: daly: between = 0s"},
		"between<0": {func() error { _, err := Optimum(1, -5); return err }, "interval: optimum: between = -5ns"},
		"too long":  {func() error { _, err := Optimum(long, 5); return err }, "interval: optimum: stall = "},
		"restart":   {func() error { _, err := Waste(1, 1, -1, 1); return err }, "interval: waste: restart = -1ns"},
		"interval":  {func() error { _, err := Waste(0, 1, 1, 1); return err }, "interval: waste: interval = 0s"},
		"no levels": {func() error { _, err := Levels(nil); return err }, "interval: levels: levels = 0"},
		"level":     {func() error { _, err := Levels([]Level{{1, 0}}); return err }, "levels[0].Between = 0s"},
		"both":      {func() error { _, err := Levels([]Level{{1, 0}, {0, 1}}); return err }, "levels[1].Stall = 0s"},
		"spent":     {func() error { _, err := Check([]Link{{"k", 1, 2}}, Need{}, 0); return err }, `chain[0].Spent = 2ns: is more than the Grace of 1ns of "k"`},
		"margin":    {func() error { _, err := Check(nil, Need{Margin: -1}, 0); return err }, "need.Margin = -1"},
		"save":      {func() error { _, err := Check(nil, Need{Save: -1}, 0); return err }, "need.Save = -1ns"},
		"devices": {func() error {
			_, err := Cost(time.Unix(1, 0), Progress{Saved: time.Unix(1, 0), Devices: -1})
			return err
		}, "p.Devices = -1"},
		"no time": {func() error { _, err := Cost(time.Unix(1, 0), Progress{Saved: time.Unix(1<<60, 0)}); return err }, "p.Saved"},
		"rule":    {func() error { return Config{Rule: "best"}.Validate() }, `Rule = "best"`},
		"min":     {func() error { return Config{Min: 2, Max: 1}.Validate() }, "Min = 2ns: is more than Max"},
		"spread":  {func() error { return Config{Spread: 501}.Validate() }, "Spread = 501"},
		"units":   {func() error { return Config{Failures: Failures{Units: -1}}.Validate() }, "Failures.Units = -1"},
		"few":     {func() error { _, err := Quietest(samples[:3], 1, 0); return err }, "samples = 3"},
		"gap":     {func() error { _, err := Quietest(samples, time.Hour, 0); return err }, "leave a gap of"},
		"pause":   {func() error { _, err := Quietest(samples, 16*time.Second, 17*time.Second); return err }, "pause = 17s"},
		"saved": {func() error {
			p, err := New(Config{})
			require.NoError(t, err)
			return p.Saved(-1)
		}, "interval: saved: stall = -1ns"},
		"failures": {func() error {
			p, err := New(Config{})
			require.NoError(t, err)
			return p.SetFailures(Failures{Unit: -1})
		}, "f.Unit = -1ns"},
		"job": {func() error {
			p, err := New(Config{})
			require.NoError(t, err)
			_, err = p.Advise("")
			return err
		}, "interval: advise: job"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.call()
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestSnapshotRefusesDamage(t *testing.T) {
	p, err := New(Config{Stall: time.Second})
	require.NoError(t, err)
	require.NoError(t, p.Saved(time.Minute))
	snapshottest.RefusesDamage(t, snapshottest.Save(t, p.Snapshot), func(r io.Reader) error { _, err := Restore(r); return err })
}

func TestRestoreRefusesWhatNoPolicyIsIn(t *testing.T) {
	for _, body := range []string{
		`{"config":{"failures":{}},"failures":{},"mean":5}`,
		`{"config":{"failures":{}},"failures":{},"mean":5,"measured":true}`,
		`{"config":{"failures":{}},"failures":{},"mean":5,"measured":true,"seen":[5],"next":3}`,
		`{"config":{"failures":{}},"failures":{},"mean":-5,"measured":true,"seen":[5]}`,
		`{"config":{"failures":{"unit":-1}},"failures":{},"mean":0}`,
	} {
		_, err := Restore(bytes.NewReader(snapshottest.Frame(t, format, version, []byte(body))))
		require.ErrorIs(t, err, lockstep.ErrInvalid, body)
	}
}

func TestNothingAllocates(t *testing.T) {
	p, err := New(Config{Failures: Failures{Unit: time.Hour}, Stall: time.Second})
	require.NoError(t, err)
	for range window {
		require.NoError(t, p.Saved(time.Second))
	}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_ = p.Saved(time.Second)
		_, _ = p.Longest(950)
		_, _ = p.Advise("j")
	}))
}
