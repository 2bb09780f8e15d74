//go:build linux

package criu

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/checkpoint-restore/go-criu/v8/rpc"
	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/imagestore"
	"github.com/lockstep-gpu/lockstep/checkpoint/process"
)

// image is an image in memory, both ways.
type image struct {
	files map[string][]byte
	hints map[string]checkpoint.StreamHint
	full  bool
}

func newImage() *image {
	return &image{files: map[string][]byte{}, hints: map[string]checkpoint.StreamHint{}}
}

type stream struct {
	bytes.Buffer
	close func()
}

func (s *stream) Close() error {
	s.close()
	return nil
}

func (i *image) Create(name string, hint checkpoint.StreamHint) (io.WriteCloser, error) {
	if i.full {
		return nil, checkpoint.ErrNoSpace
	}
	s := &stream{}
	s.close = func() { i.files[name], i.hints[name] = s.Bytes(), hint }
	return s, nil
}

func (i *image) Streams() []string { return slices.Sorted(maps.Keys(i.files)) }

func (i *image) Open(name string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(i.files[name])), nil
}

// imager is one with a private folder, which has to be empty in the end.
func imager(t *testing.T, path string) *Imager {
	t.Helper()
	dir := t.TempDir()
	m, err := New(Config{Path: path, Dir: dir})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.Eventually(t, func() bool {
			left, err := os.ReadDir(dir)
			return err == nil && len(left) == 0
		}, time.Minute, time.Millisecond, "nothing is left behind")
	})
	return m
}

// sleeper is a target that does nothing.
func sleeper(t *testing.T) checkpoint.Target {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	target, err := process.Identify(cmd.Process.Pid)
	require.NoError(t, err)
	return target
}

func TestDumpedAndLoaded(t *testing.T) {
	m, target, i := imager(t, program(t, "good")), sleeper(t), newImage()
	require.NoError(t, m.Dump(t.Context(), target, i))
	require.Equal(t, []string{"core-1.img", "pages-1.img"}, i.Streams(), "no logs")
	require.True(t, i.hints["pages-1.img"].Shifts)
	require.False(t, i.hints["core-1.img"].Shifts)
	now, err := process.Identify(target.PID)
	require.NoError(t, err)
	require.Equal(t, target.Start, now.Start, "the target is left as it was")

	again, err := m.Load(t.Context(), i)
	require.NoError(t, err)
	require.NotEqual(t, target.PID, again.PID)
	require.NoError(t, syscall.Kill(again.PID, syscall.SIGKILL))
	require.Eventually(t, func() bool { // it is waited for
		_, err := process.Identify(again.PID)
		return errors.Is(err, checkpoint.ErrGone)
	}, time.Minute, time.Millisecond)
}

func TestThroughTheImageStore(t *testing.T) {
	m, target := imager(t, program(t, "good")), sleeper(t)
	store, err := imagestore.Open(imagestore.Config{Dir: filepath.Join(t.TempDir(), "store")})
	require.NoError(t, err)
	defer store.Close()
	save, err := store.Begin(t.Context(), imagestore.SaveOptions{Job: "j", Epoch: 1})
	require.NoError(t, err)
	require.NoError(t, m.Dump(t.Context(), target, save))
	rank, err := save.Commit(t.Context())
	require.NoError(t, err)
	require.NoError(t, store.Commit(t.Context(), &checkpoint.Manifest{Job: "j", Epoch: 1, Term: 1, Ranks: []checkpoint.RankImage{rank}}))
	from, err := store.Image(t.Context(), "j", 1, 0)
	require.NoError(t, err)
	defer from.Close()
	again, err := m.Load(t.Context(), from)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(again.PID, syscall.SIGKILL))
}

func TestProbeSaysWhatIsWrong(t *testing.T) {
	caps, err := imager(t, program(t, "good")).Probe(t.Context())
	require.NoError(t, err)
	require.Equal(t, "4.2", caps.Version)
	require.True(t, caps.Can(checkpoint.CanImage))
	for path, want := range map[string]string{ // each by itself, so order cannot matter
		program(t, "unfit"):                   "Unexpected rt vDSO area bounds",
		program(t, "broken"):                  "exit status 3",
		filepath.Join(t.TempDir(), "no-criu"): "no such file",
	} {
		caps, err := imager(t, path).Probe(t.Context())
		require.NoError(t, err)
		require.False(t, caps.Can(checkpoint.CanImage))
		require.Len(t, caps.Limits, 1)
		require.Equal(t, NoCRIU, caps.Limits[0].Reason)
		require.Contains(t, caps.Limits[0].Detail, want)
	}
}

