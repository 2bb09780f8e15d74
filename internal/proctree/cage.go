package proctree

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/lockstep-gpu/lockstep"
)

// cage is a cgroup of version 2 that holds a tree.
type cage struct {
	path     string
	dir      *os.File
	borrowed bool // it was there before, and stays
}

// ProbeCgroup says why the cgroup v2 directory cannot hold trees, or nil. It makes
// a cgroup below it and removes it again.
func ProbeCgroup(dir string) error {
	c, err := newCage(dir, "probe-"+newToken())
	if err != nil {
		return err
	}
	return c.close()
}

// OwnCgroup returns the cgroup v2 directory that this process is in, or
// ErrUnsupported where there is none. Whether it can hold trees is for ProbeCgroup
// to say.
func OwnCgroup() (string, error) { return cgroupOf("self") }

// CgroupOf returns the cgroup v2 directory that a process is in, as OwnCgroup does.
func CgroupOf(pid int) (string, error) { return cgroupOf(strconv.Itoa(pid)) }

// Frozen says whether a process is in a cgroup v2 that has frozen, whoever froze it.
// Without such a cgroup it is not.
func Frozen(pid int) bool {
	path, err := CgroupOf(pid)
	return err == nil && (&cage{path: path}).frozen()
}

func cgroupOf(pid string) (string, error) {
	own, err := os.ReadFile("/proc/" + pid + "/cgroup")
	if err != nil {
		return "", fault(ErrUnsupported, "cgroup", "/proc/"+pid+"/cgroup", "", err.Error())
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fault(ErrUnsupported, "cgroup", "/proc/self/mountinfo", "", err.Error())
	}
	for line := range strings.Lines(string(own)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for mount := range strings.Lines(string(mounts)) {
			// The mount point is field 5; the type follows a lone hyphen.
			head, tail, ok := strings.Cut(mount, " - ")
			fields := strings.Fields(head)
			if ok && strings.HasPrefix(tail, "cgroup2 ") && len(fields) > 4 {
				return filepath.Join(fields[4], path), nil
			}
		}
	}
	return "", fault(ErrUnsupported, "cgroup", "", "", "no cgroup of version 2 is mounted")
}

func newCage(parent, name string) (*cage, error) {
	if !isCgroup2(parent) {
		return nil, fault(ErrUnsupported, "cgroup", "dir", parent, "is no directory of cgroup v2")
	}
	path := filepath.Join(parent, "lockstep-"+name)
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, fault(ErrUnsupported, "cgroup", "dir", parent, err.Error())
	}
	c := &cage{path: path}
	var err error
	if _, err = os.Stat(filepath.Join(path, "cgroup.freeze")); err == nil {
		c.dir, err = os.Open(path)
	}
	if err != nil {
		return nil, errors.Join(fault(ErrUnsupported, "cgroup", "dir", parent, err.Error()), os.Remove(path))
	}
	return c, nil
}

// borrow returns a cgroup that is there already as the cage of the tree below root. Who
// calls it, or started it, must not be inside: it would freeze itself.
func borrow(path string, root int, self []int) (*cage, error) {
	bad := func(kind error, reason string) (*cage, error) {
		return nil, fault(kind, "adopt", "Within", path, reason)
	}
	if !isCgroup2(path) {
		return bad(ErrUnsupported, "is no directory of cgroup v2")
	}
	c := &cage{path: path, borrowed: true}
	pids := c.members()
	if !pids[root] {
		return bad(lockstep.ErrInvalid, "the process is not in it")
	}
	for _, pid := range self {
		if pids[pid] {
			return bad(lockstep.ErrInvalid, "this process or an ancestor of it is in it")
		}
	}
	var err error
	if _, err = os.Stat(filepath.Join(path, "cgroup.freeze")); err == nil {
		c.dir, err = os.Open(path)
	}
	if err != nil {
		return bad(ErrUnsupported, err.Error())
	}
	return c, nil
}

// freeze asks for the cgroup to freeze or thaw, which takes a while.
func (c *cage) freeze(frozen bool) error {
	value := "0"
	if frozen {
		value = "1"
	}
	return c.write("cgroup.freeze", value)
}

func (c *cage) write(file, value string) error {
	if err := os.WriteFile(filepath.Join(c.path, file), []byte(value), 0o644); err != nil {
		return fault(ErrFailed, "cgroup", file, value, err.Error())
	}
	return nil
}

// frozen says whether every process in the cgroup has frozen.
func (c *cage) frozen() bool {
	text, err := os.ReadFile(filepath.Join(c.path, "cgroup.events"))
	return err == nil && strings.Contains(string(text), "frozen 1")
}

// members returns the pids of the processes in the cgroup and those below it.
func (c *cage) members() map[int]bool {
	pids := make(map[int]bool)
	// What vanishes on the way is empty, so errors are passed over.
	_ = filepath.WalkDir(c.path, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if err != nil {
			return nil
		}
		for line := range strings.Lines(string(text)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				pids[pid] = true // 0 is a process that this process cannot name
			}
		}
		return nil
	})
	return pids
}

// kill kills all in the cgroup at once, where the kernel can (5.14).
func (c *cage) kill() { _ = c.write("cgroup.kill", "1") }

// close removes the cgroup and those that the tree made below it.
func (c *cage) close() error {
	_ = c.dir.Close()
	if c.borrowed {
		return nil
	}
	var dirs []string
	_ = filepath.WalkDir(c.path, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	var err error
	for i := len(dirs) - 1; i >= 0; i-- { // what is inside comes first
		if err = os.Remove(dirs[i]); err != nil && !os.IsNotExist(err) {
			return fault(lockstep.ErrConflict, "close", "cgroup", dirs[i], err.Error())
		}
	}
	return nil
}
