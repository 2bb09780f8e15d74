package slurm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
)

// sample opens a text that lies beside the repository.
func sample(t *testing.T, name string) *Topology {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "samples", "topology", name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no samples beside the repository: ", err)
	}
	require.NoError(t, err)
	defer f.Close()
	out, err := Parse(f)
	require.NoError(t, err)
	return out
}

// tree makes a tree of a topology.
func tree(t *testing.T, top *Topology) *topology.Tree {
	t.Helper()
	levels, nodes, err := top.Inputs()
	require.NoError(t, err)
	out, err := topology.New(levels, nodes)
	require.NoError(t, err)
	return out
}

func paths(t *topology.Tree) (out []string) {
	for slot := range int32(t.Slots()) {
		node, _ := t.Node(slot)
		out = append(out, string(node.ID)+" "+strings.Join(node.Path, "/"))
	}
	return out
}

func TestSampleOfThreeTiers(t *testing.T) {
	tr := tree(t, sample(t, "slurm-tree-3tier.conf"))
	require.Equal(t, "cluster=1 tier3=1 tier2=2 tier1=4 node=32 vacant=0", tr.String())
	require.Equal(t, "node01 core/spine1/leaf1", paths(tr)[0])
	require.Equal(t, "node32 core/spine2/leaf4", paths(tr)[31])
}

func TestSampleOfUnevenDepth(t *testing.T) {
	tr := tree(t, sample(t, "slurm-tree-uneven-depth.conf"))
	require.Equal(t, []string{
		"node1 root/spine1/leaf1/switch0", "node2 root/spine1/leaf1/switch1",
		"node3 root/spine1/leaf2/switch2", "node4 root/spine3/leaf3/switch3",
	}, paths(tr))
}

func TestSampleOfUnevenBlocks(t *testing.T) {
	top := sample(t, "slurm-block-uneven.conf")
	require.Equal(t, []int{13}, top.Sizes)
	var sizes []int
	for _, b := range top.Blocks {
		sizes = append(sizes, len(b.Nodes))
	}
	require.Equal(t, []int{16, 13, 18}, sizes)
	require.Equal(t, "hpc-71", top.Blocks[2].Nodes[17])
	require.Equal(t, "cluster=1 block=3 node=47 vacant=0", tree(t, top).String())
}

func TestSampleOfPlainBlocks(t *testing.T) {
	tr := tree(t, sample(t, "slurm-block-gb300.conf"))
	require.Equal(t, "cluster=1 block=2 node=36 vacant=0", tr.String())
	require.Equal(t, "c19 rack2", paths(tr)[18])
}

func TestUnevenDepthIsAlignedAtTheNodes(t *testing.T) {
	top, err := Parse(strings.NewReader(`# a leaf right below the root, and a fabric of its own
switchname = root  switches="a,mid"
SwitchName=mid Switches=b,\
c
SwitchName=a Nodes=n1
SwitchName=b Nodes=n2 LinkSpeed=100 # fast
SwitchName=c Nodes=n[3-4]
SwitchName=island Nodes=n5
`))
	require.NoError(t, err)
	require.Equal(t, uint32(100), top.Switches[3].LinkSpeed)
	require.Equal(t, []string{"n1 root//a", "n2 root/mid/b", "n3 root/mid/c", "n4 root/mid/c", "n5 //island"}, paths(tree(t, top)))
}

func TestBlocksPairUp(t *testing.T) {
	top, err := Parse(strings.NewReader("BlockName=a Nodes=n[0-1]\nBlockName=b Nodes=n[2-3]\nBlockName=c Nodes=n[4-5]\nBlockName=d Nodes=n[6-7]\nBlockName=e Nodes=n[8-9]\nBlockSizes=2,4,16,64\n"))
	require.NoError(t, err)
	tr := tree(t, top)
	require.Equal(t, "cluster=1 block-16=1 block-4=3 block=5 node=10 vacant=0", tr.String(), "64 is as 16, where all are one")
	require.Equal(t, "n0 a..e/a..b/a", paths(tr)[0])
	require.Equal(t, "n9 a..e/e..e/e", paths(tr)[9])
}

