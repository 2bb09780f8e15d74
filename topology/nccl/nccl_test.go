package nccl_test

import (
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
	"github.com/lockstep-gpu/lockstep/topology/nccl"
)

// board is a host of two GPUs below each of two NUMA nodes, on an NVSwitch.
const board = `<system version="1">
  <cpu host_hash="0x1" numaid="0" affinity="ffff" arch="x86_64">
    <pci busid="0000:01:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:02:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0" gdr="1">
          <nvlink target="0000:f0:00.0" count="18" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:03:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_0" dev="0" speed="400000" port="1" latency="0.000000" guid="0xa1" maxconn="131072" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
  <cpu host_hash="0x1" numaid="1" affinity="ffff0000" arch="x86_64">
    <pci busid="0000:81:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:82:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90" rank="1" gdr="1">
          <nvlink target="0000:f0:00.0" count="18" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:83:00.0" class="0x020700" link_speed="32.0 GT/s PCIe" link_width="16">
        <nic>
          <net name="mlx5_1" dev="1" speed="400000" port="1" guid="0xa2" gdr="1"/>
        </nic>
      </pci>
    </pci>
  </cpu>
</system>
`

func Example() {
	system, err := nccl.Parse(strings.NewReader(board))
	if err != nil {
		fmt.Println(err)
		return
	}
	host := &system.Hosts[0]
	shape, err := topology.NewShape(host.Config())
	if err != nil {
		fmt.Println(err)
		return
	}
	for d, gpu := range host.GPUs {
		fmt.Println(gpu.Bus, shape.Link(0, d), shape.NUMA(d), shape.NIC(d), host.Cards[d][0])
	}
	fmt.Println(host.NICs[0].Speed, shape.Config().PCIeBandwidth)

	_, err = nccl.Parse(strings.NewReader("<system version=\"1\">\n  <cpu numaid=\"none\"/>\n</system>"))
	fmt.Println(err)
	// Output:
	// 0000:02:00.0 X 0 mlx5_0 PIX
	// 0000:82:00.0 NV18 1 mlx5_1 SYS
	// 50G/s 32G/s
	// nccl: parse: line 2, column 3 = "numaid=none": want a whole number, at most 65536
}

func parse(t *testing.T, text string) *nccl.System {
	t.Helper()
	s, err := nccl.Parse(strings.NewReader(text))
	require.NoError(t, err, text)
	return s
}

func TestWaysOverPCI(t *testing.T) {
	gpu := func(bus string) string { return `<pci busid="0000:` + bus + `:00.0" class="0x030000"/>` }
	s := parse(t, "\ufeff<?xml version=\"1.0\"?>\r\n<!-- by hand -->\r\n<system version=\"1\"><cpu numaid=\"-1\">"+
		gpu("50")+
		`<pci busid="0000:10:00.0"><pci busid="0000:11:00.0">`+gpu("12")+gpu("13")+`</pci>`+gpu("14")+`<pcilink target="0000:99:00.0"/></pci>`+
		`<pci busid="10000:60:00.0" class="0x020000"/><nic><net name="eth0" speed="-1" rail="-3"/></nic></cpu>`+
		`<cpu numaid="1">`+gpu("70")+`<later><pci busid="0000:12:00.0"/></later></cpu></system>`)
	require.Len(t, s.Hosts, 1)
	h := s.Hosts[0]
	var buses []string
	for _, g := range h.GPUs {
		buses = append(buses, g.Bus[5:7])
		require.Equal(t, -1, g.Number)
	}
	require.Equal(t, []string{"12", "13", "14", "50", "70"}, buses)
	const x, pix, pxb, phb, sys = topology.Self, topology.PIX, topology.PXB, topology.PHB, topology.SYS
	require.Equal(t, [][]topology.Link{
		{x, pix, pxb, phb, sys},
		{pix, x, pxb, phb, sys},
		{pxb, pxb, x, phb, sys},
		{phb, phb, phb, x, sys},
		{sys, sys, sys, sys, x},
	}, h.Links)
	require.Equal(t, []nccl.NIC{{Name: "10000:60:00.0", Bus: "10000:60:00.0", NUMA: -1, Rail: -1}, {Name: "eth0", NUMA: -1, Rail: -1}}, h.NICs)
	require.Equal(t, []topology.Link{phb, phb}, h.Cards[0])
	cfg := h.Config()
	require.Equal(t, []int{-1, -1, -1, -1, 1}, cfg.NUMA)
	require.Zero(t, cfg.NVLinkBandwidth)
}

