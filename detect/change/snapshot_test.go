package change

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
)

// TestARestoredTestGoesOnAsTheOneThatWasSaved cuts a series with a fault, a recovery and a
// second fault at many points.
func TestARestoredTestGoesOnAsTheOneThatWasSaved(t *testing.T) {
	for _, m := range methods {
		t.Run(m.String(), func(t *testing.T) {
			for cut := 0; cut < 330; cut += 11 {
				n, test := newNoise(21, 0.015, 0.4, 0.02), newTest(t, Config{Method: m})
				sample := func(i int) float64 {
					if i > 120 && i < 180 || i > 250 {
						return n.next() + 0.35
					}
					return n.next()
				}
				for i := range cut {
					observe(t, test, sample(i))
				}
				image := saved(t, test)
				again, err := Restore(bytes.NewReader(image))
				require.NoError(t, err)
				require.Equal(t, string(image), string(saved(t, again)))
				for i := cut; i < 330; i++ {
					x := sample(i)
					require.Equal(t, observe(t, test, x), observe(t, again, x), "cut %d, sample %d", cut, i)
				}
				require.Equal(t, string(saved(t, test)), string(saved(t, again)))
			}
		})
	}
}

func TestRestoreRefusesWhatNoTestSaved(t *testing.T) {
	for _, m := range methods {
		n, test := newNoise(22, 0.015, 0.4, 0.02), newTest(t, Config{Method: m})
		for range 100 {
			observe(t, test, n.next())
		}
		image := saved(t, test)
		for _, cut := range []int{0, 1, len(image) / 2, len(image) - 1} {
			_, err := Restore(bytes.NewReader(image[:cut]))
			require.ErrorIs(t, err, lockstep.ErrInvalid)
		}
		for name, change := range map[string]func(*testImage){ // the order does not matter: each case stands alone
			"no config":         func(i *testImage) { i.Config = Config{} },
			"bad config":        func(i *testImage) { i.Config.Clip = -1 },
			"count":             func(i *testImage) { i.Since = -1 },
			"warm and known":    func(i *testImage) { i.Baseline.Warm = []float64{1} },
			"too many wait":     func(i *testImage) { i.Baseline.Queue = make([]float64, 99) },
			"never learned":     func(i *testImage) { i.Baseline.N = 3 },
			"negative variance": func(i *testImage) { i.Baseline.VarU = -1 },
			"huge":              func(i *testImage) { i.Baseline.Mean = -1e300 },
			"above its limit":   func(i *testImage) { i.Baseline.Mean = i.Baseline.Anchor + 1 },
			"state unknown":     func(i *testImage) { i.Baseline.N = 0; i.Baseline.Queue = nil },
		} {
			var img testImage
			_, err := snapshot.ReadJSON(bytes.NewReader(image), "x", format, version, &img)
			require.NoError(t, err)
			change(&img)
			var b bytes.Buffer
			require.NoError(t, snapshot.WriteJSON(&b, "x", format, version, &img))
			_, err = Restore(&b)
			require.ErrorIs(t, err, lockstep.ErrInvalid, "%v: %s", m, name)
		}
	}
	_, err := Restore(nil)
	require.Error(t, err)
}

// FuzzRestore feeds changed snapshots, with a right checksum, to Restore, and goes
// on with what it accepts.
func FuzzRestore(f *testing.F) {
	for _, m := range methods {
		n, test := newNoise(25, 0.015, 0.4, 0.02), newTest(f, Config{Method: m, Warmup: 8, Lag: 2, Support: 9, Within: 2})
		for range 40 {
			observe(f, test, n.next())
		}
		body, err := json.Marshal(test.(imager).image())
		require.NoError(f, err)
		f.Add(body, []byte{1, 2, 200, 3, 0, 255})
	}
	f.Fuzz(func(t *testing.T, body, samples []byte) {
		var b bytes.Buffer
		require.NoError(t, snapshot.Write(&b, format, version, body))
		test, err := Restore(&b)
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		for _, s := range samples {
			_, err := test.Observe(float64(int8(s)) / 64)
			require.NoError(t, err)
		}
		image := saved(t, test)
		again, err := Restore(bytes.NewReader(image))
		require.NoError(t, err)
		require.Equal(t, string(image), string(saved(t, again)))
	})
}
