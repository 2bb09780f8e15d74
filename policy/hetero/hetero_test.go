package hetero

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func ratesOf(classes []Class, perSecond ...float64) []Rate {
	var r []Rate
	for c, v := range perSecond {
		if v >= 0 {
			r = append(r, Rate{Class: classes[c].ID, PerSecond: v})
		}
	}
	return r
}

// fastSlow is four jobs on one fast and one slow device, which can be solved by hand: every job at 12/11 of its equal split.
func fastSlow() Problem {
	classes := []Class{{ID: "fast", Devices: 1}, {ID: "slow", Devices: 1}}
	p := Problem{Classes: classes}
	for _, id := range []GroupID{"a", "b"} {
		p.Groups = append(p.Groups, Group{ID: id, Rates: ratesOf(classes, 4, 1)})
	}
	for _, id := range []GroupID{"c", "d"} {
		p.Groups = append(p.Groups, Group{ID: id, Rates: ratesOf(classes, 2, 1)})
	}
	return p
}

func TestFastAndSlowByHand(t *testing.T) {
	for name, policy := range map[string]func(Problem) (*Allocation, error){"max-min": MaxMin, "water-fill": WaterFill} { // each stands alone
		p := fastSlow()
		a, err := policy(p)
		require.NoError(t, err, name)
		require.InDelta(t, 12./11, a.Objective, 1e-12)
		for g, x := range [][]float64{{15. / 44, 0}, {15. / 44, 0}, {7. / 44, 0.5}, {7. / 44, 0.5}} {
			require.InDelta(t, 12./11, a.Normal[g], 1e-9)
			require.InDeltaSlice(t, x, a.Fluid[g], 1e-9)
		}
		require.InDelta(t, 1.25*12/11, a.Rates[0], 1e-9)
		require.InDelta(t, 0.75*12/11, a.Rates[2], 1e-9)
		require.Equal(t, [][]Parts{{340909, 0}, {340909, 0}, {159091, 500000}, {159091, 500000}}, a.Shares)
		require.NoError(t, Check(p, a.Shares))
	}
}

// random makes a problem. Groups have whole counts so that it can be taken apart.
func random(rng *rand.Rand, groups, classes int) Problem {
	var p Problem
	for c := range classes {
		p.Classes = append(p.Classes, Class{ID: lockstep.DeviceClass(fmt.Sprint("c", c)), Devices: rng.IntN(9), Price: 0.5 + rng.Float64()*4})
	}
	p.Classes[0].Devices += 4
	for g := range groups {
		group := Group{ID: GroupID(fmt.Sprint("g", g)), Count: 1 + rng.IntN(4), GPUs: 1 << rng.IntN(3), Weight: int64(rng.IntN(4)), Remaining: float64(rng.IntN(5)) * 1000 * rng.Float64(), Elapsed: time.Duration(rng.IntN(4000)) * time.Second}
		group.IsolatedElapsed = time.Duration(rng.Float64() * float64(group.Elapsed))
		base := math.Exp(3 * rng.Float64())
		for c := range p.Classes {
			switch rng.IntN(6) {
			case 0: // not there
			case 1:
				group.Rates = append(group.Rates, Rate{Class: p.Classes[c].ID, Source: Unknown})
			default:
				group.Rates = append(group.Rates, Rate{Class: p.Classes[c].ID, PerSecond: base * (1 + 4*rng.Float64())})
			}
		}
		p.Groups = append(p.Groups, group)
	}
	return p
}

func rounds(full, short int) int {
	if testing.Short() {
		return short
	}
	return full
}

