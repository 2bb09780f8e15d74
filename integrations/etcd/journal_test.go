package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// tape is a Core that only remembers its inputs, which are any bytes.
type tape struct{ taken []string }

func (c *tape) Seq() uint64 { return uint64(len(c.taken)) }
func (c *tape) Snapshot(w io.Writer) error {
	for _, s := range c.taken {
		if _, err := fmt.Fprintf(w, "%d:%s", len(s), s); err != nil {
			return err
		}
	}
	return nil
}

// recoverTape returns the journal of that name, ready, and what is in it.
func recoverTape(t testing.TB, s *Space, name string, l *Leader) (*Journal, *tape, error) {
	j, err := s.Journal(name, l)
	require.NoError(t, err)
	c := &tape{}
	err = j.Recover(t.Context(), func(r io.Reader) error {
		c.taken = nil
		for r != nil {
			var n int
			if _, err := fmt.Fscanf(r, "%d:", &n); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
			b := make([]byte, n)
			if _, err := io.ReadFull(r, b); err != nil {
				return err
			}
			c.taken = append(c.taken, string(b))
		}
		return nil
	}, func(r Record) error {
		if r.Seq != c.Seq()+1 {
			return fmt.Errorf("record %d after %d", r.Seq, c.Seq())
		}
		c.taken = append(c.taken, string(r.Data))
		return nil
	})
	return j, c, err
}

// take gives c and the journal inputs.
func take(t testing.TB, j *Journal, c *tape, inputs ...string) {
	for _, in := range inputs {
		c.taken = append(c.taken, in)
		require.NoError(t, j.Add(Record{Seq: c.Seq(), Data: []byte(in)}))
	}
}

func small(c *Config) { c.Chunk = 1 << 10 }

func TestJournalKeepsSnapshotAndLog(t *testing.T) {
	s := newSpace(t, small)
	l := lead(t, s)
	j, c, err := recoverTape(t, s, "a/b", l)
	require.NoError(t, err)
	require.Empty(t, c.taken)
	dir := j.dir
	check := func(keys int) {
		t.Helper()
		again, have, err := recoverTape(t, s, "a/b", nil)
		require.NoError(t, err)
		require.Equal(t, c.taken, have.taken)
		require.Equal(t, j.head, again.head)
		require.Len(t, keysOf(t, s.cfg.Client, dir), keys)
	}
	check(0)
	require.NoError(t, j.Flush(t.Context()), "nothing to write")
	check(0)
	take(t, j, c, "one", "", "three")
	require.Equal(t, 3, j.Pending())
	require.NoError(t, j.Flush(t.Context()))
	require.EqualValues(t, 3, j.Seq())
	check(2) // head and one batch
	take(t, j, c, strings.Repeat("x", 700), strings.Repeat("y", 700), "z")
	require.NoError(t, j.Flush(t.Context()))
	check(4) // y and z fit together
	take(t, j, c, strings.Repeat("long", 1000))
	require.NoError(t, j.Flush(t.Context()))
	check(4 + 1 + 4) // and its four parts
	require.NoError(t, j.Snapshot(t.Context(), c))
	require.EqualValues(t, 7, j.Saved())
	check(1 + 6) // head and the snapshot's parts
	take(t, j, c, "eight")
	require.NoError(t, j.Flush(t.Context()))
	check(8)
	require.NoError(t, j.Snapshot(t.Context(), c))
	require.NoError(t, j.Snapshot(t.Context(), c), "with nothing new")
	check(7)
	c.taken = append(c.taken, "not added")
	require.ErrorIs(t, j.Snapshot(t.Context(), c), lockstep.ErrConflict)
	c.taken = c.taken[:8]
	check(7)
}

func TestJournalTakesRecordsInOrderOnly(t *testing.T) {
	s := newSpace(t, nil)
	j, err := s.Journal("j", nil)
	require.NoError(t, err)
	require.ErrorIs(t, j.Add(Record{Seq: 1}), lockstep.ErrConflict, "before it is recovered")
	require.ErrorIs(t, j.Flush(t.Context()), lockstep.ErrConflict)
	j, c, err := recoverTape(t, s, "j", nil)
	require.NoError(t, err)
	require.ErrorIs(t, j.Add(Record{Seq: 2}), lockstep.ErrConflict)
	require.NoError(t, j.Add(Record{Seq: 1}))
	require.ErrorIs(t, j.Add(Record{Seq: 1}), lockstep.ErrConflict)
	require.ErrorIs(t, j.Flush(t.Context()), lockstep.ErrConflict, "no leader")
	require.ErrorIs(t, j.Commit(t.Context(), c), lockstep.ErrConflict)
	require.Empty(t, keysOf(t, s.cfg.Client, s.cfg.Prefix))
}

