package checkpoint

import (
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

const in instant.In = "checkpoint"

// AgentConfig configures an Agent. Durations may be zero.
type AgentConfig struct {
	Job       lockstep.JobID `json:"job"`                 // Job is whose rank it is.
	Rank      int            `json:"rank"`                // Rank is which, from 0.
	NoSuspend bool           `json:"noSuspend,omitempty"` // NoSuspend has the rank saved while it is locked, for drivers that cannot take its state off the devices.
	Call      time.Duration  `json:"call,omitempty"`      // Call is how long a suspend or a resume may take; 0 means 5m. Cutting one short only leaves it in flight.
	Poll      time.Duration  `json:"poll,omitempty"`      // Poll is how often a call that did not get on is tried again; 0 means 1s.
	Tries     int            `json:"tries,omitempty"`     // Tries is how often an undo may fail before the rank is broken; 0 means 5.
	Stuck     time.Duration  `json:"stuck,omitempty"`     // Stuck is after how long an undo that does not end is reported as broken; it goes on. 0 means 2m.
}

// Validate says all that is wrong with c, or nil.
func (c AgentConfig) Validate() error {
	var list []error
	bad := func(field, value, reason string) {
		list = append(list, fault(lockstep.ErrInvalid, "agent config", field, value, reason))
	}
	if err := c.Job.Validate(); err != nil {
		list = append(list, err)
	}
	if c.Rank < 0 || c.Rank >= MaxRanks {
		bad("Rank", strconv.Itoa(c.Rank), "want 0 to "+strconv.Itoa(MaxRanks-1))
	}
	if c.Tries < 0 {
		bad("Tries", strconv.Itoa(c.Tries), "want 0 or more")
	}
	for _, w := range []struct {
		field string
		d     time.Duration
	}{{"Call", c.Call}, {"Poll", c.Poll}, {"Stuck", c.Stuck}} {
		if w.d < 0 || w.d > maxWait {
			bad(w.field, w.d.String(), "want 0 to "+maxWait.String())
		}
	}
	return errors.Join(list...)
}

// phase is how far a rank has come in its epoch.
type phase int

const (
	phaseIdle       phase = iota // holds nothing
	phaseLocking                 // a lock is under way
	phaseReady                   // locked
	phaseSuspending              // a suspend is under way
	phaseSaving                  // the image is being written
	phaseStored                  // the image is durable, or held where nothing is to be saved
	phaseBroken                  // hands off
)

// aim is where a rank is going.
type aim int

const (
	aimForward aim = iota // on to a commit
	aimUndo               // back to running
	aimKill               // to its end
)

// Agent is the machine of one rank: it stops, saves and lets go one target, and
// owes it the way back. Make one with NewAgent. It is not safe for concurrent
// use.
type Agent struct {
	cfg AgentConfig
	now int64

	// What is recorded.
	term   Term
	epoch  Epoch // the greatest that this rank took part in or was told is void
	plan   Plan
	hold   hold
	phase  phase
	stored bool
	image  RankImage
	final  string // the recorded outcome of epoch; "" while it is open

	aim    aim
	staged bool
	step   uint64
	bytes  lockstep.Bytes
	reason lockstep.Reason
	detail string
	remap  []DevicePair

	ops       uint64     // the number of the last action
	op        uint64     // the driver's or the ledger's call that is under way; 0 for none
	doing     ActionKind // what it is
	saving    uint64     // the save that is under way; 0 for none
	recording uint64     // the last record
	word      int64      // when the leader was last heard
	since     int64      // when the target was locked
	undoing   int64      // when the way back was begun; 0 for not
	retry     int64      // not before then
	tries     int
	fresh     bool // restored, and not told the time yet

	out    []Action
	defect defect // for tests only: what to do wrong
}

// NewAgent returns the agent of a target that nobody holds, or the faults of cfg.
func NewAgent(cfg AgentConfig) (*Agent, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	for _, d := range []struct {
		at  *time.Duration
		def time.Duration
	}{{&cfg.Call, 5 * time.Minute}, {&cfg.Poll, time.Second}, {&cfg.Stuck, 2 * time.Minute}} {
		if *d.at == 0 {
			*d.at = d.def
		}
	}
	if cfg.Tries == 0 {
		cfg.Tries = 5
	}
	return &Agent{cfg: cfg}, nil
}

// Step takes in an event and returns what to do, in this order. Events that are
// out of date change nothing. Errors are ErrPast and ErrInvalid, and change
// nothing.
func (a *Agent) Step(now time.Time, e Event) ([]Action, error) {
	ns, err := in.SinceEpoch("agent", "now", now)
	if err == nil {
		err = in.NotBefore("agent", "now", now, ns, a.now)
	}
	if err == nil && (e.Kind < EventTick || e.Kind > EventProgress) {
		err = fault(lockstep.ErrInvalid, "agent", "Kind", strconv.Itoa(int(e.Kind)), "is no kind of event")
	}
	if err != nil {
		return nil, err
	}
	a.out = nil
	a.take(ns, &e)
	return a.out, nil
}

// take is Step for an event that was checked; it appends to a.out.
func (a *Agent) take(now int64, e *Event) {
	a.now, a.fresh = now, false
	if a.aim != aimForward && a.undoing == 0 && a.final == "" {
		a.undoing = max(now, 1) // restored on its way back
	}
	switch e.Kind {
	case EventMessage:
		if e.Message.Job == a.cfg.Job && e.Message.Rank == a.cfg.Rank {
			a.receive(&e.Message)
		}
	case EventDone:
		a.done(e)
	case EventStaged, EventProgress:
		if e.Op == a.saving && a.saving != 0 {
			a.progress(e)
		}
	}
	a.watch()
	a.advance()
}

// progress takes in how far the save under way has come.
func (a *Agent) progress(e *Event) {
	a.bytes = max(a.bytes, e.Bytes)
	if e.Kind == EventStaged && a.plan.Early && !a.staged && a.aim == aimForward {
		a.staged = true
		a.reply()
	}
}

// NextWake returns when time alone will change something, and whether it will.
func (a *Agent) NextWake() (time.Time, bool) {
	if a.fresh {
		return lockstep.FromNanos(a.now), true
	}
	at := int64(instant.Never)
	if a.armed() {
		at = a.limit()
	}
	if a.op == 0 && a.undone() && a.retry > a.now {
		at = min(at, a.retry)
	}
	if a.undoing != 0 && a.final == "" {
		at = min(at, instant.Add(a.undoing, a.cfg.Stuck))
	}
	return lockstep.FromNanos(at), at != instant.Never
}

// Hold returns where the target was last seen, and whether this rank owes it
// the way back.
func (a *Agent) Hold() (State, bool) { return a.hold.State, a.hold.Duty != dutyNone }

// armed says whether the dead-man timer runs: while the target is held and
// nothing has been decided about it.
func (a *Agent) armed() bool {
	return a.hold.Duty != dutyNone && a.aim == aimForward && a.phase != phaseBroken && a.doing != ActionSettle
}

// limit is when it rings.
func (a *Agent) limit() int64 {
	at := instant.Add(a.word, a.plan.Silence)
	if a.since != 0 {
		at = min(at, instant.Add(a.since, a.plan.Pause))
	}
	return max(at, a.retry)
}

// undone says whether there is something to call on the way back, or to the end.
func (a *Agent) undone() bool {
	return a.aim != aimForward && a.phase != phaseBroken && a.hold.Duty != dutyNone
}

// watch lets the timers ring.
func (a *Agent) watch() {
	if a.undoing != 0 && a.final == "" && a.now >= instant.Add(a.undoing, a.cfg.Stuck) {
		a.conclude(msgBroken, reasonStuck, "undoing takes longer than "+a.cfg.Stuck.String())
	}
	if !a.armed() || a.now < a.limit() {
		return
	}
	reason := reasonSilence
	if a.since != 0 && a.now >= instant.Add(a.since, a.plan.Pause) {
		reason = reasonPause
	}
	if a.plan.StopAfter && a.stored && a.defect != defectDeadMan {
		// In doubt: the leader may have committed, and have others
		// terminated. Only the ledger knows.
		if a.op == 0 {
			a.settle()
		}
		return
	}
	a.abandon(reason, "")
}

// settle shuts the leader out and asks what became of the epoch.
func (a *Agent) settle() {
	a.start(ActionSettle, Action{Term: a.term + 1, Timeout: a.cfg.Call})
}

// abandon gives the epoch up: nothing that was not stored ever will be.
func (a *Agent) abandon(reason lockstep.Reason, detail string) {
	if a.reason == "" && !(a.stored || a.staged) {
		a.reason, a.detail = reason, detail
	}
	a.turn(aimUndo)
	if a.saving != 0 && !a.staged {
		a.out = append(a.out, Action{Kind: ActionCancel, Op: a.saving, Epoch: a.epoch})
	}
}

func (a *Agent) turn(to aim) {
	if a.aim != to {
		a.aim, a.undoing, a.retry, a.tries = to, max(a.now, 1), 0, 0
	}
}

// start begins an action that will be answered.
func (a *Agent) start(kind ActionKind, act Action) {
	a.ops++
	act.Kind, act.Op, act.Epoch = kind, a.ops, a.epoch
	if kind == ActionSave {
		a.saving = a.ops
	} else {
		a.op, a.doing = a.ops, kind
	}
	a.out = append(a.out, act)
}

func (a *Agent) record() {
	a.ops++
	a.recording = a.ops
	a.out = append(a.out, Action{Kind: ActionRecord, Op: a.ops, Epoch: a.epoch})
}

// advance does the next thing that is due, if nothing is under way.
func (a *Agent) advance() {
	if a.op != 0 || a.phase == phaseBroken || a.phase == phaseIdle {
		return
	}
	switch {
	case a.aim == aimKill:
		if a.now >= a.retry {
			a.start(ActionKill, Action{Timeout: a.cfg.Call})
		}
	case a.aim == aimUndo && a.saving != 0 && !a.staged:
		// The save still reads the target's memory.
	case a.aim == aimUndo && a.hold.Duty == dutyNone:
		a.leave(msgResumed)
	case a.aim == aimUndo && a.now >= a.retry:
		call := a.hold.next()
		act := Action{Timeout: a.cfg.Call}
		if call == ActionResume {
			act.Devices = a.remap
		}
		a.start(call, act)
	}
}

// leave ends the epoch with an outcome; the target is not held any more.
func (a *Agent) leave(kind string) {
	a.phase = phaseIdle
	a.undoing = 0
	a.record()
	a.conclude(kind, a.reason, a.detail)
}

// conclude notes the outcome of the epoch and tells the leader.
func (a *Agent) conclude(kind string, reason lockstep.Reason, detail string) {
	a.final, a.reason, a.detail = kind, reason, detail
	a.reply()
}

// reply tells the leader how the epoch stands. It is the answer to every
// message about it, so that one that is lost or repeated does no harm.
func (a *Agent) reply() {
	a.send(Message{Kind: a.standing(), Epoch: a.epoch})
}

func (a *Agent) standing() string {
	switch {
	case a.final != "":
		return a.final
	case a.aim != aimForward:
		return msgBusy
	case a.phase == phaseStored && a.stored:
		return msgStored
	case a.staged:
		return msgStaged
	case a.phase == phaseReady:
		return msgReady
	}
	return msgBusy
}

func (a *Agent) send(m Message) {
	m.Job, m.Rank, m.Term, m.Seen = a.cfg.Job, a.cfg.Rank, a.term, a.epoch
	m.Step, m.State = a.step, a.hold.State
	if m.Epoch == a.epoch {
		m.Bytes, m.Reason, m.Detail = a.bytes, a.reason, a.detail
		if a.stored {
			m.Stored, m.Image = true, a.image
		}
	}
	a.out = append(a.out, Action{Kind: ActionSend, Epoch: m.Epoch, Message: m})
}

// deaf has the dead-man timer ring at the next step: nobody is listened to any
// more.
func (a *Agent) deaf() {
	a.word, a.retry = 0, 0
}
