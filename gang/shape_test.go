package gang

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// A field more in one of these has to be looked at by simpleShape.
func TestShapesSeeEveryField(t *testing.T) {
	require.Equal(t, 8, reflect.TypeFor[lockstep.Demand]().NumField())
	require.Equal(t, 7, reflect.TypeFor[lockstep.Role]().NumField())
	require.Equal(t, 3, reflect.TypeFor[lockstep.Constraints]().NumField())
	require.Equal(t, 15, reflect.TypeFor[lockstep.Gang]().NumField()) // Canary says how long a hold is, as Hold and Walltime do
}

func TestSimpleShapesAreAsManyAsTheirTexts(t *testing.T) {
	gang := func(change func(*lockstep.Gang)) *lockstep.Gang {
		g := &lockstep.Gang{ID: "a", Roles: []lockstep.Role{{Min: 2, Demand: lockstep.Demand{GPUs: 1}}}}
		change(g)
		return g
	}
	all := []*lockstep.Gang{
		gang(func(*lockstep.Gang) {}),
		gang(func(g *lockstep.Gang) { g.Roles[0].Name = "x" }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Min = 3 }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Max = 3 }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Inner.Size = 2 }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Demand.GPUs = 2 }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Demand.Share = 500 }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Demand.GPUMemory = 1 }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Demand.CPU = 1 }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Demand.Profile = "1g.10gb" }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Spares = 1 }),
		gang(func(g *lockstep.Gang) { g.Preemption = lockstep.PreemptNever }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Demand.Memory = 1 }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Demand.RDMA = 1 }),
		gang(func(g *lockstep.Gang) { g.Required = "rack" }),
		gang(func(g *lockstep.Gang) { g.Preferred = "rack" }),
		gang(func(g *lockstep.Gang) { g.Strategy = lockstep.Spread }),
		gang(func(g *lockstep.Gang) { g.Capabilities.Shareable = true }),
		gang(func(g *lockstep.Gang) { g.Roles = append(g.Roles, lockstep.Role{Name: "y", Min: 1}) }),
	}
	simples, texts := map[simple]bool{}, map[string]bool{}
	for _, g := range all {
		k, ok := simpleShape(g)
		require.True(t, ok)
		simples[k] = true
		text, _ := shapeKey(g)
		texts[text] = true
	}
	require.Len(t, simples, len(all))
	require.Len(t, texts, len(all))
	alike := gang(func(g *lockstep.Gang) { g.ID, g.Tenant, g.Priority, g.Walltime = "b", "t", 1, 5 })
	k, _ := simpleShape(alike)
	require.True(t, simples[k])
	for _, g := range []*lockstep.Gang{
		gang(func(g *lockstep.Gang) { g.Constraints.Affinity = make([]lockstep.Affinity, 1) }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Constraints.Selector = make([]lockstep.Requirement, 1) }),
		gang(func(g *lockstep.Gang) { g.Roles[0].Demand.Classes = []lockstep.DeviceClass{"h100"} }),
		gang(func(g *lockstep.Gang) { g.Roles = make([]lockstep.Role, 3) }),
	} {
		_, ok := simpleShape(g)
		require.False(t, ok)
	}
}