func TestNVLinks(t *testing.T) {
	gpu := func(i int, links string) string {
		return fmt.Sprintf(`<pci busid="0000:%02d:00.0" class="0x030200"><gpu dev="%d" sm="70">%s</gpu></pci>`, 10+i, i, links)
	}
	to := func(target, class string, n int) string {
		return fmt.Sprintf(`<nvlink target="%s" count="%d" tclass="%s"/>`, target, n, class)
	}
	bus := func(i int) string { return fmt.Sprintf("00000000:%02d:00.0", 10+i) }
	s := parse(t, `<system version="1"><cpu numaid="0">`+
		gpu(3, "")+
		gpu(2, to("fffffff:ffff:ff", "0x068000", 4)+to("0000:f1:00.0", "", 3))+
		gpu(1, to(bus(0), "0x030200", 2)+to("0000:f1:00.0", "0x068000", 6)+to("0000:00:00.0", "0x068001", 9))+
		gpu(0, to(bus(1), "0x030200", 2)+to("0000:77:00.0", "0x030200", 1)+`<c2c bw="1" count="2"/>`)+
		`</cpu></system>`)
	h := s.Hosts[0]
	require.Equal(t, topology.NVLink(2), h.Links[0][1])
	require.Equal(t, topology.NVLink(6), h.Links[1][2], "the lesser of two")
	require.Equal(t, topology.PHB, h.Links[0][2], "one end is on no switch")
	require.Equal(t, topology.PHB, h.Links[1][3])
	require.Zero(t, h.Config().NVLinkBandwidth)
	for sm, rate := range map[string]lockstep.BytesPerSecond{"60": 20e9, "80": 0, "100": 50e9, "120": 50e9} { // in any order
		s := parse(t, `<system version="1"><cpu><pci busid="0000:02:00.0"><gpu dev="0" sm="`+sm+`"/></pci></cpu></system>`)
		require.Equal(t, rate, s.Hosts[0].Config().NVLinkBandwidth)
	}
}

func TestHostsAreApart(t *testing.T) {
	host := func(hash string) string {
		return `<cpu host_hash="` + hash + `" numaid="0"><pci busid="0000:02:00.0" class="0x030200"><gpu dev="0" sm="100"/></pci><pci busid="0000:03:00.0" class="0x020000"><nic><net name="mlx5_0" port="1" rail="3"/><net name="mlx5_0" port="2"/><net name="mlx5_0+mlx5_1" net="1"/><net name="mlx5_1" net="0"/></nic></pci></cpu>`
	}
	s := parse(t, `<system version="1">`+host("0x1")+host("0x2")+`</system>`)
	require.Len(t, s.Hosts, 2)
	for i, h := range s.Hosts {
		require.Equal(t, []string{"0x1", "0x2"}[i], h.Hash)
		require.Len(t, h.GPUs, 1)
		require.Len(t, h.NICs, 3)
		require.Equal(t, 3, h.NICs[0].Rail)
		require.Equal(t, "mlx5_0", h.Config().NICs[0])
	}
}

