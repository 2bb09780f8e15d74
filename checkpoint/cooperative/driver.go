package cooperative

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/checkpoint"
	"github.com/lockstep-gpu/lockstep/internal/proctree"
	"github.com/lockstep-gpu/lockstep/internal/proctree/coop"
)

// find returns the rank of a target: the configured one, or the process that is or was
// its hook. Where one process is the hook of several ranks the number decides.
func (h *Host) find(t checkpoint.Target) (*rank, error) {
	bad := func(kind error, reason string) (*rank, error) {
		return nil, fault(kind, "find", "pid", strconv.Itoa(t.PID), reason)
	}
	if t.PID <= 0 {
		return bad(lockstep.ErrInvalid, "want a pid over 0")
	}
	h.mu.Lock()
	var found []*rank
	for _, r := range h.ranks {
		if r.target.PID == t.PID && r.target.Start == t.Start || r.peer.PID == t.PID && r.peer.Start == t.Start {
			found = append(found, r)
		}
	}
	h.mu.Unlock()
	switch {
	case !alive(t):
		return bad(checkpoint.ErrGone, "the process ended, or another has its pid")
	case len(found) == 0:
		return bad(lockstep.ErrInvalid, "is no rank's process")
	case len(found) == 1:
		return found[0], nil
	}
	for _, r := range found {
		if r.target.Rank == t.Rank {
			return r, nil
		}
	}
	return bad(lockstep.ErrInvalid, "is the process of several ranks, and Rank is none of them")
}

