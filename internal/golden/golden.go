package golden

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// update is defined here, once, so that every package with golden scripts has the same flag.
var update = flag.Bool("update", false, "rewrite golden scripts with the answers that were given")

// Run replays every file that matches glob as a subtest. start is called once for each file and returns the function
// that executes one command and returns its answer, possibly of several lines.
func Run(t *testing.T, glob string, start func(t *testing.T) func(cmd Command) string) {
	t.Helper()
	paths, err := filepath.Glob(glob)
	if err != nil {
		t.Fatalf("golden: glob %q: %v", glob, err)
	}
	if len(paths) == 0 {
		t.Fatalf("golden: glob %q matches no file", glob)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			replay(t, path, start(t), *update)
		})
	}
}

// reporter is what replay needs of *testing.T; the tests of this package put a recorder there to see failures.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// replay runs one file and either reports the differences or, when rewrite is set, puts them into the file.
func replay(t reporter, path string, execute func(Command) string, rewrite bool) {
	t.Helper()
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("golden: %v", err)
		return
	}
	s, err := parse(path, src)
	if err != nil {
		t.Fatalf("golden: %v", err)
		return
	}
	answers := make([][]string, len(s.items))
	for i, it := range s.items {
		if it.cmd == nil {
			continue
		}
		cmd := *it.cmd
		cmd.fail = t.Fatalf
		answers[i] = escape(execute(cmd))
		if !rewrite && !slices.Equal(it.output, answers[i]) {
			t.Errorf("%s: > %s: the answer differs (- script, + given); if the new one is right, run with -update\n%s",
				cmd.Pos(), cmd.Text, diff(it.output, answers[i]))
		}
	}
	if !rewrite {
		return
	}
	if out := s.render(answers); !bytes.Equal(out, src) {
		if err := os.WriteFile(path, out, 0o644); err != nil {
			t.Fatalf("golden: %v", err)
			return
		}
		fmt.Printf("golden: rewrote %s\n", path)
	}
}
