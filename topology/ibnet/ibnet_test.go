package ibnet

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
)

func TestSample(t *testing.T) {
	file, err := os.Open(filepath.Join("..", "..", "..", "shared", "samples", "topology", "ibnetdiscover-excerpt.txt"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no samples beside the repository: ", err)
	}
	require.NoError(t, err)
	defer file.Close()
	f, err := Parse(file)
	require.NoError(t, err)
	require.Equal(t, []Switch{
		{GUID: 0xbbbb000000000010, Name: "MF0;R09-P1-IBLEAF-04-04:MQM9701/U1", Ports: 65},
		{GUID: 0xbbbb000000000020, Name: "MF0;R10-P1-IBSPINE-02:MQM9701/U1"},
	}, f.Switches)
	require.Equal(t, []Trunk{{A: 0, B: 1, Cables: 2, Rate: 100e9}}, f.Trunks)
	require.Equal(t, []Port{
		{Host: "host-04-c01", HCA: "mlx5_5", GUID: 0xaaaa000000000101, Number: 1, Switch: 0, Rate: 50e9},
		{Host: "host-04-c02", HCA: "mlx5_5", GUID: 0xaaaa000000000102, Number: 1, Switch: 0, Rate: 50e9},
	}, f.Ports)
	require.Equal(t, 2, f.Others, "an adapter without host and an aggregation node")
	levels, nodes, err := f.Inputs(Config{})
	require.NoError(t, err)
	tree, err := topology.New(levels, nodes)
	require.NoError(t, err)
	require.Equal(t, "cluster=1 unit=1 node=2 vacant=0", tree.String())
	require.Equal(t, "bbbb000000000010", tree.DomainName(1, 0))
}

// plan is a made-up fabric: which leaf each adapter is on, and what is above.
type plan struct {
	hosts  [][]int // by host and adapter: its leaf, -1 for none
	names  []string
	leaves int
	up     [][]int // by switch: those it is cabled to, of higher number
}

func (p *plan) switches() int { return len(p.up) }

func switchGUID(i int) GUID { return GUID(0xbbbb000000000000 + uint64(i)) }
func hcaGUID(host, i int) GUID {
	return GUID(0xaaaa000000000000 + uint64(host)<<8 + uint64(i))
}

// write prints the fabric as the tool does, the blocks in random order; blocks of
// adapters are left out at random, and those of switches without hosts.
func (p *plan) write(r *rand.Rand) string {
	type line struct {
		own  int
		peer string
		text string
	}
	blocks := []string{}
	lines := make([][]line, p.switches())
	adapters := map[[2]int]string{}
	port := func(s int) int { return len(lines[s]) + 1 }
	for h, hcas := range p.hosts {
		for i, s := range hcas {
			if s < 0 {
				continue
			}
			n := port(s)
			lines[s] = append(lines[s], line{n, "", fmt.Sprintf("[%d]\t\"H-%s\"[1](%x) \t\t# \"%s mlx5_%d\" lid %d 4xNDR\n", n, hcaGUID(h, i), uint64(hcaGUID(h, i)), p.names[h], i, 10*h+i)})
			adapters[[2]int{h, i}] = fmt.Sprintf("vendid=0x2c9\ndevid=0x1021\nsysimgguid=0x%s\ncaguid=0x%s\nCa\t1 \"H-%s\"\t\t# \"%s mlx5_%d\"\n[1](%s) \t\"S-%s\"[%d]\t\t# lid 1 lmc 0 \"MF0;S%d:MQM9701/U1\" lid 7 4xNDR\n",
				hcaGUID(h, i), hcaGUID(h, i), hcaGUID(h, i), p.names[h], i, hcaGUID(h, i), switchGUID(s), n, s)
		}
	}
	for a, ups := range p.up {
		for _, b := range ups {
			x, y := port(a), port(b)
			lines[a] = append(lines[a], line{x, "", fmt.Sprintf("[%d]\t\"S-%s\"[%d]\t\t# \"MF0;S%d:MQM9701/U1\" lid 9 4xNDR\n", x, switchGUID(b), y, b)})
			lines[b] = append(lines[b], line{y, "", fmt.Sprintf("[%d][ext 3]\t\"S-%s\"[%d][ext 4]\t\t# \"MF0;S%d:MQM9701/U1\" lid 9 4xNDR\n", y, switchGUID(a), x, a)})
		}
	}
	for s := range lines {
		text := fmt.Sprintf("vendid=0x2c9\ndevid=0xd2f2\nsysimgguid=0x1\nswitchguid=0x%x(%x)\nSwitch\t%d \"S-%s\"\t\t# \"MF0;S%d:MQM9701/U1\" enhanced port 0 lid 73 lmc 0\n", uint64(switchGUID(s)), uint64(switchGUID(s)), len(lines[s]), switchGUID(s), s)
		r.Shuffle(len(lines[s]), func(i, j int) { lines[s][i], lines[s][j] = lines[s][j], lines[s][i] })
		for _, l := range lines[s] {
			text += l.text
		}
		blocks = append(blocks, text)
	}
	for h := range p.hosts {
		for i := range p.hosts[h] {
			if text, ok := adapters[[2]int{h, i}]; ok && r.IntN(3) > 0 {
				blocks = append(blocks, text)
			}
		}
	}
	r.Shuffle(len(blocks), func(i, j int) { blocks[i], blocks[j] = blocks[j], blocks[i] })
	text := "#\n# Topology file: made up\n#\nNon-Chassis Nodes\n\n" + strings.Join(blocks, "\n")
	if r.IntN(2) == 0 {
		return "\xef\xbb\xbf" + strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

// railed returns a fabric of units with a leaf for each rail, spines over some
// units and cores over all.
func railed(units, hosts, rails, spines, cores int) *plan {
	p := &plan{leaves: units * rails}
	for u := range units {
		for range hosts {
			var hcas []int
			for i := range rails {
				hcas = append(hcas, u*rails+i)
			}
			p.names = append(p.names, "gpu-"+strconv.Itoa(len(p.hosts)))
			p.hosts = append(p.hosts, hcas)
		}
	}
	n := p.leaves + units/2*spines + cores // two units a pod
	p.up = make([][]int, n)
	for leaf := range p.leaves {
		for s := range spines {
			if pod := leaf / rails / 2; pod < units/2 {
				p.up[leaf] = append(p.up[leaf], p.leaves+pod*spines+s)
			}
		}
	}
	for s := p.leaves; s < n-cores; s++ {
		for c := range cores {
			p.up[s] = append(p.up[s], n-cores+c)
		}
	}
	return p
}

// kind returns a shape of so many devices, each next to the card of its number.
func kind(t *testing.T, n int) *topology.Shape {
	t.Helper()
	cfg := topology.ShapeConfig{}
	for i := range n {
		row := make([]topology.Link, n)
		for j := range row {
			if i != j {
				row[j] = topology.NVLink(18)
			}
		}
		cfg.Links = append(cfg.Links, row)
		cfg.NICs = append(cfg.NICs, "mlx5_"+strconv.Itoa(i))
	}
	shape, err := topology.NewShape(cfg)
	require.NoError(t, err)
	return shape
}

func parse(t *testing.T, text string) *Fabric {
	t.Helper()
	f, err := Parse(strings.NewReader(text))
	require.NoError(t, err, text)
	return f
}

func TestRailOptimisedFabric(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	f := parse(t, railed(4, 3, 4, 2, 2).write(r))
	require.Len(t, f.Switches, 4*4+2*2+2)
	require.Len(t, f.Ports, 4*3*4)
	require.Zero(t, f.Others)
	require.Empty(t, f.Miswired(nil))
	shape := kind(t, 4)
	levels, nodes, err := f.Inputs(Config{Shape: shape})
	require.NoError(t, err)
	tree, err := topology.New(levels, nodes)
	require.NoError(t, err)
	require.Equal(t, "cluster=1 tier2=2 unit=4 node=12 vacant=0", tree.String())
	require.Same(t, tree.Shape(0), tree.Shape(11), "hosts that are alike share a shape")
	require.Equal(t, 2, tree.Shape(0).Rail(2))
	require.Equal(t, lockstep.BytesPerSecond(50e9), levels[1].Bandwidth)
	at := func(id lockstep.NodeID, device int) topology.Device {
		slot, ok := tree.Slot(id)
		require.True(t, ok)
		return topology.Device{Slot: slot, Index: device}
	}
	require.True(t, tree.SameRail(at("gpu-0", 1), at("gpu-2", 1)))
	require.False(t, tree.SameRail(at("gpu-0", 1), at("gpu-2", 2)))
	require.False(t, tree.SameRail(at("gpu-0", 1), at("gpu-3", 1)), "another unit")
	require.Less(t, tree.Distance(at("gpu-0", 1), at("gpu-2", 1)), tree.Distance(at("gpu-0", 1), at("gpu-2", 2)))
	require.Less(t, tree.Distance(at("gpu-0", 1), at("gpu-2", 2)), tree.Distance(at("gpu-0", 1), at("gpu-3", 1)))
	require.Less(t, tree.Distance(at("gpu-0", 1), at("gpu-3", 1)), tree.Distance(at("gpu-0", 1), at("gpu-6", 1)))

	levels, nodes, err = f.Inputs(Config{Tiers: 3, HCAs: []string{"mlx5_0"}, Shapes: map[lockstep.NodeID]*topology.Shape{"gpu-1": shape}})
	require.NoError(t, err)
	tree, err = topology.New(levels, nodes)
	require.NoError(t, err)
	require.Equal(t, "cluster=1 tier3=1 tier2=2 unit=4 node=12 vacant=0", tree.String())
	require.Nil(t, tree.Shape(0))
	require.Equal(t, []int{0, -1, -1, -1}, tree.Shape(1).Config().Rails)
	levels, nodes, err = f.Inputs(Config{HCAs: []string{}})
	require.NoError(t, err)
	tree, err = topology.New(levels, nodes)
	require.NoError(t, err)
	require.Equal(t, "cluster=1 unit=12 node=12 vacant=0", tree.String(), "no adapter counts")
	for _, tiers := range []int{-1, 17} {
		_, _, err = f.Inputs(Config{Tiers: tiers})
		require.ErrorIs(t, err, lockstep.ErrInvalid)
	}
	levels, nodes, err = f.Inputs(Config{Tiers: 16})
	require.NoError(t, err)
	require.Len(t, levels, 16)
	_, err = topology.New(levels, nodes)
	require.NoError(t, err)
}

func TestMiswiredCards(t *testing.T) {
	p := railed(2, 4, 4, 1, 0)
	p.hosts[1][2], p.hosts[1][3] = p.hosts[1][3], p.hosts[1][2]
	p.hosts[6][0] = -1
	f := parse(t, p.write(rand.New(rand.NewPCG(5, 2))))
	require.Equal(t, []Miswire{{"gpu-1", "mlx5_2", 3, 2}, {"gpu-1", "mlx5_3", 2, 3}}, f.Miswired(nil))
	levels, nodes, err := f.Inputs(Config{Shape: kind(t, 4)})
	require.NoError(t, err)
	tree, err := topology.New(levels, nodes)
	require.NoError(t, err)
	require.Equal(t, "cluster=1 unit=2 node=8 vacant=0", tree.String())
	require.Equal(t, []int{0, 1, 3, 2}, tree.Shape(1).Config().Rails)
	require.Equal(t, []int{-1, 1, 2, 3}, tree.Shape(6).Config().Rails)
	require.Same(t, tree.Shape(0), tree.Shape(5))
	require.True(t, tree.SameRail(topology.Device{Slot: 0, Index: 2}, topology.Device{Slot: 1, Index: 3}))
}

func TestFabricWithOneLeafAHost(t *testing.T) {
	p := &plan{leaves: 3, up: [][]int{{3, 3}, {3}, {3}, nil}}
	for h := range 6 {
		p.names = append(p.names, "n"+strconv.Itoa(h))
		p.hosts = append(p.hosts, []int{h % 3, h % 3})
	}
	f := parse(t, p.write(rand.New(rand.NewPCG(5, 3))))
	levels, nodes, err := f.Inputs(Config{Shape: kind(t, 2)})
	require.NoError(t, err)
	tree, err := topology.New(levels, nodes)
	require.NoError(t, err)
	require.Equal(t, "cluster=1 unit=3 node=6 vacant=0", tree.String())
	require.Equal(t, []int{0, 0}, tree.Shape(0).Config().Rails)
	require.Equal(t, 4, len(f.Switches))
	require.Equal(t, 4, func() (n int) {
		for _, tr := range f.Trunks {
			n += tr.Cables
		}
		return n
	}())
}

// TestUnitsAndRailsEqualThoseOfBruteForce draws fabrics without order and holds
// units to what can be reached, and rails to the documented rule.
func TestUnitsAndRailsEqualThoseOfBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 4))
	for range 200 {
		p := &plan{leaves: 1 + r.IntN(6)}
		n := p.leaves + r.IntN(4)
		p.up = make([][]int, n)
		for a := range n {
			for range r.IntN(3) {
				if a+1 < n {
					p.up[a] = append(p.up[a], a+1+r.IntN(n-a-1))
				}
			}
		}
		for h := range 1 + r.IntN(8) {
			p.names = append(p.names, "n"+strconv.Itoa(h*3))
			hcas := make([]int, 1+r.IntN(3))
			for i := range hcas {
				hcas[i] = r.IntN(p.leaves+1) - 1
			}
			p.hosts = append(p.hosts, hcas)
		}
		f, err := Parse(strings.NewReader(p.write(r)))
		require.NoError(t, err)
		shape := kind(t, 3)
		levels, nodes, err := f.Inputs(Config{Shape: shape})
		require.NoError(t, err)
		again, err := Parse(strings.NewReader(p.write(r)))
		require.NoError(t, err)
		levels2, nodes2, err := again.Inputs(Config{Shape: shape})
		require.NoError(t, err)
		require.Equal(t, levels, levels2, "the order of the text does not matter")
		require.Equal(t, nodes, nodes2)
		tree, err := topology.New(levels, nodes)
		require.NoError(t, err)
		// Spread over shared leaves until nothing changes.
		unit := make([]int, p.leaves)
		for i := range unit {
			unit[i] = i
		}
		for range p.leaves {
			for _, hcas := range p.hosts {
				low := p.leaves
				for _, s := range hcas {
					if s >= 0 {
						low = min(low, unit[s])
					}
				}
				for _, s := range hcas {
					if s >= 0 {
						unit[s] = low
					}
				}
			}
		}
		count := map[int]map[string]int{}
		for _, hcas := range p.hosts {
			for i, s := range hcas {
				if s >= 0 {
					if count[s] == nil {
						count[s] = map[string]int{}
					}
					count[s]["mlx5_"+strconv.Itoa(i)]++
				}
			}
		}
		usual := func(s int) string {
			best := ""
			for _, name := range []string{"mlx5_0", "mlx5_1", "mlx5_2"} {
				if count[s][name] > count[s][best] {
					best = name
				}
			}
			return best
		}
		rail := func(s int) (n int) {
			for o := range count { // in any order
				if unit[o] == unit[s] && (usual(o) < usual(s) || usual(o) == usual(s) && o < s) {
					n++
				}
			}
			return n
		}
		for h, hcas := range p.hosts {
			slot, ok := tree.Slot(lockstep.NodeID(p.names[h]))
			wired := slices.ContainsFunc(hcas, func(s int) bool { return s >= 0 })
			require.Equal(t, wired, ok)
			if !ok {
				continue
			}
			for i := range 3 {
				want := -1
				if i < len(hcas) && hcas[i] >= 0 {
					want = rail(hcas[i])
					require.Equal(t, switchGUID(unit[hcas[i]]).String(), tree.DomainName(tree.Levels()-2, tree.DomainOf(tree.Levels()-2, slot)))
				}
				require.Equal(t, want, tree.Shape(slot).Rail(i))
			}
		}
	}
}