func TestFailuresAreOfAKind(t *testing.T) {
	for text, kind := range map[string]error{ // each by itself, so order cannot matter
		"ptrace: Operation not permitted":            checkpoint.ErrPermission,
		"Cannot write: No space left on device":      checkpoint.ErrNoSpace,
		"Timeout reached. Try to interrupt: 4":       checkpoint.ErrTimeout,
		"mmap: Cannot allocate memory":               checkpoint.ErrMemory,
		"seize 5: No such process":                   checkpoint.ErrGone,
		"Connected TCP socket, consider using --tcp": checkpoint.ErrDriver,
	} {
		m, i := imager(t, program(t, "fails:"+text)), newImage()
		err := m.Dump(t.Context(), sleeper(t), i)
		require.ErrorIs(t, err, kind, text)
		require.ErrorContains(t, err, "a.c:1")
		var typed *checkpoint.DriverError
		require.ErrorAs(t, err, &typed)
		require.Equal(t, "dump", typed.Call)
		require.Empty(t, i.files)
		i.files["pages-1.img"] = []byte("sleep\x001\x00")
		_, err = m.Load(t.Context(), i)
		require.ErrorIs(t, err, kind, text)
	}
	for _, role := range []string{"garbage", "crash"} {
		m, i := imager(t, program(t, role)), newImage()
		require.ErrorIs(t, m.Dump(t.Context(), sleeper(t), i), checkpoint.ErrDriver, role)
		require.Empty(t, i.files, role)
		i.files["pages-1.img"] = []byte("sleep\x001\x00")
		_, err := m.Load(t.Context(), i)
		require.ErrorIs(t, err, checkpoint.ErrDriver, role)
	}
	m := imager(t, filepath.Join(t.TempDir(), "no-criu"))
	require.ErrorIs(t, m.Dump(t.Context(), sleeper(t), newImage()), checkpoint.ErrUnsupported)
}

// checkpoint-restore/criu#2993: a restore "succeeds" and nothing is there.
func TestComplaint17SuccessIsWhatIsThere(t *testing.T) {
	i := newImage()
	i.files["pages-1.img"] = []byte("sleep\x001\x00")
	_, err := imager(t, program(t, "ghost")).Load(t.Context(), i)
	require.ErrorIs(t, err, checkpoint.ErrGone)
}

// NVIDIA/cuda-checkpoint#41: a wrong pid is taken, and another process suffers.
func TestComplaint7TargetIsAnIdentity(t *testing.T) {
	m, target := imager(t, program(t, "good")), sleeper(t)
	target.Start++
	require.ErrorIs(t, m.Dump(t.Context(), target, newImage()), checkpoint.ErrGone)
	for _, pid := range []int{-1, 0} {
		require.ErrorIs(t, m.Dump(t.Context(), checkpoint.Target{PID: pid, Start: 1}, newImage()), lockstep.ErrInvalid)
	}
	require.ErrorIs(t, m.Dump(t.Context(), checkpoint.Target{PID: 1 << 22, Start: 1}, newImage()), checkpoint.ErrGone)
}

// checkpoint-restore/criu#2470: what is stopped first hangs later.
func TestComplaint6StoppedTargetIsRefused(t *testing.T) {
	m, target := imager(t, program(t, "good")), sleeper(t)
	require.NoError(t, syscall.Kill(target.PID, syscall.SIGSTOP))
	require.Eventually(t, func() bool { return letter(target.PID) == "T" }, time.Minute, time.Millisecond)
	require.ErrorIs(t, m.Dump(t.Context(), target, newImage()), checkpoint.ErrIllegalState)
}

