package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
)

// undoTime is how long taking back a lock that failed may take, which is two looks at
// the processes of the host.
const undoTime = 2 * time.Second

// Config says how a Driver holds its targets. The zero Config is valid: by signals.
type Config struct {
	Cgroup  string        `json:"cgroup,omitempty"`  // Cgroup is a cgroup v2 directory; jobs that Start starts get one of their own below it, which is frozen. "" means signals.
	Within  bool          `json:"within,omitempty"`  // Within holds a target that was not started here by the cgroup v2 that it is in, such as its container's. All in that are the job's.
	Session bool          `json:"session,omitempty"` // Session starts jobs in a session of their own, not only in a process group.
	Poll    time.Duration `json:"poll,omitempty"`    // Poll is the longest time between two looks at a tree that is stopping; 0 means 5ms.
}

// Driver holds process trees still, lets them go, and ends them. Make one with New. It is
// safe for concurrent use.
type Driver struct {
	cfg  Config
	mu   sync.Mutex
	jobs map[proctree.Identity]*job
}

var (
	_ checkpoint.Driver    = (*Driver)(nil)
	_ checkpoint.Inspector = (*Driver)(nil)
)

// job is a target that a Driver has met. Its tree knows those who have left it.
type job struct {
	tree    *proctree.Tree
	turn    chan struct{} // held by a call that changes something
	epoch   uint64        // of the next Pause; guarded by turn
	started bool          // by this Driver, which reaps it
	awaits  string        // the AckFile that was not there when it was asked; "" for none; guarded by turn
}

// New returns a Driver, or what is wrong with cfg. A Cgroup is tried out.
func New(cfg Config) (*Driver, error) {
	if cfg.Poll < 0 {
		return nil, fault(lockstep.ErrInvalid, "new", "Poll", cfg.Poll.String(), "want 0 or more")
	}
	if cfg.Cgroup != "" {
		if err := proctree.ProbeCgroup(cfg.Cgroup); err != nil {
			return nil, &checkpoint.DriverError{Kind: kindOf(err), Call: "new", Err: err}
		}
	}
	return &Driver{cfg: cfg, jobs: make(map[proctree.Identity]*job)}, nil
}

// Identify returns who has a pid now. It is checkpoint.ErrGone if nobody has.
func Identify(pid int) (checkpoint.Target, error) {
	if pid <= 0 {
		return checkpoint.Target{}, fault(lockstep.ErrInvalid, "identify", "pid", strconv.Itoa(pid), "want a pid over 0")
	}
	id, err := proctree.Identify(pid)
	if err != nil {
		return checkpoint.Target{}, &checkpoint.DriverError{Kind: kindOf(err), Call: "identify", PID: pid, Err: err}
	}
	return checkpoint.Target{PID: id.PID, Start: id.Start}, nil
}

