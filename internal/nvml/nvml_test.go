//go:build cgo && linux

package nvml

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxb200"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh100"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxh200"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/nvml/nvmltest"
)

func TestMain(m *testing.M) { nvmltest.Main(m) }

// open opens the library of a child.
func open(t *testing.T) *Library {
	t.Helper()
	lib, err := Open(Config{Library: nvmltest.Library()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, lib.Close()) })
	return lib
}

func device(t *testing.T, lib *Library, i int) *Device {
	t.Helper()
	d, err := lib.Device(i)
	require.NoError(t, err)
	return d
}

// must returns a value that came without an error.
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

// fault returns the typed error of a kind.
func fault(t *testing.T, err, kind error) *lockstep.Error {
	t.Helper()
	require.ErrorIs(t, err, kind)
	var e *lockstep.Error
	require.ErrorAs(t, err, &e)
	return e
}

func TestSwitchedHost(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "nvswitch8") {
		return
	}
	lib := open(t)
	require.Equal(t, Version{"570.86.15", "12.570.86.15", 12080}, must[Version](t)(lib.Version()))
	require.Equal(t, 8, must[int](t)(lib.Count()))
	d, e := device(t, lib, 0), device(t, lib, 5)
	require.Equal(t, "GPU-00000005-0000-4000-8000-000000000000", must[string](t)(e.UUID()))
	require.Equal(t, "NVIDIA Fake", must[string](t)(e.Name()))
	require.Equal(t, 5, must[int](t)(e.Minor()))
	require.Equal(t, "0000:1f:00.0", must[string](t)(e.Bus()))
	require.Equal(t, lockstep.Bytes(80<<30), must[lockstep.Bytes](t)(e.Memory()))
	require.Equal(t, 90, must[int](t)(e.Capability()))
	require.Equal(t, PCIe{5, 16}, must[PCIe](t)(e.PCIe()))
	require.Equal(t, []int{64, 65, 66, 67}, must[[]int](t)(e.CPUs()))
	require.Equal(t, []int{1}, must[[]int](t)(e.NUMA()))
	require.Equal(t, 13, must[int](t)(e.Own()))
	require.Equal(t, AncestorSystem, must[Ancestor](t)(d.Ancestor(e)))
	require.Equal(t, AncestorNode, must[Ancestor](t)(d.Ancestor(device(t, lib, 3))))
	require.Zero(t, must[int](t)(d.P2P(e, AccessNVLink)))
	links := must[[]NVLink](t)(d.NVLinks())
	require.Len(t, links, 18)
	require.Equal(t, NVLink{Number: 17, Up: true, Remote: RemoteSwitch, Bus: "0000:81:00.0", Rate: 26562e6}, links[17])
	f := must[Fabric](t)(d.Fabric())
	require.Equal(t, Fabric{State: FabricDone, Cluster: f.Cluster, Clique: 7, Health: 0xaa}, f)
	require.Equal(t, byte(0xaf), f.Cluster[15])
	require.Equal(t, MIG{}, must[MIG](t)(d.MIG()))
	require.Equal(t, ECC{On: true, Corrected: 5, Uncorrected: 105, Lifetime: 115}, must[ECC](t)(e.ECC()))
	require.Equal(t, ECC{}, must[ECC](t)(device(t, lib, 3).ECC()))
	require.Equal(t, Rows{Corrected: 1, Uncorrected: 2, Pending: true}, must[Rows](t)(e.Rows()))
	require.Equal(t, 45, must[int](t)(e.Temperature()))
	require.Equal(t, Clocks{SM: 1410, MaxSM: 1980, Memory: 2619, MaxMemory: 2619, Reasons: 32}, must[Clocks](t)(e.Clocks()))
}

