package proctree

import (
	"os/exec"
	"time"
)

// order is a signal, in words that every system can compile.
type order int

const (
	stop order = iota + 1
	cont
	term
	kill
)

// kernel is what a Tree asks of the operating system. Tests put another in its
// place.
type kernel interface {
	self() int
	table() ([]Process, error)                       // all processes, by pid
	process(pid int) (Process, bool, error)          // one of them; false if it is gone or hidden, an error if that is not known
	leader(pid int) bool                             // whether pid is a process, not one of its threads
	states(pid int) []byte                           // the states of its threads; none if it is gone, unknown where one cannot be read
	tagged(pid int, token string) (named, sure bool) // whether its environment names the tree, and whether that is settled
	open(id Identity) (handle, bool)                 // false if it is gone, its pid is another's, or neither is known
	group(group int, what order) error               // signals a process group; nil if it is gone
	reap(pid int)                                    // reaps pid if it is a dead child of this process
	wait(handles []handle, d time.Duration)          // until one of them exits, d at the most
	prepare(cmd *exec.Cmd, session bool, cage *cage) error
}

// handle is a hold on one process that no reuse of its pid can move.
type handle interface {
	signal(what order) error // nil if the process is gone
	close()
}
