package cuda

import (
	"os/exec"
	"syscall"
)

// apart gives a child a process group of its own, so that what a terminal sends to
// this process does not end it in the middle of a call.
func apart(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// keep keeps a descriptor from what this process starts.
func keep(fd int) { syscall.CloseOnExec(fd) }
