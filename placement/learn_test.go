package placement

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// TestStepsAreThoseOfTheSigmoid compares the whole-number ranks of RuleGradient with the
// published formula, at and around every step.
func TestStepsAreThoseOfTheSigmoid(t *testing.T) {
	for _, weight := range []int64{1, 3, 97, 65_536} {
		m := newMixture([]Shape{{GPUs: 1, Count: weight}})
		for growth := -9000 * weight; growth <= 9000*weight; growth += max(1, weight*7/3) {
			want := 100 - int(math.Floor(100/(1+math.Exp(float64(growth)/float64(weight)/1000))))
			require.Equal(t, want, int(m.coarse(growth)), "growth %d of %d", growth, weight)
		}
	}
}

// TestWorthsAreTheDual checks prices of shares against the two sides of the cutting stock
// problem: no pattern is worth more than a device, and shares cut from devices by a plan
// need hardly more devices than they are worth.
func TestWorthsAreTheDual(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	rounds := 300
	if testing.Short() {
		rounds = 40
	}
	for range rounds {
		var counts [1000]int64
		for range 1 + rng.IntN(12) {
			counts[1+rng.IntN(999)] = 1 + rng.Int64N(1000)
		}
		w := worths(&counts)
		require.Zero(t, w[0])
		require.LessOrEqual(t, w[1000], int64(one))
		worth, longest := 0.0, 0.0
		for r := 1; r <= 1000; r++ {
			require.GreaterOrEqual(t, w[r], w[r-1])
			if r < 1000 {
				worth += float64(counts[r]*w[r]) / one
			}
		}
		for a := 1; a <= 500; a++ { // two parts are worth no more than the whole
			for _, b := range []int{a, 1000 - a, 500} {
				require.LessOrEqual(t, w[a]+w[b], w[a+b]+1)
			}
		}
		longest = devicesFor(&counts)
		require.LessOrEqual(t, worth, longest+1e-6, "a dual is worth no more than a plan")
		require.GreaterOrEqual(t, worth, longest*0.98-1, "and hardly less than the best one")
	}
}

// devicesFor solves the cutting stock problem by float simplex over generated patterns: how
// many devices, in parts, the shares need.
func devicesFor(counts *[1000]int64) float64 {
	var sizes []int
	var need []float64
	for m := 999; m > 0; m-- {
		if counts[m] > 0 {
			sizes, need = append(sizes, m), append(need, float64(counts[m]))
		}
	}
	n := len(sizes)
	inverse := make([][]float64, n)
	x := make([]float64, n)
	for i := range inverse {
		inverse[i] = make([]float64, n)
		fit := float64(1000 / sizes[i])
		inverse[i][i], x[i] = 1/fit, need[i]/fit
	}
	for range 5000 {
		prices := make([]float64, n)
		for j := range prices {
			for i := range inverse {
				prices[j] += inverse[i][j]
			}
		}
		var best [1001]float64
		var last [1001]int
		for r := 1; r <= 1000; r++ {
			best[r], last[r] = best[r-1], -1
			for i, m := range sizes {
				if m <= r && best[r-m]+prices[i] > best[r]+1e-12 {
					best[r], last[r] = best[r-m]+prices[i], i
				}
			}
		}
		if best[1000] <= 1+1e-9 {
			break
		}
		column := make([]float64, n)
		for r := 1000; r > 0; {
			if last[r] < 0 {
				r--
				continue
			}
			for i := range column {
				column[i] += inverse[i][last[r]]
			}
			r -= sizes[last[r]]
		}
		row := -1
		for i := range column {
			if column[i] > 1e-9 && (row < 0 || x[i]/column[i] < x[row]/column[row]) {
				row = i
			}
		}
		by := column[row]
		x[row] /= by
		for j := range inverse[row] {
			inverse[row][j] /= by
		}
		for i := range inverse {
			if i != row {
				for j := range inverse[i] {
					inverse[i][j] -= column[i] * inverse[row][j]
				}
				x[i] -= column[i] * x[row]
			}
		}
	}
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum
}