// checkpoint-restore/criu#2547: a dump that outlasts its caller is not killed, and no second one starts beside it.
func TestComplaint5DumpThatOutlastsItsCaller(t *testing.T) {
	hold := filepath.Join(t.TempDir(), "go")
	m, target, i := imager(t, program(t, "hold", holdVariable+"='"+hold+"'")), sleeper(t), newImage()
	require.ErrorIs(t, m.Dump(begun(t, hold), target, i), checkpoint.ErrInFlight)
	require.ErrorIs(t, m.Dump(t.Context(), target, i), checkpoint.ErrInFlight)
	require.NoError(t, os.WriteFile(hold, nil, 0o600))
	require.Eventually(t, func() bool { return m.Dump(t.Context(), target, i) == nil }, time.Minute, 10*time.Millisecond)
	require.Len(t, i.files, 2)
}

func TestLoadThatOutlastsItsCallerLeavesNobody(t *testing.T) {
	hold := filepath.Join(t.TempDir(), "go")
	m, i := imager(t, program(t, "hold", holdVariable+"='"+hold+"'")), newImage()
	i.files["pages-1.img"] = []byte("sleep\x00601.25\x00")
	_, err := m.Load(begun(t, hold), i)
	require.ErrorIs(t, err, checkpoint.ErrInFlight)
	require.NoError(t, os.WriteFile(hold, nil, 0o600))
	require.Eventually(t, func() bool { return exec.Command("pgrep", "-f", "sleep 601.25").Run() != nil }, time.Minute, 10*time.Millisecond)
}

// begun returns a context that ends when the CRIU that holds at a file has begun.
func begun(t *testing.T, hold string) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for t.Context().Err() == nil {
			if _, err := os.Stat(hold + ".on"); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	return ctx
}

func TestEndedContextStartsNothing(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "opts")
	m := imager(t, program(t, "good", optsVariable+"='"+mark+"'"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, m.Dump(ctx, sleeper(t), newImage()), context.Canceled)
	_, err := m.Load(ctx, newImage())
	require.ErrorIs(t, err, context.Canceled)
	require.NoFileExists(t, mark)
}

func TestCrashAfterTheRestoreLeavesNobody(t *testing.T) {
	m, i := imager(t, program(t, "late")), newImage()
	// A tree of two, in one session as a job's.
	line := "sleep 603." + strconv.Itoa(os.Getpid()) // no other run's
	i.files["pages-1.img"] = []byte("/bin/sh\x00-c\x00" + line + "; true\x00")
	_, err := m.Load(t.Context(), i)
	require.ErrorIs(t, err, checkpoint.ErrDriver)
	require.Eventually(t, func() bool { return exec.Command("pgrep", "-f", line).Run() != nil }, time.Minute, 10*time.Millisecond)
}

// NVIDIA/cuda-checkpoint#58: the target dies of it.
func TestComplaint2DumpThatKillsItsTarget(t *testing.T) {
	m, i := imager(t, program(t, "kills")), newImage()
	require.ErrorIs(t, m.Dump(t.Context(), sleeper(t), i), checkpoint.ErrGone)
	require.Empty(t, i.files)
}

func TestBrokenCRIUIsUnsupportedWithItsReason(t *testing.T) {
	m, i := imager(t, program(t, "unfit-fails")), newImage()
	err := m.Dump(t.Context(), sleeper(t), i)
	require.ErrorIs(t, err, checkpoint.ErrUnsupported)
	require.ErrorContains(t, err, "Unexpected rt vDSO area bounds")
}

func TestMissingFolderIsNamed(t *testing.T) {
	m, err := New(Config{Path: program(t, "good"), Dir: filepath.Join(t.TempDir(), "no")})
	require.NoError(t, err)
	require.ErrorIs(t, m.Dump(t.Context(), sleeper(t), newImage()), lockstep.ErrInvalid)
}

