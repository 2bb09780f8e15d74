package proctree

import (
	"context"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Ask sends SIGTERM to those members that are named, or to all if none is, and lets the
// whole tree go on, so that they can act on it. It returns how many were asked. A process
// that is not of the tree, or has died since, is ErrUnknown; then nobody was asked.
//
// After Ask the tree can be neither paused nor resumed.
func (t *Tree) Ask(ctx context.Context, only ...Identity) (int, error) {
	if err := t.lock(ctx, "ask"); err != nil {
		return 0, err
	}
	defer t.unlock()
	if err := t.scan(); err != nil {
		return 0, err
	}
	to := t.sorted(func(m *member) bool { return m.alive && (len(only) == 0 || slices.Contains(only, m.Identity)) })
	for _, id := range only {
		if !slices.ContainsFunc(to, func(m *member) bool { return m.Identity == id }) {
			return 0, fault(lockstep.ErrUnknown, "ask", "process", id.String(), "is not of the tree, or has died")
		}
	}
	t.over = true
	if len(only) == 0 {
		return len(to), t.urge(to, to)
	}
	// Who is asked alone is signalled alone, though its group may be the tree's.
	for _, m := range to {
		if !t.hold(m) {
			continue
		}
		if err := m.handle.signal(term); err != nil {
			return 0, refusal("process", m.Identity, err)
		}
	}
	return len(to), t.urge(nil, t.sorted(func(m *member) bool { return m.alive }))
}

// Await waits until nobody of the tree is alive. If ctx ends first the error is a
// *StuckError that names the living. It signals nobody, and lets other calls in between.
func (t *Tree) Await(ctx context.Context) error {
	for {
		if err := t.lock(ctx, "await"); err != nil {
			return err
		}
		err := t.until(ctx, time.Now().Add(glance), nil)
		left := len(t.sorted(func(m *member) bool { return m.alive }))
		t.unlock()
		if err != nil || left == 0 {
			return err
		}
	}
}