func TestExpandAndFold(t *testing.T) {
	for _, c := range []struct{ list, names string }{
		{"a", "a"},
		{"a,b", "a b"},
		{"n[1-3]", "n1 n2 n3"},
		{"n[08-10,12]", "n08 n09 n10 n12"},
		{"n[8-10]", "n8 n9 n10"},
		{"n[0-1]x[2-3]", "n0x2 n0x3 n1x2 n1x3"},
		{"r[1-2]-n", "r1-n r2-n"},
		{"[1-2]", "1 2"},
		{"n[007]", "n007"},
		{"n[1,1]", "n1 n1"},
		{"a,n[1-2],b", "a n1 n2 b"},
		{"n[999999999999999998-999999999999999999]", "n999999999999999998 n999999999999999999"},
	} {
		names, err := Expand(c.list)
		require.NoError(t, err, c.list)
		require.Equal(t, strings.Fields(c.names), names, c.list)
	}
	for _, c := range []struct{ list, field string }{
		{"", "line 1, column 1"},
		{",", "line 1, column 1"},
		{"a,", "line 1, column 3"},
		{"a,,b", "line 1, column 3"},
		{"n[1-3", "line 1, column 6"},
		{"n[1-", "line 1, column 5"},
		{"n[", "line 1, column 3"},
		{"n[]", "line 1, column 3"},
		{"n[1,]", "line 1, column 5"},
		{"n[3-1]", "line 1, column 4"},
		{"n[001-10]", "line 1, column 6"},
		{"n[1-010]", "line 1, column 4"},
		{"n[1-1000000000]", "line 1, column 1"},
		{"n[0-999999]x[0-999999]", "line 1, column 1"},
		{"n[1-1048576],m", "line 1, column 14"},
		{"n[1-9999999999999999999]", "line 1, column 4"},
		{"n]", "line 1, column 2"},
		{"n[a]", "line 1, column 3"},
		{"n[1-2-3]", "line 1, column 6"},
		{"n[[1]]", "line 1, column 3"},
		{"a b", "line 1, column 1"},
		{"-[1-2]", "line 1, column 1"},
		{strings.Repeat("x", 254), "line 1, column 1"},
		{strings.Repeat("x", 252) + "[9-10]", "line 1, column 1"},
		{strings.Repeat("x", 200) + "[1-999999]", "line 1, column 1"},
	} {
		names, err := Expand(c.list)
		require.Nil(t, names, c.list)
		require.ErrorIs(t, err, lockstep.ErrInvalid, c.list)
		var e *lockstep.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, c.field, e.Field, "%v", err)
	}
	for _, c := range []struct{ names, list string }{
		{"", ""},
		{"a", "a"},
		{"n1", "n1"},
		{"n1 n2 n3 n5", "n[1-3,5]"},
		{"n08 n09 n10 n12", "n[08-10,12]"},
		{"n99 n100 n101", "n[99-101]"},
		{"n099 n100", "n[099-100]"},
		{"n09 n10 n100", "n[09-10,100]"},
		{"n2 n1", "n[2,1]"},
		{"n1 n1", "n[1,1]"},
		{"1 2", "1,2"},
		{"a1 b1 b2 a2", "a1,b[1-2],a2"},
		{"n0 n1 n01", "n[0-1,01]"},
	} {
		require.Equal(t, c.list, Fold(strings.Fields(c.names)))
	}
}

func TestFoldIsUndoneByExpand(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for range 3_000 {
		var names []string
		for range 1 + r.IntN(12) {
			prefix := []string{"n", "n0", "rack1-n", "9x", ""}[r.IntN(5)]
			name := prefix + fmt.Sprintf([]string{"%d", "%02d", "%03d"}[r.IntN(3)], r.IntN(130))
			names = append(names, name)
			if r.IntN(4) == 0 {
				names = append(names, prefix+"z")
			}
		}
		got, err := Expand(Fold(names))
		require.NoError(t, err)
		require.Equal(t, names, got)
	}
}

