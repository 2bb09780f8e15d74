package slurm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestNoChildOutlivesACommandThatHangs: squeue is a script on some clusters, and what it started goes with it.
func TestNoChildOutlivesACommandThatHangs(t *testing.T) {
	c := fake(t, map[string]string{"squeue": `sleep 60 & echo $! > "$dir/log.new"; mv "$dir/log.new" "$dir/log"; wait`})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, _, err := c.Jobs(ctx)
		ended <- err
	}()
	var pid int
	require.Eventually(t, func() bool {
		data, err := os.ReadFile(filepath.Join(c.Bin, "log"))
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(data)))
		return err == nil
	}, 20*time.Second, 5*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) }, 5*time.Second, 5*time.Millisecond)
}

// zombie says whether a process has ended and nobody asked how: its new parent may take its time.
func zombie(pid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return strings.HasPrefix(rest, "Z")
}
