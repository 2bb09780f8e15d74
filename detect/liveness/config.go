package liveness

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Method is how silence is judged.
type Method uint8

// The methods.
const (
	PhiAccrual Method = iota // PhiAccrual: by how unlikely the silence is, given the member's own intervals.
	Deadline                 // Deadline: by its length alone.
)

// String returns the name of m.
func (m Method) String() string { return nameOf(int(m), "phi", "deadline") }

// Rule is how long a rank may go without progress in a phase.
type Rule struct {
	Phase Phase         `json:"phase"`           // Phase is which.
	Gap   time.Duration `json:"gap"`             // Gap is how long it may go without progress, until enough is learned; positive.
	Least time.Duration `json:"least,omitempty"` // Least is what learning never goes below; 0 means 30 s, or Gap where that is less.
	Most  time.Duration `json:"most,omitempty"`  // Most is what learning never goes above; 0 means 4 times Gap.
	Fixed bool          `json:"fixed,omitempty"` // Fixed keeps Gap, whatever is learned: an operator's word.
	Pause time.Duration `json:"pause,omitempty"` // Pause is how much longer than otherwise a rank may be silent in this phase.
}

// Config configures a Monitor and a Coordinator; give both the same. The zero
// value is valid. Durations are at most lockstep.MaxWalltime.
type Config struct {
	Method       Method        `json:"method,omitempty"`       // Method is how silence is judged; zero is PhiAccrual.
	Interval     time.Duration `json:"interval,omitempty"`     // Interval is how often a member beats, as an estimate until it has shown it, at most 1 minute; 0 means 1 s.
	Window       int           `json:"window,omitempty"`       // Window is how many intervals are remembered of each, from 2 to 1000; 0 means 64.
	MinSigma     time.Duration `json:"minSigma,omitempty"`     // MinSigma is what the standard deviation is never taken to be below, at most 1 minute; 0 means 100 ms.
	Pause        time.Duration `json:"pause,omitempty"`        // Pause is how much later than the mean any beat may be; 0 means 3 s, and NoPause none.
	Suspect      int           `json:"suspect,omitempty"`      // Suspect is the phi, in thousandths, from which a member is Suspect, from 500 to Dead; 0 means 8000, as in Akka.
	Dead         int           `json:"dead,omitempty"`         // Dead is the phi, in thousandths, from which it is Dead, though not before DeadAfter; at most 300000; 0 means 12000.
	SuspectAfter time.Duration `json:"suspectAfter,omitempty"` // SuspectAfter is the silence after which Deadline has it Suspect; 0 means 5 s, as in torchft.
	DeadAfter    time.Duration `json:"deadAfter,omitempty"`    // DeadAfter is the silence after which Deadline has it Dead, not below SuspectAfter, and before which PhiAccrual has not, so that the doubt can be acted on; 0 means twice SuspectAfter. Better two intervals at least, so that a partition is seen first.
	Startup      time.Duration `json:"startup,omitempty"`      // Startup is how long after its join a first beat may take; 0 means 10 minutes.
	Reconnect    time.Duration `json:"reconnect,omitempty"`    // Reconnect is how long after Disconnected a member may take to beat again; 0 means that it is dead at once, unless so many closed together that it is a partition.
	Settle       time.Duration `json:"settle,omitempty"`       // Settle is how long a Suspect member has to beat before it is Alive, doubled with each relapse up to 32 times, at most 24 hours; 0 means 5 s.
	Late         time.Duration `json:"late,omitempty"`         // Late is how much later than NextWake the caller may come before silence is laid to it; 0 means 5 s.

	Rules  []Rule        `json:"rules,omitempty"`  // Rules are how long a rank may go without progress, each phase at most once; a phase of this package without a rule keeps its default.
	Factor int           `json:"factor,omitempty"` // Factor is how many times the longest gap seen a gap may be, in thousandths, from 1000 to 1000000; 0 means 5000.
	Learn  int           `json:"learn,omitempty"`  // Learn is how many gaps of a phase must have been seen for that; 0 means 32.
	Memory time.Duration `json:"memory,omitempty"` // Memory is how long a gap is remembered, up to twice that; 0 means 6 hours.

	Partition      int           `json:"partition,omitempty"`      // Partition is the share of a domain's nodes, in millionths, above which silence of that many together is a partition, at most 1000000; 0 means 500000. 1000000 turns it off.
	PartitionNodes int           `json:"partitionNodes,omitempty"` // PartitionNodes is how many nodes it takes at least; 0 means 3.
	Hold           time.Duration `json:"hold,omitempty"`           // Hold is how long a partition, or a witness, keeps a node from dying of silence; 0 means 10 minutes.
	Accuse         time.Duration `json:"accuse,omitempty"`         // Accuse is how long an accusation stands; 0 means 1 minute.
	History        int           `json:"history,omitempty"`        // History is how many fault lists are kept for late readers, at most 1000; 0 means 8.

	Domain func(lockstep.NodeID) string `json:"-"` // Domain names what a node may be cut off with, such as its rack or switch; it is asked once at its join and must not call back; nil or "" means only the whole.
}

