package health

import (
	"errors"
	"strconv"
	"time"

	"github.com/lockstep-gpu/lockstep"
)

// Config configures a Machine. The zero value is valid.
type Config struct {
	Policy       Policy        `json:"policy,omitzero"`        // Policy says what codes mean; zero means Catalog.
	Watch        time.Duration `json:"watch,omitempty"`        // Watch is how long a suspect must be quiet; 0 means 10 minutes.
	Dwell        time.Duration `json:"dwell,omitempty"`        // Dwell is how long a cordoned one, or one on probation, must be; 0 means 30 minutes.
	MaxDwell     time.Duration `json:"maxDwell,omitempty"`     // MaxDwell bounds both as they double with each relapse; 0 means 24 hours. Not below Watch and Dwell.
	Relapse      time.Duration `json:"relapse,omitempty"`      // Relapse is how long a recovery, a relapse and a reboot that did not help are remembered; 0 means 7 days.
	SameRelapses int           `json:"sameRelapses,omitempty"` // SameRelapses is how many relapses by one code ask for inspection, at most 16; 0 means 3.
	AnyRelapses  int           `json:"anyRelapses,omitempty"`  // AnyRelapses is how many by whatever code do, at most 16; 0 means 5.
	Repeat       int           `json:"repeat,omitempty"`       // Repeat is how many occurrences of one code escalate, at most 16; 0 means 5.
	RepeatWindow time.Duration `json:"repeatWindow,omitempty"` // RepeatWindow is within what time; 0 means 24 hours.
	Reboots      int           `json:"reboots,omitempty"`      // Reboots is how many reboots may fail to help against a code until it asks for inspection, at most 16; 0 means 2.
	Coalesce     time.Duration `json:"coalesce,omitempty"`     // Coalesce is the silence that ends an occurrence: reports less than that apart are one; 0 means 3 minutes.
	Hold         time.Duration `json:"hold,omitempty"`         // Hold is how long a code that may be nothing waits for what explains it, and losses for others; 0 means 30 seconds.
	Teardown     time.Duration `json:"teardown,omitempty"`     // Teardown is how long after the end of a job codes of teardown are nothing; 0 means 30 seconds. Hold is how long before.
	Crowd        int           `json:"crowd,omitempty"`        // Crowd is on how many devices a sympathetic code is nothing; 0 means 4.
	Blast        int           `json:"blast,omitempty"`        // Blast is the share of a domain's nodes, in thousandths, that may be closed without anybody being asked; one always may; 0 means 250.
	Stale        time.Duration `json:"stale,omitempty"`        // Stale is how long what was seen healthy by an observer is taken to be so; 0 means 10 minutes.
	Skew         time.Duration `json:"skew,omitempty"`         // Skew is how far ahead of Step's time an event may be; beyond, it is taken to be of Step's time; 0 means 1 minute.
	Decay        time.Duration `json:"decay,omitempty"`        // Decay is in what time a penalty halves; 0 means 24 hours.
	Floor        int           `json:"floor,omitempty"`        // Floor is what is left of an open device's worth at the least, in thousandths, so that it is tried at times; 0 means 50.
	Lenient      bool          `json:"lenient,omitempty"`      // Lenient says that a new device is healthy once an observer sees it and nothing is against it; else a probe has to pass.

	Domain func(lockstep.NodeID) string `json:"-"` // Domain names what a node fails together with, such as its rack; it is asked when a node is tracked first, and must not call back. Nil means that all nodes are of one.
}

// most is how many occurrences, relapses, reboots and reporters are remembered, so
// the most of each that a rule can ask for.
const most = 16

const thousand = 1000

func (c Config) withDefaults() Config {
	if c.Policy.zero() {
		c.Policy = Catalog()
	}
	for _, d := range [...]struct {
		into  *time.Duration
		value time.Duration
	}{
		{&c.Watch, 10 * time.Minute},
		{&c.Dwell, 30 * time.Minute},
		{&c.MaxDwell, max(24*time.Hour, c.Watch, c.Dwell)},
		{&c.Relapse, 7 * 24 * time.Hour},
		{&c.RepeatWindow, 24 * time.Hour},
		{&c.Coalesce, 3 * time.Minute},
		{&c.Hold, 30 * time.Second},
		{&c.Teardown, 30 * time.Second},
		{&c.Stale, 10 * time.Minute},
		{&c.Skew, time.Minute},
		{&c.Decay, 24 * time.Hour},
	} {
		if *d.into == 0 {
			*d.into = d.value
		}
	}
	for _, d := range [...]struct {
		into  *int
		value int
	}{
		{&c.SameRelapses, 3},
		{&c.AnyRelapses, 5},
		{&c.Repeat, 5},
		{&c.Reboots, 2},
		{&c.Crowd, 4},
		{&c.Blast, 250},
		{&c.Floor, 50},
	} {
		if *d.into == 0 {
			*d.into = d.value
		}
	}
	return c
}

// Validate reports every fault of c, joined.
func (c Config) Validate() error {
	var f faults
	for _, d := range [...]struct {
		field string
		value time.Duration
	}{
		{"Watch", c.Watch},
		{"Dwell", c.Dwell},
		{"MaxDwell", c.MaxDwell},
		{"Relapse", c.Relapse},
		{"RepeatWindow", c.RepeatWindow},
		{"Coalesce", c.Coalesce},
		{"Hold", c.Hold},
		{"Teardown", c.Teardown},
		{"Stale", c.Stale},
		{"Skew", c.Skew},
		{"Decay", c.Decay},
	} {
		f.duration(d.field, d.value)
	}
	f.between("SameRelapses", c.SameRelapses, 0, most)
	f.between("AnyRelapses", c.AnyRelapses, 0, most)
	f.between("Repeat", c.Repeat, 0, most)
	f.between("Reboots", c.Reboots, 0, most)
	f.between("Crowd", c.Crowd, 0, 1<<30)
	f.between("Blast", c.Blast, 0, thousand)
	f.between("Floor", c.Floor, 0, thousand)
	full := c.withDefaults()
	if full.MaxDwell < full.Watch || full.MaxDwell < full.Dwell {
		f.add("MaxDwell", c.MaxDwell.String(), "must not be below Watch and Dwell")
	}
	if !c.Policy.zero() {
		if err := c.Policy.Validate(); err != nil {
			f = append(f, err)
		}
	}
	return errors.Join(f...)
}

// faults collects what is wrong with a configuration.
type faults []error

func (f *faults) add(field, value, reason string) {
	*f = append(*f, fault(lockstep.ErrInvalid, "config", field, value, reason))
}

func (f *faults) duration(field string, d time.Duration) {
	if d < 0 || d > lockstep.MaxWalltime {
		f.add(field, d.String(), "want 0 to "+lockstep.MaxWalltime.String())
	}
}

func (f *faults) between(field string, n, least, greatest int) {
	if n < least || n > greatest {
		f.add(field, strconv.Itoa(n), "want "+strconv.Itoa(least)+" to "+strconv.Itoa(greatest))
	}
}

func fault(kind error, op, field, value, reason string) *lockstep.Error {
	return &lockstep.Error{Kind: kind, Op: "health: " + op, Field: field, Value: value, Reason: reason}
}
