package coop

import (
	"io"
	"net"
	"os"
	"syscall"
	"time"
	"unsafe"

	"github.com/lockstep-gpu/lockstep"
)

const supported = true

// Monotonic reads CLOCK_MONOTONIC, which all processes of a time namespace share and
// which nobody can set.
func Monotonic() (time.Duration, error) {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0, &lockstep.Error{Kind: ErrUnsupported, Op: "coop: monotonic", Reason: errno.Error()}
	}
	return time.Duration(ts.Nano()), nil
}

// peer asks the kernel who has connected.
func peer(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return Peer{}, err
	}
	if failed != nil {
		return Peer{}, os.NewSyscallError("getsockopt", failed)
	}
	return Peer{PID: int(cred.Pid), UID: int(cred.Uid), GID: int(cred.Gid)}, nil
}

// readNow reads what has arrived; 0 means that nothing has.
func readNow(c *net.UnixConn, into []byte) (int, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	n, failed := 0, error(nil)
	if err := raw.Read(func(fd uintptr) bool {
		n, failed = syscall.Read(int(fd), into)
		return true
	}); err != nil {
		return 0, err
	}
	switch {
	case failed == syscall.EAGAIN || failed == syscall.EINTR:
		return 0, nil
	case failed != nil:
		return 0, os.NewSyscallError("read", failed)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
