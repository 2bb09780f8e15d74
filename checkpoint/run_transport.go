package checkpoint

import (
	"context"
	"errors"
	"sync"
)

// room is how many messages wait at a rank's end before further ones are lost,
// and crowd how many at the leader's, whom all ranks answer at once.
const (
	room  = 64
	crowd = 1 << 14
)

// errFull is why a message was lost.
var errFull = errors.New("checkpoint: the receiver does not keep up")

// Hub is a Transport in memory for a job whose ranks are all in this program. It
// is safe for concurrent use.
type Hub struct {
	mu    sync.Mutex
	up    chan *Message
	ranks map[int]chan *Message
}

// NewHub returns a hub without ranks.
func NewHub() *Hub { return &Hub{up: make(chan *Message, crowd), ranks: map[int]chan *Message{}} }

// Leader returns the leader's end.
func (h *Hub) Leader() Transport { return &end{send: h.down, inbox: h.up} }

// Rank returns the end of a rank; each call returns the same one.
func (h *Hub) Rank(rank int) Transport {
	return &end{send: func(m *Message) error { return put(h.up, m) }, inbox: h.box(rank)}
}

func (h *Hub) box(rank int) chan *Message {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ranks[rank] == nil {
		h.ranks[rank] = make(chan *Message, room)
	}
	return h.ranks[rank]
}

func (h *Hub) down(m *Message) error { return put(h.box(m.Rank), m) }

func put(box chan *Message, m *Message) error {
	c := *m
	select {
	case box <- &c:
		return nil
	default:
		return errFull
	}
}

// end is one end of a Hub.
type end struct {
	send  func(m *Message) error
	inbox chan *Message
}

func (e *end) Send(m *Message) error { return e.send(m) }

func (e *end) Receive(ctx context.Context) (*Message, error) {
	select {
	case m := <-e.inbox:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
