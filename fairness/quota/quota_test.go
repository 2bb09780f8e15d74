package quota

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func gang(id lockstep.JobID, tenant lockstep.TenantID, members, gpus int) *lockstep.Gang {
	return &lockstep.Gang{ID: id, Tenant: tenant, Roles: []lockstep.Role{{Min: members, Max: 2 * members, Demand: lockstep.Demand{GPUs: gpus}}}}
}

func gpus(n int64) lockstep.Resources { return lockstep.Resources{lockstep.ResourceGPU: 1000 * n} }

func build(t *testing.T, cfg Config) *Quota {
	q, err := New(cfg)
	require.NoError(t, err)
	return q
}

func TestNominalAddsUpByLargestRemainder(t *testing.T) {
	for name, c := range map[string]struct { // order does not matter: each is on its own
		capacity int64
		tenants  []Tenant
		want     map[lockstep.TenantID]int64
	}{
		"even":             {9, []Tenant{{"a", 1}, {"b", 1}, {"c", 1}}, map[lockstep.TenantID]int64{"a": 3, "b": 3, "c": 3}},
		"rest by ID":       {10, []Tenant{{"c", 1}, {"b", 1}, {"a", 1}}, map[lockstep.TenantID]int64{"a": 4, "b": 3, "c": 3}},
		"rest by size":     {10, []Tenant{{"a", 33}, {"b", 33}, {"c", 34}}, map[lockstep.TenantID]int64{"a": 3, "b": 3, "c": 4}},
		"less than one":    {1, []Tenant{{"a", 1}, {"b", MaxWeight}}, map[lockstep.TenantID]int64{"b": 1}},
		"weight zero":      {7, []Tenant{{"a", 0}, {"b", 2}}, map[lockstep.TenantID]int64{"b": 7}},
		"all weights zero": {7, []Tenant{{"a", 0}, {"b", 0}}, nil},
		"no capacity":      {0, []Tenant{{"a", 1}}, nil},
		"all there is":     {MaxAmount, []Tenant{{"a", 1}, {"", 1}}, map[lockstep.TenantID]int64{"": 1 << 60, "a": 1<<60 - 1}},
	} {
		t.Run(name, func(t *testing.T) {
			q := build(t, Config{Capacity: lockstep.Resources{lockstep.ResourceGPU: c.capacity}, Tenants: c.tenants})
			for _, tenant := range c.tenants {
				u, ok := q.Usage(tenant.ID)
				require.True(t, ok)
				require.Equal(t, c.want[tenant.ID], u.Nominal[lockstep.ResourceGPU], "%s", tenant.ID)
			}
		})
	}
}

func TestBorrowingUsesWhatOthersLeave(t *testing.T) {
	tenants := []Tenant{{"a", 3}, {"b", 1}, {"guest", 0}}
	for _, c := range []struct {
		static bool
		used   map[lockstep.TenantID]int // GPUs charged before
		tenant lockstep.TenantID
		ask    int
		want   lockstep.Verdict
	}{
		{false, nil, "b", 8, lockstep.Verdict{Feasible: true, Fit: 8, Want: 8}},
		{true, nil, "b", 8, lockstep.Verdict{Reason: lockstep.ReasonQuota, Fit: 2, Want: 8, Resource: "gpu", Requested: 8000, Available: 2000, Level: LevelQueue, Domain: "b"}},
		{true, nil, "b", 2, lockstep.Verdict{Feasible: true, Fit: 2, Want: 2}},
		{false, map[lockstep.TenantID]int{"a": 3}, "b", 6, lockstep.Verdict{Reason: lockstep.ReasonQuota, Fit: 5, Want: 6, Resource: "gpu", Requested: 6000, Available: 5000}},
		// b borrowed everything: a is still within its own, and guest is not.
		{false, map[lockstep.TenantID]int{"b": 8}, "a", 6, lockstep.Verdict{Feasible: true, Fit: 6, Want: 6}},
		{false, map[lockstep.TenantID]int{"b": 8}, "a", 7, lockstep.Verdict{Reason: lockstep.ReasonQuota, Fit: 6, Want: 7, Resource: "gpu", Requested: 7000, Available: 6000, Level: LevelQueue, Domain: "a"}},
		{false, map[lockstep.TenantID]int{"b": 8}, "guest", 1, lockstep.Verdict{Reason: lockstep.ReasonQuota, Want: 1, Resource: "gpu", Requested: 1000}},
		{false, map[lockstep.TenantID]int{"b": 8, "a": 6}, "b", 1, lockstep.Verdict{Reason: lockstep.ReasonQuota, Want: 1, Resource: "gpu", Requested: 1000}},
		{false, nil, "guest", 8, lockstep.Verdict{Feasible: true, Fit: 8, Want: 8}},
		{true, nil, "guest", 1, lockstep.Verdict{Reason: lockstep.ReasonQuota, Want: 1, Resource: "gpu", Requested: 1000, Level: LevelQueue, Domain: "guest"}},
		{false, nil, "stranger", 1, lockstep.Verdict{Reason: lockstep.ReasonQuota, Want: 1}},
		{false, nil, "a", 0, lockstep.Verdict{Feasible: true}},
	} {
		q := build(t, Config{Capacity: gpus(8), Tenants: tenants, DisableBorrowing: c.static})
		for _, id := range []lockstep.TenantID{"a", "b"} {
			require.NoError(t, q.Charge(gang("by-"+lockstep.JobID(id), id, c.used[id], 1), nil))
		}
		require.Equal(t, c.want, q.Check(gang("j", c.tenant, 1, 1), []int{c.ask}), "%+v", c)
	}
}

