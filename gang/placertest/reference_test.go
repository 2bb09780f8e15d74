package placertest_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/gang"
	"github.com/lockstep-gpu/lockstep/gang/placertest"
)

func TestReferenceIsAPlacer(t *testing.T) {
	for _, size := range [][3]int{{1, 2, 2}, {2, 3, 4}, {3, 1, 8}, {1, 4, 1}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			placertest.TestPlacer(t, func() gang.Placer { return placertest.NewReference(size[0], size[1], size[2], 0) })
		})
	}
}

func TestReferenceTriesAllWays(t *testing.T) {
	// A small member first on the node that the big one needs would spoil it.
	p := placertest.NewReference(1, 2, 4, 0)
	one := &lockstep.Gang{ID: "one", Roles: []lockstep.Role{{Min: 1, Demand: lockstep.Demand{GPUs: 2}}}}
	var plan lockstep.Plan
	_, err := p.Fit(&lockstep.Request{Gang: one, Exclude: []lockstep.NodeID{"n0"}}, &plan)
	require.NoError(t, err)
	require.NoError(t, p.Apply(&plan))
	g := &lockstep.Gang{ID: "g", Roles: []lockstep.Role{
		{Name: "small", Min: 2, Demand: lockstep.Demand{GPUs: 1}},
		{Name: "big", Min: 1, Demand: lockstep.Demand{GPUs: 4}},
	}}
	v, err := p.Fit(&lockstep.Request{Gang: g}, &plan)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	require.Equal(t, "n0", string(plan.Members[2].Node))
}

func TestReferenceKeepsGroupsOnANode(t *testing.T) {
	p := placertest.NewReference(1, 3, 3, 0)
	g := &lockstep.Gang{ID: "g", Roles: []lockstep.Role{{Min: 4, Max: 6, Demand: lockstep.Demand{GPUs: 1}, Inner: lockstep.Inner{Size: 2}}}}
	var plan lockstep.Plan
	v, err := p.Fit(&lockstep.Request{Gang: g}, &plan)
	require.NoError(t, err)
	require.True(t, v.Feasible)
	require.Len(t, plan.Members, 6)
	for i := 0; i < 6; i += 2 {
		require.Equal(t, plan.Members[i].Node, plan.Members[i+1].Node)
	}
}