// draw returns a random valid topology.
func draw(r *rand.Rand) *Topology {
	host := 0
	hosts := func() (names []string) {
		for range 1 + r.IntN(5) {
			host += 1 + r.IntN(2)
			names = append(names, fmt.Sprintf("%s%03d", []string{"n", "gpu-"}[r.IntN(2)], host))
		}
		return names
	}
	if r.IntN(2) == 0 {
		t := &Topology{Kind: KindBlock}
		for i := range 1 + r.IntN(6) {
			t.Blocks = append(t.Blocks, Block{Name: "b" + strconv.Itoa(i), Nodes: hosts()})
		}
		base := len(t.Blocks[0].Nodes)
		for _, b := range t.Blocks {
			base = min(base, len(b.Nodes))
		}
		for i := range r.IntN(4) {
			t.Sizes = append(t.Sizes, base<<(2*i))
		}
		return t
	}
	t := &Topology{Kind: KindTree}
	roots := []int{}
	for i := range 1 + r.IntN(12) {
		s := Switch{Name: "s" + strconv.Itoa(i), LinkSpeed: uint32(r.IntN(2)) * r.Uint32()}
		if len(roots) > 0 && r.IntN(3) == 0 {
			for range 1 + r.IntN(min(3, len(roots))) {
				k := r.IntN(len(roots))
				s.Switches = append(s.Switches, t.Switches[roots[k]].Name)
				roots = slices.Delete(roots, k, k+1)
			}
		} else {
			s.Nodes = hosts()
		}
		roots = append(roots, i)
		t.Switches = append(t.Switches, s)
	}
	r.Shuffle(len(t.Switches), func(i, j int) { t.Switches[i], t.Switches[j] = t.Switches[j], t.Switches[i] })
	return t
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for range 500 {
		want := draw(r)
		require.NoError(t, want.Validate())
		var b bytes.Buffer
		require.NoError(t, want.Write(&b))
		text := b.String()
		if r.IntN(2) == 0 {
			text = "\xef\xbb\xbf" + strings.ReplaceAll(text, "\n", "\r\n")
		}
		got, err := Parse(strings.NewReader(text))
		require.NoError(t, err, text)
		require.Equal(t, want, got)

		all := []Topology{*draw(r), *draw(r), {Kind: KindFlat}}
		for i := range all {
			all[i].Name, all[i].Default = []string{"yes", "b-1", "1.5"}[i], i == 1
			for j := range all[i].Switches {
				all[i].Switches[j].LinkSpeed = 0
			}
		}
		b.Reset()
		require.NoError(t, WriteYAML(&b, all))
		read, err := ParseYAML(&b)
		require.NoError(t, err)
		require.Equal(t, all, read)
	}
}

// TestTreesGoThroughSlurm holds the tree of what TreeOf writes to the first one.
func TestTreesGoThroughSlurm(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 3))
	for range 300 {
		top := draw(r)
		if top.Kind != KindTree {
			continue
		}
		first := tree(t, top)
		back, err := TreeOf(first, "")
		require.NoError(t, err)
		second := tree(t, back)
		require.Equal(t, first.String(), second.String())
		for slot := range int32(first.Slots()) {
			a, _ := first.Node(slot)
			at, ok := second.Slot(a.ID)
			require.True(t, ok)
			b, _ := second.Node(at)
			require.Equal(t, a, b)
		}
	}
}

func TestTreeOfDomainsWithoutNames(t *testing.T) {
	tr, err := topology.New([]topology.Level{{Name: "block"}, {Name: "rack"}}, []topology.Node{
		{ID: "a", Path: []string{"b0", "r0"}},
		{ID: "b", Path: []string{"b0", "r0"}},
		{ID: "c", Path: []string{"b1", "r0"}},
		{ID: "d", Path: []string{"b1", ""}},
		{ID: "e", Path: []string{"", "r9"}},
		{ID: "f", Path: []string{"", ""}},
	})
	require.NoError(t, err)
	tr, err = tr.With(topology.Change{Kind: topology.Leave, Node: topology.Node{ID: "b"}})
	require.NoError(t, err)
	top, err := TreeOf(tr, "core")
	require.NoError(t, err)
	var b bytes.Buffer
	require.NoError(t, top.Write(&b))
	require.Equal(t, `SwitchName=d Nodes=d
SwitchName=f Nodes=f
SwitchName=b0.r0 Nodes=a
SwitchName=b1.r0 Nodes=c
SwitchName=r9 Nodes=e
SwitchName=b0 Switches=b0.r0
SwitchName=b1 Switches=b1.r0,d
SwitchName=core Switches=b[0-1],r9,f
`, b.String())
	blocks, err := BlocksOf(tr, "rack", 1, 2)
	require.NoError(t, err)
	b.Reset()
	require.NoError(t, blocks.Write(&b))
	require.Equal(t, "BlockName=0.r0 Nodes=a\nBlockName=1.r0 Nodes=c\nBlockName=d Nodes=d\nBlockName=r9 Nodes=e\nBlockName=f Nodes=f\nBlockSizes=1,2\n", b.String())
	_, err = BlocksOf(tr, "zone")
	require.ErrorIs(t, err, lockstep.ErrUnknown)
	_, err = BlocksOf(tr, "rack", 3)
	require.ErrorIs(t, err, lockstep.ErrInvalid)

	flat, err := topology.New(nil, []topology.Node{{ID: "a"}, {ID: "b"}})
	require.NoError(t, err)
	top, err = TreeOf(flat, "core")
	require.NoError(t, err)
	require.Equal(t, []Switch{{Name: "core", Nodes: []string{"a", "b"}}}, top.Switches)
	_, err = TreeOf(flat, "")
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	empty, err := topology.New([]topology.Level{{Name: "rack"}}, nil)
	require.NoError(t, err)
	_, err = TreeOf(empty, "")
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	long, err := topology.New([]topology.Level{{Name: "rack"}}, []topology.Node{{ID: "a", Path: []string{strings.Repeat("r", 65)}}})
	require.NoError(t, err)
	_, err = TreeOf(long, "")
	require.ErrorIs(t, err, lockstep.ErrInvalid)
}

