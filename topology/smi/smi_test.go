package smi_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/smi"
)

func Example() {
	report, err := smi.Parse(strings.NewReader(strings.Join([]string{
		"\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity",
		"GPU0\t X \tNV4\tPIX\tSYS\t0-15,32-47\t0",
		"GPU1\tNV4\t X \tSYS\tPIX\t16-31,48-63\t1",
		"NIC0\tPIX\tSYS\t X \tSYS\t\t",
		"NIC1\tSYS\tPIX\tSYS\t X \t\t",
		"",
		"NIC Legend:",
		"",
		"  NIC0: mlx5_0",
		"  NIC1: mlx5_3",
	}, "\n")))
	if err != nil {
		fmt.Println(err)
		return
	}
	cfg, _ := report.Config()
	shape, err := topology.NewShape(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	for d := range shape.Devices() {
		fmt.Println(report.GPUs[d], shape.Link(d, 0), shape.NIC(d), shape.NUMA(d), report.CPUs[d])
	}
	_, err = smi.Parse(strings.NewReader("\tGPU0\tGPU1\nGPU0\t X \tNVB\nGPU1\tNV1\t X\n"))
	fmt.Println(err)
	// Output:
	// GPU0 X mlx5_0 0 [{0 15} {32 47}]
	// GPU1 NV4 mlx5_3 1 [{16 31} {48 63}]
	// smi: parse: line 2, column 10 = "NVB": want X for a device and itself, else NV1 to NV63, PIX, PXB, PHB, NODE or SYS
}

// sample opens a text that lies beside the repository.
func sample(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "..", "shared", "samples", "topology", name))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("no samples beside the repository: ", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func parseSample(t *testing.T, name string) (*smi.Report, *topology.Shape) {
	t.Helper()
	report, err := smi.Parse(sample(t, name))
	require.NoError(t, err)
	cfg, ok := report.Config()
	require.True(t, ok)
	shape, err := topology.NewShape(cfg)
	require.NoError(t, err)
	return report, shape
}

func TestSampleOfSwitchAndTenCards(t *testing.T) {
	report, shape := parseSample(t, "nvsmi-a100-nvswitch-10nic.txt")
	require.Len(t, report.NICs, 10)
	require.Equal(t, "mlx5_9", report.NICs[9])
	require.Equal(t, 8, shape.Devices())
	for i := range 8 {
		require.Equal(t, "mlx5_"+strconv.Itoa(i), shape.NIC(i), "equally near cards are shared out")
		require.Equal(t, []int{3, 3, 1, 1, 7, 7, 5, 5}[i], shape.NUMA(i))
		require.Equal(t, topology.NVLink(12), shape.Link(i, (i+3)%8))
		require.Equal(t, -1, report.Own[i])
	}
	require.Equal(t, []smi.Span{{First: 48, Last: 63}, {First: 176, Last: 191}}, report.CPUs[0])
}

func TestSampleOfOneCardByName(t *testing.T) {
	report, shape := parseSample(t, "nvsmi-v100-hybrid-mesh-1hca.txt")
	require.Equal(t, []string{"mlx5_0"}, report.NICs)
	require.Equal(t, "mlx5_0", shape.NIC(7), "the only one, though far")
	require.Equal(t, topology.NODE, report.Cards[0][0])
	require.Equal(t, topology.PIX, report.Cards[2][0])
	require.Equal(t, topology.NVLink(2), shape.Link(0, 3))
	require.Equal(t, topology.SYS, shape.Link(0, 5))
	require.Equal(t, -1, shape.NUMA(0))
	require.Equal(t, []smi.Span{{First: 12, Last: 23}, {First: 36, Last: 47}}, report.CPUs[4])
}

func TestSampleWithoutNUMAColumn(t *testing.T) {
	report, shape := parseSample(t, "nvsmi-v100-hybrid-mesh-no-numa-column.txt")
	require.Empty(t, report.NICs)
	require.Empty(t, shape.NIC(0))
	require.Equal(t, topology.NVLink(2), shape.Link(3, 7))
	require.Equal(t, topology.NODE, shape.Link(3, 6))
	require.Len(t, report.CPUs[7], 2)
	require.Empty(t, report.NUMA[7])
}

func TestSampleOfATray(t *testing.T) {
	report, shape := parseSample(t, "nvsmi-gb200-tray.txt")
	require.Equal(t, 4, shape.Devices())
	require.Equal(t, topology.NVLink(18), shape.Link(0, 3))
	require.Equal(t, 1, shape.NUMA(3))
	require.Equal(t, []int{-1, -1, -1, -1}, report.Own)
	require.Equal(t, []smi.Span{{First: 72, Last: 143}}, report.CPUs[2])
}

func TestSampleWithDoubledTabsAndASecondMatrix(t *testing.T) {
	report, shape := parseSample(t, "nvsmi-2gpu-phb-tabs.txt")
	require.Equal(t, topology.PHB, shape.Link(0, 1))
	require.Equal(t, 0, shape.NUMA(1))
	require.Equal(t, [][][]smi.Status{{{smi.Self, smi.GPUNotSupported}, {smi.GPUNotSupported, smi.Self}}}, report.P2P)
}

// draw returns a random report.
func draw(r *rand.Rand) *smi.Report {
	gpus, cards := 1+r.IntN(8), r.IntN(4)
	if r.IntN(10) == 0 {
		gpus = 64
	}
	out := &smi.Report{}
	for i := range gpus {
		out.GPUs = append(out.GPUs, "GPU"+strconv.Itoa(i))
	}
	for i := range cards {
		out.NICs = append(out.NICs, "mlx5_"+strconv.Itoa(i))
	}
	codes := []topology.Link{topology.NVLink(1 + r.IntN(18)), topology.PIX, topology.PXB, topology.PHB, topology.NODE, topology.SYS}
	for i := range gpus {
		out.Links = append(out.Links, make([]topology.Link, gpus))
		for j := range i {
			out.Links[i][j] = codes[r.IntN(len(codes))]
			out.Links[j][i] = out.Links[i][j]
		}
		row := make([]topology.Link, cards)
		for j := range row {
			row[j] = codes[1+r.IntN(5)]
		}
		out.Cards = append(out.Cards, row)
		var cpus, numa []smi.Span
		if r.IntN(4) > 0 {
			cpus = []smi.Span{{First: i, Last: i + r.IntN(50)}, {First: 128, Last: 128}}
		}
		if r.IntN(4) > 0 {
			numa = []smi.Span{{First: i % 4, Last: i % 4}}
		}
		out.CPUs, out.NUMA, out.Own = append(out.CPUs, cpus), append(out.NUMA, numa), append(out.Own, r.IntN(3)-1)
	}
	statuses := []smi.Status{smi.OK, smi.ChipsetNotSupported, smi.GPUNotSupported, smi.TopologyNotSupported, smi.NotSupported, smi.Disabled, smi.Unknown}
	for range r.IntN(3) {
		m := make([][]smi.Status, gpus)
		for i := range m {
			m[i] = make([]smi.Status, gpus)
			for j := range m[i] {
				m[i][j] = statuses[r.IntN(len(statuses))]
			}
			m[i][i] = smi.Self
		}
		out.P2P = append(out.P2P, m)
	}
	return out
}

// spans writes a list, "" or "N/A" where it is empty.
func spans(r *rand.Rand, s []smi.Span, blank bool) string {
	if len(s) == 0 && blank && r.IntN(2) == 0 {
		return ""
	}
	if len(s) == 0 {
		return "N/A"
	}
	var parts []string
	for _, x := range s {
		if x.First == x.Last {
			parts = append(parts, strconv.Itoa(x.First))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", x.First, x.Last))
		}
	}
	return strings.Join(parts, ",")
}

// write prints a report as the tool does, in one of the forms that it has had.
func write(r *rand.Rand, in *smi.Report) string {
	tabs := r.IntN(2) == 0
	legend := r.IntN(2) == 0
	heads := append([]string(nil), in.GPUs...)
	for i, nic := range in.NICs {
		if legend {
			nic = "NIC" + strconv.Itoa(i)
		}
		heads = append(heads, nic)
	}
	doubled := tabs && r.IntN(2) == 0
	table := [][]string{append(append([]string{""}, heads...), "CPU Affinity", "NUMA Affinity", "GPU NUMA ID")}
	for i := range heads {
		if i >= len(in.GPUs) && r.IntN(4) == 0 {
			continue // a missing row of a card
		}
		row := []string{heads[i]}
		for j := range heads {
			switch {
			case i == j:
				row = append(row, " X ")
			case i < len(in.GPUs) && j < len(in.GPUs):
				row = append(row, in.Links[i][j].String())
			case i < len(in.GPUs):
				row = append(row, in.Cards[i][j-len(in.GPUs)].String())
			case j < len(in.GPUs):
				row = append(row, in.Cards[j][i-len(in.GPUs)].String())
			default:
				row = append(row, "SYS")
			}
		}
		if i < len(in.GPUs) {
			row = append(row, spans(r, in.CPUs[i], true), spans(r, in.NUMA[i], true))
			if doubled {
				row = append(row, "")
			}
			own := "N/A"
			if in.Own[i] >= 0 {
				own = strconv.Itoa(in.Own[i])
			}
			row = append(row, own)
		}
		table = append(table, row)
	}
	var b strings.Builder
	if r.IntN(4) == 0 {
		b.WriteString("\xef\xbb\xbf")
	}
	print := func(table [][]string) {
		for n, row := range table {
			if n == 0 && tabs {
				b.WriteString("\x1b[4m" + strings.Join(row, "\t") + "\x1b[0m\n")
				continue
			}
			if tabs {
				b.WriteString(strings.Join(row, "\t") + "\n")
				continue
			}
			for _, c := range row {
				fmt.Fprintf(&b, "%-24s", c)
			}
			b.WriteString("\n")
		}
	}
	print(table)
	b.WriteString("\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n")
	if legend && len(in.NICs) > 0 {
		b.WriteString("\nNIC Legend:\n\n")
		for i, nic := range in.NICs {
			fmt.Fprintf(&b, "  NIC%d: %s\n", i, nic)
		}
	}
	for _, m := range in.P2P {
		b.WriteString("\n# access\n")
		table := [][]string{append([]string{" "}, in.GPUs...)}
		for i := range m {
			row := []string{" " + in.GPUs[i]}
			for _, st := range m[i] {
				row = append(row, string(st))
			}
			table = append(table, row)
		}
		print(table)
		b.WriteString("\nLegend:\n\n  OK   = Status Ok\n  CNS  = Chipset not supported\n")
	}
	if r.IntN(3) == 0 {
		return strings.ReplaceAll(b.String(), "\n", "\r\n")
	}
	return b.String()
}

func TestWhatIsPrintedIsRead(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		want := draw(r)
		text := write(r, want)
		got, err := smi.Parse(strings.NewReader(text))
		require.NoError(t, err, "%s", text)
		if len(want.NICs) == 0 { // no cards at all are told by empty slices
			want.NICs, got.NICs = nil, nil
		}
		require.Equal(t, want, got, "%s", text)
		cfg, ok := got.Config()
		require.True(t, ok)
		_, err = topology.NewShape(cfg)
		require.NoError(t, err)
	}
}

