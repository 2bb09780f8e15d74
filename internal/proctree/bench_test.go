//go:build linux

package proctree

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkState looks at a tree of one process. Its time is that of the table of all
// processes of the host, so it is told per process.
func BenchmarkState(b *testing.B) {
	board := openBoard(b.TempDir() + "/board")
	tree, err := Start(role(board, "count", 0), Config{})
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, err := tree.State(context.Background())
		require.NoError(b, err)
	}
	table, err := linux{}.table()
	require.NoError(b, err)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(table)), "ns/process")
	b.StopTimer()
	_, err = tree.Terminate(context.Background(), 0)
	require.NoError(b, err)
	require.NoError(b, tree.Close())
}
