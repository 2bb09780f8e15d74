package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep/lease"
)

// Token returns the highest token issued so far, 0 before the first: what a guard
// that has forgotten starts from.
func (s *Space) Token(ctx context.Context) (lease.Token, error) {
	resp, err := s.get(ctx, s.fenceKey(), 0)
	if err != nil {
		return 0, failed("token", err)
	}
	if len(resp.Kvs) == 0 {
		return 0, nil
	}
	return parseToken(s.fenceKey(), resp.Kvs[0].Value)
}

// Campaign waits until nobody leads and returns this process's reign, or the error
// of ctx. While etcd cannot be reached it goes on trying. Where several wait it is
// not said who is next.
func (s *Space) Campaign(ctx context.Context) (*Leader, error) {
	told := false
	for {
		l, err := s.stand(ctx)
		if l != nil {
			s.cfg.Logger.Info("reign begins", zap.Uint64("token", uint64(l.token)), zap.String("name", s.cfg.Name))
			return l, nil
		}
		if ctx.Err() != nil {
			return nil, failed("campaign", ctx.Err())
		}
		if err == nil { // it was somebody else; wait for the end of that
			told = false
			err = s.vacancy(ctx)
		}
		if err != nil {
			if isFault(err) {
				return nil, err
			}
			// A candidate that was stopped between the grant and its use comes too late.
			if !s.transient(err) && !errors.Is(err, rpctypes.ErrLeaseNotFound) && ctx.Err() == nil {
				return nil, failed("campaign", err)
			}
			if ctx.Err() == nil {
				s.silent(&told, "campaign", err)
			}
			if err := wait(ctx, s.pause()); err != nil {
				return nil, failed("campaign", err)
			}
		}
	}
}

// stand tries once to become the leader; nil without an error means that somebody
// else is.
func (s *Space) stand(ctx context.Context) (*Leader, error) {
	resp, err := s.get(ctx, s.leaderKey(), 0, clientv3.WithKeysOnly())
	if err != nil || len(resp.Kvs) > 0 {
		return nil, err
	}
	sent := s.now()
	grant, err := s.grant(ctx)
	if err != nil {
		return nil, err
	}
	l := &Leader{space: s, id: grant.ID, done: make(chan struct{}), ended: make(chan struct{})}
	l.until = sent.Add(time.Duration(grant.TTL)*time.Second - s.cfg.Margin)
	ok, err := l.crown(ctx)
	if !ok {
		// Nobody waits for an answer: what was not won ends by itself.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(s.cfg.Timeout, time.Second))
		defer cancel()
		_, _ = s.cfg.Client.Revoke(ctx, grant.ID)
		return nil, err
	}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go l.renew(ctx)
	return l, nil
}

func (s *Space) grant(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	return s.cfg.Client.Grant(ctx, int64(s.cfg.TTL/time.Second))
}

// crown makes the leader's key, if there is none, and then raises the token. From
// the first of the two on nobody before can write, from the second on l can.
func (l *Leader) crown(ctx context.Context) (bool, error) {
	s := l.space
	vacant := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.leaderKey()), "=", 0)}
	resp, err := s.txn(ctx, vacant, []clientv3.Op{
		clientv3.OpPut(s.leaderKey(), s.cfg.Name, clientv3.WithLease(l.id)),
		clientv3.OpGet(s.fenceKey()),
	}, nil)
	if err != nil || !resp.Succeeded {
		return false, err
	}
	l.rev = resp.Header.Revision
	var last lease.Token
	var seen int64
	if kvs := resp.Responses[1].GetResponseRange().Kvs; len(kvs) == 1 {
		if last, err = parseToken(s.fenceKey(), kvs[0].Value); err != nil {
			return false, err
		}
		seen = kvs[0].ModRevision
	}
	floor := max(last, s.cfg.Floor)
	if floor+1 == 0 {
		return false, corrupt("campaign", s.fenceKey(), "tokens have run out")
	}
	// The revision grows with every write and so would do by itself, were it not for
	// clusters that are put back from a backup.
	l.token = max(lease.Token(l.rev), floor+1)
	mine := clientv3.Compare(clientv3.ModRevision(s.leaderKey()), "=", l.rev)
	resp, err = s.txn(ctx, []clientv3.Cmp{mine, clientv3.Compare(clientv3.ModRevision(s.fenceKey()), "=", seen)},
		[]clientv3.Op{clientv3.OpPut(s.fenceKey(), tokenText(l.token))}, nil)
	if err != nil || !resp.Succeeded {
		return false, err
	}
	l.guard = []clientv3.Cmp{mine, clientv3.Compare(clientv3.Value(s.fenceKey()), "=", tokenText(l.token))}
	return true, nil
}

// vacancy returns once there may be no leader: its key is gone, or the watch on it
// ended for whatever reason, so that one looks again.
func (s *Space) vacancy(ctx context.Context) error {
	resp, err := s.get(ctx, s.leaderKey(), 0, clientv3.WithKeysOnly())
	if err != nil || len(resp.Kvs) == 0 {
		return err
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.doze())
	defer cancel()
	for event := range s.cfg.Client.Watch(ctx, s.leaderKey(), clientv3.WithRev(resp.Header.Revision+1), clientv3.WithFilterPut()) {
		if err := event.Err(); err != nil {
			if compacted(err) {
				return nil
			}
			return err
		}
		if len(event.Events) > 0 {
			return nil
		}
	}
	return nil
}

// Run is a driver: it campaigns, calls lead for each reign that it wins, with a
// context that ends with the reign, and resigns when lead returns. It returns nil
// when ctx ends or lead returns nil while it reigns, and the first error of lead
// that is not ErrDeposed and not of a context that ended with the reign. No
// goroutine is left, and where lead panics nobody leads either. Lead begins by
// reading the state anew: somebody else may have led meanwhile.
func (s *Space) Run(ctx context.Context, lead func(ctx context.Context, l *Leader) error) error {
	for {
		if again, err := s.runOnce(ctx, lead); !again {
			return err
		}
	}
}

// runOnce is one reign of Run, and says whether there is to be another.
func (s *Space) runOnce(ctx context.Context, lead func(ctx context.Context, l *Leader) error) (again bool, err error) {
	l, err := s.Campaign(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return false, nil
		}
		return false, err
	}
	defer func() { // also of one whose lead panics: it would renew its lease for ever
		if err := l.Resign(context.WithoutCancel(ctx)); err != nil {
			s.cfg.Logger.Warn("resign", zap.Error(err))
		}
	}()
	err = l.reign(ctx, lead)
	switch {
	case ctx.Err() != nil:
		return false, nil
	case errors.Is(err, ErrDeposed):
		return true, nil
	case l.Check() == nil:
		return false, err
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return true, nil
	}
	return false, err
}

// reign calls lead with a context that ends when l is deposed.
func (l *Leader) reign(ctx context.Context, lead func(ctx context.Context, l *Leader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-l.done:
			cancel(l.deposed("reign"))
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(nil); <-ended }()
	return lead(ctx, l)
}
