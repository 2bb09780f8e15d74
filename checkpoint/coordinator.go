package checkpoint

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/instant"
)

// stage is how far a leader has come with an epoch.
type stage int

const (
	stageIdle       stage = iota
	stageRecover          // restored with an epoch whose end is not known
	stageAsking           // which step is everybody at
	stagePreparing        // until all are ready
	stageSnapshot         // until all are stored
	stageHeld             // all are held; nothing is to be saved
	stageCommitting       // the ledger has been told
	stageSettling         // the ledger has been asked
	stageFinishing        // decided; until all have heard
	stageWaiting          // for the next attempt
	stageLost             // a newer leader has taken over
)

// commits is how often a commit is tried before its epoch is given up.
const commits = 3

// seat is what the leader knows of a rank in the present epoch.
type seat struct {
	said    string // its last word
	final   string // its outcome; "" while it is open
	ready   bool
	staged  bool
	stored  bool
	stepped bool
	step    uint64
	bytes   lockstep.Bytes
	state   State
	image   RankImage
	reason  lockstep.Reason
	detail  string
}

// tally is how many seats there are with each flag, so that a message need not
// look at all.
type tally struct{ ready, staged, stored, final int }

// Coordinator is the machine of the leader of one job. Make one with New, or
// with Restore from what the leader before it recorded. It is not safe for
// concurrent use.
type Coordinator struct {
	cfg Config
	now int64

	// What is recorded.
	epoch   Epoch
	open    bool // it is not known how epoch ended
	req     Request
	stopped bool  // all ranks were terminated
	aborts  int   // in a row
	until   int64 // requests are refused before

	stage    stage
	seats    []seat
	count    tally
	attempt  int
	began    int64 // when the ranks were first told to stop
	deadline int64 // of the stage
	resend   int64
	stop     uint64
	early    bool // the ranks were told to go on before the commit
	seen     Epoch
	manifest *Manifest
	decision string // msgCommit or msgAbort, once it has fallen
	reason   lockstep.Reason
	blame    []RankFault
	fenced   bool
	recover  bool
	devices  [][]DevicePair

	ops    uint64
	op     uint64
	doing  ActionKind
	record uint64
	tries  int

	out    []Action
	defect defect // for tests only: what to do wrong
}

// New returns the leader of a job whose ranks nobody holds, or the faults of
// cfg.
func New(cfg Config) (*Coordinator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Coordinator{cfg: cfg.withDefaults(), epoch: cfg.After}, nil
}

// Step takes in an event and returns what to do, in this order. Messages and
// answers that are out of date change nothing. Errors are ErrPast, ErrInvalid,
// and ErrConflict for a request that cannot be taken now or ErrFenced where
// another leader has taken over; they change nothing.
func (c *Coordinator) Step(now time.Time, e Event) ([]Action, error) {
	ns, err := in.SinceEpoch("step", "now", now)
	if err == nil {
		err = in.NotBefore("step", "now", now, ns, c.now)
	}
	if err == nil {
		err = c.refuse(ns, &e)
	}
	if err != nil {
		return nil, err
	}
	c.out = nil
	c.take(ns, &e)
	return c.out, nil
}

// take is Step for an event that was checked; it appends to c.out.
func (c *Coordinator) take(now int64, e *Event) {
	c.now = now
	switch e.Kind {
	case EventStart:
		c.req, c.attempt, c.recover = e.Request, 0, false
		c.begin()
	case EventRelease:
		c.release(e.Devices)
	case EventRecover:
		if c.stage == stageRecover {
			c.recover = true
			c.settle()
		}
	case EventMessage:
		c.receive(&e.Message)
	case EventDone:
		c.done(e)
	}
	c.watch()
}

