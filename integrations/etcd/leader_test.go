package etcd

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/lease"
)

func TestTokensGrowFromReignToReign(t *testing.T) {
	noLeaks(t)
	s := newSpace(t, nil)
	var last lease.Token
	for i := range 5 {
		l := lead(t, s)
		require.Greater(t, l.Token(), last)
		last = l.Token()
		have, err := s.Token(t.Context())
		require.NoError(t, err)
		require.Equal(t, last, have)
		require.NoError(t, l.Check())
		if i%2 == 0 {
			require.NoError(t, l.Resign(t.Context()))
			require.NoError(t, l.Resign(t.Context()), "again")
		} else {
			depose(t, l)
		}
		_, err = l.Commit(t.Context(), nil, clientv3.OpPut(s.cfg.Prefix+"x", "1"))
		require.ErrorIs(t, err, ErrDeposed)
		require.ErrorIs(t, l.Check(), ErrDeposed, "it knows")
		<-l.Done()
	}
	require.NotContains(t, keysOf(t, s.cfg.Client, s.cfg.Prefix), "x")
}

// TestTokensGrowAcrossABackup has an etcd whose revisions are lower than tokens
// that were issued, as after a restore.
func TestTokensGrowAcrossABackup(t *testing.T) {
	s := newSpace(t, nil)
	const ahead = lease.Token(1) << 60
	_, err := s.cfg.Client.Put(t.Context(), s.fenceKey(), tokenText(ahead))
	require.NoError(t, err)
	l := lead(t, s)
	require.Equal(t, ahead+1, l.Token())
	require.NoError(t, l.Resign(t.Context()))

	s.cfg.Floor = ahead + 100 // what a guard has seen, and the backup has not
	l = lead(t, s)
	require.Equal(t, ahead+101, l.Token())
	_, err = l.Commit(t.Context(), nil, clientv3.OpPut(s.cfg.Prefix+"x", "1"))
	require.NoError(t, err)
	require.NoError(t, l.Resign(t.Context()))

	remove(t, l, s.fenceKey()) // by hand: the revision is what is left
	s.cfg.Floor = 0
	before := lease.Token(l.rev)
	l = lead(t, s)
	require.Greater(t, l.Token(), before)
	require.NoError(t, l.Resign(t.Context()))

	for _, bad := range []string{"", "7", "x", tokenText(1<<64 - 1)} {
		_, err := s.cfg.Client.Put(t.Context(), s.fenceKey(), bad)
		require.NoError(t, err)
		_, err = s.Campaign(t.Context())
		require.ErrorIs(t, err, ErrCorrupt, "%q", bad)
	}
	require.NotContains(t, keysOf(t, s.cfg.Client, s.cfg.Prefix), "leader", "who failed does not stay")
}

func TestCheckGoesByItsOwnClock(t *testing.T) {
	s := newSpace(t, nil)
	var late atomic.Int64
	s.now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) }
	l := lead(t, s)
	require.NoError(t, l.Check())
	late.Store(int64(s.cfg.TTL - s.cfg.Margin))
	_, err := l.Commit(t.Context(), nil, clientv3.OpPut(s.cfg.Prefix+"x", "1"))
	require.ErrorIs(t, err, ErrDeposed, "though its lease has not ended in etcd")
	late.Store(0)
	require.ErrorIs(t, l.Check(), ErrDeposed, "nothing brings it back")
	require.Equal(t, []string{"fence", "leader"}, keysOf(t, s.cfg.Client, s.cfg.Prefix))
}

