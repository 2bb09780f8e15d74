package nvml_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/nvml/nvmltest"
	"github.com/lockstep-gpu/lockstep/topology"
	"github.com/lockstep-gpu/lockstep/topology/nvml"
)

func Example() {
	host, err := nvml.Read(nvml.Config{})
	if errors.Is(err, nvml.ErrUnavailable) {
		fmt.Println("no GPUs of NVIDIA here:", err)
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	node, err := host.Node("host-1", []string{"rack-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(node.Shape.Devices(), node.Devices)
}

func ExampleHost_Node() {
	var host nvml.Host // as it was kept
	err := json.Unmarshal([]byte(`{
		"gpus": [
			{"uuid": "GPU-a", "bus": "0000:1a:00.0", "numa": [0], "nvlinks": [{"number": 0, "up": true, "to": "gpu", "bus": "0000:1b:00.0"}]},
			{"uuid": "GPU-b", "bus": "0000:1b:00.0", "numa": [0], "nvlinks": [{"number": 0, "up": true, "to": "gpu", "bus": "0000:1a:00.0"}]},
			{"uuid": "GPU-c", "bus": "0000:9a:00.0", "numa": [1]}
		],
		"pcie": [["X", "PIX", "SYS"], ["PIX", "X", "SYS"], ["SYS", "SYS", "X"]]
	}`), &host)
	if err != nil {
		fmt.Println(err)
		return
	}
	node, err := host.Node("host-1", []string{"rack-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(node.Devices, node.Shape.Link(0, 1), node.Shape.Link(0, 2), node.Shape.NUMA(2))
	// Output:
	// [GPU-a GPU-b GPU-c] NV1 SYS 1
}

func TestMain(m *testing.M) { nvmltest.Main(m) }

// read reads the library of a child and makes a node of it.
func read(t *testing.T) (*nvml.Host, topology.Node) {
	t.Helper()
	h, err := nvml.Read(nvml.Config{Library: nvmltest.Library()})
	require.NoError(t, err)
	node, err := h.Node("n", []string{"r"})
	require.NoError(t, err)
	_, err = topology.New([]topology.Level{{Name: "rack"}}, []topology.Node{node})
	require.NoError(t, err)
	text, err := json.Marshal(h)
	require.NoError(t, err)
	var again nvml.Host
	require.NoError(t, json.Unmarshal(text, &again))
	require.Equal(t, h, &again, "what is kept is what was read")
	return h, node
}

func fault(t *testing.T, err, kind error) *lockstep.Error {
	t.Helper()
	require.ErrorIs(t, err, kind)
	var e *lockstep.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, "nvml: read", e.Op)
	return e
}

func TestSwitchedHost(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "nvswitch8") {
		return
	}
	h, node := read(t)
	require.Equal(t, "570.86.15", h.Driver)
	require.Empty(t, h.Unknown)
	require.Len(t, node.Devices, 8)
	require.Equal(t, lockstep.DeviceID("GPU-00000007-0000-4000-8000-000000000000"), node.Devices[7])
	cfg := node.Shape.Config()
	for i := range 8 {
		for j := range 8 {
			want := topology.NVLink(18)
			if i == j {
				want = topology.Self
			}
			require.Equal(t, want, node.Shape.Link(i, j))
		}
		require.Equal(t, i/4, node.Shape.NUMA(i))
	}
	require.Equal(t, lockstep.BytesPerSecond(26562e6), cfg.NVLinkBandwidth)
	require.Equal(t, lockstep.BytesPerSecond(64e9), cfg.PCIeBandwidth)
	require.Nil(t, cfg.NICs)
	g := h.GPUs[5]
	require.Equal(t, 13, g.Own)
	require.Equal(t, lockstep.Bytes(80<<30), g.Memory)
	require.Equal(t, 90, g.Capability)
	require.Equal(t, &nvml.MIG{}, g.MIG)
	require.Equal(t, nvml.OK, h.Access[0][7].Atomics)
	require.Equal(t, nvml.Access{}, h.Access[3][3])
	require.Equal(t, topology.NODE, h.PCIe[0][3])
	clique, ok := h.Clique()
	require.True(t, ok)
	require.Equal(t, "a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeaf.7", clique)
	again, err := nvml.Read(nvml.Config{Library: nvmltest.Library()})
	require.NoError(t, err)
	require.Equal(t, h, again, "the library may be asked again")
}

func TestHostWithoutNVLink(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "pcie4") {
		return
	}
	h, node := read(t)
	const x, pix, pxb, sys = topology.Self, topology.PIX, topology.PXB, topology.SYS
	require.Equal(t, [][]topology.Link{{x, pix, sys, sys}, {pix, x, sys, sys}, {sys, sys, x, pxb}, {sys, sys, pxb, x}}, node.Shape.Config().Links)
	require.Equal(t, []string{"nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetMigMode", "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetNvLinkState"}, h.Unknown)
	require.Nil(t, h.GPUs[0].Fabric)
	require.Nil(t, h.GPUs[0].MIG)
	require.Nil(t, h.GPUs[0].NVLinks)
	require.Equal(t, -1, h.GPUs[0].Own)
	require.Equal(t, nvml.Access{Read: nvml.ChipsetNotSupported, Write: nvml.ChipsetNotSupported, NVLink: nvml.NotSupported, Atomics: nvml.ChipsetNotSupported}, h.Access[0][1])
	_, ok := h.Clique()
	require.False(t, ok)
}

func TestDirectNVLinks(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "mesh4") {
		return
	}
	_, node := read(t)
	nv := topology.NVLink
	const x = topology.Self
	require.Equal(t, [][]topology.Link{
		{x, nv(1), nv(1), nv(2)},
		{nv(1), x, nv(2), nv(1)},
		{nv(1), nv(2), x, nv(2)},
		{nv(2), nv(1), nv(2), x},
	}, node.Shape.Config().Links, "one of the links between 0 and 1 is down at 0")
	require.Zero(t, node.Shape.Config().NVLinkBandwidth, "unknown is the default")
}

func TestHostWithMIG(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "mig2") {
		return
	}
	h, node := read(t)
	require.Equal(t, topology.NODE, node.Shape.Link(0, 1), "12 NVLinks are up, but there is no access over them")
	require.Equal(t, &nvml.MIG{On: true, Pending: true, Instances: []nvml.Instance{
		{UUID: "MIG-00000000-0000-4000-8000-000000000000", GPU: 1, Memory: 40192 << 20, Slices: 3, Start: 4, Size: 4},
		{UUID: "MIG-00000000-0000-4000-8000-000000000002", GPU: 3, Memory: 9728 << 20, Slices: 1, Start: -1},
	}}, h.GPUs[0].MIG)
	require.Equal(t, &nvml.MIG{Pending: true}, h.GPUs[1].MIG)
}

