package fairness

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

// The numbers are those of the invariants in the fairness specification.

// record runs n random events and returns those that were accepted.
func record(t *testing.T, l *Ledger, src *source, n int) (log []Event) {
	l.cfg.Log = func(e Event) { log = append(log, e) }
	for range n {
		_ = l.Apply(src.next(l)) // what is refused changes nothing
	}
	l.cfg.Log = nil
	require.Equal(t, l.seq, uint64(len(log)))
	return log
}

// play applies events as they are, without their places in the log.
func play(t *testing.T, l *Ledger, log []Event) {
	for _, e := range log {
		e.Seq = 0
		require.NoError(t, l.Apply(e))
	}
}

func saved(t testing.TB, l *Ledger) []byte {
	return snapshottest.Save(t, l.Snapshot)
}

// same requires that two snapshots are.
func same(t testing.TB, want, got []byte) {
	t.Helper()
	if !bytes.Equal(want, got) {
		at := 0
		for at < len(want) && at < len(got) && want[at] == got[at] {
			at++
		}
		require.FailNow(t, "snapshots differ", "at byte %d of %d and %d", at, len(want), len(got))
	}
}

var (
	bases  = []Basis{MaxMin, Fixed, Active}
	payers = []Payer{PayHolder, PayReclaimer, PayNobody}
	orders = []JobOrder{MostOwed, FIFO, Smallest, LeastRun, LeastIndex, IndexClass, LeastExpect}
)

// both runs a test over configurations that differ in all that has to do with the
// accounts.
func both(t *testing.T, full int, run func(t *testing.T, seed int, cfg Config, src *source)) {
	for seed := range lists(full) {
		cfg := Config{Capacity: 8000, Basis: bases[seed%3], Payer: payers[seed/9%3], JobOrder: orders[seed%len(orders)]}
		switch seed / 3 % 3 {
		case 1:
			cfg.Memory = Memory{Bucket: 10 * time.Minute, Buckets: 1 + seed%4}
		case 2:
			cfg.Memory = Memory{HalfLife: 20 * time.Minute}
		default:
			cfg.CreditCap = time.Duration(seed%2) * time.Hour
		}
		run(t, seed, cfg, newSource(uint64(seed)+1<<32))
	}
}

func TestServiceIsConserved(t *testing.T) { // invariant 1
	both(t, 400, func(t *testing.T, _ int, cfg Config, src *source) {
		l := start(t, cfg)
		gone, goneJobs := &big.Int{}, &big.Int{} // of forgotten accounts
		for range 150 {
			e := src.next(l)
			if tenant := l.tenants[e.Tenant]; e.Kind == EventForgetTenant && tenant != nil {
				s := tenant.service.Big()
				if l.Apply(e) == nil {
					gone.Add(gone, s)
				}
				continue
			}
			if j := l.jobs[e.Job]; e.Kind == EventForget && j != nil {
				s := j.service.Big()
				if l.Apply(e) == nil {
					goneJobs.Add(goneJobs, s)
				}
				continue
			}
			_ = l.Apply(e)
		}
		now := src.now.Add(time.Minute)
		totals, err := l.Totals(now)
		if !l.started {
			return
		}
		require.NoError(t, err)
		tenants, jobs := new(big.Int).Set(gone), new(big.Int).Set(goneJobs)
		held := lockstep.MilliGPU(0)
		for _, id := range ids(l.tenants) {
			s, err := l.Statement(now, id)
			require.NoError(t, err)
			tenants.Add(tenants, s.Service.Big())
			held += s.Held
		}
		for _, id := range ids(l.jobs) {
			s, err := l.JobStatement(now, id)
			require.NoError(t, err)
			jobs.Add(jobs, s.Service.Big())
		}
		require.Equal(t, totals.Held, held)
		require.Zero(t, tenants.Cmp(totals.Service.Big()))
		require.Zero(t, jobs.Cmp(totals.Service.Big()))
	})
}