func TestHostWithoutNVLink(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "pcie4") {
		return
	}
	lib := open(t)
	a, b, c := device(t, lib, 0), device(t, lib, 1), device(t, lib, 2)
	require.Equal(t, AncestorSingle, must[Ancestor](t)(a.Ancestor(b)))
	require.Equal(t, AncestorMultiple, must[Ancestor](t)(c.Ancestor(device(t, lib, 3))))
	require.Equal(t, 1, must[int](t)(a.P2P(b, AccessRead)))
	_, err := a.NVLinks()
	require.Equal(t, "NVML_ERROR_NOT_SUPPORTED", fault(t, err, ErrUnsupported).Value)
	_, err = a.Fabric()
	fault(t, err, ErrUnsupported)
	_, err = a.MIG()
	fault(t, err, ErrUnsupported)
	_, err = a.Own()
	fault(t, err, ErrUnsupported)
	_, err = lib.Device(4)
	require.Equal(t, "NVML_ERROR_INVALID_ARGUMENT", fault(t, err, ErrFailed).Value)
	_, err = lib.Device(-1)
	fault(t, err, ErrFailed)
}

func TestDirectNVLinks(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "mesh4") {
		return
	}
	links := must[[]NVLink](t)(device(t, open(t), 0).NVLinks())
	require.Equal(t, []NVLink{
		{Number: 0, Up: true, Remote: RemoteGPU, Bus: "0000:1b:00.0"},
		{Number: 1, Remote: RemoteUnknown},
		{Number: 2, Up: true, Remote: RemoteGPU, Bus: "0000:1d:00.0"},
		{Number: 3, Up: true, Remote: RemoteGPU, Bus: "0000:1d:00.0"},
		{Number: 4, Up: true, Remote: RemoteGPU, Bus: "0000:1c:00.0"},
		{Number: 5, Up: true, Remote: RemoteCPU, Bus: "0000:00:00.0"},
	}, links)
}

func TestMIGInstances(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "mig2") {
		return
	}
	lib := open(t)
	require.Equal(t, MIG{On: true, Pending: true, Instances: []Instance{
		{UUID: "MIG-00000000-0000-4000-8000-000000000000", GPU: 1, Memory: 40192 << 20, Slices: 3, Start: 4, Size: 4},
		{UUID: "MIG-00000000-0000-4000-8000-000000000002", GPU: 3, Memory: 9728 << 20, Slices: 1, Start: -1},
	}}, must[MIG](t)(device(t, lib, 0).MIG()), "where the second may not be asked about its place")
	require.Equal(t, MIG{Pending: true}, must[MIG](t)(device(t, lib, 1).MIG()))
	links := must[[]NVLink](t)(device(t, lib, 1).NVLinks())
	require.Len(t, links, 12)
	require.Equal(t, NVLink{Number: 3, Up: true, Remote: RemoteSwitch}, links[3], "a virtual machine does not see what is at the other end")
}

func TestLostDevice(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "lost") {
		return
	}
	lib := open(t)
	device(t, lib, 0)
	_, err := lib.Device(1)
	e := fault(t, err, ErrLost)
	require.Equal(t, "nvmlDeviceGetHandleByIndex_v2", e.Field)
	require.EqualError(t, err, "nvml: call: nvmlDeviceGetHandleByIndex_v2 = NVML_ERROR_GPU_IS_LOST: device lost")
}

func TestErrorsOfCalls(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "errors") {
		return
	}
	lib := open(t)
	_, err := device(t, lib, 2).UUID()
	require.Equal(t, "NVML_ERROR_UNKNOWN 999", fault(t, err, ErrFailed).Value)
	_, err = device(t, lib, 0).Ancestor(device(t, lib, 1))
	fault(t, err, ErrFailed)
}

func TestNoDriver(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "nodriver") {
		return
	}
	for range 2 {
		_, err := Open(Config{Library: nvmltest.Library()})
		require.Equal(t, "NVML_ERROR_DRIVER_NOT_LOADED", fault(t, err, ErrUnavailable).Value)
	}
	require.NoError(t, os.Setenv("FAKE_NVML", "mismatch"))
	_, err := Open(Config{Library: nvmltest.Library()})
	fault(t, err, ErrUnavailable)
	// Once the driver is there, it works.
	require.NoError(t, os.Setenv("FAKE_NVML", "pcie4"))
	require.Equal(t, 4, must[int](t)(open(t).Count()))
}

