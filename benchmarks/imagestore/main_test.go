package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOursGivesBack saves two epochs at every level and reads them back.
func TestOursGivesBack(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, synthesize(filepath.Join(dir, "src"), 6<<20, 1))
	for _, l := range levels {
		store := filepath.Join(dir, l.name)
		for _, e := range []string{"1", "2"} {
			require.NoError(t, child([]string{"save", l.name, store, e, filepath.Join(dir, "src", "epoch"+e)}))
		}
		for _, e := range []string{"1", "2"} {
			dst := filepath.Join(dir, l.name+"-"+e)
			require.NoError(t, child([]string{"restore", l.name, store, e, dst}))
			for _, name := range []string{"rank0/params", "rank3/params", "rank1/optimizer", "rank2/workspace"} {
				want, err := os.ReadFile(filepath.Join(dir, "src", "epoch"+e, name))
				require.NoError(t, err)
				got, err := os.ReadFile(filepath.Join(dst, name))
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
		}
	}
	require.Error(t, child([]string{"save"}))
}

func TestEveryPeerHasItsCommands(t *testing.T) {
	for _, tool := range tools("self") {
		require.NotEmpty(t, tool.save("store", "src", 1), tool.name)
		require.NotEmpty(t, tool.restore("store", "dst", 1), tool.name)
	}
}
