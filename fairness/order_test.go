package fairness

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// refPass is the slow orderer: it scans every tenant and job at every step.
type refPass struct {
	l        *Ledger
	now      int64
	lag      map[lockstep.TenantID]*big.Int
	service  map[lockstep.TenantID]*big.Int
	proposed map[lockstep.JobID]bool
}

// newRefPass reads what the pass starts from out of statements alone.
func newRefPass(t *testing.T, l *Ledger, now time.Time) *refPass {
	p := &refPass{
		l: l, now: now.UnixNano(), lag: map[lockstep.TenantID]*big.Int{}, service: map[lockstep.TenantID]*big.Int{},
		proposed: map[lockstep.JobID]bool{},
	}
	horizon := int64(l.cfg.Horizon)
	later := l.at(p.now)
	for _, id := range ids(l.tenants) {
		s, err := l.Statement(now, id)
		require.NoError(t, err)
		lag := s.Claim()
		v := lag.Big()
		tn := l.tenants[id]
		if tn.joined {
			k := 0
			if tn.weight == 0 {
				k = 1
			}
			gain := mul(int64(tn.demand), horizon)
			if level := later.levels[k]; !level.satisfied(uint64(tn.demand), tn.pull()) {
				gain = new(big.Int).Mul(new(big.Int).Mul(bi(int64(level.room)), bi(horizon)), bi(int64(tn.pull())))
				gain.Lsh(gain, 30).Quo(gain, bi(int64(level.pull)))
				gain.Add(gain, bi(1<<10)).Rsh(gain, 30) // as Near reads it
			}
			v.Add(v, gain)
		}
		committed := int64(0)
		for _, jid := range ids(l.jobs) {
			if j := l.jobs[jid]; j.tenant == tn && j.running && !j.due {
				committed += int64(j.grant)
			}
		}
		p.lag[id] = v.Sub(v, mul(committed, horizon))
		p.service[id] = s.Service.Big()
	}
	return p
}

// owed is what a job is owed within its tenant.
func (p *refPass) owed(t *testing.T, j *job) *big.Int {
	s, err := p.l.JobStatement(lockstep.FromNanos(max(p.now, p.l.now)), j.id)
	require.NoError(t, err)
	lag := s.Lag()
	return lag.Big()
}

func (p *refPass) next(t *testing.T) *job {
	var best *job
	for _, id := range ids(p.l.jobs) {
		j := p.l.jobs[id]
		if j.done || j.running && !j.due || p.proposed[id] {
			continue
		}
		if best == nil || p.ahead(t, j, best) {
			best = j
		}
	}
	if best != nil {
		p.proposed[best.id] = true
	}
	return best
}

func (p *refPass) ahead(t *testing.T, a, b *job) bool {
	u, v := a.tenant, b.tenant
	if u != v {
		if (u.weight == 0) != (v.weight == 0) {
			return v.weight == 0
		}
		if c := p.lag[u.id].Cmp(p.lag[v.id]); c != 0 {
			return c > 0
		}
		x, y := new(big.Int).Mul(p.service[u.id], bi(int64(v.pull()))), new(big.Int).Mul(p.service[v.id], bi(int64(u.pull())))
		if c := x.Cmp(y); c != 0 {
			return c < 0
		}
		return u.id < v.id
	}
	if c := p.jobs(t, a, b); c != 0 {
		return c < 0
	}
	if a.submitted != b.submitted {
		return a.submitted < b.submitted
	}
	return a.id < b.id
}

