package gate

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// HookConfig says which gate a hook is for. The zero HookConfig takes it from the
// environment that a Gate gives its trial.
type HookConfig struct {
	Socket string        // Socket is the path of the gate's socket; "" means what the environment says.
	Name   string        // Name is the trial; "" means what the environment says.
	Retry  time.Duration // Retry is the time between two trials to connect; 0 means 10ms.
	Settle func() error  `json:"-"` // Settle waits for the device to be done with all that was queued; nil means that there is nothing to wait for. It is called before the hook says that the trial is quiet.
}

// Hook is the trial's side of a gate: the trial asks it before each quantum. Make one
// with Dial. It is not safe for concurrent use.
type Hook struct {
	conn   *coop.Conn
	settle func() error
	lease  lease
	loud   bool // quanta may have run since the last quiet
	quanta uint64
	end    time.Duration // when the last quantum ended, as far as is known
}

// lease is what a hook has been told.
type lease struct {
	epoch  uint64
	serial uint64
	until  time.Duration
	open   bool
	owed   bool // the last message was not answered yet
}

// take takes in a message, unless a later one is known. It says whether it was right.
func (l *lease) take(m coop.Message) bool {
	n := 3
	switch m.Verb {
	case "open":
	case "close":
		n = 2
	default:
		return true // of a later release
	}
	args, ok := m.Uints(n)
	if !ok {
		return false
	}
	if args[1] <= l.serial || args[0] < l.epoch {
		return true
	}
	l.epoch, l.serial, l.open, l.owed = args[0], args[1], n == 3, true
	if l.open {
		l.until = time.Duration(args[2])
	}
	return true
}

// allows says whether work that takes d may start.
func (l *lease) allows(now, d time.Duration) bool {
	return l.open && now < l.until && d <= l.until-now
}

// Dial connects to the gate, trying again while nobody listens there, until ctx ends.
func Dial(ctx context.Context, cfg HookConfig) (*Hook, error) {
	path, name, _ := Socket()
	if cfg.Socket != "" {
		path = cfg.Socket
	}
	if cfg.Name != "" {
		name = cfg.Name
	}
	if path == "" || !isName(name) {
		return nil, fault(lockstep.ErrInvalid, "dial", "Socket", path, "want a socket, and the name of a trial")
	}
	if cfg.Retry <= 0 {
		cfg.Retry = 10 * time.Millisecond
	}
	for {
		c, err := coop.Dial(ctx, path, service, name)
		if err == nil {
			return &Hook{conn: c, settle: cfg.Settle}, nil
		}
		if errors.Is(err, ErrRefused) || errors.Is(err, ErrProtocol) {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, errors.Join(err, ctx.Err())
		}
		pause(ctx, cfg.Retry)
	}
}

// Next waits until a quantum that takes d may start; d is an upper bound that the trial
// knows from its profile. nil means to start it now and to call Next after it. Before it
// waits it settles the device and says that the trial is quiet.
//
// Any error means that the trial must not run: its supervisor has gone (io.EOF), ctx has
// ended, the device does not settle. Next may be called again after the end of ctx; after
// any other error the Hook is of no use, and the trial may Dial again.
func (h *Hook) Next(ctx context.Context, d time.Duration) error {
	if d < 0 {
		return fault(lockstep.ErrInvalid, "next", "d", d.String(), "want 0 or more")
	}
	now, err := coop.Monotonic()
	if err != nil {
		return err
	}
	if h.loud {
		h.end = now
	}
	for {
		if err := h.read(); err != nil {
			return err
		}
		if now, err = coop.Monotonic(); err != nil {
			return err
		}
		if h.lease.allows(now, d) {
			h.loud = true
			h.quanta++
			return nil
		}
		if err := h.quiet(); err != nil {
			return err
		}
		if err := h.wait(ctx); err != nil {
			return err
		}
	}
}

// read takes in what has arrived.
func (h *Hook) read() error {
	for {
		m, ok, err := h.conn.TryReceive()
		if err != nil {
			return err
		}
		if !ok {
			return nil
		}
		if !h.lease.take(m) {
			return fault(ErrProtocol, "next", m.Verb, "", "is malformed")
		}
	}
}

// quiet says that the trial runs nothing under the last message. From then on it does
// not, whatever the clock says.
func (h *Hook) quiet() error {
	if h.loud && h.settle != nil {
		if err := h.settle(); err != nil {
			return err
		}
		now, err := coop.Monotonic()
		if err != nil {
			return err
		}
		h.end = now
	}
	h.lease.open = false
	if !h.loud && !h.lease.owed {
		return nil
	}
	m := coop.Numbers("quiet", h.lease.serial, h.quanta, uint64(h.end))
	h.loud, h.lease.owed, h.quanta = false, false, 0
	return h.conn.Send(m, time.Second)
}

// wait waits for a message.
func (h *Hook) wait(ctx context.Context) error {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		h.conn.Wake()
		close(woken)
	})
	m, err := h.conn.Receive()
	if !stop() {
		<-woken
		h.conn.Rest()
	}
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	if !h.lease.take(m) {
		return fault(ErrProtocol, "next", m.Verb, "", "is malformed")
	}
	return nil
}

// Close ends the connection. The gate then stops the trial.
func (h *Hook) Close() error { return h.conn.Close() }

// Socket returns the path and the name that the environment of a trial gives for its
// hook. ok is false outside one.
func Socket() (path, name string, ok bool) {
	path, name = os.Getenv(EnvSocket), os.Getenv(EnvTrial)
	return path, name, path != "" && name != ""
}