func TestNaturalOrderIsTotal(t *testing.T) {
	want := []string{"", "01", "1", "2", "10", "a", "a01", "a1", "a2", "a10", "a10b", "a10c1", "ab", "mlx5_2", "mlx5_10"}
	for i, a := range want {
		for j, b := range want {
			require.Equal(t, cmp.Compare(i, j), natural(a, b), "%q %q", a, b)
		}
	}
}

func TestDescriptions(t *testing.T) {
	for _, c := range []struct {
		in   string
		host lockstep.NodeID
		hca  string
		ok   bool
	}{
		{"host-04 mlx5_5", "host-04", "mlx5_5", true},
		{"node018 HCA-1", "node018", "HCA-1", true},
		{"  a  ibp24s0 ", "a", "ibp24s0", true},
		{"atlas35", "atlas35", "", true},
		{"Mellanox Technologies", "", "", false},
		{"Mellanox Technologies Aggregation Node", "", "", false},
		{"MT4129 ConnectX7   Mellanox Technologies", "", "", false},
		{"a, mlx5_0", "", "", false},
		{"a mlx5;0", "", "", false},
		{"", "", "", false},
	} {
		host, hca, ok := parseHost(c.in)
		require.Equal(t, c.ok, ok, c.in)
		require.Equal(t, c.host, host, c.in)
		require.Equal(t, c.hca, hca, c.in)
	}
	for text, rate := range map[string]lockstep.BytesPerSecond{ // in any order
		"4xSDR": 1e9, "4xDDR": 2e9, "4xQDR": 4e9, "4xFDR10": 5e9, "4xFDR": 6816e6, "4xEDR": 12500e6, "4xHDR": 25e9, "2xNDR": 25e9, "4xNDR": 50e9, "4xXDR": 100e9,
		"4x": 0, "xNDR": 0, "999xNDR": 0, "": 0, "4xZDR": 0,
	} {
		require.Equal(t, rate, parseRate(text), text)
	}
}

