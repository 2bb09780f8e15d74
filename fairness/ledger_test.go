package fairness

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestBadInputChangesNothing(t *testing.T) {
	now := epoch.Add(time.Minute)
	long := strings.Repeat("x", 1<<20)
	for name, c := range map[string]struct { // order does not matter: each starts anew
		kind error
		call func(l *Ledger) error
	}{
		"weight negative":       {lockstep.ErrInvalid, func(l *Ledger) error { return l.Join(now, "new", -1) }},
		"weight too large":      {lockstep.ErrInvalid, func(l *Ledger) error { return l.Join(now, "new", math.MaxInt64) }},
		"join twice":            {lockstep.ErrDuplicate, func(l *Ledger) error { return l.Join(now, "guest", 1) }},
		"tenant of a megabyte":  {lockstep.ErrInvalid, func(l *Ledger) error { return l.Join(now, lockstep.TenantID(long), 1) }},
		"set weight negative":   {lockstep.ErrInvalid, func(l *Ledger) error { return l.SetWeight(now, "guest", math.MinInt64) }},
		"set weight unknown":    {lockstep.ErrUnknown, func(l *Ledger) error { return l.SetWeight(now, "none", 1) }},
		"set weight of left":    {lockstep.ErrUnknown, func(l *Ledger) error { return l.SetWeight(now, "gone", 1) }},
		"leave with jobs":       {lockstep.ErrConflict, func(l *Ledger) error { _, err := l.Leave(now, "auto"); return err }},
		"leave twice":           {lockstep.ErrUnknown, func(l *Ledger) error { _, err := l.Leave(now, "gone"); return err }},
		"capacity negative":     {lockstep.ErrInvalid, func(l *Ledger) error { return l.SetCapacity(now, -1) }},
		"capacity absurd":       {lockstep.ErrInvalid, func(l *Ledger) error { return l.SetCapacity(now, math.MaxInt64) }},
		"submit twice":          {lockstep.ErrDuplicate, func(l *Ledger) error { return l.Submit(now, "a", "auto", 1) }},
		"submit a finished one": {lockstep.ErrDuplicate, func(l *Ledger) error { return l.Submit(now, "d", "auto", 1) }},
		"submit without ID":     {lockstep.ErrInvalid, func(l *Ledger) error { return l.Submit(now, "", "auto", 1) }},
		"submit of a megabyte":  {lockstep.ErrInvalid, func(l *Ledger) error { return l.Submit(now, lockstep.JobID(long), "auto", 1) }},
		"submit negative":       {lockstep.ErrInvalid, func(l *Ledger) error { return l.Submit(now, "new", "auto", -1) }},
		"submit absurd":         {lockstep.ErrInvalid, func(l *Ledger) error { return l.Submit(now, "new", "auto", maxRate) }},
		"submit, bad tenant":    {lockstep.ErrInvalid, func(l *Ledger) error { return l.Submit(now, "new", "a b", 1) }},
		"demand unknown":        {lockstep.ErrUnknown, func(l *Ledger) error { return l.Demand(now, "none", 1) }},
		"demand below held":     {lockstep.ErrConflict, func(l *Ledger) error { return l.Demand(now, "a", 2999) }},
		"demand negative":       {lockstep.ErrInvalid, func(l *Ledger) error { return l.Demand(now, "b", -1) }},
		"start unknown":         {lockstep.ErrUnknown, func(l *Ledger) error { return l.Start(now, "none", 1) }},
		"start twice":           {lockstep.ErrConflict, func(l *Ledger) error { return l.Start(now, "a", 3000) }},
		"start finished":        {lockstep.ErrConflict, func(l *Ledger) error { return l.Start(now, "d", 1) }},
		"start with too much":   {lockstep.ErrInvalid, func(l *Ledger) error { return l.Start(now, "b", 8001) }},
		"start negative":        {lockstep.ErrInvalid, func(l *Ledger) error { return l.Start(now, "b", -1) }},
		"resize waiting":        {lockstep.ErrConflict, func(l *Ledger) error { return l.Resize(now, "b", 1) }},
		"resize with too much":  {lockstep.ErrInvalid, func(l *Ledger) error { return l.Resize(now, "a", 8001) }},
		"stop waiting":          {lockstep.ErrConflict, func(l *Ledger) error { return l.Stop(now, "b") }},
		"stop unknown":          {lockstep.ErrUnknown, func(l *Ledger) error { return l.Stop(now, "none") }},
		"finish twice":          {lockstep.ErrConflict, func(l *Ledger) error { return l.Finish(now, "d") }},
		"forget unknown":        {lockstep.ErrUnknown, func(l *Ledger) error { return l.Forget("none") }},
		"forget waiting":        {lockstep.ErrConflict, func(l *Ledger) error { return l.Forget("b") }},
		"forget running":        {lockstep.ErrConflict, func(l *Ledger) error { return l.Forget("a") }},
		"forget joined":         {lockstep.ErrConflict, func(l *Ledger) error { return l.ForgetTenant("auto") }},
		"forget no tenant":      {lockstep.ErrUnknown, func(l *Ledger) error { return l.ForgetTenant("none") }},
		"the past":              {lockstep.ErrPast, func(l *Ledger) error { return l.Stop(epoch, "a") }},
		"no time":               {lockstep.ErrInvalid, func(l *Ledger) error { return l.Stop(time.Time{}, "a") }},
		"no kind":               {lockstep.ErrInvalid, func(l *Ledger) error { return l.Apply(Event{Kind: "none", Time: now}) }},
		"kind of a megabyte":    {lockstep.ErrInvalid, func(l *Ledger) error { return l.Apply(Event{Kind: EventKind(long), Time: epoch, Seq: 1}) }},
		"log repeated":          {lockstep.ErrDuplicate, func(l *Ledger) error { return l.Apply(Event{Kind: EventStop, Job: "a", Time: now, Seq: 1}) }},
		"log with a gap": {lockstep.ErrConflict, func(l *Ledger) error {
			return l.Apply(Event{Kind: EventStop, Job: "a", Time: now, Seq: math.MaxUint64})
		}},
		"due unknown":         {lockstep.ErrUnknown, func(l *Ledger) error { return l.Due(lockstep.JobID(long)) }},
		"due waiting":         {lockstep.ErrConflict, func(l *Ledger) error { return l.Due("b") }},
		"due finished":        {lockstep.ErrConflict, func(l *Ledger) error { return l.Due("d") }},
		"statement, past":     {lockstep.ErrPast, func(l *Ledger) error { _, err := l.Statement(epoch, "auto"); return err }},
		"statement, unknown":  {lockstep.ErrUnknown, func(l *Ledger) error { _, err := l.Statement(now, "none"); return err }},
		"statements, past":    {lockstep.ErrPast, func(l *Ledger) error { _, err := l.AppendStatements(nil, epoch); return err }},
		"job statement, none": {lockstep.ErrUnknown, func(l *Ledger) error { _, err := l.JobStatement(now, "none"); return err }},
		"job statement, past": {lockstep.ErrPast, func(l *Ledger) error { _, err := l.JobStatement(epoch, "a"); return err }},
		"totals, no time":     {lockstep.ErrInvalid, func(l *Ledger) error { _, err := l.Totals(time.Time{}); return err }},
	} {
		t.Run(name, func(t *testing.T) {
			l := sample(t)
			before := saved(t, l)
			err := c.call(l)
			require.ErrorIs(t, err, c.kind)
			var typed *lockstep.Error
			require.ErrorAs(t, err, &typed)
			require.NotEmpty(t, typed.Field)
			require.Less(t, len(err.Error()), 400)
			same(t, before, saved(t, l))
		})
	}
}

