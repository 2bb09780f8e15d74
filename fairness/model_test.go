package fairness

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// This file is the slow reference: every tenant is visited at every event, the
// water level is found by rounds, and all numbers are big. It keeps two books:
// one with the ledger's own rounding, which must agree to the last bit, and one
// in real (rational) numbers, which must agree within ErrorBound.

type refJob struct {
	owner                    lockstep.TenantID
	tenant                   *refTenant
	demand, grant, submitted int64
	running, done            bool
	service, wanted, share   *big.Int
	fluidShare               *big.Rat // as long as it lives
}

type refTenant struct {
	weight                     int64
	joined                     bool
	demand, rate, live         int64
	entitled, share, shareRest *big.Int // entitled and shareRest in steps of 2^-64
	service                    *big.Int
	fluid, nominal             *big.Rat
	q                          *big.Rat // present rate
}

type reference struct {
	basis    Basis
	fluidToo bool
	now      int64
	started  bool
	capacity int64
	tenants  map[lockstep.TenantID]*refTenant
	jobs     map[lockstep.JobID]*refJob
	rest     [2]*big.Int
	wanted   *big.Int
	offered  *big.Int
	served   *big.Int
}

func newReference(basis Basis, capacity lockstep.MilliGPU) *reference {
	return &reference{
		basis: basis, fluidToo: true, capacity: int64(capacity),
		tenants: map[lockstep.TenantID]*refTenant{}, jobs: map[lockstep.JobID]*refJob{},
		rest: [2]*big.Int{{}, {}}, wanted: &big.Int{}, offered: &big.Int{}, served: &big.Int{},
	}
}

func bi(v int64) *big.Int { return big.NewInt(v) }

func mul(vs ...int64) *big.Int {
	p := bi(1)
	for _, v := range vs {
		p.Mul(p, bi(v))
	}
	return p
}

// rates sets every tenant's rate, and returns, by tier, room and weight of those
// that get less than they ask for.
func (r *reference) rates() (room, pull [2]*big.Int) {
	left := r.capacity
	for k := range 2 {
		var members []*refTenant
		total := int64(0)
		for _, t := range r.tenants { // order does not matter: the level is unique
			if t.joined && (t.weight == 0) == (k == 1) {
				members = append(members, t)
				t.q = nil
				total += t.pullOf()
			}
		}
		room[k], pull[k] = &big.Int{}, &big.Int{}
		if r.basis == Active {
			open := int64(0)
			for _, t := range members {
				if t.demand != 0 {
					open += t.pullOf()
				}
			}
			for _, t := range members {
				t.q = new(big.Rat)
				if open != 0 {
					t.q.SetFrac(mul(left, t.pullOf()), bi(open))
				}
				if d := new(big.Rat).SetInt64(t.demand); d.Cmp(t.q) <= 0 {
					t.q = d
				}
			}
			room[k], pull[k] = bi(left), bi(open)
			if open != 0 {
				left = 0
			}
			continue
		}
		if r.basis == Fixed {
			for _, t := range members {
				t.q = new(big.Rat)
				if k == 0 {
					t.q.SetFrac(mul(r.capacity, t.weight), bi(total))
				}
				if d := new(big.Rat).SetInt64(t.demand); d.Cmp(t.q) <= 0 {
					t.q = d
				}
			}
			room[k], pull[k] = bi(r.capacity), bi(total)
			if k == 1 {
				room[k] = &big.Int{}
			}
			continue
		}
		for satisfied, again := int64(0), true; again; {
			again = false
			open := int64(0)
			for _, t := range members {
				if t.q == nil {
					open += t.pullOf()
				}
			}
			if open == 0 {
				break
			}
			level := new(big.Rat).SetFrac(bi(left-satisfied), bi(open))
			for _, t := range members {
				if t.q == nil && new(big.Rat).SetFrac(bi(t.demand), bi(t.pullOf())).Cmp(level) <= 0 {
					t.q = new(big.Rat).SetInt64(t.demand)
					again = true
				}
			}
			if again {
				satisfied = 0
				for _, t := range members {
					if t.q != nil {
						satisfied += t.demand
					}
				}
				continue
			}
			for _, t := range members {
				if t.q == nil {
					t.q = new(big.Rat).Mul(level, new(big.Rat).SetInt64(t.pullOf()))
					pull[k].Add(pull[k], bi(t.pullOf()))
				}
			}
			room[k] = bi(left - satisfied)
		}
		all := int64(0)
		for _, t := range members {
			all += t.demand
		}
		left -= min(left, all)
	}
	return room, pull
}

