//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package imagestore

import (
	"os"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// flock is refused: without locks that end with their process a store is not
// safe.
func flock(*os.File, bool) (bool, error) {
	return false, fault(checkpoint.ErrUnsupported, "open", "", "", "this system has no file locks that end with their process")
}

func readOnly(error) bool { return false }