// refuse says why an event cannot be taken.
func (c *Coordinator) refuse(now int64, e *Event) error {
	if e.Kind < EventTick || e.Kind > EventProgress {
		return fault(lockstep.ErrInvalid, "step", "Kind", strconv.Itoa(int(e.Kind)), "is no kind of event")
	}
	if e.Kind == EventRelease {
		return c.badDevices(e.Devices)
	}
	if e.Kind != EventStart {
		return nil
	}
	if err := e.Request.Validate(); err != nil {
		return err
	}
	conflict := func(field, reason string) error {
		return fault(lockstep.ErrConflict, "start", field, "", reason)
	}
	switch {
	case c.stage == stageLost || c.fenced:
		return fault(ErrFenced, "start", "Term", strconv.FormatUint(uint64(c.cfg.Term), 10), "a newer leader has taken over")
	case c.stage == stageRecover:
		return conflict("epoch", "how epoch "+strconv.FormatUint(uint64(c.epoch), 10)+" ended has to be found out first")
	case c.stage != stageIdle:
		return conflict("epoch", "another request is under way")
	case c.stopped:
		return conflict("job", "its ranks were terminated")
	case max(c.epoch, c.seen) == math.MaxUint64:
		return conflict("epoch", "there are no numbers left")
	case now < c.until:
		return conflict("aborts", strconv.Itoa(c.aborts)+" in a row; refused until "+lockstep.FromNanos(c.until).Format(time.RFC3339))
	}
	return nil
}

func (c *Coordinator) badDevices(list [][]DevicePair) error {
	if list != nil && len(list) != c.cfg.Ranks {
		return fault(lockstep.ErrInvalid, "release", "Devices", strconv.Itoa(len(list)), "want one for each of "+strconv.Itoa(c.cfg.Ranks)+" ranks, or nil")
	}
	for i, m := range list {
		if err := checkPairs(m); err != nil {
			return fault(lockstep.ErrInvalid, "release", "Devices["+strconv.Itoa(i)+"]", "", err.Error())
		}
	}
	return nil
}

// NextWake returns when time alone will change something, and whether it will.
func (c *Coordinator) NextWake() (time.Time, bool) {
	at := int64(instant.Never)
	switch c.stage {
	case stageIdle, stageRecover, stageLost:
		return time.Time{}, false
	case stageWaiting, stageAsking, stagePreparing, stageSnapshot, stageFinishing:
		at = c.deadline
	case stageCommitting, stageSettling:
		if c.op == 0 {
			at = c.deadline
		}
	}
	if c.stage != stageWaiting {
		at = min(at, c.resend)
	}
	return lockstep.FromNanos(at), at != instant.Never
}

// Progress returns where each rank is, by rank.
func (c *Coordinator) Progress() []Progress {
	list := make([]Progress, len(c.seats))
	for i := range c.seats {
		s := &c.seats[i]
		list[i] = Progress{Rank: i, Phase: s.said, State: s.state, Bytes: s.bytes, Step: s.step}
	}
	return list
}

// Pending returns the epoch that this leader was restored with and has to
// recover before it takes requests; ok is false if there is none.
func (c *Coordinator) Pending() (e Epoch, ok bool) { return c.epoch, c.stage == stageRecover }

// begin enters the next epoch.
func (c *Coordinator) begin() {
	c.attempt++
	c.epoch = max(c.epoch, c.seen) + 1
	c.open = true
	c.seats, c.count = make([]seat, c.cfg.Ranks), tally{}
	c.began, c.stop, c.early, c.manifest, c.decision = c.now, 0, false, nil, ""
	c.reason, c.blame, c.tries, c.devices = "", nil, 0, nil
	c.save() // the number has to be burnt before anybody hears it
	if c.req.Cooperative {
		c.enter(stageAsking, c.cfg.LockTimeout)
	} else {
		c.enter(stagePreparing, c.cfg.LockTimeout)
	}
}

func (c *Coordinator) save() {
	c.ops++
	c.record = c.ops
	c.out = append(c.out, Action{Kind: ActionRecord, Op: c.ops, Epoch: c.epoch})
}

// enter begins a stage and says its word to everybody.
func (c *Coordinator) enter(s stage, limit time.Duration) {
	c.stage, c.deadline = s, instant.Add(c.now, limit)
	c.speak()
}

// speak tells every rank what the stage wants of it. Said again, it is what
// keeps a rank from thinking that it is alone.
func (c *Coordinator) speak() {
	c.resend = instant.Add(c.now, c.cfg.Resend)
	turn := true
	for i := range c.seats {
		if kind := c.word(i, turn); kind != "" {
			c.send(i, kind)
		}
		if c.req.Sequential {
			turn = turn && c.answered(i)
		}
	}
}