// TestOldLibrary makes every call there is on a library that lacks most of them:
// the process has to survive it.
func TestOldLibrary(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t, "-DOLD"), "nvswitch8") {
		return
	}
	lib := open(t)
	v := must[Version](t)(lib.Version())
	require.Zero(t, v.CUDA)
	d, e := device(t, lib, 0), device(t, lib, 1)
	must[string](t)(d.UUID())
	must[string](t)(d.Bus())
	require.Equal(t, AncestorNode, must[Ancestor](t)(d.Ancestor(e)))
	require.Equal(t, []int{0, 1, 2, 3}, must[[]int](t)(d.CPUs()))
	require.Equal(t, uint64(4), must[Clocks](t)(d.Clocks()).Reasons, "by the name of older libraries")
	for name, call := range map[string]func() error{ // in any order
		"nvmlDeviceGetCudaComputeCapability": func() error { _, err := d.Capability(); return err },
		"nvmlDeviceGetMemoryAffinity":        func() error { _, err := d.NUMA(); return err },
		"nvmlDeviceGetNumaNodeId":            func() error { _, err := d.Own(); return err },
		"nvmlDeviceGetP2PStatus":             func() error { _, err := d.P2P(e, AccessRead); return err },
		"nvmlDeviceGetNvLinkState":           func() error { _, err := d.NVLinks(); return err },
		"nvmlDeviceGetGpuFabricInfo":         func() error { _, err := d.Fabric(); return err },
		"nvmlDeviceGetMigMode":               func() error { _, err := d.MIG(); return err },
		"nvmlDeviceGetRemappedRows":          func() error { _, err := d.Rows(); return err },
	} {
		f := fault(t, call(), ErrUnsupported)
		require.Equal(t, name, f.Field)
		require.Equal(t, "the library is too old to have it", f.Reason)
	}
}

func TestOlderFabric(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t, "-DFABRIC1"), "nvswitch8") {
		return
	}
	f := must[Fabric](t)(device(t, open(t), 0).Fabric())
	require.Equal(t, FabricDone, f.State)
	require.Equal(t, uint32(7), f.Clique)
	require.Zero(t, f.Health)
}

func TestFabricThatIsNotDone(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "degraded") {
		return
	}
	lib := open(t)
	require.Equal(t, Fabric{State: FabricInProgress}, must[Fabric](t)(device(t, lib, 0).Fabric()))
	require.Equal(t, "NVML_ERROR_RESET_REQUIRED", must[Fabric](t)(device(t, lib, 1).Fabric()).Failed)
}

func TestAnswersOutOfRange(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "odd") {
		return
	}
	lib := open(t)
	d, e := device(t, lib, 0), device(t, lib, 1)
	require.Equal(t, "GPU twice", must[string](t)(d.UUID()))
	require.Equal(t, strings.Repeat("x", 32), must[string](t)(d.Bus()))
	require.Equal(t, lockstep.Bytes(1<<62), must[lockstep.Bytes](t)(d.Memory()))
	require.Equal(t, Ancestor(35), must[Ancestor](t)(d.Ancestor(e)))
	require.Equal(t, 77, must[int](t)(d.P2P(e, AccessRead)))
	require.Equal(t, []int{0, 1}, must[[]int](t)(d.NUMA()))
}

func TestEvents(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "pcie4") {
		return
	}
	lib := open(t)
	events, err := lib.Events([]*Device{device(t, lib, 3), device(t, lib, 1)}, EventXID|EventSingleBit)
	require.NoError(t, err)
	for _, want := range []Event{{3, EventXID, 79, -1}, {1, EventXID, 80, 3}} {
		got, ok, err := events.Wait(time.Hour)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
	for _, limit := range []time.Duration{-1, 0, 1<<63 - 1} {
		_, ok, err := events.Wait(limit)
		require.NoError(t, err)
		require.False(t, ok)
	}
	require.NoError(t, events.Close())
	none, err := lib.Events(nil, EventXID)
	require.NoError(t, err)
	require.NoError(t, none.Close())
}

