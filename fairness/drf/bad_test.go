package drf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/snapshot/snapshottest"
)

func TestBadConfig(t *testing.T) {
	many := lockstep.Resources{}
	for i := range lockstep.VectorWidth + 1 {
		many[lockstep.ResourceName(fmt.Sprint("r", i))] = 1
	}
	var chain []Tenant
	for i := range MaxDepth + 1 {
		chain = append(chain, Tenant{ID: lockstep.TenantID(fmt.Sprint("t", i)), Weight: 1})
		if i > 0 {
			chain[i].Parent = chain[i-1].ID
		}
	}
	for name, c := range map[string]struct { // order does not matter: each is on its own
		cfg   Config
		kind  error
		field string
	}{
		"capacity negative":     {Config{Capacity: lockstep.Resources{"cpu": -1}}, lockstep.ErrInvalid, "Capacity.cpu"},
		"capacity absurd":       {Config{Capacity: lockstep.Resources{"cpu": math.MaxInt64}}, lockstep.ErrInvalid, "Capacity.cpu"},
		"devices absurd":        {Config{Capacity: lockstep.Resources{"gpu/x": 1<<41 + 1}}, lockstep.ErrInvalid, "Capacity.gpu/x"},
		"too many resources":    {Config{Capacity: many}, lockstep.ErrInvalid, "names"},
		"nameless resource":     {Config{Capacity: lockstep.Resources{"": 1}}, lockstep.ErrInvalid, "names[0]"},
		"tenant malformed":      {Config{Tenants: []Tenant{{ID: "a b"}}}, lockstep.ErrInvalid, "Tenants[0].ID"},
		"tenant of a megabyte":  {Config{Tenants: []Tenant{{ID: lockstep.TenantID(strings.Repeat("x", 1<<20))}}}, lockstep.ErrInvalid, "Tenants[0].ID"},
		"tenant twice":          {Config{Tenants: equals("a", "a")}, lockstep.ErrDuplicate, "Tenants[1].ID"},
		"weight negative":       {Config{Tenants: []Tenant{{ID: "a", Weight: -1}}}, lockstep.ErrInvalid, "Tenants[0].Weight"},
		"weight too large":      {Config{Tenants: []Tenant{{ID: "a", Weight: math.MaxInt64}}}, lockstep.ErrInvalid, "Tenants[0].Weight"},
		"default weight":        {Config{DefaultWeight: -1}, lockstep.ErrInvalid, "DefaultWeight"},
		"no such parent":        {Config{Tenants: tree("a", "b")}, lockstep.ErrUnknown, "Tenants[0].Parent"},
		"its own parent":        {Config{Tenants: tree("a", "a")}, lockstep.ErrInvalid, "Tenants[0].Parent"},
		"a ring":                {Config{Tenants: tree("a", "b", "b", "c", "c", "a")}, lockstep.ErrInvalid, "Tenants[2].Parent"},
		"below a ring":          {Config{Tenants: tree("a", "b", "b", "c", "c", "b")}, lockstep.ErrInvalid, "Tenants[0].Parent"},
		"too deep":              {Config{Tenants: chain}, lockstep.ErrInvalid, "Tenants[32].Parent"},
		"what on blocked":       {Config{OnBlocked: "never"}, lockstep.ErrInvalid, "OnBlocked"},
		"price zero":            {Config{Prices: Prices{Classes: map[lockstep.DeviceClass]int64{"x": 0}}}, lockstep.ErrInvalid, "Classes.x"},
		"price too large":       {Config{Prices: Prices{Classes: map[lockstep.DeviceClass]int64{"x": MaxPrice + 1}}}, lockstep.ErrInvalid, "Classes.x"},
		"price of no class":     {Config{Prices: Prices{Classes: map[lockstep.DeviceClass]int64{"": 1}}}, lockstep.ErrInvalid, "Classes"},
		"bound negative":        {Config{Prices: Prices{Min: -1}}, lockstep.ErrInvalid, "Min"},
		"bounds the wrong way":  {Config{Prices: Prices{Min: 3, Max: 2}}, lockstep.ErrInvalid, "Min"},
		"bound beyond the most": {Config{Prices: Prices{Max: MaxPrice + 1}}, lockstep.ErrInvalid, "Max"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.cfg.Validate()
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, c.field)
			require.Less(t, len(err.Error()), 1000)
		})
	}
	require.NoError(t, Config{Tenants: chain[:MaxDepth]}.Validate())
	require.NoError(t, Config{Tenants: []Tenant{{}, {ID: "a"}, {ID: "A"}}}.Validate())
	err := Config{
		Capacity: lockstep.Resources{"cpu": -1}, OnBlocked: "x", DefaultWeight: -1, Prices: Prices{Min: -1},
		Tenants: []Tenant{{ID: "a b", Weight: -1}, {ID: "c", Parent: "d"}},
	}.Validate()
	for _, field := range []string{"Capacity.cpu", "OnBlocked", "DefaultWeight", "Min", "Tenants[0].ID", "Tenants[0].Weight", "Tenants[1].Parent"} {
		require.ErrorContains(t, err, field)
	}
}