// NVIDIA/cuda-checkpoint#54: a restore looks for the device file of before.
func TestComplaint12OptionsReachCRIU(t *testing.T) {
	opts := filepath.Join(t.TempDir(), "opts")
	cfg := Config{
		Path: program(t, "good", optsVariable+"='"+opts+"'"), Dir: t.TempDir(), Timeout: 1500 * time.Millisecond,
		TCP: true, ShellJob: true, FileLocks: true, GhostLimit: 5 << 20, LogLevel: 3,
		External: []string{"mnt[/dev/nvidia0]:gpu0"}, ExternalLoad: []string{"mnt[gpu0]:/dev/nvidia1"},
	}
	m, err := New(cfg)
	require.NoError(t, err)
	got := func() *rpc.CriuOpts {
		b, err := os.ReadFile(opts)
		require.NoError(t, err)
		o := &rpc.CriuOpts{}
		require.NoError(t, o.UnmarshalVT(b))
		require.Equal(t, uint32(2), o.GetTimeout())
		require.True(t, o.GetTcpEstablished() && o.GetShellJob() && o.GetFileLocks())
		require.Equal(t, uint32(5<<20), o.GetGhostLimit())
		require.Equal(t, int32(3), o.GetLogLevel())
		return o
	}
	i := newImage()
	require.NoError(t, m.Dump(t.Context(), sleeper(t), i))
	require.Equal(t, cfg.External, got().GetExternal())
	again, err := m.Load(t.Context(), i)
	require.NoError(t, err)
	require.Equal(t, cfg.ExternalLoad, got().GetExternal())
	require.NoError(t, syscall.Kill(again.PID, syscall.SIGKILL))
}

func TestWhatExplainsNothingIsLeftOut(t *testing.T) {
	const text = "(00.0) Error (criu/util.c:1534): rlimit: Can't setup RLIMIT_NOFILE for self: Operation not permitted\n(00.1) Error (criu/x.c:1): Can't fork for 5: File exists\n"
	require.Equal(t, "(criu/x.c:1): Can't fork for 5: File exists", errorLines(text))
}

func TestNamesThatLeaveTheFolderAreRefused(t *testing.T) {
	m := imager(t, program(t, "good"))
	for _, name := range []string{"", ".", "..", "../x", "/etc/passwd", "a/b", "a\x00b", "restore.log"} {
		i := newImage()
		i.files[name] = nil
		_, err := m.Load(t.Context(), i)
		require.ErrorIs(t, err, lockstep.ErrInvalid, "%q", name)
	}
}

func TestWriterThatIsFull(t *testing.T) {
	m, i := imager(t, program(t, "good")), newImage()
	i.full = true
	require.ErrorIs(t, m.Dump(t.Context(), sleeper(t), i), checkpoint.ErrNoSpace)
}

func TestBadConfigIsNamed(t *testing.T) {
	_, err := New(Config{Dir: "rel", Timeout: -1, GhostLimit: -1, LogLevel: 9, External: []string{""}, ExternalLoad: []string{""}})
	require.ErrorIs(t, err, lockstep.ErrInvalid)
	for _, field := range []string{"Dir", "Timeout", "GhostLimit", "LogLevel", "External[0]", "ExternalLoad[0]"} {
		require.ErrorContains(t, err, field)
	}
}

// TestRealCRIU counts in a real process, dumps it, kills it and restores it, where CRIU works.
func TestRealCRIU(t *testing.T) {
	dir := t.TempDir()
	m, err := New(Config{Dir: dir, ShellJob: true, Subreap: true})
	require.NoError(t, err)
	caps, err := m.Probe(t.Context())
	require.NoError(t, err)
	if !caps.Can(checkpoint.CanImage) {
		t.Skip("a dump and a restore by CRIU itself are left out: ", caps.Limits[0].Detail)
	}
	file := filepath.Join(t.TempDir(), "count")
	cmd := exec.Command("/bin/sh", "-c", "i=0; while :; do i=$((i+1)); echo $i >> "+file+"; sleep 0.05; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	require.NoError(t, cmd.Start())
	lines := func() int {
		text, _ := os.ReadFile(file)
		return bytes.Count(text, []byte("\n"))
	}
	require.Eventually(t, func() bool { return lines() > 3 }, time.Minute, 10*time.Millisecond)
	target, err := process.Identify(cmd.Process.Pid)
	require.NoError(t, err)
	i := newImage()
	require.NoError(t, m.Dump(t.Context(), target, i))
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	before := lines()
	again, err := m.Load(t.Context(), i)
	require.NoError(t, err)
	require.Equal(t, target.PID, again.PID)
	require.Eventually(t, func() bool { return lines() > before+3 }, time.Minute, 10*time.Millisecond, "it goes on")
	require.NoError(t, syscall.Kill(-again.PID, syscall.SIGKILL))
}