func first(t *testing.T, err error) *lockstep.Error {
	t.Helper()
	var e *lockstep.Error
	require.ErrorAs(t, err, &e)
	return e
}

func TestBadConf(t *testing.T) {
	chain := ""
	for i := range 17 {
		chain += fmt.Sprintf("SwitchName=s%d Switches=s%d\n", i, i+1)
	}
	for _, c := range []struct {
		name, in string
		kind     error
		field    string
	}{
		{"nothing", "# only this\n", lockstep.ErrInvalid, "line 1"},
		{"no key", "leaf1 Nodes=a\n", lockstep.ErrInvalid, "line 1, column 1"},
		{"unknown first key", "NodeName=a\n", lockstep.ErrInvalid, "line 1, column 1"},
		{"ring", "RingName=r Nodes=a\n", lockstep.ErrInvalid, "line 1, column 1"},
		{"unknown key", "SwitchName=a Nodes=b Speed=3\n", lockstep.ErrInvalid, "line 1, column 22"},
		{"key twice", "SwitchName=a Nodes=b nodes=c\n", lockstep.ErrDuplicate, "line 1, column 22"},
		{"no value", "SwitchName=a Nodes=\n", lockstep.ErrInvalid, "line 1, column 14"},
		{"empty quotes", "SwitchName=a Nodes=\"\"\n", lockstep.ErrInvalid, "line 1, column 14"},
		{"open quotes", "SwitchName=a Nodes=\"b\n", lockstep.ErrInvalid, "line 1, column 20"},
		{"both kinds", "SwitchName=a Nodes=b\nBlockName=c Nodes=d\n", lockstep.ErrInvalid, "line 2, column 1"},
		{"list in a joined line", "SwitchName=a \\\n  Nodes=b,\\\nc[2-1]\n", lockstep.ErrInvalid, "line 3, column 4"},
		{"joined line at the end", "SwitchName=a Nodes=b[ \\", lockstep.ErrInvalid, "line 1, column 22"},
		{"huge list", "SwitchName=a Nodes=b[1-1000000000]\n", lockstep.ErrInvalid, "line 1, column 20"},
		{"too many in all", "SwitchName=a Nodes=b[1-1048570]\nSwitchName=c Nodes=d[1-10]\n", lockstep.ErrInvalid, "line 2, column 20"},
		{"bad speed", "SwitchName=a Nodes=b LinkSpeed=fast\n", lockstep.ErrInvalid, "line 1, column 32"},
		{"bad name", "SwitchName=a,b Nodes=c\n", lockstep.ErrInvalid, "line 1, column 12"},
		{"long name", "SwitchName=" + strings.Repeat("x", 65) + " Nodes=c\n", lockstep.ErrInvalid, "line 1, column 12"},
		{"switch twice", "SwitchName=a Nodes=b\nSwitchName=a Nodes=c\n", lockstep.ErrDuplicate, "line 2, column 12"},
		{"no members", "SwitchName=a Nodes=n\nSwitchName=b\n", lockstep.ErrInvalid, "line 2, column 12"},
		{"both members", "SwitchName=a Nodes=n\nSwitchName=b Switches=a Nodes=m\n", lockstep.ErrInvalid, "line 2, column 31"},
		{"unknown child", "SwitchName=a Switches=b\n", lockstep.ErrUnknown, "line 1, column 23"},
		{"child twice", "SwitchName=a Switches=b,b\nSwitchName=b Nodes=n\n", lockstep.ErrDuplicate, "line 1, column 23"},
		{"two parents", "SwitchName=l Nodes=n\nSwitchName=a Switches=l\nSwitchName=b Switches=l\n", lockstep.ErrDuplicate, "line 3, column 23"},
		{"node below two leaves", "SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n[2-3]\n", lockstep.ErrDuplicate, "line 2, column 20"},
		{"node twice", "SwitchName=a Nodes=n,n\n", lockstep.ErrDuplicate, "line 1, column 20"},
		{"below itself", "SwitchName=a Switches=a\n", lockstep.ErrInvalid, "line 1, column 12"},
		{"cycle", "SwitchName=l Nodes=n\nSwitchName=a Switches=b\nSwitchName=b Switches=c\nSwitchName=c Switches=a\n", lockstep.ErrInvalid, "line 2, column 12"},
		{"too deep", chain + "SwitchName=s17 Nodes=n\n", lockstep.ErrInvalid, "line 17, column 12"},
		{"block without nodes", "BlockName=a\n", lockstep.ErrInvalid, "line 1, column 11"},
		{"block twice", "BlockName=a Nodes=n\nBlockName=a Nodes=m\n", lockstep.ErrDuplicate, "line 2, column 11"},
		{"node in two blocks", "BlockName=a Nodes=n\nBlockName=b Nodes=n\n", lockstep.ErrDuplicate, "line 2, column 19"},
		{"only sizes", "BlockSizes=3\n", lockstep.ErrInvalid, "line 1, column 12"},
		{"sizes twice", "BlockName=a Nodes=n\nBlockSizes=1\nBlockSizes=1\n", lockstep.ErrDuplicate, "line 3, column 1"},
		{"size 0", "BlockName=a Nodes=n\nBlockSizes=0\n", lockstep.ErrInvalid, "line 2, column 12"},
		{"negative size", "BlockName=a Nodes=n\nBlockSizes=-1\n", lockstep.ErrInvalid, "line 2, column 12"},
		{"size of letters", "BlockName=a Nodes=n\nBlockSizes=x\n", lockstep.ErrInvalid, "line 2, column 12"},
		{"size not of two", "BlockName=a Nodes=n\nBlockSizes=1,3\n", lockstep.ErrInvalid, "line 2, column 12"},
		{"sizes that fall", "BlockName=a Nodes=n[1-4]\nBlockSizes=2,2\n", lockstep.ErrInvalid, "line 2, column 12"},
		{"block below the base size", "BlockName=a Nodes=n[1-4]\nBlockName=b Nodes=m\nBlockSizes=4\n", lockstep.ErrInvalid, "line 2, column 19"},
		{"line without end", "SwitchName=a Nodes=" + strings.Repeat("n", 5<<20), lockstep.ErrInvalid, "line 1, column 4194305"},
		{"joined line without end", strings.Repeat("SwitchName=a"+strings.Repeat(" ", 1<<20)+"\\\n", 5), lockstep.ErrInvalid, "line 4, column 1048588"},
	} {
		t.Run(c.name, func(t *testing.T) {
			top, err := Parse(strings.NewReader(c.in))
			require.Nil(t, top)
			require.ErrorIs(t, err, c.kind)
			e := first(t, err)
			require.Equal(t, c.field, e.Field, "%v", err)
			require.Equal(t, "slurm: parse", e.Op)
		})
	}
}

