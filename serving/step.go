package serving

import (
	"math/bits"
	"sort"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// Step says what to do at now: which requests to give back, and which batches to send to idle instances. Call it after
// every other call and when NextWake says so. p is overwritten.
func (b *Batcher) Step(now time.Time, p *Plan) error {
	p.Batches, p.Rejected, p.Lost, p.ids = p.Batches[:0], p.Rejected[:0], p.Lost[:0], p.ids[:0]
	ns, err := b.clock("step", now)
	if err != nil {
		return err
	}
	b.now = ns
	b.giveUp(p)
	b.expire(p)
	for i := 0; b.idle > 0 && b.queue.len() > 0; i++ {
		size, cause, _ := b.decide(ns)
		if size == 0 {
			return nil // held
		}
		for b.instances[i].state != idle {
			i++
		}
		b.send(p, i, size, cause)
	}
	return nil
}

// giveUp takes down the instances that told nothing in time.
func (b *Batcher) giveUp(p *Plan) {
	if b.config.Lost == 0 || b.busy == 0 {
		return
	}
	for i := range b.instances {
		if r := &b.instances[i]; r.state == busy && instant.Add(r.end, b.config.Lost) <= b.now {
			p.Lost = append(p.Lost, r.ids...)
			b.release(r, down)
		}
	}
}

// expire gives back or defers what waited too long or can no longer make it.
func (b *Batcher) expire(p *Plan) {
	for b.queue.next() < b.now {
		i := b.queue.heap[0]
		if b.config.Late == DeferLate {
			b.queue.deferTo(i)
			continue
		}
		n := &b.queue.nodes[i]
		reason := ReasonTimeout
		if n.due != instant.Never && n.due-b.times[1] == n.expires {
			reason = ReasonDeadline
		}
		p.Rejected = append(p.Rejected, Rejection{n.id, reason})
		b.queue.drop(i)
	}
}

// decide says how many of the first requests to send to an idle instance now, or until when to hold them. At least one
// waits, and each of them could be over in time by itself.
func (b *Batcher) decide(ns int64) (size int, cause Cause, hold int64) {
	n := min(b.queue.len(), b.limit)
	all := b.queue.prefix(n)
	if !b.fits(ns, n, all) {
		// Not all of them in one batch. Those that it has room for only lose by waiting, whatever is preferred.
		size = sort.Search(n-1, func(i int) bool { return !b.fits(ns, i+1, b.queue.prefix(i+1)) })
		return max(size, 1), CauseDeadline, 0
	}
	if p := b.preferred(n); p > 0 {
		if p < n && b.idle < 2 && b.times[p]+b.times[n-p] > all.tightest-ns {
			return n, CauseDeadline, 0 // those left behind would have to wait for this batch
		}
		return p, CausePreferred, 0
	}
	if n == b.limit {
		return n, CauseFull, 0
	}
	delay := instant.Add(all.earliest, b.config.MaxDelay)
	if ns >= delay {
		return n, CauseDelay, 0
	}
	latest := all.tightest - b.times[n] // they may all still be sent together then
	if all.tightest != instant.Never && ns >= latest {
		return n, CauseDeadline, 0
	}
	return 0, 0, min(delay, latest)
}

// fits says whether the first n requests, which s sums up, would all be over in time if they were sent now.
func (b *Batcher) fits(ns int64, n int, s sum) bool { return b.times[n] <= s.tightest-ns }

// preferred returns the largest preferred size up to n, or 0.
func (b *Batcher) preferred(n int) int {
	i := sort.SearchInts(b.config.Preferred, n+1)
	if i == 0 {
		return 0
	}
	return b.config.Preferred[i-1]
}

// send gives the first size requests to an idle instance.
func (b *Batcher) send(p *Plan, instance, size int, cause Cause) {
	r := &b.instances[instance]
	from := len(p.ids)
	for range size {
		i := b.queue.first()
		p.ids = append(p.ids, b.queue.nodes[i].id)
		b.queue.drop(i)
	}
	r.ids = append(r.ids[:0], p.ids[from:]...)
	r.state, r.end = busy, instant.Add(b.now, time.Duration(b.times[size]))
	b.idle--
	b.busy++
	b.running += size
	p.Batches = append(p.Batches, Batch{instance, p.ids[from:len(p.ids):len(p.ids)], lockstep.FromNanos(r.end), cause})
}

// NextWake returns when Step has something to do if nothing happens before, or false if it never has. It is not before
// now.
func (b *Batcher) NextWake(now time.Time) (time.Time, bool) {
	ns, err := in.SinceEpoch("wake", "now", now)
	if err != nil {
		return time.Time{}, false
	}
	ns = max(ns, b.now)
	wake := b.queue.next()
	if wake != instant.Never {
		wake++ // it may still be sent at the last instant
	}
	if b.idle > 0 && b.queue.len() > 0 {
		if size, _, hold := b.decide(ns); size == 0 {
			wake = min(wake, hold)
		} else {
			wake = ns
		}
	}
	if b.config.Lost > 0 {
		for i := range b.instances {
			if r := &b.instances[i]; r.state == busy {
				wake = min(wake, instant.Add(r.end, b.config.Lost))
			}
		}
	}
	if wake == instant.Never {
		return time.Time{}, false
	}
	return lockstep.FromNanos(max(wake, ns)), true
}

// finish predicts when a request with key k is over: those ahead of it go in batches of the best size, it with the rest
// of them, each batch on the instance that is free first. Where none is up it is as if one came up now.
func (b *Batcher) finish(ns int64, k key) int64 {
	ahead := b.queue.ahead(k)
	batches, rest := ahead/b.best, ahead%b.best
	return instant.Add(b.start(ns, batches), time.Duration(b.times[rest+1]))
}

// start returns when batch number n from now, from 0, can start if those before it have the best size.
func (b *Batcher) start(ns int64, n int) int64 {
	each := b.times[b.best]
	first, up := int64(instant.Never), 0
	for i := range b.instances {
		if r := &b.instances[i]; r.takes() {
			up++
			first = min(first, b.from(ns, r))
		}
	}
	if up == 0 {
		first, up = ns, 1
	}
	if n == 0 || each == 0 {
		return first
	}
	alone := mulAdd(n, each, first) // with one instance
	if up == 1 {
		return alone
	}
	// The earliest time at which more than n batches have started.
	lo, hi := first, alone
	for lo < hi {
		mid := lo + (hi-lo)/2
		if b.started(ns, mid, each, int64(n)) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// from is when r can take a batch.
func (b *Batcher) from(ns int64, r *replica) int64 {
	if r.state == busy {
		return max(ns, r.end)
	}
	return ns
}

// started says whether all instances have started more than n batches by t, each one after each.
func (b *Batcher) started(ns, t, each, n int64) bool {
	count := int64(0)
	for i := range b.instances {
		if r := &b.instances[i]; r.takes() {
			if f := b.from(ns, r); f <= t {
				if count += (t-f)/each + 1; count > n {
					return true // without the rest of them the count stays in 64 bits
				}
			}
		}
	}
	return false
}

// mulAdd returns n × each + first, held at instant.Never; none is negative.
func mulAdd(n int, each, first int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(each))
	if hi > 0 || lo > uint64(instant.Never-first) {
		return instant.Never
	}
	return int64(lo) + first
}
