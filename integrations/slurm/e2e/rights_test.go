package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/integrations/slurm"
)

// TestOnlyAnOperatorRaisesPriorities holds what README.md says of who may run -apply: slurmctld refuses a user who raises
// the priority of a job of his own.
func TestOnlyAnOperatorRaisesPriorities(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root, so that no command can be run as another user")
	}
	const nobody = 65534
	c := start(t, 2)
	require.NoError(t, os.Chmod(c.dir, 0o755))
	confs, err := filepath.Glob(filepath.Join(c.dir, "*.conf"))
	require.NoError(t, err)
	for _, f := range confs {
		require.NoError(t, os.Chmod(f, 0o644))
	}
	blocker := c.submit("300", "--nodes=2", "--gres=gpu:8", "--time=10")
	c.until("blocker", 20*time.Second, func() bool {
		return strings.Contains(c.run("squeue", "--noheader", "--job="+blocker, "--format=%T"), "RUNNING")
	})
	id := c.submit("300", "--uid="+strconv.Itoa(nobody), "--gres=gpu:8", "--time=5")
	c.until("priority", 20*time.Second, func() bool { return c.priorities()[id] > 0 })
	had := c.priorities()[id]
	path, _ := find("scontrol")
	raise := exec.Command(path, "update", "job="+id, "priority=2000000000")
	raise.Env = c.env
	raise.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	said, err := raise.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(said), "denied")
	require.Equal(t, had, c.priorities()[id])

	t.Setenv("SLURM_CONF", c.dir+"/slurm.conf")
	applied, err := (&slurm.Client{}).Apply(context.Background(), []slurm.Change{{ID: number(t, id), Job: id, To: 2_000_000_000}})
	require.NoError(t, err)
	require.True(t, applied[0].Done, "root may")
	require.EqualValues(t, 2_000_000_000, c.priorities()[id])
}
