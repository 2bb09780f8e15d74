package etcd

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// TestNoSpace fills an etcd until it takes no more. What was said to be safe is, the
// leader leads on, and once there is space it goes on where it was.
func TestNoSpace(t *testing.T) {
	noLeaks(t)
	srv := &server{dir: t.TempDir(), room: 4 << 20}
	require.NoError(t, srv.start())
	t.Cleanup(srv.close)
	c := newClient(t, srv.addr)
	s := newSpace(t, func(cfg *Config) { cfg.Client, cfg.Chunk = c, 64<<10 })
	l := lead(t, s)
	j, core, err := recoverTape(t, s, "j", l)
	require.NoError(t, err)
	for err == nil {
		take(t, j, core, strings.Repeat("x", 60<<10))
		err = j.Flush(t.Context())
		require.Less(t, j.Seq(), uint64(1000))
	}
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	require.NoError(t, l.Check())
	require.NoError(t, l.renewOnce(t.Context()))
	require.ErrorIs(t, j.Snapshot(t.Context(), core), rpctypes.ErrNoSpace)
	_, have, err := recoverTape(t, s, "j", nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, uint64(len(have.taken)), j.Seq())

	// What its operator does.
	rev, err := c.Get(t.Context(), "/")
	require.NoError(t, err)
	_, err = c.Put(t.Context(), "/x", "")
	require.ErrorIs(t, err, rpctypes.ErrNoSpace)
	_, err = c.Delete(t.Context(), "/nothing")
	require.NoError(t, err)
	_, err = c.Compact(t.Context(), rev.Header.Revision, clientv3.WithCompactPhysical())
	require.NoError(t, err)
	srv.stop()
	srv.room = 64 << 20
	require.NoError(t, srv.open())
	_, err = c.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
	require.NoError(t, err)

	require.NoError(t, j.Snapshot(t.Context(), core))
	_, have, err = recoverTape(t, s, "j", nil)
	require.NoError(t, err)
	require.Equal(t, core.taken, have.taken)
}

// TestUserOfThePrefixOnly has a user who may read and write below the prefix, and
// nothing else: it is enough, until it is taken away.
func TestUserOfThePrefixOnly(t *testing.T) {
	noLeaks(t)
	srv := newServer(t)
	root := newClient(t, srv.addr)
	ctx := t.Context()
	prefix := "/" + t.Name() + "/"
	for _, err := range []error{
		second(root.RoleAdd(ctx, "root")), second(root.UserAdd(ctx, "root", "secret")), second(root.UserGrantRole(ctx, "root", "root")),
		second(root.RoleAdd(ctx, "lockstep")), second(root.UserAdd(ctx, "lockstep", "secret")), second(root.UserGrantRole(ctx, "lockstep", "lockstep")),
		second(root.RoleGrantPermission(ctx, "lockstep", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))),
		second(root.AuthEnable(ctx)),
	} {
		require.NoError(t, err)
	}
	login := func(name string) *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + srv.addr}, Username: name, Password: "secret", Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	s := newSpace(t, func(cfg *Config) { cfg.Client, cfg.Prefix = login("lockstep"), prefix; small(cfg) })
	l := lead(t, s)
	require.NoError(t, l.renewOnce(ctx))
	j, core, err := recoverTape(t, s, "j", l)
	require.NoError(t, err)
	take(t, j, core, "a", strings.Repeat("long", 1000))
	require.NoError(t, j.Snapshot(ctx, core))
	see, end := watch(t, s.Store(l), "k")
	require.Equal(t, seen{}, <-see)
	rev, err := s.Store(l).Swap(ctx, "k", 0, []byte("data"))
	require.NoError(t, err)
	require.Equal(t, seen{"data", rev}, <-see)
	require.NoError(t, end())
	require.NoError(t, l.Resign(ctx))
	l = lead(t, s)
	j, core, err = recoverTape(t, s, "j", l)
	require.NoError(t, err)

	_, err = newSpace(t, func(cfg *Config) { cfg.Client, cfg.Prefix = login("lockstep"), "/elsewhere" }).Campaign(ctx)
	require.ErrorIs(t, err, rpctypes.ErrPermissionDenied)
	admin := login("root")
	_, err = admin.RoleRevokePermission(ctx, "lockstep", prefix, clientv3.GetPrefixRangeEnd(prefix))
	require.NoError(t, err)
	take(t, j, core, "b")
	require.ErrorIs(t, j.Flush(ctx), rpctypes.ErrPermissionDenied, "at once")
	_, err = admin.RoleGrantPermission(ctx, "lockstep", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	require.NoError(t, j.Flush(ctx))
	require.NoError(t, l.Resign(context.WithoutCancel(ctx)))
}

func second[T any](_ T, err error) error { return err }
