package golden

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// counter is the package under test of these scripts.
func counter() func(Command) string {
	sum := 0
	return func(c Command) string {
		switch c.Name {
		case "add":
			c.Allow("n")
			sum += c.Int("n", 0)
			return fmt.Sprintln(sum)
		case "twice":
			return fmt.Sprintf("%d\n\n%d", sum, sum)
		case "reset":
			sum = 0
			return ""
		case "words":
			out := slices.Clone(c.Args)
			for _, k := range slices.Sorted(maps.Keys(c.Keys)) {
				out = append(out, k+"="+c.Keys[k])
			}
			return strings.Join(out, "\n")
		default:
			return c.Unknown()
		}
	}
}

// recorder takes the place of *testing.T. Like it, Fatalf ends the goroutine.
type recorder struct{ failures []string }

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// play replays src from a file and returns what was reported and what the file holds afterwards.
func play(t *testing.T, src string, rewrite bool) (failures []string, after string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.txt")
	require.NoError(t, os.WriteFile(path, []byte(src), 0o644))
	var r recorder
	done := make(chan struct{})
	go func() {
		defer close(done)
		replay(&r, path, counter(), rewrite)
	}()
	<-done
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	for i, f := range r.failures {
		r.failures[i] = strings.ReplaceAll(f, path, "script.txt")
	}
	return r.failures, string(b)
}

func TestScriptsReplay(t *testing.T) {
	Run(t, "testdata/*.txt", func(*testing.T) func(Command) string { return counter() })
}

func TestEachFileStartsAfresh(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.txt", "b.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("> add n=1\n1\n"), 0o644))
	}
	starts := 0
	Run(t, filepath.Join(dir, "*.txt"), func(*testing.T) func(Command) string {
		starts++
		return counter()
	})
	require.Equal(t, 2, starts)
}

func TestMismatchNamesFileAndLineAndGoesOn(t *testing.T) {
	src := "# head\n> add n=1\n2\n\n> twice\n1\n\\\n1\n> add n=1\n2\nextra\n"
	failures, after := play(t, src, false)
	require.Len(t, failures, 2)
	require.Contains(t, failures[0], "script.txt:2: > add n=1:")
	require.Contains(t, failures[0], "- 2\n+ 1\n")
	require.Contains(t, failures[1], "script.txt:9: > add n=1:")
	require.Contains(t, failures[1], "  2\n- extra\n")
	require.Equal(t, src, after, "without -update a file is never written")
}

func TestUpdateRewritesOnlyAnswers(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"wrong answer", "# head \n> add n=1\n7\n8\n\n# tail\n", "# head \n> add n=1\n1\n\n# tail\n"},
		{"missing answer", "> add n=1\n> twice\n# end\n", "> add n=1\n1\n> twice\n1\n\\\n1\n# end\n"},
		{"answer that vanishes", "> reset\nold\n\n\n# end\n", "> reset\n\n\n# end\n"},
		{"escapes", "> words \"# x\" \"\" \">y\"\n", "> words \"# x\" \"\" \">y\"\n\\# x\n\\\n\\>y\n"},
		{"CRLF", "# a\r\n> add n=3\r\n\r\n# z\r\n", "# a\r\n> add n=3\r\n3\r\n\r\n# z\r\n"},
		{"missing last newline", "> add n=3\n4", "> add n=3\n3\n"},
		{"missing last newline after command", "> add n=3", "> add n=3\n3\n"},
		{"right already", "> add n=3\n3\n", "> add n=3\n3\n"},
		{"empty file", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			failures, after := play(t, c.src, true)
			require.Empty(t, failures)
			require.Equal(t, c.want, after)
			failures, _ = play(t, after, false)
			require.Empty(t, failures, "what -update writes must replay")
		})
	}
}

func TestScriptsTolerateEditors(t *testing.T) {
	for name, src := range map[string]string{
		"CRLF":                 "# c\r\n> add n=1\r\n1\r\n",
		"missing last newline": "> add n=1\n1",
		"trailing spaces":      "> add n=1  \n1 \t\n",
		"tabs between words":   ">\tadd\t n=1\n1\n",
		"no space after >":     ">add n=1\n1\n",
		"only comments":        "# nothing\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			failures, _ := play(t, src, false)
			require.Empty(t, failures)
		})
	}
}

