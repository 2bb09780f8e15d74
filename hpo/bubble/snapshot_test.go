package bubble

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

func saved(t testing.TB, p *Packer) string {
	t.Helper()
	return string(snapshottest.Save(t, p.Snapshot))
}

// tiny is a packer whose snapshot is short.
func tinyPacker(t testing.TB) *Packer {
	cfg := small()
	cfg.MissFraction = 0.1
	cfg.Bundles[0].Members, cfg.Bundles[0].Steps = 20, 1000
	w := newWorld(cfg, 4, 0.03, 0.04)
	p := armed(t, w, 20)
	w.run(t, p, 4)
	_, err := p.Begin(w.now+10*time.Second, 1)
	require.NoError(t, err)
	_, _, err = p.MayStartQuantum(w.now+10*time.Second+5*ms, 0)
	require.NoError(t, err)
	return p
}

// A packer that was saved, at any time, and one that was not decide alike from then on.
func TestRestoreGoesOn(t *testing.T) {
	cfg := small()
	cfg.Bundles[0].Steps = 3000
	cfg.MissFraction, cfg.Samples, cfg.Steady = 0.02, 500, 4
	a, b := newWorld(cfg, 3, 0.03, 0.04), newWorld(cfg, 3, 0.03, 0.04)
	p, q := armed(t, a, 500), armed(t, b, 500)
	said := map[lockstep.Reason]bool{}
	for k := range 1500 {
		switch k {
		case 200:
			a.spread, b.spread = 0.06, 0.06
		case 1200:
			a.stretch, b.stretch = 1.2, 1.2
		}
		i := k % len(cfg.Windows)
		why := a.fill(t, p, i)
		said[why] = true
		require.Equal(t, why, b.fill(t, q, i))
		if i == len(cfg.Windows)-1 {
			a.now, b.now = a.now+time.Minute, b.now+time.Minute
		}
		if k%31 == 0 {
			image := saved(t, q)
			require.Equal(t, saved(t, p), image)
			var err error
			q, err = Restore(strings.NewReader(image))
			require.NoError(t, err)
			require.Equal(t, image, saved(t, q))
			require.Equal(t, p.View(), q.View())
		}
	}
	for _, why := range []lockstep.Reason{ReasonScale, ReasonRearmed, ReasonDrift} {
		require.True(t, said[why], why)
	}
}

func TestRestoreOfOneThatKnowsNothing(t *testing.T) {
	for _, cfg := range []Config{{}, small()} {
		p, err := New(cfg)
		require.NoError(t, err)
		image := saved(t, p)
		q, err := Restore(strings.NewReader(image))
		require.NoError(t, err)
		require.Equal(t, image, saved(t, q))
		require.Equal(t, p.View(), q.View())
	}
}

func TestRestoreInsideAWindow(t *testing.T) {
	p := tinyPacker(t)
	q, err := Restore(strings.NewReader(saved(t, p)))
	require.NoError(t, err)
	now := time.Duration(p.stages[0].last) + 30*ms
	a, why, err := p.MayStartQuantum(now, 0)
	require.NoError(t, err)
	b, why2, err := q.MayStartQuantum(now, 0)
	require.NoError(t, err)
	require.Equal(t, a, b)
	require.Equal(t, why, why2)
	require.Equal(t, saved(t, p), saved(t, q))
}

func TestRestoreRefusesDamageAndForgeries(t *testing.T) {
	image := []byte(saved(t, tinyPacker(t)))
	restore := func(r io.Reader) error { _, err := Restore(r); return err }
	snapshottest.RefusesDamage(t, image, restore)
	snapshottest.RefusesForgeries(t, format, version, image, restore, [][2]string{
		{`"quanta":2`, `"quanta":-2`},
		{`"armed":true`, `"armed":false`},
		{`"armed":true`, `"armed":true,"why":"samples"`},
		{`"armed":true`, `"armed":true,"why":"drift"`},
		{`"armed":true`, `"armed":true,"fresh":[1]`},
		{`"ends":[-`, `"ends":[9`},
		{`"ends":[-`, `"ends":[-9999999`},
		{`"steps":[`, `"steps":[0,`},
		{`"length":400000000`, `"length":0`},
		{`"length":400000000`, `"length":400000000,"seen":[1]`},
		{`"held":3`, `"held":4`},
		{`"open":2`, `"open":3`},
		{`"open":2`, `"open":9`},
		{`"left":[`, `"left":[9999`},
		{`"left":[`, `"left":[-`},
		{`"counts":{"windows":4`, `"counts":{"windows":-4`},
		{`"last":`, `"last":-`},
	})
	body := string(snapshottest.Body(t, image))
	require.Contains(t, body, `"held":3`)
	var short bytes.Buffer
	short.Write(snapshottest.Frame(t, format, version, []byte(strings.Replace(body, `"members":20`, `"members":4`, 1))))
	_, err := Restore(&short)
	require.ErrorIs(t, err, lockstep.ErrInvalid, "more members are loaded than there are")
}
