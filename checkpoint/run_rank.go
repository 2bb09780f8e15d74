package checkpoint

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
)

// SaveRequest is one rank's image to be written.
type SaveRequest struct {
	Job      lockstep.JobID       // Job is whose it is.
	Epoch    Epoch                // Epoch is its number.
	Rank     int                  // Rank is which.
	Target   Target               // Target is the process, locked or suspended.
	Step     uint64               // Step is the step that all ranks stopped before, as the epoch's manifest will say; 0 if not Cooperative.
	Staged   func()               // Staged is to be called once the bytes are in memory that outlives the target's going on; calling it is optional.
	Progress func(lockstep.Bytes) // Progress may be called with the bytes written so far.
}

// Saver writes the image of a rank, as by an Imager to a store.
type Saver interface {
	// Save returns once the image is durable, with its sum and size. It leaves
	// the target as it found it, reads nothing of it after it has returned or
	// called Staged, and ends soon after ctx has.
	Save(ctx context.Context, r SaveRequest) (RankImage, error)
}

// Stepper is a Driver whose targets count steps and can stop before one: what
// cooperative requests need.
type Stepper interface {
	// TrainingStep returns the step that the target is at.
	TrainingStep(ctx context.Context, t Target) (uint64, error)

	// LockAt locks the target before the collective of a step. One that is past
	// it already is ErrRefused, and stays Running.
	LockAt(ctx context.Context, t Target, step uint64, o LockOptions) error
}

// RankConfig is what a Rank works with.
type RankConfig struct {
	AgentConfig                                           // AgentConfig is the Agent's.
	Target      Target                                    // Target is the process.
	Driver      Driver                                    // Driver stops it and lets it go.
	Saver       Saver                                     // Saver writes its image; nil refuses all but pauses.
	Kill        func(ctx context.Context, t Target) error // Kill ends the target and returns once it is gone; nil refuses to be stopped.
	Ledger      Ledger                                    // Ledger is where to ask about an epoch in doubt.
	Transport   Transport                                 // Transport reaches the leader.
	Journal     Journal                                   // Journal keeps what is owed; nil keeps it nowhere, so that a dead agent leaves its target as it is.
	Workers     *Workers                                  // Workers bounds the calls under way; nil means 4 of its own.
	Clock       lockstep.Clock                            `json:"-"` // Clock tells the time; nil means the system's.
	Logger      *zap.Logger                               `json:"-"` // Logger gets a line for each call that failed; nil means none.
}

// Workers bounds how many calls may be under way at once. It may be shared. A
// call that finds no room fails at once: calls that hang must not take the
// program down with them.
type Workers struct{ slots chan struct{} }

// NewWorkers returns room for n calls; at least one.
func NewWorkers(n int) *Workers { return &Workers{make(chan struct{}, max(n, 1))} }

// errWorkers is why a call was not made.
var errWorkers = errors.New("checkpoint: no worker is free")

// Rank runs an Agent.
type Rank struct {
	cfg    RankConfig
	log    *zap.Logger
	clock  lockstep.Clock
	agent  *Agent
	events chan Event
	done   chan struct{}
	wg     sync.WaitGroup
	cancel map[uint64]context.CancelFunc // of saves under way
	once   sync.Once
	flying atomic.Int32 // calls that change the target and have not returned
}

// NewRank returns what runs next to one rank. If the journal has a record it
// gives back what was held.
func NewRank(cfg RankConfig) (*Rank, error) {
	var list []error
	missing := func(field string, is bool) {
		if is {
			list = append(list, fault(lockstep.ErrInvalid, "rank", field, "nil", "is needed"))
		}
	}
	missing("Driver", cfg.Driver == nil)
	missing("Ledger", cfg.Ledger == nil)
	missing("Transport", cfg.Transport == nil)
	if err := cfg.Validate(); err != nil {
		list = append(list, err)
	}
	if err := cfg.Target.Validate(); err != nil {
		list = append(list, err)
	}
	if err := errors.Join(list...); err != nil {
		return nil, err
	}
	if cfg.Workers == nil {
		cfg.Workers = NewWorkers(4)
	}
	r := &Rank{
		cfg: cfg, log: logger(cfg.Logger).With(zap.String("job", string(cfg.Job)), zap.Int("rank", cfg.Rank)), clock: clockOr(cfg.Clock),
		events: make(chan Event), done: make(chan struct{}), cancel: map[uint64]context.CancelFunc{},
	}
	data, err := load(cfg.Journal)
	if err != nil {
		return nil, err
	}
	if data == nil {
		r.agent, err = NewAgent(cfg.AgentConfig)
	} else {
		r.agent, err = RestoreAgent(cfg.AgentConfig, reader(data))
	}
	return r, err
}

