package cuda

import (
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/cuda/cudatest"
)

// In a container whose /proc is the host's, numbers mean other processes to the driver
// than to us. The test runs itself anew in such a place.
func TestAForeignProcIsRefused(t *testing.T) {
	const inside = "LOCKSTEP_TEST_NAMESPACE"
	if os.Getenv(inside) == "" {
		require.Empty(t, foreign())
		cudatest.Need(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestAForeignProcIsRefused$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Skip("NOT TESTED: no PID namespace can be made: ", err)
		}
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS")
		return
	}
	require.Contains(t, foreign(), "another PID namespace")
	d, err := New(Config{Library: "/none"})
	require.NoError(t, err)
	parent := checkpoint.Target{PID: 1 << 20, Start: 1}
	driverError(t, do(d, lock, parent), checkpoint.ErrPermission)
	_, err = d.State(t.Context(), parent)
	driverError(t, err, checkpoint.ErrPermission)
}