func TestCommitTakesSnapshotsEverySoOften(t *testing.T) {
	s := newSpace(t, func(c *Config) { c.Every = 5 })
	j, c, err := recoverTape(t, s, "j", lead(t, s))
	require.NoError(t, err)
	var saved []uint64
	for i := range 14 {
		take(t, j, c, fmt.Sprint("r", i))
		require.NoError(t, j.Commit(t.Context(), c))
		saved = append(saved, j.Saved())
	}
	require.Equal(t, []uint64{0, 0, 0, 0, 5, 5, 5, 5, 5, 10, 10, 10, 10, 10}, saved)
	s.cfg.Every = -1
	for i := range 10 {
		take(t, j, c, fmt.Sprint("s", i))
		require.NoError(t, j.Commit(t.Context(), c))
	}
	require.EqualValues(t, 10, j.Saved())
	_, have, err := recoverTape(t, s, "j", nil)
	require.NoError(t, err)
	require.Equal(t, c.taken, have.taken)
}

func TestDeposedLeaderAppendsNothing(t *testing.T) {
	s := newSpace(t, small)
	first := lead(t, s)
	j, c, err := recoverTape(t, s, "j", first)
	require.NoError(t, err)
	take(t, j, c, "one")
	require.NoError(t, j.Flush(t.Context()))
	depose(t, first)
	keys := keysOf(t, s.cfg.Client, j.dir)
	take(t, j, c, "two", strings.Repeat("long", 1000))
	require.ErrorIs(t, j.Flush(t.Context()), ErrDeposed)
	require.ErrorIs(t, j.Snapshot(t.Context(), c), ErrDeposed)
	require.Equal(t, keys, keysOf(t, s.cfg.Client, j.dir))

	heir, have, err := recoverTape(t, s, "j", lead(t, s))
	require.NoError(t, err)
	require.Equal(t, []string{"one"}, have.taken)
	take(t, heir, have, "other two")
	require.NoError(t, heir.Flush(t.Context()))
}

// TestFlushFindsOutAboutLostAnswers loses answers and requests at every write.
func TestFlushFindsOutAboutLostAnswers(t *testing.T) {
	turn, on := 0, false
	c, _ := withFaults(t, sharedAddr(t), func(int64) fate {
		if !on {
			return through
		}
		turn++
		return []fate{through, unsaid, undecided}[turn%3]
	})
	s := newSpace(t, func(cfg *Config) { cfg.Client, cfg.Chunk = c, 1<<10 })
	l := lead(t, s)
	quick := *s
	quick.cfg.TTL, on = time.Second/5, true // for shorter pauses between tries
	j, core, err := recoverTape(t, &quick, "j", l)
	require.NoError(t, err)
	for i := range 10 {
		take(t, j, core, fmt.Sprint("a", i), strings.Repeat("b", 300*i))
		require.NoError(t, j.Flush(t.Context()))
		if i == 5 {
			require.NoError(t, j.Snapshot(t.Context(), core))
		}
	}
	again, have, err := recoverTape(t, s, "j", nil)
	require.NoError(t, err)
	require.Equal(t, core.taken, have.taken)
	require.Equal(t, j.head, again.head)
}

