package gate

import (
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// EventKind says what has happened.
type EventKind int

// The kinds of event.
const (
	EventOpen         EventKind = iota + 1 // the host opens Epoch until Until
	EventClose                             // the host closes Epoch
	EventConnected                         // the hook of the trial said hello; it is quiet until it is told otherwise
	EventDisconnected                      // the hook is gone
	EventQuiet                             // the hook runs nothing more under Serial
	EventPaused                            // the action Op is done: the tree is paused
	EventResumed                           // the action Op is done: the tree goes on
	EventFailed                            // the action Op failed
	EventExited                            // nobody of the trial is alive
	EventTick                              // nothing but that time has passed
)

// Event is what a Machine is told.
type Event struct {
	Kind   EventKind     // Kind is what happened; the rest is for some kinds only.
	Epoch  uint64        // Epoch is which window of the main job, for Open and Close.
	Until  time.Duration // Until is when the window is over, on the clock of Step, for Open.
	Serial uint64        // Serial is which message a Quiet answers.
	Op     uint64        // Op is which action was done or failed.
}

// ActionKind says what to do.
type ActionKind int

// The kinds of action.
const (
	ActionOpen   ActionKind = iota + 1 // tell the hook: it may run until Until
	ActionClose                        // tell the hook: it may not run
	ActionPause                        // pause the process tree
	ActionResume                       // let the process tree go on
)

// String returns the kind in a word.
func (k ActionKind) String() string {
	switch k {
	case ActionOpen:
		return "open"
	case ActionClose:
		return "close"
	case ActionPause:
		return "pause"
	case ActionResume:
		return "resume"
	}
	return "unknown"
}

// Action is what a Machine wants done.
type Action struct {
	Kind   ActionKind    // Kind is what to do.
	Epoch  uint64        // Epoch is which window it is for.
	Serial uint64        // Serial is what the hook will answer with, for Open and Close; each is larger than the one before.
	Until  time.Duration // Until is the end of the lease, for Open.
	Op     uint64        // Op is the number of the action and the epoch of the process tree, for Pause and Resume; each is larger than the one before.
}

// MachineConfig configures a Machine. The zero MachineConfig is valid.
type MachineConfig struct {
	Patience time.Duration // Patience is how long a hook has to answer before signals are used, and the time between two trials of a signal that failed; 0 means 50ms.
	MaxLease time.Duration // MaxLease is how far ahead Until may lie; 0 means one minute.
}

// Validate says what is wrong with c, or nil.
func (c MachineConfig) Validate() error {
	if c.Patience < 0 || c.Patience > time.Hour {
		return fault(lockstep.ErrInvalid, "config", "Patience", c.Patience.String(), "want 0 to 1h")
	}
	if c.MaxLease < 0 || c.MaxLease > lockstep.MaxWalltime {
		return fault(lockstep.ErrInvalid, "config", "MaxLease", c.MaxLease.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	return nil
}

// halt is how the process tree is, as far as is known.
type halt int

const (
	free     halt = iota // not paused
	pausing              // to be paused; it is not known to be yet
	halted               // paused, and seen to be
	resuming             // to go on; it is not known to yet
	unsure               // it was to go on, and that failed
)

// Machine decides what to tell a trial and when to stop it. It is pure: it is told what
// happened and when, and answers with what to do. Make one with NewMachine. It is not
// safe for concurrent use.
type Machine struct {
	cfg MachineConfig
	now time.Duration

	epoch  uint64
	open   bool          // the latest epoch was opened, and neither closed nor over
	closed bool          // the latest epoch was closed by the host
	until  time.Duration // end of the window, while open

	serial    uint64 // of the last message to the hook
	connected bool
	quiet     bool // the hook runs nothing under the last message

	halt  halt
	op    uint64        // number of the last Pause or Resume
	alarm time.Duration // when to use signals, or try them again; 0 for never
	gone  bool
}

// NewMachine returns a Machine whose gate is closed and whose trial has just started,
// or the faults of cfg.
func NewMachine(cfg MachineConfig) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Patience == 0 {
		cfg.Patience = 50 * time.Millisecond
	}
	if cfg.MaxLease == 0 {
		cfg.MaxLease = time.Minute
	}
	return &Machine{cfg: cfg}, nil
}

// Step takes in an event at now, which is the reading of any clock that never goes
// backwards and is over 0, and returns what to do, in this order. An event that is out of
// date changes nothing.
func (m *Machine) Step(now time.Duration, e Event) ([]Action, error) {
	if err := m.refuse(now, e); err != nil {
		return nil, err
	}
	m.now = now
	out := m.expire(nil)
	if m.gone {
		return nil, nil
	}
	switch e.Kind {
	case EventOpen:
		out = m.opened(e, out)
	case EventClose:
		out = m.close(e, out)
	case EventConnected:
		m.connected, m.quiet = true, true
		m.disarm()
		out = m.grant(out)
		if m.open {
			out = m.release(out) // it was stopped for want of a hook
		}
	case EventDisconnected:
		// Whoever cannot be asked is not trusted to be quiet.
		if m.connected {
			m.connected, m.quiet = false, false
			out = m.pause(out)
		}
	case EventQuiet:
		if m.connected && e.Serial == m.serial {
			m.quiet = true
			m.disarm()
		}
	case EventPaused, EventResumed, EventFailed:
		m.acted(e)
	case EventExited:
		m.gone, m.open, m.alarm = true, false, 0
		return nil, nil
	}
	return m.alert(out), nil
}

// refuse says what is wrong with an event, or nil.
func (m *Machine) refuse(now time.Duration, e Event) error {
	switch {
	case now < m.now || now <= 0:
		return fault(lockstep.ErrPast, "step", "now", now.String(), "want over 0 and not before "+m.now.String())
	case e.Kind < EventOpen || e.Kind > EventTick:
		return fault(lockstep.ErrInvalid, "step", "Kind", "", "is no kind of event")
	case e.Kind == EventOpen && e.Until > now && e.Until-now > m.cfg.MaxLease:
		return fault(lockstep.ErrInvalid, "open", "until", (e.Until - now).String(), "is more than "+m.cfg.MaxLease.String()+" ahead")
	}
	return nil
}

// opened begins a window, or makes it longer.
func (m *Machine) opened(e Event, out []Action) []Action {
	switch {
	case e.Epoch < m.epoch, e.Epoch == m.epoch && m.closed:
		return out // a later word was spoken
	case e.Until <= m.now:
		return out // over before it began
	case e.Epoch == m.epoch && m.open && e.Until <= m.until:
		return out // only Close makes a window shorter
	}
	m.epoch, m.until, m.open, m.closed = e.Epoch, e.Until, true, false
	m.disarm()
	// The lease goes first, so that it is there when the trial wakes up.
	out = m.grant(out)
	return m.release(out)
}

// release has the tree go on, unless it does or soon will.
func (m *Machine) release(out []Action) []Action {
	if m.halt == free || m.halt == resuming {
		return out
	}
	return m.signal(out, ActionResume, resuming)
}

// grant tells a hook of the window, if there is one.
func (m *Machine) grant(out []Action) []Action {
	if !m.connected || !m.open {
		return out
	}
	m.serial++
	m.quiet = false
	return append(out, Action{Kind: ActionOpen, Epoch: m.epoch, Serial: m.serial, Until: m.until})
}

// close ends a window.
func (m *Machine) close(e Event, out []Action) []Action {
	if e.Epoch < m.epoch || e.Epoch == m.epoch && m.closed {
		return out
	}
	m.epoch, m.open, m.closed = e.Epoch, false, true
	switch {
	case m.halt == halted || m.halt == pausing:
		return out
	case !m.connected:
		return m.pause(out)
	case m.quiet:
		return out
	}
	m.serial++
	m.arm(m.now + m.cfg.Patience)
	return append(out, Action{Kind: ActionClose, Epoch: m.epoch, Serial: m.serial})
}

// expire ends a window whose time is over. The hook knows that by itself and needs no
// word, but has to confirm it.
func (m *Machine) expire(out []Action) []Action {
	if !m.open || m.now < m.until {
		return out
	}
	m.open = false
	switch {
	case m.halt == halted || m.halt == pausing || m.connected && m.quiet:
		return out
	case !m.connected:
		return m.pause(out)
	}
	m.arm(m.until + m.cfg.Patience)
	return out
}

// pause has the tree stopped, unless it is or soon will be.
func (m *Machine) pause(out []Action) []Action {
	if m.halt == halted || m.halt == pausing {
		return out
	}
	return m.signal(out, ActionPause, pausing)
}

func (m *Machine) signal(out []Action, kind ActionKind, next halt) []Action {
	m.op++
	m.halt, m.alarm = next, 0
	return append(out, Action{Kind: kind, Epoch: m.epoch, Op: m.op})
}

// acted takes in how the last signal went; earlier ones no longer count.
func (m *Machine) acted(e Event) {
	if e.Op != m.op {
		return
	}
	switch {
	case e.Kind == EventPaused && m.halt == pausing:
		m.halt = halted
	case e.Kind == EventResumed && m.halt == resuming:
		m.halt = free
	case e.Kind == EventFailed && m.halt == pausing:
		m.alarm = m.now + m.cfg.Patience // it is tried again
	case e.Kind == EventFailed && m.halt == resuming:
		m.halt, m.alarm = unsure, m.now+m.cfg.Patience
	}
}

// alert does what is due by an alarm.
func (m *Machine) alert(out []Action) []Action {
	if m.alarm == 0 || m.now < m.alarm {
		return out
	}
	m.alarm = 0
	switch {
	case m.halt == pausing:
		return m.signal(out, ActionPause, pausing)
	case m.halt == unsure && m.open:
		return m.signal(out, ActionResume, resuming)
	case !m.open && !(m.connected && m.quiet):
		return m.pause(out)
	}
	return out
}

func (m *Machine) arm(at time.Duration) { m.alarm = at }

// disarm takes back an alarm that was for a hook that did not answer. One that is for a
// signal that failed stays.
func (m *Machine) disarm() {
	if m.halt == free {
		m.alarm = 0
	}
}

// NextWake returns when time alone will change something, and whether it will.
func (m *Machine) NextWake() (time.Duration, bool) {
	at := m.alarm
	if m.open && (at == 0 || m.until < at) {
		at = m.until
	}
	return at, at != 0 && !m.gone
}

// Quiesced says whether the trial runs nothing, and will not before it is told to: its
// hook has said so, or its process tree was seen to be stopped, or nobody is alive.
func (m *Machine) Quiesced() bool {
	return m.gone || m.halt == halted || m.connected && m.quiet
}
