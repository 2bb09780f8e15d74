package cuda

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
)

// defaultWorkers is how many calls may be blocked where Config does not say. A host
// has a few processes a GPU and 16 GPUs at most.
const defaultWorkers = 64

// maxWorkers keeps threads far below what a process may have.
const maxWorkers = 4096

// longest is what fits the driver's 32 bits of milliseconds.
const longest = (1<<32 - 1) * time.Millisecond

// Driver is a checkpoint.Driver, whichever way it reaches NVIDIA's. New, NewCLI and
// NewHelper make one. It is safe for concurrent use.
type Driver struct {
	name    string
	backend backend
	facts   Facts
	ways    [2]chan struct{} // a place for each call that leads into a pause, and out of it
	readers chan struct{}    // a place for each read of a state
	closing chan struct{}    // closed by Close: nobody waits any longer

	mu     sync.Mutex
	slots  map[key]*slot
	closed bool
}

// key is a process for all time.
type key struct {
	pid   int
	start uint64
}

func keyOf(t checkpoint.Target) key { return key{t.PID, t.Start} }

// slot is what the driver remembers of a target.
type slot struct {
	target checkpoint.Target
	job    *job     // the call in flight, nil if none
	owed   bool     // it may have left Running by this driver and was not seen there since
	wedged error    // why only killing it helps, nil if it does not
	lost   error    // why it could not be brought back to Running, nil if nobody has tried
	held   []Device // what it held when it was suspended, as far as the host knew
	turns  uint64   // calls that have begun or ended, so that an old reading is known
}

// newDriver makes the part that the three ways have in common.
func newDriver(name string, b backend, facts Facts, workers int) *Driver {
	if workers == 0 {
		workers = defaultWorkers
	}
	return &Driver{
		name: name, backend: b, facts: facts,
		ways:    [2]chan struct{}{make(chan struct{}, workers), make(chan struct{}, workers)},
		readers: make(chan struct{}, workers),
		closing: make(chan struct{}), slots: make(map[key]*slot),
	}
}

// checkWorkers is what Validate says of Workers.
func checkWorkers(n int) error {
	if n < 0 || n > maxWorkers {
		return invalid("new", "Workers", strconv.Itoa(n), "want 0 for the default, or up to "+strconv.Itoa(maxWorkers))
	}
	return nil
}

// Probe says what can be done here. Where there is no driver, nothing can, and the
// limits say why; that is no error. What can be done with one target is for Inspect
// and the call itself to say.
func (d *Driver) Probe(ctx context.Context) (checkpoint.Caps, error) {
	var f found
	if err := d.background(ctx, "probe", checkpoint.Target{}, func() { f = d.backend.find() }); err != nil {
		return checkpoint.Caps{}, err
	}
	return capsOf(d.name, f, runtime.GOARCH), nil
}

// State reads where t is. A target that this driver has found wedged is Failed,
// whatever the driver's own number says.
func (d *Driver) State(ctx context.Context, t checkpoint.Target) (checkpoint.State, error) {
	if !supported {
		return "", noSystem(getState, t)
	}
	if err := checkPID(getState, t); err != nil {
		return "", err
	}
	if why := foreign(); why != "" {
		return "", refuse(checkpoint.ErrPermission, getState, t, "", "/proc", "", why)
	}
	// What is read is as old as the moment when the reading began. Calls that began
	// since know better what is owed.
	turn := d.turn(t)
	var o observation
	if err := d.background(ctx, getState, t, func() { o = d.observe(t) }); err != nil {
		return "", err
	}
	if o.err != nil {
		return "", o.err
	}
	return d.noted(t, turn, o.state), nil
}

// turn returns the number of the target's last call.
func (d *Driver) turn(t checkpoint.Target) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.slots[keyOf(t)]; s != nil {
		return s.turns
	}
	return 0
}

// noted remembers what a reading says, unless a call has begun since it did.
func (d *Driver) noted(t checkpoint.Target, turn uint64, state checkpoint.State) checkpoint.State {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.slots[keyOf(t)]
	if s == nil {
		return state
	}
	if s.job == nil && s.turns == turn {
		d.settledLocked(s, state)
	}
	if s.wedged != nil && state != checkpoint.Gone && state != checkpoint.Running {
		return checkpoint.Failed
	}
	return state
}

// settledLocked drops what is owed to a target that is where it needs nothing more.
func (d *Driver) settledLocked(s *slot, state checkpoint.State) {
	switch state {
	case checkpoint.Running:
		s.owed, s.wedged, s.lost, s.held = false, nil, nil, nil
		fallthrough
	case checkpoint.Gone:
		delete(d.slots, keyOf(s.target))
	case checkpoint.Failed:
		if s.wedged == nil {
			s.wedged = errText("the driver says so")
		}
	}
}

