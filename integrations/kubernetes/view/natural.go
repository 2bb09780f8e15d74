package view

import "strings"

// natural compares names with the numbers in them as numbers, so that w-2 is before
// w-10; names that are alike otherwise compare byte by byte.
func natural(a, b string) int {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		if !digit(a[i]) || !digit(b[j]) {
			if a[i] != b[j] {
				if a[i] < b[j] {
					return -1
				}
				return 1
			}
			i, j = i+1, j+1
			continue
		}
		x, y := run(a[i:]), run(b[j:])
		i, j = i+len(x), j+len(y)
		x, y = strings.TrimLeft(x, "0"), strings.TrimLeft(y, "0")
		if len(x) != len(y) {
			if len(x) < len(y) {
				return -1
			}
			return 1
		}
		if c := strings.Compare(x, y); c != 0 {
			return c
		}
	}
	switch rest, other := len(a)-i, len(b)-j; {
	case rest < other:
		return -1
	case rest > other:
		return 1
	}
	return strings.Compare(a, b)
}

func digit(b byte) bool { return '0' <= b && b <= '9' }

// run returns the digits that s begins with.
func run(s string) string {
	n := 0
	for n < len(s) && digit(s[n]) {
		n++
	}
	return s[:n]
}
