//go:build !linux

package proctree

import "runtime"

func newKernel() (kernel, error) {
	return nil, fault(ErrUnsupported, "open", "GOOS", runtime.GOOS, "process trees are kept on Linux only")
}

// Subreap returns ErrUnsupported.
func Subreap() error {
	return fault(ErrUnsupported, "subreap", "GOOS", runtime.GOOS, "there are subreapers on Linux only")
}

func isCgroup2(string) bool { return false }
