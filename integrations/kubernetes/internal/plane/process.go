package plane

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// parent starts processes, all from one thread that lives as long as they may:
// the kernel ends them when the thread that started them ends, not the process.
type parent struct {
	work chan func()
	done chan struct{}
}

func newParent() *parent {
	p := &parent{work: make(chan func()), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		for f := range p.work {
			f()
		}
	}()
	return p
}

func (p *parent) close() {
	if p.work != nil {
		close(p.work)
		<-p.done
		p.work = nil
	}
}

// process is one child.
type process struct {
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how, once done is closed
}

// start starts a program whose output goes to a log in dir.
func (p *parent) start(name, dir, path string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("plane: %w", err)
	}
	defer log.Close() // the child has its own
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	p.work <- func() { started <- cmd.Start() }
	if err := <-started; err != nil {
		return nil, fmt.Errorf("plane: %s: %w", name, err)
	}
	proc := &process{name: name, cmd: cmd, done: make(chan struct{})}
	go func() {
		proc.err = cmd.Wait()
		close(proc.done)
	}()
	return proc, nil
}

// kill ends the process and waits until it is gone.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("plane: %s: %w", p.name, err)
	}
	<-p.done
	return nil
}
