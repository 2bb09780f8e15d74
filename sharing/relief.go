package sharing

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// ReliefKind is how memory is taken back from a tenant.
type ReliefKind string

// The kinds of relief.
const (
	Swap  ReliefKind = "swap"  // Swap: move all that the tenant holds to host memory; it is idle.
	Trim  ReliefKind = "trim"  // Trim: make the tenant give back what it holds above its hard cap; it goes on.
	Evict ReliefKind = "evict" // Evict: stop the tenant; it is opportunistic and has no hard cap.
)

// Relief is a decision to take memory back, for the host to carry out.
type Relief struct {
	Kind   ReliefKind     `json:"kind"`   // Kind is how.
	Tenant lockstep.JobID `json:"tenant"` // Tenant is from whom.
	Amount lockstep.Bytes `json:"amount"` // Amount is how much comes free.
}

// mark returns mille thousandths of the capacity.
func (l *Ledger) mark(mille int64) lockstep.Bytes {
	return l.cfg.Capacity / lockstep.MiB * lockstep.Bytes(mille) * lockstep.MiB / wholeMille
}

// Relieve appends to dst what is to be taken back now, and returns it with how much
// more would have to come free to reach Low, which is 0 unless nobody is left from
// whom it could be taken. It decides nothing while the use is at most High or has
// been above it for less than Patience.
//
// It goes through the tenants in this order until what stays is at most Low: idle
// before active, opportunistic before guaranteed, lower priority, more memory, ID;
// and then drops again, from the last on, whom it can do without. From an idle
// tenant it takes everything, from an active one what is above its hard cap.
// Nobody is named again before its Cooldown is over, and what was decided counts
// as free until the tenant is reported.
func (l *Ledger) Relieve(now time.Time, dst []Relief) (reliefs []Relief, lacking lockstep.Bytes, err error) {
	ns, err := l.at("relieve", now)
	if err != nil {
		return dst, 0, err
	}
	l.advance(ns)
	if l.above > ns-int64(l.cfg.Patience) || l.above == instant.Never {
		return dst, 0, nil
	}
	excess := l.used - l.mark(l.cfg.Low)
	chosen := l.choose(ns, excess)
	for _, c := range chosen {
		excess -= c.amount
		l.used -= c.amount
		c.a.going += c.amount
		c.a.until = instant.Add(ns, l.cfg.Cooldown)
		dst = append(dst, Relief{Kind: c.kind, Tenant: c.a.ID, Amount: c.amount})
	}
	l.advance(ns)
	return dst, max(excess, 0), nil
}

// source is a tenant with what can be taken from it.
type source struct {
	a      *account
	kind   ReliefKind
	amount lockstep.Bytes
}

// choose picks whom to take excess from.
func (l *Ledger) choose(ns int64, excess lockstep.Bytes) []source {
	sources := make([]source, 0, len(l.tenants))
	for _, a := range l.tenants { // in any order: sorted below
		if s := a.source(); s.amount > 0 && a.until <= ns {
			sources = append(sources, s)
		}
	}
	slices.SortFunc(sources, source.order)
	taken := 0
	for excess > 0 && taken < len(sources) {
		excess -= sources[taken].amount
		taken++
	}
	sources = sources[:taken]
	for i := taken - 1; i >= 0; i-- {
		if sources[i].amount <= -excess { // what comes free is more than enough without it
			excess += sources[i].amount
			sources = slices.Delete(sources, i, i+1)
		}
	}
	return sources
}

// source says what can be taken from a, and how.
func (a *account) source() source {
	held := a.used - a.going
	switch {
	case a.idle:
		return source{a, Swap, held}
	case a.HardCap == 0:
		return source{a, Evict, held}
	}
	return source{a, Trim, held - a.HardCap}
}

// order compares whom to take from first.
func (s source) order(t source) int {
	return cmp.Or(
		first(s.a.idle, t.a.idle),
		first(s.a.Opportunistic, t.a.Opportunistic),
		cmp.Compare(s.a.Priority, t.a.Priority),
		cmp.Compare(t.amount, s.amount),
		strings.Compare(string(s.a.ID), string(t.a.ID)),
	)
}

// first puts what is true first.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// NextWake returns when Relieve may next have something to decide without a report
// in between; ok is false when there is no such time. Now is what Relieve was given
// last; a time before the latest counts as the latest.
func (l *Ledger) NextWake(now time.Time) (at time.Time, ok bool) {
	ns, err := lockstep.Nanos(now)
	if err != nil || l.above == instant.Never {
		return time.Time{}, false
	}
	ns = max(ns, l.now)
	due := instant.Add(l.above, l.cfg.Patience)
	if due > ns {
		return wake(due)
	}
	next := int64(instant.Never)
	for _, a := range l.tenants { // in any order: it takes the least
		if a.until > ns && a.source().amount > 0 {
			next = min(next, a.until)
		}
	}
	return wake(next)
}

// wake turns an instant into a time; ok is false for Never.
func wake(ns int64) (time.Time, bool) {
	if ns == instant.Never {
		return time.Time{}, false
	}
	return lockstep.FromNanos(ns), true
}