func TestVectorsAndRoles(t *testing.T) {
	q := build(t, Config{
		Capacity: lockstep.Resources{"gpu": 16000, "gpu/h100": 4000, "cpu": 100_000, "slots": 6, "licence": 5},
		Tenants:  []Tenant{{"a", 1}},
	})
	g := &lockstep.Gang{ID: "j", Tenant: "a", Roles: []lockstep.Role{
		{Name: "launcher", Min: 1, Demand: lockstep.Demand{CPU: 4000}},
		{Name: "worker", Min: 2, Max: 8, Demand: lockstep.Demand{GPUs: 2, Share: 500, Classes: []lockstep.DeviceClass{"h100"}, CPU: 8000, Memory: 1 << 40, RDMA: 1}},
	}}
	require.Equal(t, lockstep.Verdict{Feasible: true, Fit: 3, Want: 3}, q.Check(g, nil))
	require.Equal(t, lockstep.Verdict{Feasible: true, Fit: 5, Want: 5}, q.Check(g, []int{1, 4}))
	// Five workers take 5 h100: four fit. Seven are too many slots as well, but gpu/h100 comes first by name.
	require.Equal(t, lockstep.Verdict{Reason: lockstep.ReasonQuota, Fit: 5, Want: 8, Resource: "gpu/h100", Requested: 7000, Available: 4000}, q.Check(g, []int{1, 7}))
	require.Equal(t, lockstep.ReasonUnsupported, q.Check(g, []int{1}).Reason)
	require.Equal(t, lockstep.ReasonUnsupported, q.Check(g, []int{1, -1}).Reason)
	require.ErrorIs(t, q.Charge(g, []int{1}), lockstep.ErrInvalid)

	require.NoError(t, q.Charge(g, []int{1, 3}))
	u, _ := q.Usage("a")
	require.Equal(t, lockstep.Resources{"gpu": 3000, "gpu/h100": 3000, "cpu": 28_000, "slots": 4}, u.Used)
	require.Equal(t, 1, u.Jobs)
	require.ErrorIs(t, q.Charge(g, nil), lockstep.ErrDuplicate)
	require.ErrorIs(t, q.Remove("a"), lockstep.ErrConflict)
	require.NoError(t, q.Refund("j"))
	require.ErrorIs(t, q.Refund("j"), lockstep.ErrUnknown)
	u, _ = q.Usage("a")
	require.Empty(t, u.Used)
	require.NoError(t, q.Remove("a"))
	require.ErrorIs(t, q.Remove("a"), lockstep.ErrUnknown)
	_, ok := q.Usage("a")
	require.False(t, ok)
	require.ErrorIs(t, q.Charge(g, nil), lockstep.ErrUnknown)
}

