package plane

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Usage is what a process has taken so far.
type Usage struct {
	CPU  time.Duration // CPU is processor time, user and system.
	Peak int64         // Peak is the most memory it ever had, in bytes.
}

// UsageOf returns what a process has taken so far, from /proc; it is an error where
// there is none.
func UsageOf(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("plane: %w", err)
	}
	// The name, in parentheses, may hold spaces; times are fields 14 and 15.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return Usage{}, fmt.Errorf("plane: process %d: short stat", pid)
	}
	var ticks int64
	for _, f := range fields[11:13] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return Usage{}, fmt.Errorf("plane: process %d: %w", pid, err)
		}
		ticks += n
	}
	const hertz = 100 // of the kernel's interface, on every architecture that Go knows
	u := Usage{CPU: time.Duration(ticks) * time.Second / hertz}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, fmt.Errorf("plane: %w", err)
	}
	if _, rest, ok := bytes.Cut(status, []byte("VmHWM:")); ok {
		if f := bytes.Fields(rest); len(f) > 0 {
			kib, _ := strconv.ParseInt(string(f[0]), 10, 64) // 0 where it is no number
			u.Peak = kib << 10
		}
	}
	return u, nil
}

// UsageAt returns what a process had taken when it ended.
func UsageAt(s *os.ProcessState) Usage {
	return Usage{CPU: s.UserTime() + s.SystemTime(), Peak: peak(s)}
}

// Usage returns what etcd and the API server have taken together since each was
// started; the peak is the sum of both peaks.
func (p *Plane) Usage() (Usage, error) {
	var sum Usage
	for _, proc := range []*process{p.etcd, p.api} {
		u, err := UsageOf(proc.cmd.Process.Pid)
		if err != nil {
			return Usage{}, err
		}
		sum.CPU += u.CPU
		sum.Peak += u.Peak
	}
	return sum, nil
}
