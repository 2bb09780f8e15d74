package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint/imagestore"
)

// TestMain lets the test binary be the job, as the program itself is.
func TestMain(m *testing.M) {
	role()
	os.Exit(m.Run())
}

// try runs the example and returns what it printed, with the numbers that differ from run to run taken out.
func try(t *testing.T, fault bool, keep string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the job of this example needs Linux; it is not run")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out bytes.Buffer
	require.NoError(t, run(ctx, &out, fault, keep), &out)
	text := regexp.MustCompile(`(?m)^cuda: .*\n`).ReplaceAllString(out.String(), "")
	text = regexp.MustCompile(`step \d+`).ReplaceAllString(text, "step N")
	text = regexp.MustCompile(`save every \S+;`).ReplaceAllString(text, "save every T;")
	text = regexp.MustCompile(`epoch \d+`).ReplaceAllString(text, "epoch E") // a busy machine may need more attempts
	return regexp.MustCompile(`(?m)\d+\.\d MiB|(for|in) \S+s$`).ReplaceAllString(text, "X")
}

func TestSavedEndedAndResumed(t *testing.T) {
	keep := filepath.Join(t.TempDir(), "store")
	require.Equal(t, `epoch E at step N: 48 MiB of 4 ranks, X of that new, X stored; paused X
  rank 0: 12 MiB saved X
  rank 1: 12 MiB saved X
  rank 2: 12 MiB saved X
  rank 3: 12 MiB saved X
with a failure every 6h, save every T; a warning of 30s is enough: true
epoch E at step N: 48 MiB of 4 ranks, X of that new, X stored; paused X
  rank 0: 12 MiB saved X
  rank 1: 12 MiB saved X
  rank 2: 12 MiB saved X
  rank 3: 12 MiB saved X
epoch E at step N: 48 MiB of 4 ranks, X of that new, X stored; paused X
  rank 0: 12 MiB saved X
  rank 1: 12 MiB saved X
  rank 2: 12 MiB saved X
  rank 3: 12 MiB saved X
preempted: all ranks left after the commit, 0 had to be killed; saved
verified: 3 epochs, 12 images, X in all
resumed at step N and run to its end: all 4 ranks hold what they hold without any stop
`, try(t, false, keep))

	again := try(t, false, keep) // a store that was kept goes on to be used
	require.Contains(t, again, "verified: 6 epochs, 24 images")

	// What is alike in all ranks, and in all epochs, is stored once: 8 MiB and four times 4 MiB, and little more.
	store, err := imagestore.Open(imagestore.Config{Dir: keep})
	require.NoError(t, err)
	report, err := store.Verify(t.Context())
	require.NoError(t, err)
	require.Empty(t, report.Damage)
	require.Less(t, report.Bytes>>20, lockstep.Bytes(32))
	require.NoError(t, store.Close())
}

func TestARankThatDiesVoidsTheEpochOnly(t *testing.T) {
	require.Equal(t, `epoch E at step N: 48 MiB of 4 ranks, X of that new, X stored; paused X
  rank 0: 12 MiB saved X
  rank 1: 12 MiB saved X
  rank 2: 12 MiB saved X
  rank 3: 12 MiB saved X
rank 2 died while it was saved: epoch E is void, nobody is held, to be killed: [0 1 3]
verified: 1 epochs, 4 images, X in all
resumed at step N and run to its end: all 4 ranks hold what they hold without any stop
`, try(t, true, ""))
}

// canceler ends a run once something was printed.
type canceler struct {
	bytes.Buffer
	at     string
	cancel func()
}

func (c *canceler) Write(p []byte) (int, error) {
	n, err := c.Buffer.Write(p)
	if bytes.Contains(c.Bytes(), []byte(c.at)) {
		c.cancel()
	}
	return n, err
}

func TestCutLeavesNothingBehind(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the job of this example needs Linux; it is not run")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.ErrorIs(t, run(ctx, &canceler{at: "save every", cancel: cancel}, false, ""), context.Canceled)

	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	require.NotEmpty(t, all)
	for _, name := range all {
		env, err := os.ReadFile(name)
		require.False(t, err == nil && bytes.Contains(env, []byte(dir)), name) // the job's socket is in the folder
	}
}