// bound is the most that the weighted sum of rates over units can be, by prices of classes: no linear programme is
// solved for it, and any prices at all give a true bound.
func bound(p *Problem, groupPrice, classPrice, unit []float64) float64 {
	sum := 0.0
	for c := range p.Classes {
		sum += classPrice[c] * float64(p.Classes[c].Devices)
	}
	for g := range p.Groups {
		if unit[g] == 0 {
			continue
		}
		best := 0.0
		for _, r := range p.Groups[g].Rates {
			for c := range p.Classes {
				if p.Classes[c].ID == r.Class && p.Classes[c].Devices >= p.Groups[g].gpus() {
					best = max(best, groupPrice[g]*r.PerSecond/unit[g]-classPrice[c]*float64(p.Groups[g].count()*p.Groups[g].gpus()))
				}
			}
		}
		sum += best
	}
	return sum
}

// equalRate is the rate on the equal split, worked out from its definition.
func equalRate(p *Problem, g int) float64 {
	weights := 0.0
	for i := range p.Groups {
		weights += float64(p.Groups[i].count()) * float64(p.Groups[i].weight())
	}
	group := &p.Groups[g]
	time, rate := 0.0, 0.0
	for _, c := range p.Classes {
		share := float64(c.Devices) * float64(group.weight()) / weights / float64(group.gpus())
		time += share
		for _, r := range group.Rates {
			if r.Class == c.ID && c.Devices >= group.gpus() {
				rate += share * r.PerSecond
			}
		}
	}
	return rate / max(time, 1)
}

func checkShares(t *testing.T, p Problem, a *Allocation) {
	t.Helper()
	require.NoError(t, Check(p, a.Shares))
	blocked := map[GroupID]bool{}
	for _, b := range a.Blocked {
		blocked[b.Group] = true
	}
	for g := range p.Groups {
		sum := 0.0
		for c, x := range a.Fluid[g] {
			require.GreaterOrEqual(t, x, 0.0)
			require.InDelta(t, x, float64(a.Shares[g][c])/1e6, 1.001e-6)
			sum += x
		}
		require.LessOrEqual(t, sum, 1+1e-8)
		if blocked[p.Groups[g].ID] {
			require.Zero(t, sum)
		}
	}
	for c := range p.Classes {
		used := 0.0
		for g := range p.Groups {
			used += a.Fluid[g][c] * float64(p.Groups[g].count()*p.Groups[g].gpus())
		}
		require.LessOrEqual(t, used, float64(p.Classes[c].Devices)*(1+1e-8)+1e-8)
	}
}

// The optimum is proved by its prices alone; nobody is below the equal split.
func TestMaxMinIsProvedByItsPrices(t *testing.T) {
	for seed := range rounds(300, 40) {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		p := random(rng, 1+rng.IntN(12), 1+rng.IntN(4))
		a, err := MaxMin(p)
		require.NoError(t, err)
		checkShares(t, p, a)
		unit := make([]float64, len(p.Groups))
		least, weight := math.Inf(1), 0.0
		for g := range unit {
			unit[g] = equalRate(&p, g)
			if unit[g] > 0 {
				require.InEpsilon(t, a.Rates[g]/unit[g], a.Normal[g], 1e-9)
				require.GreaterOrEqual(t, a.Normal[g], 1-1e-8, "seed %d: sharing incentive", seed)
				least = min(least, a.Normal[g])
			}
			require.GreaterOrEqual(t, a.GroupPrice[g], 0.0)
			weight += a.GroupPrice[g]
		}
		if math.IsInf(least, 1) {
			require.Zero(t, a.Objective)
			continue
		}
		require.InDelta(t, 1, weight, 1e-9)
		require.InEpsilon(t, least, a.Objective, 1e-8)
		require.LessOrEqual(t, bound(&p, a.GroupPrice, a.ClassPrice, unit), a.Objective*(1+1e-8), "seed %d", seed)
	}
}

