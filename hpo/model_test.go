package hpo

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// plainRung is a rung of promotion as the paper has it, all by sorting.
type plainRung struct {
	level    uint64
	recorded []entry
	ids      []TrialID
	promoted map[TrialID]bool
}

// top returns the best floor(n/eta), best first.
func (g *plainRung) top(eta int) []TrialID {
	order := make([]int, len(g.recorded))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if better(g.recorded[i], g.recorded[j]) {
			return -1
		}
		return 1
	})
	var out []TrialID
	for _, i := range order[:len(order)/eta] {
		out = append(out, g.ids[i])
	}
	return out
}

// Invariant 1, and that promotion is what the paper's rule gives by sorting: the highest rung first, the best of its top
// that was not promoted; at most floor(n/eta) where one comes at a time; each once; all from the rung below.
func TestRandomPromotionIsThePlainRule(t *testing.T) {
	for seed := range uint64(runs(20)) {
		eta := 2 + int(seed%3)
		w := newTwin(t, Config{Mode: Maximize, ASHA: &ASHA{Max: 60, Eta: uint32(eta)}})
		d := newDriver(t, seed, w)
		d.most = 25
		var rungs []*plainRung
		for _, g := range w.s.rule.(*asha).lanes[0].rungs {
			rungs = append(rungs, &plainRung{level: g.level, promoted: map[TrialID]bool{}})
		}
		at := map[TrialID]int{} // the rung a trial runs for
		away := map[TrialID]bool{}
		arrivals := uint64(0)
		d.before = func(batch []Report) {
			for _, r := range batch { // Seq rises within them
				k := at[r.Trial]
				if k < len(rungs) && r.Step >= rungs[k].level && r.Step < 60 {
					arrivals++
					rungs[k].recorded = append(rungs[k].recorded, entry{key: r.Value, seq: arrivals})
					rungs[k].ids = append(rungs[k].ids, r.Trial)
				}
			}
		}
		paused := map[TrialID]bool{}
		d.decide = func(x Decision) {
			switch {
			case x.Reason == ReasonRung:
				paused[x.Trial] = true
			case x.Action == Stop:
				away[x.Trial], paused[x.Trial] = true, false
			}
		}
		d.begin = func(x Start) {
			if !paused[x.Trial] {
				return // new, or restarted
			}
			want := TrialID("")
			for k := len(rungs) - 1; k >= 0 && want == ""; k-- {
				for _, id := range rungs[k].top(eta) {
					if !rungs[k].promoted[id] && !away[id] {
						want = id
						rungs[k].promoted[id] = true
						at[id] = k + 1
						break
					}
				}
			}
			require.Equal(t, want, x.Trial, "seed %d", seed)
			paused[x.Trial] = false
		}
		for range 60 {
			d.step()
		}
		for k, got := range w.s.Rungs() {
			require.Equal(t, uint64(len(rungs[k].recorded)), got.Recorded)
			require.Equal(t, uint64(len(rungs[k].promoted)), got.Promoted)
			if k == 0 {
				continue
			}
			for _, id := range rungs[k].ids {
				require.True(t, rungs[k-1].promoted[id], "rungs are not nested")
			}
		}
	}
}

// The parts of a cut, and a tree, against sorting.
func TestCutAndTreeAgainstSorting(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		c := newCut()
		var tr tree
		tr.grow(64)
		var all []entry
		for i := range 64 {
			x := entry{key: float64(rng.IntN(9)), seq: uint64(i + 1), slot: int32(i)}
			all = append(all, x)
			c.add(x)
			tr.insert(x)
			k := rng.IntN(len(all) + 2)
			c.resize(k)
			slices.SortFunc(all, func(a, b entry) int {
				if better(a, b) {
					return -1
				}
				return 1
			})
			k = min(k, len(all))
			require.Len(t, c.top.e, k)
			for j, x := range all {
				require.Equal(t, j < k, c.holds(x))
				require.Equal(t, len(all)-1-j, tr.rank(x.slot))
				require.Equal(t, x.slot, tr.at(len(all)-1-j))
			}
			if k > 0 {
				floor, _ := c.floor()
				require.Equal(t, all[k-1].key, floor)
			}
			if len(c.rest.e) > 1 {
				require.Equal(t, all[k+1], c.rest.second())
			}
			below := 0
			for _, x := range all {
				if x.key <= 4 {
					below++
				}
			}
			require.Equal(t, below, tr.below(4))
			if rng.IntN(3) == 0 {
				j := rng.IntN(len(all))
				tr.remove(all[j].slot)
				gone := newCut()
				all = slices.Delete(all, j, j+1)
				for _, x := range all {
					gone.add(x)
				}
				c = gone
			}
		}
		require.Equal(t, len(all), tr.len())
	}
}

