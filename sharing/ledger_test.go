package sharing

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

const gib = lockstep.GiB

// at returns a time so many seconds after a fixed one.
func at(seconds int) time.Time {
	return time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func ledger(t testing.TB, cfg LedgerConfig) *Ledger {
	t.Helper()
	l, err := NewLedger(cfg)
	require.NoError(t, err)
	return l
}

func admit(t testing.TB, l *Ledger, ts ...Tenant) {
	t.Helper()
	for _, tenant := range ts {
		v, err := l.Admit(tenant)
		require.NoError(t, err)
		require.True(t, v.Feasible, "%v: %v", tenant, v)
	}
}

// The worked example O22 of the field.
func TestEachTenantCouldUseAllOfItsRequest(t *testing.T) {
	l := ledger(t, LedgerConfig{Capacity: 80 * gib})
	admit(t, l, Tenant{ID: "a", Request: 50 * gib, HardCap: 40 * gib})
	v, err := l.Admit(Tenant{ID: "b", Request: 45 * gib, HardCap: 30 * gib})
	require.NoError(t, err)
	require.Equal(t, lockstep.Verdict{
		Reason: lockstep.ReasonBusy, Want: 1, Resource: lockstep.ResourceGPUMemory, Requested: int64(45 * gib), Available: int64(40 * gib),
	}, v, "45 do not fit beside the 40 that a is sure of")
	admit(t, l, Tenant{ID: "b", Request: 40 * gib, HardCap: 30 * gib})
	require.Len(t, l.Tenants(), 2)
}

func TestLedgerRefusesForTheLimitThatBinds(t *testing.T) {
	tests := map[string]struct {
		factor               int64
		have                 []Tenant
		ask                  Tenant
		reason               lockstep.Reason // empty: it fits
		requested, available lockstep.Bytes
	}{
		"alone":                  {0, nil, Tenant{ID: "a", Request: 80 * gib, HardCap: 80 * gib}, "", 0, 0},
		"too large alone":        {2000, nil, Tenant{ID: "a", Request: 81 * gib, HardCap: 1}, lockstep.ReasonCapacity, 81 * gib, 80 * gib},
		"more than the factor":   {0, []Tenant{{ID: "b", Request: 60 * gib, Opportunistic: true}}, Tenant{ID: "a", Request: 37 * gib, HardCap: 1 * gib}, lockstep.ReasonBusy, 37 * gib, 36 * gib},
		"just the factor":        {0, []Tenant{{ID: "b", Request: 60 * gib, Opportunistic: true}}, Tenant{ID: "a", Request: 36 * gib, HardCap: 1 * gib}, "", 0, 0},
		"others could not burst": {4000, []Tenant{{ID: "b", Request: 70 * gib, HardCap: gib}}, Tenant{ID: "a", Request: 20 * gib, HardCap: 11 * gib}, lockstep.ReasonBusy, 11 * gib, 10 * gib},
		"others just could":      {4000, []Tenant{{ID: "b", Request: 70 * gib, HardCap: gib}}, Tenant{ID: "a", Request: 20 * gib, HardCap: 10 * gib}, "", 0, 0},
		"rounded up":             {1000, []Tenant{{ID: "b", Request: 40*gib - 1, HardCap: 40*gib - 1}}, Tenant{ID: "a", Request: 40*gib + 1, Opportunistic: true}, lockstep.ReasonBusy, 40*gib + mib, 40 * gib},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := ledger(t, LedgerConfig{Capacity: 80*gib + 5, Factor: tt.factor})
			admit(t, l, tt.have...)
			v, err := l.Admit(tt.ask)
			require.NoError(t, err)
			require.Equal(t, tt.reason == "", v.Feasible)
			require.Equal(t, tt.reason, v.Reason)
			require.Equal(t, int64(tt.requested), v.Requested)
			require.Equal(t, int64(tt.available), v.Available)
			want := len(tt.have)
			if v.Feasible {
				want++
			}
			require.Len(t, l.Tenants(), want)
		})
	}
}