func TestBadYAML(t *testing.T) {
	tree := func(s string) string {
		return "- topology: t\n  tree:\n    switches:\n" + s
	}
	for _, c := range []struct {
		name, in string
		kind     error
		field    string
	}{
		{"nothing", "---\n# nothing\n", lockstep.ErrInvalid, "line 1"},
		{"a text", "hello\n", lockstep.ErrInvalid, "line 1, column 1"},
		{"a mapping", "topology: t\n", lockstep.ErrInvalid, "line 1, column 1"},
		{"list of texts", "- a\n", lockstep.ErrInvalid, "line 1, column 3"},
		{"an empty item", "-\n", lockstep.ErrInvalid, "line 1, column 1"},
		{"an empty list", "[]\n", lockstep.ErrInvalid, "line 1, column 1"},
		{"tab", "- topology: t\n\tflat: true\n", lockstep.ErrInvalid, "line 2, column 1"},
		{"no name", "- flat: true\n", lockstep.ErrInvalid, "line 1, column 3"},
		{"no kind", "- topology: t\n", lockstep.ErrInvalid, "line 1, column 13"},
		{"flat is false", "- topology: t\n  flat: false\n", lockstep.ErrInvalid, "line 1, column 13"},
		{"two kinds", "- topology: t\n  flat: true\n  tree:\n    switches:\n    - switch: a\n      nodes: n\n", lockstep.ErrInvalid, "line 3, column 3"},
		{"name twice", "- topology: t\n  flat: true\n- topology: t\n  flat: true\n", lockstep.ErrDuplicate, "line 3, column 13"},
		{"key twice", "- topology: t\n  flat: true\n  flat: true\n", lockstep.ErrDuplicate, "line 3, column 3"},
		{"unknown key", "- topology: t\n  colour: red\n", lockstep.ErrInvalid, "line 2, column 3"},
		{"torus", "- topology: t\n  torus3d:\n    x: 1\n", lockstep.ErrInvalid, "line 2, column 3"},
		{"no truth", "- topology: t\n  flat: yes\n", lockstep.ErrInvalid, "line 2, column 9"},
		{"list for a name", "- topology: [t]\n  flat: true\n", lockstep.ErrInvalid, "line 1, column 13"},
		{"no value", "- topology:\n  flat: true\n", lockstep.ErrInvalid, "line 1, column 3"},
		{"a line too deep", "- topology: t\n    flat: true\n", lockstep.ErrInvalid, "line 2, column 5"},
		{"a line less deep", "  - topology: t\n flat: true\n", lockstep.ErrInvalid, "line 2, column 2"},
		{"block scalar", "- topology: |\n    t\n", lockstep.ErrInvalid, "line 1, column 13"},
		{"anchor", "- topology: &t\n", lockstep.ErrInvalid, "line 1, column 13"},
		{"mapping in braces", "- {topology: t}\n", lockstep.ErrInvalid, "line 1, column 3"},
		{"two keys in a line", "- topology: a: b\n", lockstep.ErrInvalid, "line 1, column 13"},
		{"open quotes", "- topology: \"t\n", lockstep.ErrInvalid, "line 1, column 13"},
		{"behind quotes", "- topology: \"t\" u\n", lockstep.ErrInvalid, "line 1, column 16"},
		{"escape", "- topology: \"t\\n\"\n", lockstep.ErrInvalid, "line 1, column 15"},
		{"two texts", "---\n- topology: t\n  flat: true\n---\n", lockstep.ErrInvalid, "line 4, column 1"},
		{"no switches", tree(""), lockstep.ErrInvalid, "line 3, column 5"},
		{"empty switches", "- topology: t\n  tree:\n    switches: []\n", lockstep.ErrInvalid, "line 1, column 13"},
		{"tree is text", "- topology: t\n  tree: x\n", lockstep.ErrInvalid, "line 2, column 9"},
		{"unknown key of a tree", "- topology: t\n  tree:\n    leaves: x\n", lockstep.ErrInvalid, "line 3, column 5"},
		{"unknown key of a switch", tree("    - switch: a\n      speed: 3\n"), lockstep.ErrInvalid, "line 5, column 7"},
		{"bad list", tree("    - switch: a\n      nodes: n[2-1]\n"), lockstep.ErrInvalid, "line 5, column 17"},
		{"bad list in quotes", tree("    - switch: a\n      nodes: \"n[2-1]\"\n"), lockstep.ErrInvalid, "line 5, column 14"},
		{"unknown child", tree("    - switch: a\n      children: b\n"), lockstep.ErrUnknown, "line 5, column 17"},
		{"block without nodes", "- topology: t\n  block:\n    blocks:\n    - block: a\n", lockstep.ErrInvalid, "line 4, column 14"},
		{"sizes of letters", "- topology: t\n  block:\n    block_sizes: [a]\n", lockstep.ErrInvalid, "line 3, column 19"},
		{"bad sizes", "- topology: t\n  block:\n    block_sizes: [0]\n    blocks:\n    - block: a\n      nodes: n\n", lockstep.ErrInvalid, "line 3, column 5"},
		{"open bracket", "- topology: t\n  block:\n    block_sizes: [1, 2\n", lockstep.ErrInvalid, "line 3, column 23"},
		{"lists in lists", "- topology: t\n  block:\n    block_sizes: [[1]]\n", lockstep.ErrInvalid, "line 3, column 19"},
		{"no comma", "- topology: t\n  block:\n    block_sizes: [\"1\" 2]\n", lockstep.ErrInvalid, "line 3, column 23"},
		{"behind the bracket", "- topology: t\n  block:\n    block_sizes: [1] 2\n", lockstep.ErrInvalid, "line 3, column 21"},
		{"too deep", strings.Repeat("- ", 40) + "a\n", lockstep.ErrInvalid, "line 1, column 35"},
	} {
		t.Run(c.name, func(t *testing.T) {
			all, err := ParseYAML(strings.NewReader(c.in))
			require.Nil(t, all)
			require.ErrorIs(t, err, c.kind)
			e := first(t, err)
			require.Equal(t, c.field, e.Field, "%v", err)
			require.Equal(t, "slurm: parse YAML", e.Op)
		})
	}
}

