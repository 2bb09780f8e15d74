package cudatest

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// Target is a real process that the library knows.
type Target struct {
	checkpoint.Target     // Target is its identity.
	TID               int // TID is one of its threads, not the first.

	fake  *Fake
	cmd   *exec.Cmd
	stdin io.Closer
}

// Start starts a process that has loaded the library, is running, and has a GiB of
// memory on the first device. It is ended when the test is.
func (f *Fake) Start(t testing.TB) *Target {
	t.Helper()
	return f.start(t, f.Library(), true)
}

// StartPlain starts a process that has nothing to do with CUDA.
func (f *Fake) StartPlain(t testing.TB) *Target {
	t.Helper()
	return f.start(t, "", false)
}

func (f *Fake) start(t testing.TB, library string, known bool) *Target {
	t.Helper()
	p := &Target{fake: f, cmd: exec.Command(f.dir+"/target", library)}
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(p.Kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &p.PID, &p.TID)
	require.NoError(t, err)
	p.Start = started(t, p.PID)
	if known {
		f.locked(func() { p.register(t) })
	}
	return p
}

// register enters the process; the state is locked.
func (p *Target) register(t testing.TB) {
	for i := range p.fake.s.procs {
		if e := &p.fake.s.procs[i]; e.pid == 0 {
			*e = process{pid: int32(p.PID), held: [devices]int64{1 << 30}}
			p.fake.s.devices[0].room -= 1 << 30
			return
		}
	}
	require.Fail(t, "the fake has no room for a process")
}

// entry calls do with the process's entry, locked.
func (p *Target) entry(do func(e *process)) {
	p.fake.locked(func() {
		for i := range p.fake.s.procs {
			if e := &p.fake.s.procs[i]; e.pid == int32(p.PID) {
				do(e)
			}
		}
	})
}

// State returns the library's number for the state.
func (p *Target) State() (n int32) {
	p.entry(func(e *process) { n = e.state })
	return n
}

// SetState changes the state as a stranger would, and counts it.
func (p *Target) SetState(n int32) {
	p.entry(func(e *process) {
		if e.state == Running && n != Running {
			e.locks++
		}
		if e.state != Running && n == Running {
			e.unlocks++
		}
		e.state = n
	})
}

// Locks returns how often the process left Running, and how often it came back.
func (p *Target) Locks() (locks, unlocks int) {
	p.entry(func(e *process) { locks, unlocks = int(e.locks), int(e.unlocks) })
	return locks, unlocks
}

// SetJob makes the process a rank of a job whose ranks wait for each other, over 0.
func (p *Target) SetJob(n int32) { p.entry(func(e *process) { e.job = n }) }

// SetHung says whether the process's work never ends, so that nothing drains.
func (p *Target) SetHung(hung bool) {
	p.entry(func(e *process) {
		e.hung = 0
		if hung {
			e.hung = 1
		}
	})
}

// SetHeld says how much memory the process has on a device.
func (p *Target) SetHeld(device int, bytes int64) {
	p.entry(func(e *process) { e.held[device] = bytes })
}

// Held returns how much memory the process has, or had, on a device.
func (p *Target) Held(device int) (n int64) {
	p.entry(func(e *process) { n = e.held[device] })
	return n
}

// Poisoned says whether a failure of Restore has made all others fail.
func (p *Target) Poisoned() (poisoned bool) {
	p.entry(func(e *process) { poisoned = e.poisoned != 0 })
	return poisoned
}

// Kill ends the process and returns once it is gone, and its memory with it.
func (p *Target) Kill() {
	if p.cmd.ProcessState != nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.entry(func(e *process) {
		for i, n := range e.held {
			if e.state != Checkpointed {
				p.fake.s.devices[i].room += n
			}
		}
		*e = process{}
	})
}

// KillOnly ends the process and leaves it a zombie.
func (p *Target) KillOnly(t testing.TB) {
	t.Helper()
	_ = p.cmd.Process.Kill()
	Await(t, "a zombie", func() bool { return stateOf(p.PID) == "Z" })
}

// Stop sends SIGSTOP and returns once the process has stopped; Continue ends that.
func (p *Target) Stop(t testing.TB) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(stopSignal))
	Await(t, "a stopped process", func() bool { return stateOf(p.PID) == "T" })
}

// Continue sends SIGCONT.
func (p *Target) Continue(t testing.TB) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(continueSignal))
	Await(t, "a process that runs", func() bool { return stateOf(p.PID) != "T" })
}
