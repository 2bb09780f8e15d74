package interval

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
	"github.com/lockstep-gpu/lockstep/internal/errtext"
	"github.com/lockstep-gpu/lockstep/internal/int128"
)

// Reasons of this package.
const (
	ShortGrace lockstep.Reason = "short-grace" // ShortGrace: a save does not fit the warning, so that a preemption loses the work since the last one.
	NoProgress lockstep.Reason = "no-progress" // NoProgress: failures come faster than the job can be saved.
	Clamped    lockstep.Reason = "clamped"     // Clamped: Config.Min, Max or Share kept the interval from its best length.
)

// Link is one party that passes a warning on and kills when its time is up.
type Link struct {
	Name  string        `json:"name"`            // Name is who it is, such as "kubelet".
	Grace time.Duration `json:"grace"`           // Grace is how long it waits between the warning and the kill.
	Spent time.Duration `json:"spent,omitempty"` // Spent is what it uses of that by itself before the job hears of it, such as a preStop hook.
}

// Left returns what is left of the warning for the job, at least 0.
func (l Link) Left() time.Duration {
	switch {
	case l.Grace <= l.Spent:
		return 0
	case l.Spent < 0 && l.Grace > math.MaxInt64+l.Spent:
		return math.MaxInt64
	}
	return l.Grace - l.Spent
}

// Shortest returns the least of what the links leave, and which link that is: every one of them may kill the job. No
// links leave nothing.
func Shortest(chain []Link) (left time.Duration, at int) {
	at = -1
	for i, l := range chain {
		if at < 0 || l.Left() < left {
			left, at = l.Left(), i
		}
	}
	return left, at
}

// Need is what a job needs between a warning and the kill in order to lose nothing but a step. Give measured figures;
// Policy.Longest has one for Save.
type Need struct {
	Signal time.Duration `json:"signal,omitempty"` // Signal is how long the warning may take to reach the job.
	Step   time.Duration `json:"step,omitempty"`   // Step is a long step (P99), which is ended before the save.
	Save   time.Duration `json:"save,omitempty"`   // Save is a long save (P99).
	Flush  time.Duration `json:"flush,omitempty"`  // Flush is how long it may take until what was saved is durable.
	Margin int           `json:"margin,omitempty"` // Margin is what is added for safety, in thousandths of the sum; 0 means 250.
}

// defaultMargin is a quarter.
const defaultMargin = 250

// Total returns the sum of the parts and the margin, rounded up, at most lockstep.MaxWalltime. Parts and margins below 0
// count as none.
func (n Need) Total() time.Duration {
	sum := time.Duration(0)
	for _, d := range [...]time.Duration{n.Signal, n.Step, n.Save, n.Flush} {
		sum += min(max(d, 0), lockstep.MaxWalltime)
	}
	margin := max(n.Margin, 0)
	if n.Margin == 0 {
		margin = defaultMargin
	}
	add := min(int128.MulDivUp(int64(sum), int64(margin), thousand), int64(lockstep.MaxWalltime))
	return min(sum+time.Duration(add), lockstep.MaxWalltime)
}

const (
	thousand = 1_000
	million  = 1_000_000
)

// Contract is whether a job can be preempted without loss, and what it loses if not.
type Contract struct {
	Feasible bool            `json:"feasible"`         // Feasible says that the save fits the warning.
	Reason   lockstep.Reason `json:"reason,omitempty"` // Reason is ShortGrace where it does not.
	Grace    time.Duration   `json:"grace"`            // Grace is the shortest warning of the chain.
	Link     string          `json:"link,omitempty"`   // Link is the name of the link that gives it; "" if the chain is empty.
	Need     time.Duration   `json:"need"`             // Need is the time that the job needs.
	Expected time.Duration   `json:"expected"`         // Expected is the work that a preemption throws away on average.
	Worst    time.Duration   `json:"worst"`            // Worst is the most that it throws away.
}

// Check holds what a chain of warnings leaves against what a job needs that is otherwise saved once every interval.
// A preemption throws away a step at most where that suffices, else anything up to the interval, half of it on
// average. A job without periodic saves (interval 0) is taken to be saved by warnings only: its losses are then not
// bounded by anything known here, and Expected and Worst are lockstep.MaxWalltime if the contract does not hold.
func Check(chain []Link, need Need, interval time.Duration) (Contract, error) {
	if err := checkContract(chain, need, interval); err != nil {
		return Contract{}, err
	}
	c := Contract{Need: need.Total()}
	var at int
	if c.Grace, at = Shortest(chain); at >= 0 {
		c.Link = chain[at].Name
	}
	if c.Grace >= c.Need {
		c.Feasible, c.Expected, c.Worst = true, need.Step, need.Step
		return c, nil
	}
	c.Reason, c.Expected, c.Worst = ShortGrace, interval/2, interval
	if interval == 0 {
		c.Expected, c.Worst = lockstep.MaxWalltime, lockstep.MaxWalltime
	}
	return c, nil
}