func TestRates(t *testing.T) {
	for _, c := range []struct {
		speed, width string
		rate         lockstep.BytesPerSecond
	}{
		{"2.5 GT/s PCIe", "16", 4e9},
		{"5 GT/s", "16", 8e9},
		{"8.0 GT/s PCIe", "8", 8e9},
		{"16 GT/s", "16", 32e9},
		{"32.0 GT/s PCIe", "16", 64e9},
		{"64.0 GT/s PCIe", "16", 128e9},
		{"Unknown", "16", 0},
		{"Unknown speed", "16", 0},
		{"x GT/s", "16", 0},
		{"", "", 0},
	} {
		s := parse(t, `<system version="1"><cpu><pci busid="0000:02:00.0" class="0x03" link_speed="`+c.speed+`" link_width="`+c.width+`"/></cpu></system>`)
		require.Equal(t, c.rate, s.Hosts[0].GPUs[0].PCIe, c.speed)
	}
}

// node is a made-up PCI tree.
type node struct {
	bus      string
	gpu      bool
	nic      string
	children []*node
}

// grow returns a random tree.
func grow(r *rand.Rand, depth int, next *int) *node {
	*next++
	n := &node{bus: fmt.Sprintf("%04x:%02x:00.0", *next/200, *next%200)}
	switch {
	case depth > 0 && r.IntN(3) > 0:
		for range 1 + r.IntN(3) {
			n.children = append(n.children, grow(r, depth-1, next))
		}
	case r.IntN(3) > 0:
		n.gpu = true
	default:
		n.nic = "mlx5_" + strconv.Itoa(*next)
	}
	return n
}

func (n *node) write(b *strings.Builder, gpus *[]string) {
	class := "0x060400"
	if n.gpu {
		class = "0x030200"
	}
	fmt.Fprintf(b, `<pci busid="%s" class="%s">`, n.bus, class)
	if n.gpu {
		fmt.Fprintf(b, `<gpu dev="%d" sm="80"/>`, len(*gpus))
		*gpus = append(*gpus, n.bus)
	}
	if n.nic != "" {
		fmt.Fprintf(b, `<nic><net name="%s"/></nic>`, n.nic)
	}
	for _, c := range n.children {
		c.write(b, gpus)
	}
	b.WriteString("</pci>")
}

// paths lists the buses above each device, itself last.
func (n *node) paths(above []string, out map[string][]string) {
	path := append(append([]string(nil), above...), n.bus)
	out[n.bus] = path
	for _, c := range n.children {
		c.paths(path, out)
	}
}

func TestLinksEqualThoseOfTheTree(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	for range 300 {
		var b strings.Builder
		var gpus []string
		paths := make(map[string][]string)
		next := 0
		b.WriteString(`<system version="1">`)
		for cpu := range 1 + r.IntN(2) {
			fmt.Fprintf(&b, `<cpu numaid="%d">`, cpu)
			for range 1 + r.IntN(3) {
				n := grow(r, 3, &next)
				n.paths([]string{"cpu" + strconv.Itoa(cpu)}, paths)
				if len(gpus) < 30 {
					n.write(&b, &gpus)
				}
			}
			b.WriteString("</cpu>")
		}
		b.WriteString("</system>")
		h := parse(t, b.String()).Hosts[0]
		require.Len(t, h.GPUs, len(gpus))
		for i := range gpus {
			for j := range gpus {
				p, q := paths[gpus[i]], paths[gpus[j]]
				common := 0
				for common < min(len(p), len(q)) && p[common] == q[common] {
					common++
				}
				want := topology.Self
				switch bridges := len(p) + len(q) - 2*common - 1; {
				case i == j:
				case common == 0:
					want = topology.SYS
				case common == 1:
					want = topology.PHB
				case bridges == 1:
					want = topology.PIX
				default:
					want = topology.PXB
				}
				require.Equal(t, want, h.Links[i][j], "%v %v", p, q)
			}
		}
		_, err := topology.NewShape(h.Config())
		require.NoError(t, err)
	}
}

