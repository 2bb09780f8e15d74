package etcd

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/lease"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// crashInputs is how long the history is in which each write is the last.
const crashInputs = 20

// life is what a scheduler's process does from where the journal stands to the end
// of the history: everything that it writes to etcd, in order. It tells what it was
// sure of when it died.
type life struct {
	acked uint64         // inputs that are safe for certain
	given uint64         // inputs given to the scheduler
	lease lease.Revision // the last certain revision of the lease table
	acts  int            // acts that are certain
}

func (f *life) run(ctx context.Context, t testing.TB, s *Space) error {
	l, err := s.Campaign(ctx)
	if err != nil {
		return err
	}
	defer func() { // a process that dies does not resign: its renewals just end
		l.cancel()
		<-l.ended
	}()
	j, err := s.Journal("scheduler", l)
	if err != nil {
		return err
	}
	core, err := j.Scheduler(ctx, workConfig())
	if err != nil {
		return err
	}
	f.given = core.Seq()
	f.acked = core.Seq()
	for n := core.Seq() + 1; n <= crashInputs; n++ {
		a, err := input(core, n)
		require.NoError(t, err)
		f.given = n
		if n%5 != 0 {
			continue
		}
		if err := j.Commit(ctx, core); err != nil {
			return err
		}
		f.acked = n
		if n%10 != 0 {
			continue
		}
		// What was decided is done: a lease table in parts, and an act with a guard.
		if err := f.grant(ctx, s.Store(l), n); err != nil {
			return err
		}
		key := fmt.Sprintf("%sact/%04d", s.cfg.Prefix, n)
		if _, err := l.Commit(ctx, nil, clientv3.OpPut(key, l.Token().String()+" "+text(t, a))); err != nil {
			return err
		}
		f.acts++
	}
	if err := f.grant(ctx, s.Store(l), crashInputs); err != nil {
		return err
	}
	return j.Snapshot(ctx, core)
}

// grant keeps a lease table that grows beyond one request.
func (f *life) grant(ctx context.Context, st *Store, n uint64) error {
	table, rev, err := lease.Load(ctx, st, "leases")
	if isKind(err, lockstep.ErrUnknown) {
		table, err = lease.New(lease.Config{})
	}
	if err != nil {
		return err
	}
	for i := range uint64(24) {
		id := job(n*100 + i)
		if _, ok := table.Get(id); !ok {
			if _, err := table.Grant(epoch, id, lockstep.WholeGPU, 0); err != nil {
				return err
			}
		}
	}
	if f.lease, err = table.Save(ctx, st, "leases", rev); err != nil {
		return err
	}
	return nil
}

func crashConfig(c *Config) { c.Chunk, c.Every = 4<<10, 10 }

// TestProcessKilledBetweenAnyTwoWrites counts the writes of a history, and then
// lives it once for each of them: the process is dead before the write, or, for some,
// after it and before it knows. What is left must be the state after
// some number of inputs, no fewer than were certain, and whoever comes next must
// get to the same end as if nothing had happened.
func TestProcessKilledBetweenAnyTwoWrites(t *testing.T) {
	noLeaks(t)
	ref := doWork(t, crashInputs)
	var kill struct {
		at   int64
		what fate
	}
	c, f := withFaults(t, sharedAddr(t), func(n int64) fate {
		if n == kill.at {
			return kill.what
		}
		return through
	})
	clean := newClient(t, shared.addr)
	space := func(name string, c *clientv3.Client) *Space {
		return newSpace(t, func(cfg *Config) { crashConfig(cfg); cfg.Prefix += "/" + name; cfg.Client = c })
	}
	whole := &life{}
	require.NoError(t, whole.run(t.Context(), t, space("whole", c)))
	points := f.writes.Load()
	require.Greater(t, points, int64(20), "the history has many writes")
	tidy(t, space("whole", clean), "whole")

	for at := int64(1); at <= points; at++ {
		for _, what := range []fate{lost, last} {
			// Dead behind a write leaves what dead before the next one leaves, and was sure of
			// less: some of these will do.
			if what == last && at%4 != 0 && at != points {
				continue
			}
			name := fmt.Sprintf("%d-%d", at, what)
			f.writes.Store(0)
			f.dead.Store(false)
			kill.at, kill.what = at, what
			first := &life{}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err := first.run(ctx, t, space(name, c))
			cancel()
			require.ErrorContains(t, err, errDead.Error(), name)

			s := space(name, clean)
			expire(t, s)
			check(t, s, ref, first, name)
			second := &life{}
			require.NoError(t, second.run(t.Context(), t, s), name)
			tidy(t, s, name)
			expire(t, s)
			check(t, s, ref, second, name)
		}
	}
	t.Logf("%d writes, each the one that did not come", points)
}

// expire ends the lease of whoever leads, as time would.
func expire(t testing.TB, s *Space) {
	resp, err := s.cfg.Client.Get(t.Context(), s.leaderKey())
	require.NoError(t, err)
	for _, kv := range resp.Kvs {
		_, err := s.cfg.Client.Revoke(t.Context(), clientv3.LeaseID(kv.Lease))
		require.NoError(t, err)
	}
}

// check reads what a life left.
func check(t testing.TB, s *Space, ref *reference, f *life, name string) {
	j, err := s.Journal("scheduler", nil)
	require.NoError(t, err)
	core, err := j.Scheduler(t.Context(), workConfig())
	require.NoError(t, err, name)
	require.GreaterOrEqual(t, core.Seq(), f.acked, "%s: what was certain is there", name)
	require.LessOrEqual(t, core.Seq(), f.given, name)
	require.Equal(t, ref.states[core.Seq()], state(t, core), "%s: the state is that after %d inputs", name, core.Seq())
	table, rev, err := lease.Load(t.Context(), s.Store(nil), "leases")
	if !isKind(err, lockstep.ErrUnknown) {
		require.NoError(t, err, name)
		require.Zero(t, table.Len()%24, "%s: a table is saved whole", name)
	}
	require.GreaterOrEqual(t, rev, f.lease, name)
	require.GreaterOrEqual(t, len(keysOf(t, s.cfg.Client, s.cfg.Prefix+"act/")), f.acts, name)
	// Nothing is done that is not in the log.
	for _, key := range keysOf(t, s.cfg.Client, s.cfg.Prefix+"act/") {
		var n uint64
		_, err := fmt.Sscanf(key, "%d", &n)
		require.NoError(t, err)
		require.LessOrEqual(t, n, core.Seq(), name)
	}
}

// tidy says that there is nothing but what counts.
func tidy(t testing.TB, s *Space, name string) {
	j, err := s.Journal("scheduler", nil)
	require.NoError(t, err)
	_, err = j.Scheduler(t.Context(), workConfig())
	require.NoError(t, err)
	keys := func(dir string) int { return len(keysOf(t, s.cfg.Client, dir)) }
	require.Zero(t, keys(j.logDir()), name)
	require.Equal(t, j.head.Snapshot.Count, keys(j.snapshotDir()), name)
	require.Zero(t, keys(j.bulkDir()), name)
	st := s.Store(nil)
	resp, err := s.cfg.Client.Get(t.Context(), st.key("leases"))
	require.NoError(t, err)
	var v value
	_, reason := unframe(valueFormat, resp.Kvs[0].Value, &v)
	require.Empty(t, reason)
	require.Equal(t, v.Parts.Count, keys(st.parts("leases")), name)
}

var _ Core = (*scheduler.Scheduler)(nil)
