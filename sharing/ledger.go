package sharing

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// in reads this package's times.
const in = instant.In("sharing")

// Defaults and bounds of a ledger.
const (
	wholeMille      = 1000
	defaultFactor   = 1200
	maxFactor       = 16 * wholeMille
	defaultHigh     = 900
	defaultLow      = 800
	defaultCooldown = time.Minute
	maxTenants      = 4096
)

// LedgerConfig configures a Ledger. Memory counts in whole MiB, as in Limits.
type LedgerConfig struct {
	Capacity lockstep.Bytes `json:"capacity"`           // Capacity is the device memory that tenants may have together, 1 MiB to 1 PiB.
	Factor   int64          `json:"factor,omitempty"`   // Factor is how much the requests may come to, in thousandths of Capacity, 1000 to 16000; 0 means 1200.
	High     int64          `json:"high,omitempty"`     // High is the use, in thousandths of Capacity, above which memory is taken back, 1 to 1000; 0 means 900.
	Low      int64          `json:"low,omitempty"`      // Low is the use down to which it is taken back then, at most High; 0 means 800, or High where that is less.
	Patience time.Duration  `json:"patience,omitempty"` // Patience is how long the use must stay above High first; 0 means no time.
	Cooldown time.Duration  `json:"cooldown,omitempty"` // Cooldown is how long a tenant is left alone once memory was taken from it; 0 means a minute.
}

// Tenant is one who shares the memory of a device.
type Tenant struct {
	ID            lockstep.JobID    `json:"id"`                      // ID names it.
	Request       lockstep.Bytes    `json:"request"`                 // Request is the most that it asks to use, more than 0.
	HardCap       lockstep.Bytes    `json:"hardCap,omitempty"`       // HardCap is what it holds whatever others do, and is held to when memory is short, up to Request; a guaranteed tenant has one.
	Opportunistic bool              `json:"opportunistic,omitempty"` // Opportunistic tenants give way to the others, which are guaranteed.
	Priority      lockstep.Priority `json:"priority,omitempty"`      // Priority orders tenants of a class: the lower one gives way first.
}

// Ledger keeps who may use how much memory of one device when the tenants ask for
// more than there is, and decides who gives some back when it runs short. It is
// made by NewLedger or RestoreLedger.
type Ledger struct {
	cfg      LedgerConfig // with defaults filled in
	given    LedgerConfig // as given, for Snapshot
	now      int64
	tenants  map[lockstep.JobID]*account
	requests lockstep.Bytes // sum over tenants
	caps     lockstep.Bytes // sum over tenants
	used     lockstep.Bytes // sum over tenants of what they hold and are not to give back
	above    int64          // since when used is above High; Never while it is not
}

// account is a tenant with what it does.
type account struct {
	Tenant
	used  lockstep.Bytes // as last reported
	going lockstep.Bytes // part of used that it was told to give back since
	idle  bool
	until int64 // end of its cool-down
}

// NewLedger returns a ledger without tenants.
func NewLedger(cfg LedgerConfig) (*Ledger, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Ledger{
		cfg: cfg.filled(), given: cfg, above: instant.Never,
		tenants: make(map[lockstep.JobID]*account),
	}, nil
}

// Validate reports every fault of c, joined, each an *lockstep.Error of kind
// ErrInvalid.
func (c LedgerConfig) Validate() error {
	f := faults{op: "sharing: ledger"}
	if c.Capacity < lockstep.MiB || c.Capacity > maxMemory {
		f.bad("Capacity", c.Capacity.String(), "want 1Mi to 1Pi")
	}
	mille := func(field string, v, least, most int64) {
		if v != 0 && (v < least || v > most) {
			f.bad(field, strconv.FormatInt(v, 10), "want "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10)+" thousandths")
		}
	}
	mille("Factor", c.Factor, wholeMille, maxFactor)
	mille("High", c.High, 1, wholeMille)
	mille("Low", c.Low, 1, max(1, min(c.filled().High, wholeMille)))
	if c.Patience < 0 || c.Patience > lockstep.MaxWalltime {
		f.bad("Patience", c.Patience.String(), "want 0 to 10 years")
	}
	if c.Cooldown < 0 || c.Cooldown > lockstep.MaxWalltime {
		f.bad("Cooldown", c.Cooldown.String(), "want 0 to 10 years")
	}
	return f.err()
}

// filled returns c with its defaults filled in.
func (c LedgerConfig) filled() LedgerConfig {
	c.Capacity = down(c.Capacity)
	c.Factor = cmp.Or(c.Factor, defaultFactor)
	c.High = cmp.Or(c.High, defaultHigh)
	c.Low = cmp.Or(c.Low, min(defaultLow, c.High))
	c.Cooldown = cmp.Or(c.Cooldown, defaultCooldown)
	return c
}

// Admit takes t in if it fits and says whether it did. It is refused, for
// ReasonCapacity where it would be alone too and else for ReasonBusy, when the
// requests would come to more than Factor allows, or when t or, then, one of the
// others could no longer use its whole request beside the hard caps of the rest.
// So the hard caps never come to more than Capacity. Requested and Available say
// what binds: the request, or for the last of these the hard cap. A fault of t is
// ErrInvalid, an ID that is in already is ErrDuplicate, and one tenant more than
// 4096 is ErrConflict.
func (l *Ledger) Admit(t Tenant) (lockstep.Verdict, error) {
	const op = "sharing: admit"
	t, err := t.rounded(op)
	if err != nil {
		return lockstep.Verdict{}, err
	}
	if _, ok := l.tenants[t.ID]; ok {
		return lockstep.Verdict{}, fault(lockstep.ErrDuplicate, op, "ID", string(t.ID), "is a tenant already")
	}
	if len(l.tenants) == maxTenants {
		return lockstep.Verdict{}, fault(lockstep.ErrConflict, op, "ID", string(t.ID), "there are 4096 tenants")
	}
	v := l.fits(t)
	if v.Feasible {
		l.tenants[t.ID] = &account{Tenant: t, idle: true}
		l.requests += t.Request
		l.caps += t.HardCap
	}
	return v, nil
}