func TestMakespanAndFinishTimeAreProvedByTheirPrices(t *testing.T) {
	solves := 0
	for seed := range rounds(300, 40) {
		rng := rand.New(rand.NewPCG(uint64(seed), 2))
		p := random(rng, 1+rng.IntN(12), 1+rng.IntN(4))
		makespan, err := Makespan(p)
		require.NoError(t, err)
		checkShares(t, p, makespan)
		finish, err := FinishTime(p)
		require.NoError(t, err)
		checkShares(t, p, finish)
		units, needs := make([]float64, len(p.Groups)), make([]float64, len(p.Groups))
		longest, worst, weight := 0.0, 0.0, 0.0
		for g := range p.Groups {
			group := &p.Groups[g]
			equal := equalRate(&p, g)
			if group.Remaining == 0 || equal == 0 {
				continue
			}
			alone := group.IsolatedElapsed.Seconds() + group.Remaining/equal
			worst = max(worst, (group.Elapsed.Seconds()+group.Remaining/finish.Rates[g])/alone)
			longest = max(longest, group.Remaining/makespan.Rates[g])
			units[g] = group.Remaining
			// A rho one part in a million better would need these rates.
			needs[g] = group.Remaining / (finish.Objective*(1-1e-6)*alone - group.Elapsed.Seconds())
			weight += finish.GroupPrice[g]
		}
		if longest == 0 {
			require.Zero(t, makespan.Objective)
			require.Zero(t, finish.Objective)
			continue
		}
		require.InEpsilon(t, longest, makespan.Objective, 1e-8)
		require.LessOrEqual(t, bound(&p, makespan.GroupPrice, makespan.ClassPrice, units), 1/makespan.Objective*(1+1e-8))
		require.InEpsilon(t, worst, finish.Objective, 1e-8)
		solves += finish.Solves
		require.LessOrEqual(t, finish.Solves, 20)
		require.InDelta(t, 1, weight, 1e-6)
		impossible := false
		for g, need := range needs {
			impossible = impossible || units[g] > 0 && (need <= 0 || need > bestRate(&p, g)*(1-1e-9))
		}
		if !impossible { // weights of needs rather than of rates
			weights, sum := make([]float64, len(needs)), 0.0
			for g, y := range finish.GroupPrice {
				if units[g] > 0 {
					weights[g] = y
					sum += y
				}
			}
			require.Less(t, bound(&p, weights, finish.ClassPrice, needs), sum, "seed %d", seed)
		}
	}
	t.Log(float64(solves)/float64(rounds(300, 40)), "programmes for a finish time")
}

func bestRate(p *Problem, g int) float64 {
	best := 0.0
	for _, r := range p.Groups[g].Rates {
		for _, c := range p.Classes {
			if c.ID == r.Class && c.Devices >= p.Groups[g].gpus() {
				best = max(best, r.PerSecond)
			}
		}
	}
	return best
}

// No job can get more unless one that has as little or less gets less: for each group, the most it can have while all
// that are not above it keep what they have is what it has.
func TestWaterFillLeavesNothing(t *testing.T) {
	for seed := range rounds(60, 8) {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		p := random(rng, 1+rng.IntN(8), 1+rng.IntN(3))
		a, err := WaterFill(p)
		require.NoError(t, err)
		checkShares(t, p, a)
		plain, err := MaxMin(p)
		require.NoError(t, err)
		require.InDelta(t, plain.Objective, a.Objective, 1e-7)
		m, err := newModel(&p)
		require.NoError(t, err)
		for k := range m.groups {
			g := m.members[k][0]
			if m.equal[k] == 0 {
				continue
			}
			held, unit := make([]float64, len(m.groups)), make([]float64, len(m.groups))
			for o := range m.groups {
				og := m.members[o][0]
				if m.equal[o] > 0 && (o == k || a.Normal[og] <= a.Normal[g]*(1+1e-6)) {
					unit[o], held[o] = m.equal[o], a.Normal[og]*(1-1e-9)
				}
			}
			held[k] = 0
			l, err := m.maxMin("test", unit, held)
			require.NoError(t, err)
			require.InDelta(t, l.t, a.Normal[g], 1e-5*l.t, "seed %d group %s", seed, p.Groups[g].ID)
		}
	}
}

