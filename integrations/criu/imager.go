//go:build linux

package criu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	gocriu "github.com/checkpoint-restore/go-criu/v8"
	"github.com/checkpoint-restore/go-criu/v8/rpc"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/checkpoint/process"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
)

// Imager dumps and loads with CRIU. Make one with New.
type Imager struct {
	cfg Config

	mu   sync.Mutex
	busy map[int]bool // pids of dumps that outlived their callers
}

var _ checkpoint.Imager = (*Imager)(nil) // a static check, never changed

// New returns an imager, or the faults of cfg. Nothing is run until the first call.
func New(cfg Config) (*Imager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Subreap {
		if err := proctree.Subreap(); err != nil {
			return nil, &checkpoint.DriverError{Kind: checkpoint.ErrUnsupported, Call: "subreap", Err: err}
		}
	}
	cfg.External, cfg.ExternalLoad = slices.Clone(cfg.External), slices.Clone(cfg.ExternalLoad)
	return &Imager{cfg: cfg.withDefaults(), busy: make(map[int]bool)}, nil
}

// NoCRIU is the reason of a limit: the program is not there, or its own check fails.
const NoCRIU lockstep.Reason = "no-criu"

// Probe says whether CRIU works here, as "criu check" finds, and its version. That it does not is no error: it is
// among the limits, with the reason.
func (m *Imager) Probe(ctx context.Context) (checkpoint.Caps, error) {
	caps := checkpoint.Caps{Driver: "criu"}
	limit := func(detail string) (checkpoint.Caps, error) {
		caps.Limits = []checkpoint.Unsupported{{What: checkpoint.CanImage, Reason: NoCRIU, Detail: detail}}
		return caps, nil
	}
	out, err := exec.CommandContext(ctx, m.cfg.Path, "--version").CombinedOutput()
	if ctx.Err() != nil {
		return checkpoint.Caps{}, ctx.Err()
	}
	if err != nil {
		return limit(last(string(out), err))
	}
	for line := range strings.Lines(string(out)) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "Version: "); ok {
			caps.Version = v
		}
	}
	out, err = exec.CommandContext(ctx, m.cfg.Path, "check").CombinedOutput()
	if ctx.Err() != nil {
		return checkpoint.Caps{}, ctx.Err()
	}
	if err != nil {
		return limit(last(string(out), err))
	}
	caps.Abilities = []checkpoint.Ability{checkpoint.CanImage, checkpoint.CanTree}
	return caps, nil
}

