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
	return regexp.MustCompile(`(?m)\d+\.\d MiB|for \S+$`).ReplaceAllString(text, "X")
}

func TestSavedEndedAndResumed(t *testing.T) {
	keep := filepath.Join(t.TempDir(), "store")
	require.Equal(t, `epoch E at step N: 48 MiB of 4 ranks, X of that new, X stored; paused X
with a failure every 6h, save every T; a warning of 30s is enough: true
epoch E at step N: 48 MiB of 4 ranks, X of that new, X stored; paused X
preempted: all ranks left after the commit, 0 had to be killed
verified: 2 epochs, 8 images, X in all
resumed at step N and run to its end: all 4 ranks hold what they hold without any stop
`, try(t, false, keep))

	// What is alike in all ranks, and in both epochs, is stored once: 8 MiB and four times 4 MiB, and little more.
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
rank 2 died while it was saved: epoch E is void, to be killed: [0 1 3]
verified: 1 epochs, 4 images, X in all
resumed at step N and run to its end: all 4 ranks hold what they hold without any stop
`, try(t, true, ""))
}
