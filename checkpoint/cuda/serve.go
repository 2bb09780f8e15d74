package cuda

import (
	"context"
	"io"
	"os"
	"runtime"
	"sync"

	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// helperVariable marks a process as a helper.
const helperVariable = "LOCKSTEP_CUDA_HELPER"

// HelperMain is to be called first in main, by the program that NewHelper starts.
// In a process that NewHelper started it serves until its host is done with it, and
// exits; in any other it returns at once.
func HelperMain() {
	if os.Getenv(helperVariable) != "1" {
		return
	}
	// What the library starts in turn is no helper, and must not keep the pipes open:
	// their end is how either side learns that the other has gone.
	_ = os.Unsetenv(helperVariable)
	// Descriptors 3 and 4, since libraries print to the first three.
	keep(3)
	keep(4)
	in, out := os.NewFile(3, "questions"), os.NewFile(4, "answers")
	if in == nil || out == nil || serve(in, out, newAPI) != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// server answers the questions of one host.
type server struct {
	backend backend
	mu      sync.Mutex // of what follows
	out     io.Writer
	held    map[key]bool // what was locked here and not unlocked, or may have been
}

// serve answers questions until there are no more, and returns once all calls have
// ended: a call that is cut off would leave the driver's talk with the target half
// finished. The host bounds how many there are.
func serve(in io.Reader, out io.Writer, open func(library string, roots []string) backend) error {
	var hello question
	if err := receive(in, &hello); err != nil {
		return err
	}
	s := &server{backend: open(hello.Library, hello.Roots), out: out, held: make(map[key]bool)}
	if hello.Do != "hello" || hello.Version != wireVersion {
		s.say(answer{ID: hello.ID, Fault: &fault{Text: "the helper is of another version"}})
		return errText("another version")
	}
	s.say(answer{ID: hello.ID})
	bye, err := s.listen(in)
	if !bye && hello.Undo {
		s.release()
	}
	return err
}

// listen answers questions, and says whether the host has said that it is done.
func (s *server) listen(in io.Reader) (bye bool, err error) {
	var calls sync.WaitGroup
	defer calls.Wait()
	for {
		var q question
		switch err := receive(in, &q); {
		case err == io.EOF:
			return bye, nil
		case err != nil:
			return bye, err
		}
		if q.Do == "bye" {
			bye = true
			continue
		}
		calls.Go(func() { s.answer(q) })
	}
}

// release takes back to Running what a host has held that is no more, all at the same
// time, as ranks want it.
func (s *server) release() {
	d := newDriver("helper", s.backend, nil, len(s.held))
	var calls sync.WaitGroup
	for k := range s.held { // each goes by itself, so order cannot matter
		calls.Go(func() {
			_ = d.Undo(context.Background(), checkpoint.Target{PID: k.pid, Start: k.start})
		})
	}
	calls.Wait()
}

// say sends an answer. That the host is gone changes nothing for the call.
func (s *server) say(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = send(s.out, a)
}

// answer makes the call that is asked for.
func (s *server) answer(q question) {
	runtime.LockOSThread() // the call may take minutes
	defer runtime.UnlockOSThread()
	a := answer{ID: q.ID}
	switch q.Do {
	case "find":
		f := s.backend.find()
		a.Found = &f
	case "read":
		n, f := s.backend.read(q.PID)
		a.State, a.Fault = n, pack(f)
	default:
		a.Fault = &fault{Text: "unknown question"}
		for v, word := range actions {
			if word != "" && word == q.Do {
				a.Fault = pack(s.act(request{do: verb(v), pid: q.PID, start: q.Start, ms: q.MS, pairs: q.Pairs}))
			}
		}
	}
	s.say(a)
}

// act makes a call, and keeps note of what is held: from before a lock until an
// unlock has worked.
func (s *server) act(r request) *failure {
	k := key{r.pid, r.start}
	if r.do == lock {
		s.note(k, true)
	}
	f := s.backend.act(r)
	if r.do == unlock && f == nil {
		s.note(k, false)
	}
	return f
}

func (s *server) note(k key, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if held {
		s.held[k] = true
	} else {
		delete(s.held, k)
	}
}
