package cuda

import (
	"bytes"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// process is what the kernel tells of one process.
type process struct {
	start  uint64 // clock ticks since boot
	state  byte   // of its first thread: R, S, D, T, t, Z, X and others
	kernel bool   // it is a thread of the kernel
	dying  bool   // it has been killed, or exits, or dumps core
	leader int    // the process that this is a thread of; itself for a process
}

// dead says whether the process will never run again.
func (p process) dead() bool { return p.dying || p.state == 'Z' || p.state == 'X' || p.state == 'x' }

// stopped says whether a signal or a debugger holds the process.
func (p process) stopped() bool { return p.state == 'T' || p.state == 't' }

// readStatus adds what a status file tells: proc_pid_status(5).
func (p *process) readStatus(text []byte) {
	const sigkill = 9
	// A thread has a directory in /proc as well, which a listing does not show.
	if n, err := strconv.Atoi(field(text, "Tgid")); err == nil {
		p.leader = n
	}
	// From a SIGKILL until it is a zombie a process is as good as dead, but still looks
	// alive; while it dumps core, for minutes.
	for _, key := range []string{"SigPnd", "ShdPnd"} {
		mask, err := strconv.ParseUint(field(text, key), 16, 64)
		p.dying = p.dying || err == nil && mask&(1<<(sigkill-1)) != 0
	}
	p.dying = p.dying || field(text, "CoreDumping") == "1"
}

// parseStat reads a stat file: proc_pid_stat(5). The name may hold parentheses, so
// what follows is found behind the last.
func parseStat(text []byte) (process, bool) {
	const (
		exiting      = 0x00000004 // PF_EXITING
		kernelThread = 0x00200000 // PF_KTHREAD
	)
	rest := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	// The state is field 3 of the file, flags are field 9, the start is field 22.
	if len(rest) < 20 || len(rest[0]) != 1 {
		return process{}, false
	}
	flags, err := strconv.ParseUint(rest[6], 10, 64)
	if err != nil {
		return process{}, false
	}
	start, err := strconv.ParseUint(rest[19], 10, 64)
	return process{start: start, state: rest[0][0], kernel: flags&kernelThread != 0, dying: flags&exiting != 0}, err == nil
}

// field returns the value of a line of a status file, "" if there is none.
func field(text []byte, key string) string {
	for line := range bytes.Lines(text) {
		if len(line) > len(key) && line[len(key)] == ':' && string(line[:len(key)]) == key {
			return string(bytes.TrimSpace(line[len(key)+1:]))
		}
	}
	return ""
}

// checkPID refuses numbers that are no process that anybody may pause. It looks at
// the number alone.
func checkPID(call string, t checkpoint.Target) *checkpoint.DriverError {
	why := ""
	switch {
	case t.PID <= 0:
		why = "is no process"
	case t.PID > math.MaxInt32:
		why = "the driver's process IDs have 32 bits"
	case t.PID == 1:
		why = "is init, which cannot be paused"
	case t.PID == os.Getpid():
		why = "is this process itself, which could not undo it"
	default:
		return nil
	}
	return wrong(call, t, invalid(call, "PID", strconv.Itoa(t.PID), why))
}

// alive says whether t is still the process that it was. Its error is that of a
// number that names no process, or that cannot be known.
func alive(call string, t checkpoint.Target) (process, bool, *checkpoint.DriverError) {
	if err := checkPID(call, t); err != nil {
		return process{}, false, err
	}
	p, ok, err := look(t.PID)
	if err != nil {
		return process{}, false, &checkpoint.DriverError{Kind: checkpoint.ErrPermission, Call: call, PID: t.PID, Err: err}
	}
	if ok && p.leader != t.PID {
		return p, false, wrong(call, t, invalid(call, "PID", strconv.Itoa(t.PID), "is a thread of "+strconv.Itoa(p.leader)+", want the process"))
	}
	if !ok || p.dead() || p.start != t.Start {
		return p, false, nil
	}
	return p, true, nil
}

// verify refuses what is not to be touched: what is gone, threads that are taken for
// processes, threads of the kernel, and for a lock what does not run, since a process
// that cannot answer the driver makes it wait for ever.
func verify(do verb, t checkpoint.Target) *checkpoint.DriverError {
	call := do.String()
	p, ok, err := alive(call, t)
	switch {
	case err != nil:
		return err
	case !ok:
		return gone(call, t)
	case p.kernel:
		return wrong(call, t, invalid(call, "PID", strconv.Itoa(t.PID), "is a thread of the kernel"))
	case do != lock:
		return nil
	}
	if why := halted(t.PID, p); why != "" {
		return refuse(checkpoint.ErrIllegalState, call, t, checkpoint.Running, "PID", strconv.Itoa(t.PID), why)
	}
	return nil
}

// halted says why a process cannot answer the driver, "" if it can.
func halted(pid int, p process) string {
	switch {
	case p.stopped():
		return "is stopped; lock it before it is stopped"
	case frozen(pid):
		return "is in a frozen cgroup; lock it before it is frozen"
	}
	return ""
}

// foreign says why the process IDs of /proc are not those of this process and so of
// the driver, "" if they are.
func foreign() string {
	if own, ok := selfPID(); ok && own != os.Getpid() {
		return "/proc is that of another PID namespace: it calls this process " + strconv.Itoa(own)
	}
	return ""
}

// noSystem is the error of systems that have no such driver.
func noSystem(call string, t checkpoint.Target) *checkpoint.DriverError {
	return &checkpoint.DriverError{
		Kind: checkpoint.ErrUnsupported, Call: call, PID: t.PID,
		Err: &lockstep.Error{Kind: lockstep.ErrUnknown, Op: "cuda", Field: "GOOS", Reason: "processes are paused on Linux only"},
	}
}