func TestBadConfig(t *testing.T) {
	many := lockstep.Resources{}
	for i := range lockstep.VectorWidth + 1 {
		many[lockstep.ResourceName(fmt.Sprint("r", i))] = 1
	}
	for name, c := range map[string]struct { // order does not matter: each is on its own
		cfg  Config
		kind error
	}{
		"capacity negative":  {Config{Capacity: lockstep.Resources{"gpu": -1}}, lockstep.ErrInvalid},
		"no name":            {Config{Capacity: lockstep.Resources{"": 1}}, lockstep.ErrInvalid},
		"too many resources": {Config{Capacity: many}, lockstep.ErrInvalid},
		"weight negative":    {Config{Tenants: []Tenant{{"a", -1}}}, lockstep.ErrInvalid},
		"weight too large":   {Config{Tenants: []Tenant{{"a", math.MaxInt64}}}, lockstep.ErrInvalid},
		"tenant twice":       {Config{Tenants: []Tenant{{"a", 1}, {"a", 1}}}, lockstep.ErrDuplicate},
		"tenant malformed":   {Config{Tenants: []Tenant{{"a b", 1}}}, lockstep.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorIs(t, c.cfg.Validate(), c.kind) })
	}
	err := Config{Capacity: lockstep.Resources{"gpu": -1}, Tenants: []Tenant{{"a", -1}, {"a", 1}}}.Validate()
	require.ErrorContains(t, err, "Capacity.gpu")
	require.ErrorContains(t, err, "Tenants[0].Weight")
	require.ErrorContains(t, err, "Tenants[1].ID")
	many["r0"] = -1
	err = Config{Capacity: many, Tenants: []Tenant{{"a b", -1}}}.Validate()
	require.ErrorContains(t, err, "names = 17")
	require.ErrorContains(t, err, `Tenants[0].ID = "a b"`)
	require.ErrorContains(t, err, "Tenants[0].Weight = -1")
	err = Config{Capacity: lockstep.Resources{"gpu": -1, "cpu": -2}}.Validate()
	require.ErrorContains(t, err, "Capacity.gpu = -1")
	require.ErrorContains(t, err, "Capacity.cpu = -2")

	q := build(t, Config{})
	require.True(t, build(t, Config{Tenants: []Tenant{{"a", 0}}}).Check(gang("j", "a", 1000, 8), nil).Feasible, "nothing is limited")
	require.ErrorIs(t, q.SetTenant(Tenant{"a", -1}), lockstep.ErrInvalid)
	require.ErrorIs(t, q.SetTenant(Tenant{lockstep.TenantID(strings.Repeat("x", 1000)), 1}), lockstep.ErrInvalid)
	require.ErrorIs(t, q.SetCapacity(gpus(1)), lockstep.ErrUnknown)
}

// TestWhatCheckAllowsIsCharged holds at the end of the range too, where a gang that
// asks for more than int64 holds reads as asking for that.
func TestWhatCheckAllowsIsCharged(t *testing.T) {
	for _, share := range []int64{math.MaxInt64, MaxAmount / 64, 1 << 40} {
		q := build(t, Config{Capacity: lockstep.Resources{"memory": MaxAmount}, Tenants: []Tenant{{"a", 1}}})
		for i := range 4 {
			g := gang(lockstep.JobID(fmt.Sprint("j", i)), "a", 64, 1)
			g.Roles[0].Demand.Memory = lockstep.Bytes(share)
			v := q.Check(g, nil)
			require.Equal(t, share < math.MaxInt64 && (i == 0 || share == 1<<40), v.Feasible, "%d of %d", i, share)
			if v.Feasible {
				require.NoError(t, q.Charge(g, nil))
			} else {
				require.Less(t, v.Fit, v.Want)
			}
		}
	}
}