// Grouping identical jobs gives each what it would get alone in a group.
func TestGroupsAreTheirJobs(t *testing.T) {
	for seed := range rounds(80, 10) {
		rng := rand.New(rand.NewPCG(uint64(seed), 4))
		p := random(rng, 1+rng.IntN(6), 1+rng.IntN(3))
		apart := Problem{Classes: p.Classes}
		for _, g := range p.Groups {
			for i := range g.Count {
				one := g
				one.ID, one.Count = GroupID(fmt.Sprint(g.ID, "-", i)), 1
				apart.Groups = append(apart.Groups, one)
			}
		}
		for name, policy := range map[string]func(Problem) (*Allocation, error){"max-min": MaxMin, "makespan": Makespan, "finish": FinishTime, "cost": MinCost, "fast": EqualSplit} { // each stands alone
			a, err := policy(p)
			require.NoError(t, err)
			b, err := policy(apart)
			require.NoError(t, err)
			require.InDelta(t, a.Objective, b.Objective, 1e-7*(1+a.Objective), "%s, seed %d", name, seed)
		}
		a, err := WaterFill(p)
		require.NoError(t, err)
		b, err := WaterFill(apart)
		require.NoError(t, err)
		at := 0
		for g := range p.Groups {
			for range p.Groups[g].Count {
				require.InDelta(t, a.Normal[g], b.Normal[at], 1e-6*(1+a.Normal[g]), "seed %d", seed)
				at++
			}
		}
	}
}

func TestOrderOfInputDecidesNothing(t *testing.T) {
	for seed := range rounds(60, 10) {
		rng := rand.New(rand.NewPCG(uint64(seed), 5))
		p := random(rng, 2+rng.IntN(8), 3)
		q := Problem{Classes: make([]Class, len(p.Classes)), Groups: make([]Group, len(p.Groups))}
		cs, gs := rng.Perm(len(p.Classes)), rng.Perm(len(p.Groups))
		for i, at := range cs {
			q.Classes[at] = p.Classes[i]
		}
		for i, at := range gs {
			q.Groups[at] = p.Groups[i]
			q.Groups[at].Rates = append([]Rate(nil), p.Groups[i].Rates...)
			rng.Shuffle(len(q.Groups[at].Rates), func(a, b int) {
				r := q.Groups[at].Rates
				r[a], r[b] = r[b], r[a]
			})
		}
		for name, policy := range map[string]func(Problem) (*Allocation, error){"max-min": MaxMin, "water": WaterFill, "makespan": Makespan, "finish": FinishTime, "cost": MinCost, "per cost": PerCost, "fast": EqualSplit} { // each stands alone
			a, err := policy(p)
			if err != nil {
				continue
			}
			b, err := policy(q)
			require.NoError(t, err)
			require.Equal(t, a.Objective, b.Objective, name) // to the bit
			for i, g := range gs {
				for j, c := range cs {
					require.Equal(t, a.Shares[i][j], b.Shares[g][c], "%s, seed %d", name, seed)
				}
			}
		}
	}
}