// NoPause is the Config.Pause of none.
const NoPause time.Duration = -1

// maxWindow is the most that Config.Window may be.
const maxWindow = 1000

const (
	thousand    = 1_000
	million     = 1_000_000
	leastGap    = 30 * time.Second
	maxRelapses = 5
	maxCount    = 1 << 62 // the highest floor of Raise, so that no epoch overflows
	maxReason   = 64      // bytes of a reason in a report
	maxAccuse   = 8       // accusations that one rank may have open
	maxOpen     = 4096    // accusations that may be open in all
)

// defaults returns the rules of the phases of this package: generous, as long as
// nothing is known of the job.
func defaults() []Rule {
	return []Rule{
		{Phase: PhaseStep, Gap: 10 * time.Minute},
		{Phase: PhaseFirst, Gap: 30 * time.Minute, Fixed: true},
		{Phase: PhaseCompile, Gap: time.Hour, Fixed: true},
		{Phase: PhaseCheckpoint, Gap: 30 * time.Minute, Pause: time.Minute},
		{Phase: PhaseEvaluation, Gap: time.Hour},
		{Phase: PhaseTeardown, Gap: 5 * time.Minute, Fixed: true, Pause: time.Minute},
	}
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	f := &faults{}
	f.within("Method", int64(c.Method), 0, int64(Deadline))
	for _, d := range []struct {
		field string
		value time.Duration
		most  time.Duration
	}{
		{"Interval", c.Interval, time.Minute},
		{"MinSigma", c.MinSigma, time.Minute},
		{"SuspectAfter", c.SuspectAfter, lockstep.MaxWalltime},
		{"DeadAfter", c.DeadAfter, lockstep.MaxWalltime},
		{"Startup", c.Startup, lockstep.MaxWalltime},
		{"Reconnect", c.Reconnect, lockstep.MaxWalltime},
		{"Settle", c.Settle, 24 * time.Hour},
		{"Late", c.Late, lockstep.MaxWalltime},
		{"Memory", c.Memory, lockstep.MaxWalltime},
		{"Hold", c.Hold, lockstep.MaxWalltime},
		{"Accuse", c.Accuse, lockstep.MaxWalltime},
	} {
		f.lasts(d.field, d.value, 0, d.most)
	}
	f.lasts("Pause", c.Pause, NoPause, lockstep.MaxWalltime)
	if c.Window != 0 {
		f.within("Window", int64(c.Window), 2, maxWindow)
	}
	if c.Factor != 0 {
		f.within("Factor", int64(c.Factor), thousand, million)
	}
	f.within("Learn", int64(c.Learn), 0, million)
	f.within("Partition", int64(c.Partition), 0, million)
	f.within("PartitionNodes", int64(c.PartitionNodes), 0, lockstep.MaxMembers)
	f.within("History", int64(c.History), 0, thousand)
	full := c.withDefaults()
	f.within("Dead", int64(full.Dead), 500, 300_000)
	f.within("Suspect", int64(full.Suspect), 500, int64(full.Dead))
	if full.Method == Deadline && full.DeadAfter < full.SuspectAfter {
		f.add(lockstep.ErrInvalid, "DeadAfter", c.DeadAfter.String(), "want at least SuspectAfter, "+full.SuspectAfter.String())
	}
	f.rules(c.Rules)
	return errors.Join(f.errs...)
}

