package drf

import (
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func shares(out []Allocation) (s []string) {
	for _, a := range out {
		s = append(s, a.Share.RatString())
	}
	return s
}

func tasks(out []Allocation) (s []string) {
	for _, a := range out {
		s = append(s, a.Tasks.RatString())
	}
	return s
}

// The example of Ghodsi et al., section 4: 9 processors and 18 GB, A's tasks take
// <1, 4> and B's <3, 1>: 3 of A and 2 of B, two thirds each of their dominant resource.
func TestFluidOfThePaper(t *testing.T) {
	out := Fluid(lockstep.Vector{9, 18}, []User{{Demand: lockstep.Vector{1, 4}, Weight: 1}, {Demand: lockstep.Vector{3, 1}, Weight: 1}})
	require.Equal(t, []string{"3", "2"}, tasks(out))
	require.Equal(t, []string{"2/3", "2/3"}, shares(out))
}

// 100 devices and 1000 cores; A's tasks take 4 and 32, B's 1 and 16, C's 64 cores. B's
// dominant resource is the processor, 1.6 % against 1.0 %. Processors bind: s × (32/0.04 + 16/0.016
// + 64/0.064) = 1000.
func TestFluidOfTheCorrectedExample(t *testing.T) {
	out := Fluid(lockstep.Vector{100, 1000}, corrected())
	require.Equal(t, []string{"5/14", "5/14", "5/14"}, shares(out))
	require.Equal(t, []string{"125/14", "625/28", "625/112"}, tasks(out)) // 8.929, 22.321 and 5.580
	gpus, _ := new(big.Rat).Add(new(big.Rat).Mul(out[0].Tasks, big.NewRat(4, 1)), out[1].Tasks).Float64()
	require.InDelta(t, 58.04, gpus, 0.005)
}

func corrected() []User {
	return []User{
		{Demand: lockstep.Vector{4, 32}, Weight: 1}, {Demand: lockstep.Vector{1, 16}, Weight: 1}, {Demand: lockstep.Vector{0, 64}, Weight: 1},
	}
}

func TestFluidCases(t *testing.T) {
	for name, c := range map[string]struct { // order does not matter: each is on its own
		capacity lockstep.Vector
		users    []User
		tasks    []string
	}{
		"nobody":             {lockstep.Vector{1}, nil, nil},
		"nothing":            {lockstep.Vector{}, []User{{Demand: lockstep.Vector{1}, Weight: 1}}, []string{"0"}},
		"asks for nothing":   {lockstep.Vector{1}, []User{{Weight: 1}, {Weight: 1, Tasks: 7}}, []string{"0", "7"}},
		"weights":            {lockstep.Vector{12}, []User{{lockstep.Vector{1}, 1, 0}, {lockstep.Vector{1}, 2, 0}}, []string{"4", "8"}},
		"few tasks":          {lockstep.Vector{12}, []User{{lockstep.Vector{1}, 1, 2}, {lockstep.Vector{1}, 1, 0}}, []string{"2", "10"}},
		"weight zero":        {lockstep.Vector{12}, []User{{lockstep.Vector{1}, 0, 0}, {lockstep.Vector{1}, 1, 9}, {lockstep.Vector{2}, 0, 0}}, []string{"3/2", "9", "3/4"}},
		"all weights zero":   {lockstep.Vector{12}, []User{{lockstep.Vector{1}, 0, 0}, {lockstep.Vector{1}, -3, 0}}, []string{"6", "6"}},
		"one resource gone":  {lockstep.Vector{12, 0}, []User{{lockstep.Vector{1, 1}, 1, 0}, {lockstep.Vector{1}, 1, 0}}, []string{"0", "12"}},
		"goes on elsewhere":  {lockstep.Vector{10, 10}, []User{{lockstep.Vector{1}, 1, 0}, {lockstep.Vector{1}, 1, 0}, {lockstep.Vector{0, 1}, 1, 0}}, []string{"5", "5", "10"}},
		"negative is nobody": {lockstep.Vector{-1}, []User{{lockstep.Vector{1}, 1, 0}}, []string{"0"}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.tasks, tasks(Fluid(c.capacity, c.users))) })
	}
}

// randomUsers gives users with small numbers, so that ties and gaps are common.
func randomUsers(r *rand.Rand, weights bool) (lockstep.Vector, []User) {
	k := 1 + r.IntN(3)
	var capacity lockstep.Vector
	for i := range k {
		capacity[i] = 1 + r.Int64N(20)
	}
	users := make([]User, 1+r.IntN(4))
	for i := range users {
		users[i].Weight = 1
		if weights {
			users[i].Weight = r.Int64N(4)
		}
		for x := range k {
			users[i].Demand[x] = r.Int64N(5)
		}
		if asksNothing(&users[i]) {
			users[i].Demand[0] = 1
		}
	}
	return capacity, users
}

func taken(users []User, out []Allocation, r int) *big.Rat {
	sum := new(big.Rat)
	for i := range users {
		sum.Add(sum, new(big.Rat).Mul(out[i].Tasks, big.NewRat(users[i].Demand[r], 1)))
	}
	return sum
}

// saturated says whether nothing is left of resource r.
func saturated(capacity lockstep.Vector, users []User, out []Allocation, r int) bool {
	return taken(users, out, r).Cmp(big.NewRat(capacity[r], 1)) == 0
}

