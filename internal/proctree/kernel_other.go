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

// Identify returns ErrUnsupported.
func Identify(int) (Identity, error) {
	return Identity{}, fault(ErrUnsupported, "identify", "GOOS", runtime.GOOS, "processes are known on Linux only")
}

// Alive returns false.
func Alive(Identity) bool { return false }

// OnTerm returns Unheard.
func OnTerm(int) Attitude { return Unheard }

func isCgroup2(string) bool { return false }