func TestEntitlementIsConserved(t *testing.T) { // invariant 2
	both(t, 400, func(t *testing.T, _ int, cfg Config, src *source) {
		l := start(t, cfg)
		gone := &big.Int{}
		for range 150 {
			e := src.next(l)
			if tenant := l.tenants[e.Tenant]; e.Kind == EventForgetTenant && tenant != nil {
				s := steps(tenant.entitled)
				if l.Apply(e) == nil {
					gone.Add(gone, s)
				}
				continue
			}
			_ = l.Apply(e)
		}
		v := l.at(l.now)
		sum := gone
		for _, id := range ids(l.tenants) {
			sum.Add(sum, steps(l.entitled(l.tenants[id], &v)))
		}
		if cfg.Basis != MaxMin {
			require.LessOrEqual(t, sum.Cmp(new(big.Int).Lsh(l.offered.Big(), 64)), 0)
			return
		}
		// Entitlements and what is not divided yet are the integral of the lesser of
		// capacity and demand: exactly, whatever happened.
		for _, w := range l.tiers {
			sum.Add(sum, new(big.Int).SetUint64(w.rest))
		}
		require.Zero(t, sum.Cmp(new(big.Int).Lsh(l.owed.Big(), 64)))
	})
}

func TestSharesOfJobsAddUpToTheTenants(t *testing.T) { // as 2, within a tenant
	both(t, 400, func(t *testing.T, _ int, cfg Config, src *source) {
		l := start(t, cfg)
		gone := map[lockstep.TenantID]*big.Int{}
		for range 150 {
			e := src.next(l)
			if e.Kind == EventForgetTenant {
				continue
			}
			j := l.jobs[e.Job]
			if l.Apply(e) == nil && e.Kind == EventForget {
				if gone[j.tenant.id] == nil {
					gone[j.tenant.id] = &big.Int{}
				}
				gone[j.tenant.id].Add(gone[j.tenant.id], j.share.Big())
			}
		}
		v := l.at(l.now)
		for _, id := range ids(l.tenants) {
			tenant := l.tenants[id]
			sum := &big.Int{}
			if gone[id] != nil {
				sum.Set(gone[id])
			}
			for _, jid := range ids(l.jobs) {
				if j := l.jobs[jid]; j.tenant == tenant {
					sum.Add(sum, l.share(j, &v).Big())
				}
			}
			_, rest, entitled := l.shared(tenant, &v)
			sum.Lsh(sum, 64).Add(sum, steps(rest))
			require.Zero(t, sum.Cmp(steps(entitled)), "%s", id)
		}
	})
}

func TestReadingAndSplittingIntervalsChangesNothing(t *testing.T) { // invariant 3
	both(t, 200, func(t *testing.T, _ int, cfg Config, src *source) {
		whole := start(t, cfg)
		log := record(t, whole, src, 80)
		split := start(t, cfg)
		at := epoch
		for _, e := range log {
			// Stop on the way from the event before, and there accrue in place.
			for between := e.Time.Sub(at) / 3; between > 0 && at.Add(between).Before(e.Time); {
				at = at.Add(between)
				drain(split, at, always(lockstep.Granted))
				_, err := split.AppendStatements(nil, at)
				require.NoError(t, err)
				if split.started {
					split.accrue(at.UnixNano())
				}
				if split.recent != nil && split.started {
					split.toEpoch(at.UnixNano())
					split.recent.accrue(split.warp.at(at.UnixNano()))
				}
			}
			at = e.Time
			require.NoError(t, split.Apply(e))
		}
		same(t, saved(t, whole), saved(t, split))
	})
}