// last returns the errors that a program printed, or its last line, or else the error.
func last(out string, err error) string {
	// CRIU's first error is the cause, and those behind it are what came of that.
	if s := errorLines(out); s != "" {
		return s
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if s := lines[len(lines)-1]; s != "" {
		return s
	}
	return err.Error()
}

// Dump writes the tree of a target to w and leaves the target running, or in the state in which its driver holds it.
func (m *Imager) Dump(ctx context.Context, t checkpoint.Target, w checkpoint.ImageWriter) error {
	const call = "dump"
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := m.present(call, t); err != nil {
		return err
	}
	if !m.begin(t.PID) {
		return &checkpoint.DriverError{Kind: checkpoint.ErrInFlight, Call: call, PID: t.PID}
	}
	dir, err := os.MkdirTemp(m.cfg.Dir, "criu-dump-")
	if err != nil {
		m.end(t.PID)
		return m.local(call, t.PID, err)
	}
	done := make(chan error, 1)
	go func() {
		err := m.run(dir, m.cfg.External, func(o *rpc.CriuOpts, c *gocriu.Criu) error {
			o.Pid, o.LeaveRunning = ptr(int32(t.PID)), ptr(true)
			o.LogFile = ptr("dump.log")
			return c.Dump(o, gocriu.NoNotify{})
		})
		m.end(t.PID)
		done <- err
	}()
	select {
	case err := <-done:
		defer os.RemoveAll(dir)
		if err != nil {
			return m.fail(call, t.PID, filepath.Join(dir, "dump.log"), err)
		}
		// A target that died of it is no success, whatever CRIU says.
		if now, err := process.Identify(t.PID); err != nil || now.Start != t.Start || dead(letter(t.PID)) {
			return &checkpoint.DriverError{Kind: checkpoint.ErrGone, Call: call, PID: t.PID, State: checkpoint.Gone, Err: errors.New("CRIU reports success, but the target has died")}
		}
		return pour(ctx, dir, w)
	case <-ctx.Done():
		go func() { // the folder is CRIU's until it has ended
			<-done
			_ = os.RemoveAll(dir)
		}()
		return &checkpoint.DriverError{Kind: checkpoint.ErrInFlight, Call: call, PID: t.PID, Err: ctx.Err()}
	}
}

// present refuses a target that is gone, another's now, or stopped.
func (m *Imager) present(call string, t checkpoint.Target) error {
	if err := t.Validate(); err != nil {
		return err
	}
	now, err := process.Identify(t.PID)
	if err == nil && now.Start != t.Start {
		err = checkpoint.ErrGone
	}
	if err != nil {
		return &checkpoint.DriverError{Kind: checkpoint.ErrGone, Call: call, PID: t.PID, State: checkpoint.Gone}
	}
	if s := letter(t.PID); s == "T" || s == "t" {
		return &checkpoint.DriverError{Kind: checkpoint.ErrIllegalState, Call: call, PID: t.PID, Err: errors.New("the target is stopped; lock its devices first, and do not stop it")}
	}
	return nil
}

// dead says whether a state that letter returned is of a process that runs no more.
func dead(s string) bool { return s == "" || s == "Z" || s == "X" }

// letter returns the state of a process as ps prints it; "" if it cannot be read.
func letter(pid int) string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return ""
	}
	_, rest, ok := strings.Cut(string(text[max(strings.LastIndexByte(string(text), ')'), 0):]), ") ")
	if !ok || rest == "" {
		return ""
	}
	return rest[:1]
}

func (m *Imager) begin(pid int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[pid] {
		return false
	}
	m.busy[pid] = true
	return true
}

func (m *Imager) end(pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.busy, pid)
}

// run makes one call of CRIU with its images in dir.
func (m *Imager) run(dir string, external []string, do func(*rpc.CriuOpts, *gocriu.Criu) error) error {
	images, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer images.Close()
	c := gocriu.MakeCriu()
	c.SetCriuPath(m.cfg.Path)
	o := &rpc.CriuOpts{
		ImagesDirFd: ptr(int32(images.Fd())),
		LogLevel:    ptr(int32(m.cfg.LogLevel)),
		Timeout:     ptr(uint32((m.cfg.Timeout + time.Second - 1) / time.Second)),
		External:    external,
	}
	if m.cfg.TCP {
		o.TcpEstablished = ptr(true)
	}
	if m.cfg.ShellJob {
		o.ShellJob = ptr(true)
	}
	if m.cfg.FileLocks {
		o.FileLocks = ptr(true)
	}
	if m.cfg.GhostLimit > 0 {
		o.GhostLimit = ptr(uint32(m.cfg.GhostLimit))
	}
	return do(o, c)
}

func ptr[T any](v T) *T { return &v }

// pour writes the files of an image folder, but for logs, to an image.
func pour(ctx context.Context, dir string, w checkpoint.ImageWriter) error {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return fmt.Errorf("criu: dump: %w", err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		// Pages lie one behind the other, so that a page more shifts all behind it.
		hint := checkpoint.StreamHint{Shifts: strings.HasPrefix(e.Name(), "pages-")}
		if err := pourFile(ctx, filepath.Join(dir, e.Name()), e.Name(), hint, w); err != nil {
			return fmt.Errorf("criu: dump: %s: %w", e.Name(), err)
		}
	}
	return nil
}