func TestBadScriptsAreRefused(t *testing.T) {
	for _, c := range []struct{ name, src, want string }{
		{"output without command", "# c\n\nstray\n", `script.txt:3: output "stray" follows no command`},
		{"output after comment", "> reset\n# c\nstray\n", `script.txt:3: output "stray" follows no command`},
		{"open quote", "> words \"a b\n", "script.txt:1: > words \"a b: bad quoting"},
		{"bad escape", "> words \"\\q\"\n", "bad quoting"},
		{"no name", ">\n", "script.txt:1: command without a name"},
		{"key for a name", "> n=1\n", `want a command's name before key "n"`},
		{"repeated key", "> add n=1 n=2\n", `key "n" occurs twice`},
		{"unknown command", "> nope\n", `script.txt:1: > nope: unknown command "nope"`},
		{"unknown key", "> add m=1\n", `unknown key "m", want one of n`},
		{"bad value", "> add n=one\n", `script.txt:1: > add n=one: key "n":`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, rewrite := range []bool{false, true} {
				failures, after := play(t, c.src, rewrite)
				require.Len(t, failures, 1)
				require.Contains(t, failures[0], c.want)
				require.Equal(t, c.src, after, "a refused script is left alone")
			}
		})
	}
}

func TestMissingFileIsFatal(t *testing.T) {
	var r recorder
	done := make(chan struct{})
	go func() {
		defer close(done)
		replay(&r, filepath.Join(t.TempDir(), "none"), counter(), false)
	}()
	<-done
	require.Len(t, r.failures, 1)
}

func TestTokens(t *testing.T) {
	cmd, err := parseCommand("f", 1, ` go a "b c" pre"fix x" =d k=v k2="v 2" k3= k4=a=b "k5"=v "k6=v"  `)
	require.NoError(t, err)
	require.Equal(t, "go", cmd.Name)
	require.Equal(t, []string{"a", "b c", "prefix x", "=d", "k5=v", "k6=v"}, cmd.Args)
	require.Equal(t, map[string]string{"k": "v", "k2": "v 2", "k3": "", "k4": "a=b"}, cmd.Keys)
}

func TestCommandValues(t *testing.T) {
	cmd, err := parseCommand("f", 1, "go x i=7 big=9000000000 d=90s b=true l=p,q empty=")
	require.NoError(t, err)
	cmd.fail = t.Fatalf
	require.Equal(t, "x", cmd.Arg(0))
	require.Equal(t, 7, cmd.Int("i", 1))
	require.Equal(t, 1, cmd.Int("j", 1))
	require.Equal(t, int64(9000000000), cmd.Int64("big", 0))
	require.Equal(t, 90*time.Second, cmd.Duration("d", 0))
	require.True(t, cmd.Bool("b", false))
	require.Equal(t, []string{"p", "q"}, cmd.List("l"))
	require.Nil(t, cmd.List("empty"))
	require.Equal(t, "", cmd.GetOr("empty", "none"))
	require.Equal(t, "none", cmd.GetOr("absent", "none"))
	require.Panics(t, func() { Command{Name: "go"}.Arg(0) })
}

// FuzzUpdateReplays checks that whatever -update writes parses again to the same answers.
func FuzzUpdateReplays(f *testing.F) {
	f.Add("# c\n> words a\nb\n", "x\n\n> y\n# z\n\\")
	f.Add("> a", " lead\r\n trail \t")
	f.Fuzz(func(t *testing.T, src, answer string) {
		s, err := parse("f", []byte(src))
		if err != nil {
			t.Skip("not a script")
		}
		answers := make([][]string, len(s.items))
		for i, it := range s.items {
			if it.cmd != nil {
				answers[i] = escape(answer)
			}
		}
		again, err := parse("f", s.render(answers))
		require.NoError(t, err)
		for i, it := range again.items {
			require.Equal(t, s.items[i].raw, it.raw)
			require.Equal(t, answers[i], it.output)
		}
	})
}