func TestBadTexts(t *testing.T) {
	const pair = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tNV1\t0-3\t0\nGPU1\tNV1\tX\t0-3\t0\n"
	for _, c := range []struct {
		name, in string
		kind     error
		field    string
	}{
		{"nothing", "", lockstep.ErrInvalid, "line 1"},
		{"only a comment", "# hello\n", lockstep.ErrInvalid, "line 1"},
		{"a tool that failed", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", lockstep.ErrInvalid, "line 1, column 1"},
		{"legend alone", "Legend:\n", lockstep.ErrInvalid, "line 1, column 1"},
		{"head alone", "\tGPU0\tGPU1\n", lockstep.ErrInvalid, "line 1, column 2"},
		{"row missing", "\tGPU0\tGPU1\nGPU0\tX\tNV1\n", lockstep.ErrInvalid, "line 1, column 2"},
		{"row missing in the middle", "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV1\tNV1\nGPU2\tNV1\tNV1\tX\n", lockstep.ErrInvalid, "line 3, column 1"},
		{"one row more", "\tGPU0\nGPU0\tX\nGPU1\tX\n", lockstep.ErrInvalid, "line 3, column 1"},
		{"cell missing", "\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV1\n", lockstep.ErrInvalid, "line 3, column 9"},
		{"one cell more", "\tGPU0\tGPU1\nGPU0\tX\tNV1\tNV2\nGPU1\tNV1\tX\n", lockstep.ErrInvalid, "line 2, column 12"},
		{"asymmetric", "\tGPU0\tGPU1\nGPU0\tX\tNV1\nGPU1\tNV2\tX\n", lockstep.ErrInvalid, "line 3, column 6"},
		{"asymmetric card", "\tGPU0\tNIC0\nGPU0\tX\tPIX\nNIC0\tSYS\tX\n", lockstep.ErrInvalid, "line 3, column 6"},
		{"NV0", "\tGPU0\tGPU1\nGPU0\tX\tNV0\nGPU1\tNV0\tX\n", lockstep.ErrInvalid, "line 2, column 8"},
		{"NVB", "\tGPU0\tGPU1\nGPU0\tX\tNVB\nGPU1\tNVB\tX\n", lockstep.ErrInvalid, "line 2, column 8"},
		{"other case", "\tGPU0\tGPU1\nGPU0\tX\tpix\nGPU1\tpix\tX\n", lockstep.ErrInvalid, "line 2, column 8"},
		{"X beside the diagonal", "\tGPU0\tGPU1\nGPU0\tX\tX\nGPU1\tX\tX\n", lockstep.ErrInvalid, "line 2, column 8"},
		{"no X on the diagonal", "\tGPU0\tGPU1\nGPU0\tPIX\tPIX\nGPU1\tPIX\tX\n", lockstep.ErrInvalid, "line 2, column 6"},
		{"codes of both kinds", "\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tPIX\tX\n", lockstep.ErrInvalid, "line 3, column 6"},
		{"head twice", "\tGPU0\tGPU0\n", lockstep.ErrDuplicate, "line 1, column 7"},
		{"card before a GPU", "\tGPU0\tNIC0\tGPU1\n", lockstep.ErrInvalid, "line 1, column 12"},
		{"unknown column", "\tGPU0\tCPU Affinity\tCPU Speed\n", lockstep.ErrInvalid, "line 1, column 20"},
		{"column twice", "\tGPU0\tCPU Affinity\tCPU Affinity\n", lockstep.ErrDuplicate, "line 1, column 20"},
		{"bad name of a card", "\tGPU0\tmlx5!0\n", lockstep.ErrInvalid, "line 1, column 7"},
		{"65 GPUs", heads(65), lockstep.ErrInvalid, "line 1, column 376"},
		{"bad affinity", "\tGPU0\tCPU Affinity\nGPU0\tX\t3-1\n", lockstep.ErrInvalid, "line 2, column 8"},
		{"affinity with a letter", "\tGPU0\tCPU Affinity\nGPU0\tX\t0-f\n", lockstep.ErrInvalid, "line 2, column 8"},
		{"huge affinity", "\tGPU0\tCPU Affinity\nGPU0\tX\t0-1000000\n", lockstep.ErrInvalid, "line 2, column 8"},
		{"GPU memory on two nodes", "\tGPU0\tGPU NUMA ID\nGPU0\tX\t0-1\n", lockstep.ErrInvalid, "line 2, column 8"},
		{"affinity under no head", "        GPU0    CPU Affinity    NUMA Affinity\nGPU0     X           0\n", lockstep.ErrInvalid, "line 2, column 22"},
		{"legend of the other kind", pair + "\nLegend:\n\n  OK = fine\n", lockstep.ErrInvalid, "line 7, column 3"},
		{"legend of unknown code", pair + "\nLegend:\n\n  NVB = what\n", lockstep.ErrInvalid, "line 7, column 3"},
		{"legend without meaning", pair + "\nLegend:\n\n  PIX\n", lockstep.ErrInvalid, "line 7, column 3"},
		{"legend of no card", pair + "\nNIC Legend:\n\n  NIC0: mlx5_0\n", lockstep.ErrInvalid, "line 7, column 3"},
		{"card named twice", "\tGPU0\tNIC0\nGPU0\tX\tPIX\n\nNIC Legend:\n  NIC0: a\n  NIC0: b\n", lockstep.ErrDuplicate, "line 6, column 3"},
		{"two cards of one name", "\tGPU0\tNIC0\tNIC1\nGPU0\tX\tPIX\tPIX\n\nNIC Legend:\n  NIC0: a\n  NIC1: a\n", lockstep.ErrDuplicate, "line 6, column 9"},
		{"card with a bad name", "\tGPU0\tNIC0\nGPU0\tX\tPIX\n\nNIC Legend:\n  NIC0: a,b\n", lockstep.ErrInvalid, "line 5, column 9"},
		{"card legend without colon", "\tGPU0\tNIC0\nGPU0\tX\tPIX\n\nNIC Legend:\n  NIC0 a\n", lockstep.ErrInvalid, "line 5, column 3"},
		{"links twice", pair + "\n" + pair, lockstep.ErrDuplicate, "line 5, column 2"},
		{"other GPUs", pair + "\n\tGPU0\nGPU0\tX\n", lockstep.ErrInvalid, "line 5, column 2"},
		{"status on the diagonal", "\tGPU0\tGPU1\nGPU0\tOK\tOK\nGPU1\tOK\tX\n", lockstep.ErrInvalid, "line 2, column 6"},
		{"line without end", pair + strings.Repeat("x", 5<<20), lockstep.ErrInvalid, "line 4, column 4194305"},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := smi.Parse(strings.NewReader(c.in))
			require.Nil(t, report)
			require.ErrorIs(t, err, c.kind)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.field, e.Field, "%v", err)
			require.Equal(t, "smi: parse", e.Op)
		})
	}
}

