package placement

import (
	"bytes"
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

// TestSparesHoldRoom applies a plan with spares: they hold room as members do, come
// back from everywhere in their own list, and have no rank.
func TestSparesHoldRoom(t *testing.T) {
	s := stateOf(t, nodesOf(4), Config{})
	g := gangOf("g", 2, 8)
	g.Roles[0].Spares = 1
	p := &lockstep.Plan{Job: "g", Gang: g, Members: []lockstep.Member{{Node: "n0", Devices: 0xff}, {Node: "n1", Devices: 0xff}}, Spares: []lockstep.Member{{Node: "n2", Devices: 0xff}}}
	require.NoError(t, s.Adopt(p))
	require.NoError(t, s.verify())
	var have lockstep.Plan
	require.True(t, s.Plan("g", &have))
	require.Equal(t, p.Members, have.Members)
	require.Equal(t, p.Spares, have.Spares)
	require.Equal(t, lockstep.Level("rack"), have.Level, "spares do not widen it")
	require.Empty(t, s.Reconcile([]Observed{{"g", p.Members}}))
	require.Equal(t, Usage{Nodes: 4, Open: 4, Idle: 1, Devices: 32, Free: 8, Jobs: 1, Members: 3}, s.Usage())

	saved := bytesOf(t, s)
	again, err := Restore(s.Tree(), Config{}, bytes.NewReader(saved))
	require.NoError(t, err)
	require.Equal(t, saved, bytesOf(t, again))
	require.NoError(t, again.verify())
	require.Equal(t, saved, bytesOf(t, s.View()))

	three := stateOf(t, nodesOf(2), Config{}).Tree() // n2, with the spare, leaves
	displaced, err := s.Rebase(three, nil)
	require.NoError(t, err)
	require.Empty(t, displaced, "a spare has no rank to lose")
	require.Empty(t, s.Lost())
	require.Zero(t, s.Usage().Lost)
	_, err = s.Rebase(again.Tree(), nil)
	require.NoError(t, err)
	require.True(t, s.Plan("g", &have))
	require.Equal(t, p.Spares, have.Spares)
	require.NoError(t, s.Release("g"))
	require.Equal(t, 32, s.Usage().Free)

	p.Spares = append(p.Spares, lockstep.Member{Node: "n3", Devices: 0xff})
	require.ErrorIs(t, s.Adopt(p), lockstep.ErrInvalid, "more than the role may have")
	p.Spares = []lockstep.Member{{Node: "n0", Devices: 0xff}}
	require.ErrorIs(t, s.Adopt(p), lockstep.ErrConflict, "a member is there")
	require.NoError(t, s.verify())
}
