//go:build cgo && linux

package nvmltest

// Supported says whether this build can load the library.
const Supported = true