func (t *refTenant) pullOf() int64 { return max(t.weight, 1) }

func (r *reference) advance(now int64) {
	if !r.started {
		r.started, r.now = true, now
	}
	dt := now - r.now
	r.now = now
	if dt == 0 {
		return
	}
	room, pull := r.rates()
	var rise [2]*big.Int
	for k := range 2 {
		if pull[k].Sign() > 0 {
			total := new(big.Int).Mul(room[k], bi(dt))
			total.Lsh(total, 64).Add(total, r.rest[k])
			rise[k], r.rest[k] = new(big.Int).QuoRem(total, pull[k], new(big.Int))
		}
	}
	var demand, weights int64
	for _, t := range r.tenants { // order does not matter: each on its own
		demand += t.demand
		if t.joined {
			weights += t.weight
		}
		t.service.Add(t.service, mul(t.rate, dt))
		if !t.joined {
			continue
		}
		k := 0
		if t.weight == 0 {
			k = 1
		}
		gain := mul(t.demand, dt)
		gain.Lsh(gain, 64)
		if t.q.Cmp(new(big.Rat).SetInt64(t.demand)) < 0 {
			gain = new(big.Int).Mul(rise[k], bi(t.pullOf()))
		}
		t.entitled.Add(t.entitled, gain)
		if t.live > 0 && gain.Sign() > 0 {
			t.shareRest.Add(t.shareRest, gain)
			each := new(big.Int).Rsh(t.shareRest, 64)
			each.Quo(each, bi(t.live))
			t.share.Add(t.share, each)
			t.shareRest.Sub(t.shareRest, each.Mul(each, bi(t.live)).Lsh(each, 64))
		}
		if r.fluidToo {
			t.fluid.Add(t.fluid, new(big.Rat).Mul(t.q, new(big.Rat).SetInt64(dt)))
		}
	}
	for _, t := range r.tenants { // order does not matter: each on its own
		if t.joined && weights > 0 && r.fluidToo {
			t.nominal.Add(t.nominal, new(big.Rat).SetFrac(mul(r.capacity, t.weight, dt), bi(weights)))
		}
	}
	for _, j := range r.jobs { // order does not matter: each on its own
		if !j.done {
			j.wanted.Add(j.wanted, mul(j.demand, dt))
			j.service.Add(j.service, mul(j.grant, dt))
			if r.fluidToo {
				part := new(big.Rat).Mul(j.tenant.q, new(big.Rat).SetFrac(bi(dt), bi(j.tenant.live)))
				j.fluidShare.Add(j.fluidShare, part)
			}
		}
	}
	r.wanted.Add(r.wanted, mul(min(r.capacity, demand), dt))
	r.offered.Add(r.offered, mul(r.capacity, dt))
	held := int64(0)
	for _, t := range r.tenants { // order does not matter: a sum
		held += t.rate
	}
	r.served.Add(r.served, mul(held, dt))
}

// apply does what an event that the ledger accepted does.
func (r *reference) apply(e Event) {
	if e.Kind != EventForget && e.Kind != EventForgetTenant {
		r.advance(e.Time.UnixNano())
	}
	t, j, amount := r.tenants[e.Tenant], r.jobs[e.Job], int64(e.Amount)
	switch e.Kind {
	case EventJoin:
		if t == nil {
			t = &refTenant{entitled: &big.Int{}, share: &big.Int{}, shareRest: &big.Int{}, service: &big.Int{}, fluid: &big.Rat{}, nominal: &big.Rat{}}
			r.tenants[e.Tenant] = t
		}
		t.joined, t.weight = true, e.Weight
	case EventLeave:
		t.joined = false
	case EventWeight:
		t.weight = e.Weight
	case EventCapacity:
		r.capacity = amount
	case EventSubmit:
		r.jobs[e.Job] = &refJob{
			owner: e.Tenant, tenant: t, demand: amount, submitted: r.now, service: &big.Int{}, wanted: &big.Int{},
			share: new(big.Int).Set(t.share), fluidShare: &big.Rat{},
		}
		t.live++
		t.demand += amount
	case EventDemand:
		j.tenant.demand += amount - j.demand
		j.demand = amount
	case EventStart, EventResize:
		j.tenant.rate += amount - j.grant
		j.grant, j.running = amount, true
	case EventStop:
		j.tenant.rate -= j.grant
		j.grant, j.running = 0, false
	case EventFinish:
		j.tenant.rate -= j.grant
		j.tenant.demand -= j.demand
		j.tenant.live--
		j.grant, j.running, j.done = 0, false, true
		j.share.Sub(j.tenant.share, j.share)
	case EventForget:
		delete(r.jobs, e.Job)
	case EventForgetTenant:
		delete(r.tenants, e.Tenant)
	}
}