// jobs compares two jobs of a tenant by the ledger's order, from statements alone.
func (p *refPass) jobs(t *testing.T, a, b *job) int {
	now := lockstep.FromNanos(max(p.now, p.l.now))
	sa, err := p.l.JobStatement(now, a.id)
	require.NoError(t, err)
	sb, err := p.l.JobStatement(now, b.id)
	require.NoError(t, err)
	index := func(s *JobStatement, quantum time.Duration, each *big.Rat) *big.Rat {
		due := s.Entitlement
		if s.Wanted.Cmp(due) < 0 {
			due = s.Wanted
		}
		got, d := new(big.Rat).SetInt(s.Service.Big()), new(big.Rat).SetInt(due.Big())
		if quantum > 0 {
			more := new(big.Rat).SetInt(mul(int64(s.Demand), int64(quantum)))
			got.Add(got, more)
			if each.Cmp(more) < 0 {
				more = each
			}
			d.Add(d, more)
		}
		if d.Sign() == 0 {
			return nil
		}
		return got.Quo(got, d)
	}
	compare := func(x, y *big.Rat) int {
		switch {
		case x == nil && y == nil:
			return 0
		case x == nil:
			return -1
		case y == nil:
			return 1
		}
		return x.Cmp(y)
	}
	class := func(x *big.Rat) int64 {
		switch {
		case x == nil || x.Sign() == 0:
			return 0
		}
		c := int64(1)
		for _, bound := range []int64{472, 815, 1227, 2117} {
			if x.Cmp(big.NewRat(bound, 1000)) >= 0 {
				c++
			}
		}
		return c
	}
	switch p.l.cfg.JobOrder {
	case MostOwed:
		return p.owed(t, b).Cmp(p.owed(t, a))
	case Smallest:
		return bi(int64(sa.Demand)).Cmp(bi(int64(sb.Demand)))
	case LeastRun:
		return bi(int64(sa.Ran)).Cmp(bi(int64(sb.Ran)))
	case LeastIndex:
		return compare(index(&sa, 0, nil), index(&sb, 0, nil))
	case IndexClass:
		return bi(class(index(&sa, 0, nil))).Cmp(bi(class(index(&sb, 0, nil))))
	case LeastExpect:
		s, err := p.l.Statement(now, a.tenant.id)
		require.NoError(t, err)
		each := new(big.Int).Quo(mul(int64(s.Share), int64(p.l.cfg.Quantum)), bi(int64(s.Live)))
		return compare(index(&sa, p.l.cfg.Quantum, new(big.Rat).SetInt(each)), index(&sb, p.l.cfg.Quantum, new(big.Rat).SetInt(each)))
	}
	return 0
}

// TestPassAgreesWithScan is invariant 17 for the orderer, and 10 with it: in any
// state, a pass proposes each waiting or due job once, the most owed first, given
// what it granted so far.
func TestPassAgreesWithScan(t *testing.T) {
	proposals := 0
	for seed := range lists(1_000) {
		src := newSource(uint64(1_000_000 + seed))
		src.jobs = 24
		src.weights = []int64{0, 1, 1, 2, 3, 1000}
		cfg := Config{Capacity: 16000, Horizon: time.Duration(1 + src.Int64N(int64(time.Hour)))}
		cfg.JobOrder = orders[seed%len(orders)]
		cfg.Basis = bases[seed/3%3]
		cfg.Payer = payers[seed/2%3]
		if seed%5 < 2 {
			cfg.Memory = Memory{Bucket: 10 * time.Minute, Buckets: 1 + seed%4}
		} else {
			cfg.CreditCap = time.Duration(seed/5%2) * time.Hour
		}
		l, err := New(cfg)
		require.NoError(t, err)
		for step := range 120 {
			if e := src.next(l); l.Apply(e) != nil || step%10 != 0 {
				continue
			}
			for _, id := range suits(l, EventStop) {
				if src.IntN(3) == 0 {
					require.NoError(t, l.Due(id))
				}
			}
			now := src.now.Add(time.Duration(src.IntN(1_000_000)))
			want := newRefPass(t, l, now)
			l.Begin(now)
			for {
				expect := want.next(t)
				got, ok := l.Next()
				require.Equal(t, expect != nil, ok, "seed %d", seed)
				if !ok {
					break
				}
				require.Equal(t, expect.id, got, "seed %d", seed)
				proposals++
				outcome := pick(src.Rand, []lockstep.Outcome{lockstep.Granted, lockstep.Blocked, lockstep.Kept, lockstep.Dropped})
				if outcome == lockstep.Granted || outcome == lockstep.Kept {
					j := l.jobs[got]
					amount := j.demand
					if j.running {
						amount = j.grant
					}
					lag := want.lag[j.tenant.id]
					lag.Sub(lag, mul(int64(amount), int64(cfg.Horizon)))
				}
				l.Outcome(got, outcome)
				if src.IntN(4) == 0 {
					l.Outcome(got, lockstep.Granted) // a second report of a grant changes nothing
					if outcome == lockstep.Blocked || outcome == lockstep.Dropped {
						j := l.jobs[got]
						amount := j.demand
						if j.running {
							amount = j.grant
						}
						lag := want.lag[j.tenant.id]
						lag.Sub(lag, mul(int64(amount), int64(cfg.Horizon)))
					}
				}
			}
		}
	}
	t.Log(proposals, "proposals")
}