func TestUnknownTenantJoinsOnlyByConfig(t *testing.T) {
	l := start(t, Config{})
	require.ErrorIs(t, l.Submit(epoch, "j", "new", 1), lockstep.ErrUnknown)
	var log []Event
	l = start(t, Config{DefaultWeight: 4, Log: func(e Event) { log = append(log, e) }})
	require.NoError(t, l.Submit(epoch, "j", "new", 1))
	require.Equal(t, []Event{
		{Seq: 1, Kind: EventJoin, Time: epoch, Tenant: "new", Weight: 4},
		{Seq: 2, Kind: EventSubmit, Time: epoch, Tenant: "new", Job: "j", Amount: 1},
	}, log)
	// The log replays where tenants do not join by themselves.
	replay := start(t, Config{})
	for _, e := range log {
		require.NoError(t, replay.Apply(e))
	}
	same(t, saved(t, l), saved(t, replay))
	require.ErrorIs(t, l.Apply(Event{Seq: 3, Kind: EventSubmit, Time: epoch, Tenant: "other", Job: "k"}), lockstep.ErrUnknown)
}

func TestConfigNamesEveryFault(t *testing.T) {
	bad := Config{
		Basis: "x", JobOrder: "y", Payer: "z", Capacity: -1, Horizon: -1, Quantum: lockstep.MaxWalltime + 1, CreditCap: -1, DefaultWeight: -1,
		Memory: Memory{Bucket: 1, Buckets: maxBuckets + 1, HalfLife: -1},
	}
	_, err := New(bad)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, field := range []string{"Basis", "JobOrder", "Payer", "Capacity", "Horizon", "Quantum", "CreditCap", "DefaultWeight", "Memory.Bucket ", "Memory.Buckets", "Memory.HalfLife"} {
		require.ErrorContains(t, err, field)
	}
	for _, m := range []Memory{{Bucket: time.Hour}, {Buckets: 1}, {Bucket: time.Hour, Buckets: 1, HalfLife: 1}, {Bucket: time.Hour, Buckets: -1}} {
		require.ErrorIs(t, Config{Memory: m}.Validate(), lockstep.ErrInvalid, "%+v", m)
	}
	require.NoError(t, Config{}.Validate())
	text, err := json.Marshal(Config{Basis: Fixed, Capacity: 8000, Horizon: time.Minute})
	require.NoError(t, err)
	var back Config
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, Fixed, back.Basis)
	require.Equal(t, lockstep.MilliGPU(8000), back.Capacity)
}

