package standalone

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// fence says until when this process may write. It goes by the monotonic clock of
// the machine, from the moment at which the renewal that was granted last was
// asked for: what others see of the lease is later than that.
type fence struct {
	until atomic.Int64 // nanoseconds since base; never before the first grant
	base  time.Time
	open  bool // there is no lease, so nothing ever ends
}

func newFence(open bool) *fence { return &fence{base: time.Now(), open: open} }

// extend lets writes through until t.
func (f *fence) extend(t time.Time) { f.until.Store(int64(t.Sub(f.base))) }

// shut lets nothing through any more.
func (f *fence) shut() { f.until.Store(0) }

// left returns for how long writes are let through; 0 or less means not at all.
func (f *fence) left() time.Duration {
	if f.open {
		return time.Hour
	}
	return time.Duration(f.until.Load()) - time.Since(f.base)
}

// errFenced is why a write was not made.
var errFenced = errors.New("standalone: the lease is over")

// guard calls write with a context that ends with the lease, if it is not over.
func (f *fence) guard(ctx context.Context, limit time.Duration, write func(context.Context) error) error {
	left := f.left()
	if left <= 0 {
		return errFenced
	}
	ctx, cancel := context.WithTimeout(ctx, min(left, limit))
	defer cancel()
	return write(ctx)
}

// renewals is a lock that tells the fence when it was taken or renewed.
type renewals struct {
	resourcelock.Interface
	fence *fence
	renew time.Duration
}

func (r *renewals) Create(ctx context.Context, rec resourcelock.LeaderElectionRecord) error {
	return r.write(rec, func() error { return r.Interface.Create(ctx, rec) })
}

func (r *renewals) Update(ctx context.Context, rec resourcelock.LeaderElectionRecord) error {
	return r.write(rec, func() error { return r.Interface.Update(ctx, rec) })
}

func (r *renewals) write(rec resourcelock.LeaderElectionRecord, write func() error) error {
	asked := time.Now()
	if err := write(); err != nil {
		return err
	}
	if rec.HolderIdentity == r.Identity() {
		r.fence.extend(asked.Add(r.renew))
	} else {
		r.fence.shut() // it was given back
	}
	return nil
}

// lead calls act whenever this process holds the lease, with a context that ends
// with it, until ctx ends. The lease is given back once act has returned.
func (s *Scheduler) lead(ctx context.Context, act func(context.Context, *fence) error) error {
	e := s.cfg.Election
	if e.Disable {
		return act(ctx, newFence(true))
	}
	for ctx.Err() == nil {
		if err := s.term(ctx, act); err != nil {
			return err
		}
	}
	return nil
}

// term is one stay in office, and the wait for it.
func (s *Scheduler) term(ctx context.Context, act func(context.Context, *fence) error) error {
	e, f := s.cfg.Election, newFence(false)
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, e.Lease.Namespace, e.Lease.Name, s.cfg.Client.CoreV1(), s.cfg.Client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: e.Identity})
	if err != nil {
		return err
	}
	// The elector goes on renewing while act finishes what it has begun, so its
	// context is not ctx.
	office, resign := context.WithCancel(context.WithoutCancel(ctx))
	defer resign()
	elected := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &renewals{Interface: lock, fence: f, renew: e.Renew}, Name: e.Lease.Name,
		LeaseDuration: e.Term, RenewDeadline: e.Renew, RetryPeriod: e.Retry, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { elected <- ctx },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		elector.Run(office)
	}()
	defer func() {
		resign()
		<-ended
		f.shut()
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-ended:
		return nil
	case led := <-elected:
		s.leading.Store(true)
		defer s.leading.Store(false)
		s.cfg.Logger.Info("leading")
		// Two ways to end: ctx, gracefully, or the loss of the lease.
		stop := context.AfterFunc(led, f.shut)
		defer stop()
		both, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(led, cancel)()
		err := act(both, f)
		if err != nil && ctx.Err() == nil && f.left() <= 0 {
			s.cfg.Logger.Warn("lease lost")
			return nil // somebody else leads; wait for another turn
		}
		return err
	}
}