// sample is a Queue with something of everything.
func sample(t testing.TB) *Queue {
	q := build(t, Config{
		Capacity: lockstep.Resources{"gpu": 20_000, "gpu/fast": 10_000, "memory": 1 << 40}, DefaultWeight: 2, OnBlocked: BlockTenant,
		Prices:  Prices{Classes: map[lockstep.DeviceClass]int64{"fast": 3000}, Min: 500, Max: 4000},
		Tenants: []Tenant{{}, {ID: "org", Weight: 3}, {ID: "a", Parent: "org", Weight: 1}},
	})
	fast := task("a", 0, 4, 0)
	fast.Priority = -2
	fast.Roles[0].Demand.Classes, fast.Roles[0].Spares = []lockstep.DeviceClass{"fast"}, 1
	require.NoError(t, q.Submit(fast, []int{2}, map[lockstep.DeviceClass]int64{"fast": 2000}))
	require.NoError(t, q.Submit(task("", 0, 1, 0), nil, nil))
	require.NoError(t, q.Submit(task("guest", 0, 1, 0), nil, nil))
	require.NoError(t, q.Start("a.0", nil))
	require.NoError(t, q.Start("guest.0", lockstep.Resources{"gpu": 1000, "gpu/fast": 1000}))
	return q
}

func TestErrorsChangeNothing(t *testing.T) {
	q := sample(t)
	before := snapshottest.Save(t, q.Snapshot)
	absurd := task("a", 9, 64, 0)
	absurd.Roles[0].Min = 1 << 20
	absurd.Roles[0].Demand.Memory = 1 << 50
	for name, c := range map[string]struct { // order does not matter: none changes anything
		err  error
		kind error
	}{
		"capacity negative":      {q.SetCapacity(lockstep.Resources{"gpu": -1}), lockstep.ErrInvalid},
		"capacity of what isn't": {q.SetCapacity(lockstep.Resources{"cpu": 1}), lockstep.ErrUnknown},
		"tenant malformed":       {q.SetTenant(Tenant{ID: "-"}), lockstep.ErrInvalid},
		"tenant below itself":    {q.SetTenant(Tenant{ID: "org", Parent: "org"}), lockstep.ErrInvalid},
		"tenant below jobs":      {q.SetTenant(Tenant{ID: "new", Parent: "guest"}), lockstep.ErrConflict},
		"tenant below nobody":    {q.SetTenant(Tenant{ID: "new", Parent: "none"}), lockstep.ErrUnknown},
		"remove with jobs":       {q.Remove("guest"), lockstep.ErrConflict},
		"remove with tenants":    {q.Remove("org"), lockstep.ErrConflict},
		"remove nobody":          {q.Remove("nobody"), lockstep.ErrUnknown},
		"submit twice":           {q.Submit(task("a", 0, 1, 1), nil, nil), lockstep.ErrDuplicate},
		"submit to a parent":     {q.Submit(task("org", 1, 1, 1), nil, nil), lockstep.ErrConflict},
		"submit malformed":       {q.Submit(&lockstep.Gang{ID: "a b"}, nil, nil), lockstep.ErrInvalid},
		"submit for malformed":   {q.Submit(&lockstep.Gang{ID: "x", Tenant: "a b"}, nil, nil), lockstep.ErrInvalid},
		"submit other counts":    {q.Submit(task("a", 1, 1, 1), []int{}, nil), lockstep.ErrInvalid},
		"submit less than none":  {q.Submit(task("a", 1, 1, 1), []int{-1}, nil), lockstep.ErrInvalid},
		"submit absurdly":        {q.Submit(absurd, nil, nil), lockstep.ErrInvalid},
		"start twice":            {q.Start("a.0", nil), lockstep.ErrConflict},
		"start nobody":           {q.Start("x", nil), lockstep.ErrUnknown},
		"start with less":        {q.Start(".0", lockstep.Resources{"gpu": -1}), lockstep.ErrInvalid},
		"start absurdly":         {q.Start(".0", lockstep.Resources{"memory": MaxAmount, "gpu": int64(MaxDevices)}), lockstep.ErrInvalid},
		"stop who waits":         {q.Stop(".0"), lockstep.ErrConflict},
		"stop nobody":            {q.Stop("x"), lockstep.ErrUnknown},
		"finish nobody":          {q.Finish("x"), lockstep.ErrUnknown},
		"due who waits":          {q.Due(".0"), lockstep.ErrConflict},
	} {
		require.ErrorIs(t, c.err, c.kind, name)
		var e *lockstep.Error
		require.True(t, errors.As(c.err, &e), name)
	}
	_, ok := q.Statement("nobody")
	require.False(t, ok)
	require.Equal(t, before, snapshottest.Save(t, q.Snapshot))
	q = build(t, Config{Tenants: equals("a")})
	require.ErrorIs(t, q.Submit(task("b", 0, 1, 1), nil, nil), lockstep.ErrUnknown)
}

