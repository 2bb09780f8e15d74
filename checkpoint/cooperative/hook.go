package cooperative

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// HookConfig says what a hook does for which rank.
type HookConfig struct {
	Socket string        // Socket is the path of the host's socket; "" means that EnvSocket and EnvRank say where and who.
	Rank   int           // Rank is the rank; it counts only with Socket.
	Retry  time.Duration // Retry is the time between two trials to connect, and to connect anew once the host has gone; 0 means 1s.

	// Save writes the state of the rank to a new file at path, and tells progress, if it
	// likes, how many bytes of how many it has written; total 0 if it does not know. It is
	// called by Next, in the loop. nil means that the job cannot save.
	Save func(path string, progress func(done, total uint64)) error `json:"-"`

	// Committed is told of each epoch that is durable as a whole; nil means nobody.
	Committed func(epoch checkpoint.Epoch) `json:"-"`
}

// Hook is the job's side: the loop calls Next before each step. Make one with Dial. Only
// Notice may be called from another goroutine.
type Hook struct {
	cfg    HookConfig
	conn   *coop.Conn // nil while there is no host
	tried  time.Time  // when it was last tried to connect
	signal atomic.Int64

	step   uint64
	due    *stopAt // nil if it was not asked to stop
	held   bool
	leave  bool
	until  time.Duration // when it goes on by itself
	stored *saved        // what was saved last
}

// stopAt is a request to stand still.
type stopAt struct {
	serial, step uint64
	by, hold     time.Duration
}

// saved is what a hook repeats when it is asked to save the same again.
type saved struct {
	epoch uint64
	place string
	step  uint64
	bytes uint64
	sum   string
	took  time.Duration
}

// Dial connects to the host, trying again while nobody listens there, until ctx ends.
func Dial(ctx context.Context, cfg HookConfig) (*Hook, error) {
	if cfg.Socket == "" {
		cfg.Socket = os.Getenv(EnvSocket)
		text, field := os.Getenv(EnvRank), EnvRank
		if text == "" {
			text, field = os.Getenv("RANK"), "RANK"
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fault(lockstep.ErrInvalid, "dial", field, strconv.Quote(text), "want a rank in the environment")
		}
		cfg.Rank = n
	}
	if cfg.Socket == "" || cfg.Rank < 0 {
		return nil, fault(lockstep.ErrInvalid, "dial", "Rank", strconv.Itoa(cfg.Rank), "want a socket, and a rank from 0")
	}
	if cfg.Retry <= 0 {
		cfg.Retry = time.Second
	}
	h := &Hook{cfg: cfg}
	for {
		err := h.connect(ctx)
		switch {
		case err == nil:
			return h, nil
		case errors.Is(err, ErrRefused), errors.Is(err, ErrProtocol):
			return nil, err
		case ctx.Err() != nil:
			return nil, errors.Join(err, ctx.Err())
		}
		pause(ctx, min(cfg.Retry, 50*time.Millisecond))
	}
}

func (h *Hook) connect(ctx context.Context) error {
	h.tried = time.Now()
	c, err := coop.Dial(ctx, h.cfg.Socket, service, strconv.Itoa(h.cfg.Rank))
	if err == nil {
		h.conn = c
	}
	return err
}

// Close ends the connection. The host is left to find that out; the rank runs on.
func (h *Hook) Close() error {
	if h.conn == nil {
		return nil
	}
	return h.conn.Close()
}

// Notice says that this process was sent a signal and asks to be saved: the host is told at
// the next step and stops all ranks together. It is for a goroutine that receives from
// signal.Notify; nothing is saved here.
func (h *Hook) Notice(sig syscall.Signal) { h.signal.Store(int64(sig)) }

// Next is called before each step, with the number of the step that is about to run. It
// returns nil when that may be run, and ErrLeave when the loop is to be left; it blocks
// while the host holds the rank, and the save takes place here. Where the host has gone,
// or has not been heard of for the time that it gave, the rank goes on.
//
// The end of ctx is returned as it is; then the step must not be run either.
func (h *Hook) Next(ctx context.Context, step uint64) error {
	h.step = step
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if h.leave {
			return ErrLeave
		}
		h.reconnect(ctx)
		if h.conn == nil {
			return nil
		}
		if err := h.once(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			h.lost()
			continue
		}
		if !h.held && !h.leave {
			return nil
		}
	}
}

