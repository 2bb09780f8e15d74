package hpo

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzEvents reads any bytes as calls. No call panics, one that fails changes nothing, what is saved can be read back, and
// when nothing runs, Next starts somebody or the search is over.
func FuzzEvents(f *testing.F) {
	for i := range configs() {
		f.Add(uint8(i), []byte("\x00\x00\x00\x01\x22\x02\x00\x11\x02\x08\x12\x02\x10\x13\x03\x00\x01\x01\x33\x05\x06"))
		f.Add(uint8(i), []byte("\x00\x08\x10\x18\x01\x02\x05\x02\x0d\x02\x15\x01\x03\x01\x0b\x01\x04\x02\x06\x01"))
	}
	f.Fuzz(func(t *testing.T, kind uint8, script []byte) {
		all := configs()
		cfg := all[int(kind)%len(all)]
		s, err := New(cfg)
		require.NoError(t, err)
		next := func() byte {
			if len(script) == 0 {
				return 0
			}
			b := script[0]
			script = script[1:]
			return b
		}
		for n := 0; len(script) > 0 && n < 200; n++ {
			op := next()
			id := TrialID(fmt.Sprint(op >> 3))
			was := image(t, s)
			var err error
			switch op & 7 {
			case 0:
				err = s.Add(id)
			case 1:
				s.Next(int(next() % 5))
			case 2, 3:
				var batch []Report
				for range 1 + next()%4 {
					b := next()
					batch = append(batch, Report{
						Trial: id, Attempt: uint32(b & 3), Step: uint64(b >> 2 & 15), Seq: uint64(b >> 7),
						Value: []float64{0, 1, 2, -1, nan, inf, -inf, 1e308}[next()&7],
					})
					id = TrialID(fmt.Sprint(b >> 3))
				}
				_, err = s.Report(batch...)
			case 4:
				_, err = s.Failed(id, uint32(next()&3), []FailKind{Crashed, Preempted, Invalid, Ended, "?"}[next()%5])
			case 5:
				err = s.Forget(id)
			case 6:
				s, err = Restore(cfg, bytes.NewReader(was))
				require.NoError(t, err)
				require.Equal(t, string(was), string(image(t, s)))
			case 7:
				d := deadline()
				d.Devices, d.Most = 40, 0
				_, err = s.Shift(epoch(int(next())), d, nil)
			}
			if err != nil {
				require.Equal(t, string(was), string(image(t, s)))
			}
			if len(s.Running()) == 0 && !s.Quiescent() {
				starts, decisions := s.Next(1)
				require.NotZero(t, len(starts)+len(decisions))
			}
		}
	})
}

// FuzzRestore reads any bytes as the body of a snapshot.
func FuzzRestore(f *testing.F) {
	for i, cfg := range configs() {
		f.Add(uint8(i), body(f, cfg, 1))
		f.Add(uint8(i), body(f, cfg, 2))
	}
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		all := configs()
		restore(t, all[int(kind)%len(all)], b)
	})
}