// TestLearnedStatesComeBack feeds arrivals to a state, and holds that what was learned
// survives a snapshot, goes into a view, and is undone by a rollback.
func TestLearnedStatesComeBack(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	var cfg Config
	for i := range 6 {
		cfg.Nodes = append(cfg.Nodes, Node{ID: lockstep.NodeID(fmt.Sprint("n", i)), CPU: 24_000, GPUMemory: 80, Class: lockstep.DeviceClass([]string{"a", "b"}[i%2])})
	}
	for _, mix := range [][]Shape{nil, someMix()} {
		cfg.Mix = mix
		s := stateOf(t, nodesOf(6), cfg)
		task := func(i int) *lockstep.Gang {
			g := gangOf(lockstep.JobID(fmt.Sprint("t", i)), 1+rng.IntN(2), 1)
			d := &g.Roles[0].Demand
			d.Share, d.CPU = lockstep.MilliGPU([]int{0, 200, 300, 500, 700}[rng.IntN(5)]), lockstep.MilliCPU(rng.IntN(4)*1000)
			if rng.IntN(4) == 0 {
				d.Classes = []lockstep.DeviceClass{"b"}
			}
			return g
		}
		var p, q lockstep.Plan
		learned := s.market
		for i := range 400 {
			g := task(i)
			require.NoError(t, s.Arrived(g))
			v, err := s.Fit(&lockstep.Request{Gang: g}, &p)
			require.NoError(t, err)
			if v.Feasible {
				require.NoError(t, s.Apply(&p))
			} else if jobs := s.Jobs(); len(jobs) > 0 {
				require.NoError(t, s.Release(jobs[rng.IntN(len(jobs))]))
			}
			if i%20 > 0 {
				continue
			}
			require.NoError(t, s.verify())
			saved := bytesOf(t, s)
			again, err := Restore(s.Tree(), Config{}, bytes.NewReader(saved))
			require.NoError(t, err)
			require.Equal(t, saved, bytesOf(t, again))
			require.Equal(t, s.Fragmentation(), again.Fragmentation())
			view := s.View()
			require.Equal(t, saved, bytesOf(t, view))
			mark := s.Mark()
			for k := range 60 {
				require.NoError(t, s.Arrived(task(1000+k)))
			}
			require.NotEqual(t, saved, bytesOf(t, s))
			require.NoError(t, s.Rollback(mark))
			require.Equal(t, saved, bytesOf(t, s))
			for k := range 4 {
				g := task(2000 + k)
				a, err := s.Fit(&lockstep.Request{Gang: g}, &p)
				require.NoError(t, err)
				for _, other := range []*State{again, view} {
					b, err := other.Fit(&lockstep.Request{Gang: g}, &q)
					require.NoError(t, err)
					require.Equal(t, a, b)
					require.Equal(t, p.Members, q.Members)
				}
			}
		}
		require.NotSame(t, learned, s.market, "something was learned")
	}
}

// TestLearnerIsBounded lets ever other shapes arrive, and one that stays.
func TestLearnerIsBounded(t *testing.T) {
	s := stateOf(t, nodesOf(1), Config{})
	for i := range 5 * maxSeen / 16 {
		g := gangOf("g", 16, 1)
		g.Roles[0].Demand.CPU = lockstep.MilliCPU(i)
		if i%2 == 0 {
			g.Roles[0].Demand.CPU = 7
		}
		require.NoError(t, s.Arrived(g))
	}
	l := &s.learner
	require.LessOrEqual(t, len(l.shapes), maxLearned)
	require.LessOrEqual(t, l.seen, int64(maxSeen))
	sum := int64(0)
	for _, h := range l.shapes {
		sum += h.Count
	}
	require.Equal(t, l.seen, sum)
	most := slices.MaxFunc(l.shapes, func(a, b Shape) int { return int(a.Count - b.Count) })
	require.Equal(t, lockstep.MilliCPU(7), most.CPU)
	_, err := Restore(s.Tree(), Config{}, bytes.NewReader(bytesOf(t, s)))
	require.NoError(t, err)
	require.ErrorIs(t, s.Arrived(nil), lockstep.ErrInvalid)
	require.ErrorIs(t, s.Arrived(&lockstep.Gang{}), lockstep.ErrInvalid)
	require.ErrorIs(t, (&State{}).Arrived(gangOf("g", 1, 1)), lockstep.ErrInvalid)
}

// TestFragmentationIsTheDefinition compares the measure with its definition, on the nodes of
// random worlds.
func TestFragmentationIsTheDefinition(t *testing.T) {
	sequences := 2_000
	if testing.Short() {
		sequences = 300
	}
	shapes := someShapes(t)
	for seed := range sequences {
		w := newWorld(t, uint64(3*seed+1), shapes)
		for range 8 {
			w.step()
		}
		f := &plainFit{plainState: w.ref, left: w.ref.left(nil)}
		if w.ref.mix = typical(w.ref.mix); len(w.ref.mix) == 0 {
			w.ref.mix = nil
		}
		idle, sum := 0, 0.0
		for x := range f.left {
			id, ok := w.ref.tree.NodeAt(int32(x))
			if !ok || w.ref.shut[id] || w.ref.ill[id] {
				continue
			}
			sum += f.fragmentation(int32(x))
			for i := range w.ref.tree.Shape(int32(x)).All().All {
				if o := &f.left[x].devices[i]; !f.left[x].hidden.Has(i) && !f.left[x].apart.Has(i) && o.held == 0 {
					idle += 1000 - o.milli
				}
			}
		}
		have := w.s.Fragmentation()
		require.EqualValues(t, idle, have.Idle)
		require.EqualValues(t, math.Floor(sum/f.weight()), have.Unused)
	}
}
