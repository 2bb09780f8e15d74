package main

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep/serving/autoscale"
)

// books are what a door counts.
type books struct {
	arrived, answered, refused, canceled int           // requests; each that arrived becomes one of the others
	batches, batched, largest            int           // batches, requests in them, and the most in one
	least, most                          int           // replicas that were ready or starting, while it was open
	cost                                 time.Duration // for how long replicas were there, together
}

func (b *books) sent(size int) {
	b.batches++
	b.batched += size
	b.largest = max(b.largest, size)
}

func (b *books) count(f autoscale.Fleet) {
	n := len(f.Ready) + len(f.Starting)
	b.least, b.most = min(b.least, n), max(b.most, n)
}

// mean is that of the sizes of batches.
func (b *books) mean() float64 { return float64(b.batched) / float64(max(b.batches, 1)) }

// state is how a door is at one time.
type state struct {
	books
	ready, starting  int // replicas
	waiting, running int // requests
}

// state returns how the door is.
func (d *door) state() (s state) {
	look := func() state {
		f := d.fleet()
		return state{books: d.books, ready: len(f.Ready), starting: len(f.Starting), waiting: d.batcher.Waiting(), running: d.batcher.Running()}
	}
	seen := make(chan state, 1)
	if !d.tell(func(time.Time) { seen <- look() }) {
		return look() // the loop is over and touches nothing
	}
	return <-seen
}

// tally is what clients saw.
type tally struct {
	slo     time.Duration
	lock    sync.Mutex
	refused int
	took    []time.Duration // of requests that were answered, from when they were due
	failed  []error
}

func (t *tally) note(took time.Duration, refused bool, err error) {
	t.lock.Lock()
	defer t.lock.Unlock()
	switch {
	case err != nil:
		t.failed = append(t.failed, err)
	case refused:
		t.refused++
	default:
		t.took = append(t.took, took)
	}
}

func (t *tally) failures() int {
	t.lock.Lock()
	defer t.lock.Unlock()
	return len(t.failed)
}

// inTime is how many requests were answered within the objective, and which share they are of those that are over.
func (t *tally) inTime() (n int, share float64) {
	t.lock.Lock()
	defer t.lock.Unlock()
	for _, took := range t.took {
		if took <= t.slo {
			n++
		}
	}
	return n, float64(n) / float64(max(len(t.took)+t.refused+len(t.failed), 1))
}

// quantile is the time that this share of the answers did not exceed, in milliseconds; for when all are there.
func (t *tally) quantile(share float64) int64 {
	if len(t.took) == 0 {
		return 0
	}
	slices.Sort(t.took)
	return t.took[int(share*float64(len(t.took)-1)+0.5)].Milliseconds()
}

// check says what does not add up, of a site that is shut and to which so many requests were sent.
func (s *site) check(sent int) error {
	errs := slices.Clone(s.tally.failed)
	claim := func(ok bool, format string, a ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(s.name+": "+format, a...))
		}
	}
	b, took, refused := s.books, len(s.tally.took), s.tally.refused
	claim(b.arrived == sent && took+refused == sent, "%d requests were sent, %d arrived, clients have %d answers and %d refusals", sent, b.arrived, took, refused)
	claim(b.answered == took && b.refused == refused && b.canceled == 0, "%d answers, %d refusals, %d canceled; clients have %d and %d", b.answered, b.refused, b.canceled, took, refused)
	claim(b.batched == b.answered && len(s.calls) == 0, "%d requests were in batches, %d answered, %d are left", b.batched, b.answered, len(s.calls))
	claim(b.largest <= s.batch, "a batch had %d requests, allowed are %d", b.largest, s.batch)
	claim(s.min <= b.least && b.most <= s.max, "there were %d to %d replicas, allowed are %d to %d", b.least, b.most, s.min, s.max)
	return errors.Join(errs...)
}
