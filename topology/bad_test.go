package topology

import (
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
)

// flat returns the typed errors that err joins.
func flat(err error) (out []*lockstep.Error) {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, flat(e)...)
		}
		return out
	}
	var e *lockstep.Error
	if errors.As(err, &e) {
		out = append(out, e)
	}
	return out
}

func TestBadInput(t *testing.T) {
	rack := []Level{{Name: "rack"}}
	shape := NVSwitch8()
	build := func(levels []Level, nodes ...Node) func() error {
		return func() error { _, err := New(levels, nodes); return err }
	}
	uniform := func(cfg UniformConfig) func() error {
		return func() error { _, err := Uniform(cfg); return err }
	}
	shaped := func(cfg ShapeConfig) func() error {
		return func() error { _, err := NewShape(cfg); return err }
	}
	with := func(changes ...Change) func() error {
		return func() error { _, err := rackTree(t).With(changes...); return err }
	}
	long := strings.Repeat("x", lockstep.MaxIDLength+1)
	asymmetric := [][]Link{{Self, PIX}, {SYS, Self}}
	pair := [][]Link{{Self, PIX}, {PIX, Self}}
	for _, c := range []struct {
		name         string
		call         func() error
		kind         error
		field, value string
	}{
		{"no id", build(nil, Node{}), lockstep.ErrInvalid, "nodes[0].ID", `""`},
		{"blank in id", build(nil, Node{ID: "a b"}), lockstep.ErrInvalid, "nodes[0].ID", `"a b"`},
		{"long id", build(nil, Node{ID: lockstep.NodeID(long)}), lockstep.ErrInvalid, "nodes[0].ID", quote(long)},
		{"not UTF-8", build(nil, Node{ID: "\xff"}), lockstep.ErrInvalid, "nodes[0].ID", `"\xff"`},
		{"node twice", build(nil, Node{ID: "a"}, Node{ID: "b"}, Node{ID: "a"}), lockstep.ErrDuplicate, "nodes[2].ID", `"a"`},
		{"node in two places", build(rack, Node{ID: "a", Path: []string{"r0"}}, Node{ID: "a", Path: []string{"r1"}}), lockstep.ErrDuplicate, "nodes[1].ID", `"a"`},
		{"node twice, each a rack of its own", build(rack, Node{ID: "a", Path: []string{""}}, Node{ID: "a", Path: []string{""}}), lockstep.ErrDuplicate, "nodes[1].ID", `"a"`},
		{"path too short", build(rack, Node{ID: "a"}), lockstep.ErrInvalid, "nodes[0].Path", "0 elements"},
		{"path too long", build(nil, Node{ID: "a", Path: []string{"r"}}), lockstep.ErrInvalid, "nodes[0].Path", "1 elements"},
		{"line break in path", build(rack, Node{ID: "a", Path: []string{"r\n"}}), lockstep.ErrInvalid, "nodes[0].Path[0]", `"r\n"`},
		{"blank in address", build(nil, Node{ID: "a", Address: "x y"}), lockstep.ErrInvalid, "nodes[0].Address", `"x y"`},
		{"too few devices", build(nil, Node{ID: "a", Shape: shape, Devices: []lockstep.DeviceID{"g"}}), lockstep.ErrInvalid, "nodes[0].Devices", "1 names"},
		{"devices without shape", build(nil, Node{ID: "a", Devices: []lockstep.DeviceID{"g"}}), lockstep.ErrInvalid, "nodes[0].Devices", "1 names"},
		{"device twice", build(nil, Node{ID: "a", Shape: shape, Devices: []lockstep.DeviceID{"g", "", "h", "", "g", "", "", ""}}), lockstep.ErrDuplicate, "nodes[0].Devices[4]", `"g"`},
		{"comma in device", build(nil, Node{ID: "a", Shape: shape, Devices: []lockstep.DeviceID{"g,h", "", "", "", "", "", "", ""}}), lockstep.ErrInvalid, "nodes[0].Devices[0]", `"g,h"`},

		{"level without name", build([]Level{{}}), lockstep.ErrInvalid, "levels[0].Name", `""`},
		{"level twice", build([]Level{{Name: "a"}, {Name: "a"}}), lockstep.ErrDuplicate, "levels[1].Name", `"a"`},
		{"cluster not first", build([]Level{{Name: "a"}, {Name: LevelCluster}}), lockstep.ErrDuplicate, "levels[1].Name", `"cluster"`},
		{"node not last", build([]Level{{Name: lockstep.LevelNode}, {Name: "a"}}), lockstep.ErrInvalid, "levels[0].Name", `"node"`},
		{"node with figures", build([]Level{{Name: lockstep.LevelNode, Bandwidth: 1000}}), lockstep.ErrInvalid, "levels[0]", "1k/s 0s"},
		{"negative bandwidth", build([]Level{{Name: "a", Bandwidth: -1}}), lockstep.ErrInvalid, "levels[0].Bandwidth", "-1/s"},
		{"negative latency", build([]Level{{Name: "a", Latency: -1}}), lockstep.ErrInvalid, "levels[0].Latency", "-1ns"},
		{"too many levels", build([]Level{{Name: "1"}, {Name: "2"}, {Name: "3"}, {Name: "4"}, {Name: "5"}, {Name: "6"}, {Name: "7"}, {Name: "8"}, {Name: "9"}, {Name: "10"}, {Name: "11"}, {Name: "12"}, {Name: "13"}, {Name: "14"}, {Name: "15"}, {Name: "16"}, {Name: "17"}}), lockstep.ErrInvalid, "levels", "17"},

		{"fanout too short", uniform(UniformConfig{Levels: rack, Fanout: []int{2}}), lockstep.ErrInvalid, "Fanout", "1 entries"},
		{"negative fanout", uniform(UniformConfig{Levels: rack, Fanout: []int{-2, 2}}), lockstep.ErrInvalid, "Fanout[0]", "-2"},
		{"huge fanout", uniform(UniformConfig{Levels: rack, Fanout: []int{1 << 24, 1 << 24}}), lockstep.ErrInvalid, "Fanout[1]", "16777216"},
		{"one node too many", uniform(UniformConfig{Fanout: []int{1<<24 + 1}}), lockstep.ErrInvalid, "Fanout[0]", "16777217"},

		{"65 devices", func() error { _, err := UniformShape(65, PIX); return err }, lockstep.ErrInvalid, "n", "65"},
		{"-1 devices", func() error { _, err := UniformShape(-1, PIX); return err }, lockstep.ErrInvalid, "n", "-1"},
		{"self as link", func() error { _, err := UniformShape(2, Self); return err }, lockstep.ErrInvalid, "Links[0][1]", "X"},
		{"65 devices by matrix", shaped(ShapeConfig{Links: make([][]Link, 65)}), lockstep.ErrInvalid, "Links", "65"},
		{"not square", shaped(ShapeConfig{Links: [][]Link{{Self, PIX}, {PIX}}}), lockstep.ErrInvalid, "Links[1]", "1 entries"},
		{"asymmetric", shaped(ShapeConfig{Links: asymmetric}), lockstep.ErrInvalid, "Links[1][0]", "SYS"},
		{"link on the diagonal", shaped(ShapeConfig{Links: [][]Link{{PIX}}}), lockstep.ErrInvalid, "Links[0][0]", "PIX"},
		{"unknown link", shaped(ShapeConfig{Links: [][]Link{{Self, 99}, {99, Self}}}), lockstep.ErrInvalid, "Links[0][1]", "Link(99)"},
		{"NUMA of another length", shaped(ShapeConfig{Links: pair, NUMA: []int{0}}), lockstep.ErrInvalid, "NUMA", "1 entries"},
		{"negative NUMA", shaped(ShapeConfig{Links: pair, NUMA: []int{0, -2}}), lockstep.ErrInvalid, "NUMA[1]", "-2"},
		{"NICs of another length", shaped(ShapeConfig{Links: pair, NICs: []string{"a", "b", "c"}}), lockstep.ErrInvalid, "NICs", "3 entries"},
		{"blank in NIC", shaped(ShapeConfig{Links: pair, NICs: []string{"a", " "}}), lockstep.ErrInvalid, "NICs[1]", `" "`},
		{"rails of another length", shaped(ShapeConfig{Links: pair, Rails: []int{0}}), lockstep.ErrInvalid, "Rails", "1 entries"},
		{"negative rail", shaped(ShapeConfig{Links: pair, Rails: []int{0, -2}}), lockstep.ErrInvalid, "Rails[1]", "-2"},
		{"huge rail", func() error { _, err := shape.WithRails([]int{0, 1, 2, 3, 4, 5, 6, 65536}); return err }, lockstep.ErrInvalid, "Rails[7]", "65536"},
		{"too few rails", func() error { _, err := shape.WithRails([]int{0, 1}); return err }, lockstep.ErrInvalid, "Rails", "2 entries"},
		{"rails for no devices", func() error { _, err := (*Shape)(nil).WithRails([]int{0}); return err }, lockstep.ErrInvalid, "Rails", "1 entries"},
		{"nodes as rail level", build([]Level{{Name: lockstep.LevelNode, Rails: true}}), lockstep.ErrInvalid, "levels[0].Rails", "true"},
		{"rail levels apart", build([]Level{{Name: "unit", Rails: true}, {Name: "nvl"}, {Name: "rack", Rails: true}}), lockstep.ErrInvalid, "levels", `"rack"`},
		{"rail levels apart from the cluster", build([]Level{{Name: LevelCluster, Rails: true}, {Name: "nvl"}, {Name: "rack", Rails: true}}), lockstep.ErrInvalid, "levels", `"rack"`},
		{"negative NVLink", shaped(ShapeConfig{NVLinkBandwidth: -1}), lockstep.ErrInvalid, "NVLinkBandwidth", "-1/s"},
		{"negative PCIe", shaped(ShapeConfig{PCIeBandwidth: -1}), lockstep.ErrInvalid, "PCIeBandwidth", "-1/s"},

		{"no kind", with(Change{Node: Node{ID: "n0"}}), lockstep.ErrInvalid, "changes[0].Kind", `""`},
		{"join of one that is there", with(join("n0", "rack-1")), lockstep.ErrDuplicate, "changes[0].Node.ID", `"n0"`},
		{"join twice", with(join("a", "rack-1"), join("a", "rack-1")), lockstep.ErrDuplicate, "changes[1].Node.ID", `"a"`},
		{"leave of none", with(leave("a")), lockstep.ErrUnknown, "changes[0].Node.ID", `"a"`},
		{"leave twice", with(leave("n0"), leave("n0")), lockstep.ErrUnknown, "changes[1].Node.ID", `"n0"`},
		{"re-cable of none", with(recable("a", "rack-0")), lockstep.ErrUnknown, "changes[0].Node.ID", `"a"`},
		{"join of a bad node", with(join("", "rack-0")), lockstep.ErrInvalid, "changes[0].Node.ID", `""`},
		{"join with a short path", with(join("a")), lockstep.ErrInvalid, "changes[0].Node.Path", "0 elements"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.call()
			require.ErrorIs(t, err, c.kind)
			faults := flat(err)
			require.NotEmpty(t, faults)
			require.Equal(t, c.field, faults[0].Field, "%v", err)
			require.Equal(t, c.value, faults[0].Value, "%v", err)
			require.NotEmpty(t, faults[0].Reason)
			require.True(t, strings.HasPrefix(faults[0].Op, "topology: "))
		})
	}
}

