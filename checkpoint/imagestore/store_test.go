package imagestore

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/checkpointtest"
)

// hands is a clock that tests set.
type hands struct {
	mu sync.Mutex
	t  time.Time
}

func newHands() *hands { return &hands{t: time.Unix(1_700_000_000, 0)} }

func (h *hands) Now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.t
}

func (h *hands) add(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.t = h.t.Add(d)
}

// content is the streams of an image.
type content map[string][]byte

func newStore(t testing.TB, change func(*Config)) *Store {
	t.Helper()
	cfg := Config{Dir: t.TempDir() + "/store", Workers: 2, Clock: newHands()}
	if change != nil {
		change(&cfg)
	}
	s, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// put writes streams in order of name, in pieces of odd sizes.
func put(v *Save, c content, hint checkpoint.StreamHint) error {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		w, err := v.Create(name, hint)
		if err != nil {
			return err
		}
		for b := c[name]; len(b) > 0; {
			n := min(len(b), 70_001)
			if _, err := w.Write(b[:n]); err != nil {
				_ = w.Close()
				return err
			}
			b = b[n:]
		}
		if err := w.Close(); err != nil {
			return err
		}
	}
	return nil
}

// saveRank saves one rank.
func saveRank(ctx context.Context, s *Store, o SaveOptions, c content, hint checkpoint.StreamHint) (checkpoint.RankImage, Stats, error) {
	v, err := s.Begin(ctx, o)
	if err != nil {
		return checkpoint.RankImage{}, Stats{}, err
	}
	err = put(v, c, hint)
	var image checkpoint.RankImage
	if err == nil {
		image, err = v.Commit(ctx)
	}
	if err != nil {
		_ = v.Abort()
	}
	return image, v.Stats(), err
}

// saveEpoch saves all ranks, one after the other, and commits.
func saveEpoch(ctx context.Context, s *Store, job lockstep.JobID, epoch checkpoint.Epoch, ranks []content) error {
	m := &checkpoint.Manifest{Job: job, Epoch: epoch, Term: 1, Step: 10 * uint64(epoch)}
	for r, c := range ranks {
		image, _, err := saveRank(ctx, s, SaveOptions{Job: job, Epoch: epoch, Rank: r, Step: m.Step}, c, checkpoint.StreamHint{})
		if err != nil {
			return err
		}
		m.Ranks = append(m.Ranks, image)
	}
	return s.Commit(ctx, m)
}

// load reads all streams of an image.
func load(ctx context.Context, s *Store, job lockstep.JobID, epoch checkpoint.Epoch, rank int) (_ content, err error) {
	m, err := s.Image(ctx, job, epoch, rank)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := m.Close(); err == nil {
			err = e
		}
	}()
	c := content{}
	for _, name := range m.Streams() {
		r, err := m.Open(name)
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(r)
		if e := r.Close(); err == nil {
			err = e
		}
		if err != nil {
			return nil, err
		}
		c[name] = b
	}
	return c, nil
}

func requireSame(t testing.TB, want, got content) {
	t.Helper()
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	for name := range want { // any difference will do: order cannot matter
		require.True(t, bytes.Equal(want[name], got[name]), "stream %s differs", name)
	}
}

func join(parts ...[]byte) []byte { return slices.Concat(parts...) }

// rankContent is a small image like those of training: parameters that all ranks
// share, an optimizer shard of its own, zeros.
func rankContent(rank, size int) content {
	return content{
		"params":    bf16(1, size),
		"optimizer": f32(uint64(100+rank), size/2),
		"workspace": make([]byte, size/2),
		"notes":     []byte(fmt.Sprintf("rank %d", rank)),
		"empty":     nil,
	}
}