func heads(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("\tGPU" + strconv.Itoa(i))
	}
	return b.String() + "\n"
}

func TestOddTexts(t *testing.T) {
	for _, c := range []struct {
		name, in string
		numa     int
		cpus     int
	}{
		{"only the last column is filled", "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t\t\t\tN/A\n", -1, 0},
		{"nothing is known, with tabs to spare", "\x1b[4m\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \t\t\tN/A\t\tN/A\n", -1, 0},
		{"doubled tabs before each", "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-7\t\tN/A\t\tN/A\n", -1, 1},
		{"only the middle one", "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t\t1\t\tN/A\n", 1, 0},
		{"only the middle one, by blanks", "        GPU0    CPU Affinity    NUMA Affinity\nGPU0     X                      1\n", 1, 0},
		{"several nodes", "\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0\t0-1\n", -1, 1},
		{"old code, no NUMA", "\tGPU0\tmlx4_0\tCPU Affinity\nGPU0\t X \tSOC\t0-7\nmlx4_0\tSOC\t X\n\nLegend:\n\n  SOC  = Path traverses a socket-level link\n", -1, 1},
		{"two matrices side by side", "\tGPU0\tCPU Affinity\nGPU0\tX\t0-7\n\n\tGPU0\nGPU0\tX\n", -1, 1},
		{"chosen GPUs", "\tGPU3\tCPU Affinity\nGPU3\tX\t0-7\n", -1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			report, err := smi.Parse(strings.NewReader(c.in))
			require.NoError(t, err)
			cfg, ok := report.Config()
			require.True(t, ok)
			require.Equal(t, c.numa, cfg.NUMA[0])
			require.Len(t, report.CPUs[0], c.cpus)
		})
	}
	report, err := smi.Parse(strings.NewReader("\tGPU0\tGPU1\nGPU0\tX\tOK\nGPU1\tNS\tX\n"))
	require.NoError(t, err)
	require.Len(t, report.P2P, 1)
	_, ok := report.Config()
	require.False(t, ok, "no matrix of links")
}

func FuzzParse(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 6 {
		report := draw(r)
		for len(report.GPUs) > 4 {
			report = draw(r)
		}
		f.Add(write(r, report))
	}
	f.Fuzz(func(t *testing.T, text string) {
		report, err := smi.Parse(strings.NewReader(text))
		if err != nil {
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Nil(t, report)
			return
		}
		require.NotEmpty(t, report.GPUs)
		cfg, ok := report.Config()
		require.Equal(t, ok, report.Links != nil)
		shape, err := topology.NewShape(cfg)
		require.NoError(t, err)
		if ok {
			require.Equal(t, len(report.GPUs), shape.Devices())
		}
	})
}
