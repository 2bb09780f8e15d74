package dag

import (
	"cmp"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// Status is where a step is.
type Status string

// The states of a step. The last four are ends.
const (
	Waiting   Status = "waiting"   // Waiting: for a step before it.
	Ready     Status = "ready"     // Ready: it may start.
	Running   Status = "running"   // Running: an attempt was started.
	Succeeded Status = "succeeded" // Succeeded: its last attempt did.
	Failed    Status = "failed"    // Failed: its last attempt did, and there is no other.
	Skipped   Status = "skipped"   // Skipped: an edge can no longer hold, or the run was stopped before it started.
	Cancelled Status = "cancelled" // Cancelled: its attempt was stopped with the run.
)

// Over reports whether s is an end.
func (s Status) Over() bool {
	return s == Succeeded || s == Failed || s == Skipped || s == Cancelled
}

// End is how an attempt ended.
type End string

// The ends of an attempt.
const (
	Success End = "success" // Success: it did what it was to do.
	Failure End = "failure" // Failure: it may be tried again, if the step has retries left.
	Fatal   End = "fatal"   // Fatal: a failure that another try would meet again.
	Stopped End = "stopped" // Stopped: it was stopped on request; not a failure, and not tried again.
)

// Output is something that a step hands on.
type Output struct {
	Step  StepID `json:"step,omitempty"` // Step is whose it is; Finish fills it in.
	Name  string `json:"name"`           // Name is unique among the outputs of the step; UTF-8, not empty.
	Value string `json:"value"`          // Value is passed as it is; UTF-8.
}

// Tracker holds one run of a workflow. Make one with New or Restore.
type Tracker struct {
	cfg     Config
	index   map[StepID]int
	behind  [][]behind // by step, the edges that leave it
	steps   []state
	ready   set
	left    int // steps that are not over
	last    lockstep.Attempt
	stopped bool // by Cancel
	failed  bool // by a final failure under FailFast
}

// behind is an edge from its start.
type behind struct {
	to   int
	when Condition
}

// state is one step of a run.
type state struct {
	status  Status
	handles bool // has an edge that a failure satisfies; as configured
	waits   int  // edges whose step is not over
	used    int  // attempts started
	attempt lockstep.Attempt
	outputs []Output
}

// New returns a run in which nothing has started, or the faults of cfg, of which it keeps a copy.
func New(cfg Config) (*Tracker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Steps = slices.Clone(cfg.Steps)
	t := &Tracker{cfg: cfg, index: make(map[StepID]int, len(cfg.Steps)), behind: make([][]behind, len(cfg.Steps)), steps: make([]state, len(cfg.Steps)), ready: newSet(len(cfg.Steps)), left: len(cfg.Steps)}
	for i := range cfg.Steps {
		s := &cfg.Steps[i]
		s.After = slices.Clone(s.After)
		t.index[s.ID] = i
	}
	for i, s := range cfg.Steps {
		t.steps[i] = state{status: Waiting, waits: len(s.After)}
		for _, e := range s.After {
			t.steps[i].handles = t.steps[i].handles || e.When != OnSuccess
			from := t.index[e.Step]
			t.behind[from] = append(t.behind[from], behind{i, e.When})
		}
		if len(s.After) == 0 {
			t.makeReady(i)
		}
	}
	return t, nil
}

// AppendReady appends the steps that may start.
func (t *Tracker) AppendReady(dst []StepID) []StepID {
	for i := range t.ready.all {
		dst = append(dst, t.cfg.Steps[i].ID)
	}
	return dst
}

// Start begins an attempt of a step that is ready and returns its number, which is greater than that of every attempt
// before it in the run. Numbers start at 1.
func (t *Tracker) Start(id StepID) (lockstep.Attempt, error) {
	i, err := t.find("start", id)
	if err != nil {
		return 0, err
	}
	s := &t.steps[i]
	if s.status != Ready {
		return 0, fault(lockstep.ErrConflict, "start", "id", errtext.Quote(id), "is "+string(s.status)+", not ready")
	}
	t.ready.remove(i)
	t.last++
	s.status, s.attempt = Running, t.last
	s.used++
	return t.last, nil
}

// Answer is what became of the end of an attempt.
type Answer string

// The answers.
const (
	Ended Answer = "ended" // Ended: the step is over.
	Again Answer = "again" // Again: the step is ready for another attempt.
	Stale Answer = "stale" // Stale: the attempt was over already, and nothing changed.
)

// Finish says how an attempt of a step ended, the last one or one before it. What a success puts out is kept, sorted by name, and handed to the steps behind;
// with any other end outputs must be nil.
func (t *Tracker) Finish(id StepID, attempt lockstep.Attempt, end End, outputs []Output) (Answer, error) {
	i, err := t.find("finish", id)
	if err != nil {
		return "", err
	}
	if attempt == 0 || attempt > t.steps[i].attempt {
		return "", fault(lockstep.ErrUnknown, "finish", "attempt", strconv.FormatUint(uint64(attempt), 10), "was never started, or is of another step")
	}
	if err := checkEnd(end, outputs); err != nil {
		return "", err
	}
	s := &t.steps[i]
	if s.status != Running || s.attempt != attempt {
		return Stale, nil
	}
	switch {
	case end == Success:
		s.outputs = keep(id, outputs)
		t.end(i, Succeeded)
	case end == Stopped:
		t.end(i, Cancelled)
	case end == Failure && s.used <= t.cfg.Steps[i].Retries && !t.halted(i):
		t.makeReady(i)
		return Again, nil
	default:
		t.end(i, Failed)
	}
	return Ended, nil
}

// keep copies outputs, sorted by name, under their step.
func keep(id StepID, outputs []Output) []Output {
	out := slices.Clone(outputs)
	for i := range out {
		out[i].Step = id
	}
	slices.SortFunc(out, func(a, b Output) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// checkEnd checks what an attempt is said to have done.
func checkEnd(end End, outputs []Output) error {
	switch end {
	case Success, Failure, Fatal, Stopped:
	default:
		return fault(lockstep.ErrInvalid, "finish", "end", strconv.Quote(string(end)), `want "success", "failure", "fatal" or "stopped"`)
	}
	if end != Success && len(outputs) > 0 {
		return fault(lockstep.ErrInvalid, "finish", "outputs", strconv.Itoa(len(outputs)), "only a success puts something out")
	}
	size := 0
	seen := make(map[string]bool, len(outputs))
	for i, o := range outputs {
		at := "outputs[" + strconv.Itoa(i) + "]."
		switch {
		case o.Name == "" || !utf8.ValidString(o.Name):
			return fault(lockstep.ErrInvalid, "finish", at+"Name", errtext.Quote(o.Name), "want a name in UTF-8")
		case !utf8.ValidString(o.Value):
			return fault(lockstep.ErrInvalid, "finish", at+"Value", errtext.Quote(o.Value), "want UTF-8")
		case seen[o.Name]:
			return fault(lockstep.ErrDuplicate, "finish", at+"Name", errtext.Quote(o.Name), "is given twice")
		}
		seen[o.Name] = true
		size += len(o.Name) + len(o.Value)
	}
	if size > MaxOutput {
		return fault(lockstep.ErrInvalid, "finish", "outputs", strconv.Itoa(size)+" bytes", "want at most "+strconv.Itoa(MaxOutput))
	}
	return nil
}

// AppendInputs appends what the steps before id put out, in the order of its edges, then by name. It may be asked at
// any time; what is not there yet is missing.
func (t *Tracker) AppendInputs(dst []Output, id StepID) ([]Output, error) {
	i, err := t.find("inputs", id)
	if err != nil {
		return dst, err
	}
	for _, e := range t.cfg.Steps[i].After {
		dst = append(dst, t.steps[t.index[e.Step]].outputs...)
	}
	return dst, nil
}

// Cancel stops the run: what has not started is skipped, and nothing is tried again. The attempts under way, which it
// appends with their steps, are the host's to stop; the run is over when all of them have ended. A run that is over
// stays as it is.
func (t *Tracker) Cancel(dst []StepID) []StepID {
	if t.left == 0 {
		return dst
	}
	t.stopped = true
	for i := range t.steps {
		if s := &t.steps[i]; s.status == Waiting || s.status == Ready {
			t.skipOne(i)
		}
	}
	for i := range t.steps {
		if t.steps[i].status == Running {
			dst = append(dst, t.cfg.Steps[i].ID)
		}
	}
	return dst
}

// Status returns where a step is and its last attempt, 0 if it never started.
func (t *Tracker) Status(id StepID) (Status, lockstep.Attempt, bool) {
	i, ok := t.index[id]
	if !ok {
		return "", 0, false
	}
	return t.steps[i].status, t.steps[i].attempt, true
}

// Result returns how the run ended: Cancelled if Cancel stopped it or a step was stopped, else Failed if a step that
// is not Optional failed, else Succeeded. Until then it is Running, and ok is false.
func (t *Tracker) Result() (Status, bool) {
	if t.left > 0 {
		return Running, false
	}
	result := Succeeded
	for i, s := range t.steps {
		switch {
		case s.status == Cancelled:
			return Cancelled, true
		case s.status == Failed && !t.cfg.Steps[i].Optional:
			result = Failed
		}
	}
	if t.stopped {
		return Cancelled, true
	}
	return result, true
}

// end settles a step and what follows from it.
func (t *Tracker) end(i int, status Status) {
	t.steps[i].status = status
	t.left--
	if status == Failed && !t.cfg.Steps[i].Optional && t.cfg.OnFailure == FailFast && !t.failed {
		t.failed = true
		t.spread(i)
		for j := range t.steps {
			if s := &t.steps[j]; (s.status == Waiting || s.status == Ready) && t.halted(j) {
				t.skipOne(j)
				t.spread(j)
			}
		}
		return
	}
	t.spread(i)
}

// halted reports whether a step may not be started any more, whatever it comes after.
func (t *Tracker) halted(i int) bool { return t.stopped || (t.failed && !t.steps[i].handles) }

// holds reports whether a step that has ended as status satisfies an edge.
func holds(when Condition, status Status) bool {
	switch when {
	case OnSuccess:
		return status == Succeeded
	case OnFailure:
		return status == Failed
	}
	return true
}

// spread tells the steps behind i that it is over. A step may be behind a skipped one and so on, to any depth, so that
// the steps to tell about are a list and not a recursion.
func (t *Tracker) spread(i int) {
	for list := []int{i}; len(list) > 0; {
		from := list[0]
		list = list[1:]
		status := t.steps[from].status
		for _, b := range t.behind[from] {
			s := &t.steps[b.to]
			s.waits--
			switch {
			case s.status != Waiting:
			case !holds(b.when, status), t.halted(b.to):
				t.skipOne(b.to)
				list = append(list, b.to)
			case s.waits == 0:
				t.makeReady(b.to)
			}
		}
	}
}

// skipOne ends a step that has not started.
func (t *Tracker) skipOne(i int) {
	t.ready.remove(i)
	t.steps[i].status = Skipped
	t.left--
}

// makeReady lists a step among those that may start.
func (t *Tracker) makeReady(i int) {
	t.steps[i].status = Ready
	t.ready.add(i)
}

// find looks a step up.
func (t *Tracker) find(call string, id StepID) (int, error) {
	i, ok := t.index[id]
	if !ok {
		return 0, fault(lockstep.ErrUnknown, call, "id", errtext.Quote(id), "is no step of the workflow")
	}
	return i, nil
}

// fault builds the error of a call of this package.
func fault(kind error, call, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "dag: " + call, Field: field, Value: value, Reason: reason}
}
