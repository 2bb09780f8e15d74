package bubble

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

// FuzzPacker makes calls of every kind, sensible and not.
func FuzzPacker(f *testing.F) {
	f.Add([]byte{0, 0, 1, 10, 1, 60, 2, 200, 0, 1, 1, 9, 2, 3})
	f.Add([]byte{2, 1, 2, 2, 2, 3, 3, 0, 0, 0, 4, 4, 5, 5})
	f.Fuzz(func(t *testing.T, calls []byte) {
		cfg := small()
		cfg.MissFraction, cfg.Samples, cfg.Steady = 0.2, 4, 2
		cfg.Bundles[0].Steps, cfg.Bundles[0].Members = 40, 10
		p := armed(t, newWorld(cfg, 1, 0.03, 0.04), 10)
		now := time.Duration(0)
		for i := 0; i+1 < len(calls) && i < 400; i += 2 {
			arg := int(calls[i+1])
			now += time.Duration(arg) * ms / 2
			before := saved(t, p)
			var err error
			switch calls[i] % 6 {
			case 0:
				_, err = p.Begin(now, arg%4)
			case 1:
				_, _, err = p.MayStartQuantum(now, arg%3)
			case 2:
				o := Observation{Window: arg % 4, Start: now - time.Duration(arg)*ms, End: now, Overrun: time.Duration(arg/64) * ms}
				if o.Window < 3 {
					if s := &p.stages[cfg.Windows[o.Window].Stage]; s.open > 0 {
						o.Window, o.Start = s.open-1, time.Duration(s.began)
					}
				}
				_, err = p.Observe(o)
			case 3:
				err = p.Calibrate([]Sample{{time.Duration(arg) * ms, 100 * ms}}, nil)
			case 4:
				now -= time.Duration(arg) * ms
			case 5:
				var q *Packer
				q, err = Restore(bytes.NewReader([]byte(before)))
				require.NoError(t, err)
				require.Equal(t, before, saved(t, q))
				p = q
			}
			if err != nil {
				var e *lockstep.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, before, saved(t, p))
			}
			v := p.View()
			require.LessOrEqual(t, v.Steps, 40.0)
			require.LessOrEqual(t, v.Overruns, v.Windows)
		}
	})
}

// FuzzRestore takes bytes for a packer.
func FuzzRestore(f *testing.F) {
	image := []byte(saved(f, tinyPacker(f)))
	_, body, _ := bytes.Cut(image, []byte{'\n'})
	f.Add(body)
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var b bytes.Buffer
		b.Write(snapshottest.Frame(t, format, version, body))
		p, err := Restore(&b)
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		require.Equal(t, string(body), saved(t, p)[bytes.IndexByte([]byte(saved(t, p)), '\n')+1:])
	})
}
