package checkpointtest

import (
	"context"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// Fault is what happens instead of what a call should do. The zero Fault does
// nothing and says that it went well: a driver that lies.
type Fault struct {
	Kind  error            // Kind is the kind of the *DriverError returned; nil reports success.
	Code  int              // Code is the driver's number in that error.
	Name  string           // Name is the driver's name for Code.
	Then  checkpoint.State // Then is the state that the target is in afterwards; "" leaves it as it was. Gone means that it died.
	Block <-chan struct{}  // Block has the call outlive its context, and end only once Block is closed; nil does not.
	Work  bool             // Work has the call do what it should before Then counts, whatever it returns.
}

// Call is one call that was made to change something.
type Call struct {
	Do  string // Do is "lock", "suspend", "resume" or "unlock".
	PID int    // PID is the target's.
	Err error  // Err is what it returned; nil while it is in flight.
}

// Fake is a Driver in memory. Its targets are what Add was told. The zero Fake
// is not ready; NewFake makes one.
type Fake struct {
	mu      sync.Mutex
	procs   map[int]*process
	plan    map[int]Fault
	calls   []Call
	devices map[lockstep.DeviceID]bool
	limits  map[int][]checkpoint.Unsupported
}

// process is one target of a Fake.
type process struct {
	target checkpoint.Target
	state  checkpoint.State
	busy   bool // a call is in flight
	locks  int  // times that it became Locked from Running
	opens  int  // times that it became Running from Locked
}

// NewFake returns a driver without targets that can resume on the devices named.
func NewFake(devices ...lockstep.DeviceID) *Fake {
	f := &Fake{procs: map[int]*process{}, plan: map[int]Fault{}, devices: map[lockstep.DeviceID]bool{}, limits: map[int][]checkpoint.Unsupported{}}
	for _, d := range devices {
		f.devices[d] = true
	}
	return f
}

// Add starts a process, which is Running.
func (f *Fake) Add(t checkpoint.Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.procs[t.PID] = &process{target: t, state: checkpoint.Running}
}

// Put changes a target's state, as a stranger would; Gone kills it.
func (f *Fake) Put(t checkpoint.Target, s checkpoint.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.procs[t.PID]; p != nil {
		p.set(s)
	}
}

// Limit has Inspect say that something cannot be done with the target.
func (f *Fake) Limit(t checkpoint.Target, list ...checkpoint.Unsupported) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.limits[t.PID] = list
}

// Plan has the n-th call that changes something, from 0 for the first one of
// all, meet a fault. Probe, State and Inspect are not counted: they change
// nothing.
func (f *Fake) Plan(n int, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan[n] = fault
}

// Calls returns what was called so far, in order. It is a copy.
func (f *Fake) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Call(nil), f.calls...)
}

// Locks returns how often the target went from Running to Locked, and how often
// back.
func (f *Fake) Locks(t checkpoint.Target) (locks, unlocks int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.procs[t.PID]; p != nil {
		return p.locks, p.opens
	}
	return 0, 0
}

// Probe implements checkpoint.Driver.
func (f *Fake) Probe(ctx context.Context) (checkpoint.Caps, error) {
	if err := ctx.Err(); err != nil {
		return checkpoint.Caps{}, err
	}
	return checkpoint.Caps{
		Driver: "fake", Version: "1.0",
		Abilities: []checkpoint.Ability{checkpoint.CanIPC, checkpoint.CanLock, checkpoint.CanRemap, checkpoint.CanSuspend},
		Limits:    []checkpoint.Unsupported{{What: checkpoint.CanImage, Reason: "fake", Detail: "there are no bytes"}},
	}, nil
}

// Inspect implements checkpoint.Inspector.
func (f *Fake) Inspect(ctx context.Context, t checkpoint.Target) ([]checkpoint.Unsupported, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]checkpoint.Unsupported(nil), f.limits[t.PID]...), nil
}

// State implements checkpoint.Driver.
func (f *Fake) State(ctx context.Context, t checkpoint.Target) (checkpoint.State, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read(t), nil
}

// Lock implements checkpoint.Driver.
func (f *Fake) Lock(ctx context.Context, t checkpoint.Target, o checkpoint.LockOptions) error {
	if o.Timeout <= 0 {
		return f.invalid("lock", t, "Timeout", o.Timeout.String(), "want more than 0")
	}
	return f.call(ctx, "lock", t, checkpoint.Running, checkpoint.Locked)
}

// Suspend implements checkpoint.Driver.
func (f *Fake) Suspend(ctx context.Context, t checkpoint.Target) (checkpoint.Moved, error) {
	err := f.call(ctx, "suspend", t, checkpoint.Locked, checkpoint.Checkpointed)
	return moved(err), err
}

