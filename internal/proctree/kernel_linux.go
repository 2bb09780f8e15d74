package proctree

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/lockstep-gpu/lockstep"
)

// linux is the kernel of Linux, seen through /proc.
type linux struct{}

func newKernel() (kernel, error) {
	_, ok, err := linux{}.process(os.Getpid())
	if err != nil {
		return nil, fault(ErrFailed, "open", "/proc", "", err.Error())
	}
	if !ok {
		return nil, fault(ErrUnsupported, "open", "/proc", "", "does not show this process")
	}
	return linux{}, nil
}

var signals = [...]syscall.Signal{stop: syscall.SIGSTOP, cont: syscall.SIGCONT, term: syscall.SIGTERM, kill: syscall.SIGKILL}

func (linux) self() int { return os.Getpid() }

func proc(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }

func (l linux) table() ([]Process, error) {
	pids, err := numbers("/proc")
	if err != nil {
		return nil, err
	}
	all := make([]Process, 0, len(pids))
	for _, pid := range pids {
		p, ok, err := l.process(pid)
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, p)
		}
	}
	return all, nil
}

// numbers returns the names in a directory that are numbers, in their order.
func numbers(dir string) ([]int, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	var list []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil && n > 0 {
			list = append(list, n)
		}
	}
	slices.Sort(list)
	return list, err
}

// gone says whether an error means that a process is no more. Others, such as that no descriptor is left, mean nothing.
func gone(err error) bool { return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

func (linux) process(pid int) (Process, bool, error) {
	text, err := os.ReadFile(proc(pid, "stat"))
	if err != nil {
		if gone(err) || errors.Is(err, os.ErrPermission) {
			err = nil
		}
		return Process{}, false, err
	}
	p, ok := parseStat(text)
	return p, ok, nil
}

func (linux) leader(pid int) bool {
	text, err := os.ReadFile(proc(pid, "status"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(text)) {
		if of, ok := strings.CutPrefix(line, "Tgid:"); ok {
			return strings.TrimSpace(of) == strconv.Itoa(pid)
		}
	}
	return false
}

// Identify returns who has a pid now. It is ErrUnknown if nobody has it.
func Identify(pid int) (Identity, error) {
	p, ok, err := linux{}.process(pid)
	switch {
	case err != nil:
		return Identity{}, fault(ErrFailed, "identify", "pid", strconv.Itoa(pid), err.Error())
	case !ok:
		return Identity{}, fault(lockstep.ErrUnknown, "identify", "pid", strconv.Itoa(pid), "there is no such process")
	}
	return p.Identity, nil
}

// Alive says whether the process that id names is there and some thread of it is not dead.
// What cannot be read counts as alive.
func Alive(id Identity) bool {
	p, ok, err := linux{}.process(id.PID)
	if err != nil {
		return true
	}
	return ok && p.Start == id.Start && (!dead(p.State) || summary(linux{}.states(id.PID)).alive)
}

// OnTerm returns what a process has arranged for SIGTERM, from the masks in its status
// file (proc(5)). A program can still take a signal that it handles and do nothing.
func OnTerm(pid int) Attitude {
	text, err := os.ReadFile(proc(pid, "status"))
	if err != nil {
		return Unheard
	}
	const bit = 1 << (int(syscall.SIGTERM) - 1)
	got, first := Attitude(0), false
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		if key == "NSpid" { // the pids that it has, down to its own namespace
			ids := strings.Fields(value)
			first = len(ids) > 0 && ids[len(ids)-1] == "1"
		}
		if key != "SigIgn" && key != "SigCgt" {
			continue
		}
		mask, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		switch {
		case err != nil:
			return Unheard
		case mask&bit == 0:
			got = max(got, Dies)
		case key == "SigIgn":
			got = Ignores
		default:
			got = Handles
		}
	}
	if first && got == Dies {
		return Drops
	}
	return got
}

func (linux) states(pid int) []byte {
	tids, err := numbers(proc(pid, "task"))
	if gone(err) {
		return nil
	}
	if err != nil {
		return []byte{unknown}
	}
	var states []byte
	for _, tid := range tids {
		text, err := os.ReadFile(proc(pid, "task/"+strconv.Itoa(tid)+"/stat"))
		if gone(err) {
			continue // it ended since
		}
		t, ok := parseStat(text)
		if err != nil || !ok {
			t.State = unknown
		}
		states = append(states, t.State)
	}
	return states
}

// tagged is not sure of an empty environment, which is what exec shows for a moment.
func (linux) tagged(pid int, token string) (named, sure bool) {
	text, err := os.ReadFile(proc(pid, "environ"))
	if err != nil {
		return false, gone(err) || errors.Is(err, os.ErrPermission) // another user's
	}
	for _, entry := range bytes.Split(text, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(tag+"=")); ok && slices.Contains(strings.Split(string(value), ":"), token) {
			return true, true
		}
	}
	return false, len(text) > 0
}

