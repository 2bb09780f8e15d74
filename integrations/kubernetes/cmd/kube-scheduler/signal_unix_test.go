//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/e2e/cluster"
)

func stop(t *testing.T, c *exec.Cmd)   { cluster.Check(t, c.Process.Signal(syscall.SIGSTOP)) }
func resume(t *testing.T, c *exec.Cmd) { cluster.Check(t, c.Process.Signal(syscall.SIGCONT)) }