// TestFluidIsMaxMin checks the certificate of max-min fairness: whoever could use more needs
// something that is used up, of which nobody has a greater dominant share, unless it comes
// before in turn. That also makes it Pareto efficient.
func TestFluidIsMaxMin(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for range rounds(10_000) {
		capacity, users := randomUsers(r, true)
		for i := range users {
			if r.IntN(3) == 0 {
				users[i].Tasks = 1 + r.Int64N(6)
			}
		}
		out := Fluid(capacity, users)
		for x := range capacity {
			require.LessOrEqual(t, taken(users, out, x).Cmp(big.NewRat(capacity[x], 1)), 0)
		}
		for i := range users {
			if users[i].Tasks > 0 && out[i].Tasks.Cmp(big.NewRat(users[i].Tasks, 1)) == 0 {
				continue
			}
			found := false
			for x, d := range users[i].Demand {
				if d == 0 || !saturated(capacity, users, out, x) {
					continue
				}
				least := true
				for k := range users {
					first := users[k].Weight > 0 && users[i].Weight == 0
					least = least && (users[k].Demand[x] == 0 || first || out[k].Share.Cmp(out[i].Share) <= 0)
				}
				found = found || least
			}
			require.True(t, found, "%d of %+v in %v got %v", i, users, capacity, tasks(out))
		}
	}
}

// worth returns how many tasks of demand run in what an allocation of tasks with
// another demand takes.
func worth(of *big.Rat, taken, demand lockstep.Vector) *big.Rat {
	var least *big.Rat
	for r, d := range demand {
		if d == 0 {
			continue
		}
		n := new(big.Rat).Mul(of, big.NewRat(taken[r], d))
		if least == nil || n.Cmp(least) < 0 {
			least = n
		}
	}
	return least
}

// TestNobodyEnviesAnother: what another has, by weight, is worth no more than one's own.
func TestNobodyEnviesAnother(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range rounds(10_000) {
		capacity, users := randomUsers(r, false)
		for i := range users {
			users[i].Weight = 1 + r.Int64N(3)
		}
		out := Fluid(capacity, users)
		for i := range users {
			for k := range users {
				part := new(big.Rat).Mul(out[k].Tasks, big.NewRat(users[i].Weight, users[k].Weight))
				require.LessOrEqual(t, worth(part, users[k].Demand, users[i].Demand).Cmp(out[i].Tasks), 0, "%d envies %d: %+v", i, k, users)
			}
		}
	}
}

// TestSharingIsNoLoss: nobody has less than its part of everything, by weight, would run.
func TestSharingIsNoLoss(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for range rounds(10_000) {
		capacity, users := randomUsers(r, false)
		var weights int64
		for i := range users {
			users[i].Weight = 1 + r.Int64N(3)
			weights += users[i].Weight
		}
		out := Fluid(capacity, users)
		for i := range users {
			alone := worth(big.NewRat(users[i].Weight, weights), capacity, users[i].Demand)
			require.GreaterOrEqual(t, out[i].Tasks.Cmp(alone), 0, "%d of %+v in %v", i, users, capacity)
		}
	}
}

// TestNobodyGainsByLying tries other needs than the true ones: they run no more of the true tasks.
func TestNobodyGainsByLying(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 4))
	for range rounds(10_000) {
		capacity, users := randomUsers(r, true)
		out := Fluid(capacity, users)
		liar := r.IntN(len(users))
		lies := slices.Clone(users)
		for x := range capacity {
			if capacity[x] > 0 {
				lies[liar].Demand[x] = r.Int64N(6)
			}
		}
		lies[liar].Tasks = r.Int64N(3)
		if asksNothing(&lies[liar]) {
			continue
		}
		got := Fluid(capacity, lies)[liar]
		useful := worth(got.Tasks, lies[liar].Demand, users[liar].Demand)
		require.LessOrEqual(t, useful.Cmp(out[liar].Tasks), 0, "%+v says %+v in %v", users, lies[liar], capacity)
	}
}

// TestWhoLeavesTakesFromNobody is population monotonicity, where everybody needs some of
// everything: else who stays may grow in what another had left over. And more weight is never less.
func TestWhoLeavesTakesFromNobody(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 5))
	for range rounds(10_000) {
		capacity, users := randomUsers(r, true)
		out := Fluid(capacity, users)
		gone := r.IntN(len(users))
		everything := slices.Clone(users)
		for i := range everything {
			for x := range capacity {
				if capacity[x] > 0 {
					everything[i].Demand[x]++
				}
			}
		}
		all := Fluid(capacity, everything)
		rest := Fluid(capacity, slices.Delete(slices.Clone(everything), gone, gone+1))
		for i := range users {
			if i == gone {
				continue
			}
			k := i
			if i > gone {
				k--
			}
			require.GreaterOrEqual(t, rest[k].Tasks.Cmp(all[i].Tasks), 0)
		}
		heavier := slices.Clone(users)
		heavier[gone].Weight += 1 + r.Int64N(3)
		require.GreaterOrEqual(t, Fluid(capacity, heavier)[gone].Tasks.Cmp(out[gone].Tasks), 0)
		scaled := slices.Clone(users)
		for i := range scaled {
			scaled[i].Weight *= 7
		}
		require.Equal(t, tasks(out), tasks(Fluid(capacity, scaled)))
	}
}
