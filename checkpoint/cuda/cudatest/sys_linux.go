package cudatest

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

// mapState makes the state file and maps it.
func mapState(t testing.TB, path string) *shared {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, file.Truncate(int64(unsafe.Sizeof(shared{}))))
	b, err := syscall.Mmap(int(file.Fd()), 0, int(unsafe.Sizeof(shared{})), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	require.NoError(t, err)
	// It stays mapped: a call that was given up may still be in there.
	return (*shared)(unsafe.Pointer(unsafe.SliceData(b)))
}

// fields returns what follows the name in a process's stat file.
func fields(pid int) []string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
}

func started(t testing.TB, pid int) uint64 {
	t.Helper()
	list := fields(pid)
	require.Greater(t, len(list), 19)
	start, err := strconv.ParseUint(list[19], 10, 64)
	require.NoError(t, err)
	return start
}

func stateOf(pid int) string {
	if list := fields(pid); len(list) > 0 {
		return list[0]
	}
	return ""
}
