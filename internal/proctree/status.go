package proctree

import "context"

// Phase says how a tree is as a whole.
type Phase int

// The phases.
const (
	Running Phase = iota + 1 // nobody is stopped, or only some of the threads of a member
	Mixed                    // some members are stopped and some are not
	Paused                   // every thread of every member is stopped, or the cgroup is frozen
	Ended                    // nobody is alive
)

// String returns the phase in a word.
func (p Phase) String() string {
	switch p {
	case Running:
		return "running"
	case Mixed:
		return "mixed"
	case Paused:
		return "paused"
	case Ended:
		return "ended"
	}
	return "unknown"
}

// Status is what one look at a tree has shown.
type Status struct {
	Phase   Phase     // Phase is how the tree is.
	Epoch   uint64    // Epoch is the latest that Pause or Resume was told.
	Members []Process // Members are those alive, by pid; the caller owns them.
	Stopped int       // Stopped is how many of Members are stopped with all their threads, or frozen.
	Zombies int       // Zombies is how many of the tree are dead and not reaped; the root is one of them until the end.
}

// State looks at the tree once. What runs may have changed before it returns.
func (t *Tree) State(ctx context.Context) (Status, error) {
	if err := t.lock(ctx, "state"); err != nil {
		return Status{}, err
	}
	defer t.unlock()
	if err := t.scan(); err != nil {
		return Status{}, err
	}
	frozen := t.cage != nil && t.cage.frozen()
	s := Status{Epoch: t.stage.epoch}
	alive := t.sorted(func(m *member) bool { return m.alive })
	s.Members, s.Zombies = processes(alive), len(t.members)-len(alive)
	for _, m := range alive {
		if m.caged && frozen || !m.running {
			s.Stopped++
		}
	}
	switch s.Stopped {
	case 0:
		s.Phase = Running
	case len(alive):
		s.Phase = Paused
	default:
		s.Phase = Mixed
	}
	if len(alive) == 0 {
		s.Phase = Ended
	}
	return s, nil
}
