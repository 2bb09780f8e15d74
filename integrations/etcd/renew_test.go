package etcd

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// slowAnswers makes a clock leap while an answer to a renewal is on its way.
type slowAnswers struct {
	grpc.ClientStream
	arrive func()
}

func (s *slowAnswers) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.arrive()
	return err
}

// TestRenewalsCountFromBeforeTheyWereSent has answers that are seconds late: etcd
// may have begun to count then, and not when they arrive.
func TestRenewalsCountFromBeforeTheyWereSent(t *testing.T) {
	noLeaks(t)
	const late, ttl = 5 * time.Second, 20 * time.Second
	var leap, arrived atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(leap.Load())) }
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"http://" + sharedAddr(t)}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainStreamInterceptor(
			func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
				s, err := next(ctx, desc, cc, method, opts...)
				if err != nil || method != "/etcdserverpb.Lease/LeaseKeepAlive" {
					return s, err
				}
				return &slowAnswers{s, func() {
					leap.Add(int64(late))
					arrived.Store(now().UnixNano())
				}}, nil
			},
		)},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	s := newSpace(t, func(cfg *Config) { cfg.Client, cfg.TTL = c, ttl })
	s.now = now
	l := lead(t, s)
	require.NoError(t, l.renewOnce(t.Context()))
	require.NotZero(t, arrived.Load())
	latest := time.Unix(0, arrived.Load()).Add(ttl - s.cfg.Margin - late)
	require.False(t, l.Deadline().After(latest), "%v after %v", l.Deadline(), latest)
	require.NoError(t, l.Check())
	leap.Add(int64(ttl))
	require.ErrorIs(t, l.renewOnce(t.Context()), ErrDeposed, "the answer comes after the deadline")
	require.ErrorIs(t, l.Check(), ErrDeposed)
}