// Run acts for the rank until ctx ends, which is no error. A target that is held
// then is let go first, unless it may have to be terminated; that takes at most
// AgentConfig.Stuck. It runs once.
func (r *Rank) Run(ctx context.Context) error {
	ran := true
	r.once.Do(func() { ran = false })
	if ran {
		return fault(lockstep.ErrConflict, "run", "", "", "it has run already")
	}
	calls, stop := context.WithCancel(context.WithoutCancel(ctx)) // calls go on when ctx ends: something may be owed
	defer r.wg.Wait()
	defer close(r.done)
	defer stop()
	inbox := listen(ctx, &r.wg, r.cfg.Transport, r.log)
	timer := time.NewTimer(0)
	defer timer.Stop()
	over := ctx.Done()
	for {
		e := Event{Kind: EventTick}
		select {
		case <-over:
			over, inbox = nil, nil
			r.agent.deaf()
			limit := time.AfterFunc(r.agent.cfg.Stuck, stop)
			defer limit.Stop()
		case <-calls.Done():
			return nil
		case e = <-r.events:
		case m := <-inbox:
			e = Event{Kind: EventMessage, Message: *m}
		case <-timer.C:
		}
		r.step(calls, e)
		if _, owed := r.agent.Hold(); over == nil && (!owed || r.agent.phase == phaseBroken) {
			return nil
		}
		at, ok := r.agent.NextWake()
		rearm(timer, r.clock, at, ok)
	}
}

func (r *Rank) step(ctx context.Context, e Event) {
	list, err := r.agent.Step(r.clock.Now(), e)
	if err != nil {
		r.log.Warn("an event was refused", zap.Error(err))
	}
	for i := range list {
		if err := r.act(ctx, &list[i]); err != nil {
			// Told at once: an answer in between would count on the record.
			r.step(ctx, Event{Kind: EventDone, Op: list[i].Op, Err: err})
			return
		}
	}
}

// act begins an action. An error is of a record: the actions behind it must not
// be begun.
func (r *Rank) act(ctx context.Context, act *Action) error {
	switch act.Kind {
	case ActionSend:
		if err := r.cfg.Transport.Send(&act.Message); err != nil {
			r.log.Debug("a message was lost", zap.Error(err))
		}
	case ActionRecord:
		if err := save(r.cfg.Journal, r.agent.Snapshot); err != nil {
			r.log.Error("the record could not be written", zap.Error(err))
			return err
		}
	case ActionCancel:
		if cancel := r.cancel[act.Op]; cancel != nil {
			cancel()
		}
	case ActionSave:
		r.save(ctx, act)
	default:
		r.call(ctx, *act)
	}
	return nil
}

func (r *Rank) feed(e Event) {
	select {
	case r.events <- e:
	case <-r.done:
	}
}

// call makes a call in the background, and answers for it when it ends or has
// taken longer than it may: a driver that does not keep its word holds up its
// worker and nobody else.
func (r *Rank) call(ctx context.Context, act Action) {
	refuse := func(err error) { r.wg.Go(func() { r.feed(Event{Kind: EventDone, Op: act.Op, Err: err}) }) }
	changes := act.Kind >= ActionLock && act.Kind <= ActionUnlock
	if changes && r.flying.Load() > 0 {
		refuse(ErrInFlight) // whatever it does may come behind what this one would
		return
	}
	select {
	case r.cfg.Workers.slots <- struct{}{}:
	default:
		refuse(errWorkers)
		return
	}
	if changes {
		r.flying.Add(1)
	}
	answer := make(chan Event, 1)
	go func() { // not waited for: it may never end
		e := r.perform(ctx, &act)
		if changes {
			r.flying.Add(-1)
		}
		<-r.cfg.Workers.slots
		answer <- e
	}()
	r.wg.Go(func() {
		late := time.NewTimer(act.Timeout + act.Timeout/4 + time.Second)
		defer late.Stop()
		e := Event{Kind: EventDone, Op: act.Op, Err: ErrInFlight}
		select {
		case e = <-answer:
		case <-late.C:
		case <-r.done:
			return
		}
		if e.Err != nil {
			r.log.Warn("a call failed", zap.Stringer("call", act.Kind), zap.String("state", string(e.State)), zap.Error(e.Err))
		}
		r.feed(e)
	})
}

