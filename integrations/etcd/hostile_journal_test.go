package etcd

import (
	"bytes"
	"context"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/scheduler"
	"github.com/lockstep-gpu/lockstep/topology"
)

// TestLostHeadIsNoticed removes the head when nothing but a snapshot is left to tell
// that there was one.
func TestLostHeadIsNoticed(t *testing.T) {
	s := newSpace(t, small)
	l := lead(t, s)
	j, core, err := recoverTape(t, s, "j", l)
	require.NoError(t, err)
	take(t, j, core, "a", "b")
	require.NoError(t, j.Snapshot(t.Context(), core))
	_, err = s.cfg.Client.Delete(t.Context(), j.headKey())
	require.NoError(t, err)
	_, _, err = recoverTape(t, s, "j", l)
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, j.headKey())

	_, err = s.cfg.Client.Delete(t.Context(), j.dir, clientv3.WithPrefix())
	require.NoError(t, err)
	_, have, err := recoverTape(t, s, "j", l)
	require.NoError(t, err, "all of it is gone: it is a new journal")
	require.Empty(t, have.taken)
}

// TestPartsOfAFirstWriteAreNoLostHead has the process die between the parts of the
// first thing that is ever written and its head.
func TestPartsOfAFirstWriteAreNoLostHead(t *testing.T) {
	for name, write := range map[string]func(j *Journal, c *tape) error{
		"record":   func(j *Journal, c *tape) error { return j.Flush(t.Context()) },
		"snapshot": func(j *Journal, c *tape) error { return j.Snapshot(t.Context(), blobCore(strings.Repeat("x", 3000))) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t, small)
			var after atomic.Int64
			after.Store(math.MaxInt64)
			c, f := withFaults(t, shared.addr, func(n int64) fate {
				if n > after.Load() {
					return lost
				}
				return through
			})
			mine := newSpace(t, func(cfg *Config) { small(cfg); cfg.Client = c })
			l := lead(t, mine)
			j, core, err := recoverTape(t, mine, "j", l)
			require.NoError(t, err)
			if name == "record" {
				take(t, j, core, strings.Repeat("long", 1000))
			}
			after.Store(f.writes.Load() + 2)
			require.ErrorContains(t, write(j, core), errDead.Error())
			require.NotEmpty(t, keysOf(t, s.cfg.Client, j.dir))
			_, have, err := recoverTape(t, s, "j", nil)
			require.NoError(t, err)
			require.Empty(t, have.taken)
			depose(t, &Leader{space: s, id: l.id})
		})
	}
}

// TestWhatIsTooLongToReadIsNotWritten: a snapshot that nobody could read may not
// take the place of the log.
func TestWhatIsTooLongToReadIsNotWritten(t *testing.T) {
	var keys []string
	w := newWriter(t.Context(), "/d/", 1<<10, func(_ context.Context, key string, _ []byte) error {
		keys = append(keys, key)
		return nil
	})
	w.most = 4 << 10
	_, err := w.Write(bytes.Repeat([]byte("x"), 4<<10))
	require.NoError(t, err)
	_, err = w.Write([]byte("x"))
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = w.close()
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.NotErrorIs(t, err, ErrCorrupt)
	require.Len(t, keys, 4)
	require.EqualValues(t, maxBlob, newWriter(t.Context(), "/d/", 1<<10, nil).most)
	require.Less(t, partKey("", 999_999), partKey("", maxBlob>>10), "the parts are read in the order of their keys")
}

// TestSnapshotOfManyRequests is written and read with the defaults, by which one
// request of etcd's own would not do.
func TestSnapshotOfManyRequests(t *testing.T) {
	s := newSpace(t, nil)
	j, _, err := recoverTape(t, s, "j", lead(t, s))
	require.NoError(t, err)
	data := bytes.Repeat([]byte("0123456789abcdef"), (3<<20)/16)
	require.NoError(t, j.Snapshot(t.Context(), blobCore(data)))
	var have []byte
	require.NoError(t, j.Recover(t.Context(), func(r io.Reader) (err error) {
		have, err = io.ReadAll(r)
		return err
	}, nil))
	require.True(t, bytes.Equal(data, have))
	require.Equal(t, 3, j.head.Snapshot.Count)
}

