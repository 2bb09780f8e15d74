package etcd

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/lease"
)

// Leader is one reign: from a won campaign until Resign, or until the lease could
// not be renewed in time. It never comes back from being deposed. It is safe for
// concurrent use. A goroutine renews its lease until Resign, which must be called.
type Leader struct {
	space *Space
	id    clientv3.LeaseID
	rev   int64 // the mod revision of the leader's key, from its creation
	token lease.Token
	guard []clientv3.Cmp

	cancel context.CancelFunc // ends renew
	ended  chan struct{}      // closed once renew has ended
	done   chan struct{}      // closed once it is deposed or resigned

	mu    sync.Mutex
	until time.Time // up to when it may act, by the clock that only goes forward
	over  bool
}

// Token returns the fencing token of this reign: higher than that of every reign
// before. Send it along with whatever acts outside etcd.
func (l *Leader) Token() lease.Token { return l.token }

// Done returns a channel that is closed once l is deposed or has resigned, which is
// no later than at Deadline.
func (l *Leader) Done() <-chan struct{} { return l.done }

// Deadline returns until when l may act if no renewal succeeds. It has a monotonic
// reading, and only means something in this process.
func (l *Leader) Deadline() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.until
}

// Check returns nil while l may act and ErrDeposed from then on. It asks the
// clock, not etcd, and it is what to call right before each act: a process that
// was paused past its lease is told so before it does anything. What happens after
// it returned it cannot know, which is why writes carry the guard and acts the token.
func (l *Leader) Check() error {
	l.mu.Lock()
	over, late := l.over, !l.space.now().Before(l.until)
	l.mu.Unlock()
	if late {
		l.end("the lease was not renewed in time")
	}
	if over || late {
		return l.deposed("check")
	}
	return nil
}

// Guard returns what holds in etcd as long as l is the leader, for transactions of
// the host's own: the leader's key is the one that l made, and the token is its.
func (l *Leader) Guard() []clientv3.Cmp {
	return append([]clientv3.Cmp(nil), l.guard...)
}

// Commit writes ops in one transaction, if l is still the leader and cmps hold. A
// leader that is not any more gets ErrDeposed, and nothing is written; where one
// of cmps does not hold nothing is written either, and Succeeded of the response
// is false. With any other error it is not known whether the ops were written.
// Between them, ops may be 128 and 1.5 MiB, which are etcd's limits.
func (l *Leader) Commit(ctx context.Context, cmps []clientv3.Cmp, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return l.commit(ctx, "commit", cmps, ops)
}

func (l *Leader) commit(ctx context.Context, op string, cmps []clientv3.Cmp, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	s := l.space
	// Where the guard does not hold, the same transaction says why.
	why := []clientv3.Op{clientv3.OpGet(s.leaderKey()), clientv3.OpGet(s.fenceKey())}
	resp, err := s.txn(ctx, append(l.Guard(), cmps...), ops, why)
	if err != nil {
		return nil, failed(op, err)
	}
	if resp.Succeeded {
		return resp, nil
	}
	leader, fence := resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs
	if len(leader) == 1 && leader[0].ModRevision == l.rev && len(fence) == 1 && string(fence[0].Value) == tokenText(l.token) {
		return resp, nil
	}
	l.end("another has taken over")
	return nil, l.deposed(op)
}

// Resign gives up the lease, so that the next leader need not wait for its end,
// and ends the renewals. It may be called more than once, and for a leader that
// was deposed, which it must be too. The error says that etcd could not be told;
// then the lease ends by itself.
func (l *Leader) Resign(ctx context.Context) error {
	first := l.end("it resigned")
	l.cancel()
	<-l.ended
	ctx, cancel := context.WithTimeout(ctx, l.space.cfg.Timeout)
	defer cancel()
	_, err := l.space.cfg.Client.Revoke(ctx, l.id)
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) || !first {
		return nil
	}
	return failed("resign", err)
}

// own refuses a leader of another space: its guard says nothing about this one.
func (s *Space) own(op string, l *Leader) error {
	if l != nil && l.space.cfg.Prefix != s.cfg.Prefix {
		return fault(lockstep.ErrInvalid, op, "leader", strconv.Quote(l.space.cfg.Prefix), "leads another space")
	}
	return nil
}

func (l *Leader) deposed(op string) error {
	return fault(ErrDeposed, op, "token", l.token.String(), "no longer leads")
}

// end ends the reign, and says whether that is news.
func (l *Leader) end(why string) bool {
	l.mu.Lock()
	first := !l.over
	if first {
		l.over = true
		close(l.done)
	}
	l.mu.Unlock()
	if first {
		l.space.cfg.Logger.Info("reign is over", zap.Uint64("token", uint64(l.token)), zap.String("why", why))
	}
	return first
}

// renew keeps the lease alive until ctx ends or the reign is over.
func (l *Leader) renew(ctx context.Context) {
	defer close(l.ended)
	pace := l.space.cfg.TTL / 3
	for pause := pace; wait(ctx, min(pause, l.left())) == nil; {
		err := l.renewOnce(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrDeposed):
			return
		case err != nil: // again soon, until the deadline has come
			l.space.cfg.Logger.Warn("renewal failed", zap.Uint64("token", uint64(l.token)), zap.Error(err))
			pause = pace / 4
		default:
			pause = pace
		}
	}
}

// left returns how long l may act if no renewal succeeds. Nothing that renew does
// takes longer, so that Done is closed in time.
func (l *Leader) left() time.Duration { return l.Deadline().Sub(l.space.now()) }

// renewOnce renews the lease. A renewal counts from before it was sent: what etcd
// does with it can only be later. One that is answered after the deadline is none.
func (l *Leader) renewOnce(ctx context.Context) error {
	if err := l.Check(); err != nil {
		return err
	}
	s := l.space
	sent := s.now()
	ttl, err := s.keepAlive(ctx, l.id, min(s.cfg.Timeout, s.cfg.TTL/3, l.left()))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		l.end("the lease has ended")
	} else if err != nil {
		return failed("renew", err)
	}
	if err := l.Check(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if next := sent.Add(ttl - s.cfg.Margin); next.After(l.until) {
		l.until = next
	}
	return nil
}

// keepAlive renews a lease once. The client's own calls retry without pause, or do
// not tell when they sent what was answered.
func (s *Space) keepAlive(ctx context.Context, id clientv3.LeaseID, timeout time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), timeout)
	defer cancel()
	stream, err := clientv3.RetryLeaseClient(s.cfg.Client).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	resp, err := stream.Recv()
	if err != nil {
		return 0, clientv3.ContextError(ctx, err)
	}
	_ = stream.CloseSend() // the context ends it in any case
	if resp.TTL <= 0 {
		return 0, rpctypes.ErrLeaseNotFound
	}
	return time.Duration(resp.TTL) * time.Second, nil
}

// tokenText is a token as the fence's key holds it: all of one width, so that they
// sort as numbers do.
func tokenText(t lease.Token) string { return fmt.Sprintf("%020d", uint64(t)) }

func parseToken(key string, text []byte) (lease.Token, error) {
	n, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil || tokenText(lease.Token(n)) != string(text) {
		return 0, corrupt("token", key, "is no token")
	}
	return lease.Token(n), nil
}
