package golden

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Command is one command line of a script.
type Command struct {
	Name string            // Name is the first word.
	Args []string          // Args are the positional arguments in order, unquoted; nil if none.
	Keys map[string]string // Keys holds the key=value arguments, unquoted; nil if none.
	Text string            // Text is the line as written, without the leading "> ".
	File string            // File is the path of the script.
	Line int               // Line is the line in File, from 1.

	fail func(format string, args ...any) // ends the test; nil panics
}

// Pos returns "file:line".
func (c Command) Pos() string { return c.File + ":" + strconv.Itoa(c.Line) }

// Fatalf ends the test with a message that names the command's place.
func (c Command) Fatalf(format string, args ...any) {
	msg := fmt.Sprintf("%s: > %s: %s", c.Pos(), c.Text, fmt.Sprintf(format, args...))
	if c.fail == nil {
		// invariant: only a Command made outside Run has no test to fail.
		panic(msg)
	}
	c.fail("%s", msg)
}

// Unknown ends the test because nothing executes a command of this name. Its result lets it stand in a return.
func (c Command) Unknown() string {
	c.Fatalf("unknown command %q", c.Name)
	return ""
}

// Allow ends the test if a key is present that is not among keys: a misspelt key would otherwise pass as absent.
func (c Command) Allow(keys ...string) {
	for _, k := range slices.Sorted(maps.Keys(c.Keys)) {
		if !slices.Contains(keys, k) {
			c.Fatalf("unknown key %q, want one of %s", k, strings.Join(keys, ", "))
		}
	}
}

// Has reports whether key is present, even with an empty value.
func (c Command) Has(key string) bool {
	_, ok := c.Keys[key]
	return ok
}

// Get returns the value of key, or "" if it is absent.
func (c Command) Get(key string) string { return c.Keys[key] }

// GetOr returns the value of key, or absent if it is not present.
func (c Command) GetOr(key, absent string) string {
	if v, ok := c.Keys[key]; ok {
		return v
	}
	return absent
}

// List returns the comma-separated parts of the value of key, nil if it is absent or empty.
func (c Command) List(key string) []string {
	v := c.Keys[key]
	if v == "" {
		return nil
	}
	return strings.Split(v, ",")
}

// Int returns the value of key as an int, absent if it is not present. A value that does not parse ends the test.
func (c Command) Int(key string, absent int) int {
	return value(c, key, absent, strconv.Atoi)
}

// Int64 is Int for int64.
func (c Command) Int64(key string, absent int64) int64 {
	return value(c, key, absent, func(s string) (int64, error) { return strconv.ParseInt(s, 10, 64) })
}

// Bool returns the value of key as a bool, absent if it is not present. A value that does not parse ends the test.
func (c Command) Bool(key string, absent bool) bool {
	return value(c, key, absent, strconv.ParseBool)
}

// Duration returns the value of key as a time.Duration such as "90s", absent if it is not present. A value that does
// not parse ends the test.
func (c Command) Duration(key string, absent time.Duration) time.Duration {
	return value(c, key, absent, time.ParseDuration)
}

// Arg returns the positional argument i, counted from 0. Its absence ends the test.
func (c Command) Arg(i int) string {
	if i < 0 || i >= len(c.Args) {
		c.Fatalf("want at least %d arguments, have %d", i+1, len(c.Args))
		return ""
	}
	return c.Args[i]
}

func value[T any](c Command, key string, absent T, parse func(string) (T, error)) T {
	s, ok := c.Keys[key]
	if !ok {
		return absent
	}
	v, err := parse(s)
	if err != nil {
		c.Fatalf("key %q: %v", key, err)
		return absent
	}
	return v
}
