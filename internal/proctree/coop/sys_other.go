//go:build !linux

package coop

import (
	"net"
	"runtime"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

const supported = false

func unsupported(op string) error {
	return &lockstep.Error{Kind: ErrUnsupported, Op: "coop: " + op, Field: "GOOS", Value: runtime.GOOS, Reason: "needs Linux"}
}

// Monotonic returns ErrUnsupported.
func Monotonic() (time.Duration, error) { return 0, unsupported("monotonic") }

func peer(*net.UnixConn) (Peer, error) { return Peer{}, unsupported("peer") }

func readNow(*net.UnixConn, []byte) (int, error) { return 0, unsupported("read") }