// Resume implements checkpoint.Driver.
func (f *Fake) Resume(ctx context.Context, t checkpoint.Target, o checkpoint.ResumeOptions) (checkpoint.Moved, error) {
	seen := map[lockstep.DeviceID]bool{}
	for _, p := range o.Map {
		if !f.devices[p.Old] || !f.devices[p.New] || seen[p.New] {
			return checkpoint.Moved{}, f.invalid("resume", t, "Map", string(p.Old+"="+p.New), "is no device, or stands twice")
		}
		seen[p.New] = true
	}
	err := f.call(ctx, "resume", t, checkpoint.Checkpointed, checkpoint.Locked)
	return moved(err), err
}

// Unlock implements checkpoint.Driver.
func (f *Fake) Unlock(ctx context.Context, t checkpoint.Target) error {
	return f.call(ctx, "unlock", t, checkpoint.Locked, checkpoint.Running)
}

func moved(err error) checkpoint.Moved {
	if err != nil {
		return checkpoint.Moved{}
	}
	return checkpoint.Moved{Bytes: lockstep.GiB, Took: time.Second}
}

func (f *Fake) invalid(do string, t checkpoint.Target, field, value, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &checkpoint.DriverError{
		Kind: lockstep.ErrInvalid, Call: "fake " + do, PID: t.PID, State: f.read(t),
		Err: &lockstep.Error{Kind: lockstep.ErrInvalid, Op: "fake: " + do, Field: field, Value: value, Reason: reason},
	}
}

// read is the state of t; f.mu is held.
func (f *Fake) read(t checkpoint.Target) checkpoint.State {
	if p := f.procs[t.PID]; p != nil && p.target.Start == t.Start {
		return p.state
	}
	return checkpoint.Gone
}

// call makes one call that takes t from a state to another.
func (f *Fake) call(ctx context.Context, do string, t checkpoint.Target, from, to checkpoint.State) error {
	if err := ctx.Err(); err != nil {
		return &checkpoint.DriverError{Kind: checkpoint.ErrTimeout, Call: "fake " + do, PID: t.PID, Err: err}
	}
	f.mu.Lock()
	n := len(f.calls)
	f.calls = append(f.calls, Call{Do: do, PID: t.PID})
	fault, planned := f.plan[n]
	if p := f.procs[t.PID]; planned && fault.Block != nil && p != nil && !p.busy {
		p.busy = true
		f.mu.Unlock()
		return f.blocked(ctx, n, p, fault, from, to)
	}
	defer f.mu.Unlock()
	err := f.act(do, t, from, to, fault, planned)
	f.calls[n].Err = err
	return err
}

// blocked waits for the end of a call that hangs, or of ctx.
func (f *Fake) blocked(ctx context.Context, n int, p *process, fault Fault, from, to checkpoint.State) error {
	var err error
	ended := make(chan struct{})
	go func() { // it outlives its caller, as a call into a driver does
		defer close(ended)
		<-fault.Block
		f.mu.Lock()
		defer f.mu.Unlock()
		p.busy = false
		err = f.act(f.calls[n].Do, p.target, from, to, fault, fault.Kind != nil || fault.Then != "")
		f.calls[n].Err = err
	}()
	select {
	case <-ended:
		return err
	case <-ctx.Done():
		return &checkpoint.DriverError{Kind: checkpoint.ErrInFlight, Call: "fake " + f.name(n), PID: p.target.PID, Err: ctx.Err()}
	}
}

func (f *Fake) name(n int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[n].Do
}

// act does what a call does; f.mu is held.
func (f *Fake) act(do string, t checkpoint.Target, from, to checkpoint.State, fault Fault, planned bool) error {
	e := &checkpoint.DriverError{Call: "fake " + do, PID: t.PID}
	if f.read(t) == checkpoint.Gone {
		e.Kind, e.State = checkpoint.ErrGone, checkpoint.Gone
		return e
	}
	p := f.procs[t.PID]
	if p.busy {
		e.Kind, e.State = checkpoint.ErrInFlight, p.state
		return e
	}
	if planned {
		if fault.Work && p.state == from {
			p.set(to)
		}
		if fault.Then != "" {
			p.set(fault.Then)
		}
		if fault.Kind == nil {
			return nil
		}
		e.Kind, e.Code, e.Name, e.State = fault.Kind, fault.Code, fault.Name, p.state
		return e
	}
	switch p.state {
	case from:
		p.set(to)
		return nil
	case to:
		return nil
	case checkpoint.Failed:
		e.Kind = checkpoint.ErrWedged
	default:
		e.Kind, e.Code, e.Name = checkpoint.ErrIllegalState, 401, "CUDA_ERROR_ILLEGAL_STATE"
	}
	e.State = p.state
	return e
}

// set changes the state and counts.
func (p *process) set(s checkpoint.State) {
	switch {
	case p.state == checkpoint.Running && (s == checkpoint.Locked || s == checkpoint.Checkpointed):
		p.locks++
	case s == checkpoint.Running && p.state != checkpoint.Running:
		p.opens++
	}
	p.state = s
}