func TestMedianWithoutAgainstSorting(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 1))
	for range 3000 {
		c := newCut()
		var all []entry
		for i := range 2 + rng.IntN(8) {
			x := entry{key: float64(rng.IntN(6)), seq: uint64(i + 1)}
			all = append(all, x)
			c.add(x)
			c.resize((c.len() + 1) / 2)
		}
		plain := func(skip uint64) float64 {
			var keys []float64
			for _, x := range all {
				if x.seq != skip {
					keys = append(keys, x.key)
				}
			}
			slices.Sort(keys)
			n := len(keys)
			return (keys[(n-1)/2] + keys[n/2]) / 2
		}
		require.Equal(t, plain(0), c.medianWithout(entry{}))
		for _, x := range all {
			require.Equal(t, plain(x.seq), c.medianWithout(x))
		}
	}
}

// history is what the plain median rule knows: every report of every trial.
func TestRandomMedianIsThePlainRule(t *testing.T) {
	type point struct {
		step uint64
		key  float64
	}
	for seed := range uint64(runs(40)) {
		cfg := Config{Mode: Maximize, Median: &Median{Grace: 1 + seed%3, Interval: 1, Min: 1 + int(seed%2)}}
		s := begin(t, cfg, names(6)...)
		rng := rand.New(rand.NewPCG(seed, 5))
		past := map[TrialID][]point{}
		for step := uint64(1); step < 8; step++ { // in step with each other, as far as they come
			for _, i := range rng.Perm(6) {
				id := names(6)[i]
				if s.trials[s.index[id]].state != running || rng.IntN(8) == 0 {
					if rng.IntN(2) == 0 && s.trials[s.index[id]].state == running {
						_, err := s.Failed(id, 0, Ended)
						require.NoError(t, err)
					}
					continue
				}
				if n := len(past[id]); n > 0 && past[id][n-1].step != step-1 || n == 0 && step > 1 {
					continue
				}
				v := float64(rng.IntN(10))
				past[id] = append(past[id], point{step, v})
				want := Continue
				if step >= cfg.Median.Grace {
					best := -inf
					for _, p := range past[id] {
						if p.step >= cfg.Median.Grace {
							best = max(best, p.key)
						}
					}
					var means []float64
					for _, other := range names(6) {
						if n := len(past[other]); other == id || n == 0 || past[other][n-1].step < step {
							continue
						}
						sum, n := 0.0, 0
						for _, p := range past[other] {
							if p.step >= cfg.Median.Grace && p.step <= step {
								sum += p.key
								n++
							}
						}
						if n > 0 {
							means = append(means, sum/float64(n))
						}
					}
					if len(means) >= cfg.Median.Min {
						slices.Sort(means)
						n := len(means)
						if best < means[(n-1)/2]/2+means[n/2]/2 {
							want = Stop
						}
					}
				}
				require.Equal(t, want, report(t, s, id, step, v)[0].Action, "seed %d", seed)
			}
		}
	}
}

// plainQuantile is numpy's, by sorting.
func plainQuantile(values []float64, eta uint32) float64 {
	v := slices.Clone(values)
	slices.Sort(v)
	if len(v) == 0 {
		return nan
	}
	low, weight := position(len(v), eta)
	a, b := v[low], v[min(low+1, len(v)-1)]
	if weight >= 0.5 {
		return b - float64((b-a)*(1-weight))
	}
	return a + float64((b-a)*weight)
}