func TestYAMLByHand(t *testing.T) {
	all, err := ParseYAML(strings.NewReader("\xef\xbb\xbf# our cluster\r\n---\r\n" + `
-   topology: 'it''s'   # no name
`))
	require.Nil(t, all)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	all, err = ParseYAML(strings.NewReader(`
- topology: "a"
  cluster_default: True
  tree:
    switches:
    - switch: core   # over both
      children: leaf[1-2]
    - nodes: n[1-2]
      switch: leaf1
    -
      switch: 'leaf2'
      nodes: "n#3"   # no comment in the list, and no name either
...
what comes behind the end is not read
`))
	require.Nil(t, all)
	require.Equal(t, "line 12, column 14", first(t, err).Field)
	all, err = ParseYAML(strings.NewReader(`
- topology: a:b
  block:
      block_sizes: [ 1, '2', ]
      blocks: # two
        - {}
`))
	require.Nil(t, all)
	require.Equal(t, "line 6, column 11", first(t, err).Field)
	all, err = ParseYAML(strings.NewReader(`
- topology: a:b
  block:
      block_sizes: [ 1, '2', ]
      blocks: # two
        - block: x
          nodes: n1

        - block: y
          nodes: n2
- topology: c
  flat: TRUE
`))
	require.NoError(t, err)
	require.Equal(t, []Topology{
		{Kind: KindBlock, Name: "a:b", Sizes: []int{1, 2}, Blocks: []Block{{"x", []string{"n1"}}, {"y", []string{"n2"}}}},
		{Kind: KindFlat, Name: "c"},
	}, all)
	levels, nodes, err := all[1].Inputs()
	require.NoError(t, err)
	require.Empty(t, levels)
	require.Empty(t, nodes)
}

