package main

import (
	"testing"

	"github.com/lockstep-gpu/lockstep"
	"github.com/stretchr/testify/require"
)

func TestReadInputSaysWhatIsWrong(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"empty", "", "EOF"},
		{"not JSON", "{\n\nnodes}", "line 3"},
		{"unknown field", `{"cluster": {"nodes": 1, "gpu": 8}}`, "gpu"},
		{"text behind", `{"cluster": {}} x`, "behind"},
		{"null gang", `{"gangs": [null]}`, "gangs[0] is null"},
		{"bad gang", `{"gangs": [{"id": "a", "roles": []}]}`, `gangs[0] "a": `},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := readInput([]byte(tc.in))
			require.ErrorContains(t, err, tc.want)
		})
	}
}

func TestParseGang(t *testing.T) {
	g, err := parseGang("train=4x8@rack")
	require.NoError(t, err)
	require.Equal(t, &lockstep.Gang{ID: "train", Required: "rack", Roles: []lockstep.Role{{Min: 4, Demand: lockstep.Demand{GPUs: 8}}}}, g)
	for _, bad := range []string{"", "train", "train=", "train=4", "train=x8", "train=4x", "=4x8", "t=0x8", "t=1x65", "a b=1x1"} {
		_, err := parseGang(bad)
		require.ErrorContains(t, err, "want NAME=MEMBERSxGPUS", bad)
	}
}

func TestClusterIsDealtEvenly(t *testing.T) {
	c := clusterSpec{Nodes: 7, Racks: 3, Blocks: 2, GPUs: 2}
	tree, err := c.tree()
	require.NoError(t, err)
	var sizes []int32
	for r := range int32(tree.Domains(2)) {
		first, end := tree.Range(2, r)
		sizes = append(sizes, end-first)
	}
	require.Equal(t, []int32{3, 2, 2}, sizes)
	require.Equal(t, 2, tree.Domains(1))
	_, ok := tree.Slot("r0n2")
	require.True(t, ok)

	for _, bad := range []clusterSpec{
		{},
		{Nodes: -1},
		{Nodes: 2, Racks: 3},
		{Nodes: 4, Racks: 2, Blocks: 3},
		{Nodes: 1, GPUs: 65},
		{Nodes: 1 << 30},
		{Nodes: 1, Racks: -1},
	} {
		_, err := bad.state()
		require.Error(t, err, "%+v", bad)
	}
	for _, bad := range []clusterSpec{
		{Nodes: 1, Cordon: []lockstep.NodeID{"nowhere"}},
		{Nodes: 1, Down: []lockstep.NodeID{"nowhere"}},
		{Nodes: 1, Labels: map[lockstep.NodeID]map[string]string{"nowhere": nil}},
		{Nodes: 1, Taints: map[lockstep.NodeID][]lockstep.Taint{"nowhere": nil}},
	} {
		_, err := bad.state()
		require.ErrorContains(t, err, "nowhere")
	}
}