// The stopping variants by counting and sorting, in batches: Ray compares with what was there before a batch, the
// others with all of it.
func TestRandomStoppingIsThePlainRule(t *testing.T) {
	for _, v := range []Variant{Stopping, Ray, Optuna, Syne, SyneQuantile, Determined} {
		for seed := range uint64(runs(100)) {
			rng := rand.New(rand.NewPCG(seed, 7))
			eta := 2 + uint32(seed%4)
			s := begin(t, Config{Mode: Maximize, ASHA: &ASHA{Variant: v, Eta: eta}}, names(40)...)
			var all []float64
			for next := 0; next < 40; {
				var batch []Report
				for range min(1+rng.IntN(4), 40-next) {
					batch = append(batch, Report{Trial: names(40)[next], Step: 1, Value: float64(rng.IntN(30))})
					next++
				}
				before := slices.Clone(all)
				for _, r := range batch {
					all = append(all, r.Value)
				}
				got, err := s.Report(batch...)
				require.NoError(t, err)
				for i, r := range batch {
					rank := 0
					for _, x := range all {
						if x > r.Value {
							rank++
						}
					}
					n := len(all)
					stop := rank >= max(1, n/int(eta))
					switch v {
					case Ray:
						stop = r.Value < plainQuantile(before, eta)
					case Syne:
						stop = rank*int(eta) > n
					case SyneQuantile:
						stop = n >= 2 && r.Value < plainQuantile(all, eta)
					}
					require.Equal(t, stop, got[i].Action == Stop, "%s seed %d: %v in %v", v, seed, r.Value, all)
				}
			}
		}
	}
}

// Beyond the lists that Python sorts by inserting, NaN counts as the worst to Syne.
func TestSyneCountsNaNAsTheWorstOfMany(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 10))
		eta := 2 + int(seed%3)
		ids := names(200)
		s := begin(t, Config{Mode: Maximize, ASHA: &ASHA{Variant: Syne, Eta: uint32(eta)}}, ids...)
		var all []float64
		for i, id := range ids {
			v := float64(rng.IntN(100))
			if rng.IntN(5) == 0 {
				v = nan
			}
			all = append(all, v)
			better := 0
			for _, x := range all {
				if x > v || v != v && x == x {
					better++
				}
			}
			got := report(t, s, id, 1, v)[0].Action
			if i >= shortList {
				require.Equal(t, better*eta > len(all), got == Stop)
			}
		}
	}
}

// Of each rung of successive halving the best ceil(n/eta) go on, and no other, whatever the order in which they come.
func TestRandomHalvingIsThePlainRule(t *testing.T) {
	for seed := range uint64(runs(100)) {
		rng := rand.New(rand.NewPCG(seed, 8))
		n, eta := 1+rng.IntN(20), 2+rng.IntN(3)
		s := search(t, Config{Mode: Maximize, SHA: &SHA{Max: 30, Eta: uint32(eta)}}, n)
		score := rng.Perm(n) // no ties
		want := names(n)
		at := func(id TrialID) int { return score[int(number(id))] }
		for level := range 1 + len(s.Rungs()) {
			starts, decisions := s.Next(n)
			if level == 0 {
				require.Empty(t, decisions)
			}
			if len(starts) == 0 {
				break
			}
			var on []TrialID
			for _, x := range starts {
				on = append(on, x.Trial)
			}
			require.ElementsMatch(t, want, on)
			rng.Shuffle(len(on), func(i, j int) { on[i], on[j] = on[j], on[i] })
			for _, id := range on {
				report(t, s, id, s.Rungs()[level].Level, float64(at(id)))
			}
			slices.SortFunc(want, func(a, b TrialID) int { return at(b) - at(a) })
			want = want[:(len(want)+eta-1)/eta]
		}
		require.True(t, s.Quiescent())
	}
}

// Who copies and from whom, by sorting.
func TestRandomExploitIsThePlainRule(t *testing.T) {
	for seed := range uint64(runs(100)) {
		rng := rand.New(rand.NewPCG(seed, 9))
		cfg := Config{Mode: Maximize, PBT: &PBT{QuantileFraction: []float64{.25, .5, .1, .2}[seed%4], Seed: seed}}
		s := begin(t, cfg, names(9)...)
		scores := map[TrialID]float64{}
		at := map[TrialID]uint64{}
		for i := range 60 {
			id := names(9)[rng.IntN(9)]
			at[id]++
			scores[id] = float64(i*7919%997) + rng.Float64() // no ties
			got := report(t, s, id, at[id], scores[id])[0]
			var order []TrialID
			for other := range scores { // in any order: sorted next
				order = append(order, other)
			}
			slices.SortFunc(order, func(a, b TrialID) int {
				if scores[a] < scores[b] {
					return -1
				}
				return 1
			})
			n := len(order)
			few := min(n/2, int((int64(n)*int64(quantise(cfg.PBT.QuantileFraction))+million-1)/million))
			require.Equal(t, slices.Index(order, id) < few, got.Action == Copy)
			if got.Action == Copy {
				require.GreaterOrEqual(t, slices.Index(order, got.Source), n-few)
				require.Equal(t, at[got.Source], got.Level)
				at[id] = got.Level
				delete(scores, id) // it has none until it reports
			}
		}
	}
}
