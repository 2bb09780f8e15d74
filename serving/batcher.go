package serving

import (
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// RequestID is the host's name of a request. The package keeps it and gives it back; it need not be unique.
type RequestID uint64

// Ticket names a request that was accepted, among all that its Batcher or engine ever accepted within 2^32 uses of
// one place of its memory. Zero is no ticket.
type Ticket uint64

// Request is something to infer.
type Request struct {
	ID       RequestID     // what it is called in a Plan
	Level    int           // priority, from 0, which goes first, to below BatcherConfig.Levels
	Deadline time.Time     // by when it has to be over; the zero time means BatcherConfig.SLO from now
	Timeout  time.Duration // how long it may wait; 0 means BatcherConfig.Timeout
}

// Receipt says what became of a request on arrival.
type Receipt struct {
	Accepted bool            // whether it waits now
	Deferred bool            // whether it waits behind all others, as it would be late
	Reason   lockstep.Reason // why it is not accepted, or deferred; "" otherwise
	Ticket   Ticket          // for Cancel; 0 if it is not accepted
	Finish   time.Time       // when it is over if those ahead of it go in the best batches; the zero time if that is beyond 2262
}

// Cause says why a batch was sent when it was, and not larger.
type Cause uint8

// The causes.
const (
	CausePreferred Cause = iota // CausePreferred: it has a preferred size.
	CauseFull                   // CauseFull: it is as large as may be.
	CauseDelay                  // CauseDelay: its oldest request was held for MaxDelay.
	CauseDeadline               // CauseDeadline: one of its requests, or of those left behind, would be late otherwise.
)

// String returns "preferred", "full", "delay" or "deadline".
func (c Cause) String() string {
	return enum("Cause", int(c), "preferred", "full", "delay", "deadline")
}

// Batch is what an instance is to run now.
type Batch struct {
	Instance int         // from 0
	Requests []RequestID // in order; memory of the Plan
	End      time.Time   // when it is over by Latency
	Cause    Cause       // why now and no larger
}

// Rejection is a request that is not served.
type Rejection struct {
	ID     RequestID       // as given
	Reason lockstep.Reason // ReasonDeadline or ReasonTimeout
}

// Plan is what Step says. A Plan that is used again keeps its memory: what it said before is overwritten.
type Plan struct {
	Batches  []Batch     // to be sent, by instance in the order in which they were formed
	Rejected []Rejection // waited, and are given back, in order of when they expired
	Lost     []RequestID // were with an instance that told nothing in time, by instance
	ids      []RequestID
}

// instanceState is what an instance does.
type instanceState uint8

const (
	idle instanceState = iota
	busy
	down
)

// replica is one instance of the model.
type replica struct {
	state  instanceState
	leaves bool  // it is busy, and down behind that
	end    int64 // of its batch, as predicted
	ids    []RequestID
}

// takes says whether r gets batches, now or later.
func (r *replica) takes() bool { return r.state != down && !r.leaves }

// Batcher forms batches of the requests of one model for its instances. Not safe for concurrent use; the caller
// serializes calls.
type Batcher struct {
	config    BatcherConfig
	times     []int64 // by size
	best      int     // the size with most requests in a time
	limit     int     // most requests of a batch now
	queue     queue
	instances []replica
	idle      int // instances
	running   int // requests
	busy      int // instances
	seq       uint64
	now       int64
}

// NewBatcher returns a Batcher without requests, its instances idle but for those that are down at first.
func NewBatcher(c BatcherConfig) (*Batcher, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	times, err := c.times()
	if err != nil {
		return nil, err
	}
	b := &Batcher{config: c, times: times, best: 1, limit: c.MaxBatch, queue: newQueue(), instances: make([]replica, c.Instances), idle: c.Instances - c.Down}
	for i := b.idle; i < c.Instances; i++ {
		b.instances[i].state = down
	}
	for n := 2; n <= c.MaxBatch; n++ { // n/t(n) ≥ best/t(best); below 2^16 × 2^49
		if int64(n)*times[b.best] >= int64(b.best)*times[n] {
			b.best = n
		}
	}
	return b, nil
}

// clock reads now and refuses to go backwards.
func (b *Batcher) clock(op string, now time.Time) (int64, error) {
	ns, err := in.SinceEpoch(op, "now", now)
	if err == nil {
		err = in.NotBefore(op, "now", now, ns, b.now)
	}
	return ns, err
}

// Submit takes a request, or says why not. Call Step afterwards.
func (b *Batcher) Submit(now time.Time, r Request) (Receipt, error) {
	ns, err := b.clock("submit", now)
	if err != nil {
		return Receipt{}, err
	}
	if r.Level < 0 || r.Level >= b.config.Levels {
		return Receipt{}, checkInt("submit", "Level", r.Level, 0, b.config.Levels-1)
	}
	if r.Timeout < 0 || r.Timeout > maxSpan {
		return Receipt{}, checkSpan("submit", "Timeout", r.Timeout)
	}
	due, err := b.due(ns, r)
	if err != nil {
		return Receipt{}, err
	}
	b.now = ns
	if b.queue.len() >= b.config.Queue {
		return Receipt{Reason: ReasonFull}, nil
	}
	return b.accept(ns, due, r), nil
}

// due returns by when r has to be over, with the slack taken off; it may be in the past.
func (b *Batcher) due(ns int64, r Request) (int64, error) {
	if r.Deadline.IsZero() {
		if b.config.SLO == 0 {
			return instant.Never, nil
		}
		return instant.Add(ns, b.config.SLO) - int64(b.config.Slack), nil
	}
	due, err := in.SinceEpoch("submit", "Deadline", r.Deadline)
	return due - int64(b.config.Slack), err // both at least 0
}

// accept queues r if it can be over in time, or late ones are deferred.
func (b *Batcher) accept(ns, due int64, r Request) Receipt {
	b.seq++
	n := node{key: key{level: int32(r.Level), seq: b.seq}, id: r.ID, arrived: ns, due: due, expires: instant.Never}
	if b.config.Order == EDF {
		n.key.rank = due
	}
	if due != instant.Never {
		n.expires = due - b.times[1]
	}
	if r.Timeout == 0 {
		r.Timeout = b.config.Timeout
	}
	if r.Timeout > 0 {
		n.expires = min(n.expires, instant.Add(ns, r.Timeout))
	}
	finish := b.finish(ns, n.key)
	receipt := Receipt{Accepted: true}
	if finish > due {
		receipt.Reason = ReasonDeadline
		if b.config.Late == RejectLate {
			receipt.Accepted = false
			return receipt
		}
		receipt.Deferred = true
		n.key.deferred, n.due, n.expires = true, instant.Never, instant.Never
		finish = b.finish(ns, n.key)
	}
	if finish != instant.Never {
		receipt.Finish = lockstep.FromNanos(finish)
	}
	i := b.queue.add(n)
	receipt.Ticket = Ticket(uint64(b.queue.nodes[i].gen)<<32 | uint64(i))
	return receipt
}

// Cancel forgets a request that waits and returns true; one that was sent or given back is no longer there.
func (b *Batcher) Cancel(t Ticket) bool {
	i := uint64(t) & (1<<32 - 1)
	if i >= uint64(len(b.queue.nodes)) {
		return false
	}
	if n := &b.queue.nodes[i]; !n.used || n.gen != uint32(t>>32) {
		return false
	}
	b.queue.drop(int32(i))
	return true
}

// Limit sets the most requests of a batch, between 1 and MaxBatch, as a controller of the batch size has it.
func (b *Batcher) Limit(n int) { b.limit = max(1, min(n, b.config.MaxBatch)) }

// Waiting is how many requests wait.
func (b *Batcher) Waiting() int { return b.queue.len() }

// Running is how many requests are with instances. Those of an instance that was lost or is down do not count.
func (b *Batcher) Running() int { return b.running }

// check finds the instance of a call.
func (b *Batcher) check(op string, now time.Time, instance int) (*replica, int64, error) {
	ns, err := b.clock(op, now)
	if err != nil {
		return nil, 0, err
	}
	if instance < 0 || instance >= len(b.instances) {
		return nil, 0, fault(lockstep.ErrUnknown, op, "instance", strconv.Itoa(instance), "must be below "+strconv.Itoa(len(b.instances)))
	}
	return &b.instances[instance], ns, nil
}

// Done tells that the batch of an instance is over. Call Step afterwards.
func (b *Batcher) Done(now time.Time, instance int) error {
	r, ns, err := b.check("done", now, instance)
	if err != nil {
		return err
	}
	if r.state != busy {
		return fault(lockstep.ErrConflict, "done", "instance", strconv.Itoa(instance), "runs no batch")
	}
	b.now = ns
	if r.leaves {
		b.release(r, down)
	} else {
		b.release(r, idle)
	}
	return nil
}

// Drain tells that an instance is to get no more batches: it is down as soon as it has none. Requests that come
// meanwhile are judged without it. Drain of an instance that is down changes nothing. Call Step afterwards.
func (b *Batcher) Drain(now time.Time, instance int) error {
	r, ns, err := b.check("drain", now, instance)
	if err != nil {
		return err
	}
	b.now = ns
	switch r.state {
	case busy:
		r.leaves = true
	case idle:
		b.release(r, down)
	}
	return nil
}

// Down tells that an instance is gone and appends the requests that it had to dst; the host may submit them again.
// Down of an instance that is down changes nothing.
func (b *Batcher) Down(now time.Time, instance int, dst []RequestID) ([]RequestID, error) {
	r, ns, err := b.check("down", now, instance)
	if err != nil {
		return dst, err
	}
	b.now = ns
	dst = append(dst, r.ids...)
	b.release(r, down)
	return dst, nil
}

// Up tells that an instance that was down or lost is ready, or that one which is being drained stays after all. Call
// Step afterwards.
func (b *Batcher) Up(now time.Time, instance int) error {
	r, ns, err := b.check("up", now, instance)
	if err != nil {
		return err
	}
	switch {
	case r.leaves:
		r.leaves = false
	case r.state == down:
		b.release(r, idle)
	default:
		return fault(lockstep.ErrConflict, "up", "instance", strconv.Itoa(instance), "is not down")
	}
	b.now = ns
	return nil
}

// release moves r to a state in which it has no batch.
func (b *Batcher) release(r *replica, to instanceState) {
	switch r.state {
	case busy:
		b.busy--
		b.running -= len(r.ids)
	case idle:
		b.idle--
	}
	if to == idle {
		b.idle++
	}
	r.state, r.leaves, r.ids = to, false, r.ids[:0]
}