// reconnect tries once to reach a host that is not there, unless that was done just now.
func (h *Hook) reconnect(ctx context.Context) {
	if h.conn != nil || time.Since(h.tried) < h.cfg.Retry {
		return
	}
	within, cancel := context.WithTimeout(ctx, greetTime)
	defer cancel()
	_ = h.connect(within) // without a host the job runs as it would without a hook
}

// lost lets the rank go: its host does not see it any more.
func (h *Hook) lost() {
	_ = h.conn.Close()
	h.conn, h.due, h.held = nil, nil, false
}

// once takes in what has arrived, and waits for one message if the rank stands still.
func (h *Hook) once(ctx context.Context) error {
	if sig := h.signal.Swap(0); sig > 0 {
		if err := h.say(coop.Numbers("notice", uint64(sig))); err != nil {
			return err
		}
	}
	for {
		m, ok, err := h.conn.TryReceive()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		if err := h.take(m); err != nil {
			return err
		}
	}
	if err := h.arrive(); err != nil || !h.held || h.leave {
		return err
	}
	return h.stand(ctx)
}

// arrive says ready if this is where the rank is to stop.
func (h *Hook) arrive() error {
	d := h.due
	if d == nil || h.held {
		return nil
	}
	now, err := coop.Monotonic()
	switch {
	case err != nil:
		return err
	case now > d.by:
		h.due = nil
		return h.refuse(d.serial, wordLate)
	case d.step != 0 && h.step > d.step:
		h.due = nil
		return h.refuse(d.serial, wordPassed)
	case d.step != 0 && h.step < d.step:
		return nil
	}
	h.due, h.held, h.until = nil, true, now+d.hold
	return h.say(coop.Numbers("ready", d.serial, h.step))
}

// stand waits for a message. If none comes for too long the rank goes on.
func (h *Hook) stand(ctx context.Context) error {
	now, err := coop.Monotonic()
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, max(h.until-now, 0))
	defer cancel()
	woken := make(chan struct{})
	c := h.conn
	stop := context.AfterFunc(within, func() {
		c.Wake()
		close(woken)
	})
	m, err := c.Receive()
	if !stop() {
		<-woken
		c.Rest()
	}
	switch {
	case err == nil:
		return h.take(m)
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, os.ErrDeadlineExceeded):
		h.held = false
		return h.say(coop.Numbers("resumed", 0, h.step))
	}
	return err
}

// take does what a message says. Verbs of a later version are passed over.
func (h *Hook) take(m coop.Message) error {
	want, known := map[string]int{"step": 1, "prepare": 4, "hold": 2, "snapshot": 2, "commit": 2, "abort": 2, "resume": 1, "terminate": 1}[m.Verb]
	if !known {
		return nil
	}
	list, ok := m.Uints(want)
	if !ok || m.Verb == "snapshot" && len(m.Args) < 3 {
		return fault(ErrProtocol, "next", m.Verb, "", "is malformed")
	}
	serial := list[0]
	switch m.Verb {
	case "step":
		return h.say(coop.Numbers("step", serial, h.step))
	case "hold":
		h.until = max(h.until, time.Duration(list[1]))
		return nil
	case "prepare":
		return h.prepare(stopAt{serial: serial, step: list[1], by: time.Duration(list[2]), hold: time.Duration(list[3])})
	case "snapshot":
		return h.snapshot(serial, list[1], m.Args[2])
	case "commit":
		if h.cfg.Committed != nil {
			h.cfg.Committed(checkpoint.Epoch(list[1]))
		}
		return h.say(coop.Numbers("done", serial))
	case "terminate":
		h.due, h.held, h.leave = nil, false, true
		return h.say(coop.Numbers("leaving", serial, h.step))
	}
	if m.Verb == "abort" && h.stored != nil && h.stored.epoch == list[1] {
		h.stored = nil
	}
	h.due, h.held = nil, false
	return h.say(coop.Numbers("resumed", serial, h.step))
}

// prepare notes where to stop. One who stands there already says so again.
func (h *Hook) prepare(d stopAt) error {
	if !h.held {
		h.due = &d
		return nil
	}
	if d.step != 0 && d.step != h.step {
		return h.refuse(d.serial, wordState)
	}
	return h.say(coop.Numbers("ready", d.serial, h.step))
}

func (h *Hook) refuse(serial uint64, word string) error {
	return h.say(coop.Message{Verb: "refuse", Args: []string{strconv.FormatUint(serial, 10), word}})
}

func (h *Hook) say(m coop.Message) error { return h.conn.Send(m, sendTime) }
