package proctree

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// look is the shortest time between two looks at a tree that is not yet where it
// should be.
const look = 500 * time.Microsecond

// glance is the longest wait for an exit, so that the end of a context is noticed soon.
const glance = 50 * time.Millisecond

// tag is the environment variable that names the trees a process was started in,
// split by colons.
const tag = "LOCKSTEP_TREE"

// Config says how a tree is started. The zero Config is valid.
type Config struct {
	Session bool          // Session starts the tree in a session of its own, not only in a process group of its own.
	Cgroup  string        // Cgroup is a cgroup v2 directory to make a cgroup for the tree in, and freeze that; "" means to use signals.
	Within  string        // Within is the cgroup v2 directory that an adopted tree is in, such as its container's, to freeze and kill that; "" means to use signals. All in it are members, and it is not removed.
	Poll    time.Duration // Poll is the longest time between two looks at processes that take their time; 0 means 5ms.
}

// Tree is a process and all that came of it. Make one with Start or Adopt. It is
// safe for concurrent use: its calls wait for each other, or for their context.
type Tree struct {
	kernel kernel
	cfg    Config
	root   Identity
	token  string    // in the environment of the tree; "" for one that was adopted
	cmd    *exec.Cmd // nil for one that was adopted
	cage   *cage     // nil without a cgroup
	turn   chan struct{}

	members  map[int]*member
	groups   map[int]bool      // process groups that a member founded and a member is in
	sessions map[int]bool      // the same of sessions
	foreign  map[Identity]bool // processes that are not of the tree, as far as their environment was read
	stage    stage
	halting  bool // signals to stop were sent, or the cage frozen, since the tree was last let go
	over     bool // Terminate was called
	reaped   bool // the root was reaped
}

// member is a process of the tree.
type member struct {
	Process
	handle handle // nil until it is needed
	caged  bool
	threads
}

// Start starts cmd as the root of a tree, in a process group of its own. The caller
// calls neither cmd.Wait nor cmd.Process.Wait: as long as the dead root is not
// reaped, its pid and group are nobody else's, and the Tree reaps it last.
func Start(cmd *exec.Cmd, cfg Config) (*Tree, error) {
	if cfg.Within != "" {
		return nil, fault(lockstep.ErrInvalid, "start", "Within", cfg.Within, "is for trees that are adopted; use Cgroup")
	}
	t, err := newTree(cfg)
	if err != nil {
		return nil, err
	}
	t.token = newToken()
	if cfg.Cgroup != "" {
		if t.cage, err = newCage(cfg.Cgroup, t.token); err != nil {
			return nil, err
		}
	}
	if err := t.launch(cmd); err != nil {
		if t.cage != nil {
			err = errors.Join(err, t.cage.close())
		}
		return nil, err
	}
	return t, nil
}

// newToken returns a name that no other tree has.
func newToken() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	return hex.EncodeToString(random)
}

func (t *Tree) launch(cmd *exec.Cmd) error {
	if cmd == nil || cmd.Process != nil {
		return fault(lockstep.ErrInvalid, "start", "cmd", "", "want a command that was not started")
	}
	if err := t.kernel.prepare(cmd, t.cfg.Session, t.cage); err != nil {
		return err
	}
	cmd.Env = tagEnv(cmd.Environ(), t.token)
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = time.Second // how long reaping may wait for pipes that somebody else holds
	}
	if err := cmd.Start(); err != nil {
		return fault(ErrFailed, "start", "cmd", cmd.Path, err.Error())
	}
	t.cmd = cmd
	// The root is a child that nobody else reaps: it is there, dead or alive.
	p, ok, err := t.kernel.process(cmd.Process.Pid)
	if err != nil || !ok {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err != nil {
			return fault(ErrFailed, "start", "cmd", cmd.Path, err.Error())
		}
		return fault(ErrFailed, "start", "cmd", cmd.Path, "was reaped by another")
	}
	// Between fork and exec the group may not be set yet, but Start returns after exec.
	t.adopt(p)
	return nil
}

// tagEnv returns env with the token added to the variable that names trees, so that
// a tree inside another belongs to both.
func tagEnv(env []string, token string) []string {
	for i := len(env) - 1; i >= 0; i-- {
		if old, ok := strings.CutPrefix(env[i], tag+"="); ok && old != "" {
			return append(slices.Clone(env), tag+"="+old+":"+token)
		}
	}
	return append(slices.Clone(env), tag+"="+token)
}

