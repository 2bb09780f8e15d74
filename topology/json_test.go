package topology

import (
	"encoding/json"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// roundTrip reads text and writes it again.
func roundTrip(t *testing.T, tree *Tree) *Tree {
	t.Helper()
	b, err := json.Marshal(tree)
	require.NoError(t, err)
	require.Equal(t, string(b), text(t, tree), "nothing for encoding/json to compact or escape")
	var read Tree
	require.NoError(t, json.Unmarshal(b, &read))
	require.Equal(t, string(b), text(t, &read))
	return &read
}

func TestJSONKeepsSlotsAndVacancies(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	for range 150 {
		tree, levels, nodes := randomTree(t, r, 30)
		c := churn{tree: tree, levels: levels, nodes: nodes, born: len(nodes)}
		for range 4 {
			read := roundTrip(t, c.tree)
			checkTree(t, read)
			require.Equal(t, c.tree.Slots(), read.Slots())
			for slot := range int32(read.Slots()) {
				a, aok := c.tree.Node(slot)
				b, bok := read.Node(slot)
				require.Equal(t, aok, bok)
				require.True(t, a.Shape.Equal(b.Shape))
				a.Shape, b.Shape = nil, nil
				require.Equal(t, a, b)
			}
			for level := range read.Levels() {
				require.Equal(t, c.tree.LevelAt(level), read.LevelAt(level))
				require.Equal(t, c.tree.first[level], read.first[level])
			}
			_, ok := read.Changes(c.tree)
			require.False(t, ok)
			// What comes next is decided alike.
			var changes []Change
			for range r.IntN(5) {
				changes = append(changes, c.change(r))
			}
			var err error
			c.tree, err = c.tree.With(changes...)
			require.NoError(t, err)
			read, err = read.With(changes...)
			require.NoError(t, err)
			require.Equal(t, text(t, c.tree), text(t, read))
		}
	}
}

func TestJSONOfOddNames(t *testing.T) {
	shape, err := NewShape(ShapeConfig{
		Links: [][]Link{{Self, NVLink(2)}, {NVLink(2), Self}}, NUMA: []int{0, -1}, NICs: []string{"mlx5_0", ""},
		NVLinkBandwidth: 50e9, PCIeBandwidth: 1,
	})
	require.NoError(t, err)
	again, err := NewShape(shape.Config())
	require.NoError(t, err)
	tree, err := New([]Level{{Name: "Größe", Bandwidth: 1, Latency: 2}}, []Node{
		{ID: "a%+@:/é", Path: []string{"ü"}, Shape: shape, Address: "fe80::1%eth0", Devices: []lockstep.DeviceID{"é", ""}},
		{ID: "b", Path: []string{"日本"}, Shape: again},
	})
	require.NoError(t, err)
	read := roundTrip(t, tree)
	require.Same(t, read.Shape(0), read.Shape(1), "equal shapes are written once")
	require.True(t, shape.Equal(read.Shape(0)))
	var empty Tree
	require.Equal(t, "cluster=1 node=0 vacant=0", roundTrip(t, &empty).String())
}

func TestJSONRefusesWhatCouldNotHaveBeenWritten(t *testing.T) {
	const rack = `{"version":1,"levels":[{"name":"rack"}],"shapes":[{"links":[["X","PIX"],["PIX","X"]]}],"cluster":`
	for _, c := range []struct {
		name, text string
		kind       error
		field      string
	}{
		{"nothing", ``, lockstep.ErrInvalid, "JSON"},
		{"no JSON", `{"version"`, lockstep.ErrInvalid, "JSON"},
		{"two values", rack + `{}} {}`, lockstep.ErrInvalid, "JSON"},
		{"another type", `[]`, lockstep.ErrInvalid, "JSON"},
		{"unknown field", `{"version":1,"colour":2}`, lockstep.ErrInvalid, "JSON"},
		{"no version", `{}`, lockstep.ErrInvalid, "version"},
		{"later version", `{"version":2}`, lockstep.ErrInvalid, "version"},
		{"bad level", `{"version":1,"levels":[{"name":""}],"cluster":{}}`, lockstep.ErrInvalid, "levels[0].Name"},
		{"bad bandwidth", `{"version":1,"levels":[{"name":"a","bandwidth":"fast"}],"cluster":{}}`, lockstep.ErrInvalid, "BytesPerSecond"},
		{"bad link", `{"version":1,"shapes":[{"links":[["X","NVB"]]}],"cluster":{}}`, lockstep.ErrInvalid, "Link"},
		{"bad shape", `{"version":1,"shapes":[{"links":[["X","PIX"]]}],"cluster":{}}`, lockstep.ErrInvalid, "Links[0]"},
		{"named cluster", rack + `{"name":"x"}}`, lockstep.ErrInvalid, "cluster.name"},
		{"slots too high", rack + `{"slots":[null]}}`, lockstep.ErrInvalid, "cluster.slots"},
		{"domains too deep", rack + `{"domains":[{"name":"r","domains":[{"name":"s"}]}]}}`, lockstep.ErrInvalid, "cluster.domains[0].domains"},
		{"empty domain", rack + `{"domains":[{"name":"r"}]}}`, lockstep.ErrInvalid, "cluster.domains[0]"},
		{"siblings of one name", rack + `{"domains":[{"name":"r","slots":[null]},{"name":"r","slots":[null]}]}}`, lockstep.ErrDuplicate, "cluster.domains[1].name"},
		{"bad domain name", rack + `{"domains":[{"name":"r s","slots":[null]}]}}`, lockstep.ErrInvalid, "cluster.domains[0].name"},
		{"unnamed with two slots", rack + `{"domains":[{"name":"","slots":[null,null]}]}}`, lockstep.ErrInvalid, "cluster.domains[0].name"},
		{"no id", rack + `{"domains":[{"name":"r","slots":[{}]}]}}`, lockstep.ErrInvalid, "cluster.domains[0].slots[0].ID"},
		{"id twice", rack + `{"domains":[{"name":"r","slots":[{"id":"a"}]},{"name":"s","slots":[null,{"id":"a"}]}]}}`, lockstep.ErrDuplicate, "slot 2.id"},
		{"id twice in unnamed", rack + `{"domains":[{"name":"","slots":[{"id":"a"}]},{"name":"","slots":[{"id":"a"}]}]}}`, lockstep.ErrDuplicate, "slot 1.id"},
		{"unknown shape", rack + `{"domains":[{"name":"r","slots":[{"id":"a","shape":1}]}]}}`, lockstep.ErrInvalid, "cluster.domains[0].slots[0].shape"},
		{"negative shape", rack + `{"domains":[{"name":"r","slots":[{"id":"a","shape":-1}]}]}}`, lockstep.ErrInvalid, "cluster.domains[0].slots[0].shape"},
		{"devices of another count", rack + `{"domains":[{"name":"r","slots":[{"id":"a","shape":0,"devices":["g"]}]}]}}`, lockstep.ErrInvalid, "cluster.domains[0].slots[0].Devices"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tree Tree
			err := tree.UnmarshalJSON([]byte(c.text))
			require.ErrorIs(t, err, c.kind)
			faults := flat(err)
			require.NotEmpty(t, faults)
			require.Equal(t, c.field, faults[0].Field, "%v", err)
			require.Zero(t, tree)
		})
	}
}

