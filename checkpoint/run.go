package checkpoint

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
)

// Transport carries messages between a leader and its ranks. It may lose,
// repeat and reorder them. NewHub has one in memory, Listen and Dial one over
// sockets.
type Transport interface {
	// Send passes m on, to the rank m.Rank if this is the leader's end, to the
	// leader otherwise. It does not wait for an answer, and must not block for
	// long; an error is only logged.
	Send(m *Message) error

	// Receive waits for the next message to this end, or for the end of ctx.
	Receive(ctx context.Context) (*Message, error)
}

// Journal keeps the last record of a Leader or a Rank across its death. Files
// are FileJournal.
type Journal interface {
	// Save replaces the record, durably, before it returns.
	Save(data []byte) error

	// Load returns the last record; nil if there is none.
	Load() ([]byte, error)
}

// LeaderConfig is what a Leader works with.
type LeaderConfig struct {
	Config                   // Config is the Coordinator's.
	Ledger    Ledger         // Ledger is where epochs are committed.
	Transport Transport      // Transport reaches the ranks.
	Journal   Journal        // Journal keeps the number of the last epoch; nil keeps it nowhere: then set Config.After from the ledger, and Recover is not possible.
	Clock     lockstep.Clock `json:"-"` // Clock tells the time; nil means the system's.
	Logger    *zap.Logger    `json:"-"` // Logger gets a line for each report; nil means none.
}

// Leader runs a Coordinator. It is safe for concurrent use.
type Leader struct {
	cfg    LeaderConfig
	log    *zap.Logger
	clock  lockstep.Clock
	events chan leaderCall
	done   chan struct{}

	mu     sync.Mutex // guards c between steps, and ran
	c      *Coordinator
	ran    bool
	waiter chan *Report
	wg     sync.WaitGroup
}

// leaderCall is an event and where to say whether it was taken.
type leaderCall struct {
	event  Event
	err    chan error   // nil for nobody
	report chan *Report // gets the next report; nil for nobody
	only   chan *Report // counts only while the report is still to come; nil counts in any case
}

// NewLeader returns the leader of a job. If the journal has a record it goes on
// from there: Recover has to come first then, if an epoch was left open.
func NewLeader(cfg LeaderConfig) (*Leader, error) {
	var list []error
	if cfg.Ledger == nil {
		list = append(list, fault(lockstep.ErrInvalid, "leader", "Ledger", "nil", "there is nowhere to commit"))
	}
	if cfg.Transport == nil {
		list = append(list, fault(lockstep.ErrInvalid, "leader", "Transport", "nil", "the ranks cannot be reached"))
	}
	if err := cfg.Validate(); err != nil {
		list = append(list, err)
	}
	if err := errors.Join(list...); err != nil {
		return nil, err
	}
	l := &Leader{cfg: cfg, log: logger(cfg.Logger).With(zap.String("job", string(cfg.Job))), clock: clockOr(cfg.Clock), events: make(chan leaderCall), done: make(chan struct{})}
	var err error
	if l.c, err = restoreLeader(&cfg); err != nil {
		return nil, err
	}
	return l, nil
}

func restoreLeader(cfg *LeaderConfig) (*Coordinator, error) {
	data, err := load(cfg.Journal)
	if err != nil || data == nil {
		if err != nil {
			return nil, err
		}
		return New(cfg.Config)
	}
	return Restore(cfg.Config, reader(data))
}

// Run acts for the leader until ctx ends, which is no error. It runs once.
// Ranks that are held then hear nothing more and come back by themselves.
func (l *Leader) Run(ctx context.Context) error {
	l.mu.Lock()
	ran := l.ran
	l.ran = true
	l.mu.Unlock()
	if ran {
		return fault(lockstep.ErrConflict, "run", "", "", "it has run already")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer l.wg.Wait()
	defer close(l.done)
	defer cancel()
	inbox := listen(ctx, &l.wg, l.cfg.Transport, l.log)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var call leaderCall
		select {
		case <-ctx.Done():
			return nil
		case call = <-l.events:
		case m := <-inbox:
			call.event = Event{Kind: EventMessage, Message: *m}
		case <-timer.C:
			call.event = Event{Kind: EventTick}
		}
		l.step(ctx, &call)
		l.mu.Lock()
		at, ok := l.c.NextWake()
		l.mu.Unlock()
		rearm(timer, l.clock, at, ok)
	}
}