// pidfd is a hold on a process by a pidfd, where the kernel has them.
type pidfd struct {
	process *os.Process
	id      Identity
	fd      int // a duplicate of the pidfd, for waiting; -1 where there is none
}

// open takes hold of the process first and checks its start afterwards: if it is
// still the same then, what is held is the right one.
func (l linux) open(id Identity) (handle, bool) {
	process, err := os.FindProcess(id.PID)
	if err != nil {
		return nil, false
	}
	if p, ok, err := l.process(id.PID); err != nil || !ok || p.Start != id.Start {
		_ = process.Release()
		return nil, false
	}
	h := &pidfd{process: process, id: id, fd: -1}
	_ = process.WithHandle(func(fd uintptr) {
		if dup, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_DUPFD_CLOEXEC, 0); errno == 0 {
			h.fd = int(dup)
		}
	})
	return h, true
}

func (h *pidfd) signal(what order) error {
	if h.fd < 0 { // no pidfd on this kernel: the start is all there is to tell a new owner of the pid
		if p, ok, err := (linux{}).process(h.id.PID); err != nil || !ok || p.Start != h.id.Start {
			return err
		}
	}
	if err := h.process.Signal(signals[what]); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (h *pidfd) close() {
	if h.fd >= 0 {
		_ = syscall.Close(h.fd)
		h.fd = -1
	}
	_ = h.process.Release()
}

func (linux) group(group int, what order) error {
	if group <= 1 {
		return nil // 0 and 1 would mean the own group and everybody
	}
	if err := syscall.Kill(-group, signals[what]); err != nil && err != syscall.ESRCH {
		return err
	}
	return nil
}

func (linux) reap(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); err != syscall.EINTR {
			return
		}
	}
}

// pollfd is struct pollfd of poll(2).
type pollfd struct {
	fd              int32
	events, revents int16
}

func (linux) wait(handles []handle, d time.Duration) {
	var fds []pollfd
	for _, h := range handles {
		if p, ok := h.(*pidfd); ok && p.fd >= 0 {
			fds = append(fds, pollfd{fd: int32(p.fd), events: 1}) // POLLIN
		}
	}
	if len(fds) == 0 || len(fds) < len(handles) {
		d = min(d, 10*look) // some of them cannot be waited for
	}
	var first unsafe.Pointer
	if len(fds) > 0 {
		first = unsafe.Pointer(&fds[0])
	}
	ts := syscall.NsecToTimespec(max(int64(d), 0))
	_, _, _ = syscall.Syscall6(syscall.SYS_PPOLL, uintptr(first), uintptr(len(fds)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}

func (linux) prepare(cmd *exec.Cmd, session bool, c *cage) error {
	attr := &syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		copied := *cmd.SysProcAttr
		attr = &copied
	}
	switch {
	case attr.Pgid != 0 || attr.Foreground:
		return fault(lockstep.ErrInvalid, "start", "cmd.SysProcAttr", "", "the process group is for this package to choose")
	case attr.UseCgroupFD:
		return fault(lockstep.ErrInvalid, "start", "cmd.SysProcAttr.UseCgroupFD", "true", "use Config.Cgroup")
	}
	attr.Setsid, attr.Setpgid = session || attr.Setsid, !session && !attr.Setsid
	if c != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(c.dir.Fd())
	}
	cmd.SysProcAttr = attr
	return nil
}

// Subreap makes this process, as a whole and until it ends, the parent of the
// orphans among its descendants, so that they stay below it and it can reap them.
// It is ErrUnsupported where the kernel refuses.
func Subreap() error {
	const setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setChildSubreaper, 1, 0, 0, 0, 0); errno != 0 {
		return fault(ErrUnsupported, "subreap", "", "", errno.Error())
	}
	return nil
}

// cgroup2Magic is the type of file system of cgroup v2.
const cgroup2Magic = 0x63677270

// isCgroup2 says whether a directory is one of cgroup v2.
func isCgroup2(dir string) bool {
	var fs syscall.Statfs_t
	return syscall.Statfs(dir, &fs) == nil && int64(fs.Type) == cgroup2Magic
}
