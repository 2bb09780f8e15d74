package cuda

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/lockstep-gpu/lockstep/internal/proctree"
)

// supported says whether this system has processes as this package knows them.
const supported = true

func procFile(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// vanished says whether an error means that a process is no more.
func vanished(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

// readProc reads a small file of /proc into buf, as much as there is room for. It is
// done before and after every call, so it does without what os.ReadFile allocates.
func readProc(pid int, name string, buf []byte) ([]byte, error) {
	path := procFile(pid, name)
	fd, err := retry(func() (int, error) { return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) })
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer syscall.Close(fd)
	n := 0
	for n < len(buf) {
		m, err := retry(func() (int, error) { return syscall.Read(fd, buf[n:]) })
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		}
		if m == 0 {
			break
		}
		n += m
	}
	return buf[:n], nil
}

// retry calls again what a signal has interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != syscall.EINTR {
			return n, err
		}
	}
}

// look returns what the kernel tells of a process, or false if there is none. Its
// error means that neither is known.
func look(pid int) (process, bool, error) {
	var buf [4096]byte
	text, err := readProc(pid, "stat", buf[:])
	if err != nil {
		if vanished(err) {
			err = nil
		}
		return process{}, false, err
	}
	p, ok := parseStat(text)
	if !ok {
		return process{}, false, errText("stat of process ", strconv.Itoa(pid), " cannot be read")
	}
	p.leader = pid
	text, err = readProc(pid, "status", buf[:])
	switch {
	case err == nil:
		p.readStatus(text)
	case vanished(err):
		return process{}, false, nil
	}
	return p, true, nil
}

// frozen says whether a process is in a frozen cgroup, of version 2 or, where there
// is one, of version 1's freezer.
func frozen(pid int) bool {
	if proctree.Frozen(pid) {
		return true
	}
	own, err := os.ReadFile(procFile(pid, "cgroup"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(own)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[1] != "freezer" {
			continue
		}
		state, err := os.ReadFile("/sys/fs/cgroup/freezer" + parts[2] + "/freezer.state")
		return err == nil && strings.TrimSpace(string(state)) != "THAWED"
	}
	return false
}

// selfPID returns what /proc calls this process.
func selfPID() (int, bool) {
	name, err := os.Readlink("/proc/self")
	if err != nil {
		return 0, false
	}
	pid, err := strconv.Atoi(name)
	return pid, err == nil
}

// maps returns what a process has mapped; an error where that cannot be seen.
func maps(pid int) (string, error) {
	text, err := os.ReadFile(procFile(pid, "maps"))
	return string(text), err
}

// available returns how much memory the host has left, in bytes.
func available() (int64, bool) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	kib, err := strconv.ParseInt(strings.TrimSuffix(field(text, "MemAvailable"), " kB"), 10, 64)
	return kib << 10, err == nil && kib >= 0 && kib < 1<<50
}

// release returns the major number of the kernel module's version, 0 if unknown. The
// line reads "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun ...".
func release(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	return parseRelease(string(text))
}