func TestAllFaultsAreReported(t *testing.T) {
	_, err := New([]Level{{Name: "a"}, {Name: "a"}}, []Node{{ID: "x"}, {ID: "x", Path: []string{"p", "q"}}, {}})
	require.Len(t, flat(err), 5, "%v", err) // level twice; two short paths; x twice; no ID
	_, err = New(nil, make([]Node, 1000))
	require.Len(t, flat(err), maxFaults+1)
	require.Contains(t, err.Error(), strconv.Itoa(1000+999-maxFaults)+" more faults")
	tree := rackTree(t)
	before := text(t, tree)
	_, err = tree.With(leave("a"), leave("n0"), join("n1", "rack-0"))
	require.Len(t, flat(err), 2)
	require.Equal(t, before, text(t, tree), "nothing has changed")
}

func TestOutOfRangePanics(t *testing.T) {
	tree := rackTree(t)
	for name, call := range map[string]func(){ // in any order
		"slot":                func() { tree.DomainOf(1, 8) },
		"level":               func() { tree.Domains(3) },
		"domain":              func() { tree.Range(1, 2) },
		"child":               func() { tree.Children(2, 0) },
		"minus":               func() { tree.NodeAt(-1) },
		"level of a slot":     func() { tree.DomainOf(3, 0) },
		"coarser than 0":      func() { tree.DomainOf(-1, 1) },
		"name of no level":    func() { tree.DomainName(3, 0) },
		"name of no domain":   func() { tree.DomainName(1, 2) },
		"parent of the first": func() { tree.Parent(0, 0) },
		"common domain":       func() { tree.LCA(0, 8) },
		"distance":            func() { tree.Distance(Device{-1, 0}, Device{0, 0}) },
	} {
		require.Panics(t, call, name)
	}
}

func TestNilTreePanics(t *testing.T) {
	if runtime.GOARCH == "386" {
		t.Skip("user mode emulators of 386 turn the fault of a nil pointer into the end of the process")
	}
	require.Panics(t, func() { (*Tree)(nil).Slots() })
}
