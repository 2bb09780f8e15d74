//go:build unix

package slurm

import (
	"os/exec"
	"syscall"
)

// together gives a command a process group of its own, which ends as a whole: where squeue is a script, what it started
// would live on, and hold its output open.
func together(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