func TestEventsOfOneInstantCommute(t *testing.T) { // invariant 4
	both(t, 300, func(t *testing.T, seed int, cfg Config, _ *source) {
		src := newSource(uint64(seed) + 1<<33)
		base := start(t, cfg)
		log := record(t, base, src, 60)
		if len(log) == 0 {
			return
		}
		// One independent event for each tenant, all at the same instant.
		now := src.now.Add(time.Second)
		var burst []Event
		for i, id := range ids(base.tenants) {
			if !base.tenants[id].joined {
				continue
			}
			switch i % 3 {
			case 0:
				burst = append(burst, Event{Kind: EventWeight, Time: now, Tenant: id, Weight: int64(i)})
			case 1:
				burst = append(burst, Event{Kind: EventSubmit, Time: now, Tenant: id, Job: lockstep.JobID("new" + id), Amount: 3000})
			default:
				for _, j := range suits(base, EventFinish) {
					if base.jobs[j].tenant.id == id {
						burst = append(burst, Event{Kind: EventFinish, Time: now, Job: j})
						break
					}
				}
			}
		}
		burst = append(burst, Event{Kind: EventCapacity, Time: now, Amount: 5000})
		var want []byte
		for range 4 {
			l := start(t, cfg)
			play(t, l, log)
			play(t, l, burst)
			require.NoError(t, l.Join(now.Add(time.Hour), "last", 1)) // so that the interval behind the burst counts
			if got := saved(t, l); want == nil {
				want = got
			} else {
				same(t, want, got)
			}
			src.Shuffle(len(burst), func(a, b int) { burst[a], burst[b] = burst[b], burst[a] })
		}
	})
}

func TestScaleOfWeightsAndTimeDoesNotMatter(t *testing.T) { // invariant 5
	both(t, 200, func(t *testing.T, _ int, cfg Config, src *source) {
		src.weights = []int64{0, 1, 2, 3, 5, 7, 12}
		cfg.Horizon = time.Minute
		l := start(t, cfg)
		log := record(t, l, src, 80)
		heavy, slow := start(t, cfg), start(t, Config{Basis: cfg.Basis, Capacity: cfg.Capacity, Horizon: 7 * time.Minute})
		for _, e := range log {
			h := e
			h.Weight *= MaxWeight / 12
			require.NoError(t, heavy.Apply(h))
			e.Time = epoch.Add(7 * e.Time.Sub(epoch))
			require.NoError(t, slow.Apply(e))
		}
		now := src.now.Add(time.Hour)
		later := epoch.Add(7 * now.Sub(epoch))
		bound := new(big.Int).Mul(slow.ErrorBound().Big(), bi(8))
		for _, id := range ids(l.tenants) {
			a, err := l.Statement(now, id)
			require.NoError(t, err)
			b, err := heavy.Statement(now, id)
			require.NoError(t, err)
			b.Weight = a.Weight
			require.Equal(t, a, b, "weights scaled")
			c, err := slow.Statement(later, id)
			require.NoError(t, err)
			require.Zero(t, new(big.Int).Mul(a.Service.Big(), bi(7)).Cmp(c.Service.Big()), "time scaled")
			diff := new(big.Int).Sub(new(big.Int).Mul(a.Entitlement.Big(), bi(7)), c.Entitlement.Big())
			require.LessOrEqual(t, diff.Abs(diff).Cmp(bound), 0)
		}
		granted := always(lockstep.Granted)
		require.Equal(t, drain(l, now, granted), drain(heavy, now, granted))
	})
}

func TestMonotone(t *testing.T) { // invariant 6
	both(t, 300, func(t *testing.T, seed int, cfg Config, src *source) {
		src.weights = []int64{1, 2, 3, 5}
		l := start(t, cfg)
		log := record(t, l, src, 80)
		var subject *tenant
		for _, id := range ids(l.tenants) {
			if tn := l.tenants[id]; tn.queue != nil && tn.queue.Len() > 0 && tn.joined {
				subject = tn
			}
		}
		if subject == nil {
			return
		}
		now := src.now.Add(time.Second)
		again := func(events ...Event) *Ledger {
			m := start(t, cfg)
			play(t, m, log)
			for _, e := range events {
				e.Time = now
				require.NoError(t, m.Apply(e))
			}
			return m
		}
		tenantsBefore := func(l *Ledger, at time.Time) map[lockstep.TenantID]bool {
			before := map[lockstep.TenantID]bool{}
			for _, id := range drain(l, at, always(lockstep.Blocked)) {
				if who := l.jobs[id].tenant.id; who != subject.id {
					before[who] = true
				} else {
					break
				}
			}
			return before
		}
		id := subject.id
		// More service never moves it earlier: as if it had got one device more for a while.
		later := now.Add(time.Hour)
		plain := again(Event{Kind: EventSubmit, Tenant: id, Job: "extra", Amount: 1000})
		served := again(Event{Kind: EventSubmit, Tenant: id, Job: "extra", Amount: 1000}, Event{Kind: EventStart, Job: "extra", Amount: 1000})
		before, after := tenantsBefore(plain, later), tenantsBefore(served, later)
		for _, who := range ids(before) {
			require.True(t, after[who], "%s overtook %s by being served", id, who)
		}
		// A greater weight never moves it later.
		before, after = tenantsBefore(again(), later), tenantsBefore(again(Event{Kind: EventWeight, Tenant: id, Weight: subject.weight + 1 + int64(seed%5)}), later)
		for _, who := range ids(after) {
			require.True(t, before[who], "%s fell behind %s by weighing more", id, who)
		}
		// Another tenant never raises anyone's present share.
		alone := again()
		crowd := again(Event{Kind: EventJoin, Tenant: "new", Weight: 2}, Event{Kind: EventSubmit, Tenant: "new", Job: "newjob", Amount: 5000})
		for _, who := range ids(alone.tenants) {
			a, err := alone.Statement(later, who)
			require.NoError(t, err)
			b, err := crowd.Statement(later, who)
			require.NoError(t, err)
			require.LessOrEqual(t, b.Share, a.Share, "%s", who)
		}
	})
}

