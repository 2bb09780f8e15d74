package proctree

import (
	"bytes"
	"strconv"
	"strings"
)

// Identity names one process for all time: its pid, and when it started, since
// pids are used again.
type Identity struct {
	PID   int    // PID is the process ID as this process sees it, over 0.
	Start uint64 // Start is when it started, in clock ticks since the boot.
}

// String returns "pid@start".
func (i Identity) String() string {
	return strconv.Itoa(i.PID) + "@" + strconv.FormatUint(i.Start, 10)
}

// Process is what the kernel tells of one process.
type Process struct {
	Identity        // Identity is which process it is.
	Name     string // Name is the command name, at most 15 bytes of anything.
	State    byte   // State is the state of the first thread: R, S, D, T (stopped), t (traced), Z (zombie), X and others.
	Parent   int    // Parent is the pid of its parent, 0 for none.
	Group    int    // Group is its process group.
	Session  int    // Session is its session.
	Threads  int    // Threads is how many threads it has.
	flags    uint64
}

// kernelThread is the flag of threads of the kernel, PF_KTHREAD.
const kernelThread = 0x00200000

// Attitude is what a process has arranged for SIGTERM.
type Attitude int

// The attitudes.
const (
	Unheard Attitude = iota // it is gone, or its masks cannot be read
	Dies                    // the default: the kernel ends it, and it saves nothing
	Handles                 // it has a handler; those written in Go always have
	Ignores                 // it is not told
	Drops                   // it is the first of a pid namespace and has no handler, so the kernel does not tell it
)

// parseStat reads a stat file of a process or thread. The name may hold blanks,
// parentheses and newlines, so all that follows is found behind the last ')'.
func parseStat(text []byte) (Process, bool) {
	from, to := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if from < 1 || to < from {
		return Process{}, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text[:from])))
	rest := strings.Fields(string(text[to+1:]))
	// State is field 3 of the file and the first of rest; the start is field 22.
	if err != nil || pid < 1 || len(rest) < 20 || len(rest[0]) != 1 {
		return Process{}, false
	}
	p := Process{Identity: Identity{PID: pid}, Name: string(text[from+1 : to]), State: rest[0][0]}
	var errs [6]error
	p.Parent, errs[0] = strconv.Atoi(rest[1])
	p.Group, errs[1] = strconv.Atoi(rest[2])
	p.Session, errs[2] = strconv.Atoi(rest[3])
	p.flags, errs[3] = strconv.ParseUint(rest[6], 10, 64)
	p.Threads, errs[4] = strconv.Atoi(rest[17])
	p.Start, errs[5] = strconv.ParseUint(rest[19], 10, 64)
	for _, err := range errs {
		if err != nil {
			return Process{}, false
		}
	}
	return p, true
}

// unknown is the state of a thread that could not be read. It counts as one that runs.
const unknown = '?'

// dead says whether a thread in this state will never run again.
func dead(state byte) bool { return state == 'Z' || state == 'X' || state == 'x' }

// halted says whether a thread in this state does not run until it is told to.
func halted(state byte) bool { return state == 'T' || state == 't' || dead(state) }

// threads sums up the states of the threads of a process.
type threads struct {
	alive   bool // some thread is not dead
	running bool // some thread is not halted
	waiting bool // some thread is in D, a wait that only its cause or SIGKILL ends
	stopped bool // some thread is stopped or traced
}

func summary(states []byte) threads {
	var s threads
	for _, state := range states {
		s.alive = s.alive || !dead(state)
		s.running = s.running || !halted(state)
		s.waiting = s.waiting || state == 'D'
		s.stopped = s.stopped || state == 'T' || state == 't'
	}
	return s
}
