package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/stretchr/testify/require"
)

// benchTree has racks of 16 nodes of 8 devices, 16 racks a block.
func benchTree(tb testing.TB, nodes int) *topology.Tree {
	tree, err := topology.Uniform(topology.UniformConfig{
		Levels: []topology.Level{{Name: "block"}, {Name: "rack"}},
		Fanout: []int{(nodes + 255) / 256, 16, 16},
		Shape:  topology.NVSwitch8(),
	})
	require.NoError(tb, err)
	return tree
}

// churn keeps a cluster about 70 % full with gangs of whole nodes, sizes
// uniform on 1, 2, 4 ... 64, in one rack up to 16 nodes and else in one block.
type churn struct {
	s     *State
	rng   *rand.Rand
	gangs []*lockstep.Gang // a pool, used again once released
	held  []*lockstep.Gang
	req   lockstep.Request
	plan  lockstep.Plan
	used  int
	room  int
	fits  int
}

func newChurn(tb testing.TB, nodes int) *churn {
	tree := benchTree(tb, nodes)
	s, err := New(tree, Config{})
	require.NoError(tb, err)
	c := &churn{s: s, rng: rand.New(rand.NewPCG(1, uint64(nodes))), room: tree.Nodes() * 7 / 10}
	for i := range nodes {
		g := &lockstep.Gang{ID: lockstep.JobID(fmt.Sprintf("job-%06d", i)), Roles: make([]lockstep.Role, 1)}
		g.Roles[0].Demand.GPUs = 8
		c.gangs = append(c.gangs, g)
	}
	for turned := 0; turned < 10*nodes; {
		turned += c.decide(tb)
	}
	return c
}

// decide asks for one gang, applies it where it fits, and releases the oldest
// or a random one while the cluster is fuller than 70 %.
func (c *churn) decide(tb testing.TB) int {
	n := len(c.gangs) - 1
	g := c.gangs[n]
	size := 1 << c.rng.IntN(7)
	g.Roles[0].Min = size
	g.Required = "rack"
	if size > 16 {
		g.Required = "block"
	}
	c.req.Gang = g
	v, err := c.s.Fit(&c.req, &c.plan)
	if err != nil {
		tb.Fatal(err)
	}
	if v.Feasible {
		if err := c.s.Apply(&c.plan); err != nil {
			tb.Fatal(err)
		}
		c.fits++
		c.used += size
		c.gangs = c.gangs[:n]
		c.held = append(c.held, g)
	}
	for c.used > c.room || !v.Feasible && len(c.held) > 0 {
		v.Feasible = true
		i := c.rng.IntN(len(c.held))
		old := c.held[i]
		c.held[i] = c.held[len(c.held)-1]
		c.held = c.held[:len(c.held)-1]
		if err := c.s.Release(old.ID); err != nil {
			tb.Fatal(err)
		}
		c.used -= old.Roles[0].Min
		c.gangs = append(c.gangs, old)
	}
	return size
}

func BenchmarkDecision(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d/gpus=8", nodes), func(b *testing.B) {
			c := newChurn(b, nodes)
			b.ReportAllocs()
			c.fits = 0
			n := 0
			for b.Loop() {
				c.decide(b)
				n++
			}
			b.ReportMetric(float64(c.fits)/float64(n), "fits/op")
		})
	}
}

func BenchmarkLargeGang(b *testing.B) {
	for _, nodes := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d/members=1024/inner=8", nodes), func(b *testing.B) {
			c := newChurn(b, nodes)
			g := &lockstep.Gang{ID: "large", Roles: []lockstep.Role{{Min: 1024, Demand: lockstep.Demand{GPUs: 8}, Inner: lockstep.Inner{Size: 8, Level: "rack"}}}}
			r := &lockstep.Request{Gang: g}
			b.ReportAllocs()
			for b.Loop() {
				v, err := c.s.Fit(r, &c.plan)
				if err != nil || !v.Feasible {
					b.Fatal(v, err)
				}
				if err := c.s.Apply(&c.plan); err != nil {
					b.Fatal(err)
				}
				if err := c.s.Release(g.ID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRefusal measures what a gang costs that does not fit, on a cluster
// of whole-node gangs that is 70 % full.
func BenchmarkRefusal(b *testing.B) {
	pair := func(a, c lockstep.Role, required lockstep.Level) *lockstep.Gang {
		a.Name, c.Name = "a", "b"
		return &lockstep.Gang{ID: "g", Required: required, Roles: []lockstep.Role{a, c}}
	}
	of := func(n, gpus int) lockstep.Role {
		return lockstep.Role{Min: n, Demand: lockstep.Demand{GPUs: gpus}}
	}
	spread := pair(of(10, 8), of(60, 3), "rack") // each fits a rack of 16 nodes, together they do not
	tests := []struct {
		name string
		gang *lockstep.Gang
	}{
		{"one role of a rack", &lockstep.Gang{ID: "g", Required: "rack", Roles: []lockstep.Role{of(17, 8)}}},
		{"two roles of a node", pair(of(1, 4), of(5, 1), lockstep.LevelNode)},
		{"two roles that pack badly", pair(of(2, 5), of(11, 1), lockstep.LevelNode)},
		{"two roles of a rack", spread},
		{"two roles of the cluster", pair(of(100_000, 8), of(1, 1), "")},
		{"two roles, elastic", func() *lockstep.Gang {
			g := pair(of(1, 4), of(1, 1), lockstep.LevelNode)
			g.Roles[1].Max = 8
			return g
		}()},
	}
	for _, nodes := range []int{10_000, 100_000} {
		c := newChurn(b, nodes)
		for _, test := range tests {
			b.Run(fmt.Sprintf("nodes=%d/%s", nodes, test.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.s.Fit(&lockstep.Request{Gang: test.gang}, &c.plan); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkManyKinds asks for more kinds of demand in turn than stay indexed.
func BenchmarkManyKinds(b *testing.B) {
	for _, kinds := range []int{48, 65} {
		b.Run(fmt.Sprintf("nodes=10000/kinds=%d", kinds), func(b *testing.B) {
			s, err := New(benchTree(b, 10_000), Config{})
			require.NoError(b, err)
			var plan lockstep.Plan
			var gangs []*lockstep.Gang
			for k := range kinds {
				g := gangOf("g", 1, 1+k%8)
				g.Roles[0].Demand.CPU = lockstep.MilliCPU(1 + k)
				gangs = append(gangs, g)
			}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				g := gangs[n%kinds]
				n++
				if v, err := s.Fit(&lockstep.Request{Gang: g}, &plan); err != nil || !v.Feasible {
					b.Fatal(v, err)
				}
				if s.Apply(&plan) != nil || s.Release(g.ID) != nil {
					b.Fatal("refused")
				}
			}
		})
	}
}
