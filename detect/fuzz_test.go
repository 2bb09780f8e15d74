package detect

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/detect/change"
	"github.com/lockstep-gpu/lockstep/detect/fit"
	"github.com/lockstep-gpu/lockstep/internal/snapshot"
	"github.com/lockstep-gpu/lockstep/perfmodel"
	"github.com/lockstep-gpu/lockstep/pipeline"
)

// tiny is a job small enough to fuzz.
func tiny() Config {
	r := Rates{Forward: []fit.Coeff{{Alpha: 100}, {Alpha: 100, Beta: 1}}, Backward: []fit.Coeff{{Alpha: 200, Beta: 2}, {Alpha: 200}}}
	return Config{Pipeline: pipeline.Config{Stages: 2, Micros: 2}, Replicas: 2, Rates: r, Tuning: Tuning{Whole: change.Config{Warmup: 8, Lag: 3}}}
}

// fromBytes makes an iteration of bytes, much of the time one that cannot be.
func fromBytes(data []byte, number uint64) *Iteration {
	pick := func(i int) int { return int(data[i%len(data)]) }
	it := &Iteration{Number: number + uint64(pick(0)%3), Took: time.Duration(pick(1)-2) * time.Microsecond}
	if pick(2) > 250 {
		it.Phase = Phase(pick(3))
	}
	if pick(4) > 250 {
		it.Layout = uint64(pick(5))
	}
	if pick(6) > 20 {
		replicas, micros := 2, 2
		if pick(6) > 245 {
			replicas, micros = pick(7)%4, pick(8)%4
		}
		for d := range replicas {
			it.Batches = append(it.Batches, nil)
			for i := range micros {
				b := perfmodel.Batch{Tokens: int64(pick(9+i+d)) - 1, Pairs: float64(pick(10 + i + d))}
				if pick(11) == 255 {
					b.Pairs = math.Float64frombits(binary.LittleEndian.Uint64(bytes.Repeat(data, 8)))
				}
				it.Batches[d] = append(it.Batches[d], b)
			}
		}
	}
	for i := range pick(12) % 9 {
		it.Chunks = append(it.Chunks, Chunk{
			Replica: pick(13+i) % 3, Stage: pick(14+i)%3 - pick(15+i)/255, Kind: pipeline.Kind(pick(16+i) % 4),
			Micro: pick(17+i)%4 - 1, Took: time.Duration(pick(18+i)-1) << (pick(19+i) % 50),
		})
	}
	if pick(20) > 200 {
		it.Waits = []Wait{{Replica: pick(21)%3 - pick(22)/255, Stage: pick(23) % 3, Ranks: []time.Duration{time.Duration(pick(24)), 900, time.Duration(pick(25) - 1)}}}
	}
	return it
}

// FuzzMonitor feeds iterations that mostly cannot be: nothing panics, errors change
// nothing, and a restored Monitor goes on as the saved one.
func FuzzMonitor(f *testing.F) {
	f.Add([]byte("a job of which most iterations are sound, but one is not\xff\xff\xff"), false)
	f.Add(bytes.Repeat([]byte{1, 40, 0, 0, 0, 0, 99, 2, 2, 17, 90, 3, 8, 1, 1, 0, 0, 0, 50, 4, 9}, 14), true)
	f.Add([]byte("no model, and batches of which some cannot be \xff\xfe\x00\xff\xfe\x00\xff\xfe\x00"), false)
	f.Fuzz(func(t *testing.T, data []byte, fitted bool) {
		if len(data) == 0 || len(data) > 300 {
			return
		}
		cfg := tiny()
		if fitted {
			cfg.Rates, cfg.Refit, cfg.FitAfter = Rates{}, true, 4
		}
		if data[0] == 'n' {
			cfg = Config{Tuning: Tuning{Whole: cfg.Whole}} // no model
		}
		m := newMonitor(t, cfg)
		var again *Monitor
		number := uint64(0)
		for i := range len(data) {
			it := fromBytes(data[i:], number)
			before := ""
			if i%16 == 0 {
				before = state(t, m)
			}
			v, err := m.Observe(it)
			if err != nil {
				require.ErrorIs(t, err, lockstep.ErrInvalid)
				if before != "" {
					require.Equal(t, before, state(t, m), "after an error nothing has changed")
				}
			} else {
				number = max(number, it.Number)
				require.GreaterOrEqual(t, v.Score, 0.0)
			}
			if again != nil {
				w, wErr := again.Observe(it)
				require.Equal(t, err, wErr)
				require.Equal(t, v, w)
			}
			if i == len(data)/2 {
				again, err = Restore(strings.NewReader(state(t, m)))
				require.NoError(t, err)
			}
		}
		require.Equal(t, state(t, m), state(t, again))
	})
}

// FuzzRestore feeds changed snapshots, with a right checksum, to Restore, and goes on with
// what it accepts.
func FuzzRestore(f *testing.F) {
	for _, cfg := range []Config{{}, tiny()} {
		m := newMonitor(f, cfg)
		for i := range 60 {
			it := &Iteration{Number: uint64(i + 1), Took: time.Duration(50_000 + i*i%977)}
			if i > 45 {
				it.Took *= 2
			}
			_, err := m.Observe(it)
			require.NoError(f, err)
		}
		img, err := m.image()
		require.NoError(f, err)
		body, err := json.Marshal(img)
		require.NoError(f, err)
		f.Add(body, []byte{9, 9, 9, 200, 7})
	}
	f.Fuzz(func(t *testing.T, body, data []byte) {
		var b bytes.Buffer
		require.NoError(t, snapshot.Write(&b, monitorFormat, version, body))
		m, err := Restore(&b)
		if err != nil {
			return
		}
		number := m.last
		for i := range min(len(data), 64) {
			it := fromBytes(data[i:], number)
			if _, err := m.Observe(it); err == nil {
				number = max(number, it.Number)
			}
		}
	})
}