func TestBadXML(t *testing.T) {
	cpu := func(s string) string { return "<system version=\"1\">\n<cpu numaid=\"0\">\n" + s + "\n</cpu></system>" }
	gpu := func(bus, dev, links string) string {
		return `<pci busid="` + bus + `" class="0x03"><gpu dev="` + dev + `" sm="70">` + links + "</gpu></pci>"
	}
	many := strings.Builder{}
	for i := range 65 {
		fmt.Fprintf(&many, "<pci busid=\"0000:%02x:00.0\" class=\"0x03\"/>\n", i)
	}
	for _, c := range []struct {
		name, in string
		kind     error
		field    string
	}{
		{"nothing", "", lockstep.ErrInvalid, "line 1"},
		{"text", "hello", lockstep.ErrInvalid, "line 1, column 1"},
		{"another root", "<graphs version=\"1\"></graphs>", lockstep.ErrInvalid, "line 1, column 1"},
		{"two roots", "<system version=\"1\"><cpu/></system>\n<system version=\"1\"/>", lockstep.ErrInvalid, "line 2, column 1"},
		{"no version", "<system/>", lockstep.ErrInvalid, "line 1, column 1"},
		{"version 2", "<system version=\"2\"/>", lockstep.ErrInvalid, "line 1, column 1"},
		{"no cpu", "<system version=\"1\"/>", lockstep.ErrInvalid, "line 1"},
		{"cut short", "<system version=\"1\">\n<cpu>", lockstep.ErrInvalid, "line 2, column 6"},
		{"cut in what is skipped", "<system version=\"1\">\n<x>", lockstep.ErrInvalid, "line 2, column 4"},
		{"ends cross", "<system version=\"1\">\n<cpu></system>", lockstep.ErrInvalid, "line 2, column 15"},
		{"text inside", cpu("hello"), lockstep.ErrInvalid, "line 2, column 17"},
		{"directive", "<!DOCTYPE x>\n<system version=\"1\"><cpu/></system>", lockstep.ErrInvalid, "line 1, column 1"},
		{"other encoding", "<?xml version=\"1.0\" encoding=\"latin1\"?><system version=\"1\"><cpu/></system>", lockstep.ErrInvalid, "line 1, column 1"},
		{"attribute twice", "<system version=\"1\">\n<cpu numaid=\"0\" numaid=\"1\"/></system>", lockstep.ErrDuplicate, "line 2, column 1"},
		{"65 attributes", "<system version=\"1\">\n<cpu" + attrs(65) + "/></system>", lockstep.ErrInvalid, "line 2, column 1"},
		{"huge NUMA node", "<system version=\"1\">\n<cpu numaid=\"70000\"/></system>", lockstep.ErrInvalid, "line 2, column 1"},
		{"no bus", cpu("<pci/>"), lockstep.ErrInvalid, "line 3, column 1"},
		{"bad bus", cpu(`<pci busid="0000:0g:00.0"/>`), lockstep.ErrInvalid, "line 3, column 1"},
		{"short bus", cpu(`<pci busid="0f:00.0"/>`), lockstep.ErrInvalid, "line 3, column 1"},
		{"bus twice", cpu(`<pci busid="0000:0f:00.0"/>` + "\n" + `<pci busid="00000000:0F:00.0"/>`), lockstep.ErrDuplicate, "line 4, column 1"},
		{"bad width", cpu(`<pci busid="0000:0f:00.0" link_width="x"/>`), lockstep.ErrInvalid, "line 3, column 1"},
		{"too deep", cpu(deep(65)), lockstep.ErrInvalid, "line 67, column 1"},
		{"two GPUs in a device", cpu(`<pci busid="0000:0f:00.0"><gpu dev="0"/><gpu dev="1"/></pci>`), lockstep.ErrDuplicate, "line 3, column 41"},
		{"65 GPUs", cpu(many.String()), lockstep.ErrInvalid, "line 67, column 1"},
		{"number twice", cpu(gpu("0000:01:00.0", "0", "") + "\n" + gpu("0000:02:00.0", "0", "")), lockstep.ErrDuplicate, "line 4, column 1"},
		{"no count", cpu(gpu("0000:01:00.0", "0", "\n<nvlink target=\"x\"/>")), lockstep.ErrInvalid, "line 4, column 1"},
		{"huge count", cpu(gpu("0000:01:00.0", "0", "\n<nvlink target=\"x\" count=\"64\"/>")), lockstep.ErrInvalid, "line 4, column 1"},
		{"target twice", cpu(gpu("0000:01:00.0", "0", "\n<nvlink target=\"x\" count=\"1\"/>\n<nvlink target=\"x\" count=\"1\"/>")), lockstep.ErrDuplicate, "line 5, column 1"},
		{"one way only", cpu(gpu("0000:01:00.0", "0", "\n<nvlink target=\"0000:02:00.0\" count=\"1\"/>") + gpu("0000:02:00.0", "1", "")), lockstep.ErrInvalid, "line 4, column 1"},
		{"the other way only", cpu(gpu("0000:02:00.0", "1", "") + gpu("0000:01:00.0", "2", "\n<nvlink target=\"0000:02:00.0\" count=\"1\"/>")), lockstep.ErrInvalid, "line 4, column 1"},
		{"other counts", cpu(gpu("0000:01:00.0", "0", "<nvlink target=\"0000:02:00.0\" count=\"1\"/>") + gpu("0000:02:00.0", "1", "\n<nvlink target=\"0000:01:00.0\" count=\"2\"/>")), lockstep.ErrInvalid, "line 4, column 1"},
		{"card without name", cpu("<nic><net/></nic>"), lockstep.ErrInvalid, "line 3, column 6"},
		{"card twice", cpu("<nic><net name=\"a\"/>\n<net name=\"a\"/></nic>"), lockstep.ErrDuplicate, "line 4, column 1"},
		{"bad speed", cpu("<nic>\n<net name=\"a\" speed=\"fast\"/></nic>"), lockstep.ErrInvalid, "line 4, column 1"},
		{"too long", "<system version=\"1\">" + strings.Repeat(" ", 17<<20), lockstep.ErrInvalid, "line 1, column 16777217"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := nccl.Parse(strings.NewReader(c.in))
			require.Nil(t, s)
			require.ErrorIs(t, err, c.kind)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.field, e.Field, "%v", err)
			require.Equal(t, "nccl: parse", e.Op)
		})
	}
}

