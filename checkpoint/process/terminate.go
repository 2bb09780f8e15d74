package process

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
)

// Terminate ends a target with all that came of it, as a Driver does that has not met it
// before: of a target that daemonised earlier only the part is known that is still below
// it.
func Terminate(ctx context.Context, t checkpoint.Target, g Grace) (Report, error) {
	d, err := New(Config{})
	if err != nil {
		return Report{}, err
	}
	r, err := d.Terminate(ctx, t, g)
	return r, errors.Join(err, d.Release(t))
}

// Terminate ends t and all that came of it: SIGTERM to whom g says, a wait for all to
// exit, SIGKILL to everybody at the end of the grace and not before, and a wait until the
// kernel confirms that nobody is alive. It then reaps what is this process's to reap.
// Stopped and frozen targets are let go so that they can act.
//
// A *StuckError says that somebody is still alive. One of kind checkpoint.ErrTimeout means
// that ctx ended before the grace did, and nobody was killed. Terminate may be called
// again; SIGTERM is sent again then, and an acknowledgement that has come meanwhile counts. Bad input and an AckFile that is there already change
// nothing. A target that is gone is checkpoint.ErrGone, unless it was started here: its
// end is reported.
func (d *Driver) Terminate(ctx context.Context, t checkpoint.Target, g Grace) (Report, error) {
	if err := g.Validate(); err != nil {
		return Report{}, err
	}
	e := &ending{d: d, t: t, g: g.withDefaults(), seen: make(map[proctree.Identity]bool)}
	if err := e.prepare(ctx); err != nil {
		return Report{}, err
	}
	defer e.job.unlock()
	if err := e.run(ctx); err != nil {
		return e.r, err
	}
	if err := d.Release(t); err != nil {
		return e.r, err
	}
	e.judge(ctx)
	return e.r, nil
}

// Check says what Terminate would complain of if it were called with g now, sorted: a shell
// in the way, a missing handler. It signals nobody.
func (d *Driver) Check(ctx context.Context, t checkpoint.Target, g Grace) ([]Complaint, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	e := &ending{d: d, t: t, g: g, seen: make(map[proctree.Identity]bool)}
	if err := e.prepare(ctx); err != nil {
		return nil, err
	}
	e.job.unlock()
	return e.r.Complaints, nil
}

// ending is one run of Terminate.
type ending struct {
	d     *Driver
	t     checkpoint.Target
	g     Grace
	job   *job
	r     Report
	asked time.Time
	seen  map[proctree.Identity]bool // members that were seen outside of the root's group
}

// prepare finds the job and looks at it. Nobody is signalled. On success the turn is held.
func (e *ending) prepare(ctx context.Context) error {
	j, err := e.d.find(e.t)
	if err != nil {
		return e.d.fail(ctx, "terminate", e.t, err)
	}
	if err := j.lock(ctx); err != nil {
		return e.d.fail(ctx, "terminate", e.t, err)
	}
	e.job = j
	if err := e.ackPending(); err != nil {
		j.unlock()
		return err
	}
	s, frozen := j.foreign(ctx, e.t)
	if s.Phase == proctree.Ended && !j.started {
		j.unlock()
		return e.d.fail(ctx, "terminate", e.t, fault(checkpoint.ErrGone, "terminate", "pid", "", "nobody of it is alive"))
	}
	if frozen {
		e.r.complain(Frozen)
	}
	e.look(s)
	e.inspect(s)
	return nil
}

// ackPending refuses an acknowledgement that was given before it was asked for. One that
// has come since an earlier Terminate asked, whose caller gave up, counts.
func (e *ending) ackPending() error {
	if e.g.AckFile == "" {
		return nil
	}
	_, err := os.Lstat(e.g.AckFile)
	switch {
	case err == nil && e.job.awaits == e.g.AckFile:
	case err == nil:
		return fault(lockstep.ErrConflict, "terminate", "AckFile", e.g.AckFile, "is there already, so it would prove nothing")
	case !errors.Is(err, os.ErrNotExist):
		return fault(lockstep.ErrInvalid, "terminate", "AckFile", e.g.AckFile, err.Error())
	}
	return nil
}