func TestCostByHand(t *testing.T) {
	classes := []Class{{ID: "big", Devices: 4, Price: 3}, {ID: "small", Devices: 2, Price: 1}}
	p := Problem{Classes: classes, Groups: []Group{
		{ID: "a", Rates: ratesOf(classes, 10, 4), Remaining: 36000, Deadline: 2 * time.Hour}, // 5 a second
		{ID: "b", Rates: ratesOf(classes, 8, 1), Remaining: 3600, Deadline: time.Hour},       // 1 a second
		{ID: "c", Rates: ratesOf(classes, 8, 1)},
	}}
	a, err := MinCost(p)
	require.NoError(t, err)
	require.True(t, a.Feasible)
	// A step of a costs 0.3 on big and 0.25 on small, of b 0.375 and 1. A alone cannot be done on small: all of its time, x of it
	// on big: 10x + 4(1-x) = 5, so x = 1/6.
	require.InDelta(t, 3./6+5./6+0.375, a.Objective, 1e-9)
	require.InDeltaSlice(t, []float64{1. / 6, 5. / 6}, a.Fluid[0], 1e-9)
	require.InDeltaSlice(t, []float64{1. / 8, 0}, a.Fluid[1], 1e-9)
	require.Equal(t, []Parts{0, 0}, a.Shares[2])
	require.InDelta(t, 0.375, a.GroupPrice[1], 1e-9) // a step of b, on big
	require.InDelta(t, 2./6, a.GroupPrice[0], 1e-9)  // a step of a: six steps for two more
	require.Equal(t, []float64{0, 0}, a.ClassPrice)  // there are enough of both
	require.Equal(t, 1, a.Solves)
	p.Groups[0].Deadline = 40 * time.Minute // 15 a second is more than 10
	a, err = MinCost(p)
	require.NoError(t, err)
	require.False(t, a.Feasible)
	require.Equal(t, []GroupID{"a"}, a.Short)
	p.Groups[0].Deadline, p.Classes[0].Devices, p.Groups[0].Count = time.Hour, 1, 2 // each of a needs all of one big device
	a, err = MinCost(p)
	require.NoError(t, err)
	require.False(t, a.Feasible)
	require.Contains(t, a.Short, GroupID("a"))

	classes[0].Devices = 4
	best, err := PerCost(Problem{Classes: classes, Groups: []Group{{ID: "a", Rates: ratesOf(classes, 10, 4)}, {ID: "b", Rates: ratesOf(classes, 8, 1)}}})
	require.NoError(t, err)
	// Equal splits are cut to the whole of a job's time: 2/3 on big. Normal per money: a 10/8/3 on big, 4/8 on small; b 8/(17/3)/3 and less.
	require.InDelta(t, 0.5, best.Objective, 1e-9)
	require.Equal(t, [][]Parts{{0, Whole}, {0, 0}}, best.Shares)
}

// PerCost is not beaten by any mix that is tried, and meets deadlines.
func TestPerCostIsTheBestQuotient(t *testing.T) {
	for seed := range rounds(60, 10) {
		rng := rand.New(rand.NewPCG(uint64(seed), 6))
		p := random(rng, 1+rng.IntN(6), 1+rng.IntN(3))
		for g := range p.Groups {
			if rng.IntN(3) == 0 && p.Groups[g].Remaining > 0 {
				p.Groups[g].Deadline = time.Duration(200+rng.IntN(5000)) * time.Second
			}
		}
		a, err := PerCost(p)
		require.NoError(t, err)
		if !a.Feasible {
			cheap, err := MinCost(p)
			require.NoError(t, err)
			require.False(t, cheap.Feasible)
			continue
		}
		checkShares(t, p, a)
		m, err := newModel(&p)
		require.NoError(t, err)
		quotient := func(normal []float64, x [][]float64) float64 {
			work, cost := 0.0, 0.0
			for k := range m.groups {
				g := m.members[k][0]
				work += normal[g] * float64(m.group(k).Count)
				for c, at := range m.classes {
					cost += x[g][at] * m.price(k, c)
				}
			}
			return work / cost
		}
		if a.Objective > 0 {
			require.InEpsilon(t, a.Objective, quotient(a.Normal, a.Fluid), 1e-7)
		}
		for g := range p.Groups {
			if p.Groups[g].Deadline > 0 && p.Groups[g].Remaining > 0 {
				require.GreaterOrEqual(t, a.Rates[g]*(1+1e-7), p.Groups[g].Remaining/p.Groups[g].Deadline.Seconds())
			}
		}
		if cheap, err := MinCost(p); err == nil && cheap.Feasible && cheap.Objective > 0 {
			require.LessOrEqual(t, quotient(cheap.Normal, cheap.Fluid), a.Objective*(1+1e-7))
		}
	}
}