func TestEdges(t *testing.T) {
	t.Run("nothing", func(t *testing.T) {
		l := start(t, Config{})
		require.Empty(t, drain(l, time.Time{}, always(lockstep.Granted)))
		totals, err := l.Totals(epoch)
		require.NoError(t, err)
		require.Zero(t, totals.Offered)
		require.Equal(t, epoch, totals.Time)
		all, err := l.AppendStatements(nil, epoch)
		require.NoError(t, err)
		require.Empty(t, all)
	})
	t.Run("not made by New", func(t *testing.T) {
		l := new(Ledger)
		require.Empty(t, drain(l, epoch, always(lockstep.Granted)))
		l.Outcome("j", lockstep.Granted)
		require.ErrorIs(t, l.Join(epoch, "a", 1), lockstep.ErrInvalid)
		require.ErrorIs(t, l.Due("j"), lockstep.ErrUnknown)
		require.ErrorIs(t, l.Forget("j"), lockstep.ErrInvalid)
	})
	t.Run("the past is named in UTC", func(t *testing.T) {
		l := start(t, Config{})
		require.NoError(t, l.Join(epoch, "a", 1))
		err := l.Join(epoch.In(time.FixedZone("east", 3600)).Add(-time.Hour), "b", 1)
		require.ErrorContains(t, err, "now = 2026-01-02 02:04:05 +0000 UTC: ")
	})
	t.Run("every weight zero", func(t *testing.T) {
		for _, basis := range []Basis{MaxMin, Fixed} {
			l := start(t, Config{Capacity: 1000, Basis: basis})
			require.NoError(t, l.Join(epoch, "a", 0))
			require.NoError(t, l.Submit(epoch, "j", "a", 4000))
			s, err := l.Statement(epoch.Add(time.Second), "a")
			require.NoError(t, err)
			want := 1.0
			if basis == Fixed {
				want = 0
			}
			require.InDelta(t, want, s.Entitlement.GPUSeconds(), 1e-9)
			require.Zero(t, s.Nominal)
			_, ok := s.Index()
			require.Equal(t, basis == MaxMin, ok)
		}
	})
	t.Run("start and stop at one instant", func(t *testing.T) {
		l := start(t, Config{Capacity: 1000})
		require.NoError(t, l.Join(epoch, "a", 1))
		require.NoError(t, l.Submit(epoch, "j", "a", 1000))
		require.NoError(t, l.Start(epoch, "j", 1000))
		require.NoError(t, l.Stop(epoch, "j"))
		require.NoError(t, l.Finish(epoch, "j"))
		s, err := l.JobStatement(epoch.Add(time.Hour), "j")
		require.NoError(t, err)
		require.Zero(t, s.Service)
		require.Zero(t, s.Entitlement)
		_, ok := s.Index()
		require.False(t, ok)
	})
	t.Run("capacity below what is held, to nothing and back", func(t *testing.T) {
		l := start(t, Config{Capacity: 8000})
		require.NoError(t, l.Join(epoch, "a", 1))
		require.NoError(t, l.Submit(epoch, "j", "a", 8000))
		require.NoError(t, l.Start(epoch, "j", 8000))
		require.NoError(t, l.SetCapacity(epoch, 1000))
		require.NoError(t, l.SetCapacity(epoch.Add(time.Second), 0))
		require.NoError(t, l.SetCapacity(epoch.Add(2*time.Second), 8000))
		s, err := l.Statement(epoch.Add(3*time.Second), "a")
		require.NoError(t, err)
		require.InDelta(t, 24, s.Service.GPUSeconds(), 0)
		require.InDelta(t, 9, s.Entitlement.GPUSeconds(), 0)
		lag := s.Lag()
		require.InDelta(t, -15, lag.GPUSeconds(), 0)
		require.Zero(t, s.Worst)
	})
	t.Run("a tenant that weighs 2^32 times the others, for 500 years", func(t *testing.T) {
		l := start(t, Config{Capacity: 1 << 40})
		first, last := lockstep.FromNanos(math.MinInt64), lockstep.FromNanos(math.MaxInt64)
		for id, w := range map[lockstep.TenantID]int64{"large": MaxWeight, "small": 1, "none": 0} { // order does not matter: they are independent
			require.NoError(t, l.Join(first, id, w))
			require.NoError(t, l.Submit(first, lockstep.JobID(id), id, 1<<60))
		}
		require.NoError(t, l.Start(first, "large", 1<<60))
		require.NoError(t, l.SetCapacity(last, 1<<40))
		s, err := l.Statement(last, "large")
		require.NoError(t, err)
		require.Equal(t, 0, s.Service.Cmp(lockstep.GPUTime(rated(1<<60, math.MaxUint64))))
		require.Equal(t, -1, s.Entitlement.Cmp(lockstep.GPUTime(rated(1<<40, math.MaxUint64))))
		small, err := l.Statement(last, "small")
		require.NoError(t, err)
		require.Equal(t, lockstep.MilliGPU(1<<40*1/(MaxWeight+1)), small.Share)
		require.Equal(t, 1, small.Entitlement.Sign())
		require.Equal(t, []lockstep.JobID{"small", "none"}, drain(l, last, always(lockstep.Granted)))
	})
	t.Run("IDs that differ in case", func(t *testing.T) {
		l := start(t, Config{})
		require.NoError(t, l.Join(epoch, "a", 1))
		require.NoError(t, l.Join(epoch, "A", 1))
		require.NoError(t, l.Submit(epoch, "j", "a", 1))
		require.NoError(t, l.Submit(epoch, "J", "A", 1))
	})
	t.Run("rejoin at the same instant", func(t *testing.T) {
		l := start(t, Config{Capacity: 1000})
		require.NoError(t, l.Join(epoch, "a", 1))
		_, err := l.Leave(epoch, "a")
		require.NoError(t, err)
		require.NoError(t, l.Join(epoch, "a", 5))
		_, err = l.Leave(epoch, "a")
		require.NoError(t, err)
		require.NoError(t, l.ForgetTenant("a"))
		totals, err := l.Totals(epoch)
		require.NoError(t, err)
		require.Zero(t, totals.Tenants)
	})
}

