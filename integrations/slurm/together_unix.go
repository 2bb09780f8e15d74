//go:build unix

package slurm

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// together gives a command a process group of its own, which ends as a whole: where squeue is a script, what it started
// would live on, and hold its output open.
func together(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone // and how it ended counts
		}
		return err
	}
}
