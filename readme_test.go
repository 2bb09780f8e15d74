package lockstep_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The README shows code of runnable Examples, so that it cannot rot: every
// snippet must stand, line for line and within 40 lines, in the file that the
// README names for it.
func TestReadmeShowsCodeOfExamples(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	parts := strings.Split(string(readme), "```go\n")
	require.Len(t, parts, 3, "a snippet came or went: name its file in this test")
	for i, file := range []string{"scheduler/example_test.go", "placement/example_test.go"} {
		snippet, _, closed := strings.Cut(parts[i+1], "```")
		require.True(t, closed)
		lines := strings.Split(strings.TrimSpace(snippet), "\n")
		require.LessOrEqual(t, len(lines), 40, file)
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Contains(t, parts[i], file, "the README says where the snippet stands")
		require.Contains(t, outdent(string(source)), outdent(strings.Join(lines, "\n")), "the README's snippet is not in %s any more", file)
	}
}

// outdent removes the indentation of all lines.
func outdent(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}
