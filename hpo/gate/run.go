package gate

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// runner is what lives as long as Run.
type runner struct {
	*Gate
	tree   tree
	log    *zap.Logger
	ctx    context.Context // ends with Run
	wg     sync.WaitGroup
	hooks  chan *coop.Conn // those that were greeted
	words  chan word
	over   chan struct{} // the root is dead
	conn   *coop.Conn    // the hook; nil for none
	next   *coop.Conn    // one that has come before conn was seen to go; nil for none
	serial uint64        // of the last Open or Close that was sent
	cancel func()        // ends the signal that is under way
}

// word is what a hook has said, or why it says no more.
type word struct {
	from *coop.Conn
	m    coop.Message
	err  error
}

// Run makes the socket, starts or adopts the trial, and acts for the gate until ctx ends
// or the root of the trial is dead, which are no errors. It runs once.
//
// At the end a Command and all that came of it are terminated, with Config.Grace; a trial
// given by its PID is stopped and left so. The socket is removed and no goroutine is left.
func (g *Gate) Run(ctx context.Context) (err error) {
	g.mu.Lock()
	ran := g.ran
	g.ran = true
	g.mu.Unlock()
	if ran {
		return fault(lockstep.ErrConflict, "run", "", "", "it has run already")
	}
	inner, cancel := context.WithCancel(ctx)
	r := &runner{
		Gate: g, log: g.cfg.Logger.With(zap.String("trial", g.cfg.Name)), ctx: inner,
		hooks: make(chan *coop.Conn), words: make(chan word), over: make(chan struct{}), cancel: func() {},
	}
	var l *coop.Listener
	if g.cfg.Socket != "" {
		if l, err = g.listen(); err != nil {
			cancel()
			return err
		}
	}
	if err = r.start(); err == nil {
		if l != nil {
			r.wg.Go(func() { r.accept(l) })
		} else {
			_ = g.step(Event{Kind: EventClose}) // without a hook nothing else keeps the trial still at first
		}
		r.wg.Go(r.watch)
		r.loop()
	}
	cancel()
	if l != nil {
		err = errors.Join(err, l.Close())
	}
	for _, c := range []*coop.Conn{r.conn, r.next} {
		if c != nil {
			_ = c.Close()
		}
	}
	r.wg.Wait()
	if r.tree != nil {
		err = errors.Join(err, r.end())
	}
	return err
}

// listen makes the socket, for other users to connect to as well if the hook may be one's: the kernel tells who it is.
func (g *Gate) listen() (*coop.Listener, error) {
	l, err := coop.Listen(g.cfg.Socket)
	if err != nil || !slices.ContainsFunc(g.cfg.UIDs, func(uid int) bool { return uid != os.Geteuid() }) {
		return l, err
	}
	if err := os.Chmod(g.cfg.Socket, 0o666); err != nil {
		return nil, errors.Join(fault(ErrFailed, "run", "Socket", g.cfg.Socket, err.Error()), l.Close())
	}
	return l, nil
}

// start starts or adopts the trial.
func (r *runner) start() error {
	cfg := r.cfg
	if cfg.Command == nil {
		t, err := proctree.Adopt(cfg.PID, proctree.Config{})
		if err != nil {
			return err
		}
		return r.started(t, cfg.PID)
	}
	cfg.Command.Env = append(cfg.Command.Environ(), EnvTrial+"="+cfg.Name, EnvSocket+"="+cfg.Socket)
	t, err := proctree.Start(cfg.Command, proctree.Config{Session: cfg.Session, Cgroup: cfg.Cgroup})
	if err != nil {
		return err
	}
	return r.started(t, cfg.Command.Process.Pid)
}

func (r *runner) started(t *proctree.Tree, pid int) error {
	r.tree = t
	r.mu.Lock()
	r.pid = pid
	r.mu.Unlock()
	r.log.Info("trial", zap.Int("pid", pid))
	return nil
}

// watch waits for the death of the root.
func (r *runner) watch() {
	if r.tree.Wait(r.ctx) == nil {
		close(r.over)
	}
}