// look counts who has left the group of the root.
func (e *ending) look(s proctree.Status) {
	root := e.job.tree.Root()
	group := root.PID // for one that was adopted, the group that it is in
	for _, p := range s.Members {
		if p.Identity == root {
			group = p.Group
		}
	}
	for _, p := range s.Members {
		if p.Group != group {
			e.seen[p.Identity] = true
		}
	}
	e.r.Escaped = len(e.seen)
}

// inspect says what is wrong with those who will be asked.
func (e *ending) inspect(s proctree.Status) {
	if e.g.Immediate || e.g.To == All {
		return
	}
	id := e.recipient()
	at := slices.IndexFunc(s.Members, func(p proctree.Process) bool { return p.Identity == id })
	if at < 0 {
		return
	}
	if isShell(s.Members[at].Name) && slices.ContainsFunc(s.Members, func(p proctree.Process) bool { return p.Parent == id.PID }) {
		e.r.complain(ShellRoot)
	}
	switch proctree.OnTerm(id.PID) {
	case proctree.Dies:
		e.r.complain(TermUncaught)
	case proctree.Ignores:
		e.r.complain(TermIgnored)
	case proctree.Drops:
		e.r.complain(TermDropped)
	}
}

func (e *ending) recipient() proctree.Identity {
	if e.g.To == Named {
		return proctree.Identity{PID: e.g.Forward.PID, Start: e.g.Forward.Start}
	}
	return e.job.tree.Root()
}

func isShell(name string) bool {
	switch name {
	case "sh", "bash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "busybox", "fish", "tcsh", "csh":
		return true
	}
	return false
}

// run asks, waits and kills.
func (e *ending) run(ctx context.Context) error {
	e.asked = time.Now()
	if !e.g.Immediate {
		if err := e.ask(ctx); err != nil {
			return err
		}
		ended, err := e.wait(ctx)
		if err != nil {
			return err
		}
		if s, err := e.job.tree.State(ctx); err == nil && !ended {
			e.look(s)
			if !slices.ContainsFunc(s.Members, func(p proctree.Process) bool { return p.Identity == e.job.tree.Root() }) {
				e.r.complain(Orphans)
			}
		}
	}
	return e.kill(ctx)
}

// ask sends SIGTERM.
func (e *ending) ask(ctx context.Context) error {
	var only []proctree.Identity
	if e.g.To != All {
		only = append(only, e.recipient())
	}
	n, err := e.job.tree.Ask(ctx, only...)
	if errors.Is(err, lockstep.ErrUnknown) && e.g.To == Root {
		err = nil // it is dead already, and those it has left behind get what is left of the grace
	}
	if errors.Is(err, lockstep.ErrUnknown) {
		return fault(lockstep.ErrInvalid, "terminate", "Forward", e.recipient().String(), "is not of the tree, or has died")
	}
	if errors.Is(err, proctree.ErrTimeout) {
		return e.stuck(checkpoint.ErrTimeout, err)
	}
	if err != nil {
		return e.d.fail(ctx, "terminate", e.t, err)
	}
	e.r.Asked, e.job.awaits = n, e.g.AckFile
	return nil
}

// wait waits until all have ended or the grace is over.
func (e *ending) wait(ctx context.Context) (ended bool, err error) {
	deadline := e.asked.Add(e.g.Period)
	w := e.watch()
	defer w.stop()
	for {
		within, cancel := context.WithDeadline(ctx, deadline)
		if !e.r.Acked {
			w.onAck(cancel)
		}
		err := e.job.tree.Await(within)
		cancel()
		if err == nil {
			w.stop() // what was written before the last of them died may not have been seen yet
		}
		if !e.r.Acked && (w.heard() || err == nil && e.isAcked()) {
			e.r.Acked, e.r.AckAfter = true, time.Since(e.asked)
			if limit := time.Now().Add(e.g.Linger); e.g.Linger > 0 && limit.Before(deadline) {
				deadline = limit
			}
		}
		switch {
		case err == nil:
			return true, nil
		case ctx.Err() != nil:
			return false, e.stuck(checkpoint.ErrTimeout, err)
		case !errors.Is(err, proctree.ErrTimeout):
			return false, e.d.fail(ctx, "terminate", e.t, err)
		case !time.Now().Before(deadline):
			return false, nil
		}
	}
}

