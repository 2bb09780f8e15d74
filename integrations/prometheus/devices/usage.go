//go:build cgo && linux

package devices

import (
	"sync"

	"github.com/ebitengine/purego"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/nvml"
)

// usage asks the library for what internal/nvml does not. The library is loaded
// by that package, and initialised while it is open; here it is only looked at.
type usage struct {
	lib    uintptr                                   // 0 where the library was not found
	handle func(index uint32, device *uintptr) int32 // nvmlDeviceGetHandleByIndex_v2; nil where the library has none

	rates  func(device uintptr, out *rates) int32
	room   func(device uintptr, out *room) int32
	draw   func(device uintptr, milliwatts *uint32) int32
	joules func(device uintptr, millijoules *uint64) int32
}

// rates is nvmlUtilization_t, in percent.
type rates struct{ GPU, Memory uint32 }

// room is nvmlMemory_t, in bytes.
type room struct{ Total, Free, Used uint64 }

// loading keeps lookups of one process apart: the linker's table is one.
var loading sync.Mutex

// openUsage looks up the functions in a library that is loaded. Those that it
// lacks are left out.
func openUsage(library string) *usage {
	loading.Lock()
	defer loading.Unlock()
	if library == "" {
		library = "libnvidia-ml.so.1"
	}
	u := &usage{}
	lib, err := purego.Dlopen(library, purego.RTLD_LAZY)
	if err != nil {
		return u
	}
	u.lib = lib
	bind := func(f any, name string) {
		if at, err := purego.Dlsym(lib, name); err == nil && at != 0 {
			purego.RegisterFunc(f, at)
		}
	}
	bind(&u.handle, "nvmlDeviceGetHandleByIndex_v2")
	bind(&u.rates, "nvmlDeviceGetUtilizationRates")
	bind(&u.room, "nvmlDeviceGetMemoryInfo")
	bind(&u.draw, "nvmlDeviceGetPowerUsage")
	bind(&u.joules, "nvmlDeviceGetTotalEnergyConsumption")
	return u
}

// close gives the library back. It stays in the process, as internal/nvml has it.
func (u *usage) close() {
	if u.lib != 0 {
		_ = purego.Dlclose(u.lib)
	}
}

func (u *usage) utilization(index int) (out rates, err error) {
	err = ask(u, index, "nvmlDeviceGetUtilizationRates", u.rates, &out)
	return out, err
}

func (u *usage) memory(index int) (out room, err error) {
	err = ask(u, index, "nvmlDeviceGetMemoryInfo", u.room, &out)
	return out, err
}

func (u *usage) power(index int) (out uint32, err error) {
	err = ask(u, index, "nvmlDeviceGetPowerUsage", u.draw, &out)
	return out, err
}

func (u *usage) energy(index int) (out uint64, err error) {
	err = ask(u, index, "nvmlDeviceGetTotalEnergyConsumption", u.joules, &out)
	return out, err
}

// ask calls a function about a device, if the library has it.
func ask[T any](u *usage, index int, name string, f func(device uintptr, out *T) int32, out *T) error {
	if f == nil || u.handle == nil {
		return &lockstep.Error{Kind: nvml.ErrUnsupported, Op: "devices: call", Field: name, Reason: "the library does not have it"}
	}
	var device uintptr
	code := u.handle(uint32(index), &device)
	if code == 0 {
		code = f(device, out)
	}
	return failure(name, code)
}

// failure returns the error for what a function returned: 3, 13 and 26 say that
// it is not supported, 1 and 9 that there is no driver, 15 and 16 that the device
// is lost.
func failure(name string, code int32) error {
	kind := nvml.ErrFailed
	switch code {
	case 0:
		return nil
	case 3, 13, 26:
		kind = nvml.ErrUnsupported
	case 1, 9:
		kind = nvml.ErrUnavailable
	case 15, 16:
		kind = nvml.ErrLost
	}
	return &lockstep.Error{Kind: kind, Op: "devices: call", Field: name, Value: nvml.Code(code).String(), Reason: kind.Error()}
}
