package imagestore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

var errNoRoom = fmt.Errorf("write: %w", syscall.ENOSPC)

// sim opens a store on a simulated file system.
func sim(t testing.TB, f *simFS, clock lockstep.Clock) (*Store, error) {
	t.Helper()
	return open(Config{Dir: "sim", Workers: 1, Average: 64 * lockstep.KiB, PackBytes: 100 * lockstep.KiB, Clock: clock, Grace: time.Minute, Level: LevelFast}, f)
}

// scene is a life of a store: what each epoch holds and what was promised.
type scene struct {
	clock     *hands
	promised  map[checkpoint.Epoch]bool // Commit said yes, and nobody dropped it
	dropping  map[checkpoint.Epoch]bool // Drop was called: both are right
	fenced    checkpoint.Term
	committed map[checkpoint.Epoch][]content
	rewritten int // packs that were copied
}

func newScene() *scene {
	return &scene{clock: newHands(), promised: map[checkpoint.Epoch]bool{}, dropping: map[checkpoint.Epoch]bool{}, committed: map[checkpoint.Epoch][]content{}}
}

// epochContent returns what two ranks hold at an epoch: one part stays, one changes.
var epochContent = func() func(e checkpoint.Epoch) []content {
	var list [4][]content
	for e := range uint64(len(list)) {
		for r := range uint64(2) {
			list[e] = append(list[e], content{
				"a": noise(100*e+r, 70_000), "b": noise(10+r, 40_000), "c": noise(1000*e+r, 40_000), "params": noise(1, 90_000), "zeros": make([]byte, 10_000),
			})
		}
	}
	return func(e checkpoint.Epoch) []content { return list[e] }
}()

func (sc *scene) save(ctx context.Context, s *Store, e checkpoint.Epoch) error {
	c := epochContent(e)
	sc.committed[e] = c
	err := saveEpoch(ctx, s, "j", e, c)
	if err == nil {
		sc.promised[e] = true
	}
	return err
}

// life does everything that changes a store: a first epoch is there, a second is
// saved, the first is dropped and collected twice, so that packs are copied, taken
// away and removed, and a third is saved.
func (sc *scene) life(ctx context.Context, s *Store) error {
	if err := sc.save(ctx, s, 2); err != nil {
		return err
	}
	if err := s.Fence(ctx, "j", 1); err != nil {
		return err
	}
	sc.fenced = 1
	delete(sc.promised, 1)
	sc.dropping[1] = true
	if err := s.Drop(ctx, "j", 1); err != nil {
		return err
	}
	for range 3 {
		sc.clock.add(2 * time.Minute)
		c, err := s.Collect(ctx)
		if err != nil {
			return err
		}
		sc.rewritten += c.Rewritten
	}
	return sc.save(ctx, s, 3)
}

// check looks at a store after a crash: all that was promised is there, all that
// is there is whole, and life goes on.
func (sc *scene) check(t testing.TB, f *simFS, what string) {
	t.Helper()
	ctx := t.Context()
	s, err := sim(t, f, sc.clock)
	require.NoError(t, err, what)
	rep, err := s.Verify(ctx)
	require.NoError(t, err, "%s: %v", what, rep.Damage)
	sc.checkEpochs(t, s, what)
	// The interrupted save is resumed, or done again.
	for e := checkpoint.Epoch(2); e <= 3; e++ {
		if _, ok, err := s.Committed(ctx, "j", e); err == nil && !ok {
			require.NoError(t, sc.save(ctx, s, e), what)
		}
	}
	sc.checkEpochs(t, s, what)
	for range 3 {
		sc.clock.add(2 * time.Minute)
		_, err := s.Collect(ctx)
		require.NoError(t, err, what)
	}
	_, err = s.Verify(ctx)
	require.NoError(t, err, what)
	sc.checkEpochs(t, s, what)
	names, err := f.list(dirOpen)
	require.NoError(t, err)
	for _, n := range names {
		require.NotContains(t, n, suffixPart, "%s: no part of a save is left", what)
	}
	require.NoError(t, s.Close(), what)
}