func TestJSONReadsOnlyIntoZeroValues(t *testing.T) {
	tree := rackTree(t)
	require.ErrorIs(t, json.Unmarshal([]byte(text(t, tree)), tree), lockstep.ErrConflict)
	require.ErrorIs(t, json.Unmarshal([]byte(`{"links":[]}`), PCIe8()), lockstep.ErrConflict)
	var shape Shape
	require.NoError(t, shape.UnmarshalJSON([]byte("null")))
	require.ErrorIs(t, shape.UnmarshalJSON([]byte(`{"lynx":[]}`)), lockstep.ErrInvalid)
	require.ErrorIs(t, shape.UnmarshalJSON([]byte(`{"links":[["PIX"]]}`)), lockstep.ErrInvalid)
	require.NoError(t, json.Unmarshal([]byte(`{"links":[["X"]]}`), &shape))
	require.Equal(t, 1, shape.Devices())
	var zero Tree
	require.NoError(t, zero.UnmarshalJSON([]byte("null")))
	b, err := json.Marshal(Change{Join, Node{ID: "a", Shape: &shape}})
	require.NoError(t, err)
	var change Change
	require.NoError(t, json.Unmarshal(b, &change))
	require.Equal(t, 1, change.Node.Shape.Devices())
}

func FuzzReadTree(f *testing.F) {
	r := rand.New(rand.NewPCG(9, 4))
	for range 5 {
		levels := randomLevels(r)
		nodes := []Node{randomNode(r, "a", len(levels)), randomNode(r, "b", len(levels))}
		tree, err := New(levels, nodes)
		if err != nil {
			f.Fatal(err)
		}
		tree, err = tree.With(leave("b"))
		if err != nil {
			f.Fatal(err)
		}
		b, err := tree.MarshalJSON()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"version":1,"levels":[{"name":"a"},{"name":"b"}],"cluster":{"domains":[{"name":"","domains":[{"name":"x","slots":[{"id":"a"},null]}]},{"name":"","domains":[{"name":"","slots":[null]}]}]}}`))
	f.Add([]byte(`{"version":1,"levels":[{"name":"a","rails":true}],"shapes":[{"links":[["X"]],"rails":[3]}],"cluster":{"domains":[{"name":"x","slots":[{"id":"a","shape":0},null]}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var tree Tree
		if err := json.Unmarshal(data, &tree); err != nil {
			var typed *lockstep.Error
			var syntax *json.SyntaxError
			require.True(t, errors.As(err, &typed) || errors.As(err, &syntax), "%v", err)
			return
		}
		if tree.stamp == nil { // null
			return
		}
		checkTree(t, &tree)
		read := roundTrip(t, &tree)
		require.Equal(t, tree.first, read.first)
	})
}
