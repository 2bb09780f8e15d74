package fairness

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// This file plays lists of events that come as bytes, and holds a ledger of any basis
// and memory against a plain model after each: the reference for the whole accounts,
// and for what counts of them a list of all stretches of time.

// span is a stretch of time with what a tenant held and was entitled to in it.
type span struct {
	from, to   int64
	held, owed float64
}

// note is what overhead added to a tenant's claim, and when.
type note struct {
	at   int64
	cost float64
}

// past is the plain model of a tenant's or a job's claim.
type past struct {
	spans  []span
	adjust []note
	spent  []note  // spent is the overhead of a job.
	credit float64 // credit is as of the latest event.
	lag    float64 // lag is over the whole time.
}

// script is a list of events on its way.
type script struct {
	t       *testing.T
	data    []byte
	cfg     Config
	l       *Ledger
	ref     *reference
	now     int64
	first   int64
	tenants map[lockstep.TenantID]*past
	jobs    map[lockstep.JobID]*past
	events  int
}

// next takes a byte; 0 when there are no more.
func (s *script) next() int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b)
}

func of[T any](s *script, from ...T) T { return from[s.next()%len(from)] }

// newScript reads a configuration and a beginning.
func newScript(t *testing.T, data []byte) *script {
	s := &script{t: t, data: data, tenants: map[lockstep.TenantID]*past{}, jobs: map[lockstep.JobID]*past{}}
	s.cfg = Config{
		Capacity: 8000, Basis: of(s, bases...), Payer: of(s, payers...), JobOrder: of(s, orders...),
		Horizon: of(s, time.Minute, 30*time.Minute, 100*time.Hour, lockstep.MaxWalltime),
	}
	switch s.next() % 8 {
	case 1, 2:
		s.cfg.CreditCap = of(s, time.Minute, time.Hour, lockstep.MaxWalltime)
	case 3, 4:
		s.cfg.Memory = Memory{Bucket: of(s, 10*time.Minute, 7*time.Millisecond, time.Hour), Buckets: of(s, 1, 2, 24)}
	case 5, 6, 7:
		s.cfg.Memory = Memory{HalfLife: of(s, 20*time.Minute, 1, 13, time.Hour, lockstep.MaxWalltime)}
	}
	s.l = start(t, s.cfg)
	s.ref = newReference(s.cfg.Basis, s.cfg.Capacity)
	s.now = of(s, epoch.UnixNano(), 0, -int64(90*time.Minute), -int64(1)<<61)
	s.first = s.now
	for _, id := range []lockstep.TenantID{"t0", "t1"} {
		e := Event{Kind: EventJoin, Time: lockstep.FromNanos(s.now), Tenant: id, Weight: 1}
		require.NoError(t, s.l.Apply(e))
		s.follow(e)
	}
	return s
}

// unit is what times of the configuration's memory are made of.
func (s *script) unit() int64 {
	if u := int64(s.cfg.Memory.Bucket + s.cfg.Memory.HalfLife); u != 0 {
		return u
	}
	return int64(5 * time.Minute)
}

// wait lets time pass: none, a little, up to a boundary, or very long.
func (s *script) wait() {
	if s.now > 1<<61 {
		return
	}
	u := s.unit()
	edge := u
	if s.cfg.Memory.HalfLife != 0 {
		edge = min(u, 1<<57) * epochHalves
	}
	toEdge := edge - (s.now%edge+edge)%edge
	n := s.next()
	s.now += [...]int64{0, 0, 1, int64(n), u / 3, u / int64(1+n), toEdge, toEdge - 1, int64(n) * min(u, 1<<53) / 7, min(u, 1<<56) * int64(n%40), int64(n) * int64(24*time.Hour)}[s.next()%11]
}

func (s *script) event() Event {
	return Event{
		Kind: of(s, EventJoin, EventJoin, EventSubmit, EventSubmit, EventSubmit, EventStart, EventStart, EventStart, EventStop, EventFinish, EventFinish,
			EventForget, EventResize, EventDemand, EventLeave, EventWeight, EventCapacity, EventForgetTenant, EventOverhead),
		Time:   lockstep.FromNanos(s.now),
		Tenant: lockstep.TenantID(fmt.Sprint("t", s.next()%4)),
		Job:    lockstep.JobID(fmt.Sprint("j", s.next()%8)),
		Weight: of[int64](s, 1, 0, 2, 7, MaxWeight),
		Amount: of[lockstep.MilliGPU](s, 1000, 0, 1, 4000, 2500, 8000, 64000),
	}
}

