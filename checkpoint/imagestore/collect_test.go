package imagestore

import (
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

func packCount(t testing.TB, s *Store) int {
	t.Helper()
	names, err := s.fs.list(dirPacks)
	require.NoError(t, err)
	return len(names)
}

func TestCollectIsInTwoSteps(t *testing.T) {
	clock := newHands()
	s := newStore(t, func(c *Config) { c.Clock = clock; c.Grace = time.Minute })
	require.NoError(t, saveEpoch(t.Context(), s, "j", 1, []content{{"a": noise(1, 1<<20)}}))
	require.NoError(t, saveEpoch(t.Context(), s, "j", 2, []content{{"a": noise(2, 1<<20)}}))
	require.NoError(t, s.Drop(t.Context(), "j", 1))
	require.ErrorIs(t, s.Drop(t.Context(), "j", 1), lockstep.ErrUnknown)
	got, err := s.Collect(t.Context())
	require.NoError(t, err)
	require.Zero(t, got, "what is young is spared")
	clock.add(2 * time.Minute)
	got, err = s.Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, Collected{Packs: 1, Images: 1}, got, "first it is taken away")
	require.Equal(t, 1, packCount(t, s))
	got, err = s.Collect(t.Context())
	require.NoError(t, err)
	require.Zero(t, got, "and kept for a grace")
	clock.add(2 * time.Minute)
	got, err = s.Collect(t.Context())
	require.NoError(t, err)
	require.Greater(t, got.Freed, lockstep.MiB, "then it is removed")
	left, err := s.fs.list(dirTrash)
	require.NoError(t, err)
	require.Empty(t, left)
	_, err = s.Verify(t.Context())
	require.NoError(t, err)
	_, err = s.Image(t.Context(), "j", 1, 0)
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	m := &checkpoint.Manifest{Job: "j", Epoch: 1, Term: 9, Ranks: []checkpoint.RankImage{{}}}
	require.ErrorIs(t, s.Commit(t.Context(), m), lockstep.ErrConflict, "a number is used once")
}

func TestOpenImageSurvivesCollect(t *testing.T) {
	clock := newHands()
	s := newStore(t, func(c *Config) { c.Clock = clock; c.Grace = time.Nanosecond })
	want := noise(1, 3<<20)
	require.NoError(t, saveEpoch(t.Context(), s, "j", 1, []content{{"a": want}}))
	m, err := s.Image(t.Context(), "j", 1, 0)
	require.NoError(t, err)
	require.NoError(t, s.Drop(t.Context(), "j", 1))
	for range 4 {
		clock.add(time.Minute)
		_, err := s.Collect(t.Context())
		require.NoError(t, err)
	}
	r, err := m.Open("a")
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.ErrorIs(t, m.Close(), lockstep.ErrConflict, "a stream is open")
	require.NoError(t, r.Close())
	require.NoError(t, m.Close())
	for range 2 {
		clock.add(time.Minute)
		_, err := s.Collect(t.Context())
		require.NoError(t, err)
	}
	require.Zero(t, packCount(t, s))
}

// TestSaveTakesBackWhatWasCollected: a save counts on a region whose pack is taken
// away before it commits, by another process.
func TestSaveTakesBackWhatWasCollected(t *testing.T) {
	clock := newHands()
	dir := t.TempDir() + "/s"
	s := newStore(t, func(c *Config) { c.Dir = dir; c.Clock = clock; c.Grace = time.Second })
	other := newStore(t, func(c *Config) { c.Dir = dir; c.Clock = clock; c.Grace = time.Second })
	c := content{"a": noise(1, 1<<20)}
	require.NoError(t, saveEpoch(t.Context(), s, "j", 1, []content{c}))
	v, err := s.Begin(t.Context(), SaveOptions{Job: "j", Epoch: 2})
	require.NoError(t, err)
	require.NoError(t, put(v, c, checkpoint.StreamHint{}))
	require.NoError(t, other.Drop(t.Context(), "j", 1))
	for range 5 {
		clock.add(time.Hour)
		_, err := other.Collect(t.Context())
		require.NoError(t, err)
	}
	require.Zero(t, packCount(t, other), "it was taken away")
	image, err := v.Commit(t.Context())
	require.NoError(t, err)
	require.Zero(t, v.Stats().Stored)
	require.NoError(t, s.Commit(t.Context(), &checkpoint.Manifest{Job: "j", Epoch: 2, Term: 1, Ranks: []checkpoint.RankImage{image}}))
	got, err := load(t.Context(), other, "j", 2, 0)
	require.NoError(t, err)
	requireSame(t, c, got)
	// What nobody committed in time is refused, not half kept.
	v, err = s.Begin(t.Context(), SaveOptions{Job: "j", Epoch: 3})
	require.NoError(t, err)
	require.NoError(t, put(v, content{"a": noise(3, 1<<20)}, checkpoint.StreamHint{}))
	image, err = v.Commit(t.Context())
	require.NoError(t, err)
	for range 3 {
		clock.add(time.Hour)
		_, err := other.Collect(t.Context())
		require.NoError(t, err)
	}
	err = s.Commit(t.Context(), &checkpoint.Manifest{Job: "j", Epoch: 3, Term: 1, Ranks: []checkpoint.RankImage{image}})
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	_, ok, err := s.Committed(t.Context(), "j", 3)
	require.NoError(t, err)
	require.False(t, ok)
}

