package checkpoint

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

const (
	maxLine   = 1 << 20         // bytes of a message, as JSON
	writeTime = 5 * time.Second // how long a peer may take to take one
	redial    = time.Second / 2 // between two tries to reach the leader
	lineEnd   = byte('\n')      // ends a message
)

// Listen returns the leader's end of a Transport over sockets: ranks Dial in,
// and each is reached on the connection that it last spoke on. A message is one
// line of JSON. The listener decides who may connect: use a Unix socket in a
// directory of mode 0700, or one of crypto/tls. It is closed when ctx ends.
func Listen(ctx context.Context, l net.Listener) Transport {
	s := &server{inbox: make(chan *Message, crowd), peers: map[int]net.Conn{}}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go s.accept(ctx, l)
	return s
}

// server is the leader's end.
type server struct {
	inbox chan *Message
	mu    sync.Mutex
	peers map[int]net.Conn // by rank, where it last spoke
}

func (s *server) accept(ctx context.Context, l net.Listener) {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil { // such as no file descriptor left: it passes
			select {
			case <-time.After(redial):
			case <-ctx.Done():
			}
			continue
		}
		go s.serve(ctx, conn)
	}
}

// serve takes in what one peer says, until it has ended.
func (s *server) serve(ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	readLines(conn, func(m *Message) {
		s.mu.Lock()
		s.peers[m.Rank] = conn
		s.mu.Unlock()
		if m.Kind != msgHello {
			_ = put(s.inbox, m) // a full box loses messages, as a network does
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank, c := range s.peers { // each alone: order cannot matter
		if c == conn {
			delete(s.peers, rank)
		}
	}
}

// msgHello is said by a rank when it has connected, so that it can be reached.
const msgHello = "hello"

func (s *server) Send(m *Message) error {
	s.mu.Lock()
	conn := s.peers[m.Rank]
	s.mu.Unlock()
	if conn == nil {
		return errAway
	}
	return writeLine(conn, m)
}

// errAway is why a message was lost.
var errAway = errors.New("checkpoint: not connected")

func (s *server) Receive(ctx context.Context) (*Message, error) {
	return (&end{inbox: s.inbox}).Receive(ctx)
}

// Dial returns a rank's end of a Transport over sockets. It connects with dial,
// and again whenever the connection ends, until ctx does.
func Dial(ctx context.Context, job lockstep.JobID, rank int, dial func(ctx context.Context) (net.Conn, error)) Transport {
	c := &client{inbox: make(chan *Message, room), hello: Message{Kind: msgHello, Job: job, Rank: rank}}
	go c.keep(ctx, dial)
	return c
}

// client is a rank's end.
type client struct {
	inbox chan *Message
	hello Message
	mu    sync.Mutex
	conn  net.Conn
}

func (c *client) keep(ctx context.Context, dial func(ctx context.Context) (net.Conn, error)) {
	for ctx.Err() == nil {
		conn, err := dial(ctx)
		if err != nil {
			select {
			case <-time.After(redial):
			case <-ctx.Done():
			}
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		if writeLine(conn, &c.hello) == nil {
			c.set(conn)
			readLines(conn, func(m *Message) { _ = put(c.inbox, m) })
			c.set(nil)
		}
		stop()
		_ = conn.Close()
	}
}

func (c *client) set(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
}

func (c *client) Send(m *Message) error {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn == nil {
		return errAway
	}
	return writeLine(conn, m)
}

func (c *client) Receive(ctx context.Context) (*Message, error) {
	return (&end{inbox: c.inbox}).Receive(ctx)
}

// writeLine sends m in one write, which net.Conn does not mix with others.
func writeLine(conn net.Conn, m *Message) error {
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_ = conn.SetWriteDeadline(time.Now().Add(writeTime))
	_, err = conn.Write(append(data, lineEnd))
	if err != nil {
		_ = conn.Close() // a line may have been cut; the rank dials again
	}
	return err
}

// readLines passes messages on until the connection ends or says what is none.
func readLines(conn net.Conn, take func(m *Message)) {
	defer func() { _ = conn.Close() }()
	in := bufio.NewScanner(conn)
	in.Buffer(make([]byte, 0, 4096), maxLine)
	for in.Scan() {
		var m Message
		if json.Unmarshal(in.Bytes(), &m) != nil || m.Rank < 0 || m.Rank >= MaxRanks {
			return
		}
		take(&m)
	}
}