// TestGuardRefusesWhoeverIsNotTheLeader takes away each of what the guard compares.
func TestGuardRefusesWhoeverIsNotTheLeader(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, l *Leader){ // the order does not matter
		"lease over":      func(t *testing.T, l *Leader) { depose(t, l) },
		"key written":     func(t *testing.T, l *Leader) { put(t, l, l.space.leaderKey(), l.space.cfg.Name) },
		"token raised":    func(t *testing.T, l *Leader) { put(t, l, l.space.fenceKey(), tokenText(l.token+1)) },
		"token removed":   func(t *testing.T, l *Leader) { remove(t, l, l.space.fenceKey()) },
		"key made anew":   func(t *testing.T, l *Leader) { remove(t, l, l.space.leaderKey()); put(t, l, l.space.leaderKey(), "x") },
		"all keys remade": func(t *testing.T, l *Leader) { depose(t, l); lead(t, l.space) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSpace(t, nil)
			l := lead(t, s)
			_, err := l.Commit(t.Context(), nil, clientv3.OpPut(s.cfg.Prefix+"x", "1"))
			require.NoError(t, err)
			take(t, l)
			require.NoError(t, l.Check(), "it cannot know yet")
			// A host's own transaction with the guard, first.
			resp, err := s.cfg.Client.Txn(t.Context()).If(l.Guard()...).Then(clientv3.OpPut(s.cfg.Prefix+"x", "2")).Commit()
			require.NoError(t, err)
			require.False(t, resp.Succeeded)
			_, err = l.Commit(t.Context(), nil, clientv3.OpPut(s.cfg.Prefix+"x", "2"))
			require.ErrorIs(t, err, ErrDeposed)
			<-l.Done()
		})
	}
}

func put(t *testing.T, l *Leader, key, value string) {
	_, err := l.space.cfg.Client.Put(t.Context(), key, value)
	require.NoError(t, err)
}

func remove(t *testing.T, l *Leader, key string) {
	_, err := l.space.cfg.Client.Delete(t.Context(), key)
	require.NoError(t, err)
}

func TestCommitTellsTheHostsCompareFromTheGuard(t *testing.T) {
	s := newSpace(t, nil)
	l := lead(t, s)
	absent := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.cfg.Prefix+"x"), "=", 0)}
	resp, err := l.Commit(t.Context(), absent, clientv3.OpPut(s.cfg.Prefix+"x", "1"))
	require.NoError(t, err)
	require.True(t, resp.Succeeded)
	resp, err = l.Commit(t.Context(), absent, clientv3.OpPut(s.cfg.Prefix+"x", "2"))
	require.NoError(t, err)
	require.False(t, resp.Succeeded)
	require.NoError(t, l.Check())
}

// TestLeaseEndsByItself has a leader whose renewals go nowhere.
func TestLeaseEndsByItself(t *testing.T) {
	noLeaks(t)
	p := newProxy(t, sharedAddr(t))
	s := newSpace(t, func(c *Config) { c.Client = newClient(t, p.addr()); c.TTL = time.Second })
	other := newSpace(t, nil)
	l := lead(t, s)
	for before := l.Deadline(); !l.Deadline().After(before); { // it is renewed
		require.NoError(t, wait(t.Context(), 10*time.Millisecond))
		if l.Check() != nil { // the machine is too slow for that; again
			require.NoError(t, l.Resign(t.Context()))
			l = lead(t, s)
			before = l.Deadline()
		}
	}
	p.hold()
	// A write is under way when the line goes dead.
	sent := make(chan error, 1)
	go func() {
		_, err := l.Commit(context.Background(), nil, clientv3.OpPut(s.cfg.Prefix+"/x", "late"))
		sent <- err
	}()
	<-l.Done()
	require.ErrorIs(t, l.Check(), ErrDeposed)
	heir := lead(t, other)
	require.Greater(t, heir.Token(), l.Token())
	p.release() // and it arrives now
	require.Error(t, <-sent)
	require.NoError(t, l.Resign(t.Context()))
	require.NotContains(t, keysOf(t, other.cfg.Client, s.cfg.Prefix), "/x")
	require.NoError(t, heir.Check())
}

func TestCampaignWaitsAndGivesUp(t *testing.T) {
	noLeaks(t)
	s := newSpace(t, nil)
	l := lead(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := s.Campaign(ctx)
		result <- err
	}()
	won := make(chan *Leader)
	go func() {
		l, err := s.Campaign(t.Context())
		if err != nil {
			t.Error(err)
		}
		won <- l
	}()
	cancel()
	require.ErrorIs(t, <-result, context.Canceled)
	require.NoError(t, l.Resign(t.Context()))
	heir := <-won
	require.Greater(t, heir.Token(), l.Token())
	require.NoError(t, heir.Resign(t.Context()))
}