func attrs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " a%d=\"\"", i)
	}
	return b.String()
}

func deep(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "<pci busid=\"0000:%02x:00.0\">\n", i)
	}
	return b.String() + strings.Repeat("</pci>", n)
}

func TestAReaderThatFailsIsWrapped(t *testing.T) {
	broken := errors.New("cable out")
	for _, text := range []string{"", "<sys", "<system version=\"1\">", "<system version=\"1\"><cpu/></system>"} {
		_, err := nccl.Parse(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)))
		require.ErrorIs(t, err, broken, text)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(board)
	f.Add(`<system version="1"><cpu numaid="0"><pci busid="0000:01:00.0" class="0x03"><gpu dev="0" sm="70"><nvlink target="0000:02:00.0" count="1"/></gpu></pci><pci busid="0000:02:00.0" class="0x03"><gpu dev="1" sm="70"><nvlink target="0000:01:00.0" count="1"/></gpu></pci><nic><net name="a"/></nic></cpu></system>`)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := nccl.Parse(strings.NewReader(text))
		if err != nil {
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Nil(t, s)
			return
		}
		require.NotEmpty(t, s.Hosts)
		for i := range s.Hosts {
			shape, err := topology.NewShape(s.Hosts[i].Config())
			require.NoError(t, err)
			require.Equal(t, len(s.Hosts[i].GPUs), shape.Devices())
		}
	})
}
