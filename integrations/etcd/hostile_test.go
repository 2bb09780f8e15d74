package etcd

import (
	"context"
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/lease"
)

// TestWatchOfAnOldValueIsQuiet watches a value that was last written before all that
// etcd has not compacted: where etcd compacts by itself, that is most values.
func TestWatchOfAnOldValueIsQuiet(t *testing.T) {
	noLeaks(t)
	srv := newServer(t) // compaction is for a whole etcd
	c := newClient(t, srv.addr)
	w := &compacting{Watcher: c.Watcher}
	c.Watcher = w
	s := newSpace(t, func(cfg *Config) { cfg.Client = c })
	st := s.Store(nil)
	rev, err := st.Swap(t.Context(), "k", 0, []byte("old"))
	require.NoError(t, err)
	var last lease.Revision
	for range 10 {
		last, err = st.Swap(t.Context(), "other", last, nil)
		require.NoError(t, err)
	}
	_, err = c.Compact(t.Context(), int64(last))
	require.NoError(t, err)

	see, end := watch(t, st, "k")
	require.Equal(t, seen{"old", rev}, <-see)
	rev, err = st.Swap(t.Context(), "k", rev, []byte("new"))
	require.NoError(t, err)
	require.Equal(t, seen{"new", rev}, <-see)
	require.NoError(t, end())
	require.Zero(t, w.hits.Load(), "watches of what is compacted, each of which is tried again at once")
}

// expiring is a Lease of which the first grants are over before anybody has used
// them, as those of a process that was stopped in between.
type expiring struct {
	clientv3.Lease
	left atomic.Int64
}

func (e *expiring) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	g, err := e.Lease.Grant(ctx, ttl)
	if err == nil && e.left.Add(-1) >= 0 {
		_, err = e.Revoke(ctx, g.ID)
	}
	return g, err
}

func TestCandidateOutlivesItsOwnLease(t *testing.T) {
	noLeaks(t)
	c := newClient(t, sharedAddr(t))
	e := &expiring{Lease: c.Lease}
	e.left.Store(3)
	c.Lease = e
	s := newSpace(t, func(cfg *Config) { cfg.Client, cfg.TTL = c, time.Second })
	require.NoError(t, lead(t, s).Check())
	require.EqualValues(t, -1, e.left.Load())
}

