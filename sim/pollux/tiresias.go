package pollux

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy/order"
)

// Tiresias is least attained service in two queues, with the counts and batches of the users: policy/order
// says whose turn it is.
type Tiresias struct {
	q     *order.Queue
	known map[lockstep.JobID]*seat
	last  int64
}

// seat is a job's place.
type seat struct {
	number int64 // in its queue, by who came to it first; it changes only while the job is in no queue
	level  int
	runs   bool
}

// demotion is the service at which a job sinks to the second queue: 16 GPU-hours.
const demotion = 16 * time.Hour

// NewTiresias returns the policy, for one run.
func NewTiresias() *Tiresias {
	t := &Tiresias{known: map[lockstep.JobID]*seat{}}
	q, err := order.New(order.Config{Order: order.LAS{Limits: []time.Duration{demotion}, Then: seats{t.known}}})
	if err != nil {
		panic(fmt.Sprintf("pollux: tiresias: %v", err)) // invariant: the configuration is a constant one
	}
	t.q = q
	return t
}

// seats orders a queue by seat number.
type seats struct{ of map[lockstep.JobID]*seat }

// Compare implements order.Order.
func (s seats) Compare(a, b *order.Job) int { return cmp.Compare(s.of[a.ID].number, s.of[b.ID].number) }

// key names a job such that the order of names is that of the workload.
func key(a *Active) lockstep.JobID { return lockstep.JobID(fmt.Sprintf("%06d", a.Index)) }

// UserBatch implements UserBatch.
func (*Tiresias) UserBatch() {}

// Decide implements Policy: the queues are walked, and who fits into what is left of the GPUs runs.
func (t *Tiresias) Decide(now time.Duration, c Cluster, jobs []*Active) ([][]Slot, error) {
	at := time.Unix(0, 0).Add(now)
	index := make(map[lockstep.JobID]int, len(jobs))
	for i, a := range jobs {
		index[key(a)] = i
	}
	if err := t.update(at, jobs, index); err != nil {
		return nil, err
	}
	placed := make([][]Slot, len(jobs))
	var starts []int
	free := c.Nodes * c.GPUsPerNode
	t.q.Begin(at)
	for id, ok := t.q.Next(); ok; id, ok = t.q.Next() {
		i, s := index[id], t.known[id]
		if jobs[i].Job.GPUs > free {
			t.q.Outcome(id, lockstep.Blocked)
			continue
		}
		free -= jobs[i].Job.GPUs
		if s.runs {
			placed[i] = jobs[i].Held
			t.q.Outcome(id, lockstep.Kept)
		} else {
			starts = append(starts, i)
			t.q.Outcome(id, lockstep.Granted)
		}
	}
	room := newRoom(c, placed)
	for _, i := range starts {
		placed[i] = room.spread(jobs[i].Job.GPUs)
	}
	return placed, t.settle(at, jobs, placed)
}

// update tells the queue what happened since the last tick. Jobs that sank to the second queue do so in the
// order of the workload.
func (t *Tiresias) update(at time.Time, jobs []*Active, index map[lockstep.JobID]int) error {
	t.q.Begin(at)
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(t.known)) {
		if _, ok := index[id]; !ok {
			errs = append(errs, t.q.Finish(at, id))
			delete(t.known, id)
		}
	}
	for _, a := range jobs {
		id := key(a)
		s := t.known[id]
		if s == nil {
			t.last++
			t.known[id] = &seat{number: t.last}
			errs = append(errs, t.q.Submit(at, order.Job{ID: id, GPUs: lockstep.WholeGPU.Mul(int64(a.Job.GPUs))}))
			continue
		}
		if !s.runs {
			continue
		}
		if j, _ := t.q.Job(id); j.Level() > s.level {
			t.last++
			s.number, s.level = t.last, j.Level()
		}
		errs = append(errs, t.q.Due(at, id))
	}
	return errors.Join(errs...)
}

// settle tells the queue what runs from now on.
func (t *Tiresias) settle(at time.Time, jobs []*Active, placed [][]Slot) error {
	var errs []error
	for i, a := range jobs {
		id := key(a)
		s := t.known[id]
		switch runs := len(placed[i]) > 0; {
		case runs && !s.runs:
			errs = append(errs, t.q.Start(at, id))
		case s.runs && !runs:
			errs = append(errs, t.q.Stop(at, id))
		}
		s.runs = len(placed[i]) > 0
	}
	return errors.Join(errs...)
}