// rounded checks t and rounds what it asks for to whole MiB.
func (t Tenant) rounded(op string) (Tenant, error) {
	f := faults{op: op}
	f.wrap("ID", t.ID.Validate())
	if t.Request < 1 || t.Request > maxMemory {
		f.bad("Request", t.Request.String(), "want more than 0, up to 1Pi")
	}
	switch {
	case t.HardCap < 0 || t.HardCap > t.Request:
		f.bad("HardCap", t.HardCap.String(), "want 0 to Request")
	case t.HardCap == 0 && !t.Opportunistic:
		f.bad("HardCap", "0", "a guaranteed tenant needs one")
	}
	t.Request, t.HardCap = up(t.Request), up(t.HardCap)
	return t, f.err()
}

// fits says whether t may join the tenants.
func (l *Ledger) fits(t Tenant) lockstep.Verdict {
	v := lockstep.Verdict{Want: 1}
	refuse := func(requested, available, alone lockstep.Bytes) lockstep.Verdict {
		reason := lockstep.ReasonBusy
		if requested > alone {
			reason = lockstep.ReasonCapacity
		}
		return short(v, reason, lockstep.ResourceGPUMemory, int64(requested), int64(available))
	}
	capacity := l.cfg.Capacity
	sold := l.cfg.sold()
	if free := sold - l.requests; t.Request > free {
		return refuse(t.Request, free, min(sold, capacity))
	}
	if free := capacity - l.caps; t.Request > free {
		return refuse(t.Request, free, capacity)
	}
	if free := l.burst(); t.HardCap > free {
		return refuse(t.HardCap, free, capacity)
	}
	v.Feasible, v.Fit = true, 1
	return v
}

// sold returns what the requests may come to. Capacity is whole MiB and Factor small, so the product fits.
func (c *LedgerConfig) sold() lockstep.Bytes {
	return c.Capacity / lockstep.MiB * lockstep.Bytes(c.Factor) / wholeMille * lockstep.MiB
}

// burst returns how large a hard cap may join without keeping any tenant from its whole request.
func (l *Ledger) burst() lockstep.Bytes {
	free := l.cfg.Capacity
	for _, a := range l.tenants { // in any order: it takes the least
		free = min(free, l.cfg.Capacity-(l.caps-a.HardCap)-a.Request)
	}
	return free
}

// Remove forgets a tenant and what it holds, such as one that ended or was stopped.
// A tenant that is not in is ErrUnknown, a time before the latest is ErrPast.
func (l *Ledger) Remove(now time.Time, id lockstep.JobID) error {
	a, ns, err := l.find("remove", now, id)
	if err != nil {
		return err
	}
	delete(l.tenants, id)
	l.requests -= a.Request
	l.caps -= a.HardCap
	l.used -= a.used - a.going
	l.advance(ns)
	return nil
}

// Report says how much device memory a tenant holds, and whether it is idle, which
// means that it has nothing to compute. What Relieve took from it before counts as
// done with this. A tenant is idle and holds nothing until it is first reported.
// Memory below 0 or above 1 PiB is ErrInvalid, a tenant that is not in is
// ErrUnknown, a time before the latest is ErrPast.
func (l *Ledger) Report(now time.Time, id lockstep.JobID, used lockstep.Bytes, idle bool) error {
	a, ns, err := l.find("report", now, id)
	if err != nil {
		return err
	}
	if used < 0 || used > maxMemory {
		return fault(lockstep.ErrInvalid, "sharing: report", "used", used.String(), "want 0 to 1Pi")
	}
	l.used += used - (a.used - a.going)
	a.used, a.going, a.idle = used, 0, idle
	l.advance(ns)
	return nil
}

// find reads a time and looks a tenant up.
func (l *Ledger) find(op string, now time.Time, id lockstep.JobID) (*account, int64, error) {
	ns, err := l.at(op, now)
	if err != nil {
		return nil, 0, err
	}
	a, ok := l.tenants[id]
	if !ok {
		return nil, 0, fault(lockstep.ErrUnknown, "sharing: "+op, "id", strconv.Quote(string(id)), "no such tenant")
	}
	return a, ns, nil
}

func (l *Ledger) at(op string, now time.Time) (int64, error) {
	ns, err := in.SinceEpoch(op, "now", now)
	if err != nil {
		return 0, err
	}
	return ns, in.NotBefore(op, "now", now, ns, l.now)
}

// advance moves the clock and notes since when the use is above High.
func (l *Ledger) advance(ns int64) {
	l.now = ns
	switch {
	case l.used <= l.mark(l.cfg.High):
		l.above = instant.Never
	case l.above == instant.Never:
		l.above = ns
	}
}

// Tenants returns the tenants, by ID.
func (l *Ledger) Tenants() []Tenant {
	ts := make([]Tenant, 0, len(l.tenants))
	for _, a := range l.sorted() {
		ts = append(ts, a.Tenant)
	}
	return ts
}

// Used returns what the tenants hold and are not about to give back.
func (l *Ledger) Used() lockstep.Bytes { return l.used }

// sorted returns the accounts by ID.
func (l *Ledger) sorted() []*account {
	as := make([]*account, 0, len(l.tenants))
	for _, a := range l.tenants { // in any order: sorted below
		as = append(as, a)
	}
	slices.SortFunc(as, func(a, b *account) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return as
}