func TestIdleTimeIsNeitherOwedNorForgiven(t *testing.T) { // invariants 9 and 12
	l := start(t, Config{Capacity: 4000})
	for _, id := range []lockstep.TenantID{"busy", "idle", "left"} {
		require.NoError(t, l.Join(epoch, id, 1))
		require.NoError(t, l.Submit(epoch, lockstep.JobID(id), id, 4000))
	}
	at := epoch.Add(time.Hour)
	for _, id := range []lockstep.TenantID{"idle", "left"} {
		require.NoError(t, l.Finish(at, lockstep.JobID(id)))
		require.NoError(t, l.Forget(lockstep.JobID(id)))
	}
	gone, err := l.Leave(at, "left")
	require.NoError(t, err)
	require.False(t, gone.Joined)
	at = at.Add(1000 * time.Hour)
	require.NoError(t, l.Join(at, "left", 1))
	for _, id := range []lockstep.TenantID{"idle", "left"} {
		s, err := l.Statement(at, id)
		require.NoError(t, err)
		require.Equal(t, gone.Lag(), s.Lag(), "%s", id)
		require.InDelta(t, 4*3600./3, s.Entitlement.GPUSeconds(), 1e-9)
	}
}

func TestOrderDoesNotDependOnMaps(t *testing.T) { // invariant 16
	var want string
	for round := range 3 {
		src := newSource(99)
		src.tenants, src.jobs = 40, 200
		l := start(t, Config{Capacity: 64000})
		log := record(t, l, src, 2000)
		got := fmt.Sprint(drain(l, src.now, always(lockstep.Granted)), log, l.encode())
		if round == 0 {
			want = got
		}
		require.Equal(t, want, got)
	}
	// And the same on every architecture.
	require.Equal(t, uint32(0x6f98e499), crc32.ChecksumIEEE([]byte(want)))
	sum := crc32.NewIEEE()
	sums := map[int]uint32{5: 0x21cb9a7b, 125: 0x92c0fa5e} // after so many configurations
	both(t, 126, func(t *testing.T, seed int, cfg Config, src *source) {
		l := start(t, cfg)
		record(t, l, src, 100)
		fmt.Fprint(sum, drain(l, src.now.Add(time.Hour), always(lockstep.Granted)), l.encode())
		if want, ok := sums[seed]; ok {
			require.Equal(t, want, sum.Sum32(), seed)
		}
	})
}

