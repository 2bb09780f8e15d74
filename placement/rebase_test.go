package placement

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/stretchr/testify/require"
)

// TestChurnKeepsEveryAllocation lets nodes join and leave at random while gangs
// hold devices: what a job holds never changes, and counters stay exact.
func TestChurnKeepsEveryAllocation(t *testing.T) {
	steps := 100_000
	if testing.Short() {
		steps = 5_000
	}
	littered(t)
	rng := rand.New(rand.NewPCG(3, 3))
	shape := topology.NVSwitch8()
	var all, there, gone []topology.Node
	for i := range 48 {
		all = append(all, topology.Node{
			ID: lockstep.NodeID(fmt.Sprint("n", i)), Shape: shape,
			Path: []string{fmt.Sprint("b", i/24), fmt.Sprint("r", i/6)},
		})
	}
	tree, err := topology.New([]topology.Level{{Name: "block"}, {Name: "rack"}}, all)
	require.NoError(t, err)
	s, err := New(tree, Config{})
	require.NoError(t, err)
	want := map[lockstep.JobID]*lockstep.Plan{}
	for i := range 40 {
		g := gangOf(lockstep.JobID(fmt.Sprint("j", i)), 1+rng.IntN(6), 1<<rng.IntN(3))
		g.Labels = map[string]string{"n": fmt.Sprint(i % 3)}
		want[g.ID] = s.mustPlace(t, g)
	}
	probe := gangOf("probe", 4, 2)
	probe.Constraints.Affinity = []lockstep.Affinity{{Match: map[string]string{"n": "1"}, Level: "rack"}}
	there = all
	var plan lockstep.Plan
	kept := 0
	for step := range steps {
		if len(there) > 1 && (len(gone) == 0 || rng.IntN(2) == 0) {
			i := rng.IntN(len(there))
			n := there[i]
			there = append(append([]topology.Node{}, there[:i]...), there[i+1:]...)
			gone = append(gone, n)
			tree, err = tree.With(topology.Change{Kind: topology.Leave, Node: n})
		} else {
			i := rng.IntN(len(gone))
			n := gone[i]
			gone[i] = gone[len(gone)-1]
			gone = gone[:len(gone)-1]
			there = append(there, n)
			tree, err = tree.With(topology.Change{Kind: topology.Join, Node: n})
		}
		require.NoError(t, err)
		if _, ok := tree.Changes(s.Tree()); ok {
			kept++
		}
		_, err := s.Rebase(tree, nil)
		require.NoError(t, err)
		if step%50 == 0 {
			_, err = s.Fit(&lockstep.Request{Gang: probe}, &plan)
			require.NoError(t, err)
			require.NoError(t, s.verify())
			for id, p := range want { // in any order: all are compared
				require.True(t, s.Plan(id, &plan))
				require.Equal(t, p.Members, plan.Members)
			}
		}
	}
	require.Greater(t, kept, steps*9/10, "rebasing was hardly ever O(changed)")
	require.Len(t, s.Jobs(), len(want))
	for id := range want { // in any order: all go
		require.NoError(t, s.Release(id))
	}
	require.Zero(t, s.Usage().Lost)
	require.Empty(t, s.away)
	require.Equal(t, s.Usage().Devices, s.Usage().Free)
	require.NoError(t, s.verify())
}

func TestRebaseDisplacesAndTakesBack(t *testing.T) {
	nodes := nodesOf(4)
	s := stateOf(t, nodes, Config{})
	s.mustPlace(t, gangOf("a", 4, 8))
	old := s.Tree()
	next, err := old.With(topology.Change{Kind: topology.Leave, Node: nodes[1]}, topology.Change{Kind: topology.Leave, Node: nodes[2]})
	require.NoError(t, err)
	lost, err := s.Rebase(next, nil)
	require.NoError(t, err)
	require.Equal(t, []Displaced{{"a", 1, "n1"}, {"a", 2, "n2"}}, lost)
	require.Equal(t, lost, s.Lost())
	require.Equal(t, 2, s.Usage().Lost)

	lost, err = s.Rebase(old, nil)
	require.NoError(t, err)
	require.Empty(t, lost)
	require.Empty(t, s.Lost())
	require.NoError(t, s.Release("a"))
	require.Equal(t, 32, s.Usage().Free)
}

func TestRebaseKeepsWhatANodeIs(t *testing.T) {
	nodes := nodesOf(4)
	s := stateOf(t, nodes, Config{Nodes: []Node{{ID: "n0", Labels: map[string]string{"k": "v"}}, {ID: "n1", Slots: 3}}})
	require.NoError(t, s.Cordon("n0"))
	require.NoError(t, s.SetPenalty("n0", 5))
	nodes[0].Path = []string{"r1"} // n0 moves, which needs a new layout
	next, err := s.Tree().With(topology.Change{Kind: topology.Recable, Node: nodes[0]})
	require.NoError(t, err)
	_, err = s.Rebase(next, []Node{{ID: "n1", Slots: 7}})
	require.NoError(t, err)
	n0, _ := s.Node("n0")
	require.False(t, n0.Open)
	require.Equal(t, int32(5), n0.Penalty)
	require.Equal(t, "v", n0.Node.Labels["k"])
	n1, _ := s.Node("n1")
	require.Equal(t, 7, n1.Node.Slots)

	mark := s.Mark()
	_, err = s.Rebase(next, []Node{{ID: "n1", Slots: 8}})
	require.NoError(t, err)
	require.ErrorIs(t, s.Rollback(mark), lockstep.ErrStale)
	n1, _ = s.Node("n1")
	require.Equal(t, 8, n1.Node.Slots)
}

// BenchmarkRebase shows O(changed): one node of many leaves and joins.
func BenchmarkRebase(b *testing.B) {
	for _, nodes := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			c := newChurn(b, nodes)
			n, _ := c.s.Tree().Node(5)
			with := c.s.Tree()
			without, err := with.With(topology.Change{Kind: topology.Leave, Node: n})
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.s.Rebase(without, nil); err != nil {
					b.Fatal(err)
				}
				if _, err := c.s.Rebase(with, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
