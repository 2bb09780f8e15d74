package fleet

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/serving"
)

// perSecond is a latency of batches of one at so many a second.
func perSecond(rate int) serving.Latency {
	return serving.Linear{Each: time.Second / time.Duration(rate)}
}

// cpuAndGPU are a CPU for $0.2 an hour that serves 20 a second, and a GPU for $3 that serves 600.
func cpuAndGPU() (cpu, gpu Instance) {
	return Instance{ID: "cpu", Price: 200, Latency: perSecond(20), MaxBatch: 1}, Instance{ID: "gpu", Price: 3000, Latency: perSecond(600), MaxBatch: 1}
}

func TestTheRateFromWhichAGPUPays(t *testing.T) {
	cpu, gpu := cpuAndGPU()
	even, ok := BreakEven(cpu, gpu, time.Second)
	require.True(t, ok)
	require.InDelta(t, 300, even, .001)
	m, err := Cheapest([]Instance{gpu, cpu}, 250, time.Second)
	require.NoError(t, err)
	require.Equal(t, []Count{{"cpu", 13, 1}}, m.Counts)
	require.Equal(t, int64(2600), m.Cost)
	require.True(t, m.Exact)
	m, err = Cheapest([]Instance{gpu, cpu}, 350, time.Second)
	require.NoError(t, err)
	require.Equal(t, []Count{{"gpu", 1, 1}}, m.Counts, "18 CPUs are 3600")
	require.Equal(t, int64(3000), m.Cost)
	m, err = Cheapest([]Instance{gpu, cpu}, 650, time.Second)
	require.NoError(t, err)
	require.Equal(t, []Count{{"cpu", 3, 1}, {"gpu", 1, 1}}, m.Counts, "a base, and what is left over")
	require.Equal(t, int64(3600), m.Cost)
	require.Equal(t, Count{"gpu", 2, 1}, m.Single)
	require.Equal(t, int64(6000), m.Alone)
	_, ok = BreakEven(cpu, gpu, 10*time.Millisecond)
	require.False(t, ok, "the CPU is too slow")
	m, err = Cheapest([]Instance{cpu}, 1, 10*time.Millisecond)
	require.NoError(t, err)
	require.False(t, m.Feasible)
}

// TestCheapestAgainstAllMixes tries every mix.
func TestCheapestAgainstAllMixes(t *testing.T) {
	r := rand.New(rand.NewPCG(25, 1))
	for range 400 {
		var instances []Instance
		for i := range 1 + r.IntN(3) {
			instances = append(instances, Instance{ID: ID(fmt.Sprint(i)), Price: int64(1 + r.IntN(50)), Latency: perSecond(1 + r.IntN(30)), MaxBatch: 1})
		}
		rate := float64(1 + r.IntN(100))
		m, err := Cheapest(instances, rate, 10*time.Second)
		require.NoError(t, err)
		require.True(t, m.Feasible && m.Exact)
		require.GreaterOrEqual(t, m.Rate, rate)
		best := int64(math.MaxInt64)
		var walk func(i int, micro, cost int64)
		walk = func(i int, micro, cost int64) {
			if micro <= 0 {
				best = min(best, cost)
				return
			}
			if i == len(instances) {
				return
			}
			o, _ := instances[i].serves(10 * time.Second)
			for n := int64(0); n <= micro/o.micro+1; n++ {
				walk(i+1, micro-n*o.micro, cost+n*o.price)
			}
		}
		walk(0, int64(rate*million), 0)
		require.Equal(t, best, m.Cost)
		require.LessOrEqual(t, m.Cost, m.Alone)
	}
}