// word is what rank i is to be told, whose turn it is or not yet.
func (c *Coordinator) word(i int, turn bool) string {
	s := &c.seats[i]
	switch c.stage {
	case stageAsking:
		return msgAsk
	case stagePreparing:
		if turn {
			return msgPrepare
		}
	case stageSnapshot, stageHeld, stageCommitting, stageSettling:
		switch {
		case c.recover:
			return ""
		case c.early:
			return msgResume
		case turn:
			return msgSnapshot
		}
		return msgPrepare
	case stageFinishing:
		if turn || s.said == "" {
			return c.decision
		}
		if s.final == "" && !c.recover {
			return msgPrepare // it has to wait, and is not alone
		}
	}
	return ""
}

// answered says whether rank i has done what the stage wants of it.
func (c *Coordinator) answered(i int) bool {
	s := &c.seats[i]
	switch {
	case s.final != "" || s.stored:
		return c.stage != stageFinishing || s.final != ""
	case c.stage == stagePreparing:
		return s.ready
	case c.stage == stageSnapshot, c.stage == stageHeld:
		return s.staged
	case c.stage == stageAsking:
		return s.stepped
	}
	return c.stage != stageFinishing
}

func (c *Coordinator) send(i int, kind string) {
	m := Message{Kind: kind, Job: c.cfg.Job, Rank: i, Epoch: c.epoch, Term: c.cfg.Term}
	switch kind {
	case msgPrepare:
		m.Plan = c.plan()
	case msgAbort:
		if c.devices != nil {
			m.Devices = c.devices[i]
		}
	}
	c.out = append(c.out, Action{Kind: ActionSend, Epoch: c.epoch, Message: m})
}

// plan is what all ranks are told. The lock ends before the leader gives up, so
// that a rank which could not lock can still say so.
func (c *Coordinator) plan() Plan {
	left := c.cfg.LockTimeout
	if c.stage == stagePreparing {
		left = time.Duration(max(c.deadline-c.now, 0))
	}
	return Plan{
		Lock: max(left/5*4, time.Millisecond), Silence: c.cfg.Silence, Pause: c.cfg.MaxPause, StopStep: c.stop,
		Cooperative: c.req.Cooperative, StopAfter: c.req.StopAfter, Early: c.req.Early, Hold: c.req.Hold,
	}
}

// watch does what is due.
func (c *Coordinator) watch() {
	if c.stage == stageIdle || c.stage == stageRecover || c.stage == stageLost {
		return
	}
	if c.now >= c.deadline {
		c.expire()
	}
	switch c.stage {
	case stageIdle, stageRecover, stageLost, stageWaiting:
	default:
		if c.now >= c.resend {
			c.speak()
		}
	}
}

// expire is the end of a stage's time.
func (c *Coordinator) expire() {
	switch c.stage {
	case stageAsking, stagePreparing, stageSnapshot:
		c.abort(reasonTimeout, c.late())
	case stageCommitting:
		if c.op == 0 {
			c.commit()
		}
	case stageSettling:
		if c.op == 0 {
			c.settle()
		}
	case stageFinishing:
		c.end()
	case stageWaiting:
		c.begin()
	}
}

// late is who has not answered.
func (c *Coordinator) late() []RankFault {
	var list []RankFault
	for i := range c.seats {
		if !c.answered(i) {
			list = append(list, c.fault(i, reasonTimeout))
		}
	}
	return list
}

func (c *Coordinator) fault(i int, reason lockstep.Reason) RankFault {
	s := &c.seats[i]
	return RankFault{Rank: i, Reason: reason, State: s.state, Detail: s.detail}
}

// release gives up what is not decided.
func (c *Coordinator) release(devices [][]DevicePair) {
	switch c.stage {
	case stageAsking, stagePreparing, stageSnapshot, stageHeld:
		c.devices = make([][]DevicePair, len(devices))
		for i := range devices {
			c.devices[i] = slices.Clone(devices[i])
		}
		if devices == nil {
			c.devices = nil
		}
		c.abort(reasonReleased, nil)
	case stageWaiting:
		c.reason = reasonReleased
		c.close(Report{Outcome: OutcomeAborted})
	}
}

// backoff is how long to wait before the next attempt: growing, and anywhere
// from a half to one and a half of that, so that jobs that share a store do not
// come back together.
func (c *Coordinator) backoff() time.Duration {
	mean := int64(c.cfg.Backoff) << min(max(c.attempt-1, 0), 6)
	if mean < 0 || mean > int64(maxWait) {
		mean = int64(maxWait)
	}
	r := rand.New(rand.NewPCG(c.cfg.Seed, uint64(c.epoch)))
	return time.Duration(mean/2 + r.Int64N(mean+1))
}