// TestWritesMayBeTriedAgain ends the context of appends and of switches to snapshots
// while the answer is lost, or the request late, adds more, and tries again.
func TestWritesMayBeTriedAgain(t *testing.T) {
	var what fate
	var at int64 // the write that this is to happen to
	var cancel context.CancelFunc
	client, kv := withFaults(t, sharedAddr(t), func(n int64) fate {
		if n != at {
			return through
		}
		cancel()
		return what
	})
	s := newSpace(t, func(cfg *Config) { small(cfg); cfg.Client = client })
	j, c, err := recoverTape(t, s, "j", lead(t, s))
	require.NoError(t, err)
	// try has f happen to the n-th write of call.
	try := func(f fate, n int64, call func(ctx context.Context) error) error {
		var ctx context.Context
		ctx, cancel = context.WithCancel(t.Context())
		defer cancel()
		what, at = f, kv.writes.Load()+n
		return call(ctx)
	}
	check := func(name string) {
		_, have, err := recoverTape(t, s, "j", nil)
		require.NoError(t, err, name)
		require.Equal(t, c.taken, have.taken, name)
	}
	for round := range 3 {
		for _, f := range []fate{unsaid, undecided, late} {
			name := fmt.Sprint("round ", round, " fate ", f)
			take(t, j, c, name)
			require.ErrorIs(t, try(f, 1, j.Flush), errGone, name)
			take(t, j, c, name+" more", name+strings.Repeat("long", 400*round))
			require.NoError(t, j.Flush(t.Context()), name)
			require.Zero(t, j.Pending())
			require.Equal(t, c.Seq(), j.Seq())
			check(name)

			before := kv.writes.Load()
			require.NoError(t, j.Snapshot(t.Context(), c))
			snapshot := func(ctx context.Context) error { return j.Snapshot(ctx, c) }
			require.ErrorIs(t, try(f, kv.writes.Load()-before, snapshot), errGone, name)
			if round > 0 { // an append finds out about it, or the next snapshot
				take(t, j, c, name+" again")
				require.NoError(t, j.Flush(t.Context()), name)
				check(name)
			}
			require.NoError(t, j.Snapshot(t.Context(), c), name)
			require.Equal(t, c.Seq(), j.Saved())
			check(name)
			require.Len(t, keysOf(t, client, j.snapshotDir()), j.head.Snapshot.Count)
		}
	}
}

func TestSomebodyElsesHandIsNoticed(t *testing.T) {
	s := newSpace(t, nil)
	l := lead(t, s)
	j, c, err := recoverTape(t, s, "j", l)
	require.NoError(t, err)
	other, d, err := recoverTape(t, s, "j", l)
	require.NoError(t, err)
	take(t, j, c, "one")
	take(t, other, d, "another one")
	require.NoError(t, j.Flush(t.Context()))
	err = other.Flush(t.Context())
	require.ErrorIs(t, err, lockstep.ErrConflict, "the same leader has the journal open twice")
	require.NotErrorIs(t, err, ErrDeposed)
}

// TestDamagedJournalsAreRefused damages each key in each way.
func TestDamagedJournalsAreRefused(t *testing.T) {
	s := newSpace(t, small)
	j, c, err := recoverTape(t, s, "j", lead(t, s))
	require.NoError(t, err)
	for i := range 30 {
		take(t, j, c, strings.Repeat(fmt.Sprint(i%10), 100))
	}
	require.NoError(t, j.Snapshot(t.Context(), c))
	for i := range 3 {
		take(t, j, c, fmt.Sprint("r", i))
		require.NoError(t, j.Flush(t.Context()))
	}
	take(t, j, c, strings.Repeat("long", 300)+strings.Repeat("gone", 300))
	require.NoError(t, j.Flush(t.Context()))
	client := s.cfg.Client
	keys := keysOf(t, client, j.dir)
	require.Len(t, keys, 1+4+4+3)
	for _, key := range keys {
		damage(t, client, j.dir+key, func(what string) {
			_, _, err := recoverTape(t, s, "j", nil)
			require.ErrorIs(t, err, ErrCorrupt, "%s %s", key, what)
		})
	}
	// Whole values in the wrong places are damage too.
	swapped := func(a, b string) {
		one, err := client.Get(t.Context(), a)
		require.NoError(t, err)
		two, err := client.Get(t.Context(), b)
		require.NoError(t, err)
		put := func(key string, v []byte) {
			_, err := client.Put(t.Context(), key, string(v))
			require.NoError(t, err)
		}
		put(a, two.Kvs[0].Value)
		put(b, one.Kvs[0].Value)
		_, _, err = recoverTape(t, s, "j", nil)
		require.ErrorIs(t, err, ErrCorrupt, "%s and %s", a, b)
		put(a, one.Kvs[0].Value)
		put(b, two.Kvs[0].Value)
	}
	for i := range keys {
		swapped(j.dir+keys[i], j.dir+keys[(i+1)%len(keys)])
	}
	_, have, err := recoverTape(t, s, "j", nil)
	require.NoError(t, err)
	require.Equal(t, c.taken, have.taken)
}

