package errtext

import (
	"strconv"
	"unicode/utf8"
)

// longest is how many bytes of a value an error shows.
const longest = 40

// Quote returns s as it stands in an error: quoted, and cut between two runes
// where it is longer than 40 bytes, with three dots behind.
func Quote[T ~string](s T) string {
	if len(s) <= longest {
		return strconv.Quote(string(s))
	}
	n := longest
	for n > longest-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n-- // back to the start of a rune, unless s is not UTF-8 at all
	}
	return strconv.Quote(string(s[:n])) + "..."
}