func TestWhatIsSavedComesBack(t *testing.T) {
	for _, level := range []Level{LevelDefault, LevelFastest, LevelFast, LevelSmall} {
		for _, hint := range []checkpoint.StreamHint{{}, {Region: 2 * lockstep.MiB}, {Region: 4096, Width: 2}, {Shifts: true, Width: 4}} {
			t.Run(fmt.Sprintf("%s/%d", level, hint.Region), func(t *testing.T) {
				s := newStore(t, func(c *Config) { c.Level = level })
				size := 3 << 20
				if testing.Short() {
					size = 1 << 20
				}
				want := rankContent(0, size)
				image, st, err := saveRank(t.Context(), s, SaveOptions{Job: "j", Epoch: 1, Step: 5, Meta: map[string]string{"host": "n1"}}, want, hint)
				require.NoError(t, err)
				require.Equal(t, st.Raw, image.Bytes)
				require.GreaterOrEqual(t, st.Zero, lockstep.Bytes(size/2))
				require.LessOrEqual(t, st.Stored, st.Raw-st.Zero+lockstep.Bytes(st.Regions)*frameLen)
				require.NoError(t, s.Commit(t.Context(), &checkpoint.Manifest{Job: "j", Epoch: 1, Term: 1, Step: 5, Ranks: []checkpoint.RankImage{image}}))
				got, err := load(t.Context(), s, "j", 1, 0)
				require.NoError(t, err)
				requireSame(t, want, got)
				rep, err := s.Verify(t.Context())
				require.NoError(t, err)
				require.Equal(t, 1, rep.Epochs)
				require.Equal(t, st.Regions, rep.Regions)
			})
		}
	}
}

func TestLedger(t *testing.T) {
	checkpointtest.TestLedger(t, func(t *testing.T) checkpoint.Ledger {
		return newStore(t, func(c *Config) { c.ForeignImages = true })
	})
}

func TestRanksAndEpochsShareRegions(t *testing.T) {
	s := newStore(t, nil)
	var stored []lockstep.Bytes
	for e := checkpoint.Epoch(1); e <= 2; e++ {
		for r := range 3 {
			_, st, err := saveRank(t.Context(), s, SaveOptions{Job: "j", Epoch: e, Rank: r}, rankContent(r, 4<<20), checkpoint.StreamHint{})
			require.NoError(t, err)
			stored = append(stored, st.Stored)
		}
	}
	require.Less(t, stored[1], stored[0]/2, "the second rank has the parameters of the first")
	for i := 3; i < 6; i++ {
		require.Zero(t, stored[i], "an epoch that did not change stores nothing")
	}
}

func TestShiftedCopyIsFound(t *testing.T) {
	s := newStore(t, nil)
	b := bf16(1, 8<<20)
	_, _, err := saveRank(t.Context(), s, SaveOptions{Job: "j", Epoch: 1}, content{"a": b}, checkpoint.StreamHint{Shifts: true})
	require.NoError(t, err)
	for i, shift := range []int{1, 3, 4096, 70_000} {
		_, st, err := saveRank(t.Context(), s, SaveOptions{Job: "j", Epoch: 2, Rank: i}, content{"a": join(noise(9, shift), b)}, checkpoint.StreamHint{})
		require.NoError(t, err)
		require.Less(t, st.Stored, lockstep.Bytes(shift+400<<10), "shift by %d", shift)
	}
}

func TestRanksSavedAtOnceShareRegions(t *testing.T) {
	s := newStore(t, nil)
	var wg sync.WaitGroup
	images := make([]checkpoint.RankImage, 4)
	stats := make([]Stats, 4)
	errs := make([]error, 4)
	for r := range 4 {
		wg.Go(func() {
			images[r], stats[r], errs[r] = saveRank(t.Context(), s, SaveOptions{Job: "j", Epoch: 1, Rank: r, Step: 1}, rankContent(r, 4<<20), checkpoint.StreamHint{})
		})
	}
	wg.Wait()
	total := lockstep.Bytes(0)
	for r := range 4 {
		require.NoError(t, errs[r])
		total += stats[r].Stored
	}
	require.Less(t, total, 12*lockstep.MiB, "the parameters are stored once")
	require.NoError(t, s.Commit(t.Context(), &checkpoint.Manifest{Job: "j", Epoch: 1, Term: 1, Step: 1, Ranks: images}))
	for r := range 4 {
		got, err := load(t.Context(), s, "j", 1, r)
		require.NoError(t, err)
		requireSame(t, rankContent(r, 4<<20), got)
	}
}