// The fast path is feasible, gives everybody the equal split, and is not better than the best.
func TestEqualSplitIsASoundFastPath(t *testing.T) {
	for seed := range rounds(200, 30) {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		p := random(rng, 1+rng.IntN(12), 1+rng.IntN(4))
		a, err := EqualSplit(p)
		require.NoError(t, err)
		checkShares(t, p, a)
		best, err := MaxMin(p)
		require.NoError(t, err)
		require.LessOrEqual(t, a.Objective, best.Objective*(1+1e-8))
		if best.Objective > 0 {
			require.GreaterOrEqual(t, a.Objective, 1-1e-9)
		}
	}
}

func TestWhoGetsNothingIsToldWhy(t *testing.T) {
	classes := []Class{{ID: "a", Devices: 4}, {ID: "b", Devices: 0}, {ID: "c", Devices: 2}}
	p := Problem{Classes: classes, Groups: []Group{
		{ID: "fits", Rates: ratesOf(classes, 1, 1, 1), Remaining: 1},
		{ID: "large", GPUs: 8, Rates: ratesOf(classes, 1, 1, 1), Remaining: 1},
		{ID: "nowhere", Rates: []Rate{{Class: "a", Source: Unknown}}, Remaining: 1},
		{ID: "gone", Rates: ratesOf(classes, -1, 5), Remaining: 1},
		{ID: "done", Rates: ratesOf(classes, 1)},
	}}
	for _, policy := range []func(Problem) (*Allocation, error){MaxMin, WaterFill, MinCost, EqualSplit} {
		a, err := policy(p)
		require.NoError(t, err)
		require.Equal(t, []Blocked{{"gone", TooLarge}, {"large", TooLarge}, {"nowhere", NoRate}}, a.Blocked)
	}
	for _, policy := range []func(Problem) (*Allocation, error){Makespan, FinishTime} {
		a, err := policy(p)
		require.NoError(t, err)
		require.Equal(t, []Blocked{{"done", NothingLeft}, {"gone", TooLarge}, {"large", TooLarge}, {"nowhere", NoRate}}, a.Blocked)
		require.Equal(t, Whole, a.Shares[0][0]+a.Shares[0][2])
	}
	for _, r := range []Reason{NoRate, TooLarge, NothingLeft} {
		require.NotContains(t, r.String(), "Reason(")
	}
	require.Equal(t, "Reason(9)", Reason(9).String())
}

func TestNothingToShare(t *testing.T) {
	classes := []Class{{ID: "a", Devices: 1, Price: 1}}
	for _, p := range []Problem{{}, {Classes: classes}, {Groups: []Group{{ID: "x"}}}, {Classes: []Class{{ID: "a", Price: 1}}, Groups: []Group{{ID: "x", Rates: []Rate{{Class: "a", PerSecond: 1}}}}}} {
		for _, policy := range []func(Problem) (*Allocation, error){MaxMin, WaterFill, FinishTime, Makespan, MinCost, PerCost, EqualSplit} {
			a, err := policy(p)
			require.NoError(t, err)
			require.True(t, a.Feasible)
			require.Zero(t, a.Objective)
			require.Len(t, a.Shares, len(p.Groups))
			require.NoError(t, Check(p, a.Shares))
		}
	}
}

