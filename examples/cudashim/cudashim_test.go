package main

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint/cudalog"
)

// try runs the example, or skips where it cannot be run.
func try(t *testing.T, managed bool) string {
	t.Helper()
	var out bytes.Buffer
	err := run(&out, managed)
	if errors.Is(err, errCannot) {
		t.Skip(err, "; the shim is not tested")
	}
	require.NoError(t, err)
	return out.String()
}

func TestEverythingComesBack(t *testing.T) {
	require.Equal(t, `the job made 604 calls that matter; 4 are left after compaction
reserved 4 MiB at the old address and mapped 1 piece
stream 2 in context 1, flags 1
stream 3 in context 1, flags 1
the weights are at their old address and can be written and read
`, try(t, false))
}

func TestManagedMemoryIsRefused(t *testing.T) {
	require.Equal(t, `the job made 605 calls that matter; 5 are left after compaction
not restorable: it uses managed memory
`, try(t, true))
}

// TestTheLogIsWhatTheJobDid looks at the records themselves, and at a log whose writer was killed.
func TestTheLogIsWhatTheJobDid(t *testing.T) {
	b, err := build(t.TempDir())
	if errors.Is(err, errCannot) {
		t.Skip(err, "; the shim is not tested")
	}
	require.NoError(t, err)
	weights, err := b.runJob(false)
	require.NoError(t, err)
	data, err := os.ReadFile(b.log)
	require.NoError(t, err)
	l, whole, err := cudalog.Read(bytes.NewReader(data))
	require.NoError(t, err)
	require.Equal(t, int64(len(data)), whole)
	memory := l.Memory()
	require.Len(t, memory, 1, "activations are gone")
	require.Equal(t, weights, memory[0].Addr)
	require.Equal(t, uint64(3<<20), memory[0].Size)
	_, whole, err = cudalog.Read(bytes.NewReader(data[:len(data)-3]))
	require.NoError(t, err)
	require.Less(t, whole, int64(len(data)-3))
	stat, err := os.Stat(b.log)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), stat.Mode().Perm())
}