func TestBadTexts(t *testing.T) {
	const sw = "Switch\t4 \"S-0000000000000001\"\t# \"leaf\" base port 0 lid 1 lmc 0\n"
	const ca = "Ca\t2 \"H-00000000000000a1\"\t# \"h1 mlx5_0\"\n"
	for _, c := range []struct {
		name, in string
		kind     error
		field    string
	}{
		{"nothing", "#\n\n", lockstep.ErrInvalid, "line 1"},
		{"only a comment", "vendid=0x1\n", lockstep.ErrInvalid, "line 1"},
		{"another line", "ibwarn: [7] mad_rpc failed\n", lockstep.ErrInvalid, "line 1, column 1"},
		{"port before a block", "[1]\t\"S-01\"[1]\n", lockstep.ErrInvalid, "line 1, column 1"},
		{"port behind the end of a block", sw + "\n[1]\t\"S-02\"[1]\n", lockstep.ErrInvalid, "line 3, column 1"},
		{"no count", "Switch \"S-01\"\n", lockstep.ErrInvalid, "line 1, column 14"},
		{"huge count", "Switch 70000 \"S-01\"\n", lockstep.ErrInvalid, "line 1, column 20"},
		{"endless count", "Switch 99999999999999999999 \"S-01\"\n", lockstep.ErrInvalid, "line 1, column 35"},
		{"name of another kind", "Switch 4 \"H-01\"\n", lockstep.ErrInvalid, "line 1, column 16"},
		{"name without quotes", "Switch 4 S-01\n", lockstep.ErrInvalid, "line 1, column 10"},
		{"name left open", "Switch 4 \"S-01\n", lockstep.ErrInvalid, "line 1, column 15"},
		{"name of no digits", "Switch 4 \"S-xy\"\n", lockstep.ErrInvalid, "line 1, column 13"},
		{"name of 17 digits", "Switch 4 \"S-10000000000000000\"\n", lockstep.ErrInvalid, "line 1, column 30"},
		{"block twice", sw + "\n" + sw, lockstep.ErrDuplicate, "line 3, column 7"},
		{"port 0", sw + "[0]\t\"S-02\"[1]\n", lockstep.ErrInvalid, "line 2, column 1"},
		{"port too high", sw + "[5]\t\"S-02\"[1]\n", lockstep.ErrInvalid, "line 2, column 1"},
		{"port without number", sw + "[x]\t\"S-02\"[1]\n", lockstep.ErrInvalid, "line 2, column 2"},
		{"no peer", sw + "[1]\n", lockstep.ErrInvalid, "line 2, column 4"},
		{"peer of another kind", sw + "[1]\t\"X-02\"[1]\n", lockstep.ErrInvalid, "line 2, column 5"},
		{"peer without port", sw + "[1]\t\"S-02\"\n", lockstep.ErrInvalid, "line 2, column 11"},
		{"peer with port 0", sw + "[1]\t\"S-02\"[0]\n", lockstep.ErrInvalid, "line 2, column 14"},
		{"text behind the peer", sw + "[1]\t\"S-02\"[1] up\n", lockstep.ErrInvalid, "line 2, column 15"},
		{"bad group", sw + "[1][ext x]\t\"S-02\"[1]\n", lockstep.ErrInvalid, "line 2, column 4"},
		{"open GUID", sw + "[1]\t\"S-02\"[1](12\n", lockstep.ErrInvalid, "line 2, column 14"},
		{"port twice", sw + "[1]\t\"S-02\"[1]\n[1]\t\"S-03\"[1]\n", lockstep.ErrDuplicate, "line 3, column 1"},
		{"port to itself", sw + "[1]\t\"S-01\"[1]\n", lockstep.ErrInvalid, "line 2, column 1"},
		{"two cables to a port", sw + "[1]\t\"H-a1\"[1]\n[2]\t\"H-a1\"[1]\n", lockstep.ErrDuplicate, "line 3, column 1"},
		{"the other end has no line", sw + "[1]\t\"H-a1\"[1]\n\n" + ca, lockstep.ErrInvalid, "line 2, column 1"},
		{"the other end says otherwise", sw + "[1]\t\"H-a1\"[1]\n\n" + ca + "[1](a1)\t\"S-01\"[2]\n", lockstep.ErrInvalid, "line 2, column 1"},
		{"two adapters of one name", sw + "[1]\t\"H-a1\"[1] # \"h mlx5_0\" lid 1 4xNDR\n[2]\t\"H-a2\"[1] # \"h mlx5_0\" lid 2 4xNDR\n", lockstep.ErrDuplicate, "line 3, column 1"},
		{"line without end", sw + strings.Repeat("[", 5<<20), lockstep.ErrInvalid, "line 2, column 4194305"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := Parse(strings.NewReader(c.in))
			require.Nil(t, f)
			require.ErrorIs(t, err, c.kind)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.field, e.Field, "%v", err)
			require.Equal(t, "ibnet: parse", e.Op)
		})
	}
	broken := errors.New("cable out")
	_, err := Parse(io.MultiReader(strings.NewReader(sw), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
}

func TestRoutersAndAdaptersBackToBack(t *testing.T) {
	f := parse(t, "Rt 2 \"R-01\" # \"router\"\n[1](1)\t\"S-02\"[1] # lid 1 lmc 0 \"x\" lid 2 4xNDR\n\nCa 1 \"H-a1\" # \"a mlx5_0\"\n[1](0xa1)\t\"H-0xa2\"[1](0xa2) # lid 1 lmc 0 \"b mlx5_0\" lid 2 4xEDR\n")
	require.Len(t, f.Switches, 1)
	require.Empty(t, f.Ports)
	levels, nodes, err := f.Inputs(Config{})
	require.NoError(t, err)
	require.Len(t, levels, 1)
	require.Empty(t, nodes)
}

func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 5))
	f.Add(railed(1, 2, 2, 1, 0).write(r))
	f.Add(railed(2, 1, 1, 1, 1).write(r))
	f.Add("Ca 1 \"H-a1\" # \"a mlx5_0\"\n[1](0xa1)\t\"H-0xa2\"[1](0xa2) # lid 1 lmc 0 \"b mlx5_0\" lid 2 4xEDR\n")
	shape := topology.NVSwitch8()
	f.Fuzz(func(t *testing.T, text string) {
		fabric, err := Parse(strings.NewReader(text))
		if err != nil {
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Nil(t, fabric)
			return
		}
		fabric.Miswired(nil)
		for tiers := range 4 {
			levels, nodes, err := fabric.Inputs(Config{Tiers: tiers, Shape: shape})
			require.NoError(t, err)
			_, err = topology.New(levels, nodes)
			require.NoError(t, err)
		}
	})
}