func (sc *scene) checkEpochs(t testing.TB, s *Store, what string) {
	t.Helper()
	epochs, err := s.Epochs(t.Context(), "j")
	require.NoError(t, err, what)
	for e := range sc.promised { // all are checked: order cannot matter
		require.Contains(t, epochs, e, "%s: a committed epoch is lost", what)
	}
	for _, e := range epochs {
		if sc.dropping[e] && e == 1 {
			continue // half dropped: Verify has seen that it is whole
		}
		for r, want := range sc.committed[e] {
			got, err := load(t.Context(), s, "j", e, r)
			require.NoError(t, err, "%s: epoch %d", what, e)
			requireSame(t, want, got)
		}
	}
}

// firstEpoch returns a file system with one committed epoch on the disk.
func firstEpoch(t testing.TB, sc *scene) *simFS {
	t.Helper()
	sc.committed[1] = epochContent(1)
	sc.promised[1] = true
	return baseFS(t).crash(1, loseAll)
}

// baseFS makes the file system that firstEpoch copies: only what is on the disk
// counts.
func baseFS(t testing.TB) *simFS {
	t.Helper()
	base.Do(func() { base.fs = makeFirst(t, newScene()) })
	return base.fs
}

var base struct {
	sync.Once
	fs *simFS
}

func makeFirst(t testing.TB, sc *scene) *simFS {
	t.Helper()
	f := newSim(1)
	s, err := sim(t, f, sc.clock)
	require.NoError(t, err)
	require.NoError(t, sc.save(t.Context(), s, 1))
	require.NoError(t, s.Close())
	return f
}

// TestCrashAnywhere kills the program in every call that changes the file
// system, with three fates of what was not synced, and looks at what is left.
func TestCrashAnywhere(t *testing.T) {
	probe := newScene()
	f := firstEpoch(t, probe)
	f.ops, f.names = 0, nil
	s, err := sim(t, f, probe.clock)
	require.NoError(t, err)
	require.NoError(t, probe.life(t.Context(), s))
	total := f.ops
	kinds := map[string]int{}
	for _, n := range f.names {
		kinds[n]++
	}
	require.NoError(t, s.Close())
	t.Logf("%d calls that change the file system: %v", total, kinds)
	for _, k := range []string{"write", "sync file", "rename to packs", "rename to ranks", "rename to trash", "sync packs", "remove trash"} {
		require.Positive(t, kinds[k], "the life has no %s", k)
	}
	require.Positive(t, probe.rewritten, "the life copies no pack")
	step, seeds := 1, uint64(1)
	if testing.Short() {
		step = 9
	}
	crashes := 0
	for k := 1; k <= total; k += step {
		for seed := range seeds {
			for _, fate := range []fate{loseAll, keepAll, toss} {
				sc := newScene()
				f := firstEpoch(t, sc)
				f.ops, f.names, f.killAt = 0, nil, k
				f.pcg.Seed(seed+1, 5)
				s, err := sim(t, f, sc.clock)
				if err == nil {
					err = sc.life(t.Context(), s)
				}
				require.ErrorIs(t, err, errDead)
				sc.check(t, f.crash(seed, fate), fmt.Sprintf("killed in call %d (%s), fate %d, seed %d", k, f.names[len(f.names)-1], fate, seed))
				crashes++
			}
		}
	}
	t.Logf("%d crashes", crashes)
}

// TestCrashWhileResuming kills a save, then kills the save that resumes it.
func TestCrashWhileResuming(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 15
	}
	for _, first := range []int{8, 14, 23, 30} {
		for k := 1; ; k += step {
			sc := newScene()
			f := firstEpoch(t, sc)
			f.ops, f.killAt = 0, first
			s, err := sim(t, f, sc.clock)
			if err == nil {
				err = sc.save(t.Context(), s, 2)
			}
			require.ErrorIs(t, err, errDead)
			g := f.crash(uint64(k), toss)
			g.killAt = k
			s, err = sim(t, g, sc.clock)
			if err == nil {
				err = sc.save(t.Context(), s, 2)
			}
			sc.check(t, g.crash(uint64(k), toss), fmt.Sprintf("killed in call %d, then in %d", first, k))
			if err == nil {
				break
			}
		}
	}
}