// TestRunTakesOverAndOver has three drivers whose leases are ended again and again.
func TestRunTakesOverAndOver(t *testing.T) {
	noLeaks(t)
	s := newSpace(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	reigns := make(chan *Leader)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			err := s.Run(ctx, func(ctx context.Context, l *Leader) error {
				reigns <- l
				<-ctx.Done()
				return ctx.Err()
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	var last lease.Token
	for range 6 {
		l := <-reigns
		require.Greater(t, l.Token(), last)
		last = l.Token()
		depose(t, l)
		_, err := l.Commit(t.Context(), nil) // or whenever it is renewed next
		require.ErrorIs(t, err, ErrDeposed)
	}
	<-reigns
	cancel()
	wg.Wait()
	require.NotContains(t, keysOf(t, s.cfg.Client, s.cfg.Prefix), "leader", "the last one resigned")
}

func TestRunReturnsWhatLeadReturns(t *testing.T) {
	noLeaks(t)
	s := newSpace(t, nil)
	fault := errors.New("broken")
	require.ErrorIs(t, s.Run(t.Context(), func(context.Context, *Leader) error { return fault }), fault)
	require.NoError(t, s.Run(t.Context(), func(context.Context, *Leader) error { return nil }))
	reigns := 0
	err := s.Run(t.Context(), func(ctx context.Context, l *Leader) error {
		if reigns++; reigns == 3 {
			return fault
		}
		depose(t, l)
		_, err := l.Commit(ctx, nil)
		return err
	})
	require.ErrorIs(t, err, fault)
	require.Equal(t, 3, reigns, "deposed twice")
}

// TestTwoControllersDoNotActAgainstEachOther has one that wants 0 replicas and one
// that wants 1, as in kubeai-project/kubeai#67: without a fence the number never
// comes to rest.
func TestTwoControllersDoNotActAgainstEachOther(t *testing.T) {
	noLeaks(t)
	s := newSpace(t, nil)
	key := s.cfg.Prefix + "replicas"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	leaders := make(chan *Leader, 16)
	var writes [2]atomic.Int64
	var wg sync.WaitGroup
	for want := range 2 {
		wg.Go(func() {
			err := s.Run(ctx, func(ctx context.Context, l *Leader) error {
				leaders <- l
				for ctx.Err() == nil {
					if _, err := l.Commit(ctx, nil, clientv3.OpPut(key, strconv.Itoa(want))); err != nil {
						return err
					}
					writes[want].Add(1)
				}
				return nil
			})
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
	const changes = 4
	for range changes {
		l := <-leaders
		start := writes[0].Load() + writes[1].Load()
		for writes[0].Load()+writes[1].Load() < start+20 {
			require.NoError(t, wait(t.Context(), time.Millisecond))
		}
		depose(t, l)
	}
	<-leaders
	cancel()
	wg.Wait()
	// The history of the key: it turns over once a reign at the most.
	resp, err := s.cfg.Client.Get(t.Context(), key)
	require.NoError(t, err)
	kv, turns := resp.Kvs[0], 0
	for n := kv.Version; n > 1; n-- {
		resp, err := s.cfg.Client.Get(t.Context(), key, clientv3.WithRev(kv.ModRevision-1))
		require.NoError(t, err)
		if string(resp.Kvs[0].Value) != string(kv.Value) {
			turns++
		}
		kv = resp.Kvs[0]
	}
	require.LessOrEqual(t, turns, changes)
}

func TestConfigReportsEveryFault(t *testing.T) {
	_, err := New(Config{Prefix: "a\x00b", TTL: time.Millisecond, Margin: -1, Timeout: -1, Chunk: 5})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, field := range []string{"Client", "Prefix", "TTL", "Margin", "Timeout", "Chunk"} {
		require.ErrorContains(t, err, field)
	}
	c := newClient(t, sharedAddr(t))
	for _, cfg := range []Config{
		{TTL: -time.Second},
		{TTL: 25 * time.Hour},
		{TTL: 2 * time.Second, Margin: time.Second},
		{Chunk: 1 << 30},
	} {
		cfg.Client = c
		require.ErrorIs(t, cfg.Validate(), lockstep.ErrInvalid, "%+v", cfg)
	}
	s, err := New(Config{Client: c})
	require.NoError(t, err)
	require.Equal(t, DefaultPrefix, s.cfg.Prefix)
	require.Equal(t, 2*time.Second, s.cfg.Margin)
	require.NotEmpty(t, s.cfg.Name)
	_, err = s.Journal("", nil)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}
