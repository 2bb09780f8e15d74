package cudatest

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/fake.c
var fakeSource string

//go:embed testdata/target.c
var targetSource string

// Kind is what a fault does.
type Kind int32

// The kinds of faults.
const (
	Code        Kind = iota + 1 // Code: return Fault.Code and do nothing.
	CodeAfter                   // CodeAfter: do it, and return Fault.Code.
	Sleep                       // Sleep: sleep Fault.Arg milliseconds first.
	Block                       // Block: wait for Release first.
	BlockAfter                  // BlockAfter: do it, and wait for Release.
	Corrupt                     // Corrupt: GetState gives the number Fault.Arg.
	Crash                       // Crash: a segmentation fault in the caller, before anything is done.
	CrashAfter                  // CrashAfter: the same, after it is done.
	Kill                        // Kill: kill the target, and return Fault.Code.
	Change                      // Change: put the target into the state Fault.Arg first, as a stranger would.
	Lie                         // Lie: return success and do nothing.
	LieFailed                   // LieFailed: put the target into FAILED and return success.
	Slow                        // Slow: Lock takes twice its timeout and returns Fault.Code.
	SlowLock                    // SlowLock: Lock takes twice its timeout and works.
	ChangeAfter                 // ChangeAfter: do it, then put the target into the state Fault.Arg.
)

// The functions, as Fault.Call counts them.
const (
	Any        = int32(iota) // Any counts all calls together.
	GetState                 // GetState is cuCheckpointProcessGetState.
	ThreadID                 // ThreadID is cuCheckpointProcessGetRestoreThreadId.
	Lock                     // Lock is cuCheckpointProcessLock.
	Checkpoint               // Checkpoint is cuCheckpointProcessCheckpoint.
	Restore                  // Restore is cuCheckpointProcessRestore.
	Unlock                   // Unlock is cuCheckpointProcessUnlock.
)

// The states, as the library numbers them.
const (
	Running      = int32(iota) // Running is CU_PROCESS_STATE_RUNNING.
	Locked                     // Locked is CU_PROCESS_STATE_LOCKED.
	Checkpointed               // Checkpointed is CU_PROCESS_STATE_CHECKPOINTED.
	Failed                     // Failed is CU_PROCESS_STATE_FAILED.
)

// Fault is one planned fault.
type Fault struct {
	Call  int32 // Call is which function is meant; Any for whichever.
	At    int32 // At is the number of the call, from 0, among those of Call since the last Plan.
	Times int32 // Times is how many calls in a row meet it; 0 means 1.
	Kind  Kind  // Kind is what happens.
	Code  int32 // Code is a CUresult.
	Arg   int32 // Arg is a number for some kinds.
}

const (
	slots  = 32 // processes
	faults = 8
)

// device, process and shared have the layout of testdata/fake.c.
type device struct {
	uuid [16]byte
	room int64
	chip int32
	_    int32
}

type process struct {
	pid, state, locks, unlocks, poisoned, job, draining, hung int32
	held                                                      [devices]int64
}

type shared struct {
	size, mutex, version, init, inits, calls, changes, released, blocked, over, cli, _ int32
	counts                                                                             [8]int32
	faults                                                                             [faults]Fault
	devices                                                                            [devices]device
	procs                                                                              [slots]process
}

const devices = 4

// built are the files by the flags that they were compiled with, one set for all tests.
var built struct {
	sync.Mutex
	dir   string
	files map[string]string // paths
}

// Main runs the tests of a package that uses New, and clears up after them.
func Main(m *testing.M) int {
	code := m.Run()
	built.Lock()
	defer built.Unlock()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	return code
}

// Need skips a test or benchmark where the library cannot be compiled or loaded.
func Need(t testing.TB) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("NOT TESTED: the CUDA driver is reached on linux/amd64 and linux/arm64 only")
	}
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("NOT TESTED: no compiler of C, so no fake libcuda.so.1: ", err)
	}
}

