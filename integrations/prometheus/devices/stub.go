//go:build !cgo || !linux

package devices

import "github.com/lockstep-gpu/lockstep/internal/nvml"

// supported says whether this build can read a device at all.
const supported = false

// usage is nothing here.
type usage struct{}

func openUsage(string) *usage { return nil }

func (*usage) close() {}

// read is never called, since there is no device.
func read(*nvml.Device, *usage, string) reading {
	return reading{unsupported: make(map[string]bool)}
}
