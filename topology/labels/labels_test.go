package labels_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/labels"
)

func Example() {
	nodes, err := labels.Parse(strings.NewReader(`{"kind": "List", "items": [
		{"kind": "Node", "metadata": {"name": "a", "labels": {"zone": "z1", "nvidia.com/gpu.clique": "6b5e61a0-0000-4000-8000-00000000000a.7"}},
		 "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}},
		{"kind": "Node", "metadata": {"name": "b", "labels": {"zone": "z1", "nvidia.com/gpu.clique": "6b5e61a0-0000-4000-8000-00000000000a.7"}}},
		{"kind": "Node", "metadata": {"name": "c", "labels": {"zone": "z1"}}}
	]}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	levels, placed, err := labels.Inputs(labels.Config{Keys: []labels.Key{
		{Label: "zone", Missing: labels.Refuse},
		{Label: labels.Clique, Level: topology.Level{Name: "nvlink"}, Unique: true},
	}}, nodes)
	if err != nil {
		fmt.Println(err)
		return
	}
	tree, err := topology.New(levels, placed)
	if err != nil {
		fmt.Println(err)
		return
	}
	a, _ := tree.Slot("a")
	b, _ := tree.Slot("b")
	c, _ := tree.Slot("c")
	fmt.Println(tree)
	fmt.Println(tree.LevelAt(tree.LCA(a, b)).Name, tree.LevelAt(tree.LCA(a, c)).Name)

	_, err = labels.Parse(strings.NewReader("{\"items\": [\n  {\"metadata\": {\"name\": 5}}\n]}"))
	fmt.Println(err)
	// Output:
	// cluster=1 zone=1 nvlink=2 node=3 vacant=0
	// nvlink zone
	// labels: parse: line 2, column 25: want a node: json: cannot unmarshal number into Go struct field .metadata.name of type string
}

const uuid = "6b5e61a0-0000-4000-8000-00000000000A"

func TestInputs(t *testing.T) {
	nodes := []labels.Node{
		{ID: "a", Labels: map[string]string{"zone": "z1", "rack": "r1"}, Address: "10.0.0.1"},
		{ID: "b", Labels: map[string]string{"zone": "z2", "rack": "r1"}},
		{ID: "c", Labels: map[string]string{"rack": "r1", labels.Clique: uuid + ".3"}},
		{ID: "d", Labels: map[string]string{"zone": "z2", "rack": "", labels.Clique: "00000000-0000-0000-0000-000000000000.0"}},
		{ID: "e"},
	}
	cfg := labels.Config{Keys: []labels.Key{
		{Label: "zone", Level: topology.Level{Name: "z", Bandwidth: 5}},
		{Label: "rack"},
		{Label: labels.Clique},
	}}
	levels, placed, err := labels.Inputs(cfg, nodes)
	require.NoError(t, err)
	require.Equal(t, []topology.Level{{Name: "z", Bandwidth: 5}, {Name: "rack"}, {Name: labels.Clique}}, levels)
	require.Equal(t, []topology.Node{
		{ID: "a", Path: []string{"z1", "r1", ""}, Address: "10.0.0.1"},
		{ID: "b", Path: []string{"z2", "r1", ""}},
		{ID: "c", Path: []string{"", "r1", uuid + ".3"}},
		{ID: "d", Path: []string{"z2", "", ""}},
		{ID: "e", Path: []string{"", "", ""}},
	}, placed)
	tree, err := topology.New(levels, placed)
	require.NoError(t, err)
	require.Equal(t, "cluster=1 z=4 rack=5 nvidia.com/gpu.clique=5 node=5 vacant=0", tree.String())
	levels, placed, err = labels.Inputs(labels.Config{}, nodes)
	require.NoError(t, err)
	require.Empty(t, levels)
	require.Len(t, placed, 5)
	for _, keys := range [][]labels.Key{labels.EKS(), labels.GKE(), labels.Topograph(4), labels.Topograph(0)} {
		levels, placed, err := labels.Inputs(labels.Config{Keys: keys}, nodes)
		require.NoError(t, err)
		_, err = topology.New(levels, placed)
		require.NoError(t, err)
	}
	require.Equal(t, "fabric.topograph.run/tier-3", labels.Topograph(4)[0].Label)
}

func TestBadLabels(t *testing.T) {
	for _, c := range []struct {
		name  string
		keys  []labels.Key
		set   []string // key, value and so on, one node each
		kind  error
		field string
	}{
		{"empty key", []labels.Key{{}}, nil, lockstep.ErrInvalid, "Keys[0].Label"},
		{"key twice", []labels.Key{{Label: "a"}, {Label: "a"}}, nil, lockstep.ErrDuplicate, "Keys[1].Label"},
		{"unknown choice", []labels.Key{{Label: "a", Missing: "perhaps"}}, nil, lockstep.ErrInvalid, "Keys[0].Missing"},
		{"missing", []labels.Key{{Label: "a", Missing: labels.Refuse}}, []string{"a=x", "b=x"}, lockstep.ErrInvalid, "nodes[1].Labels[a]"},
		{"empty", []labels.Key{{Label: "a", Missing: labels.Refuse}}, []string{"a="}, lockstep.ErrInvalid, "nodes[0].Labels[a]"},
		{"no name", []labels.Key{{Label: "a"}}, []string{"a=b c"}, lockstep.ErrInvalid, "nodes[0].Labels[a]"},
		{"two parents", []labels.Key{{Label: "a"}, {Label: "b", Unique: true}}, []string{"a=x b=r", "a=x b=r", "a=y b=r"}, lockstep.ErrDuplicate, "nodes[2].Labels[b]"},
		{"one without parent", []labels.Key{{Label: "a"}, {Label: "b", Unique: true}}, []string{"b=r", "a=y b=r"}, lockstep.ErrDuplicate, "nodes[1].Labels[b]"},
		{"clique without dot", []labels.Key{{Label: labels.Clique}}, []string{labels.Clique + "=" + uuid}, lockstep.ErrInvalid, "nodes[0].Labels[" + labels.Clique + "]"},
		{"clique without number", []labels.Key{{Label: labels.Clique}}, []string{labels.Clique + "=" + uuid + ".x"}, lockstep.ErrInvalid, "nodes[0].Labels[" + labels.Clique + "]"},
		{"clique with a short UUID", []labels.Key{{Label: labels.Clique}}, []string{labels.Clique + "=" + uuid[1:] + ".0"}, lockstep.ErrInvalid, "nodes[0].Labels[" + labels.Clique + "]"},
		{"clique with another letter", []labels.Key{{Label: labels.Clique}}, []string{labels.Clique + "=g" + uuid[1:] + ".0"}, lockstep.ErrInvalid, "nodes[0].Labels[" + labels.Clique + "]"},
		{"clique with dashes elsewhere", []labels.Key{{Label: labels.Clique}}, []string{labels.Clique + "=" + strings.Repeat("a", 36) + ".0"}, lockstep.ErrInvalid, "nodes[0].Labels[" + labels.Clique + "]"},
		{"clique refused where zero", []labels.Key{{Label: labels.Clique, Missing: labels.Refuse}}, []string{labels.Clique + "=00000000-0000-0000-0000-000000000000.1"}, lockstep.ErrInvalid, "nodes[0].Labels[" + labels.Clique + "]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var nodes []labels.Node
			for i, set := range c.set {
				n := labels.Node{ID: lockstep.NodeID("n" + strconv.Itoa(i)), Labels: map[string]string{}}
				for pair := range strings.FieldsSeq(set) {
					key, value, _ := strings.Cut(pair, "=")
					n.Labels[key] = value
				}
				if c.name == "no name" {
					n.Labels = map[string]string{"a": "b c"}
				}
				nodes = append(nodes, n)
			}
			_, _, err := labels.Inputs(labels.Config{Keys: c.keys}, nodes)
			require.ErrorIs(t, err, c.kind)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.field, e.Field, "%v", err)
			require.Equal(t, "labels: inputs", e.Op)
		})
	}
}

func TestWhatKubectlPrintsIsRead(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	type object = map[string]any
	for range 50 {
		var want []labels.Node
		items := []any{}
		for i := range r.IntN(40) {
			n := labels.Node{ID: lockstep.NodeID("n" + strconv.Itoa(i)), Labels: map[string]string{"a": strings.Repeat("x", r.IntN(4000)), "ü": "é\n"}}
			addresses := []any{object{"type": "Hostname", "address": n.ID}}
			if r.IntN(2) == 0 {
				n.Address = "10.0.0." + strconv.Itoa(i)
				addresses = append(addresses, object{"type": "InternalIP", "address": n.Address}, object{"type": "InternalIP", "address": "fe80::1"})
			}
			want = append(want, n)
			items = append(items, object{
				"apiVersion": "v1", "kind": "Node",
				"metadata": object{"name": n.ID, "labels": n.Labels, "annotations": object{"name": "other"}},
				"status":   object{"addresses": addresses, "images": []any{object{"names": []any{"x"}, "sizeBytes": 7}}},
			})
		}
		text, err := json.MarshalIndent(object{"apiVersion": "v1", "items": items, "kind": "List", "metadata": object{"resourceVersion": ""}}, "", "    ")
		require.NoError(t, err)
		in := string(text)
		if r.IntN(2) == 0 {
			in = "\xef\xbb\xbf" + strings.ReplaceAll(in, "\n", "\r\n") + "\n"
		}
		got, err := labels.Parse(strings.NewReader(in))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestBadJSON(t *testing.T) {
	for _, c := range []struct {
		name, in string
		kind     error
		field    string
	}{
		{"nothing", "", lockstep.ErrInvalid, "line 1, column 1"},
		{"a list", "[]", lockstep.ErrInvalid, "line 1, column 1"},
		{"no items", "{}", lockstep.ErrInvalid, "line 1, column 3"},
		{"items are an object", "{\n\"items\":{}}", lockstep.ErrInvalid, "line 2, column 9"},
		{"items twice", "{\"items\":[],\n \"items\":[]}", lockstep.ErrDuplicate, "line 2, column 2"},
		{"cut short", "{\"items\":[{\"metadata\":", lockstep.ErrInvalid, "line 1, column 11"},
		{"cut in the list", "{\"items\":[", lockstep.ErrInvalid, "line 1, column 11"},
		{"cut in the object", "{\"items\":[]", lockstep.ErrInvalid, "line 1, column 12"},
		{"two values", "{\"items\":[]}\n{}", lockstep.ErrInvalid, "line 2, column 1"},
		{"syntax", "{\"items\":[{\"metadata\":{\"name\":\"a\"}},\n  {\"metadata\" {}}]}", lockstep.ErrInvalid, "line 2, column 15"},
		{"no comma", "{\"items\":[{\"metadata\":{\"name\":\"a\"}}\n {}]}", lockstep.ErrInvalid, "line 2, column 2"},
		{"syntax elsewhere", "{\"metadata\":\n{]}", lockstep.ErrInvalid, "line 2, column 2"},
		{"a number for a name", "{\"items\":[\n{\"metadata\":{\"name\":5}}]}", lockstep.ErrInvalid, "line 2, column 21"},
		{"a number for a node", "{\"items\":[\n  5]}", lockstep.ErrInvalid, "line 2, column 3"},
		{"nothing for a node", "{\"items\":[\n  null]}", lockstep.ErrInvalid, "line 2, column 3"},
		{"no name", "{\"items\":[\n  {}]}", lockstep.ErrInvalid, "line 2, column 3"},
		{"bad name", "{\"items\":[{\"metadata\":{\"name\":\"a b\"}}]}", lockstep.ErrInvalid, "line 1, column 11"},
		{"name twice", "{\"items\":[{\"metadata\":{\"name\":\"a\"}},\n{\"metadata\":{\"name\":\"a\"}}]}", lockstep.ErrDuplicate, "line 2, column 1"},
		{"pods", "{\"items\":[{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"}}]}", lockstep.ErrInvalid, "line 1, column 11"},
		{"huge node", "{\"items\":[\n{\"metadata\":{\"name\":\"" + strings.Repeat("x", 5<<20) + "\"}}]}", lockstep.ErrInvalid, "line 2, column 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			nodes, err := labels.Parse(strings.NewReader(c.in))
			require.Nil(t, nodes)
			require.ErrorIs(t, err, c.kind)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.field, e.Field, "%v", err)
			require.Equal(t, "labels: parse", e.Op)
		})
	}
}

func TestAReaderThatFailsIsWrapped(t *testing.T) {
	broken := errors.New("cable out")
	for _, text := range []string{"", "{", "{\"items\":[", "{\"items\":[{\"metadata\":{\"name\":\"a\"}},{\"me", "{\"items\":[]", "{\"items\":[]}"} {
		_, err := labels.Parse(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)))
		require.ErrorIs(t, err, broken, text)
	}
}

// endless is a text that goes on for ever.
type endless struct{ n int }

func (e *endless) Read(p []byte) (int, error) {
	const head = "{\"items\":[{\"metadata\":{\"name\":\""
	for i := range p {
		p[i] = 'x'
		if e.n < len(head) {
			p[i] = head[e.n]
		}
		e.n++
	}
	return len(p), nil
}

func TestANodeWithoutEndIsNotReadOn(t *testing.T) {
	var e endless
	_, err := labels.Parse(&e)
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	require.Less(t, e.n, 8<<20)
}

func FuzzParse(f *testing.F) {
	f.Add(`{"kind":"List","items":[{"kind":"Node","metadata":{"name":"a","labels":{"zone":"z1"}},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}]}},{"metadata":{"name":"b"}}]}`)
	f.Add("{\n\"items\" : [ ] , \"x\" : 1 }\n")
	f.Add("\xef\xbb\xbf{\"items\":[{\"metadata\" {}}]}")
	f.Fuzz(func(t *testing.T, text string) {
		nodes, err := labels.Parse(strings.NewReader(text))
		if err != nil {
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Contains(t, e.Field, "line ")
			require.Nil(t, nodes)
			return
		}
		levels, placed, err := labels.Inputs(labels.Config{Keys: []labels.Key{{Label: "zone"}, {Label: labels.Clique}}}, nodes)
		if err == nil {
			_, err = topology.New(levels, placed)
			require.NoError(t, err)
		}
	})
}