func TestDegradedHost(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "degraded") {
		return
	}
	h, node := read(t)
	require.Equal(t, topology.NVLink(18), node.Shape.Link(0, 1))
	require.Equal(t, topology.NVLink(9), node.Shape.Link(0, 3), "half of the links of 3 are down")
	require.Equal(t, topology.SYS, node.Shape.Link(0, 7), "no access to 7 over NVLink")
	require.Equal(t, topology.NODE, node.Shape.Link(4, 7))
	require.Equal(t, &nvml.Fabric{State: nvml.InProgress}, h.GPUs[0].Fabric)
	require.Equal(t, &nvml.Fabric{State: nvml.Failed, Reason: "NVML_ERROR_RESET_REQUIRED"}, h.GPUs[1].Fabric)
	_, ok := h.Clique()
	require.False(t, ok)
}

func TestOldLibrary(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t, "-DOLD"), "nvswitch8") {
		return
	}
	h, node := read(t)
	require.Len(t, node.Devices, 8)
	require.Equal(t, topology.NODE, node.Shape.Link(0, 3), "it tells nothing of NVLinks")
	require.Equal(t, topology.SYS, node.Shape.Link(0, 4))
	require.Equal(t, -1, node.Shape.NUMA(0))
	require.Nil(t, h.Access)
	require.Equal(t, []string{
		"nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetMemoryAffinity", "nvmlDeviceGetMigMode",
		"nvmlDeviceGetNumaNodeId", "nvmlDeviceGetNvLinkState", "nvmlDeviceGetP2PStatus",
	}, h.Unknown)
}