// TestReadingAheadDoesNotShow lets a ledger that searches its queues anew for
// each proposal and one that reads ahead do the same, while jobs come, go and move
// in the middle of passes, and outcomes are told late, twice, of other jobs or never.
func TestReadingAheadDoesNotShow(t *testing.T) {
	proposals := 0
	for seed := range lists(600) {
		src := newSource(uint64(2_000_000 + seed))
		src.tenants, src.jobs = 3, 60
		src.weights = []int64{0, 1, 1, 2, 3}
		cfg := Config{Capacity: 16000}
		if seed%2 == 0 {
			cfg.JobOrder = FIFO
		}
		plain, l := start(t, cfg), start(t, cfg)
		events := func(n int) {
			for range n {
				if e := src.next(l); l.Apply(e) == nil {
					require.NoError(t, plain.Apply(e))
				}
			}
		}
		last := lockstep.JobID("none")
		events(150)
		for range 10 {
			events(10)
			for _, id := range suits(l, EventStop) {
				if src.IntN(2) == 0 {
					require.NoError(t, l.Due(id))
					require.NoError(t, plain.Due(id))
				}
			}
			l.Begin(src.now)
			plain.Begin(src.now)
			for step := 0; ; step++ {
				plain.pass.reader = nil
				want, more := plain.Next()
				got, ok := l.Next()
				require.Equal(t, more, ok, "seed %d", seed)
				require.Equal(t, want, got, "seed %d", seed)
				if !ok || step > 200 {
					break
				}
				proposals++
				if src.IntN(10) == 0 {
					events(2)
				}
				outcome := pick(src.Rand, []lockstep.Outcome{lockstep.Granted, lockstep.Blocked, lockstep.Blocked, lockstep.Blocked, lockstep.Kept, lockstep.Dropped})
				for _, id := range [][]lockstep.JobID{{got}, {got}, {got}, {got, got}, {last}, nil}[src.IntN(6)] {
					l.Outcome(id, outcome)
					plain.Outcome(id, outcome)
				}
				last = got
			}
		}
		same(t, saved(t, plain), saved(t, l))
	}
	t.Log(proposals, "proposals")
}

// A Ledger is a gang.Orderer.
var _ interface {
	Begin(now time.Time)
	Next() (lockstep.JobID, bool)
	Outcome(job lockstep.JobID, outcome lockstep.Outcome)
} = (*Ledger)(nil)

func start(t testing.TB, cfg Config) *Ledger {
	l, err := New(cfg)
	require.NoError(t, err)
	return l
}

func drain(l *Ledger, now time.Time, outcome func(lockstep.JobID) lockstep.Outcome) (order []lockstep.JobID) {
	l.Begin(now)
	for {
		id, ok := l.Next()
		if !ok {
			return order
		}
		order = append(order, id)
		l.Outcome(id, outcome(id))
	}
}

func always(o lockstep.Outcome) func(lockstep.JobID) lockstep.Outcome {
	return func(lockstep.JobID) lockstep.Outcome { return o }
}

func TestNextProposalReflectsTheLastGrant(t *testing.T) {
	l := start(t, Config{Capacity: 8000})
	require.NoError(t, l.Join(epoch, "a", 1))
	require.NoError(t, l.Join(epoch, "b", 3))
	for _, j := range []lockstep.JobID{"a1", "a2", "a3", "b1", "b2", "b3", "b4", "b5", "b6"} {
		require.NoError(t, l.Submit(epoch, j, lockstep.TenantID(j[:1]), 1000))
	}
	// b is entitled to 6 devices over the horizon, a to 2: grants alternate so
	// that what is left of that is even, with ties to the one that was served less
	// for its weight, then by ID.
	require.Equal(t, []lockstep.JobID{"b1", "b2", "b3", "b4", "a1", "b5", "a2", "b6", "a3"}, drain(l, epoch, always(lockstep.Granted)))
	// Where nothing is granted, a tenant's jobs are all tried before the next one's.
	require.Equal(t, []lockstep.JobID{"b1", "b2", "b3", "b4", "b5", "b6", "a1", "a2", "a3"}, drain(l, epoch, always(lockstep.Blocked)))
	// Once the jobs run, the next pass sees what they will go on to hold.
	for _, j := range []lockstep.JobID{"b1", "b2", "b3", "b4", "b5", "b6"} {
		require.NoError(t, l.Start(epoch, j, 1000))
	}
	require.Equal(t, []lockstep.JobID{"a1", "a2", "a3"}, drain(l, epoch, always(lockstep.Blocked)))
}