// watcher waits for an acknowledgement.
type watcher struct {
	mu   sync.Mutex
	got  bool
	tell func() // nil for none

	once sync.Once
	done chan struct{}
	wg   sync.WaitGroup
}

func (e *ending) watch() *watcher {
	w := &watcher{done: make(chan struct{})}
	if e.g.Ack == nil && e.g.AckFile == "" {
		return w
	}
	w.wg.Go(func() {
		every := time.NewTicker(e.g.Poll)
		defer every.Stop()
		for {
			select {
			case <-e.g.Ack:
			case <-every.C:
				if !e.isAcked() {
					continue
				}
			case <-w.done:
				select {
				case <-e.g.Ack:
				default:
					return
				}
			}
			w.hear()
			return
		}
	})
	return w
}

func (w *watcher) hear() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.got = true
	if w.tell != nil {
		w.tell()
	}
}

func (w *watcher) heard() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got
}

// onAck has tell called at the acknowledgement, or at once if it has come.
func (w *watcher) onAck(tell func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell = tell
	if w.got {
		tell()
	}
}

// stop leaves no goroutine behind.
func (w *watcher) stop() {
	w.once.Do(func() { close(w.done) })
	w.wg.Wait()
}

// isAcked says whether the file is there. A link is none: it may point to anything.
func (e *ending) isAcked() bool {
	if e.g.AckFile == "" {
		return false
	}
	info, err := os.Lstat(e.g.AckFile)
	return err == nil && info.Mode().IsRegular()
}

// kill kills whoever is alive, waits for the kernel and reaps.
func (e *ending) kill(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, e.g.Confirm)
	defer cancel()
	rep, err := e.job.tree.Terminate(within, 0)
	e.r.Killed, e.r.Zombies = rep.Killed, rep.Zombies
	e.r.Took = time.Since(e.asked)
	var stuck *proctree.StuckError
	switch {
	case errors.As(err, &stuck) && rep.Killed == 0: // ctx had ended before
		return e.stuck(checkpoint.ErrTimeout, err)
	case errors.As(err, &stuck):
		return e.stuck(ErrStillAlive, err)
	case err != nil:
		return e.d.fail(ctx, "terminate", e.t, err)
	}
	e.r.Exited = rep.Killed == 0
	if e.r.Acked && !e.r.Exited {
		e.r.complain(AckedOnly)
	}
	if p := e.job.tree.ProcessState(); p != nil {
		e.r.Exit = exitOf(p)
	}
	return nil
}

func exitOf(p *os.ProcessState) Exit {
	e := Exit{Known: true, Code: max(p.ExitCode(), 0)}
	if s, ok := p.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		e.Signal = int(s.Signal())
	}
	return e
}

// stuck says who is alive.
func (e *ending) stuck(kind, err error) error {
	out := &StuckError{Kind: kind, Of: e.t, Err: err}
	var stuck *proctree.StuckError
	var left []proctree.Process
	if errors.As(err, &stuck) {
		out.Err, left = stuck.Err, stuck.Members
	}
	if len(left) == 0 { // the context ended between two looks
		ctx, cancel := context.WithTimeout(context.Background(), undoTime)
		defer cancel()
		if s, err := e.job.tree.State(ctx); err == nil {
			left = s.Members
		}
	}
	for _, p := range left {
		out.Left = append(out.Left, checkpoint.Target{PID: p.PID, Start: p.Start, Job: e.t.Job, Rank: e.t.Rank})
	}
	return out
}

// judge says whether the work is safe.
func (e *ending) judge(ctx context.Context) {
	c, r := e.g.Contract, &e.r
	r.Claimed = r.Acked || r.Exit.Known && r.Exit.Signal == 0 && slices.Contains(c.Saved, r.Exit.Code)
	if c.Image == nil {
		r.Verdict = NotSaved
		if r.Claimed {
			r.Verdict = Unproven
		}
		return
	}
	there, err := c.Image(ctx)
	switch {
	case err != nil:
		r.Verdict, r.ImageErr = Unproven, err
	case there:
		r.Verdict = Saved
	default:
		r.Verdict = NotSaved
		if r.Claimed {
			r.complain(NoImage)
		}
	}
}
