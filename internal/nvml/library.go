//go:build cgo && linux

package nvml

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/lockstep-gpu/lockstep"
)

// defaultLibrary is the driver's.
const defaultLibrary = "libnvidia-ml.so.1"

// essential are the functions without which a library is of no use. Drivers have
// had them since 2014 or so.
var essential = [...]string{"nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetUUID"}

// process is the library that the process has loaded. The dynamic linker binds
// each symbol once for the whole process, so there is but one, and it stays.
var process struct {
	sync.Mutex
	path  string
	users int
	api   gonvml.Interface
	found map[string]bool
	dl    *dl.DynamicLibrary
}

// Library is a loaded library.
type Library struct {
	api    gonvml.Interface
	has    func(function string) bool
	closed atomic.Bool
	shared bool // it counts in process
}

// Open loads the library and initialises it: nvmlInit_v2.
func Open(cfg Config) (*Library, error) {
	path := cfg.Library
	if path == "" {
		path = defaultLibrary
	}
	process.Lock()
	defer process.Unlock()
	if process.path != "" && process.path != path {
		return nil, &lockstep.Error{Kind: lockstep.ErrConflict, Op: "nvml: open", Field: "Library", Value: path, Reason: "the process has loaded " + process.path}
	}
	if process.path == "" {
		if err := load(path); err != nil {
			return nil, err
		}
	}
	if process.users == 0 {
		if ret := process.api.Init(); ret != gonvml.SUCCESS {
			return nil, failure("nvmlInit_v2", Code(ret))
		}
	}
	process.users++
	return &Library{api: process.api, has: has, shared: true}, nil
}

// load loads a library into process, for good. First it is looked at apart, so
// that one which will not do leaves nothing behind.
func load(path string) error {
	const apart = 0 // RTLD_LOCAL
	trial := dl.New(path, dl.RTLD_LAZY|apart)
	if err := trial.Open(); err != nil {
		return unavailable("Library", path, err.Error())
	}
	for _, function := range essential {
		if trial.Lookup(function) != nil {
			_ = trial.Close()
			return unavailable("Library", path, "it has no "+function)
		}
	}
	_ = trial.Close()
	lib := dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL|dl.RTLD_NODELETE)
	if err := lib.Open(); err != nil {
		return unavailable("Library", path, err.Error())
	}
	process.path, process.dl, process.found = path, lib, make(map[string]bool)
	process.api = gonvml.New(gonvml.WithLibraryPath(path))
	return nil
}

// has reports whether the library of the process has a function.
func has(function string) bool {
	process.Lock()
	defer process.Unlock()
	found, ok := process.found[function]
	if !ok {
		found = process.dl.Lookup(function) == nil
		process.found[function] = found
	}
	return found
}

// Close ends the use of l: nvmlShutdown, if it is the last. Further calls of l
// return ErrUnavailable, and Close nil.
func (l *Library) Close() error {
	if l.closed.Swap(true) || !l.shared {
		return nil
	}
	process.Lock()
	defer process.Unlock()
	if process.users--; process.users > 0 {
		return nil
	}
	return failure("nvmlShutdown", Code(process.api.Shutdown()))
}

// need returns an error unless l may call the functions.
func (l *Library) need(functions ...string) error {
	if l.closed.Load() {
		return unavailable("Library", "", "it was closed")
	}
	for _, f := range functions {
		if !l.has(f) {
			return &lockstep.Error{Kind: ErrUnsupported, Op: "nvml: call", Field: f, Reason: "the library is too old to have it"}
		}
	}
	return nil
}

// call makes a call if the library has the function.
func call[T any](l *Library, function string, f func() (T, gonvml.Return)) (v T, err error) {
	if err := l.need(function); err != nil {
		return v, err
	}
	got, ret := f()
	if err := failure(function, Code(ret)); err != nil {
		return v, err
	}
	return got, nil
}

// value returns the code that an error of call is about, "" where there is none.
func value(err error) string {
	var e *lockstep.Error
	if errors.As(err, &e) {
		return e.Value
	}
	return ""
}

// Version returns what driver and library call themselves:
// nvmlSystemGetDriverVersion, nvmlSystemGetNVMLVersion and, if there is one,
// nvmlSystemGetCudaDriverVersion.
func (l *Library) Version() (v Version, err error) {
	if v.Driver, err = call(l, "nvmlSystemGetDriverVersion", l.api.SystemGetDriverVersion); err != nil {
		return Version{}, err
	}
	if v.NVML, err = call(l, "nvmlSystemGetNVMLVersion", l.api.SystemGetNVMLVersion); err != nil {
		return Version{}, err
	}
	if cuda, err := call(l, "nvmlSystemGetCudaDriverVersion", l.api.SystemGetCudaDriverVersion); err == nil {
		v.CUDA = cuda
	}
	return v, nil
}

// Count returns how many devices there are: nvmlDeviceGetCount_v2.
func (l *Library) Count() (int, error) {
	return call(l, "nvmlDeviceGetCount_v2", l.api.DeviceGetCount)
}

// Device returns device i: nvmlDeviceGetHandleByIndex_v2.
func (l *Library) Device(i int) (*Device, error) {
	dev, err := call(l, "nvmlDeviceGetHandleByIndex_v2", func() (gonvml.Device, gonvml.Return) { return l.api.DeviceGetHandleByIndex(i) })
	if err != nil {
		return nil, err
	}
	return &Device{lib: l, dev: dev, index: i}, nil
}

// Events are a watch for events of devices.
type Events struct {
	lib     *Library
	set     gonvml.EventSet
	devices []*Device
}

// Events begins to watch devices of l for events of some kinds, those that each
// device has: nvmlEventSetCreate, nvmlDeviceGetSupportedEventTypes and
// nvmlDeviceRegisterEvents.
func (l *Library) Events(devices []*Device, kinds EventKind) (*Events, error) {
	if err := l.need("nvmlEventSetFree", "nvmlEventSetWait_v2", "nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents"); err != nil {
		return nil, err
	}
	set, err := call(l, "nvmlEventSetCreate", l.api.EventSetCreate)
	if err != nil {
		return nil, err
	}
	e := &Events{lib: l, set: set, devices: slices.Clone(devices)}
	for _, d := range devices {
		have, err := call(l, "nvmlDeviceGetSupportedEventTypes", d.dev.GetSupportedEventTypes)
		if err == nil {
			_, err = call(l, "nvmlDeviceRegisterEvents", func() (struct{}, gonvml.Return) {
				return struct{}{}, d.dev.RegisterEvents(have&uint64(kinds), set)
			})
		}
		if err != nil {
			_ = e.Close()
			return nil, err
		}
	}
	return e, nil
}
