//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"testing"
)

func stop(t *testing.T, c *exec.Cmd)   { check(t, c.Process.Signal(syscall.SIGSTOP)) }
func resume(t *testing.T, c *exec.Cmd) { check(t, c.Process.Signal(syscall.SIGCONT)) }