func TestHostWithoutGPUs(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "empty") {
		return
	}
	h, node := read(t)
	require.Empty(t, h.GPUs)
	require.Zero(t, node.Shape.Devices())
	_, ok := h.Clique()
	require.False(t, ok)
}

func TestErrorsOfTheLibrary(t *testing.T) {
	for _, c := range []struct {
		scenario string
		kind     error
		field    string
	}{
		{"nodriver", nvml.ErrUnavailable, "nvmlInit_v2"},
		{"mismatch", nvml.ErrUnavailable, "nvmlInit_v2"},
		{"lost", nvml.ErrLost, "GPUs[1]: nvmlDeviceGetHandleByIndex_v2"},
		{"errors", nvml.ErrFailed, "GPUs[2]: nvmlDeviceGetUUID"},
		{"many", nvml.ErrFailed, "nvmlDeviceGetCount_v2"},
		{"odd", nvml.ErrFailed, "GPUs[0] and GPUs[1]: nvmlDeviceGetTopologyCommonAncestor"},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			if nvmltest.Child(t, nvmltest.Build(t), c.scenario) {
				return
			}
			h, err := nvml.Read(nvml.Config{Library: nvmltest.Library()})
			require.Nil(t, h)
			require.Equal(t, c.field, fault(t, err, c.kind).Field, "%v", err)
		})
	}
}

func TestNoLibrary(t *testing.T) {
	h, err := nvml.Read(nvml.Config{Library: "no-such-library.so"})
	require.Nil(t, h)
	fault(t, err, nvml.ErrUnavailable)
}

func TestBareLibrary(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t, "-DBARE"), "pcie4") {
		return
	}
	_, err := nvml.Read(nvml.Config{Library: nvmltest.Library()})
	require.Equal(t, "it has no nvmlInit_v2", fault(t, err, nvml.ErrUnavailable).Reason)
}

func TestKeptHostsAreChecked(t *testing.T) {
	const x, pix, sys = topology.Self, topology.PIX, topology.SYS
	good := func() *nvml.Host {
		return &nvml.Host{GPUs: []nvml.GPU{{UUID: "a", NUMA: []int{0}}, {UUID: "b"}}, PCIe: [][]topology.Link{{x, pix}, {pix, x}}}
	}
	_, err := good().Node("n", nil)
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		spoil func(h *nvml.Host)
		kind  error
		field string
	}{
		{"no name", func(h *nvml.Host) { h.GPUs[1].UUID = "" }, lockstep.ErrInvalid, "GPUs[1].UUID"},
		{"one name", func(h *nvml.Host) { h.GPUs[1].UUID = "a" }, lockstep.ErrDuplicate, "GPUs[1].UUID"},
		{"no matrix", func(h *nvml.Host) { h.PCIe = nil }, lockstep.ErrInvalid, "PCIe"},
		{"not square", func(h *nvml.Host) { h.PCIe[1] = h.PCIe[1][:1] }, lockstep.ErrInvalid, "PCIe"},
		{"not symmetric", func(h *nvml.Host) { h.PCIe[1][0] = sys }, lockstep.ErrInvalid, "PCIe[0][1]"},
		{"NVLink over PCIe", func(h *nvml.Host) { h.PCIe[0][1], h.PCIe[1][0] = topology.NVLink(1), topology.NVLink(1) }, lockstep.ErrInvalid, "PCIe[0][1]"},
		{"access not square", func(h *nvml.Host) { h.Access = make([][]nvml.Access, 2) }, lockstep.ErrInvalid, "Access"},
		{"negative rate", func(h *nvml.Host) { h.GPUs[0].PCIe = -1 }, lockstep.ErrInvalid, "GPUs[0].PCIe"},
		{"negative rate of a link", func(h *nvml.Host) { h.GPUs[0].NVLinks = []nvml.NVLink{{Rate: -1}} }, lockstep.ErrInvalid, "GPUs[0].NVLinks"},
		{"many links", func(h *nvml.Host) { h.GPUs[0].NVLinks = make([]nvml.NVLink, 64) }, lockstep.ErrInvalid, "GPUs[0].NVLinks"},
		{"negative NUMA node", func(h *nvml.Host) { h.GPUs[0].NUMA[0] = -5 }, lockstep.ErrInvalid, "GPUs[0].NUMA[0]"},
		{"65 GPUs", func(h *nvml.Host) { h.GPUs = make([]nvml.GPU, 65) }, lockstep.ErrInvalid, "GPUs"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := good()
			c.spoil(h)
			_, err := h.Config()
			require.ErrorIs(t, err, c.kind)
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.field, e.Field, "%v", err)
			_, err = h.Node("n", nil)
			require.ErrorIs(t, err, c.kind)
		})
	}
}

