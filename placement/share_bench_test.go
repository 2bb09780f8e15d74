package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// someMix returns a workload of 35 shapes: shares of one device of many sizes, whole
// ones and a few of several, each with several amounts of CPU.
func someMix() (out []Shape) {
	for i, milli := range []int{50, 100, 150, 200, 220, 250, 300, 320, 400, 460, 470, 500, 550, 600, 650, 690, 780, 810} {
		out = append(out, Shape{GPUs: 1, Share: lockstep.MilliGPU(milli), CPU: lockstep.MilliCPU(1000 * (1 + i%4)), Count: int64(1 + (i*7)%11)})
	}
	for i := range 12 {
		out = append(out, Shape{GPUs: 1, CPU: lockstep.MilliCPU(2000 * (i + 1)), Count: int64(1 + i%3)})
	}
	for _, k := range []int{2, 4, 8} {
		out = append(out, Shape{GPUs: k, CPU: lockstep.MilliCPU(8000 * k), Count: 1})
	}
	return append(out, Shape{CPU: 4000, Count: 3}, Shape{CPU: 16000, Count: 1})
}

// sharers keeps a cluster about 80 % full with gangs of one member drawn from a mix.
type sharers struct {
	s     *State
	rng   *rand.Rand
	mix   []Shape
	deck  []int              // shapes by count
	gangs [][]*lockstep.Gang // by shape, to be used again
	held  []*lockstep.Gang
	of    map[lockstep.JobID]int // shape
	req   lockstep.Request
	plan  lockstep.Plan
	used  int // thousandths
	most  int
}

func newSharers(tb testing.TB, nodes int, cfg Config) *sharers {
	tree := benchTree(tb, nodes)
	for x := range tree.Slots() {
		id, _ := tree.NodeAt(int32(x))
		cfg.Nodes = append(cfg.Nodes, Node{ID: id, CPU: lockstep.MilliCPU(96_000 + 32_000*(x%3)), Class: lockstep.DeviceClass(fmt.Sprint("m", x%3))})
	}
	cfg.Views = 64
	s, err := New(tree, cfg)
	require.NoError(tb, err)
	c := &sharers{s: s, rng: rand.New(rand.NewPCG(2, uint64(nodes))), mix: cfg.Mix, most: tree.Nodes() * 8000 * 8 / 10, of: map[lockstep.JobID]int{}}
	c.gangs = make([][]*lockstep.Gang, len(c.mix))
	for i := range c.mix {
		for range max(1, c.mix[i].Count) {
			c.deck = append(c.deck, i)
		}
	}
	for turned := 0; turned < 2*c.most; {
		turned += c.decide(tb)
	}
	return c
}

// decide places one gang, and releases others while the cluster is too full. It returns
// the thousandths that it turned over.
func (c *sharers) decide(tb testing.TB) int {
	i := c.deck[c.rng.IntN(len(c.deck))]
	h := &c.mix[i]
	var g *lockstep.Gang
	if n := len(c.gangs[i]); n > 0 {
		g, c.gangs[i] = c.gangs[i][n-1], c.gangs[i][:n-1]
	} else {
		g = &lockstep.Gang{ID: lockstep.JobID(fmt.Sprint("g", len(c.of))), Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: h.GPUs, Share: h.Share, CPU: h.CPU}}}}
		c.of[g.ID] = i
	}
	c.req.Gang = g
	v, err := c.s.Fit(&c.req, &c.plan)
	if err != nil {
		tb.Fatal(err)
	}
	amount := h.GPUs * int(h.milli())
	if v.Feasible {
		if err := c.s.Apply(&c.plan); err != nil {
			tb.Fatal(err)
		}
		c.held = append(c.held, g)
		c.used += amount
	} else {
		c.gangs[i] = append(c.gangs[i], g)
	}
	for c.used > c.most || !v.Feasible {
		v.Feasible = true
		k := c.rng.IntN(len(c.held))
		old := c.held[k]
		c.held[k] = c.held[len(c.held)-1]
		c.held = c.held[:len(c.held)-1]
		if err := c.s.Release(old.ID); err != nil {
			tb.Fatal(err)
		}
		j := c.of[old.ID]
		c.used -= c.mix[j].GPUs * int(c.mix[j].milli())
		c.gangs[j] = append(c.gangs[j], old)
	}
	return max(1, amount)
}

// BenchmarkShare measures one small gang of a workload of 35 shapes, and the release of
// another.
func BenchmarkShare(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		for _, rule := range []Rule{RulePrices, RuleGradient} {
			for _, all := range []bool{false, true} {
				b.Run(fmt.Sprintf("nodes=%d/shapes=35/rule=%s/all=%v", nodes, rule, all), func(b *testing.B) {
					c := newSharers(b, nodes, Config{Mix: someMix(), Rule: rule, RankAll: all})
					b.ReportAllocs()
					for b.Loop() {
						c.decide(b)
					}
				})
			}
		}
	}
}