func TestWorstLagIsKept(t *testing.T) {
	l := start(t, Config{Capacity: 1000})
	require.NoError(t, l.Join(epoch, "a", 1))
	require.NoError(t, l.Submit(epoch, "j", "a", 1000))
	at := epoch.Add(time.Minute)
	require.NoError(t, l.Start(at, "j", 1000))
	at = at.Add(time.Minute)
	require.NoError(t, l.Finish(at, "j"))
	s, err := l.Statement(at, "a")
	require.NoError(t, err)
	require.InDelta(t, 60, s.Worst.GPUSeconds(), 0)
	lag := s.Lag()
	require.InDelta(t, 60, lag.GPUSeconds(), 0)
	index, ok := s.Index()
	require.True(t, ok)
	require.InDelta(t, 0.5, index, 0)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	var back Statement
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, s, back)
}

// TestTreeStaysShallow keeps the claim of O(log tenants): whatever the order of
// insertion, no tenant is deep.
func TestTreeStaysShallow(t *testing.T) {
	l := start(t, Config{Capacity: 1000})
	const n = 10_000
	for i := range n {
		id := lockstep.TenantID(fmt.Sprintf("t%06d", i))
		require.NoError(t, l.Join(epoch, id, 1))
		require.NoError(t, l.Submit(epoch, lockstep.JobID(id), id, lockstep.MilliGPU(i)))
	}
	deepest := 0
	for _, tn := range l.sorted() {
		depth := 0
		for a := tn.parent; a != nil; a = a.parent {
			depth++
		}
		deepest = max(deepest, depth)
	}
	t.Logf("%d tenants: depth %d", n, deepest)
	require.Less(t, deepest, 64)
}

