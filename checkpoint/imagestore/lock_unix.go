//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package imagestore

import (
	"errors"
	"os"
	"syscall"
)

// flock tries to take the lock of an open file. The kernel drops it with the
// last descriptor, so no crash leaves one behind and no process ID is needed to
// tell.
func flock(f *os.File, exclusive bool) (bool, error) {
	how := syscall.LOCK_SH | syscall.LOCK_NB
	if exclusive {
		how = syscall.LOCK_EX | syscall.LOCK_NB
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var result error
	err = conn.Control(func(fd uintptr) {
		for {
			result = syscall.Flock(int(fd), how)
			if !errors.Is(result, syscall.EINTR) {
				return
			}
		}
	})
	if errors.Is(result, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil && result == nil, errors.Join(err, result)
}

func readOnly(err error) bool { return errors.Is(err, syscall.EROFS) }