// loop acts until the context ends or the root is dead.
func (r *runner) loop() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		todo, wait := r.take()
		for _, a := range todo {
			r.act(a)
		}
		timer.Reset(wait)
		select {
		case <-r.ctx.Done():
			return
		case <-r.over:
			r.log.Info("root is dead")
			return
		case <-r.kick:
		case <-timer.C:
			r.tell(Event{Kind: EventTick})
		case c := <-r.hooks:
			r.connected(c)
		case w := <-r.words:
			r.heard(w)
		}
	}
}

// tell tells the machine what cannot be wrong but for the clock.
func (r *runner) tell(e Event) {
	if err := r.step(e); err != nil {
		r.log.Error("step", zap.Error(err))
	}
}

func (r *runner) act(a Action) {
	switch a.Kind {
	case ActionOpen:
		r.send(a, coop.Numbers("open", a.Epoch, a.Serial, uint64(a.Until)))
	case ActionClose:
		r.send(a, coop.Numbers("close", a.Epoch, a.Serial))
	case ActionPause, ActionResume:
		r.cancel() // a signal that is under way is out of date
		ctx, cancel := context.WithTimeout(r.ctx, opTime)
		r.cancel = cancel
		r.wg.Go(func() {
			defer cancel()
			r.signal(ctx, a)
		})
	}
}

// signal pauses or resumes the tree and tells how it went.
func (r *runner) signal(ctx context.Context, a Action) {
	do, done := r.tree.Pause, EventPaused
	if a.Kind == ActionResume {
		do, done = r.tree.Resume, EventResumed
	}
	outcome, err := do(ctx, a.Op)
	r.log.Info("signal", zap.Stringer("kind", a.Kind), zap.Uint64("epoch", a.Epoch), zap.Stringer("outcome", outcome), zap.Error(err))
	switch {
	case err != nil:
		r.tell(Event{Kind: EventFailed, Op: a.Op})
	case outcome == proctree.Gone:
		r.tell(Event{Kind: EventExited})
	default: // a stale one is one whose number is out of date for the machine too
		r.tell(Event{Kind: done, Op: a.Op})
	}
}

// send sends a message to the hook that the machine believes to be there.
func (r *runner) send(a Action, m coop.Message) {
	if r.conn == nil {
		return // it has gone in between, and the machine has been told
	}
	r.serial = a.Serial
	if err := r.conn.Send(m, sendTime); err != nil {
		r.lose(err)
	}
}

// lose gives up the hook.
func (r *runner) lose(err error) {
	r.log.Warn("hook is gone", zap.Error(err))
	_ = r.conn.Close()
	r.conn = nil
	r.tell(Event{Kind: EventDisconnected})
	if c := r.next; c != nil {
		r.next = nil
		r.connected(c)
	}
}

// connected takes a new hook. If there is one, the trial may have left that and come again, which is seen later: the
// new one, which is quiet, waits for the old one to go. A third is closed.
func (r *runner) connected(c *coop.Conn) {
	if r.conn != nil {
		r.log.Warn("second hook", zap.Int("pid", c.Peer().PID))
		if r.next != nil {
			_ = r.next.Close()
		}
		r.next = c
		return
	}
	r.conn = c
	r.log.Info("hook", zap.Int("pid", c.Peer().PID))
	r.wg.Go(func() { r.listen(c) })
	r.tell(Event{Kind: EventConnected})
}

// heard takes in what a hook has said.
func (r *runner) heard(w word) {
	if w.from != r.conn {
		return // it was given up
	}
	if w.err != nil {
		r.lose(w.err)
		return
	}
	if w.m.Verb != "quiet" {
		return
	}
	args, ok := w.m.Uints(3)
	if !ok {
		r.lose(fault(ErrProtocol, "hook", "quiet", "", "want three numbers"))
		return
	}
	r.tell(Event{Kind: EventQuiet, Serial: args[0]})
	r.report(args[0], args[1], time.Duration(args[2]))
}

