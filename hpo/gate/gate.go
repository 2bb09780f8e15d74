package gate

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// The environment of a trial that a Gate starts.
const (
	EnvSocket = "LOCKSTEP_GATE"  // EnvSocket names the variable that holds the path of the gate's socket.
	EnvTrial  = "LOCKSTEP_TRIAL" // EnvTrial names the variable that holds the name of the trial.
)

// service is what a hook asks for.
const service = "gate"

// Bounds of what a Gate waits for.
const (
	sendTime  = 20 * time.Millisecond // a hook that takes no message for so long counts as gone
	greetTime = 2 * time.Second       // for the first line
	opTime    = 2 * time.Second       // for a Pause or Resume
	endTime   = 10 * time.Second      // for SIGKILL to work, at the end
	greeters  = 4                     // connections that may be at their first line
)

// Config says what trial a Gate is for. Exactly one of Command and PID is required.
type Config struct {
	Name    string        // Name is the trial, 1 to 64 letters, digits and the signs -_.:/; hooks say it.
	Command *exec.Cmd     `json:"-"` // Command starts the trial; Run starts it, and ends it when it returns. The caller calls none of its methods.
	PID     int           // PID is the root of a trial that runs already; Run stops it when it returns, and does not end it.
	Socket  string        // Socket is the absolute path of the socket for the hook, at most 107 bytes; "" means that the trial has none, and signals are all there is.
	Cgroup  string        // Cgroup is a cgroup v2 directory to start the trial below, so that it is frozen rather than signalled; "" means signals.
	Session bool          // Session starts the trial in a session of its own.
	Grace   time.Duration // Grace is how long a Command has between SIGTERM and SIGKILL when Run returns; 0 means 5s.
	UIDs    []int         // UIDs are the users whose processes may be the hook; none means that of this process. With another user's the socket is one that all can connect to, and those of no user among them are refused at once.
	Machine MachineConfig // Machine is how patient the gate is.

	Watch  func(Report) `json:"-"` // Watch is told when the trial says that it is quiet; nil means nobody. It must not block or call back.
	Logger *zap.Logger  `json:"-"` // Logger is told of signals, hooks and failures; nil means nobody.
}

// Report is what a hook tells when it becomes quiet.
type Report struct {
	Epoch   uint64        // Epoch is the window.
	Quanta  uint64        // Quanta is how many the trial has run since it was told to open.
	Overrun time.Duration // Overrun is how long after the end of its lease the last of them ended; 0 if before.
}

// Status is how a Gate is at one moment.
type Status struct {
	Epoch     uint64           // Epoch is the latest that was opened or closed.
	Open      bool             // Open says that a window is open.
	Connected bool             // Connected says that the trial has a hook.
	Quiesced  bool             // Quiesced is what Gate.Quiesced says.
	Halted    bool             // Halted says that the trial is stopped by signals or frozen, so that its clocks see it stand still.
	PID       int              // PID is the root of the trial; 0 before it was started.
	Over      bool             // Over says that nobody of the trial is alive.
	Exit      *os.ProcessState // Exit is how the root of a Command died; nil before Run has returned.
}

// tree is what a Gate needs of a process tree.
type tree interface {
	Pause(ctx context.Context, epoch uint64) (proctree.Outcome, error)
	Resume(ctx context.Context, epoch uint64) (proctree.Outcome, error)
	Terminate(ctx context.Context, grace time.Duration) (proctree.Report, error)
	Contains(ctx context.Context, pid int) (bool, error)
	Wait(ctx context.Context) error
	Close() error
}

// Gate lets one trial run in windows and keeps it still between them. Make one with New.
// It is safe for concurrent use.
type Gate struct {
	cfg  Config
	kick chan struct{} // there are actions to take

	mu      sync.Mutex
	machine *Machine
	todo    []Action
	ran     bool
	pid     int
	exit    *os.ProcessState
	leases  map[uint64]Action // what was granted, by serial; the last few
}

// New returns a Gate that is closed, or all faults of cfg.
func New(cfg Config) (*Gate, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Grace == 0 {
		cfg.Grace = 5 * time.Second
	}
	if len(cfg.UIDs) == 0 {
		cfg.UIDs = []int{os.Geteuid()}
	}
	if cfg.Logger == nil {
		cfg.Logger = zap.NewNop()
	}
	machine, err := NewMachine(cfg.Machine)
	if err != nil {
		return nil, err
	}
	return &Gate{cfg: cfg, machine: machine, kick: make(chan struct{}, 1), leases: make(map[uint64]Action)}, nil
}

