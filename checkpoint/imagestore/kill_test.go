//go:build unix

package imagestore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

const killDir = "LOCKSTEP_IMAGESTORE_KILL_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		fmt.Println("failed:", saveForEver(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// loudFS says each call that changes something before it makes it, so that the
// parent can kill at any of them.
type loudFS struct{ fsys }

type loudFile struct{ file }

func (l loudFS) create(n string) (file, error) {
	fmt.Println("op create")
	f, err := l.fsys.create(n)
	return loudFile{f}, err
}

func (l loudFS) reopen(n string) (file, error) {
	f, err := l.fsys.reopen(n)
	return loudFile{f}, err
}

func (l loudFS) rename(a, b string) error {
	fmt.Println("op rename")
	return l.fsys.rename(a, b)
}

func (l loudFS) remove(n string) error {
	fmt.Println("op remove")
	return l.fsys.remove(n)
}

func (l loudFS) syncDir(n string) error {
	fmt.Println("op sync", n)
	return l.fsys.syncDir(n)
}

func (f loudFile) Write(p []byte) (int, error) {
	fmt.Println("op write")
	return f.file.Write(p)
}

func (f loudFile) Sync() error {
	fmt.Println("op fsync")
	return f.file.Sync()
}

func killConfig(dir string) Config {
	return Config{Dir: dir, Workers: 2, PackBytes: 100 * lockstep.KiB, Grace: time.Nanosecond, Level: LevelFast}
}

// killContent is what an epoch holds, for both processes.
func killContent(e checkpoint.Epoch) []content {
	return []content{
		{"params": noise(1, 120_000), "optimizer": noise(uint64(e), 200_000)},
		{"params": noise(1, 120_000), "optimizer": noise(uint64(e)+1<<20, 100_000)},
	}
}

// saveForEver is the child: it saves epoch after epoch, drops old ones and
// collects.
func saveForEver(dir string) error {
	base, err := openFS(dir)
	if err != nil {
		return err
	}
	s, err := open(killConfig(dir), loudFS{base})
	if err != nil {
		return err
	}
	ctx := context.Background()
	e := checkpoint.Epoch(1)
	if m, ok, err := s.Latest(ctx, "j"); err != nil {
		return err
	} else if ok {
		e = m.Epoch + 1
	}
	for ; ; e++ {
		if err := saveEpoch(ctx, s, "j", e, killContent(e)); err != nil {
			return err
		}
		fmt.Println("committed", e)
		epochs, err := s.Epochs(ctx, "j")
		if err != nil {
			return err
		}
		for _, old := range epochs[:max(0, len(epochs)-2)] {
			if err := s.Drop(ctx, "j", old); err != nil {
				return err
			}
		}
		if _, err := s.Collect(ctx); err != nil {
			return err
		}
	}
}

// TestKilledProcessLosesNothing kills a saving process with SIGKILL again and
// again, and looks at what is left each time.
func TestKilledProcessLosesNothing(t *testing.T) {
	dir := t.TempDir() + "/store"
	kills := 40
	if testing.Short() {
		kills = 4
	}
	latest := checkpoint.Epoch(0)
	for k := range kills {
		// A stride that is prime to the length of a round visits all of it.
		latest = max(latest, killAfter(t, dir, 3+(k*37)%101))
		s, err := Open(killConfig(dir))
		require.NoError(t, err)
		rep, err := s.Verify(t.Context())
		require.NoError(t, err, "kill %d: %v", k, rep.Damage)
		m, ok, err := s.Latest(t.Context(), "j")
		require.NoError(t, err)
		require.Equal(t, latest > 0 || ok, ok)
		if ok {
			require.GreaterOrEqual(t, m.Epoch, latest, "kill %d: a committed epoch is lost", k)
			for r, want := range killContent(m.Epoch) {
				got, err := load(t.Context(), s, "j", m.Epoch, r)
				require.NoError(t, err)
				requireSame(t, want, got)
			}
		}
		require.NoError(t, s.Close())
	}
	require.Positive(t, latest)
	t.Logf("%d kills, %d epochs committed", kills, latest)
}

// killAfter starts the child, kills it when it has said ops calls, and returns the
// last epoch that it said was committed.
func killAfter(t *testing.T, dir string, ops int) (latest checkpoint.Epoch) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), killDir+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		line := lines.Text()
		require.NotContains(t, line, "failed:")
		if n, ok := strings.CutPrefix(line, "committed "); ok {
			e, err := strconv.ParseUint(n, 10, 64)
			require.NoError(t, err)
			latest = checkpoint.Epoch(e)
		}
		if strings.HasPrefix(line, "op ") {
			if ops--; ops == 0 {
				require.NoError(t, cmd.Process.Kill())
			}
		}
	}
	require.NoError(t, ctx.Err(), "the child did not get so far")
	require.Error(t, cmd.Wait(), "it was killed")
	return latest
}
