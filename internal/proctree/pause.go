package proctree

import (
	"context"
	"slices"
	"time"
)

// Outcome says what a call found and did.
type Outcome int

// The outcomes.
const (
	Done    Outcome = iota + 1 // the tree is now as wanted
	Already                    // the tree was as wanted before; nothing was signalled
	Stale                      // a later epoch has spoken; nothing was looked at or done
	Gone                       // nobody of the tree is alive
)

// String returns the outcome in a word.
func (o Outcome) String() string {
	switch o {
	case Done:
		return "done"
	case Already:
		return "already"
	case Stale:
		return "stale"
	case Gone:
		return "gone"
	}
	return "unknown"
}

// stage orders commands: by epoch, and in one epoch Resume before Pause.
type stage struct {
	epoch uint64
	pause bool
}

// advance moves on to s, unless a later stage was reached already.
func (t *Tree) advance(s stage) bool {
	if s.epoch < t.stage.epoch || s.epoch == t.stage.epoch && t.stage.pause && !s.pause {
		return false
	}
	t.stage = s
	return true
}

// patience is after how many looks a vfork is suspected.
const patience = 8

// Pause stops the tree and returns when every thread of every member was seen
// stopped or traced, twice in a row and by the same members, or when the cgroup has
// frozen. Its epoch is that of the Resume before it, or later.
//
// If ctx ends first the error is a *StuckError that names whoever still runs. The
// signals stay sent, so most of the tree is stopped then; Resume undoes it, and Pause
// goes on with it.
func (t *Tree) Pause(ctx context.Context, epoch uint64) (Outcome, error) {
	if err := t.lock(ctx, "pause"); err != nil {
		return 0, err
	}
	defer t.unlock()
	if t.over {
		return Gone, nil
	}
	if !t.advance(stage{epoch: epoch, pause: true}) {
		return Stale, nil
	}
	outcome := Already
	var before []Identity // whoever was there at the last look, if all were halted
	for looks := 0; ; looks++ {
		if err := t.scan(); err != nil {
			return 0, err
		}
		alive := t.sorted(func(m *member) bool { return m.alive })
		if len(alive) == 0 {
			return Gone, nil
		}
		frozen := t.cage != nil && t.cage.frozen()
		running := slices.DeleteFunc(slices.Clone(alive), func(m *member) bool { return m.caged && frozen || !m.caged && !m.running })
		if len(running) == 0 {
			ids := identities(alive)
			if slices.Equal(ids, before) {
				return outcome, nil
			}
			before = ids
			continue
		}
		if err := ctx.Err(); err != nil {
			return 0, &StuckError{Op: "pause", Members: processes(running), Err: err}
		}
		before, outcome = nil, Done
		if err := t.halt(running, looks); err != nil {
			return 0, err
		}
		t.rest(ctx, looks)
	}
}

// halt stops whoever runs.
func (t *Tree) halt(running []*member, looks int) error {
	t.halting = true
	if t.cage != nil {
		if err := t.cage.freeze(true); err != nil {
			return err
		}
	}
	running = slices.DeleteFunc(slices.Clone(running), func(m *member) bool { return m.caged })
	if looks%patience == patience-1 {
		// Whoever was let go is stopped again at the next look.
		if nudged, err := t.nudge(running); nudged || err != nil {
			return err
		}
	}
	return t.send(stop, running)
}

// nudge lets the stopped children go for a moment of whoever waits where no signal but
// SIGKILL ends the wait. A parent in vfork waits so until its child has called exec,
// which a child that was stopped in between never does.
// It says whether there was one.
func (t *Tree) nudge(running []*member) (nudged bool, err error) {
	for _, m := range running {
		if !m.waiting {
			continue
		}
		for _, c := range t.sorted(func(c *member) bool { return c.Parent == m.PID && c.stopped && c.Threads == 1 }) {
			if !t.hold(c) {
				continue
			}
			if err := c.handle.signal(cont); err != nil {
				return false, refusal("process", c.Identity, err)
			}
			nudged = true
		}
	}
	return nudged, nil
}

// Resume lets the tree go on, and returns when every member has been told so that was
// there at a look at which nobody new was found. The epoch is that of the Pause after it.
// If it is not done by the end of ctx the error is a *StuckError.
func (t *Tree) Resume(ctx context.Context, epoch uint64) (Outcome, error) {
	if err := t.lock(ctx, "resume"); err != nil {
		return 0, err
	}
	defer t.unlock()
	if t.over {
		return Gone, nil
	}
	if !t.advance(stage{epoch: epoch}) {
		return Stale, nil
	}
	if t.cage != nil && t.halting {
		if err := t.cage.freeze(false); err != nil {
			return 0, err
		}
	}
	out, err := t.letGo(ctx)
	if err == nil {
		t.halting = false
	}
	return out, err
}

// letGo continues all members, and those that are found after that.
func (t *Tree) letGo(ctx context.Context) (Outcome, error) {
	outcome := Already
	told := make(map[Identity]bool)
	for looks := 0; ; looks++ {
		if err := t.scan(); err != nil {
			return 0, err
		}
		alive := t.sorted(func(m *member) bool { return m.alive })
		if len(alive) == 0 {
			return Gone, nil
		}
		thawing := t.cage != nil && t.cage.frozen()
		// A stop that was sent may not have been acted on yet, so after one all are told.
		waiting := slices.DeleteFunc(slices.Clone(alive), func(m *member) bool {
			return told[m.Identity] || !m.stopped && !t.halting
		})
		if len(waiting) == 0 && !thawing {
			return outcome, nil
		}
		if err := ctx.Err(); err != nil {
			return 0, &StuckError{Op: "resume", Members: processes(alive), Err: err}
		}
		outcome = Done
		if err := t.send(cont, waiting); err != nil {
			return 0, err
		}
		for _, m := range waiting {
			told[m.Identity] = true
		}
		if thawing {
			t.rest(ctx, looks)
		}
	}
}

// rest waits between two looks: longer the more there were, and not past the end of ctx.
func (t *Tree) rest(ctx context.Context, looks int) {
	timer := time.NewTimer(min(look<<min(looks, 10), t.cfg.Poll))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func identities(list []*member) []Identity {
	ids := make([]Identity, len(list))
	for i, m := range list {
		ids[i] = m.Identity
	}
	return ids
}
