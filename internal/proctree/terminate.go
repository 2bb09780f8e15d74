package proctree

import (
	"context"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Report says how a tree ended.
type Report struct {
	Asked   int // Asked is how many members were sent SIGTERM.
	Killed  int // Killed is how many members were still alive when the grace was over.
	Zombies int // Zombies is how many dead members are left for others to reap.
}

// Terminate ends the tree: it sends SIGTERM to every member, lets stopped ones go on
// so that they can act on it, waits for grace, and kills whoever is still alive. It
// returns when nobody is, and has then reaped the root and all that are children of
// this process. A grace of 0 kills at once.
//
// SIGTERM is sent before SIGCONT: it waits in a stopped process and is the first thing
// that it sees, so that it does no work in between. Whoever joins the tree later is not
// asked, only killed.
//
// After Terminate the tree can be neither paused nor resumed. If ctx ends first the
// error is a *StuckError that names the living, and Terminate may be called again;
// nobody is killed before the grace is over.
func (t *Tree) Terminate(ctx context.Context, grace time.Duration) (Report, error) {
	if grace < 0 {
		return Report{}, fault(lockstep.ErrInvalid, "terminate", "grace", grace.String(), "want 0 or more")
	}
	if err := t.lock(ctx, "terminate"); err != nil {
		return Report{}, err
	}
	defer t.unlock()
	t.over = true
	var r Report
	if grace > 0 {
		if err := t.ask(&r); err != nil {
			return r, err
		}
		if err := t.until(ctx, time.Now().Add(grace), nil); err != nil {
			return r, err
		}
	}
	first := true
	err := t.until(ctx, noDeadline, func(alive []*member) error {
		if first {
			r.Killed, first = len(alive), false
		}
		if t.cage != nil {
			t.cage.kill()
		}
		return t.send(kill, alive)
	})
	if err != nil {
		return r, err
	}
	return r, t.bury(&r)
}

// ask sends SIGTERM to all and sees that they get it.
func (t *Tree) ask(r *Report) error {
	if err := t.scan(); err != nil {
		return err
	}
	alive := t.sorted(func(m *member) bool { return m.alive })
	r.Asked = len(alive)
	return t.urge(alive, alive)
}

// urge sends SIGTERM to some and then lets others go on.
func (t *Tree) urge(asked, going []*member) error {
	if err := t.send(term, asked); err != nil {
		return err
	}
	if t.cage != nil {
		if err := t.cage.freeze(false); err != nil {
			return err
		}
	}
	t.halting = false
	return t.send(cont, going)
}

// noDeadline is for until.
var noDeadline time.Time

// until looks at the tree, acting on the living each time, until there are none. With
// a deadline it gives up then, which is no error.
func (t *Tree) until(ctx context.Context, deadline time.Time, act func([]*member) error) error {
	for looks := 0; ; looks++ {
		if err := t.scan(); err != nil {
			return err
		}
		alive := t.sorted(func(m *member) bool { return m.alive })
		if len(alive) == 0 {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return &StuckError{Op: "terminate", Members: processes(alive), Err: err}
		}
		wait := glance // whoever exits ends it
		if act != nil {
			wait = min(look<<min(looks, 10), t.cfg.Poll)
		}
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return nil
			}
			wait = min(wait, left)
		}
		if act != nil {
			if err := act(alive); err != nil {
				return err
			}
		}
		var hold []handle
		for _, m := range alive {
			if t.hold(m) {
				hold = append(hold, m.handle)
			}
		}
		t.kernel.wait(hold, wait)
	}
}

// bury reaps the dead that are this process's to reap, the root last.
func (t *Tree) bury(r *Report) error {
	// Whose children the dead are is settled only now that all are dead.
	if err := t.scan(); err != nil {
		return err
	}
	self := t.kernel.self()
	for _, m := range t.sorted(func(m *member) bool { return m.PID != t.root.PID && m.Parent == self }) {
		m.drop()
		t.kernel.reap(m.PID)
	}
	t.reap()
	if err := t.scan(); err != nil {
		return err
	}
	for _, m := range t.members { // order does not matter
		if !m.alive {
			r.Zombies++
		}
	}
	return nil
}
