package cuda

import (
	"errors"
	"strconv"
)

// verb is a call that changes something.
type verb int

const (
	lock verb = iota + 1
	suspend
	resume
	unlock
	undo // brings a target back to Running, by any of the others
)

// functions are the library's names of the verbs; the order is theirs. It is immutable.
var functions = [...]string{
	lock: "cuCheckpointProcessLock", suspend: "cuCheckpointProcessCheckpoint",
	resume: "cuCheckpointProcessRestore", unlock: "cuCheckpointProcessUnlock",
	undo: "undo",
}

const getState = "cuCheckpointProcessGetState"

// String returns the name of the library's function.
func (v verb) String() string { return functions[v] }

// request is one call of a backend that changes something.
type request struct {
	do    verb
	pid   int
	start uint64 // of the process; the driver itself does not ask for it
	ms    uint32 // of lock; over 0
	pairs []pair // of resume; none means the same devices
}

// failure is why a call of a backend did not do what it should. A nil failure is
// success, as far as the driver says.
type failure struct {
	kind error  // a sentinel of package checkpoint
	call string // what was called; "" for what was asked for
	code code   // 0 if the driver gave none
	err  error  // what stands behind it, may be nil
}

// failed returns the failure of a code, nil of success.
func failed(call string, c code) *failure {
	if c == success {
		return nil
	}
	return &failure{kind: describe(c).kind, call: call, code: c}
}

// found is what a backend has found out about what it drives.
type found struct {
	Version int      `json:"version,omitempty"` // as cuDriverGetVersion has it, 13000 for 13.0; 0 if unknown
	Release int      `json:"release,omitempty"` // the driver's release, such as 580; 0 if unknown
	Missing []string `json:"missing,omitempty"` // functions or options that are not there
	Where   string   `json:"where,omitempty"`   // which library or program it is
	Absent  string   `json:"absent,omitempty"`  // why there is none at all
}

// backend makes single calls. Each may block for as long as the driver likes, which
// nobody can end; the Driver sees to threads and bounds.
type backend interface {
	// find looks for what the backend drives. It changes nothing.
	find() found

	// read returns the number of a process's state.
	read(pid int) (int, *failure)

	// act makes one call.
	act(r request) *failure

	// close gives back what is held. No call is in flight.
	close() error
}

// errText is an error that is only told.
func errText(parts ...string) error {
	s := ""
	for _, p := range parts {
		s += p
	}
	return errors.New(s)
}

// versionText returns "13.0" for 13000, "" for 0.
func versionText(v int) string {
	if v <= 0 {
		return ""
	}
	return strconv.Itoa(v/1000) + "." + strconv.Itoa(v%1000/10)
}