// checkContract reports every fault.
func checkContract(chain []Link, n Need, interval time.Duration) error {
	var errs []error
	check := func(field string, d time.Duration) {
		if err := within("check", field, d); err != nil {
			errs = append(errs, err)
		}
	}
	for i, l := range chain {
		at := "chain[" + strconv.Itoa(i) + "]."
		check(at+"Grace", l.Grace)
		check(at+"Spent", l.Spent)
		if l.Spent > l.Grace {
			errs = append(errs, fault("check", at+"Spent", l.Spent.String(), "is more than the Grace of "+l.Grace.String()+" of "+errtext.Quote(l.Name)))
		}
	}
	check("need.Signal", n.Signal)
	check("need.Step", n.Step)
	check("need.Save", n.Save)
	check("need.Flush", n.Flush)
	check("interval", interval)
	if n.Margin < 0 || n.Margin > million {
		errs = append(errs, fault("check", "need.Margin", strconv.Itoa(n.Margin), "want 0 to 1000000"))
	}
	return errors.Join(errs...)
}

// Note returns the contract as a remark for a job's explanation, or for the refusal of its lease.
func (c Contract) Note() lockstep.Note {
	return lockstep.Note{Stage: "checkpoint", Reason: c.Reason, Detail: c.String()}
}

// String returns the contract on one line.
func (c Contract) String() string {
	from := ""
	if c.Link != "" {
		from = " (" + errtext.Quote(c.Link) + ")"
	}
	if c.Feasible {
		return fmt.Sprintf("a save needs %v of a warning of %v%s: a preemption loses at most %v", c.Need, c.Grace, from, c.Worst)
	}
	if c.Worst == lockstep.MaxWalltime {
		return fmt.Sprintf("a save needs %v but the warning is %v%s, and nothing else saves: a preemption loses all work", c.Need, c.Grace, from)
	}
	return fmt.Sprintf("a save needs %v but the warning is %v%s: a preemption loses %v on average, %v at worst", c.Need, c.Grace, from, c.Expected, c.Worst)
}

// Progress is what is known of a running job when it might be stopped.
type Progress struct {
	Saved    time.Time         // Saved is the moment whose work the last durable image holds, or when the job started if there is none.
	Save     time.Duration     // Save is how long a save takes.
	Restore  time.Duration     // Restore is how long it takes to resume, requeueing not counted.
	Step     time.Duration     // Step is the length of a training step.
	Devices  lockstep.MilliGPU // Devices is how much it holds; not negative.
	Contract Contract          // Contract says whether it is saved before it stops; the zero one says that it is not.
}

// Cost returns what stopping a job now throws away: a step at most and the time of a save where its contract holds,
// else all work since the last image.
func Cost(now time.Time, p Progress) (lockstep.EvictionCost, error) {
	var errs []error
	for _, x := range []struct {
		field string
		d     time.Duration
	}{{"Save", p.Save}, {"Restore", p.Restore}, {"Step", p.Step}} {
		if err := within("cost", "p."+x.field, x.d); err != nil {
			errs = append(errs, err)
		}
	}
	if p.Devices < 0 {
		errs = append(errs, fault("cost", "p.Devices", strconv.FormatInt(int64(p.Devices), 10), "want 0 or more"))
	}
	since, err := elapsed(p.Saved, now)
	if errs = append(errs, err); errors.Join(errs...) != nil {
		return lockstep.EvictionCost{}, errors.Join(errs...)
	}
	c := lockstep.EvictionCost{Lost: since, Restore: p.Restore, Devices: p.Devices}
	if p.Contract.Feasible {
		c.Lost, c.Save = min(p.Step, since), p.Save
	}
	return c, nil
}

// elapsed returns the time from then to now.
func elapsed(then, now time.Time) (time.Duration, error) {
	a, err := lockstep.Nanos(then)
	if err != nil {
		return 0, fault("cost", "p.Saved", then.String(), "is no time that can be kept")
	}
	b, err := lockstep.Nanos(now)
	if err != nil {
		return 0, fault("cost", "now", now.String(), "is no time that can be kept")
	}
	if b < a {
		return 0, &lockstep.Error{Kind: lockstep.ErrPast, Op: "interval: cost", Field: "now", Value: now.UTC().Format(time.RFC3339Nano), Reason: "is before p.Saved"}
	}
	if d := uint64(b) - uint64(a); d < uint64(lockstep.MaxWalltime) {
		return time.Duration(d), nil
	}
	return lockstep.MaxWalltime, nil
}