// play applies events and holds the ledger against the model.
func (s *script) play() {
	for len(s.data) > 0 && s.events < 200 {
		s.wait()
		e := s.event()
		if e.Kind == EventOverhead {
			e.Cost = lockstep.GPUTimeOf(e.Amount, time.Duration(s.next()+1)*time.Second)
		}
		if j := s.l.jobs[e.Job]; j != nil && (e.Kind == EventStart || e.Kind == EventResize) {
			e.Amount = min(e.Amount, j.demand)
		}
		if s.l.Apply(e) != nil {
			continue
		}
		s.events++
		s.follow(e)
		switch s.next() % 8 {
		case 0, 1, 2:
			s.check()
		case 3:
			s.pass()
		case 4:
			data := saved(s.t, s.l)
			s.l = restore(s.t, s.cfg, data)
			same(s.t, data, saved(s.t, s.l))
		case 5:
			before := saved(s.t, s.l)
			if u := min(s.unit(), 1<<54); s.now < 1<<61 {
				s.now += of(s, u/5, u, 3*u, 14*u, 40*u)
			}
			s.check()
			s.pass()
			same(s.t, before, saved(s.t, s.l))
		}
	}
	s.check()
	s.pass()
}

// follow does to the model what an event did to the ledger.
func (s *script) follow(e Event) {
	if e.Kind != EventForget && e.Kind != EventForgetTenant {
		s.elapse(s.now)
	}
	switch e.Kind {
	case EventJoin:
		if s.tenants[e.Tenant] == nil {
			s.tenants[e.Tenant] = &past{}
		}
	case EventForgetTenant:
		delete(s.tenants, e.Tenant)
	case EventSubmit:
		s.jobs[e.Job] = &past{}
	case EventForget:
		delete(s.jobs, e.Job)
	case EventOverhead:
		cost, _ := new(big.Float).SetInt(e.Cost.Big()).Float64()
		j := s.jobs[e.Job]
		if s.cfg.Memory.HalfLife != 0 { // what is left of it
			held, _ := s.counts(j.spans, s.now)
			cost = max(min(cost, held-s.total(j.spent, s.now)), 0)
		}
		j.spent = append(j.spent, note{s.now, cost})
		owner, pays := s.l.jobs[e.Job].tenant.id, s.cfg.Payer == PayReclaimer && e.Tenant != ""
		if pays || s.cfg.Payer == PayNobody {
			s.tenants[owner].adjust = append(s.tenants[owner].adjust, note{s.now, cost})
		}
		if pays {
			s.tenants[e.Tenant].adjust = append(s.tenants[e.Tenant].adjust, note{s.now, -cost})
		}
	}
	s.ref.apply(e)
}

// elapse brings the model to now at the rates that the reference has.
func (s *script) elapse(now int64) {
	from := s.ref.now
	if !s.ref.started || now == from {
		return
	}
	s.ref.rates()
	weights := int64(0)
	for _, t := range s.ref.tenants { // order does not matter: a sum
		if t.joined {
			weights += t.weight
		}
	}
	dt := float64(now - from)
	for id, t := range s.ref.tenants { // order does not matter: each on its own
		owed := 0.0
		if t.joined {
			owed, _ = t.q.Float64()
		}
		p := s.tenants[id]
		p.spans = append(p.spans, span{from, now, float64(t.rate), owed})
		p.lag += (owed - float64(t.rate)) * dt
		if t.joined && t.demand == 0 && t.weight > 0 && s.cfg.CreditCap > 0 {
			part := float64(s.ref.capacity) * float64(t.weight) / float64(weights)
			p.credit = max(p.credit, min(p.credit+part*dt, part*float64(s.cfg.CreditCap)-p.lag))
		}
	}
	for id, j := range s.ref.jobs { // order does not matter: each on its own
		if !j.done {
			p := s.jobs[id]
			p.spans = append(p.spans, span{from, now, float64(j.grant), 0})
		}
	}
}

// begin returns when what counts begins.
func (s *script) begin(now int64) int64 {
	m := s.cfg.Memory
	if m.Bucket == 0 {
		return math.MinInt64
	}
	bucket := int64(m.Bucket)
	return now - ((now%bucket)+bucket)%bucket - int64(m.Buckets)*bucket
}

// counts returns what counts of spans at now.
func (s *script) counts(spans []span, now int64) (held, owed float64) {
	begin, half := s.begin(now), float64(s.cfg.Memory.HalfLife)
	for _, p := range spans {
		weigh := float64(p.to - max(p.from, begin))
		if half > 0 {
			weigh = half / math.Ln2 * math.Exp2(-float64(now-p.to)/half) * -math.Expm1(-float64(p.to-p.from)/half*math.Ln2)
		}
		if p.to > begin {
			held, owed = held+weigh*p.held, owed+weigh*p.owed
		}
	}
	return held, owed
}

