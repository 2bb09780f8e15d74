package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-gpu/lockstep/lease"
)

// seen is what a watcher was told.
type seen struct {
	data string
	rev  lease.Revision
}

// watch starts a watcher and returns what it sees and how it ends.
func watch(t *testing.T, st *Store, key string) (<-chan seen, func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	out, ended := make(chan seen), make(chan error, 1)
	go func() {
		ended <- st.Watch(ctx, key, func(data []byte, rev lease.Revision) error {
			select {
			case out <- seen{string(data), rev}:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	return out, func() error { cancel(); return <-ended }
}

func TestWatchSeesWhatIsStored(t *testing.T) {
	noLeaks(t)
	s := newSpace(t, small)
	st := s.Store(lead(t, s))
	see, end := watch(t, st, "k")
	require.Equal(t, seen{}, <-see, "absent at first")
	var rev lease.Revision
	var err error
	for i, data := range []string{"one", strings.Repeat("parts", 1000), "", "four"} {
		rev, err = st.Swap(t.Context(), "k", rev, []byte(data))
		require.NoError(t, err)
		_, err = st.Swap(t.Context(), fmt.Sprint("k", i), 0, []byte("another key"))
		require.NoError(t, err)
		require.Equal(t, seen{data, rev}, <-see)
	}
	_, err = s.cfg.Client.Delete(t.Context(), st.key("k"))
	require.NoError(t, err)
	require.Equal(t, seen{}, <-see)
	require.NoError(t, end())
}

func TestWatchReturnsWhatItIsTold(t *testing.T) {
	noLeaks(t)
	s := newSpace(t, nil)
	enough := errors.New("enough")
	require.ErrorIs(t, s.Store(nil).Watch(t.Context(), "k", func([]byte, lease.Revision) error { return enough }), enough)
	_, err := s.cfg.Client.Put(t.Context(), s.Store(nil).key("k"), "damaged")
	require.NoError(t, err)
	require.ErrorIs(t, s.Store(nil).Watch(t.Context(), "k", func([]byte, lease.Revision) error { return nil }), ErrCorrupt)
}

// compacting is a Watcher that, before a watch begins, has the key written and the
// history compacted, so that the watch asks for what is no more.
type compacting struct {
	clientv3.Watcher
	before func()
	hits   atomic.Int64
}

func (c *compacting) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	if c.before != nil {
		c.before()
	}
	in := c.Watcher.Watch(ctx, key, opts...)
	out := make(chan clientv3.WatchResponse)
	go func() {
		defer close(out)
		for r := range in {
			if compacted(r.Err()) {
				c.hits.Add(1)
			}
			select {
			case out <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func TestWatchSurvivesCompaction(t *testing.T) {
	noLeaks(t)
	srv := newServer(t) // compaction is for a whole etcd
	c := newClient(t, srv.addr)
	w := &compacting{Watcher: c.Watcher}
	c.Watcher = w
	s := newSpace(t, func(cfg *Config) { small(cfg); cfg.Client = c })
	other := newSpace(t, func(cfg *Config) { small(cfg); cfg.Client = newClient(t, srv.addr) })
	st := other.Store(nil)
	rev, err := st.Swap(t.Context(), "k", 0, []byte("0"))
	require.NoError(t, err)
	var writes atomic.Int64
	write := func() { // in parts, so that the old ones are gone with the history
		n := writes.Add(1)
		for range 2 {
			next, err := st.Swap(context.Background(), "k", rev, []byte(fmt.Sprint(n, strings.Repeat("-", 3000))))
			if err != nil {
				t.Error(err)
			}
			rev = next
		}
		if _, err := other.cfg.Client.Compact(context.Background(), int64(rev)); err != nil {
			t.Error(err)
		}
	}
	w.before = func() {
		if writes.Load() < 5 {
			write()
		}
	}
	see, end := watch(t, s.Store(nil), "k")
	require.Equal(t, "0", (<-see).data)
	for n := 1; n <= 5; n++ {
		got := <-see
		require.True(t, strings.HasPrefix(got.data, fmt.Sprint(n, "-")), "%d: %.9s", n, got.data)
	}
	require.NoError(t, end())
	require.EqualValues(t, 5, w.hits.Load(), "each of these watches was told that its past is compacted")
}

// TestCandidateSurvivesCompaction has the leader's key go while nobody looks, and
// the history with it.
func TestCandidateSurvivesCompaction(t *testing.T) {
	noLeaks(t)
	srv := newServer(t)
	c := newClient(t, srv.addr)
	w := &compacting{Watcher: c.Watcher}
	c.Watcher = w
	s := newSpace(t, func(cfg *Config) { cfg.Client = c })
	other := newSpace(t, func(cfg *Config) { cfg.Client = newClient(t, srv.addr) })
	l := lead(t, other)
	w.before = func() {
		if err := l.Resign(context.Background()); err != nil {
			t.Error(err)
		}
		resp, err := other.cfg.Client.Put(context.Background(), "/x", "1")
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := other.cfg.Client.Compact(context.Background(), resp.Header.Revision); err != nil {
			t.Error(err)
		}
	}
	heir := lead(t, s)
	require.Greater(t, heir.Token(), l.Token())
	require.EqualValues(t, 1, w.hits.Load())
}

// TestRecoverySurvivesCompaction compacts the history between two pages of it.
func TestRecoverySurvivesCompaction(t *testing.T) {
	srv := newServer(t)
	c := newClient(t, srv.addr)
	s := newSpace(t, func(cfg *Config) { small(cfg); cfg.Client = c })
	j, core, err := recoverTape(t, s, "j", lead(t, s))
	require.NoError(t, err)
	for i := range 3 * page {
		take(t, j, core, fmt.Sprint("r", i))
		require.NoError(t, j.Flush(t.Context()))
		if i == page {
			take(t, j, core, strings.Repeat("long", 3000))
			require.NoError(t, j.Snapshot(t.Context(), core))
		}
	}
	reader := newClient(t, srv.addr)
	kv := &meddling{KV: reader.KV}
	reader.KV = kv
	rs := newSpace(t, func(cfg *Config) { small(cfg); cfg.Client = reader })
	var meddled int
	kv.after = func(n int) {
		if n > 7 { // in the middle of each try there is more of everything
			return
		}
		meddled++
		take(t, j, core, fmt.Sprint("m", n))
		require.NoError(t, j.Snapshot(t.Context(), core))
		_, err := c.Compact(t.Context(), j.rev)
		require.NoError(t, err)
	}
	_, have, err := recoverTape(t, rs, "j", nil)
	require.NoError(t, err)
	require.Equal(t, 7, meddled)
	require.Equal(t, core.taken, have.taken)
}

// meddling is a KV behind whose reads something happens.
type meddling struct {
	clientv3.KV
	n     int
	after func(n int)
}

func (m *meddling) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	resp, err := m.KV.Get(ctx, key, opts...)
	m.n++
	m.after(m.n)
	return resp, err
}