func TestRecoveryActions(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "sick") {
		return
	}
	lib := open(t)
	for i := range 4 {
		require.Equal(t, i, must[int](t)(device(t, lib, i).Recovery()))
	}
}

func TestOneLibraryAProcess(t *testing.T) {
	path := nvmltest.Build(t)
	if nvmltest.Child(t, path, "pcie4", "LOCKSTEP_BARE="+nvmltest.Build(t, "-DBARE")) {
		return
	}
	// What cannot be loaded or lacks what all have leaves nothing behind.
	for _, bad := range []string{"/nowhere/libnvidia-ml.so.1", "no-such-library.so", "/dev/null", "nvml_test.go", filepath.Dir(nvmltest.Library())} {
		_, err := Open(Config{Library: bad})
		require.NotEmpty(t, fault(t, err, ErrUnavailable).Reason, bad)
	}
	_, err := Open(Config{Library: os.Getenv("LOCKSTEP_BARE")})
	require.Equal(t, "it has no nvmlInit_v2", fault(t, err, ErrUnavailable).Reason)

	first, second := open(t), open(t)
	d := device(t, first, 0)
	require.NoError(t, first.Close())
	require.NoError(t, first.Close(), "again does nothing")
	_, err = d.UUID()
	require.Equal(t, "it was closed", fault(t, err, ErrUnavailable).Reason)
	_, err = first.Count()
	fault(t, err, ErrUnavailable)
	require.Equal(t, 4, must[int](t)(second.Count()), "the other user goes on")
	require.NoError(t, second.Close())
	_, err = Open(Config{Library: "no-such-library.so"})
	fault(t, err, lockstep.ErrConflict)
	// The same again is fine, and the scenario is read anew.
	require.NoError(t, os.Setenv("FAKE_NVML", "nvswitch8"))
	require.Equal(t, 8, must[int](t)(open(t).Count()))
}

func TestFoundByTheLinker(t *testing.T) {
	path := nvmltest.Build(t)
	if nvmltest.Child(t, "", "pcie4", "LD_LIBRARY_PATH="+filepath.Dir(path)) {
		return
	}
	require.Equal(t, 4, must[int](t)(open(t).Count()))
}

func TestConcurrentCalls(t *testing.T) {
	if nvmltest.Child(t, nvmltest.Build(t), "nvswitch8") {
		return
	}
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			lib, err := Open(Config{Library: nvmltest.Library()})
			if err != nil {
				panic(err)
			}
			for i := range 8 {
				d, err := lib.Device(i)
				if err != nil {
					panic(err)
				}
				if _, err := d.NVLinks(); err != nil {
					panic(err)
				}
				if _, err := d.Fabric(); err != nil {
					panic(err)
				}
			}
			if err := lib.Close(); err != nil {
				panic(err)
			}
		})
	}
	wait.Wait()
}

// TestMockServers reads what go-nvml's servers answer: the inventory. Of all else
// they are said to have nothing, since they end in a panic there.
func TestMockServers(t *testing.T) {
	answered := []string{
		"nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion",
		"nvmlSystemGetCudaDriverVersion", "nvmlDeviceGetUUID", "nvmlDeviceGetName", "nvmlDeviceGetMinorNumber",
		"nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMigMode",
	}
	for _, c := range []struct {
		server     gonvml.Interface
		name       string
		capability int
	}{
		{dgxa100.New(), "A100", 80}, {dgxh100.New(), "H100", 90}, {dgxh200.New(), "H200", 90}, {dgxb200.New(), "B200", 100},
	} {
		lib := &Library{api: c.server, has: func(function string) bool { return slices.Contains(answered, function) }}
		require.Equal(t, 8, must[int](t)(lib.Count()))
		require.NotEmpty(t, must[Version](t)(lib.Version()).Driver)
		seen := make(map[string]bool)
		for i := range 8 {
			d := device(t, lib, i)
			uuid := must[string](t)(d.UUID())
			require.False(t, seen[uuid])
			seen[uuid] = true
			require.Contains(t, must[string](t)(d.Name()), c.name)
			require.Equal(t, i, must[int](t)(d.Minor()))
			require.Equal(t, c.capability, must[int](t)(d.Capability()))
			require.Empty(t, must[string](t)(d.Bus()), "they have no address")
			require.Greater(t, must[lockstep.Bytes](t)(d.Memory()), lockstep.Bytes(30<<30))
			require.False(t, must[MIG](t)(d.MIG()).On)
			_, err := d.NVLinks()
			fault(t, err, ErrUnsupported)
			_, err = d.Fabric()
			fault(t, err, ErrUnsupported)
		}
		require.NoError(t, lib.Close())
	}
}

