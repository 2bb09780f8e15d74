package main

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// The peers are rebuilt from their formulas as policies of our scheduler, so that
// placement, leases, checkpoints and backfill are the same for all and only the
// order differs. Inside a tenant jobs come by submission, but for Themis.

// entry is a job as a peer knows it.
type entry struct {
	id           lockstep.JobID
	tenant       *account
	demand, held float64 // GPUs
	submitted    time.Time
	run          time.Duration // with devices, up to since
	since        time.Time
	length       time.Duration
	due          bool
}

func (e *entry) ran(now time.Time) time.Duration {
	if e.held == 0 {
		return e.run
	}
	return e.run + now.Sub(e.since)
}

// account is a tenant as a peer knows it.
type account struct {
	id        lockstep.TenantID
	weight    float64 // of all weights together
	demand    float64
	held      float64
	ahead     float64 // granted in this pass
	usage     float64 // by the peer's own memory
	fair      float64 // the peer's share, in GPUs
	jobs      int
	since     time.Time
	proposals []*entry
}

// peer is a Policy that orders tenants by a key, least first.
type peer struct {
	capacity float64
	jobs     map[lockstep.JobID]*entry
	tenants  []*account // by ID
	remember func(p *peer, a *account, now time.Time)
	prepare  func(p *peer, now time.Time)
	key      func(a *account) float64
	jobKey   func(e *entry, now time.Time) float64 // of all jobs, where tenants do not count; nil where they do
	now      time.Time
	list     []*entry // proposals by jobKey
}

func newPeer(capacity float64, weights map[lockstep.TenantID]int64) *peer {
	p := &peer{capacity: capacity, jobs: map[lockstep.JobID]*entry{}}
	sum := 0.0
	for _, w := range weights { // a sum of whole numbers is one in any order
		sum += float64(w)
	}
	for id, w := range weights { // in any order: sorted below
		p.tenants = append(p.tenants, &account{id: id, weight: float64(w) / sum})
	}
	slices.SortFunc(p.tenants, func(a, b *account) int { return strings.Compare(string(a.id), string(b.id)) })
	return p
}

func (p *peer) account(id lockstep.TenantID) *account {
	i, _ := slices.BinarySearchFunc(p.tenants, id, func(a *account, id lockstep.TenantID) int { return strings.Compare(string(a.id), string(id)) })
	return p.tenants[i]
}

// settle brings what a tenant used up to now.
func (p *peer) settle(a *account, now time.Time) {
	if p.remember != nil {
		p.remember(p, a, now)
	}
	a.since = now
}

func (p *peer) Submit(now time.Time, g *lockstep.Gang) error {
	a := p.account(g.Tenant)
	p.settle(a, now)
	e := &entry{id: g.ID, tenant: a, demand: float64(g.GPUs(nil)) / 1000, submitted: now, length: g.Walltime}
	p.jobs[g.ID] = e
	a.demand += e.demand
	a.jobs++
	return nil
}

func (p *peer) hold(now time.Time, job lockstep.JobID, held lockstep.MilliGPU) {
	e := p.jobs[job]
	p.settle(e.tenant, now)
	e.run = e.ran(now)
	e.since, e.due = now, false
	e.tenant.held += float64(held)/1000 - e.held
	e.held = float64(held) / 1000
}

func (p *peer) Start(now time.Time, job lockstep.JobID, held lockstep.MilliGPU) error {
	p.hold(now, job, held)
	return nil
}

func (p *peer) Resize(now time.Time, job lockstep.JobID, held lockstep.MilliGPU) error {
	p.hold(now, job, held)
	return nil
}

func (p *peer) Due(_ time.Time, job lockstep.JobID) error {
	p.jobs[job].due = true
	return nil
}

func (p *peer) Stop(now time.Time, job lockstep.JobID) error {
	p.hold(now, job, 0)
	return nil
}

func (p *peer) Finish(now time.Time, job lockstep.JobID) error {
	p.hold(now, job, 0)
	e := p.jobs[job]
	e.tenant.demand -= e.demand
	e.tenant.jobs--
	delete(p.jobs, job)
	return nil
}

func (p *peer) Forget(lockstep.JobID) error { return nil }

func (p *peer) Begin(now time.Time) {
	p.now = now
	for _, a := range p.tenants {
		p.settle(a, now)
		a.ahead, a.proposals = 0, a.proposals[:0]
	}
	if p.prepare != nil {
		p.prepare(p, now)
	}
	p.list = p.list[:0]
	for _, e := range p.jobs { // in any order: sorted below
		if e.held == 0 || e.due {
			p.list = append(p.list, e)
			if e.due {
				e.tenant.ahead -= e.held // it competes for what it holds
			}
		}
	}
	slices.SortFunc(p.list, func(a, b *entry) int {
		if p.jobKey != nil {
			if c := cmp.Compare(p.jobKey(a, now), p.jobKey(b, now)); c != 0 {
				return c
			}
		}
		return cmp.Or(a.submitted.Compare(b.submitted), strings.Compare(string(a.id), string(b.id)))
	})
	if p.jobKey == nil {
		for _, e := range p.list {
			e.tenant.proposals = append(e.tenant.proposals, e)
		}
	}
}