// Adopt returns the tree below a process that runs already. It refuses pid 0 and 1,
// negative pids, this process and its ancestors, threads and threads of the kernel.
// A process group or session is part of the tree only if a member founded it.
func Adopt(pid int, cfg Config) (*Tree, error) {
	bad := func(kind error, reason string) (*Tree, error) {
		return nil, fault(kind, "adopt", "pid", strconv.Itoa(pid), reason)
	}
	if cfg.Cgroup != "" || cfg.Session {
		return nil, fault(lockstep.ErrInvalid, "adopt", "cfg", "", "a session and a cgroup are for trees that are started")
	}
	t, err := newTree(cfg)
	if err != nil {
		return nil, err
	}
	if pid <= 1 {
		return bad(lockstep.ErrInvalid, "want the pid of a process, over 1")
	}
	var own []int // this process and its ancestors
	for at, steps := t.kernel.self(), 0; at > 0 && steps < 1000; steps++ {
		if at == pid {
			return bad(lockstep.ErrInvalid, "is this process or an ancestor of it")
		}
		own = append(own, at)
		p, ok, err := t.kernel.process(at)
		if err != nil {
			return bad(ErrFailed, err.Error())
		}
		if !ok {
			break
		}
		at = p.Parent
	}
	p, ok, err := t.kernel.process(pid)
	switch {
	case err != nil:
		return bad(ErrFailed, err.Error())
	case !ok || dead(p.State) && !summary(t.kernel.states(pid)).alive:
		return bad(lockstep.ErrUnknown, "there is no such process")
	case p.flags&kernelThread != 0:
		return bad(lockstep.ErrInvalid, "is a thread of the kernel")
	case !t.kernel.leader(pid):
		return bad(lockstep.ErrInvalid, "is a thread, not a process")
	}
	if cfg.Within != "" {
		if t.cage, err = borrow(cfg.Within, pid, own); err != nil {
			return nil, err
		}
	}
	t.adopt(p)
	return t, nil
}

func newTree(cfg Config) (*Tree, error) {
	if cfg.Poll < 0 {
		return nil, fault(lockstep.ErrInvalid, "config", "Poll", cfg.Poll.String(), "want 0 or more")
	}
	if cfg.Poll == 0 {
		cfg.Poll = 5 * time.Millisecond
	}
	k, err := newKernel()
	if err != nil {
		return nil, err
	}
	return makeTree(k, cfg), nil
}

func makeTree(k kernel, cfg Config) *Tree {
	return &Tree{
		kernel: k, cfg: cfg, turn: make(chan struct{}, 1),
		members: make(map[int]*member), groups: make(map[int]bool), sessions: make(map[int]bool), foreign: make(map[Identity]bool),
	}
}

func (t *Tree) adopt(root Process) {
	t.root = root.Identity
	t.join(root)
	// The handle is taken now, while it is sure whose the pid is.
	t.hold(t.members[root.PID])
}

// Root returns who the root is or was.
func (t *Tree) Root() Identity { return t.root }

// lock waits for the turn of a call.
func (t *Tree) lock(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return &StuckError{Op: op, Err: err}
	}
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &StuckError{Op: op, Err: ctx.Err()}
	}
}

func (t *Tree) unlock() { <-t.turn }

// Contains says whether a process is of the tree and not dead.
func (t *Tree) Contains(ctx context.Context, pid int) (bool, error) {
	if err := t.lock(ctx, "contains"); err != nil {
		return false, err
	}
	defer t.unlock()
	if err := t.scan(); err != nil {
		return false, err
	}
	m, ok := t.members[pid]
	return ok && m.alive, nil
}

// Wait waits until the root is dead or ctx ends. It neither reaps the root nor says
// anything of the rest of the tree, and it keeps no other call waiting.
func (t *Tree) Wait(ctx context.Context) error {
	var hold []handle
	if h, ok := t.kernel.open(t.root); ok {
		defer h.close()
		hold = append(hold, h)
	}
	for {
		p, ok, err := t.kernel.process(t.root.PID)
		if err != nil {
			p, ok = Process{Identity: t.root, State: unknown}, true // which does not mean that it is dead
		}
		if !ok || p.Start != t.root.Start || dead(p.State) && !summary(t.kernel.states(p.PID)).alive {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return &StuckError{Op: "wait", Members: []Process{p}, Err: err}
		}
		t.kernel.wait(hold, glance)
	}
}

// Close gives back what the Tree holds: handles, the root if it is dead and not yet
// reaped, and the cgroup. The processes go on. It is ErrConflict while a cgroup has
// processes and ErrFailed if /proc cannot be read; then it may be called again. Whoever closes a Tree uses it no more.
func (t *Tree) Close() error {
	t.turn <- struct{}{}
	defer t.unlock()
	if t.cage != nil {
		if err := t.cage.close(); err != nil {
			return err
		}
		t.cage = nil
	}
	p, ok, err := t.kernel.process(t.root.PID)
	if err != nil {
		return fault(ErrFailed, "close", "root", t.root.String(), err.Error())
	}
	if t.cmd != nil && !t.reaped && ok && p.Identity == t.root && !summary(t.kernel.states(p.PID)).alive {
		t.reap()
	}
	for _, m := range t.members { // order does not matter
		m.drop()
	}
	t.over = true
	return nil
}

// reap reaps the root, which is dead.
func (t *Tree) reap() {
	if t.cmd != nil && !t.reaped {
		_ = t.cmd.Wait() // how it died is in cmd.ProcessState
		t.reaped = true
	}
}

// ProcessState returns how the root died. It is nil until Terminate or Close has
// reaped it, and for a tree that was adopted.
func (t *Tree) ProcessState() *os.ProcessState {
	t.turn <- struct{}{}
	defer t.unlock()
	if !t.reaped {
		return nil
	}
	return t.cmd.ProcessState
}
