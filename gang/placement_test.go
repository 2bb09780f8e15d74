package gang_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
	"github.com/lockstep-gpu/lockstep/placement"
	"github.com/lockstep-gpu/lockstep/topology"
)

// placed is package placement as a cluster of a storm.
type placed struct {
	*placement.State
	nodes []lockstep.NodeID
}

func (p *placed) Nodes() []lockstep.NodeID { return p.nodes }

func (p *placed) Plan(job lockstep.JobID) *lockstep.Plan {
	var plan lockstep.Plan
	if !p.State.Plan(job, &plan) {
		return nil
	}
	return &plan
}

func place(racks, nodes, devices int) cluster {
	shape, err := topology.UniformShape(devices, topology.NVLink(1))
	if err != nil {
		panic(err)
	}
	tree, err := topology.Uniform(topology.UniformConfig{
		Levels: []topology.Level{{Name: placertest.Rack}}, Fanout: []int{racks, nodes}, Shape: shape,
	})
	if err != nil {
		panic(err)
	}
	state, err := placement.New(tree, placement.Config{})
	if err != nil {
		panic(err)
	}
	p := &placed{State: state}
	for i := range racks * nodes {
		p.nodes = append(p.nodes, lockstep.NodeID(fmt.Sprintf("n%d", i)))
	}
	return p
}

func TestPlacementKeepsThePlacersContract(t *testing.T) {
	placertest.TestPlacer(t, func() gang.Placer { return place(2, 3, 4) })
}

func TestTakingStormsOnPlacementKeepTheInvariants(t *testing.T) {
	seeds := 24
	if testing.Short() {
		seeds = 6
	}
	taken, patched := 0, 0
	for seed := range seeds {
		w := newTakingStorm(uint64(seed)+200, 0.01, place)
		require.NoError(t, w.run(1000), "seed %d", seed)
		require.NoError(t, w.calm(), "seed %d, calm", seed)
		taken += w.hunts
		patched += w.patched
	}
	t.Logf("%d storms: %d made room, %d had members replaced", seeds, taken, patched)
	require.NotZero(t, taken)
}

func TestStormsOnPlacementKeepTheInvariants(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		w := newStorm(uint64(seed), 0.01, place)
		require.NoError(t, w.run(1000), "seed %d", seed)
		require.NoError(t, w.calm(), "seed %d, calm", seed)
	}
}
