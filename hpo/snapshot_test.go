package hpo

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

func TestRestoreRefusesAnotherConfig(t *testing.T) {
	s := begin(t, Config{}, "a")
	data := image(t, s)
	_, err := Restore(Config{ASHA: &ASHA{Max: 100}}, bytes.NewReader(data))
	require.NoError(t, err, "the defaults, written out")
	for _, cfg := range []Config{{Mode: Maximize}, {ASHA: &ASHA{Eta: 4}}, {SHA: &SHA{}}} {
		_, err := Restore(cfg, bytes.NewReader(data))
		require.ErrorIs(t, err, lockstep.ErrConflict)
	}
	_, err = Restore(Config{Mode: "x"}, bytes.NewReader(data))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = Restore(Config{}, strings.NewReader("x"))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorIs(t, s.Snapshot(nil), lockstep.ErrInvalid)
}

func TestSnapshotsKeepToTheRules(t *testing.T) {
	for i, cfg := range configs() {
		if testing.Short() && i%5 > 0 {
			continue
		}
		s := begin(t, cfg, "a", "b")
		report(t, s, "a", 1, 1)
		restored := func(r io.Reader) error { _, err := Restore(cfg, r); return err }
		snapshottest.RefusesDamage(t, image(t, s), restored)
		snapshottest.PassesFaultsOn(t, s.Snapshot, restored)
	}
}

// body returns the body of a snapshot of a random search under cfg.
func body(t testing.TB, cfg Config, seed uint64) []byte {
	w := newTwin(t, cfg)
	d := newDriver(t, seed, w)
	for range 25 {
		d.step()
	}
	return snapshottest.Body(t, image(t, w.s))
}

// restore reads a body with a right header. If it is taken, it is in the form that is written, and nothing that is done
// with it panics.
func restore(t testing.TB, cfg Config, b []byte) bool {
	data := snapshottest.Frame(t, format, version, b)
	s, err := Restore(cfg, bytes.NewReader(data))
	if err != nil {
		var e *lockstep.Error
		require.ErrorAs(t, err, &e)
		return false
	}
	require.Equal(t, string(data), string(image(t, s)))
	for i := range 6 {
		if s.Add(names(30)[24+i]) != nil {
			continue
		}
		s.Next(4)
		on := s.Running()
		for j, x := range on[:min(len(on), 20)] {
			if j%5 == i {
				_, err := s.Failed(x.Trial, 0, []FailKind{Crashed, Ended}[j%2])
				require.NoError(t, err)
				continue
			}
			_, err := s.Report(Report{Trial: x.Trial, Step: max(1, x.From+uint64(1+i)), Value: float64(j)})
			require.NoError(t, err)
		}
		_ = s.Quiescent()
		_ = s.Rungs()
	}
	return true
}

// Every body that is cut, and every one with a bit turned, is refused or is a state that works.
func TestRestoreOfDamagedBodies(t *testing.T) {
	for i, cfg := range configs() {
		b := body(t, cfg, uint64(i))
		require.True(t, restore(t, cfg, b))
		step := 1
		if testing.Short() {
			step = 7
		}
		for at := 0; at < len(b); at += step {
			require.False(t, restore(t, cfg, b[:at]))
			turned := bytes.Clone(b)
			turned[at] ^= 1 << (at % 8)
			restore(t, cfg, turned)
			if at+8 <= len(b) {
				binary.LittleEndian.PutUint64(turned[at:], math.MaxUint64)
				restore(t, cfg, turned)
			}
		}
		require.False(t, restore(t, cfg, append(bytes.Clone(b), 0)))
	}
}
