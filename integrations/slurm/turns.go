package slurm

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/fairness"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/policy/order"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// turns is a policy that notes in which order jobs had their turn: were granted room or, while there was none, had
// room reserved, so that those behind may pass only where they do not delay it.
type turns struct {
	scheduler.Policy
	depth   int // how many blocked jobs of a pass have reservations
	blocked int // in the pass
	order   map[lockstep.JobID]int
}

func newTurns(p scheduler.Policy, backfill gang.Backfill) *turns {
	t := &turns{Policy: p, depth: 1, order: make(map[lockstep.JobID]int)}
	if backfill > 1 {
		t.depth = int(backfill)
	}
	return t
}

// Begin begins a pass.
func (t *turns) Begin(now time.Time) {
	t.blocked = 0
	t.Policy.Begin(now)
}

// Outcome notes a turn.
func (t *turns) Outcome(id lockstep.JobID, outcome lockstep.Outcome) {
	switch {
	case outcome == lockstep.Granted:
		t.note(id)
	case outcome == lockstep.Blocked && t.blocked < t.depth:
		t.blocked++
		t.note(id)
	}
	t.Policy.Outcome(id, outcome)
}

func (t *turns) note(id lockstep.JobID) {
	if _, had := t.order[id]; !had {
		t.order[id] = len(t.order) + 1
	}
}

// NextWake passes on what the policy says of itself.
func (t *turns) NextWake(now time.Time) (time.Time, bool) {
	if w, ok := t.Policy.(scheduler.Waker); ok {
		return w.NextWake(now)
	}
	return time.Time{}, false
}

// policy makes the policy of a rule, and its ledger where it has one.
func (c *Config) policy(devices int) (scheduler.Policy, *fairness.Ledger, error) {
	var o order.Order = order.FIFO{}
	switch c.Rule {
	case LTGF:
		l, err := fairness.New(fairness.Config{Capacity: lockstep.WholeGPU.Mul(int64(devices)), DefaultWeight: 1})
		if err != nil {
			return nil, nil, err
		}
		p, err := scheduler.Within(l, 0, order.SRTF{})
		return p, l, err
	case SRTF:
		o = order.SRTF{}
	case LAS:
		o = order.LAS{}
	case Slurm:
		o = order.Priority{}
	}
	q, err := order.New(order.Config{Order: o})
	if err != nil {
		return nil, nil, err
	}
	return scheduler.Ordered(q), nil, nil
}
