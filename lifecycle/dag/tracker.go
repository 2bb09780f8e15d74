package dag

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
)

// StepID names a step of a workflow.
type StepID string

// Condition is how the step before must have ended.
type Condition string

// The conditions.
const (
	OnSuccess Condition = ""        // OnSuccess: it succeeded.
	OnFailure Condition = "failure" // OnFailure: it failed, all retries included.
	Always    Condition = "always"  // Always: it ended, or was skipped.
)

// Edge makes a step wait for another.
type Edge struct {
	Step StepID    `json:"step"`           // Step is which one.
	When Condition `json:"when,omitempty"` // When is how it must have ended.
}

// Step is one unit of a workflow.
type Step struct {
	ID       StepID `json:"id"`                 // ID is unique in the workflow; 1 to 253 bytes.
	After    []Edge `json:"after,omitempty"`    // After are the steps that it waits for, each once; none means that it may start at once.
	Retries  int    `json:"retries,omitempty"`  // Retries is how often it may be started again after a failure.
	Optional bool   `json:"optional,omitempty"` // Optional says that its failure does not make the workflow fail.
}

// Policy is what a failure does to the rest.
type Policy string

// The policies.
const (
	FailFast Policy = ""         // FailFast: nothing more starts but what handles failures.
	Continue Policy = "continue" // Continue: what does not depend on the failed step goes on.
)

// Bounds of a workflow.
const (
	MaxSteps  = 100_000  // MaxSteps is how many steps a workflow may have.
	MaxEdges  = 1 << 20  // MaxEdges is how many edges all steps may have together.
	MaxOutput = 64 << 10 // MaxOutput is how many bytes the names and values of one step's outputs may have together.
	maxID     = 253
)

// Config is a workflow. Its zero value is one without steps, which is over at once.
type Config struct {
	Steps     []Step `json:"steps,omitempty"`     // Steps are in the order in which those that are ready are listed.
	OnFailure Policy `json:"onFailure,omitempty"` // OnFailure is what a final failure does; "" means FailFast.
}

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
	Name  string `json:"name"`           // Name is unique among the outputs of the step.
	Value string `json:"value"`          // Value is passed as it is.
}

// Tracker holds one run of a workflow. Make one with New or Restore.
type Tracker struct {
	cfg     Config
	index   map[StepID]int
	behind  [][]behind // by step, the edges that leave it
	steps   []state
	ready   []int // sorted
	left    int   // steps that are not over
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
	waits   int // edges whose step is not over
	used    int // attempts started
	attempt lockstep.Attempt
	outputs []Output
}