// Start starts cmd as a job. Whatever comes of it is found again by its environment, also
// if it daemonises. The caller calls neither cmd.Wait nor cmd.Process.Wait: Terminate and
// Release reap it.
func (d *Driver) Start(cmd *exec.Cmd) (checkpoint.Target, error) {
	tree, err := proctree.Start(cmd, proctree.Config{Session: d.cfg.Session, Cgroup: d.cfg.Cgroup, Poll: d.cfg.Poll})
	if err != nil {
		return checkpoint.Target{}, &checkpoint.DriverError{Kind: kindOf(err), Call: "start", Err: err}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.jobs[tree.Root()] = &job{tree: tree, turn: make(chan struct{}, 1), started: true}
	return checkpoint.Target{PID: tree.Root().PID, Start: tree.Root().Start}, nil
}

// Wait waits until the process of t is dead; others of its tree may live on. Where it was
// started here it is not reaped yet.
func (d *Driver) Wait(ctx context.Context, t checkpoint.Target) error {
	j, err := d.find(t)
	if err != nil {
		if kindOf(err) == checkpoint.ErrGone {
			return nil
		}
		return d.fail(ctx, "wait", t, err)
	}
	if err := j.tree.Wait(ctx); err != nil {
		return d.fail(ctx, "wait", t, err)
	}
	return nil
}

// Release forgets t, and lets it be as it is; it reaps one that was started here and is
// dead. It is lockstep.ErrConflict while its cgroup has processes. A target that the
// Driver has not met is no error.
func (d *Driver) Release(t checkpoint.Target) error {
	id := proctree.Identity{PID: t.PID, Start: t.Start}
	d.mu.Lock()
	j := d.jobs[id]
	d.mu.Unlock()
	if j == nil {
		return nil
	}
	if err := j.tree.Close(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.jobs, id)
	return nil
}

// find returns the job of t, and adopts it at the first time. Nobody is signalled.
func (d *Driver) find(t checkpoint.Target) (*job, error) {
	id := proctree.Identity{PID: t.PID, Start: t.Start}
	d.mu.Lock()
	defer d.mu.Unlock()
	if j := d.jobs[id]; j != nil {
		return j, nil
	}
	tree, err := d.adopt(t)
	if err != nil {
		return nil, err
	}
	// The tree holds a pidfd of the process that it has found, so who that is cannot change from here on.
	if tree.Root() != id {
		return nil, errors.Join(fault(checkpoint.ErrGone, "find", "Start", strconv.FormatUint(t.Start, 10), "the pid is that of "+tree.Root().String()), tree.Close())
	}
	j := &job{tree: tree, turn: make(chan struct{}, 1)}
	d.jobs[id] = j
	return j, nil
}

func (d *Driver) adopt(t checkpoint.Target) (*proctree.Tree, error) {
	cfg := proctree.Config{Poll: d.cfg.Poll}
	if d.cfg.Within && t.PID > 1 {
		if _, err := proctree.Identify(t.PID); err != nil {
			return nil, err
		}
		dir, err := proctree.CgroupOf(t.PID)
		if err != nil {
			return nil, err
		}
		cfg.Within = dir
	}
	return proctree.Adopt(t.PID, cfg)
}

// lock waits for the turn of a call that changes something.
func (j *job) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case j.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (j *job) unlock() { <-j.turn }

// fail builds the error of a call, with the state that is read now.
func (d *Driver) fail(ctx context.Context, call string, t checkpoint.Target, err error) error {
	e := &checkpoint.DriverError{Kind: kindOf(err), Call: call, PID: t.PID, Err: err}
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if s, err := d.State(back, t); err == nil {
		e.State = s
	}
	return e
}

// Probe says what can be done here. It changes nothing.
func (d *Driver) Probe(ctx context.Context) (checkpoint.Caps, error) {
	if err := ctx.Err(); err != nil {
		return checkpoint.Caps{}, err
	}
	no := func(what checkpoint.Ability, detail string) checkpoint.Unsupported {
		return checkpoint.Unsupported{What: what, Reason: lockstep.ReasonUnsupported, Detail: detail}
	}
	caps := checkpoint.Caps{Driver: "process"}
	image := no(checkpoint.CanImage, "signals write no image; ask the framework, or CRIU")
	ipc := no(checkpoint.CanIPC, "device memory is not looked at")
	rest := []checkpoint.Unsupported{no(checkpoint.CanRemap, "device memory is not moved"), no(checkpoint.CanSuspend, "device memory stays where it is")}
	if _, err := proctree.Identify(os.Getpid()); err != nil {
		caps.Limits = append([]checkpoint.Unsupported{image, ipc, no(checkpoint.CanLock, err.Error())}, rest...)
		caps.Limits = append(caps.Limits, no(checkpoint.CanTree, err.Error()))
		return caps, nil
	}
	caps.Abilities = []checkpoint.Ability{checkpoint.CanLock, checkpoint.CanTree}
	caps.Limits = append([]checkpoint.Unsupported{image, ipc}, rest...)
	return caps, nil
}

// State asks the kernel. A tree is Locked if every thread of every member is stopped or
// traced, or its cgroup has frozen, by whoever did it. It is Running if only some are.
func (d *Driver) State(ctx context.Context, t checkpoint.Target) (checkpoint.State, error) {
	j, err := d.find(t)
	if err != nil {
		if kindOf(err) == checkpoint.ErrGone {
			return checkpoint.Gone, nil
		}
		return "", &checkpoint.DriverError{Kind: kindOf(err), Call: "state", PID: t.PID, Err: err}
	}
	s, err := j.tree.State(ctx)
	switch {
	case err != nil:
		return "", &checkpoint.DriverError{Kind: kindOf(err), Call: "state", PID: t.PID, Err: err}
	case s.Phase == proctree.Ended:
		d.forget(j)
		return checkpoint.Gone, nil
	case s.Phase == proctree.Paused, proctree.Frozen(t.PID):
		return checkpoint.Locked, nil
	}
	return checkpoint.Running, nil
}

// forget drops a tree that has ended, unless its root is this Driver's to reap.
func (d *Driver) forget(j *job) {
	if j.started {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.jobs[j.tree.Root()] == j {
		delete(d.jobs, j.tree.Root())
		_ = j.tree.Close() // of a tree that was adopted, which has nothing to reap or remove
	}
}

// Inspect says what stands in the way of holding or asking t, as far as can be seen.
func (d *Driver) Inspect(ctx context.Context, t checkpoint.Target) ([]checkpoint.Unsupported, error) {
	j, err := d.find(t)
	if err != nil {
		return nil, d.fail(ctx, "inspect", t, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, d.fail(ctx, "inspect", t, err)
	}
	if _, frozen := j.foreign(ctx, t); frozen {
		return []checkpoint.Unsupported{{What: checkpoint.CanLock, Reason: lockstep.ReasonBusy, Detail: foreignFreeze}}, nil
	}
	return nil, nil
}

const foreignFreeze = "its cgroup was frozen by somebody else"

// foreign says how the tree is, and whether its cgroup is frozen but not by its Tree.
func (j *job) foreign(ctx context.Context, t checkpoint.Target) (proctree.Status, bool) {
	s, err := j.tree.State(ctx)
	return s, err == nil && s.Phase != proctree.Paused && s.Phase != proctree.Ended && proctree.Frozen(t.PID)
}

// Lock stops the tree of t, or freezes its cgroup, and returns when the kernel shows that
// every thread is halted. If that takes too long all of them are let go again.
//
// What is queued on a device runs on. A tree that somebody else has stopped already is
// success; one whose cgroup somebody else has frozen is ErrIllegalState, since they may
// thaw it.
func (d *Driver) Lock(ctx context.Context, t checkpoint.Target, o checkpoint.LockOptions) error {
	if o.Timeout <= 0 {
		return &checkpoint.DriverError{Kind: lockstep.ErrInvalid, Call: "lock", PID: t.PID, Err: fault(lockstep.ErrInvalid, "lock", "Timeout", o.Timeout.String(), "want more than 0")}
	}
	within, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	j, err := d.find(t)
	if err != nil {
		return d.fail(ctx, "lock", t, err)
	}
	if err := j.lock(within); err != nil {
		return d.fail(ctx, "lock", t, err)
	}
	err = d.hold(ctx, within, j, t)
	j.unlock()
	if err != nil {
		return d.fail(ctx, "lock", t, err)
	}
	return nil
}

// hold pauses a job, and takes that back if it fails.
func (d *Driver) hold(ctx, within context.Context, j *job, t checkpoint.Target) error {
	before, frozen := j.foreign(within, t)
	if frozen {
		return fault(checkpoint.ErrIllegalState, "lock", "pid", strconv.Itoa(t.PID), foreignFreeze)
	}
	out, err := j.tree.Pause(within, j.epoch)
	switch {
	case err == nil && out == proctree.Gone:
		return j.gone(ctx, "lock", t)
	case err == nil, before.Phase == proctree.Paused: // one that was held before stays so
		return err
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	j.epoch++
	_, back := j.tree.Resume(undo, j.epoch)
	return errors.Join(err, back)
}

// gone says why a tree cannot be held any more.
func (j *job) gone(ctx context.Context, call string, t checkpoint.Target) error {
	if s, err := j.tree.State(ctx); err == nil && s.Phase != proctree.Ended {
		return fault(checkpoint.ErrIllegalState, call, "pid", strconv.Itoa(t.PID), "it was told to end")
	}
	return fault(checkpoint.ErrGone, call, "pid", strconv.Itoa(t.PID), "nobody of it is alive")
}

// Suspend is ErrUnsupported.
func (d *Driver) Suspend(ctx context.Context, t checkpoint.Target) (checkpoint.Moved, error) {
	return checkpoint.Moved{}, d.unsupported(ctx, "suspend", t)
}

// Resume is ErrUnsupported.
func (d *Driver) Resume(ctx context.Context, t checkpoint.Target, _ checkpoint.ResumeOptions) (checkpoint.Moved, error) {
	return checkpoint.Moved{}, d.unsupported(ctx, "resume", t)
}

func (d *Driver) unsupported(ctx context.Context, call string, t checkpoint.Target) error {
	if _, err := d.find(t); err != nil {
		return d.fail(ctx, call, t, err)
	}
	return d.fail(ctx, call, t, &lockstep.Error{Kind: proctree.ErrUnsupported, Op: "checkpoint/process: " + call, Reason: "device memory stays where it is"})
}

// Unlock lets the tree of t go on. One that runs is success.
func (d *Driver) Unlock(ctx context.Context, t checkpoint.Target) error {
	j, err := d.find(t)
	if err != nil {
		return d.fail(ctx, "unlock", t, err)
	}
	if err := j.lock(ctx); err != nil {
		return d.fail(ctx, "unlock", t, err)
	}
	j.epoch++
	out, err := j.tree.Resume(ctx, j.epoch)
	if err == nil {
		switch _, frozen := j.foreign(ctx, t); {
		case out == proctree.Gone:
			err = j.gone(ctx, "unlock", t)
		case frozen:
			err = fault(checkpoint.ErrIllegalState, "unlock", "pid", strconv.Itoa(t.PID), foreignFreeze)
		}
	}
	j.unlock()
	if err != nil {
		return d.fail(ctx, "unlock", t, err)
	}
	return nil
}