// Validate says all that is wrong with c, or nil.
func (c Config) Validate() error {
	var errs []error
	bad := func(field, value, reason string) {
		errs = append(errs, fault(lockstep.ErrInvalid, "config", field, value, reason))
	}
	if !isName(c.Name) {
		bad("Name", c.Name, "want 1 to 64 letters, digits and -_.:/")
	}
	if (c.Command == nil) == (c.PID == 0) {
		bad("Command", "", "want it or PID")
	}
	if c.Command == nil && (c.Cgroup != "" || c.Session) {
		bad("PID", "", "a cgroup and a session are for a Command")
	}
	if c.Socket != "" && (len(c.Socket) > 107 || !filepath.IsAbs(c.Socket)) {
		bad("Socket", c.Socket, "want an absolute path of at most 107 bytes")
	}
	if c.Grace < 0 || c.Grace > lockstep.MaxWalltime {
		bad("Grace", c.Grace.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
	if err := c.Machine.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func isName(s string) bool {
	for _, b := range []byte(s) {
		switch {
		case 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9', b == '-', b == '_', b == '.', b == ':', b == '/':
		default:
			return false
		}
	}
	return 0 < len(s) && len(s) <= 64
}

// Open lets the trial run in window epoch until a time that is reckoned from time.Now.
// An older epoch, one that was closed and a time that is past are no-ops, and so is a
// time before one given already; a later one makes the window longer. It is ErrInvalid
// if the time is farther ahead than Config.Machine.MaxLease. It does not wait.
func (g *Gate) Open(epoch uint64, until time.Time) error {
	now, err := coop.Monotonic()
	if err != nil {
		return err
	}
	// The clock was read before, so what is late makes the lease end early.
	ahead := min(time.Until(until), lockstep.MaxWalltime+time.Hour) // more than any lease, and no overflow
	return g.step(Event{Kind: EventOpen, Epoch: epoch, Until: now + ahead})
}

// Close ends window epoch, and all before it. It does not wait; ask Quiesced. It is
// idempotent, and an older epoch is a no-op.
func (g *Gate) Close(epoch uint64) error {
	return g.step(Event{Kind: EventClose, Epoch: epoch})
}

// Quiesced says whether the trial is at a safe point and will stay there until it is
// told to go on. The error is that of the clock.
func (g *Gate) Quiesced() (bool, error) {
	if err := g.step(Event{Kind: EventTick}); err != nil {
		return false, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.machine.Quiesced(), nil
}

// Status returns how the gate is.
func (g *Gate) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.machine
	return Status{
		Epoch: m.epoch, Open: m.open, Connected: m.connected, Quiesced: m.Quiesced(), Halted: m.halt == halted,
		PID: g.pid, Over: m.gone, Exit: g.exit,
	}
}

// step tells the machine what has happened and leaves what it wants done to Run.
func (g *Gate) step(e Event) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now, err := coop.Monotonic()
	if err != nil {
		return err
	}
	actions, err := g.machine.Step(now, e)
	if err != nil {
		return err
	}
	g.todo = append(g.todo, actions...)
	if len(g.todo) > 64 { // nobody takes them before Run: the last word to each is what counts
		g.todo = latest(g.todo)
	}
	// Its next wake-up may have moved as well.
	select {
	case g.kick <- struct{}{}:
	default:
	}
	return nil
}

// latest returns the last message and the last signal of a list of actions.
func latest(list []Action) []Action {
	word, sign := -1, -1
	for i, a := range list {
		if a.Kind == ActionOpen || a.Kind == ActionClose {
			word = i
		} else {
			sign = i
		}
	}
	var out []Action
	for i, a := range list {
		if i == word || i == sign {
			out = append(out, a)
		}
	}
	return out
}

// take returns what is to be done, and how long until time alone changes something.
func (g *Gate) take() ([]Action, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	todo := g.todo
	g.todo = nil
	for _, a := range todo {
		if a.Kind == ActionOpen {
			maps.DeleteFunc(g.leases, func(serial uint64, _ Action) bool { return serial+8 < a.Serial })
			g.leases[a.Serial] = a
		}
	}
	at, ok := g.machine.NextWake()
	if !ok {
		return todo, time.Hour
	}
	now, err := coop.Monotonic()
	if err != nil {
		return todo, time.Second
	}
	return todo, max(at-now, 0)
}