func TestJobsOfATenantComeMostOwedFirst(t *testing.T) {
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		order JobOrder
		want  []lockstep.JobID
	}{
		{MostOwed, []lockstep.JobID{"small", "late", "big"}},
		{FIFO, []lockstep.JobID{"big", "small", "late"}},
	} {
		l := start(t, Config{Capacity: 4000, JobOrder: c.order})
		require.NoError(t, l.Join(at(0), "a", 1))
		require.NoError(t, l.Submit(at(0), "big", "a", 4000))
		require.NoError(t, l.Submit(at(0), "small", "a", 1000))
		require.NoError(t, l.Start(at(0), "big", 4000))
		require.NoError(t, l.Stop(at(60), "big"))
		require.NoError(t, l.Start(at(60), "small", 1000))
		require.NoError(t, l.Submit(at(90), "late", "a", 1000))
		require.NoError(t, l.Stop(at(120), "small"))
		// Entitlement of the first two is half of 4 devices for 90 s and a third
		// for 30 s: 220. Small got 60, big 240, late a third for 30 s and nothing.
		require.Equal(t, c.want, drain(l, at(120), always(lockstep.Blocked)), "%q", c.order)
	}
}

func TestTenantsOfWeightZeroComeLast(t *testing.T) {
	l := start(t, Config{Capacity: 4000})
	require.NoError(t, l.Join(epoch, "guest", 0))
	require.NoError(t, l.Join(epoch, "owner", 1))
	require.NoError(t, l.Submit(epoch, "g", "guest", 4000))
	require.NoError(t, l.Submit(epoch, "o", "owner", 1000))
	now := epoch.Add(time.Hour)
	require.Equal(t, []lockstep.JobID{"o", "g"}, drain(l, now, always(lockstep.Granted)))
	// A guest is entitled to what the owners leave, and its index is no 0/0.
	s, err := l.Statement(now, "guest")
	require.NoError(t, err)
	require.Equal(t, lockstep.MilliGPU(3000), s.Share)
	require.InDelta(t, 3*3600, s.Entitlement.GPUSeconds(), 1e-9)
	index, ok := s.Index()
	require.True(t, ok)
	require.Zero(t, index)
	// With only guests, they share by number.
	require.NoError(t, l.Finish(now, "o"))
	require.NoError(t, l.Join(now, "other", 0))
	require.NoError(t, l.Submit(now, "h", "other", 4000))
	s, err = l.Statement(now, "guest")
	require.NoError(t, err)
	require.Equal(t, lockstep.MilliGPU(2000), s.Share)
}

func TestDueJobsCompeteForWhatTheyHold(t *testing.T) {
	l := start(t, Config{Capacity: 1000})
	for _, id := range []lockstep.TenantID{"a", "b"} {
		require.NoError(t, l.Join(epoch, id, 1))
	}
	require.NoError(t, l.Submit(epoch, "ja", "a", 1000))
	require.NoError(t, l.Start(epoch, "ja", 1000))
	require.Error(t, l.Due("none"))
	now := epoch.Add(time.Hour)
	require.Empty(t, drain(l, now, always(lockstep.Kept)))
	require.NoError(t, l.Due("ja"))
	require.NoError(t, l.Due("ja"))
	require.Equal(t, []lockstep.JobID{"ja"}, drain(l, now, always(lockstep.Kept)))
	require.Empty(t, drain(l, now, always(lockstep.Kept)), "kept: not due any more")

	// With another that waits, who is owed more comes first.
	require.NoError(t, l.Submit(now, "jb", "b", 1000))
	require.ErrorIs(t, l.Due("jb"), lockstep.ErrConflict)
	require.NoError(t, l.Due("ja"))
	now = now.Add(time.Minute)
	require.Equal(t, []lockstep.JobID{"jb", "ja"}, drain(l, now, always(lockstep.Blocked)))
	require.NoError(t, l.Stop(now, "ja"))
	require.NoError(t, l.Start(now, "jb", 1000))
	require.Equal(t, []lockstep.JobID{"ja"}, drain(l, now, always(lockstep.Blocked)), "it stopped: it waits")
}