func TestReliefGoesFromIdleToGuaranteed(t *testing.T) {
	l := ledger(t, LedgerConfig{Capacity: 100 * gib, Factor: 4000, High: 500, Low: 10, Cooldown: time.Hour})
	use := map[lockstep.JobID]struct {
		used lockstep.Bytes
		idle bool
	}{
		"e": {10 * gib, true}, "d": {2 * gib, true}, "g": {20 * gib, false}, "f": {5 * gib, false}, "h": {5 * gib, false}, "a": {9 * gib, false}, "b": {9 * gib, false}, "c": {6 * gib, false},
	}
	admit(
		t, l,
		Tenant{ID: "d", Request: 20 * gib, Opportunistic: true},
		Tenant{ID: "e", Request: 20 * gib, HardCap: 10 * gib},
		Tenant{ID: "f", Request: 20 * gib, Opportunistic: true, Priority: -1},
		Tenant{ID: "g", Request: 20 * gib, Opportunistic: true},
		Tenant{ID: "h", Request: 20 * gib, Opportunistic: true, HardCap: 2 * gib},
		Tenant{ID: "b", Request: 20 * gib, HardCap: 4 * gib},
		Tenant{ID: "a", Request: 20 * gib, HardCap: 4 * gib},
		Tenant{ID: "c", Request: 20 * gib, HardCap: 7 * gib, Priority: -5},
	)
	for id, u := range use { // in any order: only sums depend on it
		require.NoError(t, l.Report(at(0), id, u.used, u.idle))
	}
	require.Equal(t, 66*gib, l.Used())
	reliefs, lacking, err := l.Relieve(at(1), nil)
	require.NoError(t, err)
	require.Equal(t, []Relief{
		{Swap, "d", 2 * gib},
		{Swap, "e", 10 * gib},
		{Evict, "f", 5 * gib},
		{Evict, "g", 20 * gib},
		{Trim, "h", 3 * gib},
		{Trim, "a", 5 * gib},
		{Trim, "b", 5 * gib},
	}, reliefs)
	require.Equal(t, 16*gib, l.Used(), "hard caps of those who run, and what c has below its own")
	require.Equal(t, 15*gib, lacking)

	reliefs, lacking, err = l.Relieve(at(2), reliefs[:0])
	require.NoError(t, err)
	require.Empty(t, reliefs, "nobody twice")
	require.Zero(t, lacking, "it is below High now")
}

func TestReliefDropsWhomItCanDoWithout(t *testing.T) {
	l := ledger(t, LedgerConfig{Capacity: 100 * mib, Factor: 4000, High: 90 * 10, Low: 80 * 10})
	admit(
		t, l,
		Tenant{ID: "small", Request: 50 * mib, Opportunistic: true, Priority: -1},
		Tenant{ID: "large", Request: 90 * mib, Opportunistic: true},
		Tenant{ID: "sure", Request: 50 * mib, HardCap: 10 * mib},
	)
	require.NoError(t, l.Report(at(0), "small", 5*mib, false))
	require.NoError(t, l.Report(at(0), "large", 78*mib, false))
	require.NoError(t, l.Report(at(0), "sure", 10*mib, false))
	reliefs, lacking, err := l.Relieve(at(0), nil)
	require.NoError(t, err)
	require.Zero(t, lacking)
	require.Equal(t, []Relief{{Evict, "large", 78 * mib}}, reliefs)
}

