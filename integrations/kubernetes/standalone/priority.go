package standalone

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/order"
	"github.com/lockstep-gpu/lockstep/scheduler"
)

// seniority is the policy of the rule Priority. A gang that comes back, since its
// pods were made anew, has the place of the one that it was.
type seniority struct {
	scheduler.Policy
	queue *order.Queue
	first map[lockstep.JobID]time.Time // when those that came back first came
}

func newSeniority() (*seniority, error) {
	q, err := order.New(order.Config{Order: order.Priority{Then: holders{}}})
	if err != nil {
		return nil, err
	}
	return &seniority{Policy: scheduler.Ordered(q), queue: q, first: make(map[lockstep.JobID]time.Time)}, nil
}

// Submit is that of scheduler.Policy.
func (s *seniority) Submit(now time.Time, g *lockstep.Gang) error {
	job := order.JobOf(g)
	if first, ok := s.first[g.ID]; ok && !first.After(now) {
		job.First = first
	}
	return s.queue.Submit(now, job)
}

// holders puts who runs before who waits, so that nobody is stopped for another of
// the same priority; ties go by who came first.
type holders struct{}

// Compare is that of order.Order.
func (holders) Compare(a, b *order.Job) int {
	switch x, y := a.Executed() > 0, b.Executed() > 0; {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}