// TestAllKindsOfInputComeBack: those that a host seldom has too, with a cluster that
// is another than it was.
func TestAllKindsOfInputComeBack(t *testing.T) {
	s := newSpace(t, nil)
	l := lead(t, s)
	cfg := workConfig()
	j, err := s.Journal("j", l)
	require.NoError(t, err)
	core, err := j.Scheduler(t.Context(), cfg)
	require.NoError(t, err)
	at := func(n int) time.Time { return epoch.Add(time.Duration(n) * time.Second) }
	plan := func(id lockstep.JobID, node lockstep.NodeID, device int) *lockstep.Plan {
		g := &lockstep.Gang{ID: id, Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 1}}}}
		return &lockstep.Plan{Job: id, Gang: g, Members: []lockstep.Member{{Node: node, Devices: 1 << device}}}
	}
	shape, err := topology.UniformShape(8, topology.NVLink(18))
	require.NoError(t, err)
	larger, err := topology.Uniform(topology.UniformConfig{Fanout: []int{3}, Shape: shape})
	require.NoError(t, err)
	for n, do := range []func(now time.Time) error{
		func(now time.Time) error { return core.Adopt(now, plan("old", "n0", 0), at(-60)) },
		func(now time.Time) error { return core.Occupy(now, plan("theirs", "n0", 1)) },
		func(now time.Time) error { return core.Occupy(now, plan("theirs-too", "n1", 2)) },
		func(now time.Time) error { return core.Vacate(now, "theirs") },
		func(now time.Time) error { _, err := core.Step(now); return err },
		func(now time.Time) error {
			return core.Apply(lockstep.Event{Kind: lockstep.EventFinish, Time: now, Job: "old"})
		},
		func(time.Time) error { return core.Forget("old") },
		func(now time.Time) error { return core.Rebase(now, larger, nil) },
		func(now time.Time) error { _, err := core.Step(now); return err },
	} {
		require.NoError(t, do(at(n)), "%d", n)
		require.NoError(t, j.Commit(t.Context(), core))
		reader, err := s.Journal("j", nil)
		require.NoError(t, err)
		have, err := reader.Scheduler(t.Context(), cfg)
		require.NoError(t, err, "%d", n)
		require.Equal(t, state(t, core), state(t, have), "%d", n)
		if n == 6 {
			require.NoError(t, j.Snapshot(t.Context(), core))
		}
	}
	require.NoError(t, j.Snapshot(t.Context(), core))
	cfg.Tree = larger
	have, err := j.Scheduler(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, state(t, core), state(t, have))
}

// TestAnotherConfigurationIsRefused: the inputs would be decided upon otherwise than
// they were, and what runs is by what was decided then.
func TestAnotherConfigurationIsRefused(t *testing.T) {
	s := newSpace(t, nil)
	l := lead(t, s)
	j, err := s.Journal("j", l)
	require.NoError(t, err)
	was := workConfig()
	require.NoError(t, j.Recover(t.Context(), func(io.Reader) error { return nil }, nil))
	require.NoError(t, j.put(t.Context(), j.snapshotDir()+"of-somebody-who-died", nil))
	_, err = j.Scheduler(t.Context(), was)
	require.NoError(t, err)
	require.NotNil(t, j.head.Snapshot)
	larger := workConfig()
	shape, err := topology.UniformShape(8, topology.NVLink(18))
	require.NoError(t, err)
	larger.Tree, err = topology.Uniform(topology.UniformConfig{Fanout: []int{3}, Shape: shape})
	require.NoError(t, err)
	_, err = j.Scheduler(t.Context(), larger)
	require.ErrorIs(t, err, lockstep.ErrConflict, "another cluster, before the first input")
	core, err := j.Scheduler(t.Context(), was)
	require.NoError(t, err)
	for n := uint64(1); n <= 9; n++ {
		_, err := input(core, n)
		require.NoError(t, err)
	}
	require.NoError(t, j.Flush(t.Context()))

	other := workConfig()
	other.StartAtOnce, other.MaxAttempts = false, 1
	reader, err := s.Journal("j", nil)
	require.NoError(t, err)
	for _, cfg := range []scheduler.Config{other, larger} {
		_, err = reader.Scheduler(t.Context(), cfg)
		require.ErrorIs(t, err, lockstep.ErrConflict)
		require.NotErrorIs(t, err, ErrCorrupt)
	}
	have, err := j.Scheduler(t.Context(), was)
	require.NoError(t, err)
	require.Equal(t, state(t, core), state(t, have))
	require.NoError(t, j.Snapshot(t.Context(), have))
	core, err = j.Scheduler(t.Context(), other)
	require.NoError(t, err, "there is nothing that it would decide upon otherwise")
	for n := uint64(10); n <= 11; n++ {
		_, err := input(core, n)
		require.NoError(t, err)
	}
	require.NoError(t, j.Flush(t.Context()))
	_, err = reader.Scheduler(t.Context(), was)
	require.ErrorIs(t, err, lockstep.ErrConflict)
	have, err = reader.Scheduler(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, state(t, core), state(t, have))
}

// TestRecoveryGoesOnTrying has etcd fail in the middle of it.
func TestRecoveryGoesOnTrying(t *testing.T) {
	s := newSpace(t, small)
	j, core, err := recoverTape(t, s, "j", lead(t, s))
	require.NoError(t, err)
	take(t, j, core, strings.Repeat("long", 3000))
	require.NoError(t, j.Snapshot(t.Context(), core))
	take(t, j, core, "a", "b")
	require.NoError(t, j.Flush(t.Context()))
	c := newClient(t, shared.addr)
	f := &failing{KV: c.KV, at: map[int]bool{1: true, 3: true, 5: true, 9: true}}
	c.KV = f
	rs := newSpace(t, func(cfg *Config) { small(cfg); cfg.Client, cfg.TTL = c, time.Second })
	_, have, err := recoverTape(t, rs, "j", nil)
	require.NoError(t, err)
	require.Equal(t, core.taken, have.taken)
	require.Greater(t, f.n, 9)

	f.n = 100
	rj, err := rs.Journal("j", nil)
	require.NoError(t, err)
	err = rj.Recover(t.Context(), func(io.Reader) error { return rpctypes.ErrCompacted }, nil)
	require.ErrorIs(t, err, rpctypes.ErrCompacted, "it is the host's own")
}

// failing is a KV of which some reads fail.
type failing struct {
	clientv3.KV
	n  int
	at map[int]bool
}

func (f *failing) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if f.n++; f.at[f.n] {
		return nil, errGone
	}
	return f.KV.Get(ctx, key, opts...)
}