// full is a writer that fails.
type full struct{}

var errFull = errors.New("disk full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestBadValuesAreNamedByField(t *testing.T) {
	leaf := Switch{Name: "l", Nodes: []string{"n"}}
	for _, c := range []struct {
		name  string
		in    Topology
		kind  error
		field string
	}{
		{"zero", Topology{}, lockstep.ErrInvalid, "Kind"},
		{"no switches", Topology{Kind: KindTree}, lockstep.ErrInvalid, "Switches"},
		{"no blocks", Topology{Kind: KindBlock}, lockstep.ErrInvalid, "Blocks"},
		{"blocks in a tree", Topology{Kind: KindTree, Switches: []Switch{leaf}, Sizes: []int{1}}, lockstep.ErrInvalid, "Blocks"},
		{"switches in blocks", Topology{Kind: KindFlat, Switches: []Switch{leaf}}, lockstep.ErrInvalid, "Switches"},
		{"bad node", Topology{Kind: KindTree, Switches: []Switch{{Name: "a", Nodes: []string{"n", "a b"}}}}, lockstep.ErrInvalid, "Switches[0].Nodes[1]"},
		{"bad child", Topology{Kind: KindTree, Switches: []Switch{leaf, {Name: "a", Switches: []string{"l", "x"}}}}, lockstep.ErrUnknown, "Switches[1].Switches[1]"},
		{"both", Topology{Kind: KindTree, Switches: []Switch{leaf, {Name: "a", Switches: []string{"l"}, Nodes: []string{"m"}}}}, lockstep.ErrInvalid, "Switches[1].Nodes"},
		{"block name", Topology{Kind: KindBlock, Blocks: []Block{{Nodes: []string{"n"}}}}, lockstep.ErrInvalid, "Blocks[0].Name"},
		{"sizes", Topology{Kind: KindBlock, Blocks: []Block{{"a", []string{"n"}}}, Sizes: []int{1 << 30}}, lockstep.ErrInvalid, "Blocks[0].Nodes"},
		{"sizes alone", Topology{Kind: KindBlock, Blocks: []Block{{"a", []string{"n"}}}, Sizes: []int{1, 1}}, lockstep.ErrInvalid, "Sizes"},
		{"17 sizes", Topology{Kind: KindBlock, Blocks: []Block{{"a", []string{"n"}}}, Sizes: []int{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1 << 10, 1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16}}, lockstep.ErrInvalid, "Sizes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.in.Validate()
			require.ErrorIs(t, err, c.kind)
			require.Equal(t, c.field, first(t, err).Field, "%v", err)
			_, _, err = c.in.Inputs()
			require.ErrorIs(t, err, c.kind)
			var b bytes.Buffer
			require.ErrorIs(t, c.in.Write(&b), c.kind)
			c.in.Name = "t"
			err = WriteYAML(&b, []Topology{{Kind: KindFlat, Name: "f"}, c.in})
			require.ErrorIs(t, err, c.kind)
			require.Equal(t, "topologies[1]."+c.field, first(t, err).Field)
			require.Zero(t, b.Len(), "nothing is written")
		})
	}
	flat := Topology{Kind: KindFlat}
	require.ErrorIs(t, flat.Write(full{}), lockstep.ErrInvalid, "no words for it")
	require.ErrorIs(t, WriteYAML(full{}, nil), lockstep.ErrInvalid)
	require.ErrorIs(t, WriteYAML(full{}, []Topology{flat}), lockstep.ErrInvalid, "no name")
	flat.Name = "a"
	require.ErrorIs(t, WriteYAML(full{}, []Topology{flat, flat}), lockstep.ErrDuplicate)
	require.ErrorIs(t, WriteYAML(full{}, []Topology{flat}), errFull)
	one := Topology{Kind: KindTree, Switches: []Switch{leaf}}
	require.ErrorIs(t, one.Write(full{}), errFull)
}

