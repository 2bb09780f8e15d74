package lockstep_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

func TestVerdictText(t *testing.T) {
	for _, c := range []struct {
		v    lockstep.Verdict
		want string
	}{
		{lockstep.Verdict{}, "does not fit, 0 of 0 members"},
		{lockstep.Verdict{Feasible: true, Fit: 8, Want: 8}, "fits, 8 of 8 members"},
		{lockstep.Verdict{Feasible: true, Fit: 4, Want: 8, Level: "rack", Domain: "r1", Resource: "gpu", Requested: 1}, "fits, 4 of 8 members in rack r1"},
		{lockstep.Verdict{Reason: lockstep.ReasonBusy, Fit: 1, Want: 2, Domain: "r1"}, "does not fit: busy, 1 of 2 members in r1"},
		{
			lockstep.Verdict{Reason: lockstep.ReasonQuota, Want: 2, Resource: "memory", Requested: 3 << 30, Available: -1 << 20},
			"does not fit: quota, 0 of 2 members, memory asked 3Gi free -1Mi",
		},
	} {
		require.Equal(t, c.want, c.v.String())
		require.Equal(t, c.want, fmt.Sprint(c.v))
	}
}

func TestChangeText(t *testing.T) {
	for _, c := range []struct {
		c    lockstep.Change
		want string
	}{
		{lockstep.Change{Kind: lockstep.ChangeFree, Level: "rack", Domain: "r1", Nodes: []lockstep.NodeID{"a", "b"}}, "free a b in rack r1"},
		{lockstep.Change{Kind: lockstep.ChangeFree, Nodes: []lockstep.NodeID{"a"}}, "free a"},
		{lockstep.Change{Kind: lockstep.ChangeRelax, Level: "block"}, "require level block"},
		{lockstep.Change{Kind: lockstep.ChangeRelax}, "require no level"},
		{lockstep.Change{Kind: lockstep.ChangeShrink, Amount: 1}, "ask for 1 member"},
		{lockstep.Change{Kind: lockstep.ChangeShrink, Amount: math.MaxInt64}, "ask for 9223372036854775807 members"},
		{lockstep.Change{Kind: lockstep.ChangeOpen, Nodes: []lockstep.NodeID{"a"}}, "open a"},
		{lockstep.Change{Kind: lockstep.ChangeTolerate}, "drop the constraints"},
		{lockstep.Change{Kind: lockstep.ChangeAdd, Resource: "gpu/h100", Amount: 1500, Domain: "r1"}, "add 1500m gpu/h100 to r1"},
		{lockstep.Change{Kind: lockstep.ChangeAdd, Resource: "rdma", Amount: 2}, "add 2 rdma"},
		{lockstep.Change{Kind: lockstep.ChangeWait}, "wait for room that is due back"},
		{lockstep.Change{Kind: lockstep.ChangeEvict, Jobs: []lockstep.JobID{"a", "b"}}, "stop a b"},
		{lockstep.Change{Kind: lockstep.ChangeMove, Jobs: []lockstep.JobID{"a"}, Level: "rack", Domain: "r1"}, "move a out of rack r1"},
		{lockstep.Change{Kind: "pray"}, "pray"},
	} {
		require.Equal(t, c.want, c.c.String())
	}
}

func TestExplanationSortIsTheSameForEveryOrder(t *testing.T) {
	counts := []lockstep.ReasonCount{
		{Reason: "busy", Detail: "gpu", Nodes: 2},
		{Reason: "busy", Detail: "cpu", Nodes: 3},
		{Reason: "busy", Detail: "gpu", Nodes: 1},
		{Reason: "unhealthy", Nodes: 3},
		{Reason: "constraint", Detail: "taint x", Nodes: math.MaxInt},
		{Reason: "quota", Nodes: 0},
	}
	want := []lockstep.ReasonCount{
		{Reason: "constraint", Detail: "taint x", Nodes: math.MaxInt},
		{Reason: "busy", Detail: "cpu", Nodes: 3},
		{Reason: "busy", Detail: "gpu", Nodes: 3},
		{Reason: "unhealthy", Nodes: 3},
		{Reason: "quota", Nodes: 0},
	}
	r := rand.New(rand.NewPCG(6, 6))
	for range 200 {
		e := lockstep.Explanation{Counts: append([]lockstep.ReasonCount(nil), counts...)}
		r.Shuffle(len(e.Counts), func(i, j int) { e.Counts[i], e.Counts[j] = e.Counts[j], e.Counts[i] })
		e.Sort()
		require.Equal(t, want, e.Counts)
		e.Sort()
		require.Equal(t, want, e.Counts, "sorting twice changes nothing")
	}
	var empty lockstep.Explanation
	empty.Sort()
	require.Equal(t, lockstep.Explanation{}, empty)
	require.Equal(t, ": does not fit, 0 of 0 members", empty.String())
}