// report tells the host of what ran under the message that a serial names.
func (r *runner) report(serial, quanta uint64, end time.Duration) {
	r.mu.Lock()
	lease, ok := Action{}, false
	for _, a := range r.leases { // order does not matter: the answer to a Close is about the last Open before it
		if a.Serial <= serial && (!ok || a.Serial > lease.Serial) {
			lease, ok = a, true
		}
	}
	r.mu.Unlock()
	if ok && r.cfg.Watch != nil {
		over := time.Duration(0)
		if quanta > 0 {
			over = max(end-lease.Until, 0)
		}
		r.cfg.Watch(Report{Epoch: lease.Epoch, Quanta: quanta, Overrun: over})
	}
}

// listen passes on what a hook says, until it says no more.
func (r *runner) listen(c *coop.Conn) {
	for {
		m, err := c.Receive()
		select {
		case r.words <- word{from: c, m: m, err: err}:
		case <-r.ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// accept greets those who connect, a few at a time.
func (r *runner) accept(l *coop.Listener) {
	slots := make(chan struct{}, greeters)
	for {
		c, err := l.Accept()
		switch {
		case r.ctx.Err() != nil:
			if err == nil {
				_ = c.Close()
			}
			return
		case err != nil:
			r.log.Warn("accept", zap.Error(err))
			pause(r.ctx, sendTime) // such as no descriptors left
			continue
		}
		if why := r.stranger(c.Peer()); why != "" { // who may hold no place among those that are greeted
			r.log.Warn("no hook", zap.Int("pid", c.Peer().PID), zap.String("why", why))
			_ = c.Send(coop.Message{Verb: "refuse", Args: []string{why}}, sendTime)
			_ = c.Close()
			continue
		}
		select {
		case slots <- struct{}{}:
		case <-r.ctx.Done():
			_ = c.Close()
			return
		}
		r.wg.Go(func() {
			defer func() { <-slots }()
			r.greet(c)
		})
	}
}

func (r *runner) greet(c *coop.Conn) {
	stop := context.AfterFunc(r.ctx, func() { _ = c.Close() })
	defer stop()
	if _, err := c.Greet(service, greetTime, r.admit); err != nil {
		r.log.Warn("no hook", zap.Int("pid", c.Peer().PID), zap.Error(err))
		_ = c.Close()
		return
	}
	select {
	case r.hooks <- c:
	case <-r.ctx.Done():
		_ = c.Close()
	}
}

// admit says why a hook is not taken: it is of another user, of another process tree, or
// of another trial.
func (r *runner) admit(name string, p coop.Peer) string {
	if why := r.stranger(p); why != "" {
		return why
	}
	if name != r.cfg.Name {
		return "name"
	}
	if in, err := r.tree.Contains(r.ctx, p.PID); err != nil || !in {
		return "process"
	}
	return ""
}

// stranger says whether somebody who has connected is of another user.
func (r *runner) stranger(p coop.Peer) string {
	if !slices.Contains(r.cfg.UIDs, p.UID) {
		return "user"
	}
	return ""
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// end leaves nothing running behind.
func (r *runner) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), r.cfg.Grace+endTime)
	defer cancel()
	var err error
	if r.cfg.Command != nil {
		var rep proctree.Report
		rep, err = r.tree.Terminate(ctx, r.cfg.Grace)
		r.log.Info("ended", zap.Int("killed", rep.Killed), zap.Int("zombies", rep.Zombies), zap.Error(err))
		if err == nil {
			r.tell(Event{Kind: EventExited})
		}
	} else {
		r.mu.Lock()
		op := r.machine.op + 1 // after all that was asked for
		r.mu.Unlock()
		var outcome proctree.Outcome
		outcome, err = r.tree.Pause(ctx, op)
		r.log.Info("left", zap.Stringer("outcome", outcome), zap.Error(err))
	}
	err = errors.Join(err, r.tree.Close())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cfg.Command != nil {
		r.exit = r.cfg.Command.ProcessState
	}
	return err
}