// TestCrashWhileTheStoreIsMade kills the very first Open.
func TestCrashWhileTheStoreIsMade(t *testing.T) {
	for k := 1; ; k++ {
		for _, fate := range []fate{loseAll, keepAll, toss} {
			sc := newScene()
			f := newSim(1)
			f.killAt = k
			_, err := sim(t, f, sc.clock)
			if err == nil {
				return
			}
			sc.check(t, f.crash(uint64(k), fate), fmt.Sprintf("killed in call %d", k))
		}
	}
}

// TestFailureAnywhere lets every call fail once, with the program alive.
func TestFailureAnywhere(t *testing.T) {
	for _, fail := range []error{syscall.EIO, syscall.ENOSPC} {
		step := 1
		if testing.Short() {
			step = 9
		}
		for k := 1; ; k += step {
			sc := newScene()
			f := firstEpoch(t, sc)
			f.ops, f.failAt, f.fail = 0, k, fail
			s, err := sim(t, f, sc.clock)
			if err == nil {
				err = sc.life(t.Context(), s)
			}
			if f.ops < k {
				break
			}
			if fail == syscall.ENOSPC && err != nil {
				require.ErrorIs(t, err, syscall.ENOSPC)
			}
			if s != nil {
				require.NoError(t, s.Close(), "nothing is left open")
			}
			f.failAt = 0
			sc.check(t, f, fmt.Sprintf("call %d failed", k))
		}
	}
}

// TestFullStore fills the disk at every size: the error says what is missing, the
// committed epoch stays, and nothing of the failed save does once it is aborted.
func TestFullStore(t *testing.T) {
	step := 29_111
	if testing.Short() {
		step *= 3
	}
	seen := 0
	for room := 0; ; room += step {
		sc := newScene()
		f := firstEpoch(t, sc)
		f.room = room
		s, err := sim(t, f, sc.clock)
		require.NoError(t, err)
		err = sc.save(t.Context(), s, 2)
		if err == nil {
			break
		}
		seen++
		require.ErrorIs(t, err, checkpoint.ErrNoSpace)
		var e *NoSpaceError
		require.ErrorAs(t, err, &e)
		require.Positive(t, e.Need)
		require.ErrorIs(t, err, syscall.ENOSPC)
		require.NoError(t, s.Close())
		open, err := f.list(dirOpen)
		require.NoError(t, err)
		for _, n := range open {
			require.NotContains(t, n, suffixPart)
		}
		got, err := func() (content, error) {
			s, err := sim(t, f, sc.clock)
			require.NoError(t, err)
			return load(t.Context(), s, "j", 1, 0)
		}()
		require.NoError(t, err)
		requireSame(t, epochContent(1)[0], got)
		f.room = -1
		sc.check(t, f, fmt.Sprintf("room for %d", room))
	}
	require.Greater(t, seen, 2)
}

func TestInterruptedSaveIsTakenOver(t *testing.T) {
	sc := newScene()
	f := newSim(1)
	s, err := sim(t, f, sc.clock)
	require.NoError(t, err)
	v, err := s.Begin(t.Context(), SaveOptions{Job: "j", Epoch: 1})
	require.NoError(t, err)
	b := noise(1, 3<<20)
	w, err := v.Create("a", checkpoint.StreamHint{Region: 64 << 10})
	require.NoError(t, err)
	_, err = w.Write(b)
	require.NoError(t, err)
	_, err = v.Commit(t.Context())
	require.ErrorIs(t, err, lockstep.ErrConflict, "a stream is open")
	// The process is gone; its memory and locks with it, its files not.
	for range 1000 {
		if v.Stats().Stored > 0 {
			break
		}
		w2, err := s.worker() // waits for the one worker
		require.NoError(t, err)
		s.release(w2)
	}
	f.mu.Lock()
	f.dead = true
	f.mu.Unlock()
	g := f.crash(3, keepAll)
	s, err = sim(t, g, sc.clock)
	require.NoError(t, err)
	_, st, err := saveRank(t.Context(), s, SaveOptions{Job: "j", Epoch: 1}, content{"a": b}, checkpoint.StreamHint{Region: 64 << 10})
	require.NoError(t, err)
	require.Greater(t, st.Reused, lockstep.MiB)
	require.Less(t, st.Stored, 2*lockstep.MiB)
	require.Equal(t, 3*lockstep.MiB, st.Raw)
	require.NotEmpty(t, slices.Sorted(maps.Keys(g.root.now)))
}