func pourFile(ctx context.Context, path, name string, hint checkpoint.StreamHint, w checkpoint.ImageWriter) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	s, err := w.Create(name, hint)
	if err != nil {
		return err
	}
	if _, err := io.Copy(s, reader{ctx, f}); err != nil {
		return err // a stream that is not closed is not part of the image
	}
	return s.Close()
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// Load starts a tree from an image and returns its root. It runs as a child of this process.
func (m *Imager) Load(ctx context.Context, r checkpoint.ImageReader) (checkpoint.Target, error) {
	const call = "restore"
	if err := ctx.Err(); err != nil {
		return checkpoint.Target{}, err
	}
	dir, err := os.MkdirTemp(m.cfg.Dir, "criu-load-")
	if err != nil {
		return checkpoint.Target{}, m.local(call, 0, err)
	}
	for _, name := range r.Streams() {
		if err := fetch(ctx, r, name, dir); err != nil {
			return checkpoint.Target{}, errors.Join(err, os.RemoveAll(dir))
		}
	}
	if m.cfg.Subreap {
		clearOrphans(ctx, idsOf(r.Streams()))
	}
	n := &notes{}
	done := make(chan error, 1)
	go func() {
		done <- m.run(dir, m.cfg.ExternalLoad, func(o *rpc.CriuOpts, c *gocriu.Criu) error {
			o.LogFile, o.RstSibling = ptr("restore.log"), ptr(true)
			return c.Restore(o, n)
		})
	}()
	select {
	case err = <-done:
	case <-ctx.Done(): // a process that comes up without anybody to know it must not stay
		go func() {
			<-done
			end(n.pid())
			_ = os.RemoveAll(dir)
		}()
		return checkpoint.Target{}, &checkpoint.DriverError{Kind: checkpoint.ErrInFlight, Call: call, Err: ctx.Err()}
	}
	defer os.RemoveAll(dir)
	if err != nil {
		end(n.pid()) // CRIU may have died after the tree had come up
		return checkpoint.Target{}, m.fail(call, 0, filepath.Join(dir, "restore.log"), err)
	}
	// CRIU has been seen to report success for what is not there.
	t, err := process.Identify(n.pid())
	if n.pid() <= 0 || err != nil || dead(letter(n.pid())) {
		end(n.pid())
		return checkpoint.Target{}, &checkpoint.DriverError{Kind: checkpoint.ErrGone, Call: call, PID: n.pid(), State: checkpoint.Gone, Err: errors.New("CRIU reports success, but the process is not there")}
	}
	go reap(t.PID)
	return t, nil
}

// reap waits for a child to end.
func reap(pid int) {
	var s syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &s, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// end kills a tree that came up for a call that failed, root and all, and reaps the root.
func end(root int) {
	if root <= 0 || !holds(root, map[int]bool{root: true}) { // not a child of this process: not what was restored
		return
	}
	if tree, err := proctree.Adopt(root, proctree.Config{}); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
		defer cancel()
		// A root that forks while it is killed would leave a child that nobody can tell from others any more.
		_, _ = tree.Pause(ctx, 1)
		_, _ = tree.Terminate(ctx, 0) // what is left is killed by the line below, or is not ours to kill
		_ = tree.Close()
		_ = syscall.Kill(root, syscall.SIGKILL) // a child that is not reaped: the pid is its own
		reap(root)
	}
}

// idsOf returns the pids of an image, after which its files core-PID.img are named.
func idsOf(streams []string) map[int]bool {
	ids := make(map[int]bool)
	for _, name := range streams {
		if number, ok := strings.CutPrefix(name, "core-"); ok {
			if id, err := strconv.Atoi(strings.TrimSuffix(number, ".img")); err == nil && id > 1 {
				ids[id] = true
			}
		}
	}
	return ids
}

// clearOrphans reaps orphans that came to this process and hold a session, a group or a pid of the image: with any of
// them there CRIU says "Can't fork: File exists". It waits for those that are about to die, for a moment.
func clearOrphans(ctx context.Context, ids map[int]bool) {
	ctx, cancel := context.WithTimeout(ctx, clearTimeout)
	defer cancel()
	for left := true; left && ctx.Err() == nil; {
		left = false
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil || !holds(pid, ids) {
				continue
			}
			if got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); err == nil && got != pid {
				left = true // it lives
			}
		}
		if left {
			select {
			case <-ctx.Done():
			case <-time.After(clearPoll):
			}
		}
	}
}