func (p *peer) Next() (lockstep.JobID, bool) {
	if p.jobKey != nil {
		if len(p.list) == 0 {
			return "", false
		}
		e := p.list[0]
		p.list = p.list[1:]
		return e.id, true
	}
	var best *account
	for _, a := range p.tenants {
		if len(a.proposals) > 0 && (best == nil || p.key(a) < p.key(best)) {
			best = a
		}
	}
	if best == nil {
		return "", false
	}
	e := best.proposals[0]
	best.proposals = best.proposals[1:]
	return e.id, true
}

func (p *peer) Outcome(job lockstep.JobID, o lockstep.Outcome) {
	if e := p.jobs[job]; e != nil && (o == lockstep.Granted || o == lockstep.Kept) {
		e.tenant.ahead += e.demand
		e.due = e.due && o != lockstep.Kept
	}
}

// drf is dominant resource fairness with one resource (Ghodsi et al., NSDI 2011).
func drf(p *peer) *peer {
	p.key = func(a *account) float64 { return (a.held + a.ahead) / a.weight }
	return p
}

// kai is KAI's time-based fair share (72de64f, resource_division.go): what is left
// above the deserved amounts goes by max(0, W + k(W - U)), with U the usage of a
// week over the capacity, halved each week, and k = 1; least allocated over fair
// share first. Queues deserve nothing here, so that all of it goes that way.
func kai(p *peer) *peer {
	p.remember = func(p *peer, a *account, now time.Time) { halve(a, now, week) }
	p.prepare = func(p *peer, _ time.Time) {
		total := 0.0
		for _, a := range p.tenants {
			total += a.usage
		}
		part := func(a *account) float64 {
			used := 0.0
			if total > 0 {
				used = a.usage / (p.capacity * week.Seconds())
			}
			return max(0, a.weight+(a.weight-used))
		}
		pour(p, part)
	}
	p.key = func(a *account) float64 { return (a.held + a.ahead) / max(a.fair, 1e-9) }
	return p
}

// kueue is Kueue's admission fair sharing (ff69552): usage with a half-life of a
// week, sampled every 5 minutes, plus what is admitted now; least over weight first.
func kueue(p *peer) *peer {
	p.remember = func(p *peer, a *account, now time.Time) {
		const period = 300 * time.Second
		for a.since.IsZero() || now.Sub(a.since.Truncate(period)) >= period {
			if a.since.IsZero() {
				a.since = now
				return
			}
			k := 1 - math.Exp2(-period.Seconds()/week.Seconds())
			a.usage = (1-k)*a.usage + k*a.held
			a.since = a.since.Truncate(period).Add(period)
		}
	}
	entry := 1 - math.Exp2(-300/week.Seconds())
	p.key = func(a *account) float64 { return (a.usage + entry*max(a.ahead, 0)) / a.weight }
	return p
}

// themis is finish-time fairness (Mahajan et al., NSDI 2020): greatest first of the
// time from submission to the end, were it started now, over what it would have
// taken on the tenant's part of the cluster divided among its jobs.
func themis(p *peer) *peer {
	p.jobKey = func(e *entry, now time.Time) float64 {
		shared := now.Sub(e.submitted) + e.length - e.ran(now)
		quota := e.tenant.weight * p.capacity / float64(max(e.tenant.jobs, 1))
		alone := e.length.Seconds() * max(1, e.demand/quota)
		return -shared.Seconds() / alone
	}
	return p
}

// halve lets a tenant's usage decay up to now, with what it held since.
func halve(a *account, now time.Time, half time.Duration) {
	if !a.since.IsZero() {
		a.usage = decayed(a.usage, a.held, int64(now.Sub(a.since)), half)
	}
}

// pour divides the capacity among tenants by part, nobody getting more than it
// demands, in rounds.
func pour(p *peer, part func(*account) float64) {
	left := p.capacity
	for _, a := range p.tenants {
		a.fair = 0
	}
	for range len(p.tenants) {
		sum := 0.0
		for _, a := range p.tenants {
			if a.fair < a.demand {
				sum += part(a)
			}
		}
		if sum <= 0 || left < 1e-9 {
			return
		}
		given := 0.0
		for _, a := range p.tenants {
			if a.fair < a.demand {
				more := min(left*part(a)/sum, a.demand-a.fair)
				a.fair += more
				given += more
			}
		}
		left -= given
	}
}