// Lock takes a target from Running to Locked. The timeout is the driver's own, in
// whole milliseconds rounded up, at most 49 days; ctx should end later than it does.
func (d *Driver) Lock(ctx context.Context, t checkpoint.Target, o checkpoint.LockOptions) error {
	if o.Timeout <= 0 || o.Timeout > longest {
		return wrong(lock.String(), t, invalid("lock", "Timeout", o.Timeout.String(), "want over 0, and milliseconds in 32 bits"))
	}
	ms := (o.Timeout-1)/time.Millisecond + 1
	_, err := d.change(ctx, t, request{do: lock, pid: t.PID, start: t.Start, ms: uint32(ms)})
	return err
}

// Suspend takes a target from Locked to Checkpointed. Its memory on devices is in
// host memory afterwards, and its CPU threads run on.
func (d *Driver) Suspend(ctx context.Context, t checkpoint.Target) (checkpoint.Moved, error) {
	return d.change(ctx, t, request{do: suspend, pid: t.PID, start: t.Start})
}

// Resume takes a target from Checkpointed to Locked. A failure for want of memory
// leaves it wedged: see the package's Limits.
func (d *Driver) Resume(ctx context.Context, t checkpoint.Target, o checkpoint.ResumeOptions) (checkpoint.Moved, error) {
	pairs, err := parsePairs(o.Map)
	if err != nil {
		return checkpoint.Moved{}, wrong(resume.String(), t, err)
	}
	return d.change(ctx, t, request{do: resume, pid: t.PID, start: t.Start, pairs: pairs})
}

// Unlock takes a target from Locked to Running.
func (d *Driver) Unlock(ctx context.Context, t checkpoint.Target) error {
	_, err := d.change(ctx, t, request{do: unlock, pid: t.PID, start: t.Start})
	return err
}

// Undo brings a target back to Running from wherever it is: it waits for a call in
// flight, resumes what is Checkpointed and unlocks what is Locked. ErrWedged and
// ErrGone say that this cannot be.
func (d *Driver) Undo(ctx context.Context, t checkpoint.Target) error {
	for {
		_, err := d.change(ctx, t, request{do: undo, pid: t.PID, start: t.Start})
		var busy *busyError
		if err == nil || !asBusy(err, &busy) {
			return err
		}
		select {
		case <-busy.done:
		case <-ctx.Done():
			return &checkpoint.DriverError{Kind: checkpoint.ErrInFlight, Call: undo.String(), PID: t.PID, Err: ctx.Err()}
		}
	}
}

// Debt is a target that may not be running because of this driver.
type Debt struct {
	Target checkpoint.Target // Target is who it is.
	Call   string            // Call is the call in flight for it, "" for none.
	Wedged bool              // Wedged says that only killing it helps.
	Err    error             // Err is why it is wedged, or what kept it from running; nil if it is only held.
}

// Owed returns the targets that were locked, or may have been, and were not seen
// running or gone since, by PID; the caller owns the slice. It makes no call.
func (d *Driver) Owed() []Debt {
	d.mu.Lock()
	var list []Debt
	for _, s := range d.slots { // sorted below, so order cannot matter
		debt := Debt{Target: s.target, Wedged: s.wedged != nil, Err: s.wedged}
		if s.job != nil {
			debt.Call = s.job.request.do.String()
		}
		if debt.Err == nil {
			debt.Err = s.lost
		}
		if s.owed || debt.Wedged || debt.Call != "" {
			list = append(list, debt)
		}
	}
	d.mu.Unlock()
	list = slices.DeleteFunc(list, func(o Debt) bool {
		_, ok, err := alive("owed", o.Target)
		if ok || err != nil || o.Call != "" {
			return false
		}
		d.forget(o.Target)
		return true
	})
	slices.SortFunc(list, func(a, b Debt) int {
		return cmp.Or(cmp.Compare(a.Target.PID, b.Target.PID), cmp.Compare(a.Target.Start, b.Target.Start))
	})
	return list
}

// forget drops what is remembered of a target that is gone, unless a call is in flight.
func (d *Driver) forget(t checkpoint.Target) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.slots[keyOf(t)]; s != nil && s.job == nil {
		delete(d.slots, keyOf(t))
	}
}

// Close refuses all further calls and gives back what is held. While a call is in
// flight it is ErrInFlight and holds on to what that call needs; call it again
// later. It undoes nothing: Owed says what there would be to undo, before.
func (d *Driver) Close() error {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.closing)
	}
	d.mu.Unlock()
	if len(d.ways[0])+len(d.ways[1])+len(d.readers) > 0 {
		return &checkpoint.DriverError{Kind: checkpoint.ErrInFlight, Call: "close"}
	}
	return d.backend.close()
}

// shut is the error of a driver that was closed.
func shut(call string, t checkpoint.Target) *checkpoint.DriverError {
	return &checkpoint.DriverError{
		Kind: checkpoint.ErrDriver, Call: call, PID: t.PID,
		Err: &lockstep.Error{Kind: lockstep.ErrConflict, Op: "cuda", Field: "Driver", Reason: "it was closed"},
	}
}
