package main

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// most returns the most milli that any choice among the tasks can have on the
// nodes, by trying all.
func most(tr *trace, l *list, order []int) int64 {
	cpu := make([]int64, len(tr.nodes))
	for x, n := range tr.nodes {
		cpu[x] = n.cpu
	}
	free := newRecorder(tr, true).free
	var try func(at int) int64
	try = func(at int) int64 {
		if at == len(order) {
			return 0
		}
		best := try(at + 1)
		p := l.shapeOf(order[at])
		for x, n := range tr.nodes {
			if p.devices == 0 || p.models>>n.model&1 == 0 || cpu[x] < p.cpu {
				continue
			}
			for set := range 1 << n.devices {
				count, fits := 0, true
				for d := range n.devices {
					if set>>d&1 != 0 {
						count++
						fits = fits && free[x][d] >= p.milli
					}
				}
				if count != p.devices || !fits {
					continue
				}
				take := func(by int64) {
					cpu[x] -= by * p.cpu
					for d := range n.devices {
						if set>>d&1 != 0 {
							free[x][d] -= by * p.milli
						}
					}
				}
				take(1)
				best = max(best, p.demand()+try(at+1))
				take(-1)
			}
		}
		return best
	}
	return try(0)
}

func TestNothingPassesTheLimitOfAnyRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 40 {
		tr, l := small(rng, 2, 40)
		for x := range tr.nodes {
			tr.nodes[x].devices = 1 + rng.IntN(2)
		}
		tr.capacity = 0
		for _, n := range tr.nodes {
			tr.capacity += int64(n.devices) * milli
		}
		order := permutation(len(l.tasks), rng.Uint32())[:6]
		b := newBounds(tr, l)
		counts := make([]float64, len(l.shapes))
		for _, i := range order {
			counts[l.shape[i]]++
		}
		require.GreaterOrEqual(t, milli*b.anyLimit(counts)+1e-3, float64(most(tr, l, order)))
	}
}

// TestNoRulePassesItsLimit runs rules that refuse only what does not fit, among them
// some that choose at random, on clusters that fill up.
func TestNoRulePassesItsLimit(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	tight := 0
	for range 40 {
		tr, l := small(rng, 1+rng.IntN(8), 200)
		b := newBounds(tr, l)
		order := permutation(len(l.tasks), rng.Uint32())
		limits := b.of(tr, l, order)
		rules := allRules()
		for _, name := range []string{"random 1", "random 2", "random 3"} {
			rules[name] = &random{rng: rng}
		}
		for name, r := range rules {
			out := replay(tr, l, r, order, listed(tr), false, nil)
			for i, v := range out.at {
				require.LessOrEqual(t, v, limits.obedient[i]+1e-6, "%s at %d", name, marks[i])
				require.LessOrEqual(t, limits.obedient[i], limits.any[i]+1e-6)
				if v > 0 && v > 0.98*limits.obedient[i] && v < 99 {
					tight++
				}
			}
		}
	}
	require.Greater(t, tight, 20, "the limits mean something")
}

// random places anywhere.
type random struct{ rng *rand.Rand }

func (*random) begin(*cluster, *list)              {}
func (*random) grain() uint                        { return 0 }
func (*random) arrive(int) int                     { return 0 }
func (r *random) cost(_, _ *state, _, _ int) int64 { return r.rng.Int64N(100) }