// TestAgainstPlainSums compares with sums over all charges, made anew each time,
// under random tenants, weights, capacities and jobs.
func TestAgainstPlainSums(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 5))
		cfg := Config{Capacity: lockstep.Resources{"gpu": 64_000, "slots": 50}, DisableBorrowing: seed%3 == 0}
		q := build(t, cfg)
		weights := map[lockstep.TenantID]int64{}
		charged := map[lockstep.JobID]*lockstep.Gang{}
		capacity := map[lockstep.ResourceName]int64{"gpu": 64_000, "slots": 50}
		for range 150 {
			id := lockstep.TenantID(fmt.Sprint("t", r.IntN(5)))
			g := gang(lockstep.JobID(fmt.Sprint("j", r.IntN(20))), id, r.IntN(12), r.IntN(5))
			_, known := weights[id]
			switch r.IntN(8) {
			case 0:
				w := int64(r.IntN(6))
				require.NoError(t, q.SetTenant(Tenant{id, w}))
				weights[id] = w
			case 1:
				capacity = map[lockstep.ResourceName]int64{"gpu": r.Int64N(100_000), "slots": r.Int64N(100)}
				require.NoError(t, q.SetCapacity(lockstep.Resources{"gpu": capacity["gpu"], "slots": capacity["slots"]}))
			case 2:
				busy := false
				for _, c := range charged { // order does not matter: any will do
					busy = busy || c.Tenant == id
				}
				require.Equal(t, known && !busy, q.Remove(id) == nil)
				if known && !busy {
					delete(weights, id)
				}
			case 3, 4:
				_, ok := charged[g.ID]
				require.Equal(t, ok, q.Refund(g.ID) == nil)
				delete(charged, g.ID)
			default:
				v := q.Check(g, nil)
				require.Equal(t, known && allowed(weights, charged, capacity, cfg, g), v.Feasible, "seed %d: %v", seed, v)
				// Fit is the most members that would be allowed.
				for n := range g.Roles[0].Min + 1 {
					require.Equal(t, known && n <= v.Fit || known && v.Feasible, q.Check(g, []int{n}).Feasible && known, "seed %d", seed)
				}
				if _, ok := charged[g.ID]; ok || !known {
					require.Error(t, q.Charge(g, nil))
				} else if v.Feasible || r.IntN(4) == 0 { // some run above quota
					require.NoError(t, q.Charge(g, nil))
					charged[g.ID] = g
				}
			}
			sum := map[lockstep.ResourceName]int64{}
			for id := range weights { // order does not matter: a sum
				u, _ := q.Usage(id)
				sum["gpu"] += u.Nominal["gpu"]
				sum["slots"] += u.Nominal["slots"]
			}
			if total(weights) > 0 {
				require.Equal(t, capacity["gpu"], sum["gpu"])
				require.Equal(t, capacity["slots"], sum["slots"])
			}
		}
	}
}

func total(weights map[lockstep.TenantID]int64) (sum int64) {
	for _, w := range weights { // order does not matter: a sum
		sum += w
	}
	return sum
}

func allowed(weights map[lockstep.TenantID]int64, charged map[lockstep.JobID]*lockstep.Gang, capacity map[lockstep.ResourceName]int64, cfg Config, g *lockstep.Gang) bool {
	for _, name := range []lockstep.ResourceName{"gpu", "slots"} {
		of := func(g *lockstep.Gang) int64 {
			if name == "gpu" {
				return int64(g.GPUs(nil))
			}
			return int64(g.MinMembers())
		}
		var own, all int64
		for _, c := range charged { // order does not matter: a sum
			all += of(c)
			if c.Tenant == g.Tenant {
				own += of(c)
			}
		}
		nominal := nominalOf(weights, capacity[name], g.Tenant)
		if of(g) == 0 || of(g) <= nominal-own || !cfg.DisableBorrowing && of(g) <= capacity[name]-all {
			continue
		}
		return false
	}
	return true
}

// nominalOf hands out the units one at a time, each to the tenant whose exact
// part is furthest above what it has, which is what largest remainder comes to.
func nominalOf(weights map[lockstep.TenantID]int64, capacity int64, tenant lockstep.TenantID) int64 {
	sum := total(weights)
	if sum == 0 {
		return 0
	}
	floor := func(w int64) (int64, *big.Rat) {
		exact := new(big.Rat).SetFrac(new(big.Int).Mul(big.NewInt(capacity), big.NewInt(w)), big.NewInt(sum))
		f := new(big.Int).Quo(exact.Num(), exact.Denom())
		return f.Int64(), exact.Sub(exact, new(big.Rat).SetInt(f))
	}
	left := capacity
	for _, w := range weights { // order does not matter: a sum
		f, _ := floor(w)
		left -= f
	}
	mine, rest := floor(weights[tenant])
	ahead := int64(0)
	for id, w := range weights { // order does not matter: a count
		_, r := floor(w)
		if c := r.Cmp(rest); c > 0 || c == 0 && id < tenant {
			ahead++
		}
	}
	if ahead < left {
		mine++
	}
	return mine
}