// step has the coordinator take an event, and begins what it wants.
func (l *Leader) step(ctx context.Context, call *leaderCall) {
	if call.only != nil && call.only != l.waiter {
		return // its request has ended, and the next is somebody else's
	}
	l.mu.Lock()
	var list []Action
	err := l.untimely(call)
	if err == nil {
		list, err = l.c.Step(l.clock.Now(), call.event)
	}
	l.mu.Unlock()
	if err == nil && call.report != nil {
		l.waiter = call.report
	}
	if call.err != nil {
		call.err <- err
	} else if err != nil {
		l.log.Warn("an event was refused", zap.Error(err))
	}
	for i := range list {
		if err := l.act(ctx, &list[i]); err != nil {
			// Told at once: nothing may come between that counts on the record.
			l.step(ctx, &leaderCall{event: Event{Kind: EventDone, Op: list[i].Op, Err: err}})
			return
		}
	}
}

// untimely says why a request cannot be waited for: its report would never come,
// or be another's. l.mu is held.
func (l *Leader) untimely(call *leaderCall) error {
	switch {
	case call.report == nil:
	case call.event.Kind == EventRelease && l.c.stage != stageHeld:
		return fault(lockstep.ErrConflict, "resume", "epoch", "", "nobody is held")
	case call.event.Kind == EventRecover && l.c.stage != stageRecover:
		return fault(lockstep.ErrConflict, "recover", "epoch", "", "it is being found out already")
	}
	return nil
}

// act begins an action. An error is of a record: the actions behind it must not
// be begun.
func (l *Leader) act(ctx context.Context, act *Action) error {
	switch act.Kind {
	case ActionSend:
		if err := l.cfg.Transport.Send(&act.Message); err != nil {
			l.log.Debug("a message was lost", zap.Int("rank", act.Message.Rank), zap.Error(err))
		}
	case ActionRecord:
		l.mu.Lock()
		err := save(l.cfg.Journal, l.c.Snapshot)
		l.mu.Unlock()
		if err != nil {
			l.log.Error("the record could not be written", zap.Error(err))
			return err
		}
	case ActionCommit, ActionSettle:
		l.ask(ctx, act)
	case ActionReport:
		l.log.Info("report", zap.Stringer("report", act.Report))
		if l.waiter != nil {
			l.waiter <- act.Report // it has room
			l.waiter = nil
		}
	}
	return nil
}

// ask calls the ledger in the background.
func (l *Leader) ask(ctx context.Context, act *Action) {
	kind, op, epoch, term, manifest := act.Kind, act.Op, act.Epoch, act.Term, act.Manifest
	timeout := act.Timeout
	l.wg.Go(func() {
		inner, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		e := Event{Kind: EventDone, Op: op}
		if kind == ActionCommit {
			e.Err = l.cfg.Ledger.Commit(inner, manifest)
		} else {
			e.Epoch, e.Err = settle(inner, l.cfg.Ledger, l.cfg.Job, epoch, term)
		}
		l.feed(ctx, leaderCall{event: e})
	})
}

func (l *Leader) feed(ctx context.Context, call leaderCall) bool {
	select {
	case l.events <- call:
		return true
	case <-ctx.Done():
	case <-l.done:
	}
	return false
}

// settle fences and looks. That the fence is higher already is passed on, with
// what was found.
func settle(ctx context.Context, l Ledger, job lockstep.JobID, epoch Epoch, term Term) (*Manifest, error) {
	fence := l.Fence(ctx, job, term)
	if fence != nil && !errors.Is(fence, ErrFenced) {
		return nil, fence
	}
	m, ok, err := l.Committed(ctx, job, epoch)
	if err != nil {
		return nil, err
	}
	if !ok {
		m = nil
	}
	return m, fence
}