// TestCapacityToNothingAndBack: what is used of nothing is infinitely much, and nothing is
// divided by it.
func TestCapacityToNothingAndBack(t *testing.T) {
	q := build(t, Config{Capacity: cluster(4, 4), Tenants: append(tree("o", "", "a", "o", "b", "o"), equals("c")...)})
	for _, id := range []lockstep.TenantID{"a", "b", "c"} {
		for i := range 2 {
			require.NoError(t, q.Submit(task(id, i, 1, 1), nil, nil))
		}
	}
	require.NoError(t, q.Start("a.0", nil))
	require.Equal(t, "c.0 c.1 b.0 a.1 b.1", pass(q, lockstep.Granted))
	require.NoError(t, q.SetCapacity(nil))
	s, _ := q.Statement("o")
	require.True(t, s.Share.Infinite())
	require.Equal(t, "c.0 c.1 b.0 a.1 b.1", pass(q, lockstep.Granted))
	require.NoError(t, q.SetCapacity(cluster(4, 4)))
	require.Equal(t, "c.0 c.1 b.0 a.1 b.1", pass(q, lockstep.Granted))
}

func TestManyTenantsAndManyJobs(t *testing.T) {
	n := 100_000
	if testing.Short() {
		n = 2000
	}
	cfg := Config{Capacity: cluster(int64(n), 0), Tenants: equals("many")}
	for i := range n {
		cfg.Tenants = append(cfg.Tenants, Tenant{ID: lockstep.TenantID(fmt.Sprint("t", i)), Weight: 1})
	}
	q := build(t, cfg)
	for i := range n {
		require.NoError(t, q.Submit(task(lockstep.TenantID(fmt.Sprint("t", i)), 0, 1, 0), nil, nil))
		require.NoError(t, q.Submit(task("many", i, 1, 0), nil, nil))
	}
	q.Begin(time.Time{})
	for i := range 2 * n {
		id, ok := q.Next()
		require.True(t, ok)
		require.True(t, i == 0 || i > n || !strings.HasPrefix(string(id), "many"), "after its first, many waits for all others")
		q.Outcome(id, lockstep.Granted)
	}
	_, ok := q.Next()
	require.False(t, ok)
}

func TestRestoreRefusesDamage(t *testing.T) {
	q := sample(t)
	image := snapshottest.Save(t, q.Snapshot)
	restore := func(r io.Reader) error { _, err := Restore(r); return err }
	snapshottest.RefusesDamage(t, image, restore)
	snapshottest.PassesFaultsOn(t, q.Snapshot, restore)
	snapshottest.RefusesForgeries(t, format, version, image, restore, [][2]string{
		{`"gpu":"20"`, `"gpu":"-20"`},
		{`"weight":3`, `"weight":-3`},
		{`"onBlocked":"tenant"`, `"onBlocked":"none"`},
		{`"parent":"org"`, `"parent":"a"`},
		{`"fast":3000`, `"fast":0`},
		{`"id":"a.0"`, `"id":".0"`},
		{`"id":"a.0"`, `"id":"a 0"`},
		{`"tenant":"a"`, `"tenant":"org"`},
		{`"tenant":"a"`, `"tenant":"z"`},
		{`"priced":24000000`, `"priced":-1`},
		{`"priced":24000000`, `"priced":12000000001`},
		{`"raw":{"gpu":"12"`, `"raw":{"gpu":"-12"`},
		{`"raw":{"gpu":"12"`, `"raw":{"gpu":"12000000000"`},
		{`"raw":{"gpu":"12"`, `"raw":{"cpu":"12"`},
		{`"defaultWeight":2`, `"defaultWeight":02`},
	})
	again, err := Restore(bytes.NewReader(image))
	require.NoError(t, err)
	require.Equal(t, pass(q, lockstep.Granted), pass(again, lockstep.Granted))
}

// FuzzRestore feeds bodies with a right checksum: a Queue that is accepted is whole,
// and saves as it was given.
func FuzzRestore(f *testing.F) {
	f.Add(snapshottest.Body(f, snapshottest.Save(f, sample(f).Snapshot)))
	f.Add(snapshottest.Body(f, snapshottest.Save(f, build(f, Config{}).Snapshot)))
	f.Fuzz(func(t *testing.T, body []byte) {
		image := snapshottest.Frame(t, format, version, body)
		q, err := Restore(bytes.NewReader(image))
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrInvalid)
			return
		}
		require.Equal(t, image, snapshottest.Save(t, q.Snapshot))
		pass(q, lockstep.Granted)
		for id := range q.jobs { // order does not matter: all go
			require.NoError(t, q.Finish(id))
		}
		for _, x := range q.order {
			require.Equal(t, lockstep.Vector{}, x.raw)
			require.Equal(t, lockstep.Vector{}, x.used)
			require.Zero(t, x.jobs)
		}
		require.Equal(t, lockstep.Vector{}, q.demand)
		require.Equal(t, lockstep.Vector{}, q.held)
	})
}