// compile returns the path of a file made of a source with some flags; each is made once.
func compile(t testing.TB, source string, flags ...string) string {
	t.Helper()
	built.Lock()
	defer built.Unlock()
	key := fmt.Sprint(len(source), flags)
	if out, ok := built.files[key]; ok {
		return out
	}
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "cudatest")
		require.NoError(t, err)
		built.dir, built.files = dir, make(map[string]string)
	}
	out := filepath.Join(built.dir, fmt.Sprint(len(built.files)))
	args := append([]string{"-x", "c", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-truncation", "-o", out}, flags...)
	cmd := exec.Command("cc", append(args, "-", "-ldl", "-lpthread")...)
	cmd.Stdin = strings.NewReader(source)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	built.files[key] = out
	return out
}

// without returns a library that lacks functions: they have other names in it, of the
// same length, which takes less time than to compile it anew.
func without(t testing.TB, library []byte, functions []string) []byte {
	t.Helper()
	for _, name := range functions {
		old := []byte("\x00" + name + "\x00")
		require.Contains(t, string(library), string(old), "the library has no %s", name)
		library = bytes.ReplaceAll(library, old, append([]byte{0, '_'}, old[2:]...))
	}
	return library
}

// Fake is one library with its state.
type Fake struct {
	dir string
	s   *shared
}

// New makes a library, without some functions such as "cuInit", whose driver says
// version 13.4 and which has four devices, the last of another chip.
func New(t testing.TB, lacks ...string) *Fake {
	t.Helper()
	Need(t)
	f := &Fake{dir: t.TempDir()}
	// A file of its own: the loader takes two names of one file for one library.
	library, err := os.ReadFile(compile(t, fakeSource, "-shared", "-fPIC"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(f.Library(), without(t, library, lacks), 0o700))
	// Linked and not written: a descriptor for writing that a child forked meanwhile
	// inherits would make running it fail.
	require.NoError(t, os.Link(compile(t, fakeSource, "-DCLI"), f.CLI()))
	require.NoError(t, os.Link(compile(t, targetSource), filepath.Join(f.dir, "target")))
	f.s = mapState(t, filepath.Join(f.dir, "state"))
	t.Cleanup(func() { atomic.StoreInt32(&f.s.over, 1) })
	f.s.version = 13040
	for i := range f.s.devices {
		d := &f.s.devices[i]
		d.uuid, d.room, d.chip = [16]byte{0: byte(i + 1), 15: 0xaa}, 80<<30, 1
	}
	f.s.devices[devices-1].chip = 2
	return f
}

// Dir returns the folder of the library.
func (f *Fake) Dir() string { return f.dir }

// Library returns the path of the library.
func (f *Fake) Library() string { return filepath.Join(f.dir, "libcuda.so.1") }

// CLI returns the path of the program.
func (f *Fake) CLI() string { return filepath.Join(f.dir, "cuda-checkpoint") }

// SetVersion has cuDriverGetVersion say something else.
func (f *Fake) SetVersion(v int32) { atomic.StoreInt32(&f.s.version, v) }

// SetInit has cuInit return a code.
func (f *Fake) SetInit(code int32) { atomic.StoreInt32(&f.s.init, code) }

// SetCLI makes the program one of 550, which can only toggle, or with 127 one that
// cannot be loaded.
func (f *Fake) SetCLI(kind int32) { atomic.StoreInt32(&f.s.cli, kind) }

// SetRoom says how much memory a device has left.
func (f *Fake) SetRoom(i int, bytes int64) {
	atomic.StoreInt64(&f.s.devices[i].room, bytes)
}

// Room returns how much memory a device has left.
func (f *Fake) Room(i int) int64 { return atomic.LoadInt64(&f.s.devices[i].room) }

// UUID returns the name of a device.
func (f *Fake) UUID(i int) string {
	u := f.s.devices[i].uuid
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Plan replaces the faults that are planned, at most 8, and counts calls from 0.
func (f *Fake) Plan(plan ...Fault) {
	f.locked(func() {
		f.s.faults = [faults]Fault{}
		copy(f.s.faults[:], plan)
		f.s.calls, f.s.counts = 0, [8]int32{}
	})
}

// locked runs do while no call is being counted or done.
func (f *Fake) locked(do func()) {
	for !atomic.CompareAndSwapInt32(&f.s.mutex, 0, 1) {
		runtime.Gosched()
	}
	defer atomic.StoreInt32(&f.s.mutex, 0)
	do()
}

// Calls returns how many calls there were since the last Plan.
func (f *Fake) Calls() (n int) {
	f.locked(func() { n = int(f.s.calls) })
	return n
}

// Counts returns how often a function was called since the last Plan.
func (f *Fake) Counts(call int32) (n int) {
	f.locked(func() { n = int(f.s.counts[call]) })
	return n
}

// Changes returns how many calls have changed a target's state, ever.
func (f *Fake) Changes() (n int) {
	f.locked(func() { n = int(f.s.changes) })
	return n
}

// Inits returns how often cuInit was called.
func (f *Fake) Inits() int { return int(atomic.LoadInt32(&f.s.inits)) }

// Blocked returns how many calls wait for Release, or for a peer.
func (f *Fake) Blocked() int { return int(atomic.LoadInt32(&f.s.blocked)) }

// AwaitBlocked waits until n calls wait.
func (f *Fake) AwaitBlocked(t testing.TB, n int) {
	t.Helper()
	Await(t, fmt.Sprintf("%d blocked calls", n), func() bool { return f.Blocked() == n })
}

// Release ends the wait of all calls that wait for it.
func (f *Fake) Release() { atomic.AddInt32(&f.s.released, 1) }

// Await waits until something holds, and fails the test after half a minute.
func Await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for start := time.Now(); !holds(); time.Sleep(200 * time.Microsecond) {
		if time.Since(start) > 30*time.Second {
			require.Fail(t, "waited in vain for "+what)
		}
	}
}