func TestReliefWaitsForPatienceAndCooldown(t *testing.T) {
	l := ledger(t, LedgerConfig{Capacity: 100 * mib, Factor: 4000, Patience: 10 * time.Second, Cooldown: 30 * time.Second})
	admit(t, l, Tenant{ID: "a", Request: 90 * mib, Opportunistic: true, HardCap: 10 * mib}, Tenant{ID: "b", Request: 80 * mib, HardCap: 10 * mib})
	none := func(s int) {
		t.Helper()
		reliefs, _, err := l.Relieve(at(s), nil)
		require.NoError(t, err)
		require.Empty(t, reliefs)
	}
	wakes := func(now, want int) {
		t.Helper()
		wake, ok := l.NextWake(at(now))
		require.Equal(t, want >= 0, ok)
		if ok {
			require.Equal(t, at(want), wake)
		}
	}
	none(0)
	wakes(0, -1)
	require.NoError(t, l.Report(at(1), "a", 90*mib, false))
	none(1) // just High
	wakes(1, -1)
	require.NoError(t, l.Report(at(2), "a", 91*mib, false))
	wakes(2, 12)
	none(11)
	require.NoError(t, l.Report(at(11), "a", 50*mib, false)) // in between it fell
	require.NoError(t, l.Report(at(12), "a", 95*mib, false))
	none(21)
	wakes(21, 22)
	reliefs, _, err := l.Relieve(at(22), nil)
	require.NoError(t, err)
	require.Equal(t, []Relief{{Trim, "a", 85 * mib}}, reliefs)
	wakes(22, -1)
	require.NoError(t, l.Report(at(23), "a", 95*mib, false)) // it did not
	none(33)
	wakes(33, 52)
	none(51)
	reliefs, _, err = l.Relieve(at(52), nil)
	require.NoError(t, err)
	require.Equal(t, []Relief{{Trim, "a", 85 * mib}}, reliefs)
}

func TestNobodyWakesForWhoHasNothingLeftToGive(t *testing.T) {
	l := ledger(t, LedgerConfig{Capacity: 100 * mib, Factor: 4000, High: 100, Low: 50})
	admit(t, l, Tenant{ID: "sure", Request: 50 * mib, HardCap: 50 * mib}, Tenant{ID: "spare", Request: 50 * mib, Opportunistic: true})
	require.NoError(t, l.Report(at(0), "sure", 50*mib, false))
	require.NoError(t, l.Report(at(0), "spare", 20*mib, false))
	reliefs, lacking, err := l.Relieve(at(0), nil)
	require.NoError(t, err)
	require.Equal(t, []Relief{{Evict, "spare", 20 * mib}}, reliefs)
	require.Equal(t, 45*mib, lacking)
	_, ok := l.NextWake(at(0))
	require.False(t, ok)
}

func TestLedgerRefusesBadInput(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg    LedgerConfig
		fields []string
	}{
		"zero":                 {LedgerConfig{}, []string{"Capacity"}},
		"all wrong":            {LedgerConfig{Capacity: 1<<50 + 1, Factor: 999, High: 1001, Low: -1, Patience: -1, Cooldown: -1}, []string{"Capacity", "Factor", "High", "Low", "Patience", "Cooldown"}},
		"low over high":        {LedgerConfig{Capacity: gib, High: 500, Low: 501}, []string{"Low"}},
		"large factor":         {LedgerConfig{Capacity: gib, Factor: 16001}, []string{"Factor"}},
		"low over the default": {LedgerConfig{Capacity: gib, Low: 901}, []string{"Low"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewLedger(tt.cfg)
			requireFields(t, err, tt.fields...)
		})
	}
	require.NoError(t, LedgerConfig{Capacity: gib, High: 5}.Validate())
	require.Equal(t, int64(5), LedgerConfig{High: 5}.filled().Low)

	l := ledger(t, LedgerConfig{Capacity: gib})
	for name, tt := range map[string]struct {
		tenant Tenant
		fields []string
	}{
		"zero":                       {Tenant{}, []string{"ID", "Request", "HardCap"}},
		"hard cap above the request": {Tenant{ID: "a", Request: mib, HardCap: mib + 1}, []string{"HardCap"}},
		"negative":                   {Tenant{ID: "a", Request: -1, HardCap: -1}, []string{"Request", "HardCap"}},
		"huge":                       {Tenant{ID: "a", Request: 1<<50 + 1, HardCap: 1}, []string{"Request"}},
	} {
		_, err := l.Admit(tt.tenant)
		requireFields(t, err, tt.fields...)
		require.Empty(t, l.Tenants(), name)
	}
	admit(t, l, Tenant{ID: "a", Request: mib, HardCap: mib})
	before := l.image()
	_, err := l.Admit(Tenant{ID: "a", Request: mib, HardCap: mib})
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	require.ErrorIs(t, l.Report(at(0), "b", 1, false), lockstep.ErrUnknown)
	require.ErrorIs(t, l.Remove(at(0), "b"), lockstep.ErrUnknown)
	require.ErrorIs(t, l.Report(at(0), "a", -1, false), lockstep.ErrInvalid)
	require.ErrorIs(t, l.Report(at(0), "a", 1<<50+1, false), lockstep.ErrInvalid)
	require.ErrorIs(t, l.Report(time.Time{}, "a", 1, false), lockstep.ErrInvalid)
	require.Equal(t, before, l.image())
	require.NoError(t, l.Report(at(5), "a", 1, false))
	require.ErrorIs(t, l.Report(at(4), "a", 1, false), lockstep.ErrPast)
	require.ErrorIs(t, l.Remove(at(4), "a"), lockstep.ErrPast)
	_, _, err = l.Relieve(at(4), nil)
	require.ErrorIs(t, err, lockstep.ErrPast)
	_, ok := l.NextWake(time.Time{})
	require.False(t, ok)
}

