package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/policy"
	"github.com/lockstep-gpu/lockstep/serving"
	"github.com/lockstep-gpu/lockstep/serving/autoscale"
)

// door stands before the replicas of a model. What is below events belongs to the loop alone.
type door struct {
	doorConfig
	group  sync.WaitGroup           // the loop and the replicas
	over   chan struct{}            // closed when the loop has ended
	events chan func(now time.Time) // what happens, for the loop

	batcher  *serving.Batcher
	scaler   *autoscale.Scaler           // nil where the number of replicas is fixed
	look     time.Time                   // when the scaler is asked next
	told     int                         // arrivals that the scaler was told of
	calls    map[serving.RequestID]*call // accepted and not answered
	replicas []*replica                  // by instance of the batcher; nil where there is none
	closing  bool                        // no more requests come, and the replicas go
	err      error                       // the first there was; it ends the loop
	books    books
}

// doorConfig configures a door.
type doorConfig struct {
	name     string
	infer    func(inputs []int) []int // the model
	curve    serving.Latency          // of the model, as measured
	batch    int                      // most requests of a batch
	min, max int                      // replicas; the number is fixed where they are equal
	slo      time.Duration
	load     time.Duration // how long a replica takes to start
}

// call is a request on its way.
type call struct {
	input  int
	answer chan answer // has room for the only one
}

// answer is what comes of a request.
type answer struct {
	output  int
	refused lockstep.Reason // why there is no output
}

func newDoor(c doorConfig) (*door, error) {
	d := &door{
		doorConfig: c, over: make(chan struct{}), events: make(chan func(time.Time)),
		calls: make(map[serving.RequestID]*call), replicas: make([]*replica, c.max), books: books{least: c.min, most: c.min},
	}
	within := c.slo * 4 / 5 // the rest is for what the batcher does not see: HTTP, and timers that are late
	var err error
	d.batcher, err = serving.NewBatcher(serving.BatcherConfig{
		MaxBatch: c.batch, MaxDelay: 5 * time.Millisecond, SLO: within, Instances: c.max, Down: c.max, Latency: c.curve,
	})
	if err != nil || c.min == c.max {
		return d, err
	}
	d.scaler, err = autoscale.New(autoscale.Config{
		Rule: autoscale.Predictive{Load: c.load, Quantile: 600},
		Demand: autoscale.Demand{
			Capacity: autoscale.Batched{Latency: c.curve, Objective: within, MaxBatch: c.batch},
			Slot:     200 * time.Millisecond,
		},
		Steady: policy.Steady{Bounded: policy.Bounded{Min: c.min, Max: c.max}},
		Period: 100 * time.Millisecond,
	})
	return d, err
}

// loop serves until the door is closing and all replicas are gone.
func (d *door) loop() {
	defer close(d.over)
	start := time.Now()
	now := func() time.Time { return start.Add(time.Since(start)) } // unlike the clock on the wall, it is never set back
	d.begin(now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for d.err == nil && !(d.closing && len(d.there()) == 0) {
		select {
		case event := <-d.events:
			event(now())
		case <-timer.C:
		}
		t := now()
		d.step(t)
		timer.Reset(d.wake(t).Sub(t))
	}
	for _, r := range d.there() { // none, unless there is an error
		close(r.work)
	}
}

// submit hands a request to the batcher and waits for what comes of it.
func (d *door) submit(ctx context.Context, input int) (answer, error) {
	c := &call{input: input, answer: make(chan answer, 1)}
	var id serving.RequestID
	var receipt serving.Receipt
	d.tell(func(now time.Time) {
		d.books.arrived++
		id = serving.RequestID(d.books.arrived)
		d.calls[id] = c
		var err error
		receipt, err = d.batcher.Submit(now, serving.Request{ID: id})
		if d.note(err); err == nil && !receipt.Accepted {
			d.reply(id, answer{refused: receipt.Reason})
		}
	})
	select {
	case a := <-c.answer:
		return a, nil
	case <-d.over:
		return answer{}, errors.New("the door is closed")
	case <-ctx.Done(): // the client is gone: what waits need not be served
		d.tell(func(time.Time) {
			if d.batcher.Cancel(receipt.Ticket) {
				delete(d.calls, id)
				d.books.canceled++
			}
		})
		return answer{}, ctx.Err()
	}
}

// reply answers a request, once.
func (d *door) reply(id serving.RequestID, a answer) {
	c, ok := d.calls[id]
	if !ok {
		d.note(fmt.Errorf("request %d is answered twice", id))
		return
	}
	delete(d.calls, id)
	c.answer <- a
	if a.refused == "" {
		d.books.answered++
	} else {
		d.books.refused++
	}
}

// step asks the cores what to do now, and does it.
func (d *door) step(now time.Time) {
	if d.scaler != nil && !d.closing && !now.Before(d.look) {
		d.scale(now)
	}
	var plan serving.Plan // a new one each time, since replicas keep what it says
	d.note(d.batcher.Step(now, &plan))
	for _, r := range plan.Rejected {
		d.reply(r.ID, answer{refused: r.Reason})
	}
	for _, b := range plan.Batches {
		r := d.replicas[b.Instance]
		r.batch = b.Requests
		inputs := make([]int, len(r.batch))
		for i, id := range r.batch {
			inputs[i] = d.calls[id].input
		}
		r.work <- inputs
		d.books.sent(len(inputs))
	}
}

// done takes note that a replica is done with its batch.
func (d *door) done(now time.Time, r *replica, outputs []int) {
	for i, id := range r.batch {
		d.reply(id, answer{output: outputs[i]})
	}
	r.batch = nil
	d.note(d.batcher.Done(now, r.instance))
	if r.draining {
		d.drop(now, r)
	}
}

// scale tells the scaler what came and what there is, and starts and drains replicas as it says.
func (d *door) scale(now time.Time) {
	d.note(d.scaler.Observe(now, autoscale.Sample{
		Requests: int64(d.books.arrived - d.told), // with those that were refused
		Ongoing:  int64(d.batcher.Running()), Queued: int64(d.batcher.Waiting()),
	}))
	d.told = d.books.arrived
	decision, err := d.scaler.Decide(now, d.fleet())
	d.note(err)
	for range decision.Add {
		d.start(now, d.load)
	}
	for _, id := range decision.Remove {
		i, err := strconv.Atoi(string(id)) // as fleet named it
		d.note(err)
		d.drain(now, d.replicas[i])
	}
	d.look, _ = d.scaler.NextWake(now)
	d.books.count(d.fleet())
}

// fleet is what the scaler is told of the replicas.
func (d *door) fleet() (f autoscale.Fleet) {
	for _, r := range d.there() {
		list := &f.Starting
		if r.draining {
			list = &f.Draining
		} else if r.ready {
			list = &f.Ready
		}
		*list = append(*list, autoscale.Replica{ID: autoscale.ReplicaID(strconv.Itoa(r.instance)), Started: r.started, Ongoing: int64(len(r.batch))})
	}
	return f
}

// wake returns when to call step if nothing happens before.
func (d *door) wake(now time.Time) time.Time {
	at, ok := d.batcher.NextWake(now)
	if d.scaler != nil && !d.closing && (!ok || d.look.Before(at)) {
		return d.look
	}
	if !ok {
		return now.Add(time.Hour)
	}
	return at
}

// note keeps the first error. None is expected: what the cores refuse is a fault of this program.
func (d *door) note(err error) {
	if d.err == nil {
		d.err = err
	}
}
