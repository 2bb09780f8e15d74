package reconfig

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// brute is an exact planner for small instances: every set of groups that the live
// devices of each node make, every choice of groups for each replica, every order of
// stages, every division of layers and every split. It uses the evaluator and the
// rooms of the world, and nothing of the planner. Hops must be the same everywhere.
type brute struct {
	w     *world
	types []slot
	index map[slot]int
	best  map[string][]int64 // by types of a replica, sorted: time for each number of micro-batches
}

// seq is the stages of a replica by type, in no order.
type seq struct {
	types []int
	times []int64
}

func bruteForce(w *world) int64 {
	b := &brute{w: w, index: map[slot]int{}, best: map[string][]int64{}}
	sets := map[string][]int{"": nil} // multisets of types, as counts
	for _, units := range w.nodes {
		var live []int32
		for _, u := range units {
			if w.units[u].speed > 0 {
				live = append(live, u)
			}
		}
		local := map[string][]int{}
		b.partitions(live, nil, local)
		next := map[string][]int{}
		for _, a := range sets {
			for _, c := range local {
				sum := make([]int, max(len(a), len(c)))
				for i := range sum {
					if i < len(a) {
						sum[i] += a[i]
					}
					if i < len(c) {
						sum[i] += c[i]
					}
				}
				next[fmt.Sprint(trim(sum))] = trim(sum)
			}
		}
		sets = next
	}
	keys := make([]string, 0, len(sets))
	for k := range sets {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	best := int64(forever)
	for _, k := range keys {
		best = b.pack(sets[k], best)
	}
	return best
}

func trim(v []int) []int {
	for len(v) > 0 && v[len(v)-1] == 0 {
		v = v[:len(v)-1]
	}
	return v
}

// partitions adds all multisets of groups that cover the units.
func (b *brute) partitions(live []int32, have []int, out map[string][]int) {
	if len(live) == 0 {
		out[fmt.Sprint(trim(have))] = slices.Clone(trim(have))
		return
	}
	for _, k := range b.w.degrees {
		if int(k) > len(live) {
			break
		}
		subsets(live[1:], int(k)-1, nil, func(in, rest []int32) {
			g := b.w.group(append([]int32{live[0]}, in...))
			t, ok := b.index[g.slot()]
			if !ok {
				t = len(b.types)
				b.index[g.slot()] = t
				b.types = append(b.types, g.slot())
			}
			next := make([]int, max(len(have), t+1))
			copy(next, have)
			next[t]++
			b.partitions(rest, next, out)
		})
	}
}

func subsets(from []int32, k int, in []int32, yield func(in, rest []int32)) {
	if k == 0 {
		yield(slices.Clone(in), slices.Clone(from))
		return
	}
	for i := range from {
		skipped := slices.Clone(from[:i])
		subsets(from[i+1:], k-1, append(slices.Clone(in), from[i]), func(in, rest []int32) {
			yield(in, append(slices.Clone(skipped), rest...))
		})
	}
}

// times returns the best times of a replica of these types, for each number of
// micro-batches up to all.
func (b *brute) times(types []int) []int64 {
	key := fmt.Sprint(types)
	if t, ok := b.best[key]; ok {
		return t
	}
	out := make([]int64, b.w.job.Micros+1)
	for i := 1; i < len(out); i++ {
		out[i] = forever
	}
	p := len(types)
	hops := make([]int64, p)
	for i := range hops {
		hops[i] = int64(b.w.job.Costs.Hop.Node)
	}
	seen := map[string]bool{}
	permute(slices.Clone(types), 0, func(order []int) {
		if k := fmt.Sprint(order); seen[k] {
			return
		} else {
			seen[k] = true
		}
		slots := make([]slot, p)
		for i, t := range order {
			slots[i] = b.types[t]
		}
		compose(b.w.layers, p, nil, func(layers []int32) {
			for m := 1; m < len(out); m++ {
				sched := b.w.schedule(p, m)
				fits := true
				for i, s := range slots {
					fits = fits && int(layers[i]) <= b.w.room(s, i == 0, i == p-1, sched.peaks[i], b.w.losses(m), 1)
				}
				if fits {
					out[m] = min(out[m], b.w.run(slots, hops, layers, m))
				}
			}
		})
	})
	b.best[key] = out
	return out
}

func permute(v []int, at int, yield func([]int)) {
	if at == len(v) {
		yield(v)
		return
	}
	for i := at; i < len(v); i++ {
		v[at], v[i] = v[i], v[at]
		permute(v, at+1, yield)
		v[at], v[i] = v[i], v[at]
	}
}

func compose(n, parts int, have []int32, yield func([]int32)) {
	if parts == 1 {
		yield(append(slices.Clone(have), int32(n)))
		return
	}
	for k := 1; k <= n-parts+1; k++ {
		compose(n-k, parts-1, append(have, int32(k)), yield)
	}
}

// pack returns the least time, if below best, that a multiset of groups allows.
func (b *brute) pack(counts []int, best int64) int64 {
	var all []seq
	var pick func(from int, have []int)
	left := slices.Clone(counts)
	pick = func(from int, have []int) {
		if len(have) > 0 {
			all = append(all, seq{slices.Clone(have), b.times(have)})
		}
		if len(have) == b.w.stages {
			return
		}
		for t := from; t < len(left); t++ {
			if left[t] > 0 {
				left[t]--
				pick(t, append(have, t))
				left[t]++
			}
		}
	}
	pick(0, nil)
	for {
		// Is there a plan in less than best? Then try how far down it goes.
		if b.most(counts, all, best-1) < b.w.job.Micros {
			return best
		}
		lo, hi := int64(0), best-1
		for lo < hi {
			mid := lo + (hi-lo)/2
			if b.most(counts, all, mid) >= b.w.job.Micros {
				hi = mid
			} else {
				lo = mid + 1
			}
		}
		best = hi
	}
}

// most returns how many micro-batches groups can take within the bound.
func (b *brute) most(counts []int, all []seq, bound int64) int {
	can := make([]int, len(all))
	for i, s := range all {
		for m, t := range s.times {
			if t <= bound {
				can[i] = m
			}
		}
	}
	memo := map[uint64]int{}
	left := slices.Clone(counts)
	var rec func(from, replicas int) int
	rec = func(from, replicas int) int {
		if replicas == 0 || from == len(all) {
			return 0
		}
		key := uint64(from*(b.w.job.Layout.DP+1) + replicas)
		for t, n := range left {
			key = key*uint64(counts[t]+1) + uint64(n)
		}
		if v, ok := memo[key]; ok {
			return v
		}
		best := rec(from+1, replicas)
		if can[from] > 0 {
			ok := true
			for _, t := range all[from].types {
				left[t]--
				ok = ok && left[t] >= 0
			}
			if ok {
				best = max(best, can[from]+rec(from, replicas-1))
			}
			for _, t := range all[from].types {
				left[t]++
			}
		}
		memo[key] = best
		return best
	}
	return rec(0, b.w.job.Layout.DP)
}

// small returns a random instance of at most 16 devices and 12 layers.
func small(r *rand.Rand) (Job, []Device) {
	shapes := [][4]int{ // TP, DP, PP, devices of a node
		{1, 2, 2, 2},
		{1, 3, 2, 2},
		{1, 2, 3, 2},
		{1, 4, 2, 4},
		{1, 1, 3, 1},
		{1, 3, 1, 1},
		{2, 2, 2, 2},
		{2, 2, 2, 4},
		{2, 3, 2, 2},
		{2, 2, 3, 4},
		{2, 1, 3, 2},
		{2, 4, 1, 2},
		{2, 4, 2, 2},
		{4, 1, 2, 4},
		{4, 2, 1, 4},
		{4, 2, 2, 4},
		{4, 1, 4, 4},
		{4, 1, 3, 4},
	}
	s := shapes[r.IntN(len(shapes))]
	layers := s[2] + r.IntN(12-s[2]+1)
	layers = max(layers, min(12, 2*s[2]))
	job := jobOf(s[0], s[1], s[2], layers, s[1]+r.IntN(9))
	job.Allow.MaxStages = min(3, layers)
	if s[2] == 4 {
		job.Allow.MaxStages = 4
	}
	switch r.IntN(5) {
	case 4:
		job.Batch.Tokens = 256
	case 0:
		job.Costs.Head = Cost{Forward: 2 * time.Millisecond, Backward: 3 * time.Millisecond}
	case 1:
		for range layers {
			d := time.Duration(500+r.IntN(1500)) * time.Microsecond
			job.Costs.Layers = append(job.Costs.Layers, Cost{Forward: d, Backward: d, Weight: d})
		}
	case 2:
		job.Costs.Collective = []time.Duration{0, 0, 50 * time.Microsecond, 80 * time.Microsecond, 100 * time.Microsecond}
	}
	devs := fleet(s[0]*s[1]*s[2], s[3])
	if job.Batch.Tokens > 0 { // memory for the healthy layout, and a little more
		w, err := newWorld("test", job, devs)
		if err != nil {
			panic(err)
		}
		need := w.memory(int32(s[0]), (layers+s[2]-1)/s[2], true, true, s[2], 1, 1)
		for i := range devs {
			devs[i].Memory = lockstep.Bytes(need) * lockstep.Bytes(10+r.IntN(8)) / 10
		}
	}
	return job, devs
}

// hurt makes some devices dead or slow.
func hurt(r *rand.Rand, devs []Device) []Device {
	out := slices.Clone(devs)
	speeds := []float64{0, 0, .25, .3, .5, .5, .6, .75, .9}
	for range 1 + r.IntN(3) {
		out[r.IntN(len(out))].Speed = speeds[r.IntN(len(speeds))]
	}
	return out
}

func TestIsWithinThreePercentOfBruteForce(t *testing.T) {
	n := 60
	if testing.Short() {
		n = 12
	}
	againstBrute(t, 0, n)
}

// againstBrute compares plans with the optimum, from scratch and from a healthy plan.
func againstBrute(t *testing.T, from, to int) {
	var fresh, mended []float64
	for seed := from; seed < to; seed++ {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		job, devs := small(r)
		prev := healthy(t, job, devs)
		devs = hurt(r, devs)
		w, err := newWorld("test", job, devs)
		require.NoError(t, err)
		best := bruteForce(w)
		ratio := func(prev *Plan) float64 {
			p, err := Replan(job, devs, prev, Options{Disturb: AnyGain})
			if best == forever {
				require.ErrorIs(t, err, ErrInfeasible)
				return 1
			}
			require.NoError(t, err, "seed %d", seed)
			require.NoError(t, Verify(job, devs, p))
			return float64(best) / float64(p.Estimate.Iteration)
		}
		a, b := ratio(nil), ratio(prev)
		fresh, mended = append(fresh, a), append(mended, b)
		if min(a, b) < .97 {
			t.Errorf("seed %d: %.4f from scratch, %.4f mended: %+v, %d layers, %d micro-batches", seed, a, b, job.Layout, job.Model.Layers, job.Micros)
		}
	}
	t.Log("from scratch: ", spreadOf(fresh))
	t.Log("mended:       ", spreadOf(mended))
}

func spreadOf(v []float64) string {
	slices.Sort(v)
	at := func(q float64) float64 { return v[int(q*float64(len(v)-1))] }
	exact := 0
	for _, x := range v {
		if x >= 1 {
			exact++
		}
	}
	return fmt.Sprintf("n=%d min %.4f p1 %.4f p5 %.4f p25 %.4f median %.4f, optimal in %d", len(v), v[0], at(.01), at(.05), at(.25), at(.5), exact)
}