func TestLedgerHoldsAtMost4096Tenants(t *testing.T) {
	l := ledger(t, LedgerConfig{Capacity: 4097 * mib, Factor: 16000})
	for i := range 4096 {
		admit(t, l, Tenant{ID: lockstep.JobID(strconv.Itoa(i)), Request: 1, Opportunistic: true})
	}
	_, err := l.Admit(Tenant{ID: "x", Request: 1, Opportunistic: true})
	require.ErrorIs(t, err, lockstep.ErrConflict)
}

// checkLedger recomputes what a ledger promises.
func checkLedger(t testing.TB, l *Ledger) {
	t.Helper()
	var requests, caps, used lockstep.Bytes
	for _, a := range l.tenants { // in any order: sums
		requests += a.Request
		caps += a.HardCap
		used += a.used - a.going
		require.GreaterOrEqual(t, a.going, lockstep.Bytes(0))
		require.LessOrEqual(t, a.going, a.used)
	}
	require.Equal(t, requests, l.requests)
	require.Equal(t, caps, l.caps)
	require.Equal(t, used, l.Used())
	require.LessOrEqual(t, caps, l.cfg.Capacity)
	require.LessOrEqual(t, requests*1000, l.cfg.Capacity*lockstep.Bytes(l.cfg.Factor))
	for _, a := range l.tenants { // in any order: each by itself
		require.LessOrEqual(t, a.Request, l.cfg.Capacity-(caps-a.HardCap))
	}
}

// checkReliefs compares what was decided with the rules, given the ledger before.
func checkReliefs(t testing.TB, before *ledgerImage, l *Ledger, now int64, reliefs []Relief, lacking lockstep.Bytes) {
	t.Helper()
	low := l.cfg.Capacity / 1000 * lockstep.Bytes(l.cfg.Low) // capacities in tests are multiples of 1000 MiB
	var used, freed lockstep.Bytes
	held := map[lockstep.JobID]tenantImage{}
	for _, a := range before.Tenants {
		held[a.ID] = a
		used += a.Used - a.Going
	}
	named := map[lockstep.JobID]bool{}
	for _, r := range reliefs {
		a := held[r.Tenant]
		require.False(t, named[r.Tenant], "named twice")
		named[r.Tenant] = true
		require.LessOrEqual(t, a.Until, now, "left alone")
		require.Positive(t, r.Amount)
		stays := a.Used - a.Going - r.Amount
		switch r.Kind {
		case Swap:
			require.True(t, a.Idle)
			require.Zero(t, stays)
		case Trim:
			require.False(t, a.Idle)
			require.Equal(t, a.HardCap, stays)
			require.Positive(t, a.HardCap)
		case Evict:
			require.False(t, a.Idle)
			require.True(t, a.Opportunistic)
			require.Zero(t, a.HardCap)
			require.Zero(t, stays)
		}
		freed += r.Amount
	}
	require.Equal(t, max(0, used-freed-low), lacking)
	if lacking > 0 {
		for id, a := range held { // in any order: each by itself
			most := a.Used - a.Going
			if !a.Idle {
				most -= a.HardCap
			}
			require.True(t, named[id] || a.Until > now || most <= 0, "%s was not asked", id)
		}
		return
	}
	for _, r := range reliefs {
		require.Greater(t, used-freed+r.Amount, low, "it could do without %s", r.Tenant)
	}
}