// holds says whether a child of this process has a pid, a group or a session among ids.
func holds(pid int, ids map[int]bool) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	// After the name: state, parent, group, session; see proc(5).
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 4 || f[1] != strconv.Itoa(os.Getpid()) {
		return false
	}
	group, _ := strconv.Atoi(f[2])
	session, _ := strconv.Atoi(f[3])
	return ids[pid] || ids[group] || ids[session]
}

// How long cleaning up may take: far more than a kill needs, and little beside a restore.
const (
	endTimeout   = 10 * time.Second
	clearTimeout = 2 * time.Second
	clearPoll    = 5 * time.Millisecond
	checkTimeout = 10 * time.Second
)

// fetch writes a stream to a file of the same name.
func fetch(ctx context.Context, r checkpoint.ImageReader, name, dir string) (err error) {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || len(name) > 255 || strings.HasSuffix(name, ".log") {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "criu: restore", Field: "stream", Value: strconv.Quote(name), Reason: "is no name of a file of an image"}
	}
	s, err := r.Open(name)
	if err != nil {
		return fmt.Errorf("criu: restore: %s: %w", name, err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("criu: restore: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, reader{ctx, s}); err != nil {
		return fmt.Errorf("criu: restore: %s: %w", name, err)
	}
	return nil
}

// notes remembers which process was restored.
type notes struct {
	gocriu.NoNotify
	mu sync.Mutex
	p  int
}

// PostRestore implements go-criu's Notify.
func (n *notes) PostRestore(pid int32) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.p = int(pid)
	return nil
}

func (n *notes) pid() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.p
}

// local is the error of something that failed on this side.
func (m *Imager) local(call string, pid int, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "criu: " + call, Field: "Dir", Value: strconv.Quote(m.cfg.Dir), Reason: "is not there"}
	}
	return &checkpoint.DriverError{Kind: kindOf(err.Error(), err), Call: call, PID: pid, Err: err}
}

// fail is the error of a call of CRIU, with what its log says.
func (m *Imager) fail(call string, pid int, log string, err error) error {
	text := complaints(log)
	if text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	kind := kindOf(text, err)
	if kind != checkpoint.ErrDriver {
		return &checkpoint.DriverError{Kind: kind, Call: call, PID: pid, Err: err}
	}
	// Where CRIU does not work at all, that is the reason, and not what this call met.
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	if caps, bad := m.Probe(ctx); bad == nil && !caps.Can(checkpoint.CanImage) {
		kind, err = checkpoint.ErrUnsupported, fmt.Errorf("%s: %w", caps.Limits[0].Detail, err)
	}
	return &checkpoint.DriverError{Kind: kind, Call: call, PID: pid, Err: err}
}

// complaints returns the last errors of a log, on one line.
func complaints(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return errorLines(string(text))
}

// errorLines returns the last errors of a text, on one line.
func errorLines(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		_, what, ok := strings.Cut(line, "Error (")
		// CRIU goes on without that limit, so it explains nothing.
		if ok && !strings.Contains(what, "RLIMIT_NOFILE") && !strings.Contains(what, "exited, status=") {
			out = append(out, "("+strings.TrimSpace(what))
		}
	}
	const most = 5
	if len(out) > most {
		out = out[len(out)-most:]
	}
	return strings.Join(out, "; ")
}

// kindOf sorts a failure by what is said of it.
func kindOf(text string, err error) error {
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(text, w) })
	}
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist) && !has("Error"):
		return checkpoint.ErrUnsupported
	case errors.Is(err, syscall.ENOSPC), has("No space left"):
		return checkpoint.ErrNoSpace
	case errors.Is(err, os.ErrPermission), has("Operation not permitted", "Permission denied", "CAP_"):
		return checkpoint.ErrPermission
	case has("Timeout reached", "timed out"):
		return checkpoint.ErrTimeout
	case has("Cannot allocate memory"):
		return checkpoint.ErrMemory
	case has("No such process"):
		return checkpoint.ErrGone
	}
	return checkpoint.ErrDriver
}
