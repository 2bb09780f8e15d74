//go:build linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// What the header of a library for this program says.
const class64 = 2

var machine = map[string]byte{"amd64": 62, "arm64": 183}[runtime.GOARCH] // immutable

// arguments is each of the library's argument structures. All have 64 bytes, and in
// every version what one of them does not know has to be zero, so one layout does:
// CUcheckpointLockArgs has its timeout in the first 32 bits, CUcheckpointRestoreArgs
// of CUDA 13.0 the address and number of pairs, and all else is zero.
type arguments struct {
	first    uintptr
	count    uint32
	_        uint32
	storage  uintptr // customStorageInfo_out of CUDA 13.4: zero keeps memory in the host
	reserved [40]byte
}

// Invariant: the sizes that the library's header asserts.
var (
	_ [64]byte = [unsafe.Sizeof(arguments{})]byte{}
	_ [32]byte = [unsafe.Sizeof(pair{})]byte{}
)

// remapping is the version that knows pairs, and the first with these functions.
const (
	firstVersion = 12080
	remapping    = 13000
)

// api is the library, loaded into this process.
type api struct {
	library string
	roots   []string

	mu        sync.Mutex
	path      string // "" until it is loaded
	functions map[string]uintptr
	version   int
	ready     bool // cuInit has worked
}

func newAPI(library string, roots []string) backend { return &api{library: library, roots: roots} }

// load loads the library, once. It says what stands in the way of each that there is.
func (a *api) load() error {
	if a.path != "" {
		return nil
	}
	var errs []error
	for _, path := range candidates(a.library, a.roots) {
		err := a.open(path)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// open loads one library. It stays loaded for good: a call may be in it.
func (a *api) open(path string) error {
	if why := unlike(path, class64, machine); why != "" {
		return errText(path, ": ", why)
	}
	// All its symbols now, since one that is missing later would end the process; and
	// for nobody else, since other libraries may look for symbols of the same names.
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return err
	}
	// One by one: a driver that lacks the newest still does what it has.
	table := make(map[string]uintptr)
	for _, name := range wanted {
		if f, err := purego.Dlsym(handle, name); err == nil && f != 0 {
			table[name] = f
		}
	}
	for _, name := range []string{cuInit, cuDriverGetVersion} {
		if table[name] == 0 {
			return errText(path, ": has no function ", name)
		}
	}
	// The version is the driver's own, which counts, and not that of any toolkit.
	var version int32
	c := call(table[cuDriverGetVersion], 0, unsafe.Pointer(&version))
	if c != success {
		return errText(path, ": ", cuDriverGetVersion, ": ", describe(c).name)
	}
	// cuInit tells a library that stands in for a driver when programs are linked.
	if c = code(int32(firstResult(purego.SyscallN(table[cuInit], 0)))); c == stubLibrary {
		return errText(path, ": is a stub, for linking only")
	}
	a.path, a.functions, a.version, a.ready = path, table, int(version), c == success
	return nil
}

func firstResult(r, _, _ uintptr) uintptr { return r }

// call calls a function of a process and a structure, or with pid 0 of a structure
// alone. What p points to stays where it is meanwhile.
func call(f uintptr, pid int, p unsafe.Pointer) code {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(p)
	var r uintptr
	if pid == 0 {
		r, _, _ = purego.SyscallN(f, uintptr(p))
	} else {
		r, _, _ = purego.SyscallN(f, uintptr(pid), uintptr(p))
	}
	runtime.KeepAlive(p)
	return code(int32(r))
}

// function returns a function of the library, loaded and initialised.
func (a *api) function(name string) (uintptr, *failure) {
	// Held while the library is initialised, so that this happens once. If it hangs,
	// those who wait here count among the blocked calls, which are bounded.
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.load(); err != nil {
		return 0, &failure{kind: checkpoint.ErrUnsupported, call: name, err: err}
	}
	if !a.ready { // the device files may have come since
		r, _, _ := purego.SyscallN(a.functions[cuInit], 0)
		if f := failed(cuInit, code(int32(r))); f != nil {
			return 0, f
		}
		a.ready = true
	}
	if a.functions[name] == 0 {
		return 0, lacking(name, a.path)
	}
	if a.version < firstVersion {
		return 0, &failure{kind: checkpoint.ErrUnsupported, call: name, err: errText("the driver is of CUDA ", versionText(a.version), ", want 12.8 or later")}
	}
	return a.functions[name], nil
}

// find implements backend.
func (a *api) find() found {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.load(); err != nil {
		return found{Absent: err.Error(), Missing: wanted[:]}
	}
	f := found{Version: a.version, Release: release(nvidiaVersion), Where: a.path}
	for _, name := range wanted {
		if a.functions[name] == 0 {
			f.Missing = append(f.Missing, name)
		}
	}
	if !a.ready {
		r, _, _ := purego.SyscallN(a.functions[cuInit], 0)
		if c := code(int32(r)); c != success {
			f.Absent = cuInit + ": " + describe(c).name
		} else {
			a.ready = true
		}
	}
	return f
}

// read implements backend.
func (a *api) read(pid int) (int, *failure) {
	f, e := a.function(getState)
	if e != nil {
		return 0, e
	}
	state := int32(-1) // what a driver that writes nothing leaves is no state
	if e := failed(getState, call(f, pid, unsafe.Pointer(&state))); e != nil {
		return 0, e
	}
	return int(state), nil
}

// act implements backend.
func (a *api) act(r request) *failure {
	name := functions[r.do]
	f, e := a.function(name)
	if e != nil {
		return e
	}
	args := new(arguments)
	switch {
	case r.do == lock:
		args.first = uintptr(r.ms)
	case len(r.pairs) == 0:
	case a.version < remapping:
		return &failure{kind: checkpoint.ErrUnsupported, call: name, err: errText("the driver is of CUDA ", versionText(a.version), ", want 13.0 or later to move memory to other devices")}
	default:
		// The address of the pairs stands in the structure as a number, which the
		// collector does not follow.
		var pin runtime.Pinner
		defer pin.Unpin()
		pin.Pin(&r.pairs[0])
		args.first, args.count = uintptr(unsafe.Pointer(&r.pairs[0])), uint32(len(r.pairs))
	}
	c := call(f, r.pid, unsafe.Pointer(args))
	runtime.KeepAlive(r.pairs)
	return failed(name, c)
}

// close implements backend. The library stays.
func (a *api) close() error { return nil }