// TestFixedIsAstraeasRule replays ASTRAEA's per-tick sums (its server/cluster.py
// and alg/scheduler/lease.py, in whole numbers) beside the ledger, on events that
// fall on ticks and whole quotas: used, deserved and entitled agree exactly.
func TestFixedIsAstraeasRule(t *testing.T) {
	const tick = 10 * time.Second
	quota := map[lockstep.TenantID]int64{"t0": 12, "t1": 6, "t2": 6, "t3": 2} // Q in GPUs, whose sum is the capacity
	for seed := range lists(100) {
		src := newSource(uint64(seed) + 1<<34)
		l := start(t, Config{Basis: Fixed, Capacity: 26 * lockstep.WholeGPU})
		used, deserved, entitled := map[lockstep.TenantID]int64{}, map[lockstep.TenantID]int64{}, map[lockstep.TenantID]int64{}
		for _, id := range ids(quota) {
			require.NoError(t, l.Join(epoch, id, quota[id]))
		}
		now := epoch
		for range 200 {
			e := src.next(l)
			e.Time, e.Amount = now, lockstep.WholeGPU*lockstep.MilliGPU(1+src.IntN(16))
			switch e.Kind {
			case EventSubmit, EventFinish, EventForget:
				_ = l.Apply(e)
			case EventStart:
				if j := l.jobs[e.Job]; j != nil {
					e.Amount = j.demand
					_ = l.Apply(e)
				}
			}
			if src.IntN(2) == 0 {
				for _, id := range ids(quota) {
					tn := l.tenants[id]
					demand := int64(tn.demand / lockstep.WholeGPU)
					used[id] += 10 * int64(tn.rate/lockstep.WholeGPU)
					entitled[id] += 10 * quota[id]
					deserved[id] += 10 * min(demand, quota[id])
				}
				now = now.Add(tick)
			}
		}
		gpuSeconds := func(v int64) string { return mul(v, 1000, int64(time.Second)).String() }
		for _, id := range ids(quota) {
			s, err := l.Statement(now, id)
			require.NoError(t, err)
			require.Equal(t, gpuSeconds(used[id]), s.Service.String())
			require.Equal(t, gpuSeconds(deserved[id]), s.Entitlement.String())
			require.Equal(t, gpuSeconds(entitled[id]), s.Nominal.String())
		}
	}
}

// TestFixedByHand is one small case with both of ASTRAEA's ratios worked out.
func TestFixedByHand(t *testing.T) {
	l := start(t, Config{Basis: Fixed, Capacity: 8 * lockstep.WholeGPU})
	require.NoError(t, l.Join(epoch, "u", 3)) // Q = 6
	require.NoError(t, l.Join(epoch, "v", 1)) // Q = 2
	require.NoError(t, l.Submit(epoch, "a", "u", 4000))
	require.NoError(t, l.Submit(epoch, "b", "v", 4000))
	require.NoError(t, l.Submit(epoch, "c", "v", 4000))
	require.NoError(t, l.Start(epoch, "a", 4000))
	require.NoError(t, l.Start(epoch, "b", 4000))
	at := epoch.Add(100 * time.Second)
	require.NoError(t, l.Finish(at, "a"))
	at = at.Add(100 * time.Second)
	for _, c := range []struct {
		tenant          lockstep.TenantID
		u, d, w, rho, k float64
	}{
		// u: 4 for 100 s; min(4, 6) for 100 s, then nothing; 6 throughout.
		{"u", 400, 400, 1200, 1, 1. / 3},
		// v: 4 for 200 s; min(8, 2) throughout; 2 throughout.
		{"v", 800, 400, 400, 2, 2},
	} {
		s, err := l.Statement(at, c.tenant)
		require.NoError(t, err)
		require.Equal(t, []float64{c.u, c.d, c.w}, []float64{s.Service.GPUSeconds(), s.Entitlement.GPUSeconds(), s.Nominal.GPUSeconds()})
		rho, ok := s.Index()
		require.True(t, ok)
		require.InDelta(t, c.rho, rho, 1e-12)
		require.InDelta(t, c.k, s.Service.GPUSeconds()/s.Nominal.GPUSeconds(), 1e-12)
	}
	// Jobs of v: min(4, 2/2) each, so 200 s for either; b got 800.
	for job, want := range map[lockstep.JobID]float64{"b": 4, "c": 0} { // order does not matter: each is checked
		s, err := l.JobStatement(at, job)
		require.NoError(t, err)
		require.InDelta(t, 200, s.Entitlement.GPUSeconds(), 1e-9)
		index, ok := s.Index()
		require.True(t, ok)
		require.InDelta(t, want, index, 1e-12)
	}
}