func (f *faults) rules(rules []Rule) {
	var seen [maxPhases]bool
	for i, r := range rules {
		at := "Rules[" + strconv.Itoa(i) + "]."
		if r.Phase >= maxPhases {
			f.add(lockstep.ErrInvalid, at+"Phase", strconv.Itoa(int(r.Phase)), "want 0 to "+strconv.Itoa(maxPhases-1))
			continue
		}
		if seen[r.Phase] {
			f.add(lockstep.ErrDuplicate, at+"Phase", r.Phase.String(), "has a rule already")
		}
		seen[r.Phase] = true
		f.lasts(at+"Gap", r.Gap, 1, lockstep.MaxWalltime)
		f.lasts(at+"Least", r.Least, 0, lockstep.MaxWalltime)
		f.lasts(at+"Most", r.Most, 0, lockstep.MaxWalltime)
		f.lasts(at+"Pause", r.Pause, 0, lockstep.MaxWalltime)
		if r.Most != 0 && r.Most < r.Least {
			f.add(lockstep.ErrInvalid, at+"Most", r.Most.String(), "want at least Least, "+r.Least.String())
		}
	}
}

// faults collects what is wrong with a Config.
type faults struct{ errs []error }

func (f *faults) add(kind error, field, value, reason string) {
	f.errs = append(f.errs, fault(kind, "config", field, value, reason))
}

func (f *faults) lasts(field string, d, least, most time.Duration) {
	if d < least || d > most {
		f.add(lockstep.ErrInvalid, field, d.String(), "want "+least.String()+" to "+most.String())
	}
}

func (f *faults) within(field string, x, least, most int64) {
	if x < least || x > most {
		f.add(lockstep.ErrInvalid, field, strconv.FormatInt(x, 10), "want "+strconv.FormatInt(least, 10)+" to "+strconv.FormatInt(most, 10))
	}
}

// withDefaults returns c with every zero spelled out, but for Rules.
func (c Config) withDefaults() Config {
	or(&c.Interval, time.Second)
	or(&c.Window, 64)
	or(&c.MinSigma, 100*time.Millisecond)
	or(&c.Pause, 3*time.Second)
	or(&c.Suspect, 8000)
	or(&c.Dead, max(12000, c.Suspect))
	or(&c.SuspectAfter, 5*time.Second)
	or(&c.DeadAfter, min(2*max(c.SuspectAfter, 0), lockstep.MaxWalltime))
	or(&c.Startup, 10*time.Minute)
	or(&c.Settle, 5*time.Second)
	or(&c.Late, 5*time.Second)
	or(&c.Factor, 5*thousand)
	or(&c.Learn, 32)
	or(&c.Memory, 6*time.Hour)
	or(&c.Partition, million/2)
	or(&c.PartitionNodes, 3)
	or(&c.Hold, 10*time.Minute)
	or(&c.Accuse, time.Minute)
	or(&c.History, 8)
	return c
}

func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// table returns the rules by phase, with their zeros spelled out; a phase
// without one has a Gap of 0.
func (c *Config) table() (rules [maxPhases]Rule) {
	for _, r := range slices.Concat(defaults(), c.Rules) {
		if r.Least == 0 {
			r.Least = min(leastGap, r.Gap)
		}
		if r.Most == 0 {
			r.Most = max(r.Least, min(4*min(r.Gap, lockstep.MaxWalltime/4), lockstep.MaxWalltime))
		}
		r.Most = max(r.Most, r.Least)
		rules[r.Phase] = r
	}
	return rules
}

func (c *Config) pause() int64 { return int64(max(c.Pause, 0)) }