func TestCodes(t *testing.T) {
	for c := range Code(31) {
		require.NotContains(t, c.String(), "UNKNOWN", "%d", int(c))
	}
	require.Equal(t, "NVML_ERROR_UNKNOWN 999", Code(999).String())
	require.Equal(t, "NVML_ERROR_UNKNOWN -1", Code(-1).String())
	for c, ret := range map[Code]gonvml.Return{ // in any order
		success: gonvml.SUCCESS, uninitialized: gonvml.ERROR_UNINITIALIZED, invalidArgument: gonvml.ERROR_INVALID_ARGUMENT,
		notSupported: gonvml.ERROR_NOT_SUPPORTED, notFound: gonvml.ERROR_NOT_FOUND, driverNotLoaded: gonvml.ERROR_DRIVER_NOT_LOADED,
		timeout: gonvml.ERROR_TIMEOUT, libraryNotFound: gonvml.ERROR_LIBRARY_NOT_FOUND, functionNotFound: gonvml.ERROR_FUNCTION_NOT_FOUND,
		gpuIsLost: gonvml.ERROR_GPU_IS_LOST, resetRequired: gonvml.ERROR_RESET_REQUIRED, libRMMismatch: gonvml.ERROR_LIB_RM_VERSION_MISMATCH,
		argumentMismatch: gonvml.ERROR_ARGUMENT_VERSION_MISMATCH, deprecated: gonvml.ERROR_DEPRECATED,
	} {
		require.Equal(t, int(ret), int(c))
	}
	require.NoError(t, failure("f", success))
}

func TestConstantsAreTheLibrarys(t *testing.T) {
	require.Equal(t, int(gonvml.NVLINK_DEVICE_TYPE_SWITCH), int(RemoteSwitch))
	require.Equal(t, int(gonvml.NVLINK_DEVICE_TYPE_UNKNOWN), int(RemoteUnknown))
	require.Equal(t, int(gonvml.TOPOLOGY_SYSTEM), int(AncestorSystem))
	require.Equal(t, int(gonvml.TOPOLOGY_NODE), int(AncestorNode))
	require.Equal(t, int(gonvml.TOPOLOGY_HOSTBRIDGE), int(AncestorHostBridge))
	require.Equal(t, int(gonvml.TOPOLOGY_MULTIPLE), int(AncestorMultiple))
	require.Equal(t, int(gonvml.TOPOLOGY_SINGLE), int(AncestorSingle))
	require.Equal(t, int(gonvml.P2P_CAPS_INDEX_NVLINK), int(AccessNVLink))
	require.Equal(t, int(gonvml.P2P_CAPS_INDEX_ATOMICS), int(AccessAtomics))
	require.Equal(t, int(gonvml.GPU_FABRIC_STATE_COMPLETED), int(FabricDone))
	require.Equal(t, int(gonvml.GPU_FABRIC_STATE_IN_PROGRESS), int(FabricInProgress))
	require.EqualValues(t, gonvml.EventTypeXidCriticalError, EventXID)
	require.EqualValues(t, gonvml.EventTypeDoubleBitEccError, EventDoubleBit)
	require.EqualValues(t, gonvml.EventTypeSingleBitEccError, EventSingleBit)
}