// perform makes a call and reads the state back.
func (r *Rank) perform(ctx context.Context, act *Action) Event {
	limit := act.Timeout
	if act.Kind == ActionLock {
		limit += limit / 8 // the driver's own timeout comes first
	}
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	e, t, d := Event{Kind: EventDone, Op: act.Op}, r.cfg.Target, r.cfg.Driver
	switch act.Kind {
	case ActionLock:
		e.Before, e.Step, e.Err = r.lock(inner, act)
	case ActionSuspend:
		_, e.Err = d.Suspend(inner, t)
	case ActionResume:
		_, e.Err = d.Resume(inner, t, ResumeOptions{Map: act.Devices})
	case ActionUnlock:
		e.Err = d.Unlock(inner, t)
	case ActionKill:
		e.Err = ErrUnsupported
		if r.cfg.Kill != nil {
			e.Err = r.cfg.Kill(inner, t)
		}
	case ActionSettle:
		e.Epoch, e.Err = settle(inner, r.cfg.Ledger, r.cfg.Job, act.Epoch, act.Term)
		return e
	case ActionStep:
		if s, ok := d.(Stepper); ok {
			e.Step, _ = s.TrainingStep(inner, t) // 0 is what is said of a step that is not known
		}
	}
	// The call may have used its time up; reading is quick.
	again, done := context.WithTimeout(ctx, r.agent.cfg.Poll+time.Second)
	defer done()
	state, err := d.State(again, t)
	if err == nil {
		e.State = state
	} else if e.Err == nil {
		e.Err = err
	}
	return e
}

// lock stops the target, unless somebody else holds it.
func (r *Rank) lock(ctx context.Context, act *Action) (before State, step uint64, err error) {
	t, d := r.cfg.Target, r.cfg.Driver
	before, err = d.State(ctx, t)
	if err != nil || before != Running {
		return before, 0, errors.Join(err, illegal(before))
	}
	if err := r.inspect(ctx); err != nil {
		return before, 0, err
	}
	o := LockOptions{Timeout: act.Timeout}
	if act.StopStep == 0 {
		return before, 0, d.Lock(ctx, t, o)
	}
	s, ok := d.(Stepper)
	if !ok {
		return before, 0, fault(ErrUnsupported, "lock", "StopStep", "", "the driver does not know steps")
	}
	return before, act.StopStep, s.LockAt(ctx, t, act.StopStep, o)
}

// inspect says what keeps the target from being stopped and brought back, as far
// as the driver can tell before it is touched.
func (r *Rank) inspect(ctx context.Context) error {
	i, ok := r.cfg.Driver.(Inspector)
	if !ok {
		return nil
	}
	list, err := i.Inspect(ctx, r.cfg.Target)
	for _, l := range list {
		if l.What == CanLock || l.What == CanSuspend && !r.cfg.NoSuspend {
			err = errors.Join(err, fault(ErrUnsupported, "inspect", string(l.What), "", string(l.Reason)+": "+l.Detail))
		}
	}
	return err
}

func illegal(s State) error {
	if s == Running || s == "" {
		return nil
	}
	return ErrIllegalState
}

// save has the image written in the background.
func (r *Rank) save(ctx context.Context, act *Action) {
	inner, cancel := context.WithCancel(ctx)
	op, epoch, step := act.Op, act.Epoch, act.StopStep
	clear(r.cancel) // one before has been cancelled
	r.cancel[op] = cancel
	r.wg.Go(func() {
		defer cancel()
		e := Event{Kind: EventDone, Op: op, Err: ErrUnsupported}
		if r.cfg.Saver != nil {
			e.Image, e.Err = r.cfg.Saver.Save(inner, SaveRequest{
				Job: r.cfg.Job, Epoch: epoch, Rank: r.cfg.Rank, Target: r.cfg.Target, Step: step,
				Staged:   func() { r.feed(Event{Kind: EventStaged, Op: op}) },
				Progress: func(n lockstep.Bytes) { r.feed(Event{Kind: EventProgress, Op: op, Bytes: n}) },
			})
		}
		r.feed(e)
	})
}
