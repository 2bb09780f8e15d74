package main

import (
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// auditor passes calls on to a state and checks every plan against books of its own.
type auditor struct {
	t     *testing.T
	state *placement.State
	tree  *topology.Tree
	taken map[lockstep.NodeID]lockstep.JobID
	plans map[lockstep.JobID][]lockstep.NodeID
	left  []lockstep.JobID // who was released, in order
}

func (a *auditor) Fit(r *lockstep.Request, out *lockstep.Plan) (lockstep.Verdict, error) {
	return a.state.Fit(r, out)
}

func (a *auditor) Apply(p *lockstep.Plan) error {
	level, ok := a.tree.LevelIndex(p.Gang.Required)
	require.True(a.t, ok)
	require.Len(a.t, p.Members, p.Gang.Roles[0].Min)
	domains := make(map[int32]bool)
	for _, m := range p.Members {
		require.Equal(a.t, nodeGPUs, m.Devices.Len())
		require.Empty(a.t, a.taken[m.Node], "%s is held", m.Node)
		a.taken[m.Node] = p.Job
		a.plans[p.Job] = append(a.plans[p.Job], m.Node)
		slot, ok := a.tree.Slot(m.Node)
		require.True(a.t, ok)
		domains[a.tree.DomainOf(level, slot)] = true
	}
	require.Len(a.t, domains, 1, "%s sits in one %s", p.Job, p.Gang.Required)
	return a.state.Apply(p)
}

func (a *auditor) Release(job lockstep.JobID) error {
	for _, node := range a.plans[job] {
		delete(a.taken, node)
	}
	delete(a.plans, job)
	a.left = append(a.left, job)
	return a.state.Release(job)
}

func TestChurnKeepsItsBooks(t *testing.T) {
	for _, release := range []order{random, oldest} {
		t.Run(string(release), func(t *testing.T) {
			const nodes = 1000
			tree, err := newTree(nodes)
			require.NoError(t, err)
			require.Equal(t, 63, tree.Domains(2), "the last rack holds 8 nodes")
			require.Equal(t, 4, tree.Domains(1))
			state, err := placement.New(tree, placement.Config{})
			require.NoError(t, err)
			a := &auditor{t: t, state: state, tree: tree, taken: make(map[lockstep.NodeID]lockstep.JobID), plans: make(map[lockstep.JobID][]lockstep.NodeID)}
			c := newChurn(workload{nodes: nodes, percent: 70, release: release, shapes: uniform(), seed: 1}, a)
			require.NoError(t, c.warm(5))
			require.GreaterOrEqual(t, c.placed, 5*nodes)
			for range 500 {
				require.NoError(t, c.step())
				require.Equal(t, c.held, len(a.taken))
				require.LessOrEqual(t, c.held, nodes*70/100)
			}
			require.Greater(t, c.held, nodes*70/100-2*64, "the cluster stays as full as it is meant to")
			require.Less(t, c.refusedShare(), 0.5)
			if release == oldest {
				for i := 1; i < len(a.left); i++ {
					require.Less(t, number(t, a.left[i-1]), number(t, a.left[i]), "the oldest leaves first")
				}
			}
		})
	}
}

// number returns the place of a job in the order of drawing.
func number(t *testing.T, id lockstep.JobID) int {
	n := 0
	for _, c := range []byte(id[len("job-"):]) {
		require.True(t, c >= '0' && c <= '9')
		n = n*10 + int(c-'0')
	}
	return n
}

func TestShapesInTurn(t *testing.T) {
	c := newChurn(workload{nodes: 100, percent: 70, shapes: uniform(), inTurn: true}, nil)
	var sizes []int
	for range 8 {
		h := c.draw()
		require.Equal(t, c.shapes[h.shape].nodes, h.gang.Roles[0].Min)
		sizes = append(sizes, h.gang.Roles[0].Min)
	}
	require.Equal(t, []int{1, 2, 4, 8, 16, 32, 64, 1}, sizes)
	require.Equal(t, levelRack, uniform()[4].required)
	require.Equal(t, levelBlock, uniform()[5].required)
}
