package etcd

import (
	"bytes"
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/lease"
	"github.com/lockstep-gpu/lockstep/lease/leasetest"
)

func TestStoreKeepsItsPromises(t *testing.T) {
	noLeaks(t)
	small := func(c *Config) { c.Chunk = 1 << 10 }
	t.Run("by revision", func(t *testing.T) {
		leasetest.TestStore(t, func(t *testing.T) lease.Store { return newSpace(t, nil).Store(nil) })
	})
	t.Run("by revision and token", func(t *testing.T) {
		leasetest.TestStore(t, func(t *testing.T) lease.Store {
			s := newSpace(t, nil)
			return s.Store(lead(t, s))
		})
	})
	t.Run("in parts", func(t *testing.T) {
		leasetest.TestStore(t, func(t *testing.T) lease.Store {
			s := newSpace(t, small)
			return s.Store(lead(t, s))
		})
	})
}

// keysOf returns all keys that begin with prefix, in order.
func keysOf(t testing.TB, c *clientv3.Client, prefix string) []string {
	resp, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	keys := make([]string, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		keys[i] = strings.TrimPrefix(string(kv.Key), prefix)
	}
	return keys
}

func TestSpacesDoNotMeet(t *testing.T) {
	a := newSpace(t, func(c *Config) { c.Prefix += "/a" })
	b := newSpace(t, func(c *Config) { c.Prefix += "/a/b/" })
	_, err := a.Store(nil).Swap(t.Context(), "k", 0, []byte("a"))
	require.NoError(t, err)
	data, rev, err := b.Store(nil).Load(t.Context(), "k")
	require.NoError(t, err)
	require.Zero(t, rev)
	require.Nil(t, data)
	la, lb := lead(t, a), lead(t, b)
	require.NoError(t, la.Check())
	require.NoError(t, lb.Check())
	require.Equal(t, []string{"fence", "leader"}, keysOf(t, b.cfg.Client, b.cfg.Prefix))
}

func TestDeposedLeaderSwapsNothing(t *testing.T) {
	s := newSpace(t, func(c *Config) { c.Chunk = 1 << 10 })
	first := lead(t, s)
	old := s.Store(first)
	rev, err := old.Swap(t.Context(), "k", 0, []byte("first"))
	require.NoError(t, err)

	depose(t, first)
	second := lead(t, s)
	require.Greater(t, second.Token(), first.Token())
	for _, size := range []int{1, 5000} { // in one value and in parts
		// Its revision is still the present one: only the token tells.
		_, err = s.Store(first).Swap(t.Context(), "k", rev, make([]byte, size))
		require.ErrorIs(t, err, ErrDeposed)
		require.ErrorIs(t, err, lockstep.ErrConflict, "as lease.Store has it")
		require.ErrorIs(t, err, lockstep.ErrStale)
	}
	require.Equal(t, []string{"fence", "leader", "store/k"}, keysOf(t, s.cfg.Client, s.cfg.Prefix))
	data, have, err := s.Store(second).Load(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "first", string(data))
	require.Equal(t, rev, have)
}

func TestSwapFindsOutAboutLostAnswers(t *testing.T) {
	for _, size := range []int{10, 3000} {
		var what fate
		c, _ := withFaults(t, sharedAddr(t), func(int64) fate { w := what; what = through; return w })
		s := newSpace(t, func(cfg *Config) { cfg.Client, cfg.Chunk = c, 4096; cfg.Prefix += strconv.Itoa(size) })
		st := s.Store(lead(t, s))
		what = unsaid
		rev, err := st.Swap(t.Context(), "k", 0, bytes.Repeat([]byte("x"), size))
		require.NoError(t, err, "it is there")
		_, have, err := st.Load(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, have, rev)

		what = undecided
		_, err = st.Swap(t.Context(), "k", rev, []byte("y"))
		require.ErrorIs(t, err, errGone)
		_, err = st.Swap(t.Context(), "k", rev, []byte("y"))
		require.NoError(t, err, "it was not there, so a second try has the old revision")
	}
}

func sharedAddr(t testing.TB) string {
	require.NoError(t, shared.start())
	return shared.addr
}

// TestSwapsAreNotLost has many count up one number, some of them in parts.
func TestSwapsAreNotLost(t *testing.T) {
	s := newSpace(t, func(c *Config) { c.Chunk = 1 << 10 })
	st := s.Store(lead(t, s))
	const each, workers = 8, 6
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for done := 0; done < each; {
				data, rev, err := st.Load(t.Context(), "n")
				if err != nil {
					t.Error(err)
					return
				}
				n, _ := strconv.Atoi(strings.TrimSpace(string(data)))
				next := strconv.Itoa(n+1) + strings.Repeat(" ", n%3*1000)
				switch _, err := st.Swap(t.Context(), "n", rev, []byte(next)); {
				case err == nil:
					done++
				case !isKind(err, lockstep.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	data, _, err := st.Load(t.Context(), "n")
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(each*workers), strings.TrimSpace(string(data)))
	rev, err := st.Swap(t.Context(), "other", 0, nil)
	require.NoError(t, err)
	require.NotZero(t, rev)
}

func TestDamagedValuesAreRefused(t *testing.T) {
	s := newSpace(t, func(c *Config) { c.Chunk = 1 << 10 })
	st := s.Store(nil)
	c := s.cfg.Client
	for _, size := range []int{100, 5000} {
		data := bytes.Repeat([]byte("0123456789"), size/10)
		prefix := s.cfg.Prefix + "store"
		_, rev, err := st.Load(t.Context(), "k")
		require.NoError(t, err)
		rev, err = st.Swap(t.Context(), "k", rev, data)
		require.NoError(t, err)
		keys := keysOf(t, c, prefix)
		require.Len(t, keys, 1+size/1000)
		for _, key := range keys {
			damage(t, c, prefix+key, func(what string) {
				_, have, err := st.Load(t.Context(), "k")
				if key == "/k" && what == "deleted" {
					require.NoError(t, err)
					require.Zero(t, have, "which is what it is to be absent")
					return
				}
				require.ErrorIs(t, err, ErrCorrupt, "%s %s", key, what)
				require.ErrorIs(t, err, lockstep.ErrInvalid)
			})
		}
		got, _, err := st.Load(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, data, got)
		require.NotZero(t, rev)
	}
}

// damage changes, cuts, lengthens and deletes the value of key, calls check after
// each, and puts the value back.
func damage(t *testing.T, c *clientv3.Client, key string, check func(what string)) {
	resp, err := c.Get(t.Context(), key)
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1)
	whole := resp.Kvs[0].Value
	put := func(v []byte) {
		_, err := c.Put(t.Context(), key, string(v))
		require.NoError(t, err)
	}
	for _, at := range []int{0, len(whole) / 2, len(whole) - 1} {
		v := bytes.Clone(whole)
		v[at] ^= 1
		put(v)
		check("changed at " + strconv.Itoa(at))
	}
	put(whole[:len(whole)-1])
	check("cut")
	put(nil)
	check("empty")
	put(append(bytes.Clone(whole), 'x'))
	check("longer")
	_, err = c.Delete(t.Context(), key)
	require.NoError(t, err)
	check("deleted")
	put(whole)
}

func TestSwapRefusesRevisionsThatCannotBe(t *testing.T) {
	st := newSpace(t, nil).Store(nil)
	_, err := st.Swap(t.Context(), "k", 1<<63, nil)
	require.ErrorIs(t, err, lockstep.ErrConflict)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = st.Swap(ctx, "k", 0, make([]byte, 3<<20))
	require.ErrorIs(t, err, context.Canceled)
}