// TestBatchesOfAnotherHistoryAreRefused puts in a batch's place the one of a journal
// that was the same up to there: whole, in order, and of another record.
func TestBatchesOfAnotherHistoryAreRefused(t *testing.T) {
	s := newSpace(t, nil)
	l := lead(t, s)
	write := func(name string, other int) *Journal {
		j, c, err := recoverTape(t, s, fmt.Sprint(name, other), l)
		require.NoError(t, err)
		take(t, j, c, "saved")
		require.NoError(t, j.Snapshot(t.Context(), c))
		for i := range 3 {
			in := "same"
			if i == other {
				in = name
			}
			take(t, j, c, in)
			require.NoError(t, j.Flush(t.Context()))
		}
		return j
	}
	for i := range 3 {
		ours, other := write("ours", i), write("other", i)
		key := ours.logKey(uint64(i + 2))
		good, err := s.cfg.Client.Get(t.Context(), key)
		require.NoError(t, err)
		bad, err := s.cfg.Client.Get(t.Context(), other.logKey(uint64(i+2)))
		require.NoError(t, err)
		for _, value := range [][]byte{bad.Kvs[0].Value, good.Kvs[0].Value} {
			_, err = s.cfg.Client.Put(t.Context(), key, string(value))
			require.NoError(t, err)
			_, _, err = recoverTape(t, s, fmt.Sprint("ours", i), nil)
			if bytes.Equal(value, bad.Kvs[0].Value) {
				require.ErrorIs(t, err, ErrCorrupt, i)
			} else {
				require.NoError(t, err)
			}
		}
	}
}

// TestLostTokensAreNoticed has tokens far above the revision, and the key that
// remembers them removed.
func TestLostTokensAreNoticed(t *testing.T) {
	s := newSpace(t, func(c *Config) { c.Floor = 1 << 40 })
	l := lead(t, s)
	j, c, err := recoverTape(t, s, "j", l)
	require.NoError(t, err)
	take(t, j, c, "one")
	require.NoError(t, j.Flush(t.Context()))
	require.NoError(t, l.Resign(t.Context()))
	remove(t, l, s.fenceKey())
	careless := newSpace(t, nil)
	l = lead(t, careless)
	_, _, err = recoverTape(t, careless, "j", l)
	require.ErrorIs(t, err, lockstep.ErrConflict)
	require.ErrorContains(t, err, "Floor")
	require.NoError(t, l.Resign(t.Context()))
	_, _, err = recoverTape(t, careless, "j", nil)
	require.NoError(t, err, "it can be read")
	remove(t, l, s.fenceKey())
	again := lead(t, s)
	require.Equal(t, j.leader.token, again.token, "a token is issued twice")
	_, _, err = recoverTape(t, s, "j", again)
	require.ErrorIs(t, err, lockstep.ErrConflict)
	require.NoError(t, again.Resign(t.Context()))
	s.cfg.Floor = again.token // as the error says
	_, have, err := recoverTape(t, s, "j", lead(t, s))
	require.NoError(t, err)
	require.Equal(t, c.taken, have.taken)
}

// TestAnOldHeadIsRefused puts the head back as it was, as a careless operator may.
func TestAnOldHeadIsRefused(t *testing.T) {
	s := newSpace(t, nil)
	j, c, err := recoverTape(t, s, "j", lead(t, s))
	require.NoError(t, err)
	take(t, j, c, "one")
	require.NoError(t, j.Flush(t.Context()))
	old, err := s.cfg.Client.Get(t.Context(), j.headKey())
	require.NoError(t, err)
	take(t, j, c, "two")
	require.NoError(t, j.Flush(t.Context()))
	_, err = s.cfg.Client.Put(t.Context(), j.headKey(), string(old.Kvs[0].Value))
	require.NoError(t, err)
	_, _, err = recoverTape(t, s, "j", nil)
	require.ErrorIs(t, err, ErrCorrupt)
	take(t, j, c, "three")
	require.ErrorIs(t, j.Flush(t.Context()), lockstep.ErrConflict)
}

// TestSchedulerComesBackBitForBit hands a scheduler on from reign to reign, with
// and without snapshots, and compares each decision with those of one that ran
// through.
func TestSchedulerComesBackBitForBit(t *testing.T) {
	const inputs = 120
	ref := doWork(t, inputs)
	s := newSpace(t, func(c *Config) { c.Chunk, c.Every = 2<<10, 17 })
	for n := uint64(0); n < inputs; {
		l := lead(t, s)
		j, err := s.Journal("scheduler", l)
		require.NoError(t, err)
		cfg := workConfig()
		var logged []uint64
		cfg.Log = func(e scheduler.Entry) { logged = append(logged, e.Seq) }
		core, err := j.Scheduler(t.Context(), cfg)
		require.NoError(t, err)
		require.Equal(t, n, core.Seq())
		require.Equal(t, ref.states[n], state(t, core))
		for range 7 + n%11 {
			if n++; n > inputs {
				break
			}
			a, err := input(core, n)
			require.NoError(t, err)
			require.Equal(t, ref.actions[n], text(t, a))
			if n%3 != 1 {
				require.NoError(t, j.Commit(t.Context(), core))
			}
		}
		require.NotEmpty(t, logged)
		require.NoError(t, j.Flush(t.Context()))
		if n%2 == 0 {
			depose(t, l)
		} else {
			require.NoError(t, l.Resign(t.Context()))
		}
	}
}

