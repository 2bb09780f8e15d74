//go:build !unix

package harness

import "time"

// CPUTime reports false: this system does not tell the processor time.
func CPUTime() (time.Duration, bool) { return 0, false }

// Interruptions returns 0: this system does not tell.
func Interruptions() int64 { return 0 }