// checkRead holds what a reader returned to what it promises.
func checkRead(t *testing.T, top *Topology) {
	t.Helper()
	require.NoError(t, top.Validate())
	tree(t, top)
	if top.Kind == KindFlat {
		return
	}
	var b bytes.Buffer
	require.NoError(t, top.Write(&b))
	again, err := Parse(&b)
	require.NoError(t, err)
	again.Name, again.Default = top.Name, top.Default
	require.Equal(t, top, again)
}

func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(2, 4))
	for range 6 {
		var b bytes.Buffer
		if err := draw(r).Write(&b); err != nil {
			f.Fatal(err)
		}
		f.Add(b.String())
	}
	f.Add("switchname = a \\\n  nodes=\"n[08-10,3]x[1-2]\" # c\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		top, err := parse(strings.NewReader(text), 500)
		if err != nil {
			first(t, err)
			return
		}
		checkRead(t, top)
	})
}

func FuzzParseYAML(f *testing.F) {
	r := rand.New(rand.NewPCG(2, 5))
	for range 6 {
		top := draw(r)
		top.Name = "t"
		var b bytes.Buffer
		if err := WriteYAML(&b, []Topology{*top, {Kind: KindFlat, Name: "f"}}); err != nil {
			f.Fatal(err)
		}
		f.Add(b.String())
	}
	f.Add("---\n- topology: 'a' # b\n  block:\n    block_sizes: [1, '2']\n    blocks:\n    - block: \"x\"\n      nodes: n[1-2]\n...\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseYAML(strings.NewReader(text), 500)
		if err != nil {
			first(t, err)
			return
		}
		require.NotEmpty(t, all)
		for i := range all {
			checkRead(t, &all[i])
		}
		var b bytes.Buffer
		require.NoError(t, WriteYAML(&b, all))
		again, err := ParseYAML(&b)
		require.NoError(t, err)
		require.Equal(t, all, again)
	})
}