func TestCollectCopiesWhatIsLive(t *testing.T) {
	clock := newHands()
	s := newStore(t, func(c *Config) { c.Clock = clock; c.Grace = time.Minute })
	stay := noise(1, 300<<10)
	require.NoError(t, saveEpoch(t.Context(), s, "j", 1, []content{{"a": stay, "b": noise(2, 3<<20)}}))
	require.NoError(t, saveEpoch(t.Context(), s, "j", 2, []content{{"a": stay}}))
	require.NoError(t, s.Drop(t.Context(), "j", 1))
	clock.add(2 * time.Minute)
	got, err := s.Collect(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, got.Rewritten)
	require.Greater(t, got.Moved, 300*lockstep.KiB)
	clock.add(2 * time.Minute)
	got, err = s.Collect(t.Context())
	require.NoError(t, err)
	require.Greater(t, got.Freed, 3*lockstep.MiB)
	c, err := load(t.Context(), s, "j", 2, 0)
	require.NoError(t, err)
	requireSame(t, content{"a": stay}, c)
	_, err = s.Verify(t.Context())
	require.NoError(t, err)
}

func TestMaxChainStoresAnew(t *testing.T) {
	s := newStore(t, func(c *Config) { c.MaxChain = 3 })
	c := content{"a": noise(1, 1<<20)}
	var stored []bool
	for e := range checkpoint.Epoch(7) {
		_, st, err := saveRank(t.Context(), s, SaveOptions{Job: "j", Epoch: e + 1}, c, checkpoint.StreamHint{})
		require.NoError(t, err)
		stored = append(stored, st.Stored > 0)
	}
	require.Equal(t, []bool{true, false, false, true, false, false, true}, stored)
}

func TestCollectRefusesWhatItCannotFollow(t *testing.T) {
	clock := newHands()
	s := newStore(t, func(c *Config) { c.Clock = clock; c.Grace = time.Nanosecond })
	for e := range checkpoint.Epoch(2) {
		require.NoError(t, saveEpoch(t.Context(), s, "j", e+1, []content{{"a": noise(uint64(e), 1<<20)}}))
	}
	require.NoError(t, s.Drop(t.Context(), "j", 1))
	clock.add(time.Hour)
	files, err := filepath.Glob(s.cfg.Dir + "/" + jobDir("j") + "/*" + suffixEpoch)
	require.NoError(t, err)
	require.Len(t, files, 1)
	b, err := os.ReadFile(files[0])
	require.NoError(t, err)
	b[20] ^= 1
	require.NoError(t, os.WriteFile(files[0], b, 0o600))
	_, err = s.Collect(t.Context())
	require.ErrorIs(t, err, checkpoint.ErrCorrupt)
	require.Equal(t, 2, packCount(t, s), "nothing was touched")
}

// TestCollectBesideSavesAndRestores runs all at once, from two stores on one
// folder as two processes have them.
func TestCollectBesideSavesAndRestores(t *testing.T) {
	clock := newHands()
	dir := t.TempDir() + "/s"
	open := func() *Store {
		return newStore(t, func(c *Config) {
			c.Dir, c.Clock, c.Grace, c.PackBytes = dir, clock, 3*time.Second, 200*lockstep.KiB
		})
	}
	a, b := open(), open()
	shared := noise(1, 200<<10)
	jobs := []lockstep.JobID{"j1", "j2", "j3"}
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	inputs := func(job int, e checkpoint.Epoch) []content {
		return []content{{"a": shared, "b": noise(uint64(100*job)+uint64(e), 150<<10)}}
	}
	var savers, rest sync.WaitGroup
	stop := make(chan struct{})
	turn := make(chan struct{}, 1) // a save has ended: Collect runs once beside the others
	for j, job := range jobs {
		s := []*Store{a, b}[j%2]
		savers.Go(func() {
			for e := checkpoint.Epoch(1); e <= checkpoint.Epoch(rounds); e++ {
				err := saveEpoch(t.Context(), s, job, e, inputs(j, e))
				for n := 0; errorIsStale(err) && n < 20; n++ { // Grace is three runs of Collect: what is not committed by then may go
					err = saveEpoch(t.Context(), s, job, e, inputs(j, e))
				}
				if err != nil {
					t.Errorf("save %s %d: %v", job, e, err)
					return
				}
				select {
				case turn <- struct{}{}:
				default:
				}
				if e > 2 {
					if err := s.Drop(t.Context(), job, e-2); err != nil {
						t.Errorf("drop: %v", err)
					}
				}
			}
		})
	}
	rest.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-turn:
			}
			clock.add(time.Second)
			if _, err := b.Collect(t.Context()); err != nil {
				t.Errorf("collect: %v", err)
				return
			}
		}
	})
	rest.Go(func() {
		rng := rand.New(rand.NewPCG(1, 1))
		for {
			select {
			case <-stop:
				return
			default:
			}
			j := rng.IntN(len(jobs))
			m, ok, err := a.Latest(t.Context(), jobs[j])
			if err != nil || !ok {
				continue
			}
			got, err := load(t.Context(), a, jobs[j], m.Epoch, 0)
			if errorIsUnknown(err) {
				continue // dropped between
			}
			if err != nil || !slices.Equal(got["b"], inputs(j, m.Epoch)[0]["b"]) || !slices.Equal(got["a"], shared) {
				t.Errorf("load %s %d: %v", jobs[j], m.Epoch, err)
				return
			}
		}
	})
	savers.Wait()
	close(stop)
	rest.Wait()
	_, err := b.Verify(t.Context())
	require.NoError(t, err)
	for j, job := range jobs {
		got, err := load(t.Context(), b, job, checkpoint.Epoch(rounds), 0)
		require.NoError(t, err)
		requireSame(t, inputs(j, checkpoint.Epoch(rounds))[0], got)
	}
}
