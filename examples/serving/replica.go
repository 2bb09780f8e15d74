package main

import (
	"math"
	"slices"
	"time"

	"github.com/lockstep-gpu/lockstep/serving"
)

// squares stands in for a model that runs on a GPU: it takes a time for any batch, and some for every request in it.
func squares(inputs []int) []int {
	time.Sleep(35*time.Millisecond + time.Duration(len(inputs))*5*time.Millisecond)
	outputs := make([]int, len(inputs))
	for i, x := range inputs {
		outputs[i] = x * x
	}
	return outputs
}

// measure returns how long batches take, by size: the least of three, as what is above that is not the model's. A larger
// one that happened to be faster counts as fast as the one before it, since a Latency does not fall.
func measure(infer func([]int) []int, most int) (curve serving.Points) {
	floor := time.Duration(0)
	for size := 1; size <= most; size++ {
		least := time.Duration(math.MaxInt64)
		for range 3 {
			from := time.Now()
			infer(make([]int, size))
			least = min(least, time.Since(from))
		}
		floor = max(floor, least)
		curve = append(curve, serving.Point{Size: size, Time: floor})
	}
	return curve
}

// replica runs one batch at a time. It is starting, ready, draining, and gone.
type replica struct {
	instance int // of the batcher
	started  time.Time
	ready    bool
	draining bool
	batch    []serving.RequestID // what it is at
	work     chan []int          // inputs of the next batch; closed when it is to go
}

// there returns all replicas that are not gone.
func (d *door) there() []*replica {
	return slices.DeleteFunc(slices.Clone(d.replicas), func(r *replica) bool { return r == nil })
}

// begin has as many replicas as there always are, ready at once.
func (d *door) begin(now time.Time) {
	for range d.min {
		d.start(now, 0)
	}
}

// start starts a replica. Where those that drain have all instances that are left, the scaler will ask again.
func (d *door) start(now time.Time, load time.Duration) {
	if i := slices.Index(d.replicas, nil); i >= 0 {
		r := &replica{instance: i, started: now, work: make(chan []int, 1)}
		d.replicas[i] = r
		d.group.Go(func() { d.run(r, load) })
	}
}

// run is what a replica does.
func (d *door) run(r *replica, load time.Duration) {
	select {
	case <-r.work: // no longer needed
		return
	case <-time.After(load):
	}
	d.tell(func(now time.Time) {
		if r.draining {
			return
		}
		r.ready = true
		d.note(d.batcher.Up(now, r.instance))
	})
	for inputs := range r.work {
		outputs := d.infer(inputs)
		d.tell(func(now time.Time) { d.done(now, r, outputs) })
	}
}

// drain has a replica go when it is done with its batch.
func (d *door) drain(now time.Time, r *replica) {
	r.draining = true
	d.note(d.batcher.Drain(now, r.instance))
	if r.batch == nil {
		d.drop(now, r)
	}
}

// drop lets a replica go that has no batch.
func (d *door) drop(now time.Time, r *replica) {
	close(r.work)
	d.replicas[r.instance] = nil
	d.books.cost += now.Sub(r.started)
}

// tell has the loop do something, and says whether there still is a loop.
func (d *door) tell(event func(now time.Time)) bool {
	select {
	case d.events <- event:
		return true
	case <-d.over:
		return false
	}
}

// close drains all replicas and waits until everything is over. No request may be on its way.
func (d *door) close() error {
	d.tell(func(now time.Time) {
		d.closing = true
		for _, r := range d.there() {
			if !r.draining {
				d.drain(now, r)
			}
		}
	})
	d.group.Wait()
	return d.err
}
