package fairness

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// TestWindowIsWhatHappenedInIt holds the window against two statements of a ledger
// without one, read when it began and now.
func TestWindowIsWhatHappenedInIt(t *testing.T) {
	reads := 0
	for seed := range lists(200) {
		memory := Memory{Bucket: time.Duration(1+seed%7) * 7 * time.Minute, Buckets: 1 + seed%5}
		l, plain := start(t, Config{Capacity: 8000, Memory: memory, Payer: payers[seed%3]}), start(t, Config{Capacity: 8000, Payer: payers[seed%3]})
		src := newSource(uint64(seed) + 1<<20)
		var log []Event
		for range 80 {
			e := src.next(l)
			if e.Kind == EventForgetTenant || l.Apply(e) != nil {
				continue // an account that begins anew has no past
			}
			require.NoError(t, plain.Apply(e))
			log = append(log, e)
			if src.IntN(8) != 0 {
				continue
			}
			now := src.now.Add(time.Duration(src.IntN(5000)) * time.Second)
			bucket := int64(memory.Bucket)
			begin := (now.UnixNano()/bucket - int64(memory.Buckets)) * bucket
			then := start(t, Config{Capacity: 8000, Payer: payers[seed%3]})
			for _, e := range log {
				if e.Time.UnixNano() < begin {
					require.NoError(t, then.Apply(e))
				}
			}
			for _, id := range ids(l.tenants) {
				got, err := l.Statement(now, id)
				require.NoError(t, err)
				whole, err := plain.Statement(now, id)
				require.NoError(t, err)
				before := Statement{}
				if then.tenants[id] != nil {
					before, err = then.Statement(lockstep.FromNanos(begin), id)
					require.NoError(t, err)
				}
				require.Equal(t, whole.Service.Sub(before.Service), got.RecentService, "seed %d %s", seed, id)
				require.Equal(t, whole.Entitlement.Sub(before.Entitlement), got.RecentEntitlement, "seed %d %s", seed, id)
				require.Equal(t, whole.Adjust.Sub(before.Adjust), got.Adjust, "seed %d %s", seed, id)
				require.Equal(t, whole.Service, got.Service)
				require.Equal(t, whole.Entitlement, got.Entitlement)
				reads++
			}
		}
	}
	t.Log(reads, "statements")
}

func TestIdleTenantsSaveUpToTheCap(t *testing.T) { // invariant 9
	l := start(t, Config{Capacity: 8000, CreditCap: time.Hour, Horizon: 1})
	require.NoError(t, l.Join(epoch, "idle", 1))
	require.NoError(t, l.Join(epoch, "busy", 3))
	require.NoError(t, l.Submit(epoch, "b", "busy", 8000))
	require.NoError(t, l.Start(epoch, "b", 8000))
	credit := func(after time.Duration) float64 {
		s, err := l.Statement(epoch.Add(after), "idle")
		require.NoError(t, err)
		c := s.Credit
		return c.GPUSeconds()
	}
	require.InDelta(t, 1200, credit(10*time.Minute), 1e-9, "a quarter of 8 devices for ten minutes")
	require.InDelta(t, 7200, credit(time.Hour), 1e-9)
	require.InDelta(t, 7200, credit(50*time.Hour), 1e-9, "never more than the cap")
	s, err := l.Statement(epoch.Add(time.Hour), "busy")
	require.NoError(t, err)
	require.Zero(t, s.Credit.Sign(), "nobody is paid who had what it asked for")

	// It spends its credit before the others are owed more, and then no more.
	now := epoch.Add(2 * time.Hour)
	require.NoError(t, l.Submit(now, "i", "idle", 8000))
	require.NoError(t, l.Submit(now, "b2", "busy", 8000))
	require.Equal(t, lockstep.JobID("i"), drain(l, now, always(lockstep.Blocked))[0])
	require.NoError(t, l.Finish(now, "b"))
	require.NoError(t, l.Start(now, "i", 8000))
	spent := now.Add(7200 * time.Second / 8) // it is entitled to 2 of the 8 that it holds, so it takes 7200/6 s to have had all
	s, err = l.Statement(spent, "idle")
	require.NoError(t, err)
	require.Positive(t, s.Claim().Sign())
	s, err = l.Statement(now.Add(7200*time.Second/6), "idle")
	require.NoError(t, err)
	claim := s.Claim()
	require.InDelta(t, 0, claim.GPUSeconds(), 1e-6)

	// Used up, it is earned again by idle time only up to the cap.
	now = now.Add(time.Hour)
	require.NoError(t, l.Finish(now, "i"))
	s, err = l.Statement(now.Add(100*time.Hour), "idle")
	require.NoError(t, err)
	claim = s.Claim()
	require.InDelta(t, 7200, claim.GPUSeconds(), 1e-6)
}