func TestCheapestWithHugeRates(t *testing.T) {
	cpu, gpu := cpuAndGPU()
	m, err := Cheapest([]Instance{cpu, gpu}, 1e9, time.Second)
	require.NoError(t, err)
	require.True(t, m.Feasible)
	require.GreaterOrEqual(t, m.Rate, 1e9)
	for _, bad := range []float64{math.NaN(), math.Inf(1), -1, 2e9} {
		_, err := Cheapest(nil, bad, time.Second)
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	_, err = Cheapest([]Instance{cpu, cpu}, 1, time.Second)
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	_, err = Cheapest([]Instance{{ID: "x"}}, 1, 0)
	require.ErrorContains(t, err, "Price")
	require.ErrorContains(t, err, "objective")
	_, ok := BreakEven(Instance{}, Instance{}, 0)
	require.False(t, ok)
}

// TestChooseAgainstAllSelections tries every selection.
func TestChooseAgainstAllSelections(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 500 {
		var tasks []Task
		for i := range 1 + r.IntN(4) {
			task := Task{ID: ID(fmt.Sprint(i)), Weight: int64(r.IntN(5)), Floor: int64(r.IntN(2) * 300_000), Objective: time.Duration(r.IntN(2)) * 50 * ms}
			for j := range 1 + r.IntN(4) {
				task.Variants = append(task.Variants, Variant{ID: ID(fmt.Sprint(j)), Accuracy: int64(r.IntN(20)) * 50_000, Cost: int64(r.IntN(30)), Latency: time.Duration(r.IntN(100)) * ms})
			}
			tasks = append(tasks, task)
		}
		weight := int64(0)
		for _, task := range tasks {
			weight += max(task.Weight, 1)
		}
		goal := Goal{Budget: int64(r.IntN(100))}
		if r.IntN(2) == 0 {
			goal = Goal{Accuracy: int64(1 + r.IntN(million))}
		}
		bestCost, bestValue := int64(math.MaxInt64), int64(-1)
		var walk func(i int, cost, value int64)
		walk = func(i int, cost, value int64) {
			if i == len(tasks) {
				if goal.Accuracy > 0 && value >= goal.Accuracy*weight && cost < bestCost {
					bestCost = cost
				}
				if goal.Accuracy == 0 && cost <= goal.Budget && value > bestValue {
					bestValue = value
				}
				return
			}
			for _, v := range tasks[i].Variants {
				if v.Accuracy >= tasks[i].Floor && (tasks[i].Objective == 0 || v.Latency <= tasks[i].Objective) {
					walk(i+1, cost+v.Cost, value+v.Accuracy*max(tasks[i].Weight, 1))
				}
			}
		}
		walk(0, 0, 0)
		s, err := Choose(tasks, goal)
		require.NoError(t, err)
		require.True(t, s.Exact)
		if goal.Accuracy > 0 {
			require.Equal(t, bestCost != math.MaxInt64, s.Feasible)
			if s.Feasible {
				require.Equal(t, bestCost, s.Cost)
				require.GreaterOrEqual(t, s.Accuracy, goal.Accuracy)
			}
		} else {
			require.Equal(t, bestValue >= 0, s.Feasible)
			if s.Feasible {
				require.Equal(t, bestValue/weight, s.Accuracy)
				require.LessOrEqual(t, s.Cost, goal.Budget)
			}
		}
		// What is picked is what is said of it.
		cost, value := int64(0), int64(0)
		for _, p := range s.Picks {
			for _, task := range tasks {
				for _, v := range task.Variants {
					if task.ID == p.Task && v.ID == p.Variant {
						cost, value = cost+v.Cost, value+v.Accuracy*max(task.Weight, 1)
					}
				}
			}
		}
		if s.Feasible {
			require.Equal(t, []int64{s.Cost, s.Accuracy}, []int64{cost, value / weight})
			require.GreaterOrEqual(t, s.Price, 0.0)
		}
	}
}

// TestDualPriceByHand: from cost 3 the best way on is 150000 for 5 (30000 for each), not 20000 for 1.
func TestDualPriceByHand(t *testing.T) {
	task := Task{ID: "t", Variants: []Variant{{ID: "s", Accuracy: 600_000, Cost: 1}, {ID: "m", Accuracy: 700_000, Cost: 3}, {ID: "m+", Accuracy: 720_000, Cost: 4}, {ID: "l", Accuracy: 850_000, Cost: 8}, {ID: "bad", Accuracy: 500_000, Cost: 5}}}
	s, err := Choose([]Task{task}, Goal{Budget: 3})
	require.NoError(t, err)
	require.Equal(t, []Pick{{"t", "m"}}, s.Picks)
	require.InDelta(t, 30_000, s.Price, 1e-9)
	s, err = Choose([]Task{task}, Goal{Accuracy: 800_000})
	require.NoError(t, err)
	require.Equal(t, []Pick{{"t", "l"}}, s.Picks)
	require.Zero(t, s.Price, "nothing is better")
	s, err = Choose([]Task{task}, Goal{Accuracy: 900_000})
	require.NoError(t, err)
	require.False(t, s.Feasible)
	require.Nil(t, s.Picks)
	s, err = Choose(nil, Goal{})
	require.NoError(t, err)
	require.True(t, s.Feasible)
	_, err = Choose([]Task{{ID: "t", Variants: []Variant{{ID: "a", Accuracy: -1}, {ID: "a", Cost: math.MaxInt64}}}}, Goal{Budget: -1})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
}

func TestChooseSaysWhenItIsNotExact(t *testing.T) {
	var tasks []Task
	for i := range 18 { // every sum of powers of two is a state that no other dominates
		tasks = append(tasks, Task{ID: ID(fmt.Sprintf("%02d", i)), Weight: 1, Variants: []Variant{{ID: "no"}, {ID: "yes", Accuracy: 1 << i, Cost: 1 << i}}})
	}
	s, err := Choose(tasks, Goal{Budget: 1 << 17})
	require.NoError(t, err)
	require.True(t, s.Feasible)
	require.False(t, s.Exact)
	require.LessOrEqual(t, s.Cost, int64(1)<<17)
}

func TestVotesOfIndependentModels(t *testing.T) {
	require.Equal(t, int64(784_000), Majority([]int64{700_000, 700_000, 700_000}))
	require.Equal(t, int64(836_920), Majority([]int64{700_000, 700_000, 700_000, 700_000, 700_000}))
	require.Equal(t, int64(700_000), Majority([]int64{700_000}))
	require.Equal(t, int64(490_000), Majority([]int64{700_000, 700_000}), "a draw is wrong")
	require.Zero(t, Majority(nil))
	require.Equal(t, int64(million), Majority([]int64{math.MaxInt64}))
	require.Zero(t, Majority([]int64{-1}))
}

// TestMajorityAgainstExactFractions adds up all outcomes as fractions.
func TestMajorityAgainstExactFractions(t *testing.T) {
	r := rand.New(rand.NewPCG(26, 1))
	for range 300 {
		as := make([]int64, 1+r.IntN(9))
		for i := range as {
			as[i] = int64(r.IntN(million + 1))
		}
		sum := new(big.Rat)
		for set := range 1 << len(as) {
			p, n := big.NewRat(1, 1), 0
			for i, a := range as {
				if set>>i&1 == 1 {
					n++
				} else {
					a = million - a
				}
				p.Mul(p, big.NewRat(a, million))
			}
			if 2*n > len(as) {
				sum.Add(sum, p)
			}
		}
		f, _ := sum.Float64()
		require.InDelta(t, f*million, float64(Majority(as)), .50001)
	}
}

func TestVoteFindsTheCheapestEnsemble(t *testing.T) {
	r := rand.New(rand.NewPCG(27, 1))
	for range 200 {
		models := make([]Member, r.IntN(8))
		for i := range models {
			models[i] = Member{ID: ID(fmt.Sprint(i)), Accuracy: 500_000 + int64(r.IntN(400_000)), Cost: int64(r.IntN(20))}
		}
		target := 600_000 + int64(r.IntN(350_000))
		best := int64(math.MaxInt64)
		for set := range 1 << len(models) {
			var as []int64
			cost := int64(0)
			for i, m := range models {
				if set>>i&1 == 1 {
					as, cost = append(as, m.Accuracy), cost+m.Cost
				}
			}
			if Majority(as) >= target {
				best = min(best, cost)
			}
		}
		e, err := Vote(models, target)
		require.NoError(t, err)
		require.Equal(t, best != math.MaxInt64, e.Feasible)
		if e.Feasible {
			require.Equal(t, best, e.Cost)
		}
		require.Equal(t, e.Accuracy, Majority(accuracies(e.Members)))
		r.Shuffle(len(models), func(i, j int) { models[i], models[j] = models[j], models[i] })
		again, err := Vote(models, target)
		require.NoError(t, err)
		require.Equal(t, e, again)
	}
	_, err := Vote(make([]Member, 17), 0)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func TestResizeGrowsAndShrinks(t *testing.T) {
	m := func(id ID, a, cost int64) Member { return Member{ID: id, Accuracy: a, Cost: cost} }
	five := []Member{m("a", 700_000, 5), m("b", 700_000, 4), m("c", 700_000, 9), m("d", 700_000, 1), m("e", 700_000, 2)}
	c, err := Resize(five, nil, 840_000, 600_000, 20_000)
	require.NoError(t, err)
	require.Equal(t, Change{Drop: "c"}, c, "four come to .6517, a draw being wrong; the dearest goes")
	c, err = Resize(five, nil, 840_000, 800_000, 20_000)
	require.NoError(t, err)
	require.Zero(t, c, "four are not enough")
	c, err = Resize(five, nil, 610_000, 600_000, 20_000)
	require.NoError(t, err)
	require.Zero(t, c, "within the margin")
	spare := []Member{m("x", 600_000, 1), m("y", 900_000, 3), m("z", 900_000, 2)}
	c, err = Resize(five[:2], spare, 500_000, 600_000, 0)
	require.NoError(t, err)
	require.Equal(t, Change{Add: "z"}, c)
	c, err = Resize(five, nil, 0, 600_000, 0)
	require.NoError(t, err)
	require.Zero(t, c, "nobody is left to join")
	_, err = Resize(five, five, 0, 0, 0)
	require.ErrorIs(t, err, lockstep.ErrDuplicate)
	_, err = Resize(nil, nil, -1, 0, 0)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

// TestCheapestIsExactWithManyOfOneType: one type leaves nothing to search, however many of it are needed.
func TestCheapestIsExactWithManyOfOneType(t *testing.T) {
	one := Instance{ID: "one", Price: 1, Latency: perSecond(1), MaxBatch: 1}
	m, err := Cheapest([]Instance{one}, 3e6, 10*time.Second)
	require.NoError(t, err)
	require.True(t, m.Exact)
	require.Equal(t, []Count{{"one", 3_000_000, 1}}, m.Counts)
	two := Instance{ID: "two", Price: 3, Latency: perSecond(2), MaxBatch: 1}
	m, err = Cheapest([]Instance{one, two}, 3e6, 10*time.Second)
	require.NoError(t, err)
	require.True(t, m.Exact)
	require.Equal(t, int64(3_000_000), m.Cost)
}

// TestCheapestHoldsCounts: more instances than 32 bits hold are told as the most of them, and cost what they cost.
func TestCheapestHoldsCounts(t *testing.T) {
	m, err := Cheapest([]Instance{{ID: "slow", Price: 1, Latency: serving.Linear{Base: 50 * time.Hour}, MaxBatch: 1}}, 1e9, 100*time.Hour)
	require.NoError(t, err)
	require.Equal(t, math.MaxInt32, m.Single.N)
	require.Equal(t, []Count{m.Single}, m.Counts)
	require.Greater(t, m.Cost, int64(1e14))
	require.Equal(t, m.Alone, m.Cost)
}

// TestChooseKeepsNoMoreThanTheFrontier: each task's states stay until the end, what they beat does not.
func TestChooseKeepsNoMoreThanTheFrontier(t *testing.T) {
	task := Task{ID: "t", Weight: 1}
	for j := range 64 {
		task.Variants = append(task.Variants, Variant{ID: ID(fmt.Sprint(j)), Accuracy: int64(j), Cost: int64(j)})
	}
	states := []state{{}}
	for range 10 {
		states = extend(states, task)
	}
	require.Len(t, states, 631)
	require.Less(t, cap(states), 2*len(states))
}