// Checkpoint saves the job as r says and returns how that ended. When it
// returns with a report, every rank of a job that goes on is running or named in
// Report.Broken, but for OutcomeFenced: a newer leader ends the epoch then. If ctx ends the epoch is given up unless it is decided already;
// Checkpoint waits for that too. The error says why there is no report, or that
// ctx ended.
func (l *Leader) Checkpoint(ctx context.Context, r Request) (*Report, error) {
	if r.Hold {
		return nil, fault(lockstep.ErrInvalid, "checkpoint", "Hold", "true", "call Pause")
	}
	return l.request(ctx, Event{Kind: EventStart, Request: r})
}

// Pause stops all ranks and holds them until Resume, at most MaxPause. Nothing
// is saved. The outcome is OutcomeHeld, or OutcomeAborted if not all could be
// stopped; they are running then.
func (l *Leader) Pause(ctx context.Context, r Request) (*Report, error) {
	r.Hold, r.StopAfter, r.Early = true, false, false
	return l.request(ctx, Event{Kind: EventStart, Request: r})
}

// Resume lets ranks go on that Pause holds, each on the devices given for it;
// nil means where they were. The outcome is OutcomeAborted, with the reason
// "released": there is no image.
func (l *Leader) Resume(ctx context.Context, devices [][]DevicePair) (*Report, error) {
	return l.request(ctx, Event{Kind: EventRelease, Devices: devices})
}

// Recover finds out how the epoch ended that the leader before left open, and
// has all ranks end it so. With nothing open the report is empty.
func (l *Leader) Recover(ctx context.Context) (*Report, error) {
	l.mu.Lock()
	_, open := l.c.Pending()
	l.mu.Unlock()
	if !open {
		return &Report{}, nil
	}
	return l.request(ctx, Event{Kind: EventRecover})
}

// request hands an event to Run and waits for the report.
func (l *Leader) request(ctx context.Context, e Event) (*Report, error) {
	call := leaderCall{event: e, err: make(chan error, 1), report: make(chan *Report, 1)}
	stopped := fault(lockstep.ErrConflict, "request", "leader", "", "it does not run any more")
	if !l.feed(ctx, call) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, stopped
	}
	if err := <-call.err; err != nil {
		return nil, err
	}
	over := ctx.Done()
	for {
		select {
		case r := <-call.report:
			return r, ctx.Err()
		case <-over:
			over = nil
			l.feed(context.WithoutCancel(ctx), leaderCall{event: Event{Kind: EventRelease}, only: call.report})
		case <-l.done:
			select {
			case r := <-call.report: // it was the last that was done
				return r, ctx.Err()
			default:
				return nil, stopped
			}
		}
	}
}

// Progress returns where each rank is, by rank; nil before the first request.
func (l *Leader) Progress() []Progress {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.c.Progress()
}

func logger(l *zap.Logger) *zap.Logger {
	if l == nil {
		return zap.NewNop()
	}
	return l
}

func clockOr(c lockstep.Clock) lockstep.Clock {
	if c == nil {
		return &lockstep.Monotone{}
	}
	return &lockstep.Monotone{Source: c.Now}
}

// rearm sets the timer for at.
func rearm(timer *time.Timer, clock lockstep.Clock, at time.Time, ok bool) {
	if !ok {
		timer.Stop()
		return
	}
	timer.Reset(max(at.Sub(clock.Now()), 0))
}

// listen passes on what a transport receives until ctx ends.
func listen(ctx context.Context, wg *sync.WaitGroup, t Transport, log *zap.Logger) <-chan *Message {
	inbox := make(chan *Message)
	wg.Go(func() {
		for ctx.Err() == nil {
			m, err := t.Receive(ctx)
			if err != nil {
				if ctx.Err() == nil {
					log.Warn("the transport has ended", zap.Error(err))
				}
				return
			}
			select {
			case inbox <- m:
			case <-ctx.Done():
			}
		}
	})
	return inbox
}