// total returns what counts of notes at now.
func (s *script) total(notes []note, now int64) (sum float64) {
	begin := s.begin(now)
	for _, n := range notes {
		switch half := float64(s.cfg.Memory.HalfLife); {
		case half > 0:
			sum += n.cost * math.Exp2(-float64(now-n.at)/half)
		case n.at >= begin:
			sum += n.cost
		}
	}
	return sum
}

// slack is how far floats and the rounding of a half-life may be from the ledger.
func (s *script) slack() float64 {
	most := float64(s.now-s.first) * 512_000
	if half := float64(s.cfg.Memory.HalfLife); half > 0 {
		most = 512_000 * half * 2
		return most*1e-10 + 1000
	}
	return most*1e-13 + float64(4*s.events) + 16
}

// check holds every statement against the model.
func (s *script) check() {
	s.elapse(s.now)
	s.ref.advance(s.now)
	s.ref.compare(s.t, s.l)
	for _, id := range ids(s.tenants) {
		p := s.tenants[id]
		got, err := s.l.Statement(lockstep.FromNanos(s.now), id)
		require.NoError(s.t, err)
		held, owed := s.counts(p.spans, s.now)
		claim := owed - held + p.credit + s.total(p.adjust, s.now)
		for _, pair := range []struct {
			what string
			want float64
			have lockstep.GPUTime
		}{
			{"service", held, got.RecentService},
			{"entitlement", owed, got.RecentEntitlement},
			{"credit", p.credit, got.Credit},
			{"adjust", s.total(p.adjust, s.now), got.Adjust},
			{"claim", claim, got.Claim()},
		} {
			require.InDelta(s.t, pair.want, int128.Int(pair.have).Float64(), s.slack(), "%+v: %s of %s after %d events", s.cfg, pair.what, id, s.events)
		}
	}
}

// pass holds the order of tenants in a pass against the model, where it is clear.
func (s *script) pass() {
	s.elapse(s.now)
	s.ref.advance(s.now)
	s.ref.rates()
	horizon := float64(s.cfg.Horizon)
	if half := float64(s.cfg.Memory.HalfLife); half > 0 {
		horizon = min(horizon, 2*half)
	}
	lag, waits := map[lockstep.TenantID]float64{}, map[lockstep.TenantID]int{}
	most := 0.0
	for _, id := range ids(s.tenants) {
		p, t := s.tenants[id], s.ref.tenants[id]
		if !t.joined {
			continue
		}
		held, owed := s.counts(p.spans, s.now)
		rate, _ := t.q.Float64()
		lag[id] = owed - held + p.credit + s.total(p.adjust, s.now) + (rate-float64(t.rate))*horizon
		most = max(most, math.Abs(lag[id]), float64(t.rate)*horizon)
	}
	for _, j := range s.ref.jobs { // order does not matter: a count
		if !j.done && !j.running {
			waits[j.owner]++
		}
	}
	slack := s.slack()*4 + most*1e-9
	order := drain(s.l, lockstep.FromNanos(s.now), func(id lockstep.JobID) lockstep.Outcome {
		mine := s.l.jobs[id].tenant.id
		waits[mine]--
		for other, n := range waits { // the order does not matter: each is checked
			guest, me := s.ref.tenants[other].weight == 0, s.ref.tenants[mine].weight == 0
			if n > 0 && other != mine {
				require.True(s.t, !me || guest, "%s before %s, which has a weight", mine, other)
				if me == guest {
					require.GreaterOrEqual(s.t, lag[mine], lag[other]-slack, "%+v: %s before %s", s.cfg, mine, other)
				}
			}
		}
		lag[mine] -= float64(s.ref.jobs[id].demand) * horizon
		return lockstep.Granted
	})
	for id, n := range waits { // the order does not matter: each is checked
		require.Zero(s.t, n, "jobs of %s that wait were not proposed: %v", id, order)
	}
}

// TestScriptsAgreeWithThePlainModel is FuzzEvents with random bytes.
func TestScriptsAgreeWithThePlainModel(t *testing.T) {
	events := 0
	for seed := range lists(700) {
		r := rand.New(rand.NewPCG(uint64(seed), 11))
		data := make([]byte, 600)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		s := newScript(t, data)
		s.play()
		events += s.events
	}
	t.Log(events, "events")
}

// FuzzEvents reads a configuration and events from bytes.
func FuzzEvents(f *testing.F) {
	for seed := range 20 {
		r := rand.New(rand.NewPCG(uint64(seed), 12))
		data := make([]byte, 200)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { newScript(t, data).play() })
}