func TestHeapIsFlatOverManyJobs(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{Memory: Memory{Bucket: 10 * time.Minute, Buckets: 24}, JobOrder: LeastIndex},
		{Memory: Memory{HalfLife: time.Hour}},
	} {
		t.Run(fmt.Sprintf("%+v", cfg.Memory), func(t *testing.T) { staysFlat(t, cfg) })
	}
}

func staysFlat(t *testing.T, cfg Config) {
	cfg.Capacity = 64000
	l := start(t, cfg)
	const tenants, window = 20, 200
	for i := range tenants {
		require.NoError(t, l.Join(epoch, lockstep.TenantID(fmt.Sprint(i)), int64(i)))
	}
	now, serial := epoch, 0
	name := func(i int) lockstep.JobID { return lockstep.JobID(fmt.Sprint("job-", i)) }
	round := func(n int) uint64 {
		for range n {
			now = now.Add(time.Second)
			require.NoError(t, l.Submit(now, name(serial), lockstep.TenantID(fmt.Sprint(serial%tenants)), 1000))
			if old := serial - window; old >= 0 {
				require.NoError(t, l.Start(now, name(old), 1000))
			}
			if old := serial - 2*window; old >= 0 {
				require.NoError(t, l.Finish(now, name(old)))
				require.NoError(t, l.Forget(name(old)))
			}
			if serial++; serial%500 == 0 {
				drain(l, now, always(lockstep.Blocked))
			}
		}
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	n := lists(100_000) / 2
	warm := round(n)
	end := round(n)
	t.Logf("heap after %d jobs %d kB, after %d jobs %d kB", n, warm>>10, serial, end>>10)
	require.Less(t, end, warm+warm/4+(64<<10))
}

func TestSteadyEventsAllocateNothing(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{CreditCap: time.Hour, Basis: Active},
		{Memory: Memory{Bucket: time.Minute, Buckets: 10}, Payer: PayNobody},
		{Memory: Memory{HalfLife: time.Hour}},
		{Memory: Memory{HalfLife: time.Hour}, JobOrder: LeastExpect},
		{JobOrder: IndexClass},
	} {
		t.Run(fmt.Sprintf("%s %+v %s %s", cfg.Basis, cfg.Memory, cfg.JobOrder, cfg.CreditCap), func(t *testing.T) { allocatesNothing(t, cfg) })
	}
}

func allocatesNothing(t *testing.T, cfg Config) {
	l, jobs := crowdOf(t, cfg, 1000, 2000)
	now := epoch
	report := cfg.Memory.HalfLife == 0 // then statements take big numbers
	i := 0
	require.Zero(t, testing.AllocsPerRun(2000, func() {
		now = now.Add(time.Millisecond)
		job := jobs[i%len(jobs)]
		i++
		if l.Start(now, job, 1000) != nil || l.Stop(now, job) != nil || l.Demand(now, job, 2000) != nil {
			t.Fatal("refused")
		}
		if report {
			if _, err := l.Statement(now, l.jobs[job].tenant.id); err != nil {
				t.Fatal(err)
			}
		}
	}))
	var statements []Statement
	all := testing.AllocsPerRun(10, func() {
		var err error
		if statements, err = l.AppendStatements(statements[:0], now); err != nil || len(statements) != 1000 {
			t.Fatal(err)
		}
	})
	require.True(t, !report || all == 0)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		l.Begin(now)
		for {
			id, ok := l.Next()
			if !ok {
				break
			}
			l.Outcome(id, lockstep.Blocked)
		}
		l.Begin(now)
		for range 100 {
			id, ok := l.Next()
			if !ok {
				t.Fatal("nothing to propose")
			}
			l.Outcome(id, lockstep.Granted)
		}
	}))
}

// crowd returns a ledger of n tenants of different weights with jobs spread over
// them, of which about two thirds of the tenants get all that they ask for.
func crowd(t testing.TB, n, jobs int) (*Ledger, []lockstep.JobID) {
	return crowdOf(t, Config{}, n, jobs)
}

