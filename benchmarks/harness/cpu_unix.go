//go:build unix

package harness

import (
	"syscall"
	"time"
)

// CPUTime returns the processor time that the process has used, in user and
// system mode, by getrusage. Unlike wall time it leaves out the moments in which
// other processes ran.
func CPUTime() (time.Duration, bool) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0, false
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), true
}

// Interruptions returns how often the process lost its core to others, by
// getrusage. A time that was taken while the count grew is not the code's.
func Interruptions() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return int64(usage.Nivcsw) // its type differs between systems
}