func steps(a int128.Fixed) *big.Int {
	hi, lo, frac := a.Words()
	v := new(big.Int).SetUint64(hi)
	v.Lsh(v, 64).Add(v, new(big.Int).SetUint64(lo))
	return v.Lsh(v, 64).Add(v, new(big.Int).SetUint64(frac))
}

// compare requires that l agrees with r, at r.now.
func (r *reference) compare(t *testing.T, l *Ledger) {
	t.Helper()
	now := lockstep.FromNanos(r.now)
	v := l.at(r.now)
	bound := new(big.Rat).SetInt(l.ErrorBound().Big())
	near := func(what string, want *big.Rat, got lockstep.GPUTime) {
		diff := new(big.Rat).Sub(new(big.Rat).SetInt(got.Big()), want)
		require.LessOrEqual(t, diff.Abs(diff).Cmp(bound), 0, "%s: %s, really %s", what, got, want.FloatString(6))
	}
	require.Len(t, l.tenants, len(r.tenants))
	require.Len(t, l.jobs, len(r.jobs))
	if !r.started {
		return
	}
	r.rates()
	for id, want := range r.tenants { // order does not matter: each is checked
		got := l.tenants[id]
		s, err := l.Statement(now, id)
		require.NoError(t, err)
		require.Zero(t, want.entitled.Cmp(steps(l.entitled(got, &v))), "%s is entitled to %v, want %v", id, steps(l.entitled(got, &v)), want.entitled)
		share, rest, _ := l.shared(got, &v)
		require.Zero(t, want.share.Cmp(share.Big()), id)
		require.Zero(t, want.shareRest.Cmp(steps(rest)), id)
		require.Zero(t, want.service.Cmp(s.Service.Big()), id)
		require.Equal(t, want.rate, int64(s.Held))
		require.Equal(t, want.demand, int64(s.Demand))
		if want.joined {
			require.Zero(t, new(big.Int).Quo(want.q.Num(), want.q.Denom()).Cmp(bi(int64(s.Share))), "%s: rate %v, want %v", id, s.Share, want.q)
		}
		if r.fluidToo {
			near(string(id)+" entitlement", want.fluid, s.Entitlement)
			near(string(id)+" nominal", want.nominal, s.Nominal)
		}
	}
	for id, want := range r.jobs { // order does not matter: each is checked
		s, err := l.JobStatement(now, id)
		require.NoError(t, err)
		require.Zero(t, want.service.Cmp(s.Service.Big()), id)
		require.Zero(t, want.wanted.Cmp(s.Wanted.Big()), id)
		share := want.share
		if !want.done {
			share = new(big.Int).Sub(want.tenant.share, share)
		}
		require.Zero(t, share.Cmp(s.Entitlement.Big()), id)
	}
	totals, err := l.Totals(now)
	require.NoError(t, err)
	require.Zero(t, r.wanted.Cmp(totals.Wanted.Big()))
	require.Zero(t, r.offered.Cmp(totals.Offered.Big()))
	require.Zero(t, r.served.Cmp(totals.Service.Big()))
	for k := range r.rest {
		if l.now != r.now { // reading carries nothing over
			break
		}
		require.Zero(t, r.rest[k].Cmp(new(big.Int).SetUint64(l.tiers[k].rest)))
	}
}

// source makes random events, most of them valid for l.
type source struct {
	*rand.Rand
	now     time.Time
	tenants int
	jobs    int
	weights []int64
	amounts []lockstep.MilliGPU
}

