package coop

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Peer is who has connected, as the kernel knows it.
type Peer struct {
	PID int // PID is that of the process that connected, 0 if it is in another pid namespace.
	UID int // UID is its effective user.
	GID int // GID is its effective group.
}

// Conn is a connection between a supervisor and a hook.
type Conn struct {
	c    *net.UnixConn
	peer Peer
	buf  [MaxLine]byte
	n    int // bytes in buf
}

// Listener waits for hooks.
type Listener struct{ l *net.UnixListener }

// Listen makes a socket at path. It removes a socket that nobody listens to any more,
// and is ErrConflict for anything else that is there.
func Listen(path string) (*Listener, error) {
	bad := func(kind error, reason string) (*Listener, error) {
		return nil, &lockstep.Error{Kind: kind, Op: "coop: listen", Field: "path", Value: path, Reason: reason}
	}
	if !supported {
		return bad(ErrUnsupported, "needs Linux")
	}
	if path == "" || len(path) > 107 || path[0] == '@' {
		return bad(lockstep.ErrInvalid, "want a path of 1 to 107 bytes")
	}
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return bad(lockstep.ErrConflict, "is there and no socket")
		}
		if c, err := net.Dial("unix", path); err == nil {
			_ = c.Close()
			return bad(lockstep.ErrConflict, "somebody listens to it")
		}
		if err := os.Remove(path); err != nil {
			return bad(lockstep.ErrConflict, err.Error())
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return bad(lockstep.ErrConflict, err.Error())
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return bad(lockstep.ErrConflict, err.Error())
	}
	return &Listener{l: l}, nil
}

// Accept waits for the next connection. It is net.ErrClosed after Close.
func (l *Listener) Accept() (*Conn, error) {
	c, err := l.l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	p, err := peer(c)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return &Conn{c: c, peer: p}, nil
}

// Close ends Accept and removes the socket.
func (l *Listener) Close() error { return l.l.Close() }

// Peer returns who has connected.
func (c *Conn) Peer() Peer { return c.peer }

// Greet does the supervisor's part of the first lines, within timeout. admit is asked
// whether to take the hook of that name, and returns "" or a word that says why not.
func (c *Conn) Greet(service string, timeout time.Duration, admit func(name string, p Peer) string) (string, error) {
	_ = c.c.SetDeadline(time.Now().Add(timeout))
	m, err := c.Receive()
	if err != nil {
		return "", err
	}
	why := ""
	switch {
	case m.Verb != "hello" || len(m.Args) < 3:
		why = "hello"
	case m.Args[0] != strconv.Itoa(Version):
		why = "version"
	case m.Args[1] != service:
		why = "service"
	default:
		why = admit(m.Args[2], c.peer)
	}
	if why != "" {
		_ = c.write(Message{Verb: "refuse", Args: []string{why}})
		return "", &lockstep.Error{Kind: ErrRefused, Op: "coop: greet", Field: "pid", Value: strconv.Itoa(c.peer.PID), Reason: why}
	}
	now, err := Monotonic()
	if err != nil {
		return "", err
	}
	if err := c.write(Numbers("welcome", Version, uint64(now))); err != nil {
		return "", err
	}
	return m.Args[2], c.c.SetDeadline(time.Time{})
}

// Dial connects as the hook of that name. It is ErrRefused if the supervisor does not
// want it, or if this process's clock is behind the supervisor's.
func Dial(ctx context.Context, path, service, name string) (*Conn, error) {
	var d net.Dialer
	raw, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	c := &Conn{c: raw.(*net.UnixConn)}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if err := c.hello(service, name); err != nil {
		_ = c.Close()
		return nil, errors.Join(err, ctx.Err())
	}
	return c, nil
}

func (c *Conn) hello(service, name string) error {
	bad := func(kind error, reason string) error {
		return &lockstep.Error{Kind: kind, Op: "coop: dial", Field: "name", Value: name, Reason: reason}
	}
	failed := c.write(Message{Verb: "hello", Args: []string{strconv.Itoa(Version), service, name}})
	m, err := c.Receive() // even so, since whoever is refused at once may find the connection closed
	if err != nil {
		return errors.Join(failed, err)
	}
	if m.Verb == "refuse" && len(m.Args) > 0 {
		return bad(ErrRefused, m.Args[0])
	}
	args, ok := m.Uints(2)
	if m.Verb != "welcome" || !ok || args[0] != Version {
		return bad(ErrProtocol, "the answer is no welcome")
	}
	now, err := Monotonic()
	if err != nil {
		return err
	}
	if now < time.Duration(args[1]) {
		return bad(ErrRefused, "the clock is behind the supervisor's")
	}
	return nil
}

// Send sends a message, and fails rather than wait longer than timeout for a peer that
// does not read. A part of the line may have gone out then, so the connection is of no
// more use.
func (c *Conn) Send(m Message, timeout time.Duration) error {
	if err := c.c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	return c.write(m)
}

func (c *Conn) write(m Message) error {
	line, err := m.Line()
	if err != nil {
		return err
	}
	_, err = c.c.Write([]byte(line))
	return err
}

// Receive waits for the next message.
func (c *Conn) Receive() (Message, error) {
	for {
		if m, ok, err := c.next(); ok || err != nil {
			return m, err
		}
		n, err := c.c.Read(c.buf[c.n:])
		c.n += n
		if err != nil {
			return Message{}, err
		}
	}
}

// TryReceive returns the next message if it has arrived whole.
func (c *Conn) TryReceive() (Message, bool, error) {
	for {
		if m, ok, err := c.next(); ok || err != nil {
			return m, ok, err
		}
		n, err := readNow(c.c, c.buf[c.n:])
		if err != nil {
			return Message{}, false, err
		}
		if n == 0 {
			return Message{}, false, nil
		}
		c.n += n
	}
}

// Wake makes a Receive that waits return an error that is os.ErrDeadlineExceeded, until
// Rest.
func (c *Conn) Wake() { _ = c.c.SetReadDeadline(time.Unix(1, 0)) }

// Rest undoes Wake.
func (c *Conn) Rest() { _ = c.c.SetReadDeadline(time.Time{}) }

// Drain has Receive return what has arrived by now, and then io.EOF. It is for a peer
// that has died, where another process has a copy of its end.
func (c *Conn) Drain() { _ = c.c.CloseRead() }

// Close ends the connection.
func (c *Conn) Close() error { return c.c.Close() }

// next takes a message out of the buffer.
func (c *Conn) next() (Message, bool, error) {
	at := bytes.IndexByte(c.buf[:c.n], '\n')
	if at < 0 {
		if c.n == len(c.buf) {
			return Message{}, false, &lockstep.Error{Kind: ErrProtocol, Op: "coop: receive", Field: "line", Reason: "is too long"}
		}
		return Message{}, false, nil
	}
	m, err := Parse(string(c.buf[:at]))
	c.n = copy(c.buf[:], c.buf[at+1:c.n])
	return m, err == nil, err
}
