package cuda

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// HelperConfig configures a Driver that calls the driver's library in another
// process. The zero value is valid for a program whose main calls HelperMain.
type HelperConfig struct {
	// Path is the program to start; its main calls HelperMain first. "" means the
	// program of this process.
	Path string

	// Args are its arguments; nil means none.
	Args []string

	// UndoOnLoss has the helper take every target that was locked through it back to
	// Running if this process ends without Close. It is not for hosts that give the
	// devices of suspended targets to others: resuming would find them taken.
	UndoOnLoss bool

	// Library, Roots, Workers and Facts are as in Config.
	Library string
	Roots   []string // Roots are as in Config; nil means none.
	Workers int      // Workers is as in Config.
	Facts   Facts    `json:"-"` // Facts is as in Config; it is asked in this process.
}

// Validate reports all that is wrong with c.
func (c HelperConfig) Validate() error {
	var errs []error
	if strings.ContainsRune(c.Path, 0) {
		errs = append(errs, invalid("new", "Path", strconv.Quote(c.Path), "holds a zero byte"))
	}
	for i, a := range c.Args {
		if strings.ContainsRune(a, 0) {
			errs = append(errs, invalid("new", "Args["+strconv.Itoa(i)+"]", strconv.Quote(a), "holds a zero byte"))
		}
	}
	return errors.Join(append(errs, Config{Library: c.Library, Roots: c.Roots, Workers: c.Workers}.Validate())...)
}

// NewHelper makes a Driver that calls libcuda.so.1 in a process that it starts at the
// first call and again whenever that has died. A fault inside the library then ends
// that process and not this one: the calls that were in it fail with ErrDriver, and
// what became of the targets is read by the next. The process ends with Close, or once
// this process has ended and its calls have returned; it is never killed.
func NewHelper(c HelperConfig) (*Driver, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c.Args, c.Roots = append([]string(nil), c.Args...), append([]string(nil), c.Roots...)
	return newDriver("cuda-helper", &helper{config: c}, c.Facts, c.Workers), nil
}

// helper is the process, or the next one.
type helper struct {
	config HelperConfig
	mu     sync.Mutex
	child  *child // nil before the first call and after one has died
	closed bool
	starts int // how many there were
}

// child is one helper process.
type child struct {
	cmd     *exec.Cmd
	in      *os.File // questions
	out     *os.File // answers
	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan answer
	dead    chan struct{} // closed once it has exited
	why     error         // how it ended; set before dead is closed
}

// start starts a helper and greets it.
func (h *helper) start() (*child, error) {
	path := h.config.Path
	if path == "" {
		var err error
		if path, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	theirs, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, replies, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirs.Close(), in.Close())
	}
	cmd := exec.Command(path, h.config.Args...)
	cmd.Env = append(os.Environ(), helperVariable+"=1")
	cmd.ExtraFiles = []*os.File{theirs, replies}
	apart(cmd)
	err = cmd.Start()
	_, _ = theirs.Close(), replies.Close() // the child has its own
	if err != nil {
		return nil, errors.Join(err, in.Close(), out.Close())
	}
	// From here on nothing but the end of its questions ends the child.
	c := &child{cmd: cmd, in: in, out: out, waiting: make(map[uint64]chan answer), dead: make(chan struct{})}
	go c.listen()
	a, err := c.ask(question{Do: "hello", Version: wireVersion, Library: h.config.Library, Roots: h.config.Roots, Undo: h.config.UndoOnLoss})
	if err == nil && a.Fault != nil {
		err = errText(a.Fault.Text)
	}
	if err != nil {
		_ = c.in.Close()
		return nil, errText("the helper ", path, " does not serve, does its main call HelperMain? ", err.Error())
	}
	return c, nil
}

// listen hands answers to those who wait, until the child ends.
func (c *child) listen() {
	for {
		var a answer
		if err := receive(c.out, &a); err != nil {
			break // it has ended, or writes nonsense
		}
		c.mu.Lock()
		who := c.waiting[a.ID]
		delete(c.waiting, a.ID)
		c.mu.Unlock()
		if who != nil {
			who <- a // it has room for one
		}
	}
	_ = c.in.Close() // after nonsense it is asked nothing more
	_, _ = io.Copy(io.Discard, c.out)
	err := c.cmd.Wait()
	_ = c.out.Close()
	if err == nil {
		err = errText("it exited")
	}
	c.mu.Lock()
	c.why = err
	c.mu.Unlock()
	close(c.dead)
}

// ask sends a question and waits for its answer, or for the child's end.
func (c *child) ask(q question) (answer, error) {
	reply := make(chan answer, 1)
	// The lock is held while writing, so that messages do not mix. The child reads all
	// the time, so this does not wait for any call.
	c.mu.Lock()
	c.next++
	q.ID = c.next
	c.waiting[q.ID] = reply
	err := send(c.in, q)
	c.mu.Unlock()
	if err != nil {
		<-c.dead // a pipe that takes nothing has nobody at its end
	}
	select {
	case a := <-reply:
		return a, nil
	case <-c.dead:
	}
	select {
	case a := <-reply: // it was the last that it said
		return a, nil
	default:
		return answer{}, errText("the helper has ended: ", c.why.Error())
	}
}

// alive returns the child, and starts one if there is none.
func (h *helper) alive() (*child, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.child != nil {
		select {
		case <-h.child.dead:
			h.child = nil
		default:
			return h.child, nil
		}
	}
	if h.closed {
		return nil, errText("it was closed")
	}
	c, err := h.start()
	if err != nil {
		return nil, err
	}
	h.child = c
	h.starts++
	return c, nil
}

// call asks the helper. After its death the next call starts another.
func (h *helper) call(name string, q question) (answer, *failure) {
	c, err := h.alive()
	if err != nil {
		return answer{}, &failure{kind: checkpoint.ErrUnsupported, call: name, err: err}
	}
	a, err := c.ask(q)
	if err != nil {
		return answer{}, &failure{kind: checkpoint.ErrDriver, call: name, err: err}
	}
	return a, unpack(a.Fault)
}

// find implements backend.
func (h *helper) find() found {
	a, f := h.call("find", question{Do: "find"})
	switch {
	case f != nil && f.err != nil:
		return found{Absent: f.err.Error(), Missing: wanted[:]}
	case f != nil || a.Found == nil:
		return found{Absent: "the helper does not say", Missing: wanted[:]}
	}
	return *a.Found
}

// read implements backend.
func (h *helper) read(pid int) (int, *failure) {
	a, f := h.call(getState, question{Do: "read", PID: pid})
	return a.State, f
}

// act implements backend.
func (h *helper) act(r request) *failure {
	_, f := h.call(functions[r.do], question{Do: actions[r.do], PID: r.pid, Start: r.start, MS: r.ms, Pairs: r.pairs})
	return f
}

// close implements backend: the helper ends once it has nothing more to read.
func (h *helper) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.child == nil {
		return nil
	}
	_ = send(h.child.in, question{Do: "bye"}) // nobody asks any more, so nobody else writes
	_ = h.child.in.Close()
	<-h.child.dead
	h.child = nil
	return nil
}