func TestUnflushedInputsAreGone(t *testing.T) {
	ref := doWork(t, 9)
	s := newSpace(t, nil)
	l := lead(t, s)
	j, err := s.Journal("scheduler", l)
	require.NoError(t, err)
	core, err := j.Scheduler(t.Context(), workConfig())
	require.NoError(t, err)
	for n := uint64(1); n <= 9; n++ {
		_, err := input(core, n)
		require.NoError(t, err)
		if n == 6 {
			require.NoError(t, j.Flush(t.Context()))
		}
	}
	core, err = j.Scheduler(t.Context(), workConfig())
	require.NoError(t, err)
	require.Equal(t, ref.states[6], state(t, core))
	require.Zero(t, j.Pending())
}

func TestRecordsThatAreNoEntriesAreRefused(t *testing.T) {
	s := newSpace(t, nil)
	l := lead(t, s)
	for i, data := range []string{
		"", "{", "null", `{"seq":1,"step":"2026-01-01T00:00:00Z","later":1}`, `{"seq":1,"kind":"join","time":"2026-01-01T00:00:00Z","tenant":"a","later":1}`, `{"seq":1,"step":"2026-01-01T00:00:00Z"}{}`, `{"seq":2,"step":"2026-01-01T00:00:00Z"}`, `{"seq":1,"forget":"nobody"}`,
		`{"seq":1,"event":{"kind":"finish","time":"2026-01-01T00:00:00Z","job":"nobody"}}`,
	} {
		j, c, err := recoverTape(t, s, fmt.Sprint(i), l)
		require.NoError(t, err)
		take(t, j, c, data)
		require.NoError(t, j.Flush(t.Context()))
		_, err = j.Scheduler(t.Context(), workConfig())
		require.ErrorIs(t, err, ErrCorrupt, data)
		_, err = j.Ledger(t.Context(), fairness.Config{})
		require.ErrorIs(t, err, ErrCorrupt, data)
		require.ErrorIs(t, j.Flush(t.Context()), lockstep.ErrConflict, "not ready")
	}
	j, c, err := recoverTape(t, s, "snapshot", l)
	require.NoError(t, err)
	take(t, j, c, "x")
	require.NoError(t, j.Snapshot(t.Context(), c))
	_, err = j.Scheduler(t.Context(), workConfig())
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = j.Ledger(t.Context(), fairness.Config{})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestLedgerComesBackBitForBit(t *testing.T) {
	s := newSpace(t, func(c *Config) { c.Chunk, c.Every = 1<<10, 10 })
	l := lead(t, s)
	cfg := fairness.Config{Capacity: 8 * lockstep.WholeGPU, DefaultWeight: 1}
	ref, err := fairness.New(cfg)
	require.NoError(t, err)
	j, err := s.Journal("ledger", l)
	require.NoError(t, err)
	var calls int
	cfg.Log = func(fairness.Event) { calls++ }
	core, err := j.Ledger(t.Context(), cfg)
	require.NoError(t, err)
	for i := range 60 {
		now := epoch.Add(time.Duration(i) * time.Second)
		id, tenant := job(uint64(i)), lockstep.TenantID(fmt.Sprint("team-", i%3))
		for _, led := range []*fairness.Ledger{core, ref} {
			require.NoError(t, led.Submit(now, id, tenant, 2*lockstep.WholeGPU))
			require.NoError(t, led.Start(now, id, lockstep.WholeGPU))
			if i > 3 {
				require.NoError(t, led.Finish(now, job(uint64(i-3))))
			}
		}
		require.NoError(t, j.Commit(t.Context(), core))
		if i%7 == 0 {
			core, err = j.Ledger(t.Context(), cfg)
			require.NoError(t, err)
		}
		var a, b bytes.Buffer
		require.NoError(t, core.Snapshot(&a))
		require.NoError(t, ref.Snapshot(&b))
		require.Equal(t, b.Bytes(), a.Bytes())
	}
	require.EqualValues(t, ref.Seq(), calls, "replayed events are not logged again")
}
