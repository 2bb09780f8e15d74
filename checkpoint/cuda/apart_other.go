//go:build !linux

package cuda

import "os/exec"

func apart(*exec.Cmd) {}

func keep(int) {}
