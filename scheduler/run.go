package scheduler

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
)

// RunConfig says what Run works with. Events and Do are required.
type RunConfig struct {
	Events <-chan lockstep.Event                                // Events are what the host observes; Run returns when it is closed. One without a time, or with one before the scheduler's, gets the present one.
	Do     func(ctx context.Context, a []lockstep.Action) error // Do carries out what was decided, in order; an error ends Run. It must not wait for Events to be read.
	Fault  func(e lockstep.Event, err error)                    // Fault is told of an event that was refused; nil means that it is logged only.
	Clock  lockstep.Clock                                       // Clock tells the time; nil means a lockstep.Monotone.
	Logger *zap.Logger                                          // Logger is told of each event, action and error once; nil means nobody.
}

// Run is a driver for hosts that have none: it applies events as they come,
// takes a Step behind all that are there, has the actions carried out, and
// wakes up when NextWake says so. It returns nil when ctx ends or Events is
// closed, and the first error of Step or Do. It starts no goroutine, and nobody
// else may use s meanwhile.
func (s *Scheduler) Run(ctx context.Context, cfg RunConfig) error {
	var errs []error
	if cfg.Events == nil {
		errs = append(errs, fault(lockstep.ErrInvalid, "run", "Events", "nil", "required"))
	}
	if cfg.Do == nil {
		errs = append(errs, fault(lockstep.ErrInvalid, "run", "Do", "nil", "required"))
	}
	if errs != nil {
		return errors.Join(errs...)
	}
	if cfg.Clock == nil {
		cfg.Clock = &lockstep.Monotone{}
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	d := &driver{s: s, cfg: cfg, timer: time.NewTimer(time.Hour)}
	defer d.timer.Stop()
	for {
		if err := d.decide(ctx); err != nil {
			return err
		}
		more, err := d.wait(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// maxBatch is how many events one step sees at the most, so that hosts which
// never pause are decided for too.
const maxBatch = 1024

// driver is one Run.
type driver struct {
	s     *Scheduler
	cfg   RunConfig
	timer *time.Timer
}

// now is the clock's time, or that of the latest event if that is ahead of it.
func (d *driver) now() time.Time {
	now := d.cfg.Clock.Now()
	if now.UnixNano() < d.s.now {
		return lockstep.FromNanos(d.s.now)
	}
	return now
}

// decide takes a step and has its actions carried out.
func (d *driver) decide(ctx context.Context) error {
	actions, err := d.s.Step(d.now())
	for i := range actions {
		a := &actions[i]
		d.cfg.Logger.Info("action", zap.String("kind", string(a.Kind)), zap.String("job", string(a.Job)), zap.Uint64("attempt", uint64(a.Attempt)), zap.String("reason", string(a.Reason)))
	}
	if len(actions) > 0 {
		err = errors.Join(err, d.cfg.Do(ctx, actions))
	}
	if err != nil {
		d.cfg.Logger.Error("step", zap.Error(err))
	}
	return err
}

// wait returns when there is something to decide: events have come, which it
// applies, or it is time. It reports whether there is more to come.
func (d *driver) wait(ctx context.Context) (more bool, err error) {
	var wake <-chan time.Time
	now := d.now()
	if at, ok := d.s.NextWake(now); ok {
		d.timer.Reset(max(at.Sub(now), 0))
		wake = d.timer.C
	}
	select {
	case <-ctx.Done():
		return false, nil
	case <-wake:
		return true, nil
	case e, ok := <-d.cfg.Events:
		if !ok {
			return false, nil
		}
		d.apply(e)
	}
	for range maxBatch - 1 { // those that are there already, so that one step sees them all
		select {
		case e, ok := <-d.cfg.Events:
			if !ok {
				return false, d.decide(ctx)
			}
			d.apply(e)
		default:
			return true, nil
		}
	}
	return ctx.Err() == nil, nil
}

// apply puts an event to the scheduler. One that was under way while a step was
// taken is older than that: it is news all the same, and late rather than wrong.
func (d *driver) apply(e lockstep.Event) {
	if t, err := lockstep.Nanos(e.Time); e.Time.IsZero() || err == nil && t < d.s.now {
		e.Time = d.now()
	}
	job := e.Job
	if e.Gang != nil {
		job = e.Gang.ID
	}
	fields := []zap.Field{zap.String("kind", string(e.Kind)), zap.String("job", string(job)), zap.String("node", string(e.Node))}
	err := d.s.Apply(e)
	if err == nil {
		d.cfg.Logger.Info("event", fields...)
		return
	}
	d.cfg.Logger.Warn("event refused", append(fields, zap.Error(err))...)
	if d.cfg.Fault != nil {
		d.cfg.Fault(e, err)
	}
}