// TestCreditIsNeverCut: what was saved stays when the cap falls, and more is saved at
// the tenant's own part only when the cap rises; what changes nothing has no part in it.
func TestCreditIsNeverCut(t *testing.T) {
	for _, twice := range []bool{false, true} {
		l := start(t, Config{Capacity: 8000, CreditCap: time.Hour})
		require.NoError(t, l.Join(epoch, "a", 1))
		require.NoError(t, l.Join(epoch, "b", 1))
		now := epoch
		after := func(d time.Duration, want float64) {
			t.Helper()
			now = now.Add(d)
			s, err := l.Statement(now, "a")
			require.NoError(t, err)
			require.InDelta(t, want, s.Credit.GPUSeconds(), 1e-6)
			if twice {
				require.NoError(t, l.SetWeight(now, "a", 1)) // as before
			}
		}
		after(10*time.Hour, 4*3600)
		require.NoError(t, l.SetCapacity(now, 0))
		after(0, 4*3600)
		after(time.Hour, 4*3600)
		require.NoError(t, l.SetCapacity(now, 16_000))
		after(0, 4*3600)
		after(10*time.Minute, 4*3600+8*600)
		after(time.Hour, 8*3600)
		require.NoError(t, l.SetWeight(now, "b", 7))
		after(time.Hour, 8*3600)
		require.NoError(t, l.SetWeight(now, "b", 0))
		after(time.Minute, 8*3600+16*60)
		require.NoError(t, l.SetWeight(now, "a", 0))
		after(time.Hour, 8*3600+16*60)
		require.NoError(t, l.SetWeight(now, "a", 2))
		after(time.Minute, 8*3600+16*120)
		require.NoError(t, l.Submit(now, "j", "a", 1))
		after(time.Hour, 8*3600+16*120)
	}
	for _, memory := range []Memory{{Bucket: time.Hour, Buckets: 24}, {HalfLife: time.Hour}} {
		require.ErrorIs(t, Config{Memory: memory, CreditCap: 1}.Validate(), lockstep.ErrInvalid, "what it paid for is forgotten and it is not")
	}
}

// TestLeavingEarnsNoMoreThanStaying: a tenant that leaves while it has nothing to do
// has at most the claim that it would have had.
func TestLeavingEarnsNoMoreThanStaying(t *testing.T) {
	for seed := range lists(200) {
		src := newSource(uint64(seed) + 1<<21)
		cfg := Config{Capacity: 8000, Basis: bases[seed%3], CreditCap: time.Duration(src.IntN(5)) * time.Hour}
		stays, leaves := start(t, cfg), start(t, cfg)
		both := func(e Event) {
			require.NoError(t, stays.Apply(e))
			require.NoError(t, leaves.Apply(e))
		}
		both(Event{Kind: EventJoin, Time: epoch, Tenant: "a", Weight: 2})
		both(Event{Kind: EventJoin, Time: epoch, Tenant: "b", Weight: 3})
		both(Event{Kind: EventSubmit, Time: epoch, Tenant: "b", Job: "b", Amount: 8000})
		now := epoch
		for i := range 5 {
			job := lockstep.JobID(fmt.Sprint("a", i))
			both(Event{Kind: EventSubmit, Time: now, Tenant: "a", Job: job, Amount: 4000})
			now = now.Add(time.Duration(src.IntN(3600)) * time.Second)
			both(Event{Kind: EventStart, Time: now, Job: job, Amount: 4000})
			now = now.Add(time.Duration(src.IntN(3600)) * time.Second)
			both(Event{Kind: EventFinish, Time: now, Job: job})
			require.NoError(t, leaves.Apply(Event{Kind: EventLeave, Time: now, Tenant: "a"}))
			now = now.Add(time.Duration(src.IntN(7200)) * time.Second)
			require.NoError(t, leaves.Apply(Event{Kind: EventJoin, Time: now, Tenant: "a", Weight: 2}))
			x, err := stays.Statement(now, "a")
			require.NoError(t, err)
			y, err := leaves.Statement(now, "a")
			require.NoError(t, err)
			require.GreaterOrEqual(t, x.Claim().Cmp(y.Claim()), 0, "seed %d", seed)
		}
	}
}

