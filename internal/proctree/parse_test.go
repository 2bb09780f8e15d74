package proctree

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// line makes a stat line of a process with this name.
func line(name string) string {
	return "42 (" + name + ") S 7 40 39 34816 40 4194304 1 2 3 4 5 6 7 8 20 0 12 0 123456 1000 2000"
}

func TestStatIsReadBehindTheLastParenthesis(t *testing.T) {
	for _, name := range []string{"a", "", ") R 1 1 1", "a (b) c", "(((", ")))", "x\ny", "\xff\x00", "a) T (b c) S 1"} {
		p, ok := parseStat([]byte(line(name)))
		require.True(t, ok, "%q", name)
		require.Equal(t, Process{
			Identity: Identity{PID: 42, Start: 123456}, Name: name, State: 'S', Parent: 7, Group: 40, Session: 39, Threads: 12, flags: 4194304,
		}, p)
	}
}

func TestStatThatIsNoneIsRefused(t *testing.T) {
	good := line("a")
	for _, text := range []string{
		"", "42", "42 (", "42 )", "42 )(", "(a) S", "0" + good[2:], "-1" + good[2:], "x" + good[2:],
		strings.Replace(good, "S", "SS", 1), strings.Replace(good, " 7 ", " x ", 1), strings.Replace(good, "123456", "-1", 1),
		good[:strings.Index(good, " 123456")],
	} {
		_, ok := parseStat([]byte(text))
		require.False(t, ok, "%q", text)
	}
}

func FuzzParseStat(f *testing.F) {
	for _, name := range []string{"a", ") R 1 (", "x\ny"} {
		f.Add([]byte(line(name)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, ok := parseStat(text)
		if ok {
			require.Positive(t, p.PID)
			require.NotContains(t, string(text[strings.LastIndexByte(string(text), ')')+1:]), ")")
		}
	})
}

func BenchmarkParseStat(b *testing.B) {
	text := []byte(line("python3"))
	b.ReportAllocs()
	for b.Loop() {
		parseStat(text)
	}
}