func crowdOf(t testing.TB, cfg Config, n, jobs int) (*Ledger, []lockstep.JobID) {
	cfg.Capacity = lockstep.MilliGPU(n) * 1000
	l := start(t, cfg)
	for i := range n {
		require.NoError(t, l.Join(epoch, lockstep.TenantID(fmt.Sprint("tenant-", i)), int64(1+i%17)))
	}
	names := make([]lockstep.JobID, jobs)
	for i := range names {
		names[i] = lockstep.JobID(fmt.Sprint("job-", i))
		require.NoError(t, l.Submit(epoch, names[i], lockstep.TenantID(fmt.Sprint("tenant-", i%n)), lockstep.MilliGPU(1000*(1+i%4))))
	}
	return l, names
}

var sizes = []struct{ tenants, jobs int }{{100, 1_000}, {10_000, 100_000}, {100_000, 1_000_000}}

// BenchmarkEvent is one Start or Stop, and two changes of demand, at a new time
// each, all over the tenants.
func BenchmarkEvent(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("tenants=%d/jobs=%d", size.tenants, size.jobs), func(b *testing.B) {
			l, jobs := crowd(b, size.tenants, size.jobs)
			now, i := epoch, 0
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				job := jobs[(i/4*7919)%len(jobs)]
				var err error
				switch i % 4 {
				case 0:
					err = l.Start(now, job, 1000)
				case 1:
					err = l.Demand(now, job, 9000)
				case 2:
					err = l.Stop(now, job)
				case 3:
					err = l.Demand(now, job, 1000)
				}
				if err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

// BenchmarkFlood raises and lowers the water over all tenants at once.
func BenchmarkFlood(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("tenants=%d/jobs=%d", size.tenants, size.jobs), func(b *testing.B) {
			l, _ := crowd(b, size.tenants, size.jobs)
			now, i := epoch, 0
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				i++
				capacity := lockstep.MilliGPU(size.tenants)
				if i%2 == 0 {
					capacity *= 40_000
				}
				if err := l.SetCapacity(now, capacity); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkChurn is the four events of one short job.
func BenchmarkChurn(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("tenants=%d/jobs=%d", size.tenants, size.jobs), func(b *testing.B) {
			l, _ := crowd(b, size.tenants, size.jobs)
			now, i := epoch, 0
			b.ReportAllocs()
			for b.Loop() {
				now = now.Add(time.Millisecond)
				tenant := lockstep.TenantID(fmt.Sprint("tenant-", i%size.tenants))
				i++
				if l.Submit(now, "short", tenant, 1000) != nil || l.Start(now, "short", 1000) != nil ||
					l.Finish(now.Add(time.Microsecond), "short") != nil || l.Forget("short") != nil {
					b.Fatal("refused")
				}
			}
		})
	}
}

// BenchmarkBegin starts a pass in which every tenant has jobs that wait.
func BenchmarkBegin(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("tenants=%d/jobs=%d", size.tenants, size.jobs), func(b *testing.B) {
			l, _ := crowd(b, size.tenants, size.jobs)
			b.ReportAllocs()
			for b.Loop() {
				l.Begin(epoch)
			}
		})
	}
}

// BenchmarkWalk is a whole pass in which nothing is granted.
func BenchmarkWalk(b *testing.B) {
	for _, jobs := range []int{100, 3_000, 30_000} {
		b.Run(fmt.Sprintf("tenants=11/jobs=%d", jobs), func(b *testing.B) {
			l, _ := crowd(b, 11, jobs)
			b.ReportAllocs()
			for b.Loop() {
				l.Begin(epoch)
				for {
					id, ok := l.Next()
					if !ok {
						break
					}
					l.Outcome(id, lockstep.Blocked)
				}
			}
			b.ReportMetric(float64(b.Elapsed())/float64(b.N*jobs), "ns/proposal")
		})
	}
}

// BenchmarkNext is one proposal that is granted.
func BenchmarkNext(b *testing.B) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("tenants=%d/jobs=%d", size.tenants, size.jobs), func(b *testing.B) {
			l, _ := crowd(b, size.tenants, size.jobs)
			l.Begin(epoch)
			b.ReportAllocs()
			for b.Loop() {
				id, ok := l.Next()
				if !ok {
					l.Begin(epoch)
					continue
				}
				l.Outcome(id, lockstep.Granted)
			}
		})
	}
}