func TestOverheadIsPaidByWhomTheConfigNames(t *testing.T) {
	for payer, want := range map[Payer][2]float64{ // the order does not matter: each stands alone
		PayHolder: {0, 0}, PayReclaimer: {100, -100}, PayNobody: {100, 0},
	} {
		l := start(t, Config{Capacity: 8000, Payer: payer})
		require.NoError(t, l.Join(epoch, "a", 1))
		require.NoError(t, l.Join(epoch, "b", 1))
		require.NoError(t, l.Submit(epoch, "j", "a", 4000))
		require.NoError(t, l.Start(epoch, "j", 4000))
		now := epoch.Add(time.Minute)
		cost := lockstep.GPUTimeOf(4000, 25*time.Second)
		require.NoError(t, l.Overhead(now, "j", cost, "b"))
		for i, id := range []lockstep.TenantID{"a", "b"} {
			s, err := l.Statement(now, id)
			require.NoError(t, err)
			adjust := s.Adjust
			require.InDelta(t, want[i], adjust.GPUSeconds(), 1e-9, "%q %s", payer, id)
			lag := s.Lag()
			require.Zero(t, lag.Sign(), "service stays exact")
		}
		s, err := l.Statement(now, "a")
		require.NoError(t, err)
		require.Equal(t, cost, s.Overhead)
		require.ErrorIs(t, l.Overhead(now, "j", lockstep.GPUTimeOf(4000, 36*time.Second), ""), lockstep.ErrInvalid, "more than it ever held")
		require.ErrorIs(t, l.Overhead(now, "j", lockstep.GPUTimeOf(-1, 1), ""), lockstep.ErrInvalid)
		require.ErrorIs(t, l.Overhead(now, "k", cost, ""), lockstep.ErrUnknown)
		err = l.Overhead(now, "j", lockstep.GPUTime{}, "nobody")
		if payer == PayReclaimer {
			require.ErrorIs(t, err, lockstep.ErrUnknown)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestRawServiceIsConservedBesideThePriced(t *testing.T) {
	prices := Prices{Classes: map[lockstep.DeviceClass]int64{"h100": 2500, "t4": 400}}
	require.NoError(t, prices.Validate())
	require.Equal(t, lockstep.MilliGPU(20_000), prices.Of("h100", 8000, 0))
	require.Equal(t, lockstep.MilliGPU(1000), prices.Of("a100", 1000, 1000))
	require.Equal(t, lockstep.MilliGPU(1), prices.Of("t4", 1, 0), "rounded up")
	require.Equal(t, lockstep.MilliGPU(4000), prices.Of("h100", 800, 9_000_000), "a speed is held at twice")
	require.Equal(t, lockstep.MilliGPU(1000), prices.Of("h100", 800, 1), "and at half")
	require.Equal(t, lockstep.MilliGPU(maxRate), prices.Of("h100", math.MaxInt64, 0), "held at the largest capacity")
	require.Equal(t, lockstep.MilliGPU(1_000_000), (&Prices{Classes: map[lockstep.DeviceClass]int64{"x": maxPrice}, Most: maxPrice}).Of("x", 1, maxPrice))
	require.Zero(t, prices.Of("h100", -5, 0))
	for _, p := range []Prices{
		{Classes: map[lockstep.DeviceClass]int64{"x": 0}},
		{Classes: map[lockstep.DeviceClass]int64{"x y": 1}},
		{Classes: map[lockstep.DeviceClass]int64{"x": maxPrice + 1}},
		{Least: -1},
		{Least: 3000},
		{Most: maxPrice + 1},
	} {
		require.ErrorIs(t, p.Validate(), lockstep.ErrInvalid, "%+v", p)
	}

	l := start(t, Config{Capacity: prices.Of("h100", 8000, 0)})
	require.NoError(t, l.Join(epoch, "a", 1))
	require.NoError(t, l.Submit(epoch, "j", "a", 20_000))
	require.NoError(t, l.Apply(Event{Kind: EventStart, Time: epoch, Job: "j", Amount: 10_000, Raw: 4000}))
	require.ErrorIs(t, l.Apply(Event{Kind: EventResize, Time: epoch, Job: "j", Amount: 10_000, Raw: -1}), lockstep.ErrInvalid)
	require.NoError(t, l.Apply(Event{Kind: EventResize, Time: epoch.Add(time.Minute), Job: "j", Amount: 5000, Raw: 2000}))
	s, err := l.Statement(epoch.Add(2*time.Minute), "a")
	require.NoError(t, err)
	require.Equal(t, lockstep.GPUTimeOf(15_000, time.Minute), s.Service)
	require.Equal(t, lockstep.GPUTimeOf(6000, time.Minute), s.Raw)
}

func TestWorstIndexIsKept(t *testing.T) {
	l := start(t, Config{Capacity: 1000})
	require.NoError(t, l.Join(epoch, "a", 1))
	s, err := l.Statement(epoch, "a")
	require.NoError(t, err)
	require.Equal(t, 1.0, s.WorstIndex)
	require.NoError(t, l.Submit(epoch, "j", "a", 1000))
	require.NoError(t, l.Start(epoch.Add(time.Second), "j", 1000))
	require.NoError(t, l.Finish(epoch.Add(4*time.Second), "j"))
	s, err = l.Statement(epoch.Add(time.Hour), "a")
	require.NoError(t, err)
	require.Equal(t, 0.0, s.WorstIndex, "before it started it had nothing of a second")
	index, ok := s.Index()
	require.True(t, ok)
	require.Equal(t, 0.75, index)
}

func TestRatiosCompareInFullWidth(t *testing.T) {
	big := int128.FromWords(math.MaxInt64, math.MaxUint64)
	one := int128.Of(1)
	require.Equal(t, 0, cmpRatios(big, big, one, one))
	require.Equal(t, -1, cmpRatios(big.Sub(one), big, one, one))
	require.Equal(t, 1, cmpRatios(big, big.Sub(one), one, one))
	require.Equal(t, 0, cmpRatios(int128.Int{}, big, int128.Int{}, one))
	require.Equal(t, 1, cmpRatios(big, one, big.Sub(one), one))
}
