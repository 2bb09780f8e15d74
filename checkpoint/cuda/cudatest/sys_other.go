//go:build !linux

package cudatest

import (
	"os"
	"testing"
)

// Nothing here is reached: Need skips first.
const (
	stopSignal     = signal(0)
	continueSignal = signal(0)
)

type signal int

func (signal) Signal()        {}
func (signal) String() string { return "none" }

var _ os.Signal = signal(0)

func mapState(testing.TB, string) *shared { return nil }

func started(testing.TB, int) uint64 { return 0 }

func stateOf(int) string { return "" }
