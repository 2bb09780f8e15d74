package etcd

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/lockstep-gpu/lockstep/lease"
)

// eager returns a client that does not wait long before it connects again.
func eager(t testing.TB, addr string) *clientv3.Client {
	quick := backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.2, MaxDelay: 100 * time.Millisecond}
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + addr}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: quick, MinConnectTimeout: time.Second})},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestEtcdRestartedUnderLoad stops etcd hard and starts it again on its data, three
// times, while a leader appends to a journal, two count up a number in a store, and
// one watches. Nothing that was acknowledged is lost, nothing is there twice, and
// everybody goes on.
func TestEtcdRestartedUnderLoad(t *testing.T) {
	noLeaks(t)
	srv := newServer(t)
	line := newProxy(t, srv.addr)
	space := func() *Space {
		return newSpace(t, func(c *Config) { small(c); c.Client = eager(t, line.addr()); c.Every = 40; c.Timeout = time.Second })
	}
	s := space()
	l := lead(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var appended, added, unsure, watched atomic.Int64
	var wg sync.WaitGroup

	j, core, err := recoverTape(t, s, "j", l)
	require.NoError(t, err)
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			in := fmt.Sprint("record ", i)
			core.taken = append(core.taken, in)
			if err := j.Add(Record{Seq: core.Seq(), Data: []byte(in)}); err != nil {
				t.Error(err)
				return
			}
			if err := j.Commit(ctx, core); err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			appended.Store(int64(core.Seq()))
		}
	})
	for range 2 {
		st := space().Store(nil)
		wg.Go(func() {
			for ctx.Err() == nil {
				data, rev, err := st.Load(ctx, "n")
				if err != nil {
					continue // etcd is away
				}
				n, _ := strconv.Atoi(string(data))
				_, err = st.Swap(ctx, "n", rev, []byte(strconv.Itoa(n+1)))
				switch {
				case err == nil:
					added.Add(1)
				case !isFault(err): // nobody can know whether it was added
					unsure.Add(1)
				}
			}
		})
	}
	see := space().Store(nil)
	wg.Go(func() {
		err := see.Watch(ctx, "n", func(data []byte, _ lease.Revision) error {
			n, _ := strconv.ParseInt(string(data), 10, 64)
			if n < watched.Load() {
				return fmt.Errorf("%d after %d", n, watched.Load())
			}
			watched.Store(n)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})

	progress := func() { // everybody gets somewhere
		a, b, c := appended.Load(), added.Load(), watched.Load()
		for appended.Load() < a+20 || added.Load() < b+20 || watched.Load() < c+10 {
			require.NoError(t, wait(t.Context(), 5*time.Millisecond))
			require.False(t, t.Failed())
		}
	}
	for range 3 {
		progress()
		line.cut() // else etcd waits for its clients to go
		srv.stop()
		require.NoError(t, srv.open())
		line.mend()
	}
	progress()
	cancel()
	wg.Wait()
	require.NoError(t, l.Check(), "its lease outlived the restarts")

	_, have, err := recoverTape(t, s, "j", nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, int64(have.Seq()), appended.Load())
	for i, in := range have.taken {
		require.Equal(t, fmt.Sprint("record ", i), in)
	}
	data, _, err := see.Load(t.Context(), "n")
	require.NoError(t, err)
	n, err := strconv.ParseInt(string(data), 10, 64)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, added.Load(), "every count that was acknowledged")
	require.LessOrEqual(t, n, added.Load()+unsure.Load(), "and no other")
	t.Logf("%d records, %d counts, %d that nobody can know of", have.Seq(), n, unsure.Load())
}

// TestRestartWithinAReign has the leader's lease end because etcd is away for
// longer than it lasts: the leader stops by itself, and a new reign takes up
// where the log ends.
func TestRestartWithinAReign(t *testing.T) {
	noLeaks(t)
	srv := newServer(t)
	line := newProxy(t, srv.addr)
	s := newSpace(t, func(c *Config) { c.Client = eager(t, line.addr()); c.TTL = time.Second; c.Timeout = time.Second })
	var l *Leader
	var j *Journal
	var core *tape
	for done := false; !done; { // on a slow machine the lease may end before that
		l = lead(t, s)
		var err error
		j, core, err = recoverTape(t, s, "j", l)
		require.NoError(t, err)
		if core.Seq() == 0 {
			take(t, j, core, "one")
		}
		if done = j.Flush(t.Context()) == nil; !done {
			require.NoError(t, l.Resign(t.Context()))
		}
	}
	line.cut()
	srv.stop()
	take(t, j, core, "two")
	require.ErrorIs(t, j.Flush(t.Context()), ErrDeposed, "by its own clock: there is nobody to ask")
	require.NoError(t, srv.open())
	line.mend()
	require.NoError(t, l.Resign(t.Context()))
	heir := lead(t, s)
	require.Greater(t, heir.Token(), l.Token())
	_, have, err := recoverTape(t, s, "j", heir)
	require.NoError(t, err)
	require.Equal(t, []string{"one"}, have.taken)
}

// TestNobodyAnswers has an etcd that takes connections and says nothing: every
// call ends with its context.
func TestNobodyAnswers(t *testing.T) {
	noLeaks(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	closed, err := freeAddr()
	require.NoError(t, err)
	for name, addr := range map[string]string{"silent": silent.Addr().String(), "closed": closed} { // in any order
		t.Run(name, func(t *testing.T) {
			s := newSpace(t, func(c *Config) { c.Client = newClient(t, addr); c.Timeout = 20 * time.Millisecond })
			st := s.Store(nil)
			j, err := s.Journal("j", nil)
			require.NoError(t, err)
			within := func(call func(ctx context.Context) error) error {
				ctx, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
				defer cancel()
				return call(ctx)
			}
			require.ErrorIs(t, within(func(ctx context.Context) error { _, err := s.Campaign(ctx); return err }), context.DeadlineExceeded)
			require.NoError(t, within(func(ctx context.Context) error {
				return s.Run(ctx, func(context.Context, *Leader) error { panic("nobody leads") })
			}))
			require.NoError(t, within(func(ctx context.Context) error {
				return st.Watch(ctx, "k", func([]byte, lease.Revision) error { panic("nothing to see") })
			}))
			for _, call := range []func(ctx context.Context) error{
				func(ctx context.Context) error { _, err := s.Token(ctx); return err },
				func(ctx context.Context) error { _, _, err := st.Load(ctx, "k"); return err },
				func(ctx context.Context) error { _, err := st.Swap(ctx, "k", 0, nil); return err },
				func(ctx context.Context) error { return j.Recover(ctx, nil, nil) },
			} {
				err := within(call)
				require.Error(t, err)
				require.False(t, isFault(err), "it is not this package's word: %v", err)
			}
		})
	}
}
