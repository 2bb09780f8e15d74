package gang_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

// bytesSource is randomness that a fuzzer chooses.
type bytesSource struct {
	data []byte
	n    uint64
}

func (s *bytesSource) Uint64() uint64 {
	var b [8]byte
	// Four bytes a draw: IntN reads the high bits, so these go there. The low ones
	// count, since IntN draws again for some values.
	s.n++
	binary.LittleEndian.PutUint32(b[:4], uint32(s.n*0x9e3779b9))
	if len(s.data) == 0 {
		return s.n * 0x9e3779b97f4a7c15
	}
	n := copy(b[4:], s.data[:min(4, len(s.data))])
	s.data = s.data[n:]
	return binary.LittleEndian.Uint64(b[:])
}

func FuzzStorm(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, n := range []int{40, 401, 4000, 4001} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(uint64(n), data)
	}
	f.Fuzz(func(t *testing.T, seed uint64, data []byte) {
		if len(data) > 8000 {
			return
		}
		w := anyStorm(seed, 0.05, reference)
		w.rng = rand.New(&bytesSource{data: data})
		require.NoError(t, w.run(len(data)/16))
		require.NoError(t, w.calm())
	})
}

// snapshotOf returns the body of a snapshot taken in a storm.
func snapshotOf(seed uint64, steps int) []byte {
	w := anyStorm(seed, 0, reference)
	if err := w.run(steps); err != nil {
		panic(err)
	}
	var b bytes.Buffer
	if err := w.a.Snapshot(&b); err != nil {
		panic(err)
	}
	return b.Bytes()[bytes.IndexByte(b.Bytes(), '{'):]
}

func FuzzRestore(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(snapshotOf(seed, 60))
	}
	f.Add([]byte(`{"now":0,"jobs":[{"gang":{"id":"a","roles":[{"min":1}]},"phase":"held"}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		sum := sha256.Sum256(body)
		text := "lockstep/gang 2 " + hex.EncodeToString(sum[:]) + "\n" + string(body)
		a, err := gang.Restore(gang.Config{Placer: placertest.NewReference(2, 2, 4, 0), Quota: newLedger(1 << 30), Preempt: gang.PreemptOn}, strings.NewReader(text))
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		var once, twice bytes.Buffer
		require.NoError(t, a.Snapshot(&once))
		b, err := gang.Restore(gang.Config{Placer: placertest.NewReference(2, 2, 4, 0), Quota: newLedger(1 << 30), Preempt: gang.PreemptOn}, bytes.NewReader(once.Bytes()))
		require.NoError(t, err)
		require.NoError(t, b.Snapshot(&twice))
		require.Equal(t, once.String(), twice.String())
		// The placer knows nothing of these jobs: errors will do, panics will not.
		_, _ = a.Step(at(1 << 24))
		for _, id := range a.AppendJobs(nil) {
			_, _ = a.Explain(id)
			_ = a.Evicted(at(1<<24), id, 0)
			_ = a.Cancel(at(1<<24), id)
		}
		_, _ = a.Step(at(1 << 25))
	})
}

func TestRestoreRefusesWhatIsDamaged(t *testing.T) {
	w := anyStorm(5, 0, reference)
	require.NoError(t, w.run(50))
	var b bytes.Buffer
	require.NoError(t, w.a.Snapshot(&b))
	for _, damaged := range []string{
		"", "lockstep/gang 3\n", b.String()[:b.Len()-1], strings.Replace(b.String(), `"now":`, `"now":1`, 1),
		strings.Replace(b.String(), "gang 2", "gang 9", 1),
	} {
		_, err := gang.Restore(w.cfg, strings.NewReader(damaged))
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
}
