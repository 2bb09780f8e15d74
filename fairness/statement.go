package fairness

import (
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Statement is the account of a tenant at one time.
type Statement struct {
	Tenant  lockstep.TenantID `json:"tenant"`           // Tenant is whose account it is.
	Time    time.Time         `json:"time"`             // Time is up to when it counts.
	Joined  bool              `json:"joined,omitempty"` // Joined says that the tenant has not left.
	Weight  int64             `json:"weight"`           // Weight is the present weight, or the last before it left.
	Waiting int               `json:"waiting"`          // Waiting is how many jobs wait or are due.
	Live    int               `json:"live"`             // Live is how many jobs wait or run.
	Demand  lockstep.MilliGPU `json:"demand"`           // Demand is what they ask for, present grants included.
	Held    lockstep.MilliGPU `json:"held"`             // Held is what they hold.
	Share   lockstep.MilliGPU `json:"share"`            // Share is what the tenant is entitled to hold now, rounded down.

	Service     lockstep.GPUTime `json:"service"`     // Service is what its jobs held, over time.
	Entitlement lockstep.GPUTime `json:"entitlement"` // Entitlement is what they should have, by the ledger's Basis.
	Nominal     lockstep.GPUTime `json:"nominal"`     // Nominal is the part of the capacity that its weight is among all that joined, asked for or not.
	Worst       lockstep.GPUTime `json:"worst"`       // Worst is the greatest Lag at its own events and now, at least 0.
	WorstIndex  float64          `json:"worstIndex"`  // WorstIndex is the least Index at its own events and now; 1 where there was none.
	Raw         lockstep.GPUTime `json:"raw"`         // Raw is what its jobs held in devices, over time; Service where all cost 1.
	Overhead    lockstep.GPUTime `json:"overhead"`    // Overhead is how much of Service was reported to have gone into saving and restoring.
	Credit      lockstep.GPUTime `json:"credit"`      // Credit is what it saved while it was idle, see Config.CreditCap.
	Adjust      lockstep.GPUTime `json:"adjust"`      // Adjust is what overhead that others pay for adds to its claim, less what it pays for others.

	// RecentService and RecentEntitlement are what counts of Service and Entitlement
	// by Config.Memory: all of it, that in the window, or, with a half-life, decayed.
	RecentService     lockstep.GPUTime `json:"recentService"`
	RecentEntitlement lockstep.GPUTime `json:"recentEntitlement"` // RecentEntitlement is explained there.
}

// Claim returns what orders tenants: the lag that counts by Config.Memory, with
// credit and what overhead adds. A pass also looks ahead.
func (s *Statement) Claim() lockstep.GPUTime {
	return s.RecentEntitlement.Sub(s.RecentService).Add(s.Credit).Add(s.Adjust)
}

// Lag returns what the tenant is owed: entitlement less service. It is negative
// for one that got more.
func (s *Statement) Lag() lockstep.GPUTime { return s.Entitlement.Sub(s.Service) }

// Index returns service over entitlement, for reports: 1 is fair, less is
// owed. It is not ok where the tenant was never entitled to anything.
func (s *Statement) Index() (index float64, ok bool) { return ratio(s.Service, s.Entitlement) }

// JobStatement is the account of a job at one time, or when it finished.
type JobStatement struct {
	Job       lockstep.JobID    `json:"job"`               // Job is which job it is.
	Tenant    lockstep.TenantID `json:"tenant"`            // Tenant is whose it is.
	Submitted time.Time         `json:"submitted"`         // Submitted is when it began to wait.
	Running   bool              `json:"running,omitempty"` // Running says that it holds its grant.
	Done      bool              `json:"done,omitempty"`    // Done says that it is finished.
	Demand    lockstep.MilliGPU `json:"demand"`            // Demand is what it asks for.
	Held      lockstep.MilliGPU `json:"held"`              // Held is what it holds.

	Service     lockstep.GPUTime `json:"service"`     // Service is what it held, over time.
	Entitlement lockstep.GPUTime `json:"entitlement"` // Entitlement is an equal part of its tenant's, over its time.
	Overhead    lockstep.GPUTime `json:"overhead"`    // Overhead is how much of Service was reported to have gone into saving and restoring.
	Ran         time.Duration    `json:"ran"`         // Ran is for how long it held its grants, whatever their size.
	Wanted      lockstep.GPUTime `json:"wanted"`      // Wanted is what it asked for, over its time.
}

// Lag returns what the job is owed within its tenant: entitlement less service.
func (s *JobStatement) Lag() lockstep.GPUTime { return s.Entitlement.Sub(s.Service) }

// Index returns service over entitlement, or over what the job wanted if that
// is less: ASTRAEA's ratio of a job. It is not ok where that is nothing.
func (s *JobStatement) Index() (index float64, ok bool) {
	if s.Wanted.Cmp(s.Entitlement) < 0 {
		return ratio(s.Service, s.Wanted)
	}
	return ratio(s.Service, s.Entitlement)
}

// Totals are sums over all tenants, forgotten ones included.
type Totals struct {
	Time     time.Time         `json:"time"`     // Time is up to when they count.
	Tenants  int               `json:"tenants"`  // Tenants is how many accounts are kept.
	Jobs     int               `json:"jobs"`     // Jobs is how many jobs are kept.
	Capacity lockstep.MilliGPU `json:"capacity"` // Capacity is what there is to share now.
	Demand   lockstep.MilliGPU `json:"demand"`   // Demand is what all jobs ask for now.
	Held     lockstep.MilliGPU `json:"held"`     // Held is what all jobs hold now.

	Offered lockstep.GPUTime `json:"offered"` // Offered is the capacity, over time.
	Wanted  lockstep.GPUTime `json:"wanted"`  // Wanted is the lesser of capacity and demand, over time: under MaxMin the sum of all entitlements.
	Service lockstep.GPUTime `json:"service"` // Service is what all jobs held, over time.
}

// read returns now, which was given as field, as nanoseconds; it must not be
// before the ledger's.
func (l *Ledger) read(call string, now time.Time) (int64, error) {
	ns, err := in.Nanos(call, "now", now)
	if err == nil && l.started {
		err = in.NotBefore(call, "now", now, ns, l.now)
	}
	return ns, err
}

// Statement returns the account of tenant at now, as if nothing happened since
// the latest event. It changes nothing.
func (l *Ledger) Statement(now time.Time, tenant lockstep.TenantID) (Statement, error) {
	ns, err := l.read("statement", now)
	if err != nil {
		return Statement{}, err
	}
	t := l.tenants[tenant]
	if t == nil {
		return Statement{}, fault(lockstep.ErrUnknown, "statement", "tenant", errtext.Quote(tenant), "has not joined")
	}
	v := l.at(ns)
	return l.statement(t, &v), nil
}

// AppendStatements appends the accounts of all tenants that are not forgotten
// to dst, by ID.
func (l *Ledger) AppendStatements(dst []Statement, now time.Time) ([]Statement, error) {
	ns, err := l.read("statements", now)
	if err != nil {
		return dst, err
	}
	v := l.at(ns)
	for _, t := range l.sorted() {
		dst = append(dst, l.statement(t, &v))
	}
	return dst, nil
}

// sorted returns all tenants by ID. It is kept until one comes or goes.
func (l *Ledger) sorted() []*tenant {
	if l.byID == nil {
		l.byID = make([]*tenant, 0, len(l.tenants))
		for _, t := range l.tenants { // in any order: sorted below
			l.byID = append(l.byID, t)
		}
		slices.SortFunc(l.byID, func(a, b *tenant) int { return strings.Compare(string(a.id), string(b.id)) })
	}
	return l.byID
}

func (l *Ledger) statement(t *tenant, v *view) Statement {
	s := Statement{
		Tenant: t.id, Time: lockstep.FromNanos(v.now), Joined: t.joined, Weight: t.weight,
		Live: t.live, Demand: t.demand, Held: t.rate,
		Service:     lockstep.GPUTime(t.served(v)),
		Entitlement: lockstep.GPUTime(l.entitled(t, v).Near()),
		Nominal:     lockstep.GPUTime(l.nominally(t, v).Near()),
		Worst:       lockstep.GPUTime(t.worst),
	}
	if q := l.queueOf(t); q != nil {
		s.Waiting = q.Len()
	}
	if t.joined {
		s.Share = lockstep.MilliGPU(v.levels[t.rank()].rate(uint64(t.demand), t.pull()))
	}
	if lag := s.Lag(); lag.Cmp(s.Worst) > 0 {
		s.Worst = lag
	}
	worst := t.index
	worst.note(int128.Int(s.Service), int128.Int(s.Entitlement))
	s.WorstIndex = 1
	if index, ok := ratio(lockstep.GPUTime(worst.service), lockstep.GPUTime(worst.entitled)); ok {
		s.WorstIndex = index
	}
	s.Raw, s.Overhead = lockstep.GPUTime(t.handled(v)), lockstep.GPUTime(t.overhead)
	s.Credit = lockstep.GPUTime(l.saved(t, v))
	w := l.window(v)
	before := w.of(t)
	s.Adjust = lockstep.GPUTime(t.adjust.Sub(before.adjust))
	s.RecentService = s.Service.Sub(lockstep.GPUTime(before.service))
	s.RecentEntitlement = s.Entitlement.Sub(lockstep.GPUTime(before.entitled))
	if l.recent != nil {
		l.decayed(&s, v.now)
	}
	return s
}

// nominally returns t's nominal entitlement at v.
func (l *Ledger) nominally(t *tenant, v *view) int128.Fixed {
	if !t.joined {
		return t.nominal
	}
	return t.nominal.Add(l.nominal.Add(v.rising).Sub(t.nominalFrom).Mul(uint64(t.weight)))
}

// JobStatement returns the account of job at now, as if nothing happened since
// the latest event. It changes nothing.
func (l *Ledger) JobStatement(now time.Time, job lockstep.JobID) (JobStatement, error) {
	ns, err := l.read("job statement", now)
	if err != nil {
		return JobStatement{}, err
	}
	j := l.jobs[job]
	if j == nil {
		return JobStatement{}, fault(lockstep.ErrUnknown, "job statement", "job", errtext.Quote(job), "was not submitted")
	}
	v := l.at(ns)
	s := JobStatement{
		Job: j.id, Tenant: j.tenant.id, Submitted: lockstep.FromNanos(j.submitted),
		Running: j.running, Done: j.done, Demand: j.demand, Held: j.grant,
		Entitlement: lockstep.GPUTime(l.share(j, &v)),
	}
	service, wanted := j.at(v.now)
	s.Service, s.Wanted = lockstep.GPUTime(service), lockstep.GPUTime(wanted)
	s.Overhead = lockstep.GPUTime(j.overhead)
	_, ran := j.ranAt(v.now).Words() // no longer than all of time, which is 2^64
	s.Ran = time.Duration(min(ran, 1<<63-1))
	return s, nil
}

// share returns what j is entitled to at v.
func (l *Ledger) share(j *job, v *view) int128.Int {
	if j.done {
		return j.share
	}
	share, _, _ := l.shared(j.tenant, v)
	return share.Sub(j.share)
}

// Totals returns the sums at now. It changes nothing.
func (l *Ledger) Totals(now time.Time) (Totals, error) {
	ns, err := l.read("totals", now)
	if err != nil {
		return Totals{}, err
	}
	v := l.at(ns)
	return Totals{
		Time: lockstep.FromNanos(v.now), Tenants: len(l.tenants), Jobs: len(l.jobs),
		Capacity: l.capacity, Demand: l.demand, Held: l.rate,
		Offered: lockstep.GPUTime(l.offered.Add(rated(l.capacity, v.dt))),
		Wanted:  lockstep.GPUTime(l.owed.Add(rated(min(l.capacity, l.demand), v.dt))),
		Service: lockstep.GPUTime(l.served.Add(rated(l.rate, v.dt))),
	}, nil
}

// ErrorBound returns by how much, at most, any tenant's Entitlement or Nominal
// so far can differ from that of real numbers: 2 MilliGPU-nanoseconds until events
// times weights exceed 2^64. Service never differs.
//
// An entitlement is kept in steps of 2^-64. What the shares of a tier do not
// divide is less than one step for each weight and is carried to the next
// division; an event that changes who shares, or how, can at most hand all of
// that to another tenant. One more for reading in whole MilliGPU-nanoseconds.
func (l *Ledger) ErrorBound() lockstep.GPUTime {
	hi, _ := bits.Mul64(l.seq+1, max(l.maxPull, l.tiers[0].pull(), l.tiers[1].pull()))
	return lockstep.GPUTime(int128.Of(2).Add(int128.Mul(hi, 1)))
}