func newSource(seed uint64) *source {
	return &source{
		Rand: rand.New(rand.NewPCG(seed, 7)), now: epoch, tenants: 5, jobs: 12,
		weights: []int64{0, 0, 1, 1, 1, 2, 3, 5, 7, 12, 1000, MaxWeight},
		amounts: []lockstep.MilliGPU{0, 1, 7, 500, 1000, 1000, 1000, 2000, 4000, 8000, 8000, 64000},
	}
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// suits lists the jobs that an event of kind could be about.
func suits(l *Ledger, kind EventKind) (fit []lockstep.JobID) {
	for _, id := range ids(l.jobs) {
		j := l.jobs[id]
		ok := !j.done
		switch kind {
		case EventStart:
			ok = ok && !j.running
		case EventStop, EventResize:
			ok = ok && j.running
		case EventForget:
			ok = j.done
		}
		if ok {
			fit = append(fit, id)
		}
	}
	return fit
}

// next returns an event that l accepts more often than not.
func (s *source) next(l *Ledger) Event {
	switch s.IntN(4) {
	case 0: // the same instant
	case 1:
		s.now = s.now.Add(time.Duration(1 + s.IntN(3)))
	case 2:
		s.now = s.now.Add(time.Duration(s.IntN(1_000_000)))
	case 3:
		s.now = s.now.Add(time.Duration(s.IntN(3600)) * time.Second)
	}
	e := Event{
		Time:   s.now,
		Tenant: lockstep.TenantID(fmt.Sprint("t", s.IntN(s.tenants))),
		Job:    lockstep.JobID(fmt.Sprint("j", s.IntN(s.jobs))),
		Weight: pick(s.Rand, s.weights),
		Amount: pick(s.Rand, s.amounts),
	}
	e.Kind = pick(s.Rand, []EventKind{
		EventJoin, EventJoin, EventJoin, EventSubmit, EventSubmit, EventSubmit, EventSubmit, EventStart, EventStart, EventStart, EventStart, EventStop,
		EventStop, EventFinish, EventFinish, EventForget, EventForget, EventResize, EventDemand, EventDemand, EventLeave, EventWeight, EventCapacity, EventForgetTenant, EventOverhead,
	})
	if e.Kind == EventStart || e.Kind == EventResize {
		e.Raw = pick(s.Rand, s.amounts)
	}
	if e.Kind == EventOverhead {
		e.Cost = lockstep.GPUTimeOf(e.Amount, time.Duration(s.IntN(1000))*time.Millisecond)
	}
	if fit := suits(l, e.Kind); e.Kind != EventSubmit && len(fit) != 0 && s.IntN(8) != 0 {
		e.Job = pick(s.Rand, fit)
		if demand := l.jobs[e.Job].demand; (e.Kind == EventStart || e.Kind == EventResize) && e.Amount > demand {
			e.Amount = demand
		}
	}
	return e
}

// ids returns the keys of m, sorted.
func ids[K ~string, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m { // in any order: sorted below
		keys = append(keys, k)
	}
	sort.Slice(keys, func(a, b int) bool { return keys[a] < keys[b] })
	return keys
}

func lists(full int) int {
	if testing.Short() {
		return max(full/20, 1)
	}
	return full
}

// TestLedgerAgreesWithReference is invariant 17, and with it 2: over random
// lists of events every account agrees with the reference after each event, bit
// for bit where the reference rounds alike, and within ErrorBound of real numbers.
func TestLedgerAgreesWithReference(t *testing.T) {
	accepted := 0
	for seed := range lists(6_000) {
		basis := bases[seed%3]
		src := newSource(uint64(seed))
		l, err := New(Config{Basis: basis, Capacity: 8000})
		require.NoError(t, err)
		ref := newReference(basis, 8000)
		for range 50 {
			e := src.next(l)
			if l.Apply(e) != nil {
				continue
			}
			accepted++
			ref.apply(e)
			if accepted%4 == 0 {
				ref.compare(t, l)
			}
		}
		ref.advance(src.now.Add(time.Hour).UnixNano())
		ref.compare(t, l)
	}
	t.Log(accepted, "events")
}

// TestNoDriftOverALongRun is one ledger that lives long, against the book that
// rounds alike.
func TestNoDriftOverALongRun(t *testing.T) {
	src := newSource(42)
	src.tenants, src.jobs = 8, 30
	l, err := New(Config{Capacity: 16000})
	require.NoError(t, err)
	ref := newReference(MaxMin, 16000)
	ref.fluidToo = false
	n := 0
	for n < lists(50_000) {
		e := src.next(l)
		if l.Apply(e) != nil {
			continue
		}
		ref.apply(e)
		if n++; n%500 == 0 {
			ref.compare(t, l)
		}
	}
	t.Logf("%d events: error bound %s MilliGPU-nanoseconds", n, l.ErrorBound())
}