func TestBadProblems(t *testing.T) {
	classes := []Class{{ID: "a", Devices: 1}}
	group := func(change func(*Group)) Problem {
		g := Group{ID: "g", Rates: []Rate{{Class: "a", PerSecond: 1}}}
		change(&g)
		return Problem{Classes: classes, Groups: []Group{g}}
	}
	for field, p := range map[string]Problem{ // the order does not matter: each case stands alone
		"Classes[0].ID":                {Classes: []Class{{}}},
		"Classes[0].Devices":           {Classes: []Class{{ID: "a", Devices: -1}}},
		"Classes[0].Price":             {Classes: []Class{{ID: "a", Price: math.NaN()}}},
		"Classes[1].ID":                {Classes: []Class{{ID: "a"}, {ID: "a"}}},
		"Groups[0].ID":                 group(func(g *Group) { g.ID = "" }),
		"Groups[1].ID":                 {Groups: []Group{{ID: "g"}, {ID: "g"}}},
		"Groups[0].Count":              group(func(g *Group) { g.Count = maxCount + 1 }),
		"Groups[0].GPUs":               group(func(g *Group) { g.GPUs = -1 }),
		"Groups[0].Weight":             group(func(g *Group) { g.Weight = -1 }),
		"Groups[0].Remaining":          group(func(g *Group) { g.Remaining = math.Inf(1) }),
		"Groups[0].Elapsed":            group(func(g *Group) { g.Elapsed = -1 }),
		"Groups[0].IsolatedElapsed":    group(func(g *Group) { g.IsolatedElapsed = math.MaxInt64 }),
		"Groups[0].Deadline":           group(func(g *Group) { g.Deadline = -1 }),
		"Groups[0].Rates[0].Class":     group(func(g *Group) { g.Rates[0].Class = "b" }),
		"Groups[0].Rates[1].Class":     group(func(g *Group) { g.Rates = append(g.Rates, g.Rates[0]) }),
		"Groups[0].Rates[0].PerSecond": group(func(g *Group) { g.Rates[0].PerSecond = math.NaN() }),
		"Groups[0].Rates[0].Source":    group(func(g *Group) { g.Rates[0].Source = Unknown }),
		"Groups":                       {Groups: []Group{{ID: "x", Count: maxCount, GPUs: maxCount}, {ID: "y"}}},
	} {
		for _, policy := range []func(Problem) (*Allocation, error){MaxMin, WaterFill, FinishTime, Makespan, MinCost, PerCost, EqualSplit} {
			_, err := policy(p)
			var e *lockstep.Error
			require.True(t, errors.As(err, &e), field)
			require.Contains(t, err.Error(), field)
		}
		require.Error(t, Check(p, nil))
	}
	_, err := PerCost(Problem{Classes: classes})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// A zero-count group of absurd rates, weights and counts is solved or refused, and nothing breaks.
func TestExtremeFigures(t *testing.T) {
	classes := []Class{{ID: "a", Devices: maxDevices, Price: 1e-9}, {ID: "b", Devices: 1, Price: 1e9}}
	p := Problem{Classes: classes, Groups: []Group{
		{ID: "x", Count: maxCount, GPUs: 1, Weight: maxWeight, Rates: ratesOf(classes, 1e15, 1e-12), Remaining: 1e15},
		{ID: "y", GPUs: maxCount, Rates: ratesOf(classes, 1e-12, 1), Remaining: 1e-9, Elapsed: lockstep.MaxWalltime},
	}}
	for _, policy := range []func(Problem) (*Allocation, error){MaxMin, WaterFill, FinishTime, Makespan, MinCost, PerCost, EqualSplit} {
		a, err := policy(p)
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrConflict)
			continue
		}
		require.NoError(t, Check(p, a.Shares))
	}
}

func TestCheckFindsFaults(t *testing.T) {
	p := fastSlow()
	a, err := MaxMin(p)
	require.NoError(t, err)
	for _, c := range []struct {
		spoil func(s [][]Parts) [][]Parts
		kind  error
	}{
		{func(s [][]Parts) [][]Parts { return s[1:] }, lockstep.ErrInvalid},
		{func(s [][]Parts) [][]Parts { s[0] = s[0][1:]; return s }, lockstep.ErrInvalid},
		{func(s [][]Parts) [][]Parts { s[0][0] = -1; return s }, lockstep.ErrInvalid},
		{func(s [][]Parts) [][]Parts { s[0][0] = Whole + 1; return s }, lockstep.ErrInvalid},
		{func(s [][]Parts) [][]Parts { s[0][0]++; return s }, lockstep.ErrConflict},
		{func(s [][]Parts) [][]Parts { s[2][1] = Whole; s[3][1] = 0; return s }, lockstep.ErrConflict},
	} {
		shares := make([][]Parts, len(a.Shares))
		for g := range shares {
			shares[g] = append([]Parts(nil), a.Shares[g]...)
		}
		require.ErrorIs(t, Check(p, c.spoil(shares)), c.kind)
	}
	p.Groups[0].Rates = p.Groups[0].Rates[1:]
	require.ErrorIs(t, Check(p, a.Shares), lockstep.ErrConflict)
}

