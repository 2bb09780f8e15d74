//go:build !cgo || !linux

package nvml

// supported says whether this build can load the library.
const supported = false