func TestLedgerKeepsItsPromisesUnderRandomUse(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 9))
		cfg := LedgerConfig{
			Capacity: lockstep.Bytes(1+rng.IntN(4)) * 1000 * mib,
			Factor:   1000 + rng.Int64N(3000), High: 500 + rng.Int64N(500), Low: 1 + rng.Int64N(499),
			Patience: time.Duration(rng.IntN(3)) * time.Second, Cooldown: time.Duration(1+rng.IntN(20)) * time.Second,
		}
		l := ledger(t, cfg)
		now := 0
		for range 200 {
			now += rng.IntN(3)
			id := lockstep.JobID(strconv.Itoa(rng.IntN(8)))
			switch rng.IntN(6) {
			case 0, 1:
				request := 1 + rng.Int64N(int64(cfg.Capacity))
				tenant := Tenant{ID: id, Request: lockstep.Bytes(request), HardCap: lockstep.Bytes(1 + rng.Int64N(request)), Opportunistic: rng.IntN(2) == 0, Priority: lockstep.Priority(rng.IntN(3))}
				if tenant.Opportunistic && rng.IntN(2) == 0 {
					tenant.HardCap = 0
				}
				_, _ = l.Admit(tenant)
			case 2:
				_ = l.Remove(at(now), id)
			case 3, 4:
				_ = l.Report(at(now), id, lockstep.Bytes(rng.Int64N(int64(cfg.Capacity))), rng.IntN(3) == 0)
			default:
				before := l.image()
				reliefs, lacking, err := l.Relieve(at(now), nil)
				require.NoError(t, err)
				if len(reliefs) > 0 {
					require.LessOrEqual(t, before.Above, at(now).Add(-cfg.Patience).UnixNano())
					checkReliefs(t, before, l, at(now).UnixNano(), reliefs, lacking)
				}
				again, _, err := l.Relieve(at(now), nil)
				require.NoError(t, err)
				require.Empty(t, again, "twice for one cause")
				if wake, ok := l.NextWake(at(now)); ok {
					require.True(t, wake.After(at(now)))
				}
			}
			checkLedger(t, l)
			if rng.IntN(8) == 0 {
				l = reloadLedger(t, l)
			}
		}
	}
}

// reloadLedger saves and restores l and checks that nothing was lost.
func reloadLedger(t testing.TB, l *Ledger) *Ledger {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, l.Snapshot(&b))
	saved := slices.Clone(b.Bytes())
	again, err := RestoreLedger(&b)
	require.NoError(t, err)
	require.Equal(t, l.image(), again.image())
	checkLedger(t, again)
	var c bytes.Buffer
	require.NoError(t, again.Snapshot(&c))
	require.Equal(t, saved, c.Bytes())
	return again
}

// With no report in between, waking when told is as good as asking all the time.
func TestNothingIsDecidedBetweenWakes(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 10))
		l := ledger(t, LedgerConfig{Capacity: 1000 * mib, Factor: 8000, Patience: time.Duration(rng.IntN(5)) * time.Second, Cooldown: 7 * time.Second})
		for i := range 6 {
			id := lockstep.JobID(strconv.Itoa(i))
			admit(t, l, Tenant{ID: id, Request: 500 * mib, HardCap: 50 * mib, Opportunistic: true})
		}
		now := 0
		for range 5 {
			for i := range 6 {
				require.NoError(t, l.Report(at(now), lockstep.JobID(strconv.Itoa(i)), lockstep.Bytes(rng.IntN(300))*mib, rng.IntN(4) == 0))
			}
			_, _, err := l.Relieve(at(now), nil)
			require.NoError(t, err)
			wake, ok := l.NextWake(at(now))
			for range 20 {
				now++
				reliefs, _, err := l.Relieve(at(now), nil)
				require.NoError(t, err)
				if len(reliefs) > 0 {
					require.True(t, ok)
					require.Equal(t, wake, at(now))
				}
				wake, ok = l.NextWake(at(now))
			}
		}
	}
}