// A deadline that needs next to nothing and prices that are far apart leave the programme of PerCost with a scale that has
// few digits. Whatever it answers is numbers, can be given and meets the deadlines, or it is an error.
func TestPerCostAnswersWithNumbersOrNotAtAll(t *testing.T) {
	solved := 0
	for seed := range rounds(3000, 300) {
		rng := rand.New(rand.NewPCG(uint64(seed), 5))
		figure := func() float64 { return math.Pow(10, float64(rng.IntN(30)-15)) }
		var p Problem
		for c := range 1 + rng.IntN(4) {
			p.Classes = append(p.Classes, Class{ID: lockstep.DeviceClass(rune('a' + c)), Devices: 1 + rng.IntN(20), Price: figure()})
		}
		for g := range 1 + rng.IntN(6) {
			group := Group{ID: GroupID(rune('a' + g)), Count: 1 + rng.IntN(4), Remaining: figure()}
			if rng.IntN(2) == 0 {
				group.Deadline = lockstep.MaxWalltime >> rng.IntN(20)
			}
			for _, c := range p.Classes {
				group.Rates = append(group.Rates, Rate{Class: c.ID, PerSecond: figure()})
			}
			p.Groups = append(p.Groups, group)
		}
		a, err := PerCost(p)
		if err != nil {
			require.ErrorIs(t, err, lockstep.ErrConflict)
			continue
		}
		if !a.Feasible {
			continue
		}
		solved++
		require.NoError(t, Check(p, a.Shares), "seed %d", seed)
		work, cost := 0.0, 0.0
		for g := range p.Groups {
			count := float64(p.Groups[g].Count)
			work += count * a.Normal[g]
			for c, v := range a.Fluid[g] {
				require.True(t, v >= 0 && v <= 1+1e-6, "seed %d: %v", seed, v)
				cost += v * count * p.Classes[c].Price
			}
			if d := p.Groups[g].Deadline; d > 0 {
				require.GreaterOrEqual(t, a.Rates[g]*d.Seconds(), p.Groups[g].Remaining*(1-2e-6), "seed %d", seed)
			}
		}
		require.InEpsilon(t, a.Objective, work/cost, 1e-5, "seed %d", seed)
	}
	require.Positive(t, solved)
}

// Parts of rates so small are no numbers. Such a class counts as none, and who has no other is told.
func TestRatesNearNothingAreNone(t *testing.T) {
	p := Problem{Classes: []Class{{ID: "a", Devices: 1}}, Groups: []Group{
		{ID: "x", Remaining: 1e15, Rates: []Rate{{Class: "a", PerSecond: 1e-320}}},
		{ID: "y", Remaining: 1, Rates: []Rate{{Class: "a", PerSecond: math.SmallestNonzeroFloat64}}},
	}}
	for _, policy := range []func(Problem) (*Allocation, error){MaxMin, WaterFill, FinishTime, Makespan, EqualSplit} {
		a, err := policy(p)
		require.NoError(t, err)
		require.Equal(t, []Blocked{{"x", NoRate}, {"y", NoRate}}, a.Blocked)
	}
}

// Rounding does not give a job more than its time where the solver was a hair over.
func TestQuantisedJobsStayWithinTheirTime(t *testing.T) {
	p := Problem{Classes: []Class{{ID: "a", Devices: 2}, {ID: "b", Devices: 2}}, Groups: []Group{{ID: "x", Rates: []Rate{{Class: "a", PerSecond: 1}, {Class: "b", PerSecond: 1}}}}}
	m, err := newModel(&p)
	require.NoError(t, err)
	require.NoError(t, Check(p, m.quantise([][]float64{{.5 + 1e-6, .5 + 1e-6}})))
}