func TestChangesDuringAPass(t *testing.T) {
	l := start(t, Config{Capacity: 8000})
	require.NoError(t, l.Join(epoch, "a", 1))
	require.NoError(t, l.Join(epoch, "b", 1))
	for _, j := range []lockstep.JobID{"a1", "a2", "a3", "b1", "b2"} {
		require.NoError(t, l.Submit(epoch, j, lockstep.TenantID(j[:1]), 1000))
	}
	_, ok := l.Next()
	require.False(t, ok, "no pass was begun")
	l.Outcome("a1", lockstep.Granted)

	l.Begin(epoch)
	id, _ := l.Next()
	require.Equal(t, lockstep.JobID("a1"), id)
	l.Outcome("a1", lockstep.Granted)
	require.NoError(t, l.Start(epoch, "a1", 1000)) // the host may start it at once
	id, _ = l.Next()
	require.Equal(t, lockstep.JobID("a2"), id, "equal now, and first by ID")
	l.Outcome("a2", lockstep.Granted)
	id, _ = l.Next()
	require.Equal(t, lockstep.JobID("b1"), id)
	l.Outcome("b1", lockstep.Granted)
	require.NoError(t, l.Finish(epoch, "b2"))
	require.NoError(t, l.Finish(epoch, "b1"))
	_, err := l.Leave(epoch, "b")
	require.NoError(t, err)
	id, _ = l.Next()
	require.Equal(t, lockstep.JobID("a3"), id)
	_, ok = l.Next()
	require.False(t, ok)
}

// TestLagStaysBounded is invariant 8 under a simple scheduler: unit jobs, terms
// of one horizon, and a pass each time that a device comes free. Every tenant has
// waiting jobs throughout, and 11 follows from the bound.
func TestLagStaysBounded(t *testing.T) {
	const devices, term = 16, 30 * time.Minute
	weights := map[lockstep.TenantID]int64{"a": 1, "b": 1, "c": 2, "d": 5, "e": 20, "f": 1000}
	l := start(t, Config{Capacity: devices * lockstep.WholeGPU, Horizon: term})
	r := rand.New(rand.NewPCG(3, 3))
	serial := 0
	submit := func(now time.Time, tenant lockstep.TenantID) {
		serial++
		require.NoError(t, l.Submit(now, lockstep.JobID(time.Duration(serial).String()), tenant, lockstep.WholeGPU))
	}
	for _, id := range ids(weights) {
		require.NoError(t, l.Join(epoch, id, weights[id]))
		for range devices {
			submit(epoch, id)
		}
	}
	type running struct {
		job lockstep.JobID
		end time.Time
	}
	var held []running
	worst := map[lockstep.TenantID]float64{}
	now := epoch
	for range lists(4000) {
		l.Begin(now)
		for len(held) < devices {
			id, ok := l.Next()
			require.True(t, ok)
			l.Outcome(id, lockstep.Granted)
			require.NoError(t, l.Start(now, id, lockstep.WholeGPU))
			submit(now, l.jobs[id].tenant.id)
			held = append(held, running{id, now.Add(term - time.Duration(r.Int64N(int64(term/2))))})
		}
		first := 0
		for i := range held {
			if held[i].end.Before(held[first].end) {
				first = i
			}
		}
		now = held[first].end
		require.NoError(t, l.Finish(now, held[first].job))
		require.NoError(t, l.Forget(held[first].job))
		held[first] = held[len(held)-1]
		held = held[:len(held)-1]
		for _, id := range ids(weights) {
			s, err := l.Statement(now, id)
			require.NoError(t, err)
			lag := s.Lag()
			worst[id] = max(worst[id], lag.GPUSeconds(), -lag.GPUSeconds())
		}
	}
	for _, id := range ids(weights) {
		t.Logf("%s weight %d: |lag| at most %.2f device-terms", id, weights[id], worst[id]/term.Seconds())
		require.LessOrEqual(t, worst[id], 2*term.Seconds(), "%s", id)
	}
}
