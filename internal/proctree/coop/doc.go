// Package coop carries words between a supervisor and the hook inside a job, over a Unix socket: for hpo/gate, and
// for whoever else works with the job's help.
//
// # Model
//
// A message is one line of printable ASCII: a verb and up to 8 arguments, split by one space each, and a newline;
// 256 bytes at the most. Verbs are lower-case letters.
//
// The job's hook connects and says
//
//	hello 1 SERVICE NAME
//
// with the version of the protocol, the service it wants ("gate") and who it is. The answer is one of
//
//	welcome 1 NOW
//	refuse WORD
//
// where NOW is the supervisor's reading of CLOCK_MONOTONIC in nanoseconds, taken before the line was sent. A hook
// whose own clock is behind NOW must not go on: it would take times of the supervisor for later than they are,
// which happens between time namespaces. A clock that is ahead only ends things early.
//
// Then both sides send what the service defines. Verbs that one does not know are passed over, so that a service
// can grow within a version. A line that is no message ends the connection, and so does anything in place of the
// first line.
//
// # Usage
//
//	l, err := coop.Listen(path)
//	c, err := l.Accept()
//	name, err := c.Greet("gate", timeout, admit)
//	m, err := c.Receive()
//
// # Order of decision
//
// None; messages of a connection keep their order.
//
// # Errors
//
// [ErrProtocol] for what is no message or not the one that is due, [ErrRefused] for a refusal, [ErrUnsupported]
// where the system has no peer credentials, and those of package lockstep. Errors of the network come as they are;
// io.EOF says that the other side has gone.
//
// # Concurrency
//
// One goroutine may receive while another sends. Close may be called at any time and wakes both.
//
// # Cost
//
// Two system calls a message; a connection holds one buffer of 256 bytes.
//
// # Limits
//
// Linux only. The socket is made for its owner alone (mode 0600), and the kernel tells who has connected
// (SO_PEERCRED); whom to admit is the service's to say. Nothing is encrypted, as nothing leaves the host. A path
// is at most 107 bytes long.
package coop
