package imagestore

import (
	"strconv"

	"github.com/klauspost/compress/zstd"
)

// Level says how much time a save gives to be small. What is read back does not
// depend on it, and images of all levels share their regions.
type Level uint8

// The levels.
const (
	// LevelDefault codes numbers by byte planes with Huffman codes, and what
	// else repeats with zstd, where a sample says that it pays.
	LevelDefault Level = iota

	// LevelFastest stores regions as they are: only zeros and repeats of whole
	// regions are left out.
	LevelFastest

	// LevelFast codes byte planes alone: what has no planes is stored as it is.
	LevelFast

	// LevelSmall tries every coding on the whole region and keeps the smallest.
	LevelSmall
)

// String returns the level's name.
func (l Level) String() string {
	switch l {
	case LevelDefault:
		return "default"
	case LevelFastest:
		return "fastest"
	case LevelFast:
		return "fast"
	case LevelSmall:
		return "small"
	}
	return "level(" + strconv.Itoa(int(l)) + ")"
}

// zstd returns the level of zstd that goes with l.
func (l Level) zstd() zstd.EncoderLevel {
	if l == LevelSmall {
		return zstd.SpeedBetterCompression
	}
	return zstd.SpeedFastest
}