// TestEveryHostMakesAShape draws hosts whose NVLinks are not even symmetric.
func TestEveryHostMakesAShape(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	remotes := []nvml.Remote{nvml.RemoteGPU, nvml.RemoteSwitch, nvml.RemoteCPU, nvml.RemoteUnknown}
	statuses := []nvml.Status{nvml.OK, nvml.OK, nvml.Unknown, nvml.NotSupported}
	for range 500 {
		n := 1 + r.IntN(6)
		bus := func(i int) string { return fmt.Sprintf("0000:%02x:00.0", i) }
		h := &nvml.Host{PCIe: make([][]topology.Link, n), Access: make([][]nvml.Access, n)}
		for i := range n {
			g := nvml.GPU{UUID: lockstep.DeviceID(fmt.Sprintf("GPU-%d", i)), Bus: bus(i)}
			for l := range r.IntN(20) {
				g.NVLinks = append(g.NVLinks, nvml.NVLink{Number: l, Up: r.IntN(4) > 0, Remote: remotes[r.IntN(4)], Bus: bus(r.IntN(n + 2)), Rate: lockstep.BytesPerSecond(r.IntN(3))})
			}
			h.GPUs = append(h.GPUs, g)
			h.PCIe[i], h.Access[i] = make([]topology.Link, n), make([]nvml.Access, n)
			for j := range n {
				h.Access[i][j].NVLink = statuses[r.IntN(4)]
				if j < i {
					h.PCIe[i][j] = topology.PIX + topology.Link(r.IntN(5))
					h.PCIe[j][i] = h.PCIe[i][j]
				}
			}
		}
		cfg, err := h.Config()
		require.NoError(t, err)
		shape, err := topology.NewShape(cfg)
		require.NoError(t, err)
		for i := range n {
			for j := range n {
				if i == j {
					continue
				}
				up := func(a, b int) (direct, switched int) {
					for _, l := range h.GPUs[a].NVLinks {
						if !l.Up {
							continue
						}
						if l.Bus == bus(b) {
							direct++
						}
						if l.Remote == nvml.RemoteSwitch || l.Remote == nvml.RemoteUnknown && (l.Bus == bus(n) || l.Bus == bus(n+1)) {
							switched++
						}
					}
					return direct, switched
				}
				d1, s1 := up(i, j)
				d2, s2 := up(j, i)
				want := h.PCIe[i][j]
				blocked := h.Access[i][j].NVLink == nvml.NotSupported || h.Access[j][i].NVLink == nvml.NotSupported
				switch {
				case blocked:
				case min(d1, d2) > 0:
					want = topology.NVLink(min(d1, d2))
				case min(s1, s2) > 0:
					want = topology.NVLink(min(s1, s2))
				}
				require.Equal(t, want, shape.Link(i, j))
			}
		}
	}
}

func FuzzHost(f *testing.F) {
	f.Add([]byte(`{"gpus":[{"uuid":"a","bus":"x","nvlinks":[{"number":0,"up":true,"to":"gpu","bus":"y","rate":"25G/s"}]},{"uuid":"b","bus":"y","numa":[0],"fabric":{"state":"done","cluster":"c","clique":3}}],"pcie":[["X","PIX"],["PIX","X"]],"access":[[{},{"nvlink":"OK"}],[{},{}]]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var h nvml.Host
		if json.Unmarshal(data, &h) != nil {
			return
		}
		h.Clique()
		node, err := h.Node("n", nil)
		if err != nil {
			var e *lockstep.Error
			require.ErrorAs(t, err, &e)
			return
		}
		_, err = topology.New(nil, []topology.Node{node})
		require.NoError(t, err)
	})
}
