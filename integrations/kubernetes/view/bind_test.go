package view

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/placement"
)

// planOf has a placer find a plan for s.
func planOf(t testing.TB, cl *Cluster, s *State, prefer *lockstep.Plan) *lockstep.Plan {
	t.Helper()
	p, err := placement.New(cl.Tree, placement.Config{Nodes: cl.Nodes, Layouts: cl.Layouts})
	require.NoError(t, err)
	var plan lockstep.Plan
	v, err := p.Fit(&lockstep.Request{Gang: s.Gang, Prefer: prefer}, &plan)
	require.NoError(t, err)
	require.True(t, v.Feasible, "%s", v)
	return &plan
}

func TestBindingsCarryRanks(t *testing.T) {
	cl := cluster(t, racks(), Inputs{Nodes: []*corev1.Node{newNode("n1"), newNode("n2")}})
	a := newAssembler(t, racks())
	for i := range 10 {
		require.NoError(t, a.Upsert(member("g", 10, i)))
	}
	s := state(t, a, "ns/g")
	plan := planOf(t, &cl, s, nil)
	got, err := Bindings(s, plan, 7)
	require.NoError(t, err)
	require.Len(t, got, 10)
	for i, b := range got {
		require.Equal(t, Binding{
			Namespace: "ns", Name: "g-" + number(i), UID: member("g", 10, i).UID, Node: plan.Members[i].Node, Member: i,
			Annotations: map[string]string{KeyRank: number(i), KeyRoleRank: number(i), KeyWorldSize: "10", KeyAttempt: "7"},
		}, b)
	}
	o := got[3].Object()
	require.Equal(t, "ns", o.Namespace)
	require.Equal(t, "g-3", o.Name)
	require.Equal(t, got[3].UID, o.UID)
	require.Equal(t, corev1.ObjectReference{Kind: "Node", Name: string(got[3].Node)}, o.Target)
	require.Equal(t, "3", o.Annotations[KeyRank])
}

func TestBindingsTakeNoMoreThanThePlan(t *testing.T) {
	a := newAssembler(t, Config{}, member("g", 2, 0), bound(member("g", 2, 1), "n1"), member("g", 2, 2), bound(member("g", 2, 3), "n2"))
	s := state(t, a, "ns/g")
	plan := &lockstep.Plan{Job: "ns/g", Members: []lockstep.Member{{Node: "n2"}, {Node: "n0"}, {Node: "n1"}}}
	got, err := Bindings(s, plan, 1)
	require.NoError(t, err)
	require.Len(t, got, 1, "bound ones stay, then the first")
	require.Equal(t, "g-0", got[0].Name)
	require.Equal(t, lockstep.NodeID("n0"), got[0].Node)
	require.Equal(t, 1, got[0].Member)
	require.Equal(t, "0", got[0].Annotations[KeyRank])
}

func TestBindingsOfRoles(t *testing.T) {
	role := func(name string, i int) *corev1.Pod { return member("g", 3, i, Prefix+"role", name) }
	s := state(t, newAssembler(t, Config{}, role("b", 0), role("a", 1), role("b", 2)), "ns/g")
	plan := &lockstep.Plan{Job: "ns/g", Members: []lockstep.Member{{Node: "n0"}, {Role: 1, Node: "n1"}, {Role: 1, Node: "n2"}}}
	got, err := Bindings(s, plan, 1)
	require.NoError(t, err)
	require.Equal(t, []string{"g-1", "g-0", "g-2"}, []string{got[0].Name, got[1].Name, got[2].Name})
	require.Equal(t, []string{"0", "1", "2"}, []string{got[0].Annotations[KeyRank], got[1].Annotations[KeyRank], got[2].Annotations[KeyRank]})
	require.Equal(t, []string{"0", "0", "1"}, []string{got[0].Annotations[KeyRoleRank], got[1].Annotations[KeyRoleRank], got[2].Annotations[KeyRoleRank]})
}

func TestBindingsOfPlansThatDoNotSuit(t *testing.T) {
	s := state(t, newAssembler(t, Config{}, member("g", 2, 0), bound(member("g", 2, 1), "n1")), "ns/g")
	member := func(nodes ...lockstep.NodeID) (out []lockstep.Member) {
		for _, n := range nodes {
			out = append(out, lockstep.Member{Node: n})
		}
		return out
	}
	for name, c := range map[string]struct { // each case stands alone
		plan lockstep.Plan
		kind error
	}{
		"other job":  {lockstep.Plan{Job: "ns/h"}, lockstep.ErrStale},
		"more":       {lockstep.Plan{Job: "ns/g", Members: member("n1", "n1", "n1")}, lockstep.ErrStale},
		"fewer":      {lockstep.Plan{Job: "ns/g"}, lockstep.ErrConflict},
		"elsewhere":  {lockstep.Plan{Job: "ns/g", Members: member("n0", "n2")}, lockstep.ErrConflict},
		"other role": {lockstep.Plan{Job: "ns/g", Members: append(member("n0", "n1"), lockstep.Member{Role: 5})}, lockstep.ErrStale},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Bindings(s, &c.plan, 1)
			require.ErrorIs(t, err, c.kind)
			require.ErrorContains(t, err, "ns/g")
			require.Empty(t, got)
		})
	}
	s = state(t, newAssembler(t, Config{}, newPod("p", Prefix+"gang", "g")), "ns/g")
	_, err := Bindings(s, &lockstep.Plan{Job: "ns/g"}, 1)
	require.ErrorIs(t, err, lockstep.ErrStale)
}

func TestEndedPodsKeepTheirRank(t *testing.T) {
	a := newAssembler(t, Config{}, phase(bound(member("g", 3, 0), "gone"), corev1.PodSucceeded), bound(member("g", 3, 1), "n1"), member("g", 3, 2))
	s := state(t, a, "ns/g")
	got, err := Bindings(s, &lockstep.Plan{Job: "ns/g", Members: []lockstep.Member{{Node: "n1"}, {Node: "n2"}, {Node: "n3"}}}, 2)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "2", got[0].Annotations[KeyRank])
	require.Equal(t, lockstep.NodeID("n2"), got[0].Node)
}

// A gang of which a pod was lost is completed around those that stay.
func TestCompletionLeavesBoundPodsWhereTheyAre(t *testing.T) {
	cl := cluster(t, racks(), Inputs{Nodes: []*corev1.Node{newNode("n1"), newNode("n2"), newNode("n3")}})
	a := newAssembler(t, racks())
	for i := range 12 {
		p := member("g", 12, i)
		if i != 5 {
			node := "n3"
			if i > 6 {
				node = "n2"
			}
			p.Annotations[KeyRoleRank] = number(i)
			bound(p, node)
		}
		require.NoError(t, a.Upsert(p))
	}
	s := state(t, a, "ns/g")
	require.Equal(t, Partial, s.Phase)
	there, err := NewSeats(&cl, nil).Observe(s)
	require.NoError(t, err)
	require.Len(t, there.Members, 11)
	plan := planOf(t, &cl, s, there)
	got, err := Bindings(s, plan, 2)
	require.NoError(t, err)
	require.Len(t, got, 1)
	require.Equal(t, "g-5", got[0].Name)
	require.Equal(t, "5", got[0].Annotations[KeyRank])
}
