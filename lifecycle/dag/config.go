package dag

import (
	"errors"
	"slices"
	"strconv"
	"unicode/utf8"

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
	ID       StepID `json:"id"`                 // ID is unique in the workflow; 1 to 253 bytes of UTF-8.
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
		if s.ID == "" || len(s.ID) > maxID || !utf8.ValidString(string(s.ID)) {
			add(lockstep.ErrInvalid, at+".ID", errtext.Quote(s.ID), "want 1 to 253 bytes of UTF-8")
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
			return c.spell(append(path[first:], at))
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
}

// spell writes a path of steps that wait for each other in the order of running; of a long one the first eight and the
// last.
func (c Config) spell(path []int) string {
	slices.Reverse(path)
	text := errtext.Quote(c.Steps[path[0]].ID)
	for k, i := range path[1:] {
		if k == 7 && len(path) > 10 {
			return text + " -> ... -> " + errtext.Quote(c.Steps[path[len(path)-1]].ID)
		}
		text += " -> " + errtext.Quote(c.Steps[i].ID)
	}
	return text
}