// TestRunResignsWhenLeadPanics: a host that goes on after a panic may not keep
// everybody from leading.
func TestRunResignsWhenLeadPanics(t *testing.T) {
	noLeaks(t)
	s := newSpace(t, nil)
	require.PanicsWithValue(t, "lead", func() {
		_ = s.Run(t.Context(), func(context.Context, *Leader) error { panic("lead") })
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // below the TTL
	defer cancel()
	l, err := s.Campaign(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Resign(t.Context()))
}

// TestNoSpaceMayHaveBeenWritten: the request with which etcd finds that its space is
// used up is carried out, and answered with an error all the same.
func TestNoSpaceMayHaveBeenWritten(t *testing.T) {
	newSpace(t, nil)
	var full atomic.Bool
	c, _ := withFaults(t, shared.addr, func(int64) fate {
		if full.Load() {
			return exhausted
		}
		return through
	})
	s := newSpace(t, func(cfg *Config) { cfg.Client = c })
	l := lead(t, s)
	j, core, err := recoverTape(t, s, "j", l)
	require.NoError(t, err)
	full.Store(true)
	rev, err := s.Store(l).Swap(t.Context(), "k", 0, []byte("data"))
	require.NoError(t, err)
	data, have, err := s.Store(nil).Load(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "data", string(data))
	require.Equal(t, rev, have)

	take(t, j, core, "a")
	require.ErrorIs(t, j.Flush(t.Context()), rpctypes.ErrNoSpace)
	full.Store(false)
	take(t, j, core, "b")
	require.NoError(t, j.Flush(t.Context()))
	_, got, err := recoverTape(t, s, "j", nil)
	require.NoError(t, err)
	require.Equal(t, core.taken, got.taken, "neither lost nor there twice")
}

// TestDoneComesWithTheDeadline has etcd answer nothing: whoever acts by Done or by
// the context of Run has to be told before the lease could be another's.
func TestDoneComesWithTheDeadline(t *testing.T) {
	noLeaks(t)
	p := newProxy(t, sharedAddr(t))
	s := newSpace(t, func(cfg *Config) {
		cfg.Client, cfg.TTL, cfg.Timeout = newClient(t, p.addr()), 3*time.Second, time.Second
	})
	l, err := s.Campaign(t.Context())
	require.NoError(t, err)
	p.hold()
	<-l.Done()
	late := time.Since(l.Deadline())
	p.release()
	require.GreaterOrEqual(t, late, time.Duration(0))
	require.Less(t, late, s.cfg.Margin)
	require.NoError(t, l.Resign(t.Context()))
}

// TestRefusalsThatLastAreReturned: what etcd will say again is not tried again.
func TestRefusalsThatLastAreReturned(t *testing.T) {
	s := newSpace(t, nil)
	for _, err := range []error{
		rpctypes.ErrCorrupt, rpctypes.ErrNoSpace, rpctypes.ErrPermissionDenied, rpctypes.ErrRequestTooLarge,
		fmt.Errorf("wrapped: %w", rpctypes.ErrCorrupt),
	} {
		require.False(t, s.transient(err), "%v", err)
	}
	for _, err := range []error{rpctypes.ErrNoLeader, rpctypes.ErrTimeout, rpctypes.ErrLeaderChanged, rpctypes.ErrTooManyRequests, errGone, context.DeadlineExceeded} {
		require.True(t, s.transient(err), "%v", err)
	}
}

// TestSilenceIsLogged: who waits for an etcd that does not answer says so, once.
func TestSilenceIsLogged(t *testing.T) {
	newSpace(t, nil)
	core, logs := observer.New(zap.InfoLevel)
	fates := []fate{undecided, undecided, undecided}
	c, _ := withFaults(t, shared.addr, func(n int64) fate {
		if n <= int64(len(fates)) || n >= 6 && n <= 8 {
			return undecided
		}
		return through
	})
	s := newSpace(t, func(cfg *Config) { cfg.Client, cfg.Logger, cfg.TTL = c, zap.New(core), time.Second })
	l := lead(t, s) // writes 1 to 5
	require.Equal(t, 1, logs.FilterMessage("etcd does not answer").FilterField(zap.String("op", "campaign")).Len())
	j, tp, err := recoverTape(t, s, "j", l)
	require.NoError(t, err)
	take(t, j, tp, "a")
	require.NoError(t, j.Flush(t.Context())) // writes 6 to 9
	require.Equal(t, 1, logs.FilterMessage("etcd does not answer").FilterField(zap.String("op", "flush")).Len())
}

func TestFloorLeavesRoomForAToken(t *testing.T) {
	c := newClient(t, sharedAddr(t))
	require.ErrorIs(t, Config{Client: c, Floor: math.MaxUint64}.Validate(), lockstep.ErrInvalid)
	require.NoError(t, Config{Client: c, Floor: math.MaxUint64 - 1}.Validate())
}

// TestLeadersOfOtherSpacesAreRefused: their guard holds while somebody else leads here.
func TestLeadersOfOtherSpacesAreRefused(t *testing.T) {
	s := newSpace(t, nil)
	other := newSpace(t, func(cfg *Config) { cfg.Prefix += "/other" })
	l := lead(t, other)
	_, err := s.Journal("j", l)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	_, err = s.Store(l).Swap(t.Context(), "k", 0, nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	again := newSpace(t, func(cfg *Config) { cfg.Prefix = other.cfg.Prefix })
	_, err = again.Journal("j", l)
	require.NoError(t, err, "another value for the same space")
}

// TestResignDuringFlush has one goroutine flush and another resign. Whatever Flush
// acknowledged is there, and then no more.
func TestResignDuringFlush(t *testing.T) {
	noLeaks(t)
	s := newSpace(t, small)
	for range 5 {
		l := lead(t, s)
		j, core, err := recoverTape(t, s, "j", l)
		require.NoError(t, err)
		ended := make(chan error, 1)
		started := make(chan struct{})
		go func() {
			for n := 0; ; n++ {
				if n == 3 {
					close(started)
				}
				core.taken = append(core.taken, "x")
				if err := j.Add(Record{Seq: core.Seq(), Data: []byte("x")}); err != nil {
					ended <- err
					return
				}
				if err := j.Flush(t.Context()); err != nil {
					ended <- err
					return
				}
			}
		}()
		<-started
		require.NoError(t, l.Resign(t.Context()))
		require.ErrorIs(t, <-ended, ErrDeposed)
		acknowledged := j.Seq()
		_, have, err := recoverTape(t, s, "j", nil)
		require.NoError(t, err)
		require.GreaterOrEqual(t, have.Seq(), acknowledged)
		require.LessOrEqual(t, have.Seq(), acknowledged+1)
	}
}

// TestOverwrittenLeaderHoldsAllOff: what a person wrote has no lease, and stays.
func TestOverwrittenLeaderHoldsAllOff(t *testing.T) {
	s := newSpace(t, nil)
	l := lead(t, s)
	_, err := s.cfg.Client.Put(t.Context(), s.leaderKey(), "maintenance")
	require.NoError(t, err)
	_, err = l.Commit(t.Context(), nil, clientv3.OpPut(s.cfg.Prefix+"act", "x"))
	require.ErrorIs(t, err, ErrDeposed)
	require.NoError(t, l.Resign(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = s.Campaign(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.cfg.Client.Delete(t.Context(), s.leaderKey())
	require.NoError(t, err)
	require.Greater(t, lead(t, s).Token(), l.Token())
}
