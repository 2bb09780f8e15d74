package lifecycle

import (
	"slices"
	"time"
)

// Cause is why an attempt ended, or is to end.
type Cause string

// The causes. A host may add its own and name them in rules.
const (
	CauseExit     Cause = "exit"     // CauseExit: it ended by itself; the exit code says how.
	CausePreempt  Cause = "preempt"  // CausePreempt: its devices went to others.
	CauseSuspend  Cause = "suspend"  // CauseSuspend: somebody suspended it.
	CauseCancel   Cause = "cancel"   // CauseCancel: its owner does not want it any more.
	CauseDeadline Cause = "deadline" // CauseDeadline: its own deadline passed.
	CauseInfra    Cause = "infra"    // CauseInfra: a node, device or network failed.
	CauseStart    Cause = "start"    // CauseStart: it did not come up in time.
	CauseMemory   Cause = "memory"   // CauseMemory: it ran out of memory.
	CauseSetup    Cause = "setup"    // CauseSetup: its image or configuration is wrong.
)

// Exit is what is known of how an attempt ended.
type Exit struct {
	Code        int  `json:"code"`                  // Code is the exit code of the member that failed first; 128+n for signal n.
	OutOfMemory bool `json:"outOfMemory,omitempty"` // OutOfMemory says that there is evidence of it.
	Saved       bool `json:"saved,omitempty"`       // Saved says that the work until the exit is durable.
	Done        bool `json:"done,omitempty"`        // Done says that the work is complete: it counts as CauseExit with code 0, whatever was intended.
}

// Rule says where a job goes whose attempt ended in a certain way.
type Rule struct {
	Causes   []Cause `json:"causes,omitempty"`   // Causes match any of them; none matches every cause.
	Codes    []int   `json:"codes,omitempty"`    // Codes match any of them; none matches every code.
	NotCodes bool    `json:"notCodes,omitempty"` // NotCodes makes Codes match all others instead.
	To       State   `json:"to"`                 // To is a state that may follow Cleaning, or Held.
	Budget   string  `json:"budget,omitempty"`   // Budget pays for it, one each time; empty means that it is free.
}

// matches reports whether r is about this cause and code.
func (r *Rule) matches(cause Cause, code int) bool {
	if len(r.Causes) > 0 && !slices.Contains(r.Causes, cause) {
		return false
	}
	return len(r.Codes) == 0 || slices.Contains(r.Codes, code) != r.NotCodes
}

// Budget is how often a job may be tried again for one kind of cause.
type Budget struct {
	Name  string `json:"name"`  // Name is what rules call it.
	Limit int    `json:"limit"` // Limit is how many charges it bears; the next one fails the job.
}

// DefaultRules returns the rules of a Config that has none.
func DefaultRules() []Rule {
	return []Rule{
		{Causes: []Cause{CauseCancel}, To: Cancelled},
		{Causes: []Cause{CauseDeadline}, To: DeadlineExceeded},
		{Causes: []Cause{CausePreempt}, To: Queued},
		{Causes: []Cause{CauseSuspend}, To: Suspended},
		{Causes: []Cause{CauseInfra}, To: Backoff, Budget: "infra"},
		{Causes: []Cause{CauseStart}, To: Backoff, Budget: "start"},
		{Causes: []Cause{CauseMemory, CauseSetup}, To: Held},
		{Causes: []Cause{CauseExit}, Codes: []int{0}, To: Succeeded},
		{Causes: []Cause{CauseExit}, Codes: []int{126, 127}, To: Failed}, // not executable, not found
		{To: Backoff, Budget: "app"},
	}
}

// DefaultBudgets returns the budgets of a Config that has none.
func DefaultBudgets() []Budget {
	return []Budget{{"app", 3}, {"infra", 20}, {"start", 5}}
}

// used is how much of a budget a job has charged.
type used struct {
	Name string `json:"name"`
	N    int    `json:"n"`
}

// verdict decides where the attempt of j that ended leads, and charges for it.
func (m *Machine) verdict(j *job) {
	cause := j.Cause
	switch {
	case j.Exit.Done:
		cause, j.Exit.Code = CauseExit, 0
	case cause != "":
	case j.Exit.OutOfMemory:
		cause = CauseMemory
	default:
		cause = CauseExit
	}
	j.Cause = cause
	if j.Ran >= int64(m.cfg.Stable) {
		j.Used = nil
	}
	j.To, j.Budget, j.Charges = Failed, "", 0
	for i := range m.cfg.Rules {
		r := &m.cfg.Rules[i]
		if !r.matches(cause, j.Exit.Code) {
			continue
		}
		j.To, j.Budget = r.To, r.Budget
		break
	}
	if j.Budget == "" {
		return
	}
	i := slices.IndexFunc(j.Used, func(u used) bool { return u.Name == j.Budget })
	if i < 0 {
		i = len(j.Used)
		j.Used = append(j.Used, used{Name: j.Budget})
	}
	j.Used[i].N++
	j.Charges = j.Used[i].N
	if j.Charges > m.limit(j.Budget) {
		j.To = Failed
	}
}

func (m *Machine) limit(budget string) int {
	for _, b := range m.cfg.Budgets {
		if b.Name == budget {
			return b.Limit
		}
	}
	return 0 // Validate refuses rules that name no budget
}

// delay returns the wait before attempt n of a budget: it doubles up to the most.
func (m *Machine) delay(n int) time.Duration {
	d := m.cfg.Backoff
	for ; n > 1 && d < m.cfg.BackoffMax; n-- {
		d = min(d, m.cfg.BackoffMax/2+1) * 2 // no overflow
	}
	return min(d, m.cfg.BackoffMax)
}