// enter finds the rank of a target and waits for the turn of a call that changes
// something. On success the caller leaves it.
func (h *Host) enter(ctx context.Context, t checkpoint.Target) (*rank, error) {
	r, err := h.find(t)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return r, err
	}
	select {
	case r.turn <- struct{}{}:
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (r *rank) leave() { <-r.turn }

// Target waits until a rank has a hook and returns which process that is. A rank that is
// not configured is lockstep.ErrUnknown.
func (h *Host) Target(ctx context.Context, number int) (checkpoint.Target, error) {
	for _, r := range h.ranks {
		if r.target.Rank != number {
			continue
		}
		if err := h.await(ctx, r); err != nil {
			return checkpoint.Target{}, h.fail("target", checkpoint.Target{Rank: number}, r, err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return r.peer, nil
	}
	return checkpoint.Target{}, fault(lockstep.ErrUnknown, "target", "rank", strconv.Itoa(number), "is none of this host's")
}

// await waits until a rank has a hook.
func (h *Host) await(ctx context.Context, r *rank) error {
	for {
		h.mu.Lock()
		there, changed := r.conn != nil, r.changed
		h.mu.Unlock()
		if err := ctx.Err(); err != nil {
			return err
		}
		if there {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// request is one message that wants an answer.
type request struct {
	verb     string
	args     []string
	want     string
	progress func(done, total lockstep.Bytes)
	save     bool // it goes on without its caller, and nothing else is asked meanwhile
}

// ask sends a request and waits for its answer until ctx ends.
func (h *Host) ask(ctx context.Context, r *rank, q request) (answer, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	w := &wait{answer: make(chan answer, 1), lost: make(chan struct{}), progress: q.progress}
	h.mu.Lock()
	switch {
	case r.flight != 0:
		h.mu.Unlock()
		return answer{}, fault(checkpoint.ErrInFlight, q.verb, "rank", strconv.Itoa(r.target.Rank), "a save has not ended")
	case r.conn == nil:
		h.mu.Unlock()
		return answer{}, fault(checkpoint.ErrDriver, q.verb, "rank", strconv.Itoa(r.target.Rank), "has no hook")
	}
	h.serial++
	serial := h.serial
	r.waits[serial] = w
	if q.save {
		r.flight = serial // until it is answered, whoever waits for that
	}
	h.sendLocked(r, coop.Message{Verb: q.verb, Args: append([]string{strconv.FormatUint(serial, 10)}, q.args...)})
	h.mu.Unlock()
	defer h.drop(r, serial)
	select {
	case a := <-w.answer:
		return h.accepted(a, q)
	case <-w.lost:
		return answer{}, fault(io.EOF, q.verb, "rank", strconv.Itoa(r.target.Rank), "its hook has gone")
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
}

// drop forgets a request that nobody waits for any more.
func (h *Host) drop(r *rank, serial uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(r.waits, serial)
}

func (h *Host) accepted(a answer, q request) (answer, error) {
	switch a.verb {
	case q.want:
		return a, nil
	case "refuse":
		return answer{}, refusal(q.verb, a.word)
	}
	return answer{}, fault(ErrProtocol, q.verb, "answer", a.verb, "want "+q.want)
}

// fail builds the error of a call, with the state as it is now.
func (h *Host) fail(call string, t checkpoint.Target, r *rank, err error) error {
	e := &checkpoint.DriverError{Kind: kindOf(err), Call: call, PID: t.PID, Err: err}
	switch {
	case t.PID > 0 && errors.Is(err, io.EOF) && ends(t):
		e.State, e.Kind = checkpoint.Gone, checkpoint.ErrGone
	case t.PID > 0 && !alive(t):
		e.State = checkpoint.Gone
	case r != nil:
		e.State = h.state(r)
	}
	return e
}

func alive(t checkpoint.Target) bool {
	return proctree.Alive(proctree.Identity{PID: t.PID, Start: t.Start})
}

// ends says whether a process whose hook has gone ends as well. The kernel closes the
// descriptors of one that dies a moment before it is dead.
func ends(t checkpoint.Target) bool {
	for end := time.Now().Add(slack); alive(t); pause(context.Background(), time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func (h *Host) state(r *rank) checkpoint.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.held {
		return checkpoint.Locked
	}
	return checkpoint.Running
}

// Probe says what can be done here. It changes nothing.
func (h *Host) Probe(ctx context.Context) (checkpoint.Caps, error) {
	if err := ctx.Err(); err != nil {
		return checkpoint.Caps{}, err
	}
	no := func(what checkpoint.Ability, detail string) checkpoint.Unsupported {
		return checkpoint.Unsupported{What: what, Reason: lockstep.ReasonUnsupported, Detail: detail}
	}
	caps := checkpoint.Caps{Driver: "cooperative", Version: strconv.Itoa(coop.Version), Limits: []checkpoint.Unsupported{
		no(checkpoint.CanImage, "the framework writes its own format: call Save"),
		no(checkpoint.CanIPC, "device memory is not looked at"),
	}}
	if _, err := coop.Monotonic(); err != nil {
		caps.Limits = append(caps.Limits, no(checkpoint.CanLock, "hooks need Linux, this is "+runtime.GOOS))
	} else {
		caps.Abilities = []checkpoint.Ability{checkpoint.CanLock}
	}
	caps.Limits = append(caps.Limits,
		no(checkpoint.CanRemap, "device memory is not moved"),
		no(checkpoint.CanSuspend, "device memory stays where it is"),
		no(checkpoint.CanTree, "a hook stands still, its children do not"))
	return caps, nil
}

// State says whether a rank stands still, as its hook has said last. One without a hook
// runs: a hook that loses its host goes on.
func (h *Host) State(ctx context.Context, t checkpoint.Target) (checkpoint.State, error) {
	r, err := h.find(t)
	switch {
	case errors.Is(err, checkpoint.ErrGone):
		return checkpoint.Gone, nil
	case err == nil:
		err = ctx.Err()
	}
	if err != nil {
		return "", h.fail("state", t, r, err)
	}
	return h.state(r), nil
}

// Inspect says whether a target has a hook.
func (h *Host) Inspect(ctx context.Context, t checkpoint.Target) ([]checkpoint.Unsupported, error) {
	r, err := h.find(t)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, h.fail("inspect", t, r, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.conn == nil {
		return []checkpoint.Unsupported{{What: checkpoint.CanLock, Reason: "no-hook", Detail: "no hook is connected"}}, nil
	}
	return nil, nil
}

// Lock has the rank stand still before its next step, with no save in mind. It waits for a
// hook to connect as well.
func (h *Host) Lock(ctx context.Context, t checkpoint.Target, o checkpoint.LockOptions) error {
	return h.LockAt(ctx, t, 0, o)
}

// Suspend is checkpoint.ErrUnsupported.
func (h *Host) Suspend(ctx context.Context, t checkpoint.Target) (checkpoint.Moved, error) {
	return checkpoint.Moved{}, h.unsupported(ctx, "suspend", t)
}

// Resume is checkpoint.ErrUnsupported.
func (h *Host) Resume(ctx context.Context, t checkpoint.Target, _ checkpoint.ResumeOptions) (checkpoint.Moved, error) {
	return checkpoint.Moved{}, h.unsupported(ctx, "resume", t)
}

func (h *Host) unsupported(ctx context.Context, call string, t checkpoint.Target) error {
	r, err := h.find(t)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = fault(checkpoint.ErrUnsupported, call, "", "", "device memory stays where it is")
	}
	return h.fail(call, t, r, err)
}

// Unlock lets the rank go on. One that runs is success.
func (h *Host) Unlock(ctx context.Context, t checkpoint.Target) error {
	return h.release(ctx, "unlock", t, request{verb: "resume", want: "resumed"})
}

// release sends a request after which the rank runs; one that runs already is not asked.
func (h *Host) release(ctx context.Context, call string, t checkpoint.Target, q request) error {
	r, err := h.enter(ctx, t)
	if err != nil {
		return h.fail(call, t, r, err)
	}
	defer r.leave()
	h.mu.Lock()
	running := !r.held && r.flight == 0
	h.mu.Unlock()
	if running {
		return nil
	}
	_, err = h.ask(ctx, r, q)
	if errors.Is(err, io.EOF) && !ends(t) {
		return nil // a hook that has gone lets its rank go on
	}
	if err != nil {
		return h.fail(call, t, r, err)
	}
	return nil
}

// until returns the end of a wait on the clock that hooks share, and a context that ends
// a little later, so that what was said in time is heard.
func until(ctx context.Context, d time.Duration) (by time.Duration, within context.Context, cancel context.CancelFunc, err error) {
	now, err := coop.Monotonic()
	if err != nil {
		return 0, nil, nil, fault(checkpoint.ErrUnsupported, "lock", "", "", err.Error())
	}
	d = min(d, lockstep.MaxWalltime)
	within, cancel = context.WithTimeout(ctx, d+slack)
	return now + d, within, cancel, nil
}
