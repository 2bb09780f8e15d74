package fairness

import (
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// This file is what changes a tenant's claim beside entitlement and service: a
// window in which they count, credit for idle time, and overhead that others pay.
//
// A claim is lag + credit + adjust, where lag is over the window if there is one.

// mark is a tenant's account at a boundary of buckets.
type mark struct {
	entitled, service, adjust int128.Int
}

// bucketOf returns the number of the bucket that ns lies in; 0 without a window.
func (m *Memory) bucketOf(ns int64) int64 {
	if m.Bucket == 0 {
		return 0
	}
	n := ns / int64(m.Bucket)
	if ns%int64(m.Bucket) < 0 {
		n--
	}
	return n
}

// markTo accrues to each boundary of buckets up to now that can matter later, and
// notes all accounts there. How an interval is cut makes no difference to accounts,
// so older boundaries may be passed over.
func (l *Ledger) markTo(now int64) {
	last := l.cfg.Memory.bucketOf(now)
	if last == l.bucket {
		return
	}
	for b := max(l.bucket+1, last-int64(l.cfg.Memory.Buckets)); b <= last; b++ {
		l.accrueTo(b * int64(l.cfg.Memory.Bucket))
		v := l.settled()
		for i := range l.tiers {
			l.tiers[i].root.sweep(0, int128.Fixed{})
		}
		for _, t := range l.tenants { // each on its own, so order does not matter
			entitled := t.entitled
			if t.joined {
				entitled = t.swept
			}
			*l.markOf(t, b) = mark{entitled.Near(), t.served(&v), t.adjust}
		}
	}
	l.bucket = last
}

// markOf returns the place of t's mark at boundary b.
func (l *Ledger) markOf(t *tenant, b int64) *mark {
	n := int64(l.cfg.Memory.Buckets) + 1
	if t.marks == nil {
		t.marks = make([]mark, n)
	}
	return &t.marks[((b%n)+n)%n]
}

// window finds what tenants' accounts were when the window began, as of a view.
type window struct {
	l     *Ledger
	begin int64 // begin is the boundary.
	later bool  // later says that it is behind the latest event, so that no marks were made.
	view  view  // view is of that time then.
}

// window returns that of v; without Memory.Bucket it begins before everything.
func (l *Ledger) window(v *view) window {
	w := window{l: l}
	if m := &l.cfg.Memory; m.Bucket != 0 && l.started {
		w.begin = m.bucketOf(v.now) - int64(m.Buckets)
		if w.later = w.begin > l.bucket; w.later {
			w.view = l.at(w.begin * int64(m.Bucket))
		}
	}
	return w
}

// of returns t's account when the window began.
func (w *window) of(t *tenant) mark {
	switch {
	case w.l.cfg.Memory.Bucket == 0:
		return mark{}
	case w.later:
		return mark{w.l.entitled(t, &w.view).Near(), t.served(&w.view), t.adjust}
	case w.begin < t.born || t.marks == nil:
		return mark{} // the account was opened later, and with nothing
	}
	return *w.l.markOf(t, w.begin)
}

// saved returns t's credit at v. It grows by the tenant's own part of the capacity
// while it has joined and asks for nothing, as long as what it is owed and its
// credit are below the cap, and is never cut.
func (l *Ledger) saved(t *tenant, v *view) int128.Int {
	if l.cfg.CreditCap == 0 || !t.joined || t.demand != 0 || t.weight == 0 {
		return t.credit
	}
	gain := l.nominally(t, v).Near().Sub(t.idleFrom.Near()) // it telescopes
	share, _ := int128.Divide(rated(l.capacity, uint64(l.cfg.CreditCap)), 0, l.tiers[0].pull())
	room := share.Mul(t.pull()).Near().Sub(l.entitled(t, v).Near().Sub(t.served(v)))
	grown := t.credit.Add(gain)
	if grown.Cmp(room) > 0 {
		grown = room
	}
	if grown.Cmp(t.credit) < 0 {
		return t.credit
	}
	return grown
}

// settleCredits brings everybody's credit up to l.now, before the cap changes that
// they grow to.
func (l *Ledger) settleCredits() {
	if l.cfg.CreditCap == 0 {
		return
	}
	v := l.settled()
	for _, t := range l.tenants { // each on its own, so order does not matter
		t.credit, t.idleFrom = l.saved(t, &v), l.nominally(t, &v)
	}
}

// handled returns what t's jobs held at v in devices, over time.
func (t *tenant) handled(v *view) int128.Int { return v.grown(t.raw, t.rawRate, t.since) }

// worstIndex is the least service/entitlement at a tenant's own events. The zero
// worstIndex is of one that was never entitled to anything.
type worstIndex struct {
	service, entitled int128.Int
}

// note takes the index of an event.
func (w *worstIndex) note(service, entitled int128.Int) {
	switch {
	case entitled.Sign() <= 0, service.Cmp(entitled) >= 0 && w.service.Cmp(w.entitled) < 0:
		return
	}
	if w.entitled.Sign() == 0 || cmpRatios(service, entitled, w.service, w.entitled) < 0 {
		w.service, w.entitled = service, entitled
	}
}