// New returns a run in which nothing has started, or the faults of cfg, of which it keeps a copy.
func New(cfg Config) (*Tracker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Steps = slices.Clone(cfg.Steps)
	t := &Tracker{cfg: cfg, index: make(map[StepID]int, len(cfg.Steps)), behind: make([][]behind, len(cfg.Steps)), steps: make([]state, len(cfg.Steps)), left: len(cfg.Steps)}
	for i := range cfg.Steps {
		s := &cfg.Steps[i]
		s.After = slices.Clone(s.After)
		t.index[s.ID] = i
	}
	for i, s := range cfg.Steps {
		t.steps[i] = state{status: Waiting, waits: len(s.After)}
		for _, e := range s.After {
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
	for _, i := range t.ready {
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
	t.unready(i)
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

// Finish says how an attempt ended. What a success puts out is kept, sorted by name, and handed to the steps behind;
// with any other end outputs must be nil.
func (t *Tracker) Finish(id StepID, attempt lockstep.Attempt, end End, outputs []Output) (Answer, error) {
	i, err := t.find("finish", id)
	if err != nil {
		return "", err
	}
	if attempt == 0 || attempt > t.last {
		return "", fault(lockstep.ErrUnknown, "finish", "attempt", strconv.FormatUint(uint64(attempt), 10), "was never started")
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
		at := "outputs[" + strconv.Itoa(i) + "].Name"
		switch {
		case o.Name == "":
			return fault(lockstep.ErrInvalid, "finish", at, `""`, "want a name")
		case seen[o.Name]:
			return fault(lockstep.ErrDuplicate, "finish", at, errtext.Quote(o.Name), "is given twice")
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
// appends with their steps, are the host's to stop; the run is over when all of them have ended.
func (t *Tracker) Cancel(dst []StepID) []StepID {
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
func (t *Tracker) halted(i int) bool { return t.stopped || (t.failed && !t.handles(i)) }

// handles reports whether a step is there for failures.
func (t *Tracker) handles(i int) bool {
	return slices.ContainsFunc(t.cfg.Steps[i].After, func(e Edge) bool { return e.When != OnSuccess })
}

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
	if t.steps[i].status == Ready {
		t.unready(i)
	}
	t.steps[i].status = Skipped
	t.left--
}

// makeReady lists a step among those that may start.
func (t *Tracker) makeReady(i int) {
	t.steps[i].status = Ready
	at, _ := slices.BinarySearch(t.ready, i)
	t.ready = slices.Insert(t.ready, at, i)
}

// unready takes a step off that list.
func (t *Tracker) unready(i int) {
	at, _ := slices.BinarySearch(t.ready, i)
	t.ready = slices.Delete(t.ready, at, at+1)
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

// Validate reports every fault of c, joined. A cycle is looked for only if there is no other.
func (c Config) Validate() error {
	var errs []error
	add := func(kind error, field, value, reason string) {
		errs = append(errs, fault(kind, "config", field, value, reason))
	}
	if c.OnFailure != FailFast && c.OnFailure != Continue {
		add(lockstep.ErrInvalid, "OnFailure", strconv.Quote(string(c.OnFailure)), `want "" or "continue"`)
	}
	edges := 0
	for _, s := range c.Steps {
		edges += len(s.After)
	}
	if len(c.Steps) > MaxSteps || edges > MaxEdges {
		add(lockstep.ErrInvalid, "Steps", strconv.Itoa(len(c.Steps))+" with "+strconv.Itoa(edges)+" edges", "want at most "+strconv.Itoa(MaxSteps)+" with "+strconv.Itoa(MaxEdges))
		return errors.Join(errs...)
	}
	index := make(map[StepID]int, len(c.Steps))
	for i, s := range c.Steps {
		at := "Steps[" + strconv.Itoa(i) + "]"
		if s.ID == "" || len(s.ID) > maxID {
			add(lockstep.ErrInvalid, at+".ID", errtext.Quote(s.ID), "want 1 to 253 bytes")
		}
		if _, ok := index[s.ID]; ok {
			add(lockstep.ErrDuplicate, at+".ID", errtext.Quote(s.ID), "is given twice")
		}
		index[s.ID] = i
		if s.Retries < 0 {
			add(lockstep.ErrInvalid, at+".Retries", strconv.Itoa(s.Retries), "want 0 or more")
		}
	}
	errs = append(errs, c.checkEdges(index)...)
	if len(errs) == 0 {
		if cycle := c.cycle(index); cycle != "" {
			add(lockstep.ErrInvalid, "Steps", cycle, "is a cycle")
		}
	}
	return errors.Join(errs...)
}

// checkEdges reports the faults of all edges.
func (c Config) checkEdges(index map[StepID]int) []error {
	var errs []error
	seen := make(map[StepID]int)
	for i, s := range c.Steps {
		for k, e := range s.After {
			at := "Steps[" + strconv.Itoa(i) + "].After[" + strconv.Itoa(k) + "]"
			if _, ok := index[e.Step]; !ok {
				errs = append(errs, fault(lockstep.ErrInvalid, "config", at+".Step", errtext.Quote(e.Step), "is no step of the workflow"))
			}
			if seen[e.Step] == i+1 {
				errs = append(errs, fault(lockstep.ErrDuplicate, "config", at+".Step", errtext.Quote(e.Step), "is given twice"))
			}
			seen[e.Step] = i + 1
			if e.When != OnSuccess && e.When != OnFailure && e.When != Always {
				errs = append(errs, fault(lockstep.ErrInvalid, "config", at+".When", strconv.Quote(string(e.When)), `want "", "failure" or "always"`))
			}
		}
	}
	return errs
}

// cycle spells out a cycle, or returns "". It takes steps away that wait for nothing; from any that is left, going
// from step to step that it waits for comes round.
func (c Config) cycle(index map[StepID]int) string {
	waits := make([]int, len(c.Steps))
	to := make([][]int, len(c.Steps))
	var free []int
	for i, s := range c.Steps {
		waits[i] = len(s.After)
		for _, e := range s.After {
			to[index[e.Step]] = append(to[index[e.Step]], i)
		}
		if waits[i] == 0 {
			free = append(free, i)
		}
	}
	for k := 0; k < len(free); k++ {
		for _, j := range to[free[k]] {
			if waits[j]--; waits[j] == 0 {
				free = append(free, j)
			}
		}
	}
	at := slices.IndexFunc(waits, func(n int) bool { return n > 0 })
	if at < 0 {
		return ""
	}
	place := make(map[int]int)
	var path []int
	for {
		if first, ok := place[at]; ok {
			path = append(path[first:], at)
			break
		}
		place[at] = len(path)
		path = append(path, at)
		for _, e := range c.Steps[at].After {
			if j := index[e.Step]; waits[j] > 0 {
				at = j
				break
			}
		}
	}
	slices.Reverse(path) // so that it reads in the order of running
	text := ""
	for k, i := range path {
		if k > 0 {
			text += " -> "
		}
		if k == 8 && len(path) > 10 {
			text += "... -> "
			i = path[len(path)-1]
			return text + string(c.Steps[i].ID)
		}
		text += string(c.Steps[i].ID)
	}
	return text
}
